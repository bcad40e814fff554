"""Probe trees: the orders of a plan with shared prefixes merged, and the levels of their edges.

**Levels.** A store must have all of a batch's inserts before it is probed (``semantics.md``,
"Exactly once within a batch"). Base stores are filled first, so an edge that probes a base store
has its parent's level. An edge that probes an MIR has at least the level after the MIR's last
maintenance edge. An MIR is maintained through strictly smaller ones, so the recursion ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch_contract.plans.plan import ProbeOrder, Step
from anabranch_contract.plans.ruleset import Edge, arrival_edge, substream_counts
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import KeyClass, Label, QueryId, RelationId
from anabranch_contract.queries.mirs import Mir, MirId, canonical
from anabranch_planner.cost.timing import PairBounds, pair_bounds
from anabranch_planner.plans.compiling.stores import PartTables, Stores, short_hash

#: Identity of a tree node: the probed store, the aliases it adds, and the resulting sub-join.
_NodeKey = tuple[MirId, tuple[Label, ...], MirId]


@dataclass(frozen=True, slots=True)
class OrderGoal:
    """The goal of a probe order: to answer a query, or to maintain an intermediate result."""

    name: str
    maintains: bool
    classes: tuple[KeyClass, ...]
    relation_of: Mapping[Label, RelationId]
    bounds: PairBounds
    residuals: tuple[Expr, ...]

    @staticmethod
    def of(order: ProbeOrder, tables: PartTables, stores: Stores) -> OrderGoal:
        """The goal of ``order``: a query or intermediate result, with its join conditions."""
        if order.maintains:
            return OrderGoal.of_mir(tables.mirs[MirId(order.goal)], order.owner, stores)
        query = tables.queries[QueryId(order.goal)]
        relation_of = {m.label: m.relation for m in query.members}
        bounds = pair_bounds(query)
        return OrderGoal(query.id, False, query.classes, relation_of, bounds, query.residuals)

    @staticmethod
    def of_mir(mir: Mir, owner: str, stores: Stores) -> OrderGoal:
        """The goal of probe orders that fill the store of the intermediate result ``mir``."""
        relation_of = dict(zip(mir.members, mir.relations, strict=True))
        bounds = {(b.earlier, b.later): b.micros for b in stores[owner, mir.id][0].bounds}
        return OrderGoal(mir.id, True, mir.classes, relation_of, bounds, ())


@dataclass(slots=True)
class TreeNode:
    """A node of a probe tree: the partial result over ``labels``.

    Attributes:
        substreams: the substreams of arriving tuples that reach the node; empty: all.
    """

    edge: Edge
    labels: frozenset[Label]
    goals: list[OrderGoal] = field(default_factory=list)
    ends: list[OrderGoal] = field(default_factory=list)
    children: dict[_NodeKey, TreeNode] = field(default_factory=dict)
    step: Step | None = None
    substreams: tuple[int, ...] = ()

    @property
    def shape(self) -> object:
        """The shape of the tree below this node, without names of edges; equal for equal trees."""
        ends = [(goal.name, goal.maintains) for goal in self.ends]
        partition = None if self.step is None else self.step.partition
        return ends, partition, [(key, c.shape) for key, c in sorted(self.children.items())]


class ProbeTree(NamedTuple):
    """Probe orders that begin with one alias and substream; ``owner``: a query, or "" if shared."""

    owner: str
    start: Label
    substream: int
    root: TreeNode


def probe_trees(tables: PartTables, stores: Stores) -> list[ProbeTree]:
    """The probe trees of a part, in a stable order.

    Labels of one relation (``S``, ``S#1``) have separate trees over the same arrival edge, and so
    have the substreams of an alias. A tree's starting alias is its root's only alias.
    """
    trees: dict[tuple[str, Label, int], ProbeTree] = {}
    taken: set[Edge] = set()
    ordered = sorted(
        tables.plan.orders, key=lambda o: (o.owner, o.start, o.substream, o.maintains, o.goal)
    )
    for order in ordered:
        goal = OrderGoal.of(order, tables, stores)
        key = order.owner, order.start, order.substream
        if key not in trees:
            arrival = arrival_edge(goal.relation_of[order.start])
            trees[key] = ProbeTree(*key, TreeNode(arrival, frozenset({order.start})))
        _insert(tables, trees[key].root, order, goal, taken)
    found = [trees[key] for key in sorted(trees)]
    _merge(found, substream_counts(tables.plan.substreams))
    return found


def _merge(trees: Sequence[ProbeTree], counts: Mapping[Label, int]) -> None:
    """Merge equal branches of the probe trees of one alias's substreams, so that their tuples are
    sent together. The first probe of a merged branch lists the substreams."""
    alike: dict[tuple[str, Label, _NodeKey, str], list[tuple[int, TreeNode, _NodeKey]]] = (
        defaultdict(list)
    )
    for owner, start, substream, root in trees:
        if start in counts:
            # A result without a probe is equal for all substreams: only the first one emits it.
            root.ends = root.ends if substream == 0 else []
            for key, child in root.children.items():
                shape = owner, start, key, repr(child.shape)
                alike[shape].append((substream, root, key))
    for (_, start, *_), members in alike.items():
        whose = tuple(sorted(substream for substream, _, _ in members))
        (_, root, key), *others = members
        if len(whose) < counts[start]:
            root.children[key].substreams = whose
        for _, other, same in others:
            del other.children[same]


def _insert(
    tables: PartTables, node: TreeNode, order: ProbeOrder, goal: OrderGoal, taken: set[Edge]
) -> None:
    """Add the steps of a probe order to the probe tree with the root ``node``."""
    node.goals.append(goal)
    path = f"{order.owner}:{order.start}" if order.owner else str(order.start)
    if order.substream:
        path += f"%{order.substream}"
    for step in order.steps:
        labels = node.labels | frozenset(step.members)
        # Identify a node by its canonical sub-join: orders of one goal may meet again in it.
        if goal.maintains:
            joined = canonical(goal.classes, goal.relation_of, labels).id
        else:
            joined = tables.subs.of(tables.queries[QueryId(goal.name)], labels).id
        key = (step.target, step.members, joined)
        path += ">" + "*".join(step.members)
        child = node.children.get(key)
        if child is None:
            edge = Edge(path)
            if edge in taken:  # a step with other predicates, or through another store
                edge = Edge(f"{path}@{short_hash((step.target, joined))}")
            taken.add(edge)
            child = TreeNode(edge, labels, step=step)
            node.children[key] = child
        node, path = child, child.edge
        node.goals.append(goal)
    node.ends.append(goal)


def edge_levels(trees: Sequence[ProbeTree], mirs: Mapping[MirId, Mir]) -> dict[Edge, int]:
    """Edge of a probe tree -> its level; in a batch, probes run level by level."""
    levels: dict[Edge, int] = {}
    #: (owner, intermediate result) -> the first level at which its store is complete.
    ready: dict[tuple[str, MirId], int] = {}

    def walk(owner: str, node: TreeNode, level: int, size: int | None) -> None:
        for end in node.ends:
            if end.maintains and len(node.labels) == size:
                key = owner, MirId(end.name)
                ready[key] = max(ready.get(key, 0), level + 1)
        for child in node.children.values():
            assert child.step is not None  # only a root has no step
            target = mirs[child.step.target]
            below = 0 if target.is_base else ready.get((owner, target.id), 0)
            levels[child.edge] = max(level, below)
            walk(owner, child, levels[child.edge], size)

    for size in [*sorted({len(m.members) for m in mirs.values() if not m.is_base}), None]:
        for tree in trees:
            walk(tree.owner, tree.root, 0, size)
    return levels
