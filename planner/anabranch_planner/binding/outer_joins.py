"""The last join of a statement, if it is an outer, semi or anti join: columns and deadline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import Column, Expr, Output, columns, substitute
from anabranch_contract.queries.outer_joins import JoinKind, OuterJoin
from anabranch_planner.binding.outputs import written
from anabranch_planner.binding.typecheck import operands, typed
from anabranch_planner.sql.unresolved import Condition, at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch_contract.queries.joins import JoinQuery
    from anabranch_planner.sql.scope import Scope
    from anabranch_planner.sql.unresolved import Partner, Unresolved


@dataclass(frozen=True, slots=True)
class OuterPlan:
    """What the two joins project, and what is made of that."""

    pair_columns: tuple[tuple[str, Expr], ...]
    left_columns: tuple[tuple[str, Expr], ...]
    outer: OuterJoin


def with_source(query: Unresolved, partner: Partner) -> Unresolved:
    """The inner join of ``query`` and its partner."""
    sources = (*query.sources, partner.source)
    on = () if partner.on is None else (Condition(partner.on, len(sources)),)
    conditions = (*query.conditions, *on)
    return replace(query, sources=sources, conditions=conditions, partner=None, above=None)


def of_those(
    window: int | Mapping[str, int] | None, scope: Scope
) -> int | Mapping[str, int] | None:
    """The windows of the aliases that ``scope`` has."""
    if not isinstance(window, Mapping):
        return window
    return {name: micros for name, micros in window.items() if scope.find_streams(name)}


@dataclass(frozen=True, slots=True)
class Sides:
    """A join with a partner: what the FROM list shows without it (``left``), and with it."""

    query: Unresolved
    partner: Partner
    left: Scope
    both: Scope

    @property
    def shown_scope(self) -> Scope:
        """What the SELECT list sees."""
        return self.both if self.partner.kind is JoinKind.LEFT else self.left

    def plan(self, pairs: JoinQuery, shown: Sequence[tuple[str, Expr]] | None) -> OuterPlan:
        """What to project, and the deadline by the bounds of ``pairs``; ``shown`` stands for the
        SELECT list.

        Raises:
            QueryError: nothing says until when a partner may come, or the SELECT list is wrong.
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
            self.partner.kind,
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
        """The partner's alias."""
        own = [alias for alias in self.both.streams if alias not in self.left.streams]
        if len(own) != 1:
            raise QueryError(
                "unsupported-sql",
                f"a {self.partner.kind.upper()} JOIN with a join is not supported",
                remedy="join one stream, or a query over one stream",
            )
        return own[0]

    def _times(self, pairs: JoinQuery) -> list[tuple[Column, int]]:
        """The event-time columns of left rows, and how much later a partner may be than each."""
        with at(self.partner.source.node):
            alias = self._alias()
            stream = self.both.streams[alias]
            if stream.event_time is None or stream.lateness is None:
                raise QueryError(
                    "no-deadline",
                    f"stream {str(stream.name)!r} has no event time, or no limit to how late its "
                    "tuples may be: nobody knows when a row has no partner",
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
        using = [self.left.column(name) for name in self.partner.source.using]
        if self.partner.on is None:
            return using
        return [typed(node, self.both) for node in operands(self.partner.on, exp.And)]
