"""TSC: converts a plan of binary joins to one with multi-way joins (UMJoin, section 3.3).

Step 1 (Algorithm 2) walks the plan from its root and forms groups of inner joins and of exchanges
over them. A join or exchange is added to the group of its consumers (the nodes that read it) if all
of them are in one group; otherwise a join starts a new group. All other nodes end groups:
projections and filters that could not be pushed down, aggregations, outer, semi and anti joins, and
queries that are read twice.

Step 2 (Algorithm 3) goes from the leaves up and replaces every group by one node. The new node's
inputs are the inputs of the group's members from outside the group.

Two things differ from the paper. Nodes are visited after all of their consumers (breadth-first
order would reach a shared node too early). And a group of two inputs stays a binary join, because
it has no order to choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from anabranch_planner.logical.nodes import CROSS, INNER, Exchange, Join, MultiJoin, Node, ordered

#: Least number of inputs for which a group becomes a multi-way join.
SEVERAL = 3


class Rule(StrEnum):
    """Reason why step 1 made a node a member of a group."""

    START = "an inner join that no group reads starts a group"
    JOIN = "an inner join whose only readers are in the group"
    EXCHANGE = "an exchange over an inner join, whose only readers are in the group"


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Joins, and exchanges between them, that become one multi-way join; each is with the rule that
    made it a member. The first one is the root."""

    members: Mapping[Node, Rule]

    @property
    def root(self) -> Node:
        """The member whose output is the output of the group of joins."""
        return next(iter(self.members))

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The inputs of the group of joins: inputs of members from outside the group, in order."""
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
    """The logical plan with groups of binary joins replaced by multi-way joins.

    Args:
        several: least number of inputs for which a group is replaced.
    """
    roots = {g.root: g for g in groups(root) if len(g.inputs) >= several}
    return _replaced(root, roots, {})


def multi_joins(root: Node) -> list[MultiJoin]:
    """The multi-way joins of a logical plan, from the root down."""
    return [node for node in ordered(root) if isinstance(node, MultiJoin)]


def groups(root: Node) -> list[NodeGroup]:
    """Step 1: group the joins of a plan that one multi-way join can replace; root first."""
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
    """Step 2: replace groups in the plan ``node``. ``done``: original node -> replacement."""
    if node in done:
        return done[node]
    group = roots.get(node)
    if group is None:
        sources = tuple(_replaced(source, roots, done) for source in node.inputs)
        done[node] = node if sources == node.inputs else replace(node, inputs=sources)
        return done[node]
    # The multi-way join itself distributes its rows, so exchanges below it are dropped.
    bare = (s.inputs[0] if isinstance(s, Exchange) else s for s in group.inputs)
    conditions = [c for m in group.members if isinstance(m, Join) for c in m.conditions]
    done[node] = MultiJoin(
        tuple(_replaced(source, roots, done) for source in bare),
        tuple(c for c in conditions if c.sides is not None),
        tuple(c for c in conditions if c.sides is None),
        tuple(f"{member}: {rule}" for member, rule in group.members.items()),
    )
    return done[node]
