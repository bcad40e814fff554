"""The last join of a statement, if it is an outer, semi or anti join: columns and deadline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import Column, Expr, Output, columns, substitute
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.outer_joins import JoinKind, OuterJoin
from anabranch_planner.binding.outputs import written
from anabranch_planner.binding.typecheck import operands, typed
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.syntax import describe
from anabranch_planner.sql.unresolved import Condition, Node, OuterSide, Unresolved, at, unsupported


@dataclass(frozen=True, slots=True)
class OuterPlan:
    """Output columns of matched pairs and of left rows, and the outer join over both."""

    pair_columns: tuple[tuple[str, Expr], ...]
    left_columns: tuple[tuple[str, Expr], ...]
    outer: OuterJoin


def with_source(query: Unresolved, side: OuterSide) -> Unresolved:
    """``query`` with its outer join to ``side`` turned into an inner join."""
    sources = (*query.sources, side.source)
    on = () if side.on is None else (Condition(side.on, len(sources)),)
    conditions = (*query.conditions, *on)
    return replace(query, sources=sources, conditions=conditions, outer=(), post_join=None)


def of_those(
    window: int | Mapping[str, int] | None, scope: Scope
) -> int | Mapping[str, int] | None:
    """The windows that ``window`` has for aliases in ``scope``."""
    if not isinstance(window, Mapping):
        return window
    return {name: micros for name, micros in window.items() if scope.find_streams(name)}


def refuse_where(query: Unresolved, side: OuterSide, left: Scope, right: Scope) -> None:
    """Reject a WHERE on the right side, because it would read the NULLs of the outer join.

    Args:
        left, right: the separate scopes of the two sides.

    Raises:
        QueryError: ``unsupported-sql``; if the condition selects rows without a partner, the remedy
            is an anti join.
    """
    for condition in query.conditions:
        if not isinstance(condition.node.parent, exp.Where):
            continue
        for node in operands(condition.node, exp.And):
            read = [c for c in node.find_all(exp.Column) if _is_of_right(c, left, right)]
            if read:
                with at(node):
                    raise refused_where(query, side, node, read[0])


def _is_of_right(column: exp.Column, left: Scope, right: Scope) -> bool:
    if column.table:
        return left.find_table(column.table) is None and right.find_table(column.table) is not None
    name = column.name.lower()
    return name in _names(right) and name not in _names(left)


def _names(scope: Scope) -> set[str]:
    return {shown.name.lower() for shown in scope.visible}


def refused_where(query: Unresolved, side: OuterSide, node: Node, column: exp.Column) -> QueryError:
    """The error for a condition of WHERE that reads the right side."""
    called = column.table or side.source.alias or "its right side"
    kind = "LEFT JOIN" if side.kind is JoinKind.LEFT else f"LEFT {side.kind.upper()} JOIN"
    if side.kind is not JoinKind.LEFT:
        return unsupported(
            f"{describe(node)} in WHERE after a {kind} of {called}",
            f"move it to the ON of the {kind}",
        )
    if not (isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)):
        return unsupported(
            f"{describe(node)} in WHERE after a LEFT JOIN of {called}",
            f"move it to the ON of the LEFT JOIN, or write JOIN in its place if rows without "
            f"{called} are not wanted",
        )
    shown = any(
        item.node is None or any(c.table == called for c in item.node.find_all(exp.Column))
        for item in query.items
    )
    only = f", and select no columns of {called}" if shown else ""
    gone = f"; rows whose partner has NULL in {column.name} are not in it"
    apart = "" if _is_key(column, side) else gone
    return unsupported(
        f"{describe(node)} in WHERE after a LEFT JOIN of {called}",
        f"write {_anti_join(side)} in place of the LEFT JOIN and leave {describe(node)} out"
        f"{only}{apart}",
    )


def _is_key(column: exp.Column, side: OuterSide) -> bool:
    """Whether the join compares ``column`` by equality, so no matching row has NULL in it."""
    name, table = column.name.lower(), column.table.lower()
    if name in (used.lower() for used in side.source.using):
        return True
    compared = [] if side.on is None else operands(side.on, exp.And)
    return any(
        part.name.lower() == name and (not table or part.table.lower() == table)
        for comparison in compared
        if isinstance(comparison, exp.EQ)
        for part in (comparison.left, comparison.right)
        if isinstance(part, exp.Column)
    )


def _anti_join(side: OuterSide) -> str:
    """The LEFT ANTI JOIN clause that selects rows without a partner, with the same condition."""
    assert side.source.node is not None
    source = side.source.node.sql(dialect="spark")
    if side.source.using:
        link = f"USING ({', '.join(side.source.using)})"
    else:
        link = "" if side.on is None else f"ON {side.on.sql(dialect='spark')}"
    return " ".join(f"LEFT ANTI JOIN {source} {link}".split())


@dataclass(frozen=True, slots=True)
class Sides:
    """An outer join, with the scopes (visible names) of FROM without its right side and with it."""

    query: Unresolved
    outer: OuterSide
    left: Scope
    both: Scope

    @property
    def shown_scope(self) -> Scope:
        """The scope of the SELECT list."""
        return self.both if self.outer.kind is JoinKind.LEFT else self.left

    def plan(self, pairs: JoinQuery, shown: Sequence[tuple[str, Expr]] | None) -> OuterPlan:
        """The columns of pairs and left rows, and the deadline by which a match must have arrived.

        Args:
            shown: columns instead of the SELECT list.

        Raises:
            QueryError: no time bound limits a partner's arrival, or the SELECT list is wrong.
        """
        times = self._times(pairs)
        shown = written(self.query.items, self.shown_scope) if shown is None else shown
        read = [c for _, e in shown for c in columns(e)]
        left = {c: None for c in read if c.alias in self.left.streams}
        left |= {
            c: None for e in self._condition() for c in columns(e) if c.alias in self.left.streams
        }
        left |= {column: None for column, _ in times}
        right = {c: None for c in read if c.alias not in self.left.streams}
        names = {column: f"l{n}" for n, column in enumerate(left, 1)}
        names |= {column: f"r{n}" for n, column in enumerate(right, 1)}
        outer = OuterJoin(
            self.outer.kind,
            tuple((names[column], column.type) for column in left),
            tuple((names[column], micros) for column, micros in times),
            str(self.both.streams[self._alias()].name),
            tuple(
                Output(name, substitute(e, lambda c: Column("", names[c], c.type)))
                for name, e in shown
            ),
        )
        left_columns = tuple((names[c], c) for c in left)
        return OuterPlan((*left_columns, *((names[c], c) for c in right)), left_columns, outer)

    def _alias(self) -> str:
        own = [alias for alias in self.both.streams if alias not in self.left.streams]
        if len(own) != 1:
            raise unsupported(
                f"a {self.outer.kind.upper()} JOIN with a join",
                "join one stream, or a query over one stream",
            )
        return own[0]

    def _times(self, pairs: JoinQuery) -> list[tuple[Column, int]]:
        """Event-time columns of left rows; the microseconds by which a match may be later."""
        with at(self.outer.source.node):
            alias = self._alias()
            stream = self.both.streams[alias]
            if stream.event_time is None or stream.lateness is None:
                raise QueryError(
                    "no-deadline",
                    f"stream {str(stream.name)!r} has no event time, or no limit to how late its "
                    "tuples may be: a row without a match can never be emitted",
                    remedy=f"declare event_time and lateness for {str(stream.name)!r}",
                )
            place = [m.alias for m in pairs.members].index(alias)
            found = []
            for i, member in enumerate(pairs.members):
                bound = pairs.bounds[i][place]
                other = self.both.streams[member.alias]
                if i == place or bound is None or other.event_time is None:
                    continue
                kind = other.type_of(other.event_time)
                assert kind is not None
                found.append((Column(member.alias, other.event_time, kind), bound))
            if not found:
                raise QueryError(
                    "no-deadline",
                    "no time condition limits how much later a partner may come",
                    remedy="add one, such as ... AND right.ts <= left.ts + INTERVAL '1' HOUR, "
                    "or a window",
                )
            return found

    def _condition(self) -> list[Expr]:
        using = [self.left.column(name) for name in self.outer.source.using]
        if self.outer.on is None:
            return using
        return [typed(node, self.both) for node in operands(self.outer.on, exp.And)]
