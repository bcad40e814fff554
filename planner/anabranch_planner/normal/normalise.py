"""From a parsed query to the :class:`~anabranch_contract.queries.joins.JoinQuery` that is planned.

The passes, in order: resolve the FROM list, queries in it from the inside out, and sort every
conjunct on the way into equality, time bound, local filter or residual; close the equalities into
key classes; close the bounds; name relations and labels; project. Conjuncts are sets: their order,
their spelling and their place (ON, WHERE, a query in FROM) leave no trace in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import Column, Expr, Output, substitute
from anabranch_contract.queries.joins import (
    AttrRef,
    Bounds,
    Equality,
    JoinQuery,
    KeyClass,
    Label,
    Member,
    Micros,
    QueryId,
    Relation,
    Stream,
    StreamName,
    label_for,
    make_relation,
)
from anabranch_contract.queries.outer_joins import LEFT_SUFFIX
from anabranch_planner.binding.outer_joins import Sides, of_those, with_source
from anabranch_planner.binding.outputs import columns_of, written
from anabranch_planner.binding.post_join import Split, split
from anabranch_planner.binding.totals import with_totals
from anabranch_planner.binding.typecheck import (
    COMPARISONS,
    aliases,
    boolean,
    compare,
    operands,
    split_between,
    typed,
)
from anabranch_planner.normal import time_bounds as matrices
from anabranch_planner.normal.conditions import canonical, is_true
from anabranch_planner.normal.key_classes import (
    Class,
    Side,
    classes_of,
    key_sides,
    local_filters,
    relabelled,
)
from anabranch_planner.normal.occurrences import Structure, occurrences
from anabranch_planner.normal.time_conditions import AliasBound, difference_bounds
from anabranch_planner.sql.durations import format_duration
from anabranch_planner.sql.scope import Scope, find_stream, nearest
from anabranch_planner.sql.syntax import parsed_inside
from anabranch_planner.sql.unresolved import Node, Partner, Source, Unresolved, at, located


@dataclass(slots=True)
class _Conjuncts:
    """The conjuncts of a query, by kind, while they are being collected."""

    equalities: list[tuple[Side, Side]] = field(default_factory=list)
    bounds: list[AliasBound] = field(default_factory=list)
    filters: dict[str, list[Expr]] = field(default_factory=dict)
    residuals: list[Expr] = field(default_factory=list)
    #: Part of a structured query -> the alias that it declares.
    fields: dict[str, str] = field(default_factory=dict)


def normalise(
    query_id: str,
    query: Unresolved,
    streams: Mapping[str, Stream],
    window: int | Mapping[str, int] | None = None,
    relaxed: Mapping[str, tuple[Expr, ...]] | None = None,
) -> JoinQuery:
    """The canonical form of ``query`` over ``streams``; arguments and errors: :func:`joined`."""
    if query.partner is not None:
        return with_partner(query_id, query, query.partner, streams, window)
    return joined(query_id, query, streams, window, relaxed=relaxed)


def with_partner(
    query_id: str,
    query: Unresolved,
    partner: Partner,
    streams: Mapping[str, Stream],
    window: int | Mapping[str, int] | None,
) -> JoinQuery:
    """An outer, semi or anti join as two joins (``outer``): pairs, and left rows beside them.

    A view above it is over its rows: these have the columns that the view reads.
    """

    def inner(node: Node) -> JoinQuery:
        with at(node):
            raise QueryError(
                "unsupported-sql",
                f"a query as a value above a {partner.kind.upper()} JOIN is not supported",
                remedy="leave it out",
            )

    whole = with_source(query, partner)
    sides = Sides(query, partner, scope_of(query, streams), scope_of(whole, streams))
    pairs = joined(query_id, whole, streams, window, lambda _: ())
    parts = None if query.above is None else split(query, sides.shown_scope, inner)
    shown = None if parts is None else [(s.name, s.expr) for s in parts.joined]
    plan = sides.plan(pairs, shown)
    pairs = joined(query_id, whole, streams, window, lambda _: plan.pair_columns)
    left = replace(query, partner=None, above=None)
    rows = joined(
        f"{query_id}{LEFT_SUFFIX}",
        left,
        streams,
        of_those(window, sides.left),
        lambda _: plan.left_columns,
    )
    view = None if parts is None else parts.view
    return replace(pairs, outer=plan.outer, left=rows, view=view)


def scope_of(query: Unresolved, streams: Mapping[str, Stream]) -> Scope:
    """What the FROM list of ``query`` shows."""
    return _resolve(query, streams, _Conjuncts(), "")


def joined(
    query_id: str,
    query: Unresolved,
    streams: Mapping[str, Stream],
    window: int | Mapping[str, int] | None = None,
    columns: Callable[[Scope], tuple[tuple[str, Expr], ...]] | None = None,
    relaxed: Mapping[str, tuple[Expr, ...]] | None = None,
) -> JoinQuery:
    """The canonical form of a query without a partner.

    Args:
        columns: what is to be projected, given what FROM shows; None: the SELECT list.
        relaxed: alias -> the filter that its relation is to have, which its own implies; what it
            lacks becomes a residual.
        query_id: the query's id.
        query: what the parser found.
        streams: the registered streams by name.
        window: microseconds for every alias, or alias -> microseconds (others unbounded).

    Raises:
        QueryError: the query is no connected inner equi-join, or names and types don't fit.
    """
    found = _Conjuncts()
    scope = _resolve(query, streams, found, "")
    names = list(scope.streams)
    closed = _closed_bounds(scope, found, window)
    classes = classes_of(found.equalities)
    _require_connected(names, classes, found)

    def inner(node: Node) -> JoinQuery:
        """A query within the statement."""
        return joined(query_id, parsed_inside(node, query), streams, window, relaxed=relaxed)

    parts = None
    if columns is None:
        shown, parts = _outputs(query, scope, inner)
    else:
        shown = columns(scope)
    relations = _relations(scope, classes, found, relaxed or {})
    structure = Structure(
        {alias: relation.id for alias, relation in relations.items()},
        [c for c in classes if len(c.aliases) > 1],
        closed,
        found.residuals,
        shown,
    )
    labels = {a: label_for(relations[a].id, n) for a, n in occurrences(structure).items()}
    connecting = tuple(relabelled(c, labels) for c in classes if len(c.aliases) > 1)
    found_query = JoinQuery(
        id=QueryId(query_id),
        members=tuple(Member(a, labels[a], relations[a].id) for a in names),
        relations=tuple({relations[a].id: relations[a] for a in names}.values()),
        predicates=_predicates(found.equalities, labels),
        classes=_key_classes(connecting),
        bounds=closed,
        residuals=_residuals(found.residuals, labels),
        projection=tuple(Output(name, _labelled(expr, labels)) for name, expr in shown),
        derived=_derived(classes, scope),
        view=None if parts is None else parts.view,
    )
    return found_query if parts is None else with_totals(found_query, parts.scalars)


# --- FROM --------------------------------------------------------------------------------------


def _resolve(
    query: Unresolved, streams: Mapping[str, Stream], found: _Conjuncts, within: str
) -> Scope:
    """What the FROM list of ``query`` shows; its conditions and those inside go to ``found``.

    Args:
        within: what the aliases of its streams begin with.
    """
    if not query.sources:
        raise QueryError("malformed-sql", "the query has no sources", remedy="name a stream")
    scopes = [Scope()]
    for place, source in enumerate(query.sources, 1):
        with located(source.field), at(source.node):
            before, own = scopes[-1], _source(source, place, streams, found, within)
            using = before.common(own) if source.natural else source.using
            after = before.joined(own, using)
            for name in using:
                _add_comparison("eq", before.column(name), own.column(name), after, found)
        scopes.append(after)
    for condition in query.conditions:
        with located(condition.field), at(condition.node):
            for node in operands(condition.node, exp.And):
                _classify(node, scopes[condition.scope], found)
    return scopes[-1]


def _source(
    source: Source,
    place: int,
    streams: Mapping[str, Stream],
    found: _Conjuncts,
    within: str,
) -> Scope:
    """What the ``place``-th source of a FROM list shows by itself."""
    if isinstance(source.of, str):
        alias = source.alias or source.of
        if source.field:
            found.fields[source.field] = within + alias
        return Scope.of_stream(alias, find_stream(source.of, streams), within, source.columns)
    if source.alias is None and not source.of.items:
        return _resolve(source.of, streams, found, within)
    inside = f"{within}{source.alias or f'subquery{place}'}."
    inner = _resolve(source.of, streams, found, inside)
    shown = columns_of(source.of.items, inner) if source.of.items else inner.visible
    return inner.as_table(source.alias, shown, source.columns)


# --- conjuncts ---------------------------------------------------------------------------------


def _classify(node: Node, scope: Scope, found: _Conjuncts) -> None:
    with at(node):
        _classified(node, scope, found)


def _classified(node: Node, scope: Scope, found: _Conjuncts) -> None:
    if isinstance(node, exp.Between):
        for half in split_between(node):
            _classify(half, scope, found)
        return
    op = COMPARISONS.get(type(node))
    if op is not None:
        left, right = typed(node.this, scope), typed(node.expression, scope)
        _add_comparison(op, left, right, scope, found)
    else:
        _add_condition(boolean(node, scope), scope, found)


def _add_comparison(op: str, left: Expr, right: Expr, scope: Scope, found: _Conjuncts) -> None:
    condition = compare(op, left, right) if op != "eq" else None
    bounds = difference_bounds(op, left, right, scope.streams)
    found.bounds.extend(bounds)
    if op == "eq":
        sides = key_sides(left, right)
        if sides is not None:
            found.equalities.append(sides)
            return
    if not bounds:
        _add_condition(condition or compare(op, left, right), scope, found)


def _add_condition(condition: Expr, scope: Scope, found: _Conjuncts) -> None:
    over = aliases(condition)
    if len(over) > 1:
        found.residuals.append(condition)
        return
    # A constant condition has no alias; unless it is TRUE it filters the first one.
    alias = min(over, default=next(iter(scope.streams)))
    local = canonical(substitute(condition, lambda c: Column("", c.name, c.type)))
    if not is_true(local):
        found.filters.setdefault(alias, []).append(local)


def _residuals(conditions: Iterable[Expr], labels: Mapping[str, Label]) -> tuple[Expr, ...]:
    by_text = {str(e): e for e in (canonical(_labelled(c, labels)) for c in conditions)}
    return tuple(by_text[text] for text in sorted(by_text) if not is_true(by_text[text]))


def _labelled(expr: Expr, labels: Mapping[str, Label]) -> Expr:
    return substitute(expr, lambda c: Column(labels[c.alias], c.name, c.type))


# --- time bounds -------------------------------------------------------------------------------


def _closed_bounds(
    scope: Scope,
    found: _Conjuncts,
    window: int | Mapping[str, int] | None,
) -> Bounds:
    names = list(scope.streams)
    place = {alias: i for i, alias in enumerate(names)}
    matrix = matrices.from_windows(names, _windows(scope, window))
    entries = (
        matrices.single(len(names), place[b.earlier], place[b.later], b.micros)
        for b in found.bounds
    )
    own = matrices.close(reduce(matrices.intersect, entries, matrix), names)
    ttls = _ttls(scope, found.fields)
    if not ttls:
        return own
    limits = matrices.from_windows(names, ttls)
    try:
        return matrices.close(matrices.intersect(own, limits), names)
    except QueryError as error:
        alias = min(ttls, key=lambda a: ttls[a])
        raise QueryError(
            "unsatisfiable-ttl",
            f"{error.message}, as they stand beside the ttl of {_lived(scope, alias)}",
            remedy="lengthen the stream's ttl, or loosen the conditions on event times",
        ) from None


def _ttls(scope: Scope, fields: Mapping[str, str]) -> dict[str, Micros]:
    """The ttl of each alias whose stream has one, where it has anything to join with."""
    ttls = {alias: s.ttl for alias, s in scope.streams.items() if s.ttl is not None}
    if not ttls or len(scope.streams) == 1:
        return {}
    declared = {alias: part for part, alias in fields.items()}
    for alias, stream in scope.streams.items():
        if stream.event_time is None:
            with located(declared.get(alias, "")):
                raise QueryError(
                    "no-event-time",
                    f"the ttl of {_lived(scope, next(iter(ttls)))} needs event times, but stream"
                    f" {str(stream.name)!r} (alias {alias!r}) declares none",
                    remedy=f"declare an event_time for {str(stream.name)!r}, or take the ttl away",
                )
    return ttls


def _lived(scope: Scope, alias: str) -> str:
    return f"stream {str(scope.streams[alias].name)!r} (alias {alias!r})"


def _windows(scope: Scope, window: int | Mapping[str, int] | None) -> dict[str, Micros]:
    if window is None:
        return {}
    by_alias: dict[str, Micros] = {}
    if isinstance(window, Mapping):
        for name, micros in window.items():
            named = scope.find_streams(name)
            if not named or any(alias in by_alias for alias in named):
                raise QueryError(
                    "duplicate-alias" if named else "unknown-alias",
                    f"the window names {name!r}, "
                    + ("more than once" if named else "which is no alias of the query"),
                    field=f"window.{name}",
                    remedy="name it once" if named else nearest(name, scope.streams),
                )
            by_alias.update(dict.fromkeys(named, micros))
    else:
        by_alias = dict.fromkeys(scope.streams, window)
    for alias, micros in by_alias.items():
        place = f"window.{alias}" if isinstance(window, Mapping) else "window"
        if micros < 0:
            raise QueryError(
                "negative-window",
                f"the window of {alias!r} is negative: {format_duration(micros)}",
                field=place,
                remedy="give a duration of zero or more",
            )
        timeless = [a for a, s in scope.streams.items() if s.event_time is None]
        if timeless:
            stream = scope.streams[timeless[0]].name
            raise QueryError(
                "no-event-time",
                f"the window of {alias!r} needs event times, but stream {str(stream)!r}"
                f" (alias {timeless[0]!r}) declares none",
                field=place,
                remedy="declare its event_time, or leave the window out",
            )
    return by_alias


# --- relations, labels, classes ----------------------------------------------------------------


def _relations(
    scope: Scope,
    classes: Sequence[Class],
    found: _Conjuncts,
    relaxed: Mapping[str, tuple[Expr, ...]],
) -> dict[str, Relation]:
    """Per alias its relation: all local filters, implied equalities included; or the filter that it
    is given, and residuals for the rest.
    """
    filters = {alias: list(conditions) for alias, conditions in found.filters.items()}
    for key_class in classes:
        for alias, equalities in local_filters(key_class).items():
            filters.setdefault(alias, []).extend(canonical(e) for e in equalities)
    for alias, kept in relaxed.items():
        for condition in filters.get(alias, ()):
            if condition not in kept:
                found.residuals.append(_seen_through(condition, alias))
        filters[alias] = list(kept)
    return {
        alias: make_relation(stream.name, filters.get(alias, ()))
        for alias, stream in scope.streams.items()
    }


def _seen_through(condition: Expr, alias: str) -> Expr:
    return substitute(condition, lambda c: Column(alias, c.name, c.type))


def _reference(side: Side, labels: Mapping[str, Label]) -> AttrRef:
    return AttrRef(labels[side.alias], side.attribute[1])


def _predicates(
    equalities: Iterable[tuple[Side, Side]], labels: Mapping[str, Label]
) -> tuple[Equality, ...]:
    found = set()
    for left, right in equalities:
        if left.alias != right.alias:
            a, b = sorted((_reference(left, labels), _reference(right, labels)))
            found.add(Equality(a, b))
    return tuple(sorted(found, key=lambda e: (e.left, e.right)))


def _key_classes(joined: Iterable[Class]) -> tuple[KeyClass, ...]:
    found = [
        KeyClass(c.type, tuple(AttrRef(Label(s.alias), s.attribute[1]) for s in c.sides))
        for c in joined
    ]
    return tuple(sorted(found, key=lambda c: c.members))


def _derived(classes: Iterable[Class], scope: Scope) -> tuple[tuple[StreamName, str, Expr], ...]:
    found: dict[tuple[StreamName, str], Expr] = {}
    for key_class in classes:
        if len(key_class.aliases) < 2:
            continue
        for side in key_class.sides:
            if isinstance(side.expr, Column):
                continue
            stream, text = scope.streams[side.alias], side.attribute[1]
            if stream.type_of(text) is not None:
                raise QueryError(
                    "duplicate-name",
                    f"the join key {text} is also the name of a column of {str(stream.name)!r}",
                    remedy="rename the column in the stream",
                )
            found[stream.name, text] = side.expr
    return tuple((stream, text, found[stream, text]) for stream, text in sorted(found))


def _require_connected(names: Sequence[str], classes: Iterable[Class], found: _Conjuncts) -> None:
    components = _components(names, (c.aliases for c in classes))
    if len(components) == 1:
        return
    first, second = components[0], components[1]
    sets = " and ".join("{" + ",".join(sorted(c, key=names.index)) + "}" for c in (first, second))
    related = [aliases(r) for r in found.residuals]
    related += [frozenset((b.earlier, b.later)) for b in found.bounds]
    if len(_components(names, [*(c.aliases for c in classes), *related])) == 1:
        raise QueryError(
            "no-equi-join",
            f"{sets} are joined only by conditions that are no equalities",
            remedy=f"add an equality between them, e.g. {first[0]}.key = {second[0]}.key",
        )
    raise QueryError(
        "cross-product",
        f"cross product between {sets}",
        remedy=f"add an equality between them, e.g. {first[0]}.key = {second[0]}.key",
    )


def _components(names: Sequence[str], links: Iterable[frozenset[str]]) -> list[list[str]]:
    component = {name: {name} for name in names}
    for link in links:
        merged = set().union(*(component[name] for name in link))
        for name in merged:
            component[name] = merged
    unique = {id(c): c for c in component.values()}
    return sorted(
        (sorted(c, key=names.index) for c in unique.values()), key=lambda c: names.index(c[0])
    )


# --- SELECT ------------------------------------------------------------------------------------


def _outputs(
    query: Unresolved, scope: Scope, inner: Callable[[Node], JoinQuery]
) -> tuple[tuple[tuple[str, Expr], ...], Split | None]:
    """The columns of the join's results, and what stands above them."""
    if query.above is not None:
        parts = split(query, scope, inner)
        return tuple((s.name, s.expr) for s in parts.joined), parts
    return written(query.items, scope), None
