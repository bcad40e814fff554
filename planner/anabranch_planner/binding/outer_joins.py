"""Binding of a statement's single outer, semi or anti join: output columns and deadline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from anabranch_contract.queries.expressions import Column, Expr, Output, columns, substitute
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.outer_joins import JoinKind, OuterJoin
from anabranch_planner.binding.outputs import written
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.unresolved import Condition, OuterSide, Unresolved, operands


@dataclass(frozen=True, slots=True)
class OuterPlan:
    """An outer join, and the output columns of its matched pairs and of its left rows."""

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
    """``window`` (one for all aliases, or one per alias), limited to aliases in ``scope``."""
    if not isinstance(window, Mapping):
        return window
    return {name: micros for name, micros in window.items() if scope.find_streams(name)}


@dataclass(frozen=True, slots=True)
class Sides:
    """An outer join, with the scopes (visible names) of its left side, its right side, and both."""

    query: Unresolved
    outer: OuterSide
    left: Scope
    right: Scope
    both: Scope

    @property
    def shown_scope(self) -> Scope:
        """The scope (visible names) of the SELECT list."""
        if self.outer.kind is not JoinKind.LEFT:
            return self.left
        source = self.outer.source
        names = self.left.common(self.right) if source.natural else source.using
        return self.left.joined(self.right.nullable(), names)

    def plan(
        self, times: Sequence[tuple[Column, int]], shown: Sequence[tuple[str, Expr]] | None
    ) -> OuterPlan:
        """The columns of matched pairs and of left rows, and the outer join over them.

        Args:
            times: the result of :meth:`times`.
            shown: output columns; None: the SELECT list.

        Raises:
            QueryError: the SELECT list is invalid.
        """
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
        computed = self.shown_scope.computed
        pairs = (*left_columns, *((names[c], computed.get(c, c)) for c in right))
        return OuterPlan(pairs, left_columns, outer)

    def _alias(self) -> str:
        return next(alias for alias in self.both.streams if alias not in self.left.streams)

    def times(self, pairs: JoinQuery) -> list[tuple[Column, int]]:
        """Event-time columns of left rows, each with the microseconds by which a match's event time
        may be later; empty if matches may arrive at any time."""
        alias = self._alias()
        stream = self.both.streams[alias]
        if stream.event_time is None or stream.lateness is None:
            return []
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
        return found

    def _condition(self) -> list[Expr]:
        using = [self.left.column(name) for name in self.outer.source.using]
        if self.outer.on is None:
            return using
        return [typed(node, self.both) for node in operands(self.outer.on, exp.And)]
