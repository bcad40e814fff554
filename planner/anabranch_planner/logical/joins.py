"""Construction of binary join trees in logical plans from tables and conditions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from anabranch_planner.logical.nodes import CROSS, INNER, Conjunct, Exchange, Filter, Join, Node


def join_tree(items: Sequence[Node], conditions: Iterable[Conjunct]) -> Node:
    """The inner join of ``items`` from left to right; cross products as late as possible.

    Every condition is placed in the lowest join that has its tables. If the last join is not an
    inner join, the remaining conditions are placed in a filter over it.
    """
    open_conditions = list(conditions)
    current, *rest = items
    while rest:
        here = current.aliases
        near = (i for i in rest if any(_links(c, here, i.aliases) for c in open_conditions))
        right = next(near, rest[0])
        rest.remove(right)
        own, open_conditions = within(open_conditions, here | right.aliases)
        current = joined(current, right, INNER if own else CROSS, own)
    if not open_conditions:
        return current
    if isinstance(current, Join) and current.kind in (INNER, CROSS):
        return replace(current, kind=INNER, conditions=(*current.conditions, *open_conditions))
    return Filter((current,), tuple(open_conditions))


def joined(left: Node, right: Node, kind: str, conditions: Sequence[Conjunct]) -> Join:
    """A join of two inputs; if equalities relate them, exchanges hash-partition both."""
    keys: list[tuple[str, str]] = []
    for condition in conditions:
        if condition.sides is not None and condition.tables & right.aliases:
            (one, mine), (_, theirs) = condition.sides
            keys.append((mine, theirs) if one in left.aliases else (theirs, mine))
    if keys:
        left = Exchange((left,), tuple(k for k, _ in keys))
    right = Exchange((right,), tuple(k for _, k in keys))
    return Join((left, right), kind, tuple(conditions))


def within(
    conditions: Iterable[Conjunct], tables: frozenset[str]
) -> tuple[list[Conjunct], list[Conjunct]]:
    """Split conditions of a plan: first the ones over ``tables`` only, then the others."""
    inside: list[Conjunct] = []
    outside: list[Conjunct] = []
    for condition in conditions:
        own = condition.tables and condition.tables <= tables
        (inside if own else outside).append(condition)
    return inside, outside


def _links(condition: Conjunct, one: frozenset[str], other: frozenset[str]) -> bool:
    tables = condition.tables
    return bool(tables & one and tables & other) and tables <= one | other
