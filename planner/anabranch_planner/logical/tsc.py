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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from anabranch_planner.logical.nodes import CROSS, INNER, Exchange, Join, MultiJoin, Node, ordered

#: Inputs from which on a group becomes a multi-way join.
SEVERAL = 3


class Rule(StrEnum):
    """The rule of step 1 that makes a node a member of a group."""

    START = "an inner join that no group reads starts a group"
    JOIN = "an inner join whose only readers are in the group"
    EXCHANGE = "an exchange over an inner join, whose only readers are in the group"


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Members that become one node, with their rules: joins, and exchanges between them; the root
    is the first.
    """

    members: Mapping[Node, Rule]

    @property
    def root(self) -> Node:
        """The member whose rows are the group's."""
        return next(iter(self.members))

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The inputs of members that are no members, left to right."""
        found: list[Node] = []

        def visit(node: Node) -> None:
            for source in node.inputs:
                if source in self.members:
                    visit(source)
                else:
                    found.append(source)

        visit(self.root)
        return tuple(found)


def convert(root: Node, several: int = SEVERAL) -> Node:
    """The plan with multi-way joins in it.

    Args:
        several: inputs from which on a group becomes one.
    """
    roots = {g.root: g for g in groups(root) if len(g.inputs) >= several}
    return _replaced(root, roots, {})


def multi_joins(root: Node) -> list[MultiJoin]:
    """The multi-way joins of a plan, from the root on."""
    return [node for node in ordered(root) if isinstance(node, MultiJoin)]


def groups(root: Node) -> list[NodeGroup]:
    """Step 1: the groups of a plan, from the root on."""
    outputs: dict[Node, list[Node]] = {}
    nodes = ordered(root)
    for node in nodes:
        for source in node.inputs:
            outputs.setdefault(source, []).append(node)
    group_of: dict[Node, int] = {}
    found: list[dict[Node, Rule]] = []
    for node in nodes:
        exchange = isinstance(node, Exchange)
        if not _is_inner(node.inputs[0] if exchange else node):
            continue
        readers = {group_of.get(output) for output in outputs.get(node, ())}
        group = next(iter(readers)) if len(readers) == 1 else None
        rule = Rule.EXCHANGE if exchange else Rule.JOIN
        if group is None:
            if exchange:
                continue
            group, rule = len(found), Rule.START
            found.append({})
        found[group][node] = rule
        group_of[node] = group
    return [NodeGroup(members) for members in found]


def _is_inner(node: Node) -> bool:
    return isinstance(node, Join) and node.kind in (INNER, CROSS)


def _replaced(node: Node, roots: Mapping[Node, NodeGroup], done: dict[Node, Node]) -> Node:
    """Step 2, remembering replaced nodes: shared nodes stay shared."""
    if node in done:
        return done[node]
    group = roots.get(node)
    if group is None:
        sources = tuple(_replaced(source, roots, done) for source in node.inputs)
        done[node] = node if sources == node.inputs else replace(node, inputs=sources)
        return done[node]
    # Where its rows go is the multi-way join's business, not that of exchanges before it.
    bare = (s.inputs[0] if isinstance(s, Exchange) else s for s in group.inputs)
    conditions = [c for m in group.members if isinstance(m, Join) for c in m.conditions]
    done[node] = MultiJoin(
        tuple(_replaced(source, roots, done) for source in bare),
        tuple(c for c in conditions if c.sides is not None),
        tuple(c for c in conditions if c.sides is None),
        tuple(f"{member}: {rule}" for member, rule in group.members.items()),
    )
    return done[node]
