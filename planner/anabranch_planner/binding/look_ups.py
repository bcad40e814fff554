"""Binding of chains of outer, semi and anti joins: conditions, matched pairs and output columns.

A join of a chain is a *look-up* of partners for left rows. A look-up in a table is decided in the
batch of the left row (``semantics.md``, "Tables"); with look-ups in streams, left rows and pairs
are stored, because partners may still arrive. Left rows have no deadline in either case, and WHERE
may read columns of right rows. The condition of a look-up reads left rows, its own right side, and
at most one earlier look-up (and the look-ups on which that one depends). It must equate a column of
the earlier look-up with its own, so that a left row without a match in the earlier look-up has none
in this one either.

An inner join after an outer join is a look-up of kind ``inner``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from anabranch_contract.queries.coercion import BIGINT
from anabranch_contract.queries.expressions import Column, Expr, Output, columns, substitute
from anabranch_contract.queries.joins import ARRIVAL
from anabranch_contract.queries.outer_joins import JoinKind, LookUp, OuterJoin
from anabranch_planner.binding.typecheck import aliases, boolean, typed
from anabranch_planner.sql.scope import Scope, is_null_without
from anabranch_planner.sql.unresolved import (
    Condition,
    Node,
    OuterSide,
    Unresolved,
    at,
    describe,
    operands,
    unsupported,
)

#: Kinds of join whose results have columns of the right side, too.
SHOWN = frozenset({JoinKind.INNER, JoinKind.LEFT, JoinKind.FULL})


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """The outer joins of a chain, and the columns of its inputs: of left rows, of each look-up's
    matched pairs (with the statement that produces them), and of a full join's right rows."""

    left_columns: tuple[tuple[str, Expr], ...]
    pairs: tuple[tuple[Unresolved, tuple[tuple[str, Expr], ...]], ...]
    outer: OuterJoin
    right_columns: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class _Step:
    """One look-up of a chain of outer joins.

    Attributes:
        aliases: aliases of its right side. ``partner``: the table or stream of the first of them.
        condition: the conjuncts of ON, and the left columns of USING.
        parent: number, from 1, of the earlier look-up that its condition reads; 0: none.
    """

    side: OuterSide
    aliases: frozenset[str]
    partner: str
    condition: tuple[Expr, ...]
    parent: int


@dataclass(frozen=True, slots=True)
class Chain:
    """The look-ups of a chain of outer joins, in order; ``shown_scope`` is the scope of SELECT.

    Attributes:
        kept: whether right sides are streams (not tables), so that results are changes.
        by_arrival: whether a row's partners depend on its batch, so that equal rows may have
            different partners.
        times: event-time columns to which windows and ttls apply.
    """

    query: Unresolved
    left: Scope
    steps: tuple[_Step, ...]
    shown_scope: Scope
    kept: bool
    by_arrival: bool
    times: Mapping[str, Column]

    def plan(self, shown: Sequence[tuple[str, Expr]], after: Iterable[Node]) -> ChainPlan:
        """Plan of the chain of outer joins: columns of its inputs, and expressions over them.

        Args:
            shown: output columns of the statement, as pairs of name and expression.
            after: the conjuncts of WHERE that read columns of right rows.
        """
        where = []
        for node in after:
            with at(node):
                where.append(boolean(node, self.shown_scope))
        read = [c for e in (*(e for _, e in shown), *where) for c in columns(e)]
        read += (
            c
            for s in self.steps
            for e in s.condition
            for c in columns(e)
            if c.alias not in s.aliases
        )
        if self.is_full:
            # With the condition's columns, right rows with equal columns have the same matches.
            read += (c for e in self.steps[0].condition for c in columns(e))
        owners = {step.parent for step in self.steps} | ({1} if self.is_full else set())
        owning = [self.left.streams, *(self.steps[n - 1].aliases for n in owners if n)]
        for alias in (a for side in owning for a in sorted(side)):
            if self.by_arrival:
                read.append(Column(alias, ARRIVAL, BIGINT))
            elif alias in self.times:
                read.append(self.times[alias])
        distinct = list(dict.fromkeys(read))
        left = [c for c in distinct if c.alias in self.left.streams]
        names = {column: f"l{n}" for n, column in enumerate(left, 1)}
        others = [c for c in distinct if c not in names]
        names |= {column: f"r{n}" for n, column in enumerate(others, 1)}
        own = [[c for c in others if c.alias in step.aliases] for step in self.steps]

        computed = self.shown_scope.computed

        def named(found: Iterable[Column]) -> tuple[tuple[str, Expr], ...]:
            return tuple((names[c], computed.get(c, c)) for c in found)

        def over(expr: Expr) -> Expr:
            return substitute(expr, lambda c: Column("", names[c], c.type))

        pairs = []
        for number, step in enumerate(self.steps, 1):
            earlier = self._ancestors(number)
            found = [*left, *(c for n in (*earlier, number) for c in own[n - 1])]
            pairs.append((self._statement(earlier, step), named(found)))
        looked_up = tuple(
            LookUp(s.side.kind, s.partner, tuple((names[c], c.type) for c in some), s.parent)
            for s, some in zip(self.steps, own, strict=True)
        )
        outer = OuterJoin(
            self.steps[0].side.kind,
            tuple((name, e.type) for name, e in named(left)),
            (),
            self.steps[0].partner,
            tuple(Output(name, over(e)) for name, e in shown),
            look_ups=looked_up,
            where=tuple(map(over, where)),
            kept=self.kept,
        )
        right = named(own[0]) if self.is_full else ()
        return ChainPlan(named(left), tuple(pairs), outer, right)

    @property
    def is_full(self) -> bool:
        """Whether the chain is a FULL JOIN, so that right rows without a match are results."""
        return self.steps[0].side.kind is JoinKind.FULL

    def right_rows(self) -> Unresolved:
        """The statement that produces the right rows of a full join."""
        source = self.steps[0].side.source
        return replace(self.query, sources=(source,), conditions=(), outer=(), post_join=None)

    def _ancestors(self, number: int) -> tuple[int, ...]:
        """Numbers of look-up ``number`` and of all look-ups on which it depends, ascending."""
        return _ancestors([s.parent for s in self.steps], number)

    def _statement(self, earlier: Iterable[int], step: _Step) -> Unresolved:
        """The inner join that produces the matched pairs of the look-up ``step``."""
        sources, conditions = list(self.query.sources), list(self.query.conditions)
        for one in (*(self.steps[n - 1] for n in earlier), step):
            sources.append(one.side.source)
            if one.side.on is not None:
                conditions.append(Condition(one.side.on, len(sources)))
        return replace(
            self.query,
            sources=tuple(sources),
            conditions=tuple(conditions),
            outer=(),
            post_join=None,
        )


def is_look_up(right: Scope) -> bool:
    """Whether the right side of an outer join, with scope ``right``, reads tables only."""
    return all(stream.is_table for stream in right.streams.values())


def with_inner_first(query: Unresolved, rights: Sequence[Scope]) -> Unresolved:
    """``query`` with the inner joins that read only left rows moved before its outer joins;
    unchanged if a ``*`` in the SELECT list shows the order of the joins.

    Args:
        rights: the scopes (visible names) of each right side.
    """
    if any(item.node is None and item.qualifier is None for item in query.items):
        return query
    inner, outer = list[OuterSide](), list[OuterSide]()
    for place, side in enumerate(query.outer):
        source = side.source
        reads = [] if side.on is None else side.on.find_all(exp.Column)
        named = source.using or source.natural
        first = side.kind is JoinKind.INNER and side.asof is None and not named
        follows = any(_is_of(column, r) for column in reads for r in rights[:place])
        (inner if first and not follows else outer).append(side)
    return with_inner(query, inner, outer) if inner else query


def with_inner(
    query: Unresolved, inner: Sequence[OuterSide], outer: Sequence[OuterSide]
) -> Unresolved:
    """``query`` with the joins ``inner`` as sources in FROM, so that all of WHERE may read their
    columns, followed by the outer joins ``outer``."""
    sources, conditions = list(query.sources), list[Condition]()
    for side in inner:
        sources.append(side.source)
        if side.on is not None:
            conditions.append(Condition(side.on, len(sources)))
    whole = [
        replace(c, scope=len(sources)) if isinstance(c.node.parent, exp.Where) else c
        for c in query.conditions
    ]
    return replace(
        query, sources=tuple(sources), outer=tuple(outer), conditions=(*whole, *conditions)
    )


def _is_of(column: exp.Column, right: Scope) -> bool:
    """Whether a column of SQL may belong to the right side of an outer join."""
    if column.table:
        return right.find_table(column.table) is not None
    return column.name.lower() in {shown.name.lower() for shown in right.visible}


def left_conditions(
    query: Unresolved, left: Scope, rights: Sequence[Scope]
) -> tuple[tuple[Condition, ...], list[Node]]:
    """Split conditions: those on left rows, and conjuncts of WHERE that read right sides.

    Args:
        left, rights: the scopes (visible names) of the left side and of each right side.

    Raises:
        QueryError: WHERE reads the hidden side of a semi or anti join.
    """
    kept: list[Condition] = []
    after: list[Node] = []
    for condition in query.conditions:
        if not isinstance(condition.node.parent, exp.Where):
            kept.append(condition)
            continue
        for node in operands(condition.node, exp.And):
            read = [
                (side, column)
                for column in node.find_all(exp.Column)
                for side, right in zip(query.outer, rights, strict=True)
                if _may_be_of(column, side, left, right)
            ]
            hidden = [(side, c) for side, c in read if side.kind not in SHOWN]
            for side, column in hidden:
                kind = f"LEFT {side.kind.upper()} JOIN"
                called = column.table or side.source.alias or "its right side"
                with at(node):
                    raise unsupported(
                        f"{describe(node)} in WHERE after a {kind} of {called}",
                        f"move it to the ON of the {kind}",
                    )
            if read or query.outer[0].kind is JoinKind.FULL:
                after.append(node)
            else:
                kept.append(replace(condition, node=node))
    return tuple(kept), after


def _may_be_of(column: exp.Column, side: OuterSide, left: Scope, right: Scope) -> bool:
    """Whether a column in WHERE may belong to the right side of an outer join. A name that both
    sides have is ambiguous, except after a semi or anti join, which hides the right side."""
    if column.table:
        return left.find_table(column.table) is None and right.find_table(column.table) is not None
    name = column.name.lower()
    if name not in {shown.name.lower() for shown in right.visible}:
        return False
    if side.kind in SHOWN:
        return name not in {using.lower() for using in side.source.using}
    return name not in {shown.name.lower() for shown in left.visible}


def chain_of(
    query: Unresolved, left: Scope, rights: Sequence[Scope], *, windowed: bool = False
) -> Chain:
    """The outer joins of ``query`` as a chain of look-ups.

    Args:
        left, rights: the scopes (visible names) of the left side and of each right side.
        windowed: whether a window limits event times in addition to the statement's conditions.

    Raises:
        QueryError: a condition reads several independent look-ups, or has a wrong type or name.
    """
    scope, steps, number = left, list[_Step](), dict[str, int]()
    for side, right in zip(query.outer, rights, strict=True):
        with at(side.source.node):
            if steps and side.source.alias is None and not isinstance(side.source.of, str):
                raise unsupported("a subquery without alias here", "give it an alias with AS")
            own = frozenset(right.streams)
            names = scope.common(right) if side.source.natural else side.source.using
            using = tuple(scope.column(name) for name in names)
            both = scope.joined(right, names)
            nodes = [] if side.on is None else operands(side.on, exp.And)
            condition = (*using, *(typed(node, both) for node in nodes))
            read = {c.alias for e in condition for c in columns(e)} - own
            before = {number[a] for a in read if a in number}
            parent = _parent([s.parent for s in steps], before)
            if parent and not _compares(nodes, using, both, own, steps[parent - 1].aliases):
                raise unsupported(
                    f"a {side.called} whose condition reads "
                    f"{min(steps[parent - 1].aliases)!r} without an equality with a column of it",
                    "compare a column of each by =",
                )
        partner = next(iter(right.streams.values())).name
        steps.append(_Step(side, own, str(partner), condition, parent))
        number |= dict.fromkeys(own, len(steps))
        if side.kind in SHOWN:
            scope = scope.nullable() if side.kind is JoinKind.FULL else scope
            other = right if side.kind is JoinKind.INNER else right.nullable()
            scope = scope.joined(other, names)
    streams = {a: s for one in (left, *rights) for a, s in one.streams.items() if not s.is_table}
    kept = not all(map(is_look_up, rights))
    by_arrival = kept and any(s.latest for s in streams.values())
    bounded = kept and (windowed or any(s.ttl is not None for s in streams.values()))
    times = {
        alias: Column(alias, s.event_time, dict(s.columns)[s.event_time])
        for alias, s in streams.items()
        if bounded and s.event_time is not None
    }
    return Chain(query, left, tuple(steps), scope, kept, by_arrival, times)


def _parent(parents: Sequence[int], read: set[int]) -> int:
    """Number of the look-up in ``read`` that depends on all others in it; 0 if empty."""
    for number in sorted(read, reverse=True):
        if read <= {number, *_ancestors(parents, number)}:
            return number
    if read:
        raise unsupported(
            "a condition over two right sides, neither joined by columns of the other",
            "join one by columns of the other, or compare columns of left rows",
        )
    return 0


def _ancestors(parents: Sequence[int], number: int) -> tuple[int, ...]:
    found: list[int] = []
    while parents[number - 1]:
        number = parents[number - 1]
        found.insert(0, number)
    return tuple(found)


def _compares(
    nodes: Iterable[Node],
    using: Iterable[Expr],
    both: Scope,
    own: frozenset[str],
    other: frozenset[str],
) -> bool:
    """Whether a join condition can hold only if the earlier look-up ``other`` has a match: because
    of USING, or of an equality between ``own``, the right side, and an expression that is NULL
    without a match of ``other``."""
    if any(isinstance(e, Column) and e.alias in other for e in using):
        return True
    for node in nodes:
        if not isinstance(node, exp.EQ):
            continue
        sides = typed(node.this, both), typed(node.expression, both)
        for one, two in (sides, sides[::-1]):
            computed = is_null_without(one) and aliases(one) <= other
            if computed and frozenset() < aliases(two) <= own:
                return True
    return False
