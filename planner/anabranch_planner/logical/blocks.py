"""FROM and WHERE of one SELECT as a tree of binary joins."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from anabranch_planner.logical.nodes import (
    CROSS,
    INNER,
    Condition,
    Exchange,
    Filter,
    Join,
    Named,
    Node,
    Scan,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(slots=True)
class Block:
    """FROM and WHERE of one SELECT, while its joins are put together.

    Attributes:
        items: what is joined, in the order of FROM.
        on: conditions of inner joins, and ``where``: of WHERE, that have no place yet.
        after: joins that follow when all else is joined: kind, right side, conditions.
    """

    items: list[Node] = field(default_factory=list)
    on: list[Condition] = field(default_factory=list)
    where: list[Condition] = field(default_factory=list)
    after: list[tuple[str, Node, list[Condition]]] = field(default_factory=list)

    @property
    def tables(self) -> frozenset[str]:
        """The tables of all items."""
        return frozenset().union(*(shown(item) for item in self.items))

    def before_outer(self, *, preserved: bool) -> None:
        """Join all items to one, the left side of an outer join.

        Args:
            preserved: all its rows stay, so that WHERE may come first.
        """
        tables = self.tables if preserved else frozenset[str]()
        early, self.where = _within(self.where, tables)
        self._fold([*self.on, *early])
        self.on = []

    def all_joined(self) -> Node:
        """The join of all items under all conditions."""
        self._fold([*self.on, *self.where])
        current = self.items[0]
        for kind, right, conditions in self.after:
            current = joined(current, right, kind, conditions)
        return current

    def _fold(self, left: list[Condition]) -> None:
        for at, item in enumerate(self.items):
            own, others = _within(left, shown(item))
            if own and isinstance(item, Scan | Named):
                self.items[at] = Filter(item, tuple(own))
                left = others
        current, *rest = self.items
        while rest:
            here = shown(current)
            near = (i for i in rest if any(_links(c, here, shown(i)) for c in left))
            right = next(near, rest[0])
            rest.remove(right)
            own, left = _within(left, here | shown(right))
            current = joined(current, right, INNER if own else CROSS, own)
        if left and isinstance(current, Join) and current.kind in (INNER, CROSS):
            # Constants, which read no table.
            current = replace(current, kind=INNER, conditions=(*current.conditions, *left))
        elif left:
            current = Filter(current, tuple(left))
        self.items = [current]


def _within(
    conditions: list[Condition], tables: frozenset[str]
) -> tuple[list[Condition], list[Condition]]:
    """The conditions that read ``tables`` and no others, and the rest."""
    inside = [bool(c.tables) and c.tables <= tables for c in conditions]
    return (
        [c for c, kept in zip(conditions, inside, strict=True) if kept],
        [c for c, kept in zip(conditions, inside, strict=True) if not kept],
    )


def _links(condition: Condition, one: frozenset[str], other: frozenset[str]) -> bool:
    tables = condition.tables
    return bool(tables & one and tables & other) and tables <= one | other


def joined(left: Node, right: Node, kind: str, conditions: Sequence[Condition]) -> Join:
    """A join with both sides exchanged by the keys of its equalities, if it has any."""
    keys: list[tuple[str, str]] = []
    for condition in conditions:
        if condition.sides is not None:
            (one, mine), (_, theirs) = condition.sides
            keys.append((mine, theirs) if one in shown(left) else (theirs, mine))
    if keys:
        left = Exchange(left, tuple(k for k, _ in keys))
        right = Exchange(right, tuple(k for _, k in keys))
    else:
        right = Exchange(right, ())
    return Join(left, right, kind, tuple(conditions))
