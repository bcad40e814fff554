"""The rules of probe trees, and the backfill rules of intermediate results.

**Checks on a shared edge.** All goals downstream of an edge use it, so its checks must not drop a
tuple that one of these goals needs. The edge checks the *loosest* of their time bounds and the
*intersection* of their residuals, and each query checks its remaining conditions at its output.
Hence all results of a query pass every edge on their path, and only they leave its output.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeAlias

from anabranch_contract.plans.ruleset import (
    BackfillRule,
    Edge,
    FillStep,
    IndexSpec,
    KeyPart,
    OutputRule,
    ProbeRule,
    StoreId,
    StoreRule,
)
from anabranch_contract.queries.expressions import Expr, columns
from anabranch_contract.queries.joins import AttrRef, Label, QueryId
from anabranch_contract.queries.mirs import MirId, join_keys
from anabranch_planner.cost.parts import PlanPart
from anabranch_planner.cost.timing import PairBounds, pair_bounds
from anabranch_planner.plans.backfill import BackfillDecision
from anabranch_planner.plans.compiling.stores import (
    PartTables,
    Stores,
    best_base,
    preferred,
    time_bounds,
)
from anabranch_planner.plans.compiling.trees import (
    OrderGoal,
    ProbeTree,
    TreeNode,
    edge_levels,
    probe_trees,
)

TreeRule: TypeAlias = ProbeRule | OutputRule | StoreRule


@dataclass(frozen=True, slots=True)
class SortedRules:
    """Rules compiled from probe trees: probes, outputs and inserts, each sorted."""

    probes: tuple[ProbeRule, ...]
    outputs: tuple[OutputRule, ...]
    inserts: tuple[StoreRule, ...]

    @staticmethod
    def of(rules: Collection[TreeRule]) -> SortedRules:
        """Sort ``rules`` by type, level and name."""
        probes = [rule for rule in rules if isinstance(rule, ProbeRule)]
        outputs = [rule for rule in rules if isinstance(rule, OutputRule)]
        inserts = {rule for rule in rules if isinstance(rule, StoreRule)}
        return SortedRules(
            tuple(sorted(probes, key=lambda rule: (rule.level, rule.out))),
            tuple(sorted(outputs, key=lambda rule: (rule.query, rule.edge))),
            tuple(sorted(inserts, key=lambda rule: (rule.edge, rule.store))),
        )


def tree_rules(tables: PartTables, stores: Stores) -> list[TreeRule]:
    """Compile a part's probe trees to rules."""
    trees = probe_trees(tables, stores)
    levels = edge_levels(trees, tables.mirs)
    return [
        rule
        for tree in trees
        for rule in _Emitter(tree, levels, tables, stores).rules(tree.root, {}, frozenset())
    ]


def outputs_beside(rules: Sequence[TreeRule], part: PlanPart) -> list[OutputRule] | None:
    """Output rules for the queries by which ``part`` has grown, if its other ``rules`` stay. Their
    results leave at the edges of the earlier queries with the same joins, because these edges check
    only conditions of the new queries, too. None if an edge checks more than a new query does."""
    probes = {rule.out: rule for rule in rules if isinstance(rule, ProbeRule)}
    likes = {one.like.id for one in part.grown}
    ends: dict[QueryId, list[Edge]] = defaultdict(list)
    for rule in rules:
        if isinstance(rule, OutputRule) and rule.query in likes:
            ends[rule.query].append(rule.edge)
    found = []
    for one in part.grown:
        query, bounds = one.query, pair_bounds(one.query)
        for edge in ends[one.like.id]:
            checked: PairBounds = {}
            applied: set[Expr] = set()
            for rule in reversed(path_to(probes, edge)):
                checked |= {(b.earlier, b.later): b.micros for b in rule.bounds}
                applied |= set(rule.residuals)
            if any(p not in bounds or bounds[p] > d for p, d in checked.items()):
                return None
            if not applied <= set(query.residuals):
                return None
            left = {p: d for p, d in bounds.items() if checked.get(p) != d}
            residuals = tuple(e for e in query.residuals if e not in applied)
            found.append(OutputRule(edge, query.id, time_bounds(left), residuals))
    return found


def path_to(probes: Mapping[Edge, ProbeRule], edge: Edge) -> list[ProbeRule]:
    """The probe rules on the path of an arriving tuple to ``edge``, the last one first."""
    found = []
    while edge in probes:
        found.append(probes[edge])
        edge = probes[edge].edge
    return found


def used_indexes(rules: Iterable[TreeRule]) -> dict[StoreId, set[IndexSpec]]:
    """Store -> the indexes that probe ``rules`` use in it."""
    found: dict[StoreId, set[IndexSpec]] = defaultdict(set)
    for rule in rules:
        if isinstance(rule, ProbeRule):
            probes: list[ProbeRule | FillStep] = [rule, *rule.fill]
            for probe in probes:
                found[probe.store].add(tuple((k.build, k.type) for k in probe.key))
    return found


@dataclass(frozen=True, slots=True)
class _Emitter:
    """Compiles one probe tree to rules."""

    tree: ProbeTree
    levels: Mapping[Edge, int]
    tables: PartTables
    stores: Stores

    def rules(
        self, node: TreeNode, checked: PairBounds, applied: frozenset[Expr]
    ) -> Iterator[TreeRule]:
        """Rules of the subtree ``node``, above which time bounds ``checked`` and residuals
        ``applied`` have been checked."""
        for goal in node.ends:
            if goal.maintains:
                for store in self.stores[self.tree.owner, MirId(goal.name)]:
                    yield StoreRule(node.edge, store.id)
            else:
                yield OutputRule(
                    node.edge,
                    QueryId(goal.name),
                    time_bounds({p: d for p, d in goal.bounds.items() if checked.get(p) != d}),
                    tuple(e for e in goal.residuals if e not in applied),
                )
        for child in node.children.values():
            rule = self._probe(node, child, applied)
            yield rule
            fresh = {(b.earlier, b.later): b.micros for b in rule.bounds}
            yield from self.rules(child, {**checked, **fresh}, applied | frozenset(rule.residuals))

    def _probe(self, node: TreeNode, child: TreeNode, applied: frozenset[Expr]) -> ProbeRule:
        """The probe rule for the step from ``node`` to ``child`` of the probe tree."""
        step = child.step
        assert step is not None  # only a root has no step
        goal = child.goals[0]
        bounds = reduce(_loosest, (other.bounds for other in child.goals))
        members = frozenset(step.members)
        fresh = {p: d for p, d in bounds.items() if set(p) <= child.labels and set(p) & members}
        shared = [e for e in goal.residuals if all(e in g.residuals for g in child.goals)]
        residuals = tuple(
            e for e in shared if e not in applied and {c.alias for c in columns(e)} <= child.labels
        )
        target = self.tables.mirs[step.target]
        return ProbeRule(
            edge=node.edge,
            out=child.edge,
            start=self.tree.start,
            mir=target.id,
            store=preferred(self.stores, self.tree.owner, step).id,
            members=step.members,
            key=_key(goal, node.labels, target.members, step.members),
            inclusive=self._inclusive(goal, step.members),
            bounds=time_bounds(fresh),
            residuals=residuals,
            level=self.levels[child.edge],
            fill=() if target.is_base else self._fill(goal, node.labels, step.members, fresh),
            substreams=child.substreams,
        )

    def _inclusive(self, goal: OrderGoal, members: tuple[Label, ...]) -> tuple[Label, ...]:
        relations, start = self.tables.relations, self.tree.start
        stream = relations[goal.relation_of[start]].stream
        return tuple(
            m for m in members if relations[goal.relation_of[m]].stream == stream and m < start
        )

    def _fill(
        self,
        goal: OrderGoal,
        head: frozenset[Label],
        members: tuple[Label, ...],
        bounds: PairBounds,
    ) -> tuple[FillStep, ...]:
        """Probes of base stores for matches that an intermediate result's store lacks."""
        left, order, done = list(members), [], head
        while left:
            label = next(x for x in left if join_keys(goal.classes, done, frozenset({x})))
            left.remove(label)
            order.append(label)
            done |= {label}
        goal = replace(goal, bounds=bounds)
        steps = _base_probes(self.stores, self.tree.owner, goal, head, order)
        return tuple(replace(s, inclusive=self._inclusive(goal, (s.label,))) for s in steps)


def _key(
    goal: OrderGoal, head: frozenset[Label], names: tuple[Label, ...], members: tuple[Label, ...]
) -> tuple[KeyPart, ...]:
    """Join key of a probe that adds ``members``, whose labels in the store are ``names``."""
    rename = dict(zip(members, names, strict=True))
    return tuple(
        KeyPart(probe, AttrRef(rename[build.label], build.attribute), kind)
        for probe, build, kind in join_keys(goal.classes, head, frozenset(members))
    )


def _loosest(one: PairBounds, other: PairBounds) -> PairBounds:
    """Elementwise maximum of time bounds; a pair unbounded on either side is unbounded."""
    return {p: max(one[p], other[p]) for p in one.keys() & other.keys()}


def _base_probes(
    stores: Stores, owner: str, goal: OrderGoal, head: frozenset[Label], order: Iterable[Label]
) -> Iterator[FillStep]:
    """Probes of base stores that add the aliases of ``order`` one by one."""
    for label in order:
        relation = goal.relation_of[label]
        key = _key(goal, head, (Label(relation),), (label,))
        head |= {label}
        fresh = {p: d for p, d in goal.bounds.items() if label in p and set(p) <= head}
        store = best_base(stores, owner, relation, key)
        yield FillStep(relation, store.id, label, key, (), time_bounds(fresh))


def backfill_rules(
    tables: PartTables, stores: Stores, backfills: Sequence[BackfillDecision]
) -> list[BackfillRule]:
    """Backfill rules of intermediate results, one per copy.

    Their probes need no stored index, because each reads the stored rows only once.
    """
    found = []
    for one in backfills:
        first, *others = one.order
        goal = OrderGoal.of_mir(tables.mirs[one.mir], one.owner, stores)
        steps = tuple(_base_probes(stores, one.owner, goal, frozenset({first}), others))
        found += [BackfillRule(s.id, first, steps) for s in stores[one.owner, one.mir]]
    return found
