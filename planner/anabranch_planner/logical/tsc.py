"""TSC: a plan of binary joins becomes one of multi-way joins (UMJoin, section 3.3).

Step 1 (Algorithm 2) walks the plan from its root and gathers groups. A node may be a member if it
is an inner join, or an exchange over one; it joins the group of its outputs if these are all in the
same group, and else a join starts a group of its own. All other nodes (projections and filters that
could not be pushed down, aggregations, outer, semi and anti joins, queries that are read twice)
are where groups end.

Step 2 (Algorithm 3) goes from the leaves up and replaces every group by one node, whose inputs are
the inputs of its members that are no members.

Two things differ from the paper. Nodes are visited after all of their outputs (breadth first alone
would meet a shared node before some of them). And a group of two inputs stays the binary join that
it is: there is no order to choose.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch_planner.logical.nodes import (
    CROSS,
    INNER,
    Condition,
    Exchange,
    Item,
    Join,
    MultiJoin,
    Node,
    inputs,
    queries,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Held = TypeVar("Held", Condition, Item)
#: Inputs from which on a group becomes a multi-way join.
SEVERAL = 3


@dataclass(frozen=True, slots=True)
class Group:
    """Members that become one node: joins, and exchanges between them; the root is the first."""

    members: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The inputs of members that are no members, left to right."""
        found: list[Node] = []

        def visit(node: Node) -> None:
            for source in inputs(node):
                if source in self.members:
                    visit(source)
                else:
                    found.append(source)

        visit(self.members[0])
        return tuple(found)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of all members."""
        return tuple(c for m in self.members if isinstance(m, Join) for c in m.conditions)


def convert(root: Node, several: int = SEVERAL) -> Node:
    """The plan with multi-way joins in it.

    Args:
        several: inputs from which on a group becomes one.
    """
    roots = {g.members[0]: g for g in groups(root) if len(g.inputs) >= several}
    return _replaced(root, roots, {})


def multi_joins(root: Node) -> list[MultiJoin]:
    """The multi-way joins of a plan, from the root on."""
    return [node for node in ordered(root) if isinstance(node, MultiJoin)]


def groups(root: Node) -> list[Group]:
    """Step 1: the groups of a plan, from the root on."""
    outputs: dict[Node, list[Node]] = {}
    nodes = ordered(root)
    for node in nodes:
        for source in (*inputs(node), *queries(node)):
            outputs.setdefault(source, []).append(node)
    group_of: dict[Node, int] = {}
    found: list[list[Node]] = []
    for node in nodes:
        if not _may_be_member(node):
            continue
        readers = {group_of.get(output) for output in outputs.get(node, ())}
        group = next(iter(readers)) if len(readers) == 1 else None
        if group is None:
            if not isinstance(node, Join):
                continue
            group = len(found)
            found.append([])
        found[group].append(node)
        group_of[node] = group
    return [Group(tuple(members)) for members in found]


def ordered(root: Node) -> list[Node]:
    """All nodes of a plan, each after all of its outputs."""
    waiting: dict[Node, int] = {}
    pending, met = [root], {root}
    while pending:
        for source in _below(pending.pop()):
            waiting[source] = waiting.get(source, 0) + 1
            if source not in met:
                met.add(source)
                pending.append(source)
    found, ready = [], [root]
    while ready:
        node = ready.pop(0)
        found.append(node)
        for source in _below(node):
            waiting[source] -= 1
            if not waiting[source]:
                ready.append(source)
    return found


def _below(node: Node) -> tuple[Node, ...]:
    return *inputs(node), *queries(node)


def _may_be_member(node: Node) -> bool:
    if isinstance(node, Exchange):
        return _is_inner(node.input)
    return _is_inner(node)


def _is_inner(node: Node) -> bool:
    return isinstance(node, Join) and node.kind in (INNER, CROSS)


def _replaced(node: Node, roots: Mapping[Node, Group], done: dict[Node, Node]) -> Node:
    """Step 2, remembering what has been replaced: what was shared stays shared."""
    if node in done:
        return done[node]

    def again(source: Node) -> Node:
        return _replaced(source, roots, done)

    group = roots.get(node)
    if group is None:
        done[node] = rebuilt(node, again)
        return done[node]
    # Where its rows go is the multi-way join's business, not that of exchanges before it.
    sources = (s.input if isinstance(s, Exchange) else s for s in group.inputs)
    conditions = [_with_queries(c, again) for c in group.conditions]
    done[node] = MultiJoin(
        tuple(map(again, sources)),
        tuple(c for c in conditions if c.sides is not None),
        tuple(c for c in conditions if c.sides is None),
    )
    return done[node]


def rebuilt(node: Node, again: Callable[[Node], Node]) -> Node:
    """``node`` over ``again`` of each of its inputs and inner queries; itself if all stay."""
    changes: dict[str, object] = {}
    for name in ("input", "left", "right"):
        source = getattr(node, name, None)
        if source is not None:
            changes[name] = again(source)
    if isinstance(node, MultiJoin):
        changes["inputs"] = tuple(map(again, node.inputs))
    for name in ("conditions", "items", "by", "predicates", "residual"):
        held: tuple[Any, ...] | None = getattr(node, name, None)
        if held is not None:
            changes[name] = tuple(_with_queries(h, again) for h in held)
    if all(getattr(node, name) == value for name, value in changes.items()):
        return node
    return replace(node, **changes)  # type: ignore[arg-type]


def _with_queries(held: Held, again: Callable[[Node], Node]) -> Held:
    if not held.queries:
        return held
    return replace(held, queries=tuple(map(again, held.queries)))
