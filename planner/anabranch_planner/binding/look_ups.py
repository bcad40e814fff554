"""Outer, semi and anti joins with tables (look-ups): conditions, pairs and columns.

A look-up is decided in the batch of the left row (``semantics.md``, "Tables"). So it has no
deadline, and WHERE may read its columns. The condition of a look-up reads left rows, its own table,
and at most one earlier look-up (with those on which the earlier one depends). It must compare one
of that look-up's columns by an equality: a left row without a match there has none here either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import Column, Expr, Output, columns, substitute
from anabranch_contract.queries.joins import Stream
from anabranch_contract.queries.outer_joins import JoinKind, LookUp, OuterJoin
from anabranch_planner.binding.outer_joins import refuse_where, refused_where
from anabranch_planner.binding.typecheck import aliases, boolean, operands, typed
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.syntax import existence
from anabranch_planner.sql.unresolved import Condition, Node, OuterSide, Unresolved, at, unsupported


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """Columns of the left rows; per look-up, the statement and columns of its matched pairs."""

    left_columns: tuple[tuple[str, Expr], ...]
    pairs: tuple[tuple[Unresolved, tuple[tuple[str, Expr], ...]], ...]
    outer: OuterJoin


@dataclass(frozen=True, slots=True)
class _Step:
    """One look-up of a chain.

    Attributes:
        alias, table: alias and name of the table.
        condition: the conjuncts of ON, and the left columns of USING.
        parent: number of the earlier look-up that it depends on; 0: none (as in :class:`LookUp`).
    """

    side: OuterSide
    alias: str
    table: str
    condition: tuple[Expr, ...]
    parent: int


@dataclass(frozen=True, slots=True)
class Chain:
    """Joins of a statement with tables, in order; its SELECT list sees ``shown_scope``."""

    query: Unresolved
    left: Scope
    steps: tuple[_Step, ...]
    shown_scope: Scope

    def plan(self, shown: Sequence[tuple[str, Expr]], after: Iterable[Node]) -> ChainPlan:
        """Plan of the chain: projections of all joins, and expressions over them.

        Args:
            shown: the columns of results.
            after: the conditions of WHERE on columns of tables.
        """
        where = []
        for node in after:
            with at(node):
                where.append(boolean(node, self.shown_scope))
        read = [c for e in (*(e for _, e in shown), *where) for c in columns(e)]
        read += (
            c for s in self.steps for e in s.condition for c in columns(e) if c.alias != s.alias
        )
        distinct = list(dict.fromkeys(read))
        left = [c for c in distinct if c.alias in self.left.streams]
        names = {column: f"l{n}" for n, column in enumerate(left, 1)}
        others = [c for c in distinct if c not in names]
        names |= {column: f"r{n}" for n, column in enumerate(others, 1)}
        own = [[c for c in others if c.alias == step.alias] for step in self.steps]

        def named(found: Iterable[Column]) -> tuple[tuple[str, Column], ...]:
            return tuple((names[c], c) for c in found)

        def over(expr: Expr) -> Expr:
            return substitute(expr, lambda c: Column("", names[c], c.type))

        pairs = []
        for number, step in enumerate(self.steps, 1):
            earlier = self._ancestors(number)
            found = [*left, *(c for n in (*earlier, number) for c in own[n - 1])]
            pairs.append((self._statement(earlier, step), named(found)))
        looked_up = tuple(
            LookUp(s.side.kind, s.table, tuple((names[c], c.type) for c in some), s.parent)
            for s, some in zip(self.steps, own, strict=True)
        )
        outer = OuterJoin(
            self.steps[0].side.kind,
            tuple((name, column.type) for name, column in named(left)),
            (),
            self.steps[0].table,
            tuple(Output(name, over(e)) for name, e in shown),
            look_ups=looked_up,
            where=tuple(map(over, where)),
        )
        return ChainPlan(named(left), tuple(pairs), outer)

    def _ancestors(self, number: int) -> tuple[int, ...]:
        """Look-up ``number`` and the earlier ones that its condition needs, in statement order."""
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


def with_existence(query: Unresolved, streams: Mapping[str, Stream]) -> Unresolved:
    """``query`` with ``[NOT] EXISTS`` over a table in WHERE rewritten as a semi or anti join."""
    sides, conditions = list(query.outer), []
    for condition in query.conditions:
        if not isinstance(condition.node.parent, exp.Where):
            conditions.append(condition)
            continue
        parts = operands(condition.node, exp.And)
        found = [_existence(part, streams) for part in parts]
        sides += (side for side in found if side is not None)
        kept = [part for part, side in zip(parts, found, strict=True) if side is None]
        if len(kept) == len(parts):
            conditions.append(condition)
        elif kept:
            both = reduce(lambda a, b: exp.And(this=a, expression=b), (k.copy() for k in kept))
            conditions.append(replace(condition, node=exp.Where(this=both).this))
    if len(sides) == len(query.outer):
        return query
    return replace(query, outer=tuple(sides), conditions=tuple(conditions))


def _existence(node: Node, streams: Mapping[str, Stream]) -> OuterSide | None:
    kind = JoinKind.SEMI
    while isinstance(node, exp.Not | exp.Paren):
        if isinstance(node, exp.Not):
            kind = JoinKind.ANTI if kind is JoinKind.SEMI else JoinKind.SEMI
        node = node.this
    # The name may belong to a query in WITH.
    if not isinstance(node, exp.Exists) or node.root().find(exp.With) is not None:
        return None
    side = existence(node, kind)
    if side is None or not isinstance(side.source.of, str):
        return None
    name = side.source.of.lower()
    tables = {key.lower() for key, stream in streams.items() if stream.is_table}
    return side if name in tables else None


def is_look_up(right: Scope) -> bool:
    """Whether the right side of an outer join reads tables only."""
    return all(stream.is_table for stream in right.streams.values())


def left_conditions(
    query: Unresolved, left: Scope, rights: Sequence[Scope]
) -> tuple[tuple[Condition, ...], list[Node]]:
    """The conditions on left rows, and the conditions of WHERE on columns of tables.

    Args:
        left, rights: the separate scopes of the sides.

    Raises:
        QueryError: an outer join with a stream is combined with others, or WHERE reads the hidden
            side of a semi or anti join.
    """
    if not all(map(is_look_up, rights)):
        for side in query.outer[1:]:
            with at(side.source.node):
                raise QueryError(
                    "outer-join-of-table" if any(map(is_look_up, rights)) else "unsupported-sql",
                    f"a {side.kind.upper()} JOIN after an outer join is not supported, unless all "
                    "are with tables",
                    remedy="register a query for each outer join with a stream",
                )
        refuse_where(query, query.outer[0], left, rights[0])
        return query.conditions, []
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
            hidden = [pair for pair in read if pair[0].kind is not JoinKind.LEFT]
            if hidden:
                with at(node):
                    raise refused_where(query, hidden[0][0], node, hidden[0][1])
            if read:
                after.append(node)
            else:
                kept.append(replace(condition, node=node))
    return tuple(kept), after


def _may_be_of(column: exp.Column, side: OuterSide, left: Scope, right: Scope) -> bool:
    """Whether a column in WHERE may be a table's. A name that stream and table both have is
    ambiguous, unless the join (semi or anti) hides the table's columns.
    """
    if column.table:
        return left.find_table(column.table) is None and right.find_table(column.table) is not None
    name = column.name.lower()
    if name not in {shown.name.lower() for shown in right.visible}:
        return False
    if side.kind is JoinKind.LEFT:
        return name not in {using.lower() for using in side.source.using}
    return name not in {shown.name.lower() for shown in left.visible}


def chain_of(query: Unresolved, left: Scope, rights: Sequence[Scope]) -> Chain:
    """The look-ups (outer, semi and anti joins with tables) of ``query``.

    Args:
        left, rights: the separate scopes of the sides.

    Raises:
        QueryError: a condition reads several independent look-ups, or has a wrong type or name.
    """
    scope, steps, number = left, list[_Step](), dict[str, int]()
    for side, right in zip(query.outer, rights, strict=True):
        with at(side.source.node):
            if len(right.streams) != 1:
                raise unsupported(
                    f"a {side.kind.upper()} JOIN with a join",
                    "join one table, or a query over one table",
                )
            alias, table = next(iter(right.streams.items()))
            using = tuple(scope.column(name) for name in side.source.using)
            both = scope.joined(right, side.source.using)
            nodes = [] if side.on is None else operands(side.on, exp.And)
            condition = (*using, *(typed(node, both) for node in nodes))
            read = {c.alias for e in condition for c in columns(e)} - {alias}
            before = {number[a] for a in read if a in number}
            parent = _parent([s.parent for s in steps], before)
            if parent and not _compares(nodes, using, both, alias, steps[parent - 1].alias):
                raise unsupported(
                    f"a {side.kind.upper()} JOIN whose condition reads "
                    f"{steps[parent - 1].alias!r} without an equality with a column of it",
                    "compare a column of each by =",
                )
        steps.append(_Step(side, alias, str(table.name), condition, parent))
        number[alias] = len(steps)
        if side.kind is JoinKind.LEFT:
            scope = both
    return Chain(query, left, tuple(steps), scope)


def _parent(parents: Sequence[int], read: set[int]) -> int:
    """Return the look-up in ``read`` that depends on all the others; 0 if ``read`` is empty."""
    for number in sorted(read, reverse=True):
        if read <= {number, *_ancestors(parents, number)}:
            return number
    if read:
        raise unsupported(
            "a condition over two tables, neither joined by columns of the other",
            "join one by columns of the other, or compare columns of the stream",
        )
    return 0


def _ancestors(parents: Sequence[int], number: int) -> tuple[int, ...]:
    found: list[int] = []
    while parents[number - 1]:
        number = parents[number - 1]
        found.insert(0, number)
    return tuple(found)


def _compares(
    nodes: Iterable[Node], using: Iterable[Expr], both: Scope, own: str, other: str
) -> bool:
    """Whether the condition can only hold if the look-up ``other`` has a match: by USING, or by an
    equality between a column of ``other`` and the table ``own``.
    """
    if any(isinstance(e, Column) and e.alias == other for e in using):
        return True
    for node in nodes:
        if not isinstance(node, exp.EQ):
            continue
        sides = typed(node.this, both), typed(node.expression, both)
        for one, two in (sides, sides[::-1]):
            if isinstance(one, Column) and one.alias == other and aliases(two) == {own}:
                return True
    return False
