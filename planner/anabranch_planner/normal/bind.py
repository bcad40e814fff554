"""Resolution of names and types in FROM and WHERE, and classification of the join conditions.

Subqueries in FROM are resolved from the inside out and inlined, so a chain of joins becomes one
join with or without subqueries. Every conjunct, in ON, WHERE or a query in FROM, becomes an
equality, a time bound, a local filter or a residual.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce

import msgspec
from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import (
    Call,
    Column,
    Expansion,
    Expr,
    Literal,
    reads_clock,
    substitute,
)
from anabranch_contract.queries.joins import Stream
from anabranch_planner.binding.asof import with_versions
from anabranch_planner.binding.literals import coerce
from anabranch_planner.binding.look_ups import left_conditions, with_inner_first
from anabranch_planner.binding.outputs import columns_of
from anabranch_planner.binding.rankings import with_ranking
from anabranch_planner.binding.rows import expanded, is_of_rows, without_nulls
from anabranch_planner.binding.typecheck import (
    COMPARISONS,
    aliases,
    boolean,
    compare,
    split_between,
    typed,
)
from anabranch_planner.normal.branches import branches_of
from anabranch_planner.normal.conditions import canonical, is_true
from anabranch_planner.normal.expansions import expansion_of
from anabranch_planner.normal.key_classes import Side, key_sides
from anabranch_planner.normal.rolling import Rolling, limits_of, parts_of
from anabranch_planner.normal.time_conditions import AliasBound, difference_bounds
from anabranch_planner.sql.aggregates import holds_aggregate
from anabranch_planner.sql.scope import Scope, ShownColumn, find_stream
from anabranch_planner.sql.unresolved import (
    FromEntry,
    Node,
    SelectItem,
    Unresolved,
    as_written,
    at,
    conjunction,
    describe,
    located,
    operands,
    position_of,
    unsupported,
)
from anabranch_planner.subqueries.decorrelation import decorrelated


@dataclass(frozen=True, slots=True)
class Registration:
    """Inputs for reading a query's statement, as known when the query is registered.

    Attributes:
        id: the query's id.
        streams: the registered streams by name.
        window: microseconds for every alias, or alias -> microseconds (others unbounded).
        relaxed: alias -> a weaker filter to use for its relation; the conditions that this filter
            omits become residuals.
    """

    id: str
    streams: Mapping[str, Stream]
    window: int | Mapping[str, int] | None = None
    relaxed: Mapping[str, tuple[Expr, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class Bound:
    """A statement with resolved names: scope of FROM, and conditions by type (equality, ...)."""

    query: Unresolved
    scope: Scope = field(default_factory=Scope)
    equalities: list[tuple[Side, Side]] = field(default_factory=list)
    bounds: list[AliasBound] = field(default_factory=list)
    filters: dict[str, list[Expr]] = field(default_factory=dict)
    residuals: list[Expr] = field(default_factory=list)
    limits: list[Rolling] = field(default_factory=list)
    #: Field of a structured query -> the alias that it declares.
    fields: dict[str, str] = field(default_factory=dict)
    #: Per outer join: the scope of its right side alone.
    rights: list[Scope] = field(default_factory=list)
    #: Conjuncts of WHERE that read right sides of outer joins.
    after: list[Node] = field(default_factory=list)
    expansions: list[Expansion] = field(default_factory=list)
    #: For a union: its other branches; this object is the first.
    others: tuple[Bound, ...] = ()

    def source_of(self, alias: str) -> Node | None:
        """The entry of FROM with the alias, or with the subquery that has it; None if unknown."""
        first = alias.partition(".")[0]
        return next((s.node for s in self.query.sources if first in (s.alias, s.of)), None)

    def restart(self, query: Unresolved) -> None:
        """Replace the statement by its rewriting ``query``, and discard all resolved conditions."""
        self.query = query
        for found in (self.equalities, self.bounds, self.filters, self.residuals, self.rights):
            found.clear()
        self.limits.clear()
        self.expansions.clear()


def bind(query: Unresolved, given: Registration) -> Bound:
    """Resolve the names of ``query``, except in the SELECT list and in outer joins.

    Raises:
        QueryError: a name is unknown or ambiguous, or types don't fit.
    """
    query = with_ranking(decorrelated(query, given.streams))
    found = []
    for branch in branches_of(
        query, lambda source: _source(source, 1, given.streams, Bound(query), "").visible
    ):
        found.append(Bound(branch))
        found[-1].scope = _resolve(branch, given.streams, found[-1], "")
    first, *others = found
    first.others = tuple(others)
    return first


def _resolve(query: Unresolved, streams: Mapping[str, Stream], found: Bound, within: str) -> Scope:
    """The scope of the FROM list of ``query``; adds conditions, also of subqueries, to ``found``.

    Args:
        within: prefix of the aliases of its streams: the alias of the enclosing subquery.
    """
    if not query.sources:
        raise QueryError("malformed-sql", "the query has no sources", remedy="name a stream")
    scopes = [Scope(registered=streams)]
    for place, source in enumerate(query.sources, 1):
        with located(source.field), at(source.node):
            before, own = scopes[-1], _source(source, place, streams, found, within)
            using = before.common(own) if source.natural else source.using
            after = before.joined(own, using)
            for name in using:
                _add_comparison("eq", before.column(name), own.column(name), after, found)
        scopes.append(after)
    if query.outer:
        for place, side in enumerate(query.outer, len(query.sources) + 1):
            with at(side.source.node):
                found.rights.append(_source(side.source, place, streams, Bound(query), within))
        moved = with_versions(query, scopes[-1], found.rights)
        if moved is query:
            moved = with_inner_first(query, found.rights)
        if moved is not query:
            found.restart(moved)
            return _resolve(moved, streams, found, within)
        conditions, found.after = left_conditions(query, scopes[-1], found.rights)
        query = found.query = replace(query, conditions=conditions)
    if query.generators and query.outer:
        with at(query.generators[0].call):
            raise unsupported(f"{query.generators[0]} here", "write it into a subquery in FROM")
    tables = tuple(_tables_of(query, scopes, found))
    for condition in query.conditions:
        with located(condition.field), at(condition.node), _explained(condition.node, query.items):
            scope, where = scopes[condition.scope], isinstance(condition.node.parent, exp.Where)
            for generator, table in zip(query.generators, tables, strict=True):
                if where or not generator.follows(condition.node):
                    scope = scope.joined(table)
            for node in _conjuncts(condition.node, scope):
                _classify(node, scope, found)
    return reduce(Scope.joined, tables, scopes[-1])


@contextmanager
def _explained(condition: Node, items: Sequence[SelectItem]) -> Iterator[None]:
    """Explain an unknown column in a condition if it is an alias of the SELECT list."""
    try:
        yield
    except QueryError as error:
        named = {item.name.lower(): item.node for item in items if item.name and item.node}
        columns = (c for c in condition.find_all(exp.Column) if not c.table)
        place = error.position
        name = next((c.name for c in columns if place and position_of(c) == place), "")
        node = named.get(name.lower())
        if error.code != "unknown-column" or node is None:
            raise
        windowed = " OVER (" in as_written(node)
        clause = "HAVING" if holds_aggregate(node) else "QUALIFY" if windowed else ""
        remedy = f"{name} is an alias of the SELECT list: write "
        remedy += f"the condition into {clause}" if clause else f"{describe(node)} in its place"
        raise QueryError(
            error.code, error.message, field=error.field, remedy=remedy, position=place
        ) from error


def _tables_of(query: Unresolved, scopes: Sequence[Scope], found: Bound) -> Iterator[Scope]:
    """Resolve each table function (``explode`` ...) of ``query`` to its columns; add these to
    ``found``.

    Args:
        scopes: scopes of the first 0, 1, 2 ... sources of FROM, for the functions' arguments.
    """
    made = list[Scope]()
    for generator in query.generators:
        with at(generator.call):
            before = sum(generator.follows(source.node) for source in query.sources)
            scope = reduce(Scope.joined, made, scopes[before])
            expansion, columns = expansion_of(generator, scope, f"#{len(found.expansions) + 1}")
            found.expansions.append(expansion)
            made.append(Scope.of_expansion(generator, columns))
        yield made[-1]


def _source(
    source: FromEntry, place: int, streams: Mapping[str, Stream], found: Bound, within: str
) -> Scope:
    """The scope of a single entry of a FROM list, with names bound; ``place``: its index."""
    if isinstance(source.of, str):
        alias = source.alias or source.of
        if source.field:
            found.fields[source.field] = within + alias
        stream = find_stream(source.of, streams)
        if source.at_arrival:
            stream = stream.as_table()
        return Scope.of_stream(alias, stream, within, source.columns)
    source.of.check_inlined()
    if source.alias is None and not source.of.items:
        return _resolve(source.of, streams, found, within)
    name = f"subquery{place}" if source.alias is None else source.alias
    inner = _resolve(source.of, streams, found, f"{within}{name}." if name else within)
    items = source.of.items
    shown = tuple(columns_of(items, inner) if items else inner.visible)
    if source.types:
        pairs = zip(shown, source.types, strict=True)
        shown = tuple(ShownColumn(c.name, coerce(c.expr, kind)) for c, kind in pairs)
    return inner.as_table(source.alias, shown, source.columns)


def _conjuncts(condition: Node, scope: Scope) -> list[Node]:
    """The conjuncts of a condition; conjuncts common to all alternatives of an OR are factored out.

    ``(a AND b) OR (a AND c)`` is ``a AND (b OR c)`` in three-valued logic as well.
    """
    found = []
    for part in operands(condition, exp.And):
        with at(part):
            compared = expanded(part)
        if compared is not part:
            found += _conjuncts(compared, scope)
        elif isinstance(part, exp.Or):
            found += _factored(part, scope)
        else:
            found.append(part)
    return found


def _factored(disjunction: exp.Or, scope: Scope) -> list[Node]:
    """The conjuncts common to all alternatives of an OR, and the OR without them."""
    alternatives = [
        {canonical(boolean(part, scope)): part for part in _conjuncts(alternative, scope)}
        for alternative in operands(disjunction, exp.Or)
    ]
    first, *others = alternatives
    common = [expr for expr in first if all(expr in other for other in others)]
    if not common:
        return [disjunction]
    shared = [first[expr] for expr in common]
    rest = [
        [part for expr, part in alternative.items() if expr not in common]
        for alternative in alternatives
    ]
    if not all(rest):
        return shared
    conjunctions = [conjunction(parts) for parts in rest]
    return [*shared, reduce(lambda a, b: exp.Or(this=a, expression=b), conjunctions)]


def _classify(node: Node, scope: Scope, found: Bound) -> None:
    with at(node):
        _classified(node, scope, found)


def _classified(node: Node, scope: Scope, found: Bound) -> None:
    if isinstance(node, exp.Between):
        for half in split_between(node):
            _classify(half, scope, found)
        return
    op = COMPARISONS.get(type(node))
    if op is not None:
        left, right = typed(node.this, scope), typed(node.expression, scope)
        if is_of_rows(node):
            _add_of_rows(left, right, scope, found)
        else:
            _add_comparison(op, left, right, scope, found, describe(node))
    else:
        _add_condition(boolean(node, scope), scope, found, describe(node))


def _add_comparison(
    op: str, left: Expr, right: Expr, scope: Scope, found: Bound, shown: str = ""
) -> None:
    joined = {alias for side in (left, right) for alias in aliases(side)} <= scope.streams.keys()
    if not joined or reads_clock(left) or reads_clock(right):
        _add_condition(compare(op, left, right), scope, found, shown)
        return
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


def _add_of_rows(left: Expr, right: Expr, scope: Scope, found: Bound) -> None:
    """Add ``left <=> right``, one column of a comparison of rows, to the conditions of ``found``;
    it is a join key if the sides read different aliases."""
    condition = compare("eq_null_safe", left, right)
    if any(isinstance(side, Literal) and side.value is not None for side in (left, right)):
        _add_comparison("eq", left, right, scope, found)
        return
    if isinstance(condition, Call) and all(len(aliases(side)) == 1 for side in condition.args):
        left, right = map(without_nulls, condition.args)
        _add_comparison("eq", left, right, scope, found)
    _add_condition(condition, scope, found)


def _add_condition(condition: Expr, scope: Scope, found: Bound, shown: str = "") -> None:
    """Add a bound condition to ``found`` by its type; ``shown``: the condition as written."""
    if reads_clock(condition):
        parts = tuple(parts_of(condition))
        if len(parts) > 1 or not reads_clock(parts[0]):
            for part in parts:
                _add_condition(part, scope, found, shown)
            return
        found.limits.extend(limits_of(parts[0], shown or str(parts[0])))
        return
    over = aliases(condition)
    places = [place for place, one in enumerate(found.expansions) if one.name in over]
    if places:
        one = found.expansions[places[-1]]
        found.expansions[places[-1]] = msgspec.structs.replace(
            one, conditions=(*one.conditions, condition)
        )
        return
    if len(over) > 1:
        found.residuals.append(condition)
        return
    # A constant condition reads no alias; unless it is TRUE, make it a filter of the first alias.
    alias = min(over, default=next(iter(scope.streams)))
    local = canonical(substitute(condition, lambda c: Column("", c.name, c.type)))
    if not is_true(local):
        found.filters.setdefault(alias, []).append(local)
