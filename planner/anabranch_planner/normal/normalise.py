"""Normalisation of a bound query to the canonical
:class:`~anabranch_contract.queries.joins.JoinQuery`.

Steps: merge equalities into key classes; close time bounds; name relations and labels; project. The
result does not depend on the order, spelling and place (ON, WHERE) of conjuncts.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

import msgspec
from sqlglot import exp

from anabranch_contract.durations import format_duration
from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import INT
from anabranch_contract.queries.expressions import Call, Column, Expansion, Expr, Output, substitute
from anabranch_contract.queries.joins import (
    AttrRef,
    Bounds,
    Equality,
    JoinQuery,
    KeyClass,
    Label,
    Micros,
    QueryId,
    QueryMember,
    Relation,
    StreamName,
    label_for,
    make_relation,
)
from anabranch_contract.queries.outer_joins import LEFT_SUFFIX, JoinKind, pairs_id
from anabranch_planner.binding.asof import asof_of
from anabranch_planner.binding.look_ups import chain_of, is_look_up
from anabranch_planner.binding.outer_joins import Sides, of_those, with_source
from anabranch_planner.binding.outputs import written
from anabranch_planner.binding.post_join import Split, sorts_only, split
from anabranch_planner.binding.totals import with_totals
from anabranch_planner.binding.typecheck import aliases
from anabranch_planner.normal import rolling, varying, weights
from anabranch_planner.normal import time_bounds as matrices
from anabranch_planner.normal.bind import Bound, Registration, bind
from anabranch_planner.normal.conditions import canonical, is_true
from anabranch_planner.normal.key_classes import Class, Side, classes_of, local_filters, relabelled
from anabranch_planner.normal.occurrences import Structure, occurrences
from anabranch_planner.normal.unions import united
from anabranch_planner.normal.widened import typed
from anabranch_planner.sql.scope import Scope, nearest
from anabranch_planner.sql.unresolved import (
    SUBQUERY,
    Node,
    PostJoin,
    Unresolved,
    at,
    located,
    unsupported,
)

Columns = tuple[tuple[str, Expr], ...]


def normalise(bound: Bound, given: Registration) -> JoinQuery:
    """The canonical form, a :class:`JoinQuery`, of a bound query.

    Raises:
        QueryError: the query is not a connected equi-join, or names or types don't fit.
    """
    branches, unsorted = (bound, *bound.others), sorts_only(bound.query)
    if any(branch.limits for branch in branches):
        for branch in branches:
            branch.query = rolling.as_table(branch.query)
    if bound.others:
        found = united(bound, given, _branch)
    else:
        _check_tables(bound)
        if not bound.query.outer:
            found = _joined(bound, given)
        else:
            found = _with_deadline(bound, given) or _with_look_ups(bound, given)
    try:
        varying.check(found, given.streams)
    except QueryError:
        with contextlib.ExitStack() as places:
            for node in _varying_nodes(bound, varying.called(found)):
                places.enter_context(at(node))
            raise
    return replace(found, unsorted=True) if unsorted else found


def _varying_nodes(bound: Bound, names: frozenset[str]) -> Iterator[Node]:
    """First call of a function in ``names``, in SQL: the expression around it, then the call."""
    shown = (item.node for item in bound.query.items if item.node is not None)
    clauses = bound.query.post_join or PostJoin()
    grouped = (*(clauses.group or ()), clauses.having, *clauses.order)
    conditions = (condition.node for condition in bound.query.conditions)
    for part in (*bound.after, *shown, *conditions, *filter(None, grouped)):
        for call in part.find_all(exp.Func):
            own = str(call.this) if isinstance(call, exp.Anonymous) else call.sql_name()
            if own.lower() in names:
                yield from (part, call)
                return


def _branch(bound: Bound, given: Registration, columns: Columns) -> JoinQuery:
    _check_tables(bound)
    return _joined(bound, given, columns)


def _check_tables(bound: Bound) -> None:
    """Check that all tables of the statement are looked up by streams.

    Raises:
        TablesFollowed: the statement, or the left side of an outer join, reads tables only; or a
            table is beside an outer join with a stream, or in a FULL JOIN, which stores its rows.
    """
    left = [stream.is_table for stream in bound.scope.streams.values()]
    right = [s.is_table for scope in bound.rights for s in scope.streams.values()]
    if not any(left + right):
        return
    full = any(side.kind is JoinKind.FULL for side in bound.query.outer)
    if all(left) or full or not all(map(is_look_up, bound.rights)):
        raise weights.TablesFollowed


def _with_deadline(bound: Bound, given: Registration) -> JoinQuery | None:
    """An outer, semi or anti join with a deadline as two inner joins, for its matched pairs and its
    left rows. None if there is no deadline, or more than one such join.

    The projections of both joins have the columns that the post-join clauses read.
    """
    query, side = bound.query, bound.query.outer[0]
    if len(query.outer) > 1 or len(bound.rights[0].streams) > 1 or bound.after:
        return None
    if side.kind is JoinKind.FULL or side.asof is not None:
        return None
    given = replace(given, relaxed={})
    whole = bind(with_source(query, side), given)
    if is_look_up(bound.rights[0]) or weights.with_changes(whole.scope):
        return None
    sides = Sides(query, side, bound.scope, bound.rights[0], whole.scope)
    times = sides.times(_joined(whole, given, (), outer=True))
    if not times:
        return None
    inner = partial(_refuse_inner, side.kind)
    with at(side.source.node):
        rolling.check_inner(whole.limits, bound.limits, side.called)
    parts = rolling.with_limits(split(query, sides.shown_scope, inner), bound.limits)
    plan = sides.plan(times, None if parts is None else [(s.name, s.expr) for s in parts.joined])
    pairs = _joined(whole, given, plan.pair_columns, outer=True)
    own = replace(given, id=f"{given.id}{LEFT_SUFFIX}", window=of_those(given.window, bound.scope))
    rows = _joined(bound, own, plan.left_columns, outer=True)
    view = None if parts is None else parts.view
    return replace(pairs, outer=plan.outer, left=rows, view=view)


def _refuse_inner(kind: JoinKind, node: Node) -> JoinQuery:
    with at(node):
        raise unsupported(f"a scalar subquery over a {kind.upper()} JOIN", "leave it out")


def _with_look_ups(bound: Bound, given: Registration) -> JoinQuery:
    """A chain of outer joins as inner joins: one of left rows, and one of each look-up's pairs."""
    query, given = bound.query, replace(given, relaxed={})
    asof = asof_of(query, bound.scope, bound.rights[0])
    windowed = given.window is not None
    chain = asof or chain_of(query, bound.scope, bound.rights, windowed=windowed)
    if chain.by_arrival:
        weights.check([bound.scope, *bound.rights], given.streams)
    window = given.window
    parts = split(query, chain.shown_scope, partial(_refuse_inner, query.outer[0].kind))
    parts = rolling.with_limits(parts, bound.limits)
    shown = (
        written(query.items, chain.shown_scope)
        if parts is None
        else [(s.name, s.expr) for s in parts.joined]
    )
    if chain.kept:
        shown = weights.changing(shown, post_join=parts is not None)
    plan = chain.plan(shown, bound.after)
    if isinstance(window, Mapping):
        of_partners = {n for r in bound.rights for n in window if r.find_streams(n)}
        window = {name: micros for name, micros in window.items() if name not in of_partners}

    def counted(columns: Columns, scope: Scope) -> Columns:
        return weights.counted(columns, scope) if chain.kept else columns

    # An ASOF join reads the past rows of a retained stream from the store of the whole stream.
    alone = weights.stored_whole(bound.scope) if asof else {}
    own = replace(given, id=f"{given.id}{LEFT_SUFFIX}", window=window, relaxed=alone)
    joins = [_joined(bound, own, counted(plan.left_columns, bound.scope), outer=True)]
    right = []
    if chain.is_full:
        own = replace(given, id=pairs_id(given.id, 2))
        whole = bind(chain.right_rows(), own)
        rolling.check_inner(whole.limits, bound.limits, query.outer[0].called)
        own = replace(own, window=of_those(given.window, whole.scope))
        right = [_joined(whole, own, counted(plan.right_columns, whole.scope), outer=True)]
    for number, (statement, columns) in enumerate(plan.pairs, 1):
        # Pairs read the same relations as their left rows, so that they see the same tuples.
        above = joins[plan.outer.look_ups[number - 1].parent]
        relaxed = {
            m.alias: part.relation_of(m.label).filter
            for part in (above, *right)
            for m in part.members
        }
        own = replace(given, id=pairs_id(given.id, number), relaxed=relaxed)
        whole = bind(statement, own)
        with at(query.outer[number - 1].source.node):
            rolling.check_inner(whole.limits, bound.limits, query.outer[number - 1].called)
        alone = weights.stored_whole(whole.scope) if asof else relaxed
        own = replace(own, window=of_those(given.window, whole.scope), relaxed=alone)
        joins.append(_joined(whole, own, counted(columns, whole.scope), outer=True))
    view = None if parts is None else parts.view
    rows, pairs, *others = joins
    return replace(pairs, outer=plan.outer, left=rows, others=(*others, *right), view=view)


def _joined(
    bound: Bound,
    given: Registration,
    columns: tuple[tuple[str, Expr], ...] | None = None,
    *,
    outer: bool = False,
) -> JoinQuery:
    """The canonical form of a query without its outer join.

    Args:
        columns: the projection; None: the SELECT list.
        outer: whether the join belongs to an outer join, and must have keys of its own.
    """
    scope, names = bound.scope, list(bound.scope.streams)
    closed = _closed_bounds(bound, given.window)
    equalities = [
        (_typed_side(left, scope), _typed_side(right, scope))
        for left, right in (*bound.equalities, *_constant_keys(bound, outer=outer))
    ]
    classes = classes_of(equalities)

    def inner(node: Node) -> JoinQuery:
        """Normalise a scalar subquery that aggregates the statement's joined rows."""
        if SUBQUERY not in node.meta:
            with at(node):
                raise unsupported("a subquery in GROUP BY", "compute it in FROM (SELECT ...)")
        found = bound.query.subqueries[node.meta[SUBQUERY]]
        # Give unnamed columns any name, since the outer query does not refer to them.
        items = tuple(replace(item, name=f"value{n}") for n, item in enumerate(found.items))
        below = bind(replace(found, items=items, nested=None), given)
        if below.others:
            with at(node):
                raise unsupported("a set operation in a scalar subquery", "join it in FROM")
        return _joined(below, given)

    weights.check([bound.scope], given.streams)
    parts = None
    if columns is None:
        shown, parts = _outputs(bound, inner)
        shown = weights.weighted(shown, scope, post_join=parts is not None)
    else:
        shown = columns
    shown = tuple((name, typed(expr, partial(_is_widened, scope))) for name, expr in shown)
    relaxed = given.relaxed or weights.stored_whole(bound.scope)
    relations, lacking = _relations(bound, classes, relaxed)
    residuals = [
        *(typed(condition, partial(_is_widened, scope)) for condition in bound.residuals),
        *lacking,
        *weights.of_rows(scope, given.streams),
    ]
    structure = Structure(
        {alias: relation.id for alias, relation in relations.items()},
        [c for c in classes if len(c.aliases) > 1],
        closed,
        residuals,
        [*shown, *((one.name, expr) for one in bound.expansions for expr in one.exprs)],
    )
    labels = {a: label_for(relations[a].id, n) for a, n in occurrences(structure).items()}
    expansions = tuple(_expansions(bound.expansions, labels))
    connecting = tuple(relabelled(c, labels) for c in classes if len(c.aliases) > 1)
    found = JoinQuery(
        id=QueryId(given.id),
        members=tuple(QueryMember(a, labels[a], relations[a].id) for a in names),
        relations=tuple({relations[a].id: relations[a] for a in names}.values()),
        predicates=_predicates(equalities, labels),
        classes=_key_classes(connecting),
        bounds=closed,
        residuals=_residuals(residuals, labels),
        projection=tuple(Output(name, _labelled(expr, labels)) for name, expr in shown),
        derived=_derived(classes, scope),
        view=None if parts is None else parts.view,
        looked_up=tuple(labels[a] for a in names if scope.streams[a].is_table),
        expansions=expansions,
    )
    return found if parts is None else with_totals(found, parts.scalars)


def _residuals(conditions: Iterable[Expr], labels: Mapping[str, Label]) -> tuple[Expr, ...]:
    by_text = {str(e): e for e in (canonical(_labelled(c, labels)) for c in conditions)}
    return tuple(by_text[text] for text in sorted(by_text) if not is_true(by_text[text]))


def _expansions(found: Iterable[Expansion], labels: dict[str, Label]) -> Iterator[Expansion]:
    """The expansions with canonical labels, and conditions in a canonical order; the names of
    expansions are added to ``labels``."""
    for one in found:
        labels[one.name] = Label(one.name)
        made = one.over(lambda expr: _labelled(expr, labels))
        conditions = _residuals(one.conditions, labels)
        yield msgspec.structs.replace(made, conditions=conditions)


def _labelled(expr: Expr, labels: Mapping[str, Label]) -> Expr:
    return substitute(expr, lambda c: Column(labels[c.alias], c.name, c.type))


# --- time bounds -------------------------------------------------------------------------------


def _closed_bounds(bound: Bound, window: int | Mapping[str, int] | None) -> Bounds:
    scope, names = bound.scope, list(bound.scope.streams)
    place = {alias: i for i, alias in enumerate(names)}
    tables = frozenset(alias for alias, s in scope.streams.items() if s.has_no_times)
    matrix = matrices.from_windows(names, _windows(scope, window), tables)
    entries = (
        matrices.single(len(names), place[b.earlier], place[b.later], b.micros)
        for b in bound.bounds
    )
    own = matrices.close(reduce(matrices.intersect, entries, matrix), names)
    ttls = _ttls(scope, bound.fields)
    if not ttls:
        return own
    limits = matrices.from_windows(names, ttls, tables)
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
    """Alias -> window (microseconds) by its stream's ``ttl``; empty if nothing is joined."""
    ttls = {alias: s.ttl for alias, s in scope.streams.items() if s.ttl is not None}
    if not ttls or len(scope.streams) == 1:
        return {}
    declared = {alias: part for part, alias in fields.items()}
    for alias, stream in scope.streams.items():
        if stream.event_time is None and not stream.has_no_times:
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
    """Alias -> microseconds of the registered join ``window``; names and lengths are checked."""
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
                    + ("more than once" if named else "which is not an alias of the query"),
                    field=f"window.{name}",
                    remedy="name it once" if named else nearest(name, scope.streams),
                )
            by_alias.update(dict.fromkeys(named, micros))
    else:
        timed = (a for a, s in scope.streams.items() if not s.has_no_times)
        by_alias = dict.fromkeys(timed, window)
    for alias, micros in by_alias.items():
        place = f"window.{alias}" if isinstance(window, Mapping) else "window"
        if micros < 0:
            raise QueryError(
                "negative-window",
                f"the window of {alias!r} is negative: {format_duration(micros)}",
                field=place,
                remedy="give a duration of zero or more",
            )
        stream = scope.streams[alias]
        if stream.has_no_times:
            raise QueryError(
                "window-of-table",
                f"the window names {alias!r}, whose rows have no event time: its kind is "
                f"{stream.kind}",
                field=place,
                remedy="leave the window out: current rows join whenever they arrived",
            )
        streams = scope.streams.items()
        timeless = [a for a, s in streams if s.event_time is None and not s.has_no_times]
        if timeless:
            name = scope.streams[timeless[0]].name
            raise QueryError(
                "no-event-time",
                f"the window of {alias!r} needs event times, but stream {str(name)!r}"
                f" (alias {timeless[0]!r}) declares none",
                field=place,
                remedy="declare its event_time, or leave the window out",
            )
    return by_alias


# --- relations, labels, classes ----------------------------------------------------------------


def _relations(
    bound: Bound, classes: Sequence[Class], relaxed: Mapping[str, tuple[Expr, ...]]
) -> tuple[dict[str, Relation], list[Expr]]:
    """Relation of each alias: its stream with the local filter and implied equalities, or with the
    filter in ``relaxed``; and the conditions that relaxed filters omit."""
    filters = {
        alias: [typed(c, partial(_is_widened_of, bound.scope, alias)) for c in conditions]
        for alias, conditions in bound.filters.items()
    }
    for key_class in classes:
        for alias, equalities in local_filters(key_class).items():
            filters.setdefault(alias, []).extend(canonical(e) for e in equalities)
    lacking = [
        substitute(condition, partial(_of_alias, alias))
        for alias, kept in relaxed.items()
        for condition in filters.get(alias, ())
        if condition not in kept
    ]
    filters |= {alias: list(kept) for alias, kept in relaxed.items()}
    relations = {
        alias: make_relation(stream.name, filters.get(alias, ()))
        for alias, stream in bound.scope.streams.items()
    }
    return relations, lacking


def _typed_side(side: Side, scope: Scope) -> Side:
    if isinstance(side.expr, Column):
        return side
    return replace(side, expr=typed(side.expr, partial(_is_widened_of, scope, side.alias)))


def _is_widened(scope: Scope, column: Column) -> bool:
    return column.alias in scope.streams and _is_widened_of(scope, column.alias, column)


def _is_widened_of(scope: Scope, alias: str, column: Column) -> bool:
    return any(name == column.name for name, _ in scope.streams[alias].widened)


def _of_alias(alias: str, column: Column) -> Column:
    return Column(alias, column.name, column.type)


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
    """Join key expressions that are not plain columns: (stream, text) -> expression."""
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


def _constant_keys(bound: Bound, *, outer: bool) -> list[tuple[Side, Side]]:
    """Equalities of constants, as join keys of aliases that no written equality connects.

    Args:
        outer: whether the join belongs to an outer join, and must have keys of its own.

    Raises:
        QueryError: ``cross-product``: no condition relates the aliases, and no CROSS JOIN is
            written; ``no-equi-join``: only conditions that are no equalities relate them, in an
            outer join.
    """
    names = list(bound.scope.streams)
    components = _components(names, (c.aliases for c in classes_of(bound.equalities)))
    if len(components) == 1:
        return []
    first, second = components[0], components[1]
    sets = " and ".join("{" + ",".join(sorted(c, key=names.index)) + "}" for c in (first, second))
    related = [*map(aliases, bound.residuals), *_of_expansions(bound.expansions)]
    related += [frozenset((b.earlier, b.later)) for b in bound.bounds]
    equality = f"add an equality between them, e.g. {first[0]}.key = {second[0]}.key"
    if len(_components(names, [*map(frozenset, components), *related])) == 1:
        if outer:
            with at(bound.source_of(second[0])):
                raise QueryError(
                    "no-equi-join",
                    f"{sets} are joined only by conditions that are not equalities",
                    remedy=equality,
                )
    elif outer or _accidental(bound.query, components):
        with at(bound.source_of(second[0])):
            raise QueryError(
                "cross-product",
                f"cross product between {sets}",
                remedy=equality if outer else f"{equality}, or write CROSS JOIN",
            )
    sides = [_constant(component[0], bound.scope) for component in components]
    return list(itertools.pairwise(sides))


def _of_expansions(expansions: Iterable[Expansion]) -> Iterator[frozenset[str]]:
    """For each condition on expanded rows, the aliases that it reads, also through expansions."""
    known: dict[str, frozenset[str]] = {}

    def read(expr: Expr) -> frozenset[str]:
        return frozenset().union(*(known.get(a, frozenset({a})) for a in aliases(expr)))

    for one in expansions:
        known[one.name] = read(one.value)
        yield from map(read, one.conditions)


def _accidental(query: Unresolved, components: Sequence[Sequence[str]]) -> bool:
    """Whether a cross product of ``components`` is probably a mistake, because more than one of
    them is neither the right side of a CROSS JOIN nor a subquery planned by itself (usually of one
    row)."""
    crossed = tuple(_crossed(query, ""))
    plain = [
        component
        for component in components
        if not any(n == c or n.startswith(f"{c}.") for n in component for c in crossed)
    ]
    return len(plain) > 1


def _crossed(query: Unresolved, prefix: str) -> Iterator[str]:
    """Aliases in FROM that are right sides of CROSS JOINs, or subqueries planned by themselves."""
    for entry in query.sources:
        name = f"{prefix}{entry.alias}" if entry.alias else prefix.rstrip(".")
        if entry.crossed and name:
            yield name
        if isinstance(entry.of, Unresolved):
            yield from _crossed(entry.of, f"{name}." if name else "")


def _constant(alias: str, scope: Scope) -> Side:
    """A key of ``alias`` that has the same constant value in all tuples."""
    name, kind = scope.streams[alias].columns[0]
    return Side(alias, Call("constant", (Column("", name, kind),), INT))


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
    bound: Bound, inner: Callable[[Node], JoinQuery]
) -> tuple[tuple[tuple[str, Expr], ...], Split | None]:
    """Output columns of the join as (name, expression); and the post-join part, if there is one."""
    parts = rolling.with_limits(split(bound.query, bound.scope, inner), bound.limits)
    if parts is None:
        return written(bound.query.items, bound.scope), None
    return tuple((s.name, s.expr) for s in parts.joined), parts
