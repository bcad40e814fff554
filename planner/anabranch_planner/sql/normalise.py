"""From a parsed query to the :class:`~anabranch_planner.model.JoinQuery` that is planned.

The passes, in order: resolve the FROM list; sort every conjunct into equality, time bound, local
filter or residual; close the equalities into key classes; close the bounds; name relations and
labels; project. Conjuncts are sets: their order, their spelling and their place (ON or WHERE)
leave no trace in the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from sqlglot import exp

from anabranch_planner.errors import QueryError
from anabranch_planner.expr import Column, Expr, substitute
from anabranch_planner.model import (
    AttrRef,
    Bounds,
    Equality,
    JoinQuery,
    KeyClass,
    Label,
    Member,
    Micros,
    Output,
    QueryId,
    Relation,
    RelationId,
    Stream,
    StreamName,
    label_for,
    make_relation,
)
from anabranch_planner.sql import bounds as matrices
from anabranch_planner.sql.conditions import canonical, is_true
from anabranch_planner.sql.durations import format_duration
from anabranch_planner.sql.keys import (
    Class,
    Side,
    classes_of,
    key_sides,
    local_filters,
    relabelled,
)
from anabranch_planner.sql.naming import spark_name
from anabranch_planner.sql.scope import Scope, find_stream, nearest
from anabranch_planner.sql.syntax import describe
from anabranch_planner.sql.timeconds import AliasBound, difference_bounds
from anabranch_planner.sql.typecheck import (
    COMPARISONS,
    aliases,
    boolean,
    compare,
    operands,
    split_between,
    typed,
)
from anabranch_planner.sql.unresolved import Node, Source, Unresolved, located
from anabranch_planner.types import TypeKind


@dataclass(slots=True)
class _Conjuncts:
    """The conjuncts of a query, by kind, while they are being collected."""

    equalities: list[tuple[Side, Side]] = field(default_factory=list)
    bounds: list[AliasBound] = field(default_factory=list)
    filters: dict[str, list[Expr]] = field(default_factory=dict)
    residuals: list[Expr] = field(default_factory=list)


def normalise(
    query_id: str,
    query: Unresolved,
    streams: Mapping[str, Stream],
    window: int | Mapping[str, int] | None = None,
) -> JoinQuery:
    """The canonical form of ``query`` over ``streams``.

    Args:
        query_id: the query's id.
        query: what the parser found.
        streams: the registered streams by name.
        window: microseconds for every alias, or alias -> microseconds (others unbounded).

    Raises:
        QueryError: the query is no connected inner equi-join, or names and types don't fit.
    """
    scopes, found = _resolve_sources(query, streams)
    scope = scopes[-1]
    for condition in query.conditions:
        with located(condition.field):
            for node in operands(condition.node, exp.And):
                _classify(node, scopes[condition.scope], found)
    names = list(scope.streams)
    closed = _closed_bounds(scope, query.sources, found.bounds, window)
    classes = classes_of(found.equalities)
    _require_connected(names, classes, found)
    relations, labels = _relations(scope, classes, found)
    joined = tuple(relabelled(c, labels) for c in classes if len(c.aliases) > 1)
    return JoinQuery(
        id=QueryId(query_id),
        members=tuple(Member(a, labels[a], relations[a].id) for a in names),
        relations=tuple({relations[a].id: relations[a] for a in names}.values()),
        predicates=_predicates(found.equalities, labels),
        classes=_key_classes(joined),
        bounds=closed,
        residuals=_residuals(found.residuals, labels),
        projection=_projection(query, scope, labels),
        derived=_derived(classes, scope),
    )


# --- FROM --------------------------------------------------------------------------------------


def _resolve_sources(
    query: Unresolved, streams: Mapping[str, Stream]
) -> tuple[list[Scope], _Conjuncts]:
    """The scope after each source (``scopes[k]``: the first ``k``), and the USING equalities."""
    scopes, found = [Scope()], _Conjuncts()
    if not query.sources:
        raise QueryError("malformed-sql", "the query has no sources", remedy="name a stream")
    for source in query.sources:
        with located(source.field):
            stream = find_stream(source.stream, streams)
            before = scopes[-1]
            after = before.joined(source.alias, stream, source.using)
            for name in source.using:
                _add_comparison(
                    "eq", before.column(name), after.column(name, source.alias), after, found
                )
        scopes.append(after)
    return scopes, found


# --- conjuncts ---------------------------------------------------------------------------------


def _classify(node: Node, scope: Scope, found: _Conjuncts) -> None:
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
    sources: Sequence[Source],
    found: Sequence[AliasBound],
    window: int | Mapping[str, int] | None,
) -> Bounds:
    names = list(scope.streams)
    at = {alias: i for i, alias in enumerate(names)}
    matrix = matrices.from_windows(names, _windows(scope, window))
    entries = (matrices.single(len(names), at[b.earlier], at[b.later], b.micros) for b in found)
    own = matrices.close(reduce(matrices.intersect, entries, matrix), names)
    ttls = _ttls(scope, sources)
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


def _ttls(scope: Scope, sources: Sequence[Source]) -> dict[str, Micros]:
    """The ttl of each alias whose stream has one, where it has anything to join with."""
    ttls = {alias: s.ttl for alias, s in scope.streams.items() if s.ttl is not None}
    if not ttls or len(scope.streams) == 1:
        return {}
    for source, (alias, stream) in zip(sources, scope.streams.items(), strict=True):
        if stream.event_time is None:
            with located(source.field):
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
            alias = scope.find_alias(name)
            if alias is None or alias in by_alias:
                raise QueryError(
                    "unknown-alias" if alias is None else "duplicate-alias",
                    f"the window names {name!r}, "
                    + ("which is no alias of the query" if alias is None else "more than once"),
                    field=f"window.{name}",
                    remedy=nearest(name, scope.streams) if alias is None else "name it once",
                )
            by_alias[alias] = micros
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
    scope: Scope, classes: Sequence[Class], found: _Conjuncts
) -> tuple[dict[str, Relation], dict[str, Label]]:
    """Per alias its relation (all local filters, implied equalities included) and its label."""
    filters = {alias: list(conditions) for alias, conditions in found.filters.items()}
    for key_class in classes:
        for alias, equalities in local_filters(key_class).items():
            filters.setdefault(alias, []).extend(canonical(e) for e in equalities)
    relations: dict[str, Relation] = {}
    labels: dict[str, Label] = {}
    seen: dict[RelationId, int] = {}
    for alias, stream in scope.streams.items():
        relation = make_relation(stream.name, filters.get(alias, ()))
        relations[alias] = relation
        labels[alias] = label_for(relation.id, seen.get(relation.id, 0))
        seen[relation.id] = seen.get(relation.id, 0) + 1
    return relations, labels


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


def _projection(query: Unresolved, scope: Scope, labels: Mapping[str, Label]) -> tuple[Output, ...]:
    outputs: list[Output] = []
    taken: dict[str, str] = {}
    for item in query.items:
        with located(item.field):
            for name, expr in _outputs(item.node, item.name, item.qualifier, scope):
                if name.lower() in taken:
                    raise QueryError(
                        "duplicate-name",
                        f"two output columns are called {name!r}",
                        remedy=f"rename one: {expr} AS other_name"
                        + ("" if item.node is not None else ", in place of *"),
                    )
                taken[name.lower()] = name
                outputs.append(Output(name, _labelled(expr, labels)))
    return tuple(outputs)


def _outputs(
    node: Node | None, name: str | None, qualifier: str | None, scope: Scope
) -> list[tuple[str, Expr]]:
    if node is None:
        shown = scope.columns_of(scope.alias(qualifier)) if qualifier else scope.visible
        return [(column.name, column) for column in shown]
    expr = typed(node, scope)
    if expr.type.kind in (TypeKind.INTERVAL, TypeKind.NULL):
        raise QueryError(
            "unsupported-output",
            f"{describe(node)} is of type {expr.type}, which can't be written",
            remedy="cast it to the type that you want",
        )
    called = name if name is not None else spark_name(node)
    if not called:
        raise QueryError(
            "unnamed-output",
            f"{describe(node)} has no name",
            remedy="give it a name with AS",
        )
    return [(called, expr)]
