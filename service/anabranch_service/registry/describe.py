"""Description of a query's normal form for users, with the aliases of its statement."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from anabranch_contract.durations import format_duration
from anabranch_contract.queries.changes import TUPLE_WEIGHT
from anabranch_contract.queries.expressions import Column, Expr, Output, columns, substitute
from anabranch_contract.queries.joins import ARRIVAL, Bounds, JoinQuery, Label, QueryMember, Stream
from anabranch_contract.queries.outer_joins import OuterJoin
from anabranch_contract.queries.views import (
    CHANGE,
    GROUPING_ID,
    PLACE,
    WINDOW_END,
    WINDOW_START,
    View,
    call_text,
    change_columns,
    limit_text,
    window_text,
    windowed_text,
)
from anabranch_contract.rest.normalised import (
    AliasInfo,
    BoundInfo,
    ClassInfo,
    LookUpInfo,
    NormalisedInfo,
    OuterInfo,
    OutputInfo,
    ViewInfo,
)

_UNSORTED = (
    "ORDER BY has no effect: results are written as they arise; sort them where they are read, or "
    "add a LIMIT for the first rows",
)
_ANY = (
    "LIMIT without ORDER BY keeps the first rows by their columns; say with ORDER BY which rows "
    "are wanted",
)


def describe(query: JoinQuery, streams: Mapping[str, Stream]) -> NormalisedInfo:
    """Describe a query: aliases, classes of equal keys, time bounds, output columns, notes.

    Args:
        streams: the streams that the query was parsed with.
    """
    parts = _parts(query)
    # Tuples that complete no result do not require that other tuples stay stored.
    unbounded = tuple(a for part in parts for a in _unbounded(part, part.looked_up))
    without_bound = [a for part in parts for a in _unbounded(part, _timeless(part, streams))]
    return NormalisedInfo(
        aliases=tuple(
            AliasInfo(
                alias=m.alias,
                stream=part.relation_of(m.label).stream,
                relation=m.relation,
                label=m.label,
                filter=tuple(str(f) for f in part.relation_of(m.label).filter),
            )
            for part, m in _members(query)
        ),
        classes=tuple(
            ClassInfo(
                type=c.type,
                members=tuple(f"{_aliases(part)[r.label]}.{r.attribute}" for r in c.members),
            )
            for part in parts
            for c in part.classes
        ),
        bounds=tuple(b for part in parts for b in bounds_between(_listed(part), part.bounds)),
        unbounded=unbounded,
        residuals=tuple(
            str(_in_aliases(r, _aliases(part)))
            for part in parts
            for r in part.residuals
            if not _is_hidden(r)
        ),
        expansions=tuple(
            str(one.over(partial(_in_aliases, alias_of=_aliases(part))))
            for part in parts
            for one in part.expansions
        ),
        output=tuple(OutputInfo(name=o.name, type=str(o.expr.type)) for o in query.shown),
        view=None if query.view is None else _described_view(query, query.view),
        outer=None if query.outer is None else _described_outer_join(query, query.outer),
        branches=[list(_listed(part)) for part in parts if query.united],
        notes=(
            *_UNSORTED[: query.unsorted],
            *_ANY[: query.view is not None and _keeps_any(query.view)],
            *(note for part in parts for note in _lived(part, streams)),
            *_latest(query, streams),
            *_changing(query, streams),
            *dict.fromkeys(
                note
                for part in (parts if query.united else (query,))
                for note in _kept_groups(part, streams)
            ),
            *(note for part in parts for note in _shared(part, _aliases(part))),
            *_unbounded_notes(
                tuple(alias for part in parts for alias in _listed(part)), unbounded, without_bound
            ),
        ),
    )


def _keeps_any(view: View) -> bool:
    return view.limit is not None and not view.order


def _parts(query: JoinQuery) -> tuple[JoinQuery, ...]:
    """Return the inner joins of a query, which together read all of its aliases."""
    if query.united:
        return query.planned
    return (query.left, query) if query.is_asof and query.left is not None else (query,)


def _listed(query: JoinQuery) -> tuple[str, ...]:
    return tuple(m.alias for m in query.members)


def _unbounded(query: JoinQuery, exempt: Collection[Label]) -> Iterator[str]:
    """Return the aliases of one join, except ``exempt``, whose tuples join tuples of other aliases
    with arbitrarily late event times."""
    ignored = [label in exempt for label in query.labels]
    for alias, row, without in zip(_listed(query), query.bounds, ignored, strict=True):
        bounds = zip(row, ignored, strict=True)
        if not without and any(bound is None and not other for bound, other in bounds):
            yield alias


def _timeless(query: JoinQuery, streams: Mapping[str, Stream]) -> frozenset[Label]:
    """Return the labels of a join to which no time bound can apply, as they have no event time."""
    of = {label: streams[query.relation_of(label).stream] for label in query.labels}
    return frozenset({label for label in of if of[label].has_no_times}.union(query.looked_up))


def _aliases(query: JoinQuery) -> dict[Label, str]:
    return {m.label: m.alias for m in query.members}


def _members(query: JoinQuery) -> list[tuple[JoinQuery, QueryMember]]:
    """Return the aliases of all joins of a query, each once, with a join that contains it."""
    found: dict[str, tuple[JoinQuery, QueryMember]] = {}
    for part in (*_parts(query), *query.others):
        for member in part.members:
            found.setdefault(member.alias, (part, member))
    return list(found.values())


def _columns(query: JoinQuery) -> dict[str, Expr]:
    """Return the output columns of all joins of a query, as expressions over the user's aliases."""
    return {
        output.name: _in_aliases(output.expr, _aliases(part))
        for part in (*_parts(query), *query.others)
        for output in part.projection
    }


def _described_view(query: JoinQuery, view: View) -> ViewInfo:
    below = _texts_below(query)
    names = {a.name: call_text(a, below) for a in view.aggregates}
    keys = {name: below[name] for name, _ in view.keys}
    window = view.window
    if window is not None:
        said = window_text(window, below[window.column])
        keys |= {WINDOW_START: f"{said}.start", WINDOW_END: f"{said}.end"}
    terms = keys | names | {GROUPING_ID: "grouping_id()"} if view.grouped else below
    terms = {**terms, PLACE: f"{view.ranking}()"}

    def text(expr: Expr) -> str:
        return str(substitute(expr, lambda c: Column("", terms.get(c.name, c.name), c.type)))

    order = tuple(text(s.expr) + (" DESC" if s.descending else "") for s in view.order)
    partition = tuple(below[name] for name, _ in view.partition)
    over = f"PARTITION BY {', '.join(partition)} " if partition else ""
    over += f"ORDER BY {', '.join(order)}" if order else ""
    key = view.order[0].expr.type if view.order else None
    terms |= {one.name: windowed_text(one, below, over.strip(), key) for one in view.windowed}

    return ViewInfo(
        identity=view.identity,
        joined=tuple(f"{name} = {text}" for name, text in below.items()),
        keys=tuple(keys.values()),
        aggregates=tuple(names.values()),
        having=None if view.having is None else text(view.having),
        copies=None if view.copies is None else text(view.copies),
        order=order,
        limit=view.limit,
        offset=view.offset,
        limits=tuple(limit_text(one, below[one.column]) for one in view.limits),
        sets=tuple([below[view.keys[place][0]] for place in one] for one in view.sets),
        partition=partition,
        ranking=str(view.ranking) if view.ranked else None,
        changes=tuple(OutputInfo(name=n, type=str(kind)) for n, kind in change_columns(view)),
    )


def _texts_below(query: JoinQuery) -> dict[str, str]:
    """Return a view's input columns as texts; of a union, a text per branch: ``a.x | b.y``."""
    if not query.united:
        return {o.name: str(o.expr) for o in _below(query)}
    found: dict[str, dict[str, None]] = {}
    for part in query.planned:
        for output in part.projection:
            text = str(_in_aliases(output.expr, _aliases(part)))
            found.setdefault(output.name, {})[text] = None
    return {name: " | ".join(texts) for name, texts in found.items()}


def _below(query: JoinQuery) -> tuple[Output, ...]:
    """Return a described view's input columns as expressions over the streams' columns."""
    exprs = _columns(query)
    if query.outer is None:
        return tuple(Output(name, expr) for name, expr in exprs.items())
    return tuple(
        Output(o.name, substitute(o.expr, lambda c: exprs[c.name])) for o in query.outer.projection
    )


def _described_outer_join(query: JoinQuery, outer: OuterJoin) -> OuterInfo:
    below = _columns(query)
    times = [f"{below[name]} + {format_duration(micros)}" for name, micros in outer.times]
    parts = [
        [m.alias for m in part.members] for part in (query.left or query, query, *query.others)
    ]
    parents = [0] if not outer.look_ups else [one.parent for one in outer.look_ups]
    partners = [
        next(alias for alias in pairs if alias not in parts[parent])
        for pairs, parent in zip(parts[1:], parents, strict=False)
    ]
    deadline = times[0] if len(times) == 1 else f"least({', '.join(times)})"
    return OuterInfo(
        kind=outer.kind,
        partner=partners[0],
        left=tuple(str(below[name]) for name, _ in outer.left if not _is_hidden(below[name])),
        deadline=deadline if times else None,
        look_ups=tuple(
            LookUpInfo(
                kind=one.kind,
                partner=alias,
                nearest=" AND ".join(_over(e, below) for e in outer.conditions) or None,
            )
            for one, alias in zip(outer.look_ups, partners, strict=False)
        ),
        where=tuple(_over(e, below) for e in outer.where),
        changes=outer.kept,
    )


def _over(condition: Expr, below: Mapping[str, Expr]) -> str:
    """Return the text of a condition over joined rows; ``below``: column -> its expression."""
    return str(substitute(condition, lambda c: below[c.name]))


def _shared(query: JoinQuery, alias_of: Mapping[Label, str]) -> Iterator[str]:
    """Return notes on filters that are tested as tags because the query shares a store."""
    for residual in query.residuals if len(query.members) > 1 else ():
        over = {c.alias for c in columns(residual)}
        if len(over) == 1 and not _is_hidden(residual):
            alias = alias_of[Label(over.pop())]
            yield (
                f"{_in_aliases(residual, alias_of)} is a tag of the rows of {alias}, which shares "
                "the store of queries with other filters: cheaper than a store of its own"
            )


def _is_hidden(expr: Expr) -> bool:
    """Whether an expression reads the hidden weight or arrival of tuples."""
    return any(c.name in (TUPLE_WEIGHT, ARRIVAL) for c in columns(expr))


def _kept_groups(query: JoinQuery, streams: Mapping[str, Stream]) -> Iterator[str]:
    """Return notes on a view whose windows are kept for ever, since their end is never certain."""
    if query.view is None or query.view.window is None:
        return
    column = query.view.window.column
    if query.outer is not None:
        if query.outer.kept or not query.outer.look_ups or query.left is None:
            yield "all windows are kept, since they are over the rows of an outer join"
            return
        shown = next(o.expr for o in query.outer.projection if o.name == column)
        query, column = query.left, shown.name if isinstance(shown, Column) else ""
    expr = next((o.expr for o in query.projection if o.name == column), None)
    member = next(
        (i for i, m in enumerate(query.members)
         if isinstance(expr, Column) and m.label == expr.alias), None,
    )  # fmt: skip
    own = None if member is None else streams[query.relation_of(query.members[member].label).stream]
    if own is None or not isinstance(expr, Column) or expr.name != own.event_time:
        yield (
            "all windows are kept: they are not over the event time of a stream, so their end "
            "can't be determined"
        )
    elif any(
        bound is None and label not in query.looked_up
        for bound, label in zip(query.bounds[member or 0], query.labels, strict=True)
    ):
        yield (
            "all windows are kept: joined rows may arrive arbitrarily late, so the end of a window "
            "can't be determined"
        )


def bounds_between(aliases: Sequence[str], matrix: Bounds) -> tuple[BoundInfo, ...]:
    """Return the finite entries of a matrix of time bounds between ``aliases``."""
    return tuple(
        BoundInfo(
            earlier=aliases[i], later=aliases[j], micros=bound, duration=format_duration(bound)
        )
        for i, row in enumerate(matrix)
        for j, bound in enumerate(row)
        if i != j and bound is not None
    )


def _in_aliases(expr: Expr, alias_of: Mapping[Label, str]) -> Expr:
    """Return ``expr`` with the user's alias names in place of canonical labels."""
    return substitute(expr, lambda c: Column(alias_of.get(Label(c.alias), c.alias), c.name, c.type))


def _lived(query: JoinQuery, streams: Mapping[str, Stream]) -> Iterator[str]:
    """Return notes on time bounds that come from the ttl of a stream."""
    for i, member in enumerate(query.members):
        stream = streams[query.relation_of(member.label).stream]
        if stream.ttl is not None and stream.ttl in query.bounds[i][:i] + query.bounds[i][i + 1 :]:
            yield (
                f"tuples of {member.alias} join with tuples that are at most "
                f"{format_duration(stream.ttl)} later, by the ttl of stream {stream.name}"
            )


def _latest(query: JoinQuery, streams: Mapping[str, Stream]) -> Iterator[str]:
    """Return notes on aliases whose stream lets only the latest tuple per key join."""
    for part, member in _members(query):
        stream = streams[part.relation_of(member.label).stream]
        if stream.is_table and member.label not in part.looked_up:
            yield (
                f"the rows of table {stream.name} are followed: a row that arrives or is replaced "
                f"changes the results of {member.alias} with all earlier rows"
            )
        elif stream.is_table:
            which = f"the last of each {', '.join(stream.latest)}" if stream.latest else "all"
            yield (
                f"{member.alias} is looked up: a tuple joins with the rows of table {stream.name} "
                f"that exist in its batch, {which}"
            )
        elif member.label in part.looked_up:
            yield (
                f"{member.alias} is looked up: a tuple joins with the latest row of each "
                f"{', '.join(stream.latest)} that stream {stream.name} has in its batch, and later "
                "rows join with later tuples only"
            )
        elif stream.latest:
            yield (
                f"of the tuples of {member.alias} with the same {', '.join(stream.latest)} only "
                f"the latest join: stream {stream.name} keeps no others"
            )


#: Suffix of the names of parts.
_PART = re.compile(r"\.\d+$")
#: Aliases that the planner gives to parts -> their name in notes.
_GIVEN = {
    re.compile(r"joined[\d_]*"): "the joined streams",
    re.compile(r"subquery\d+"): "a subquery",
    re.compile(r"anabranch_(rows|groups)\d*"): "the statement's partitions",
}


def _called(alias: str, stream: str) -> str:
    """Return the name of an alias in notes, as the author of the statement knows it."""
    outer, _, inner = alias.partition(".")
    name = next((name for given, name in _GIVEN.items() if given.fullmatch(outer)), None)
    if name is None or not (inner or _PART.search(stream)):
        return alias
    return inner or name


def _changing(query: JoinQuery, streams: Mapping[str, Stream]) -> Iterator[str]:
    """Yield a note on a query whose results are changes (inserts and deletes)."""
    kept = query.outer is not None and query.outer.kept
    changing = list(dict.fromkeys(_called(*one) for one in query.deleting(streams)))
    if not changing and not kept:
        return
    why = []
    if changing:
        why.append(f"rows of {', '.join(changing)} may be deleted")
    if kept:
        which = "nearest" if query.is_asof else "first"
        why.append(f"a row's {which} partner may come in any later batch")
    output = f"results are inserts and deletes ({CHANGE})"
    if query.view is not None:
        output = "rows below the view may be deleted"
    past = (
        "unless past is none, they include the results over stored rows, so that their sum is the "
        "result over all rows that the query sees"
    )
    versions = [
        member.alias
        for part, member in _members(query)
        if (own := streams[part.relation_of(member.label).stream]).latest and not own.is_table
    ]
    if kept and versions:
        past = (
            "they begin with the rows that arrive after the activation; a pair is not deleted when "
            f"a later row of {', '.join(versions)} replaces its row: each makes a further pair"
        )
    yield f"{output}, since {' and '.join(why)}; {past}"
    if kept:
        rows = (
            "left rows and right rows"
            if which == "nearest"
            else "left rows and pairs with their partners"
        )
        yield f"{rows} are kept for ever, to find their changes"


def _unbounded_notes(
    aliases: tuple[str, ...], unbounded: tuple[str, ...], without_bound: Sequence[str]
) -> tuple[str, ...]:
    if not unbounded:
        return ()
    if not without_bound:
        return ("full history is kept: current rows of upserts and tables join rows of any age",)
    which = "every alias" if tuple(without_bound) == aliases else ", ".join(without_bound)
    return (
        f"no time bound limits how long tuples of {which} can join: full history is kept; "
        "name a window for each alias, add time conditions, or give the streams a ttl, to bound it",
    )
