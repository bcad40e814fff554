"""The optimisation problem as a graph of states, shared by all queries.

A *state* ``(r, X)`` is the partial result over the canonical sub-join ``X`` that a tuple of ``r``
started; an *edge* probes a store and leads to a larger state. Equal states of different queries
are one node, because what a step costs and finds depends on the state and the store only. A
*goal* is a path that must exist: from ``(r, {r})`` to ``(r, K)`` for every label ``r`` of every
query ``K`` and, where an MIR is probed, to ``(r, M)`` for every member ``r`` of the MIR ``M``.

The paths of a goal are exactly the candidate probe orders of Algorithm 1, but states are at most
as many as connected label sets, where orders are as many as permutations of them.

Caps are explicit. A query with more than ``max_sets`` connected label sets gets one order per
start (cheapest next relation first) instead of the full graph; it is named in
:attr:`Problem.reduced`, and the plan says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch_planner.mir import Mir, MirId, sub_join
from anabranch_planner.optimiser.candidates import (
    Labels,
    adjacency,
    connected_sets,
    in_store,
    joining_attributes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch_planner.model import AttrRef, JoinQuery, Label, QueryId
    from anabranch_planner.optimiser.cost import CostModel

#: Connected label sets up to which a query's graph is built in full.
MAX_SETS = 600


@dataclass(frozen=True, slots=True, order=True)
class State:
    """The partial result over ``labels`` that a tuple of ``start`` began.

    ``mir`` is the canonical id of the sub-join, so states with equal labels under different
    predicates differ.
    """

    start: Label
    labels: tuple[Label, ...]
    mir: MirId


@dataclass(frozen=True, slots=True)
class Edge:
    """A probe that takes ``tail`` to ``head``.

    Attributes:
        target, members: the store, and the labels that it fills.
        cost: the cost of the step to one partition (chi = 1).
        yields: tuples that leave the step towards the next one, per unit of time.
        known: those of the store's candidate partition attributes whose value the probing
            tuple knows; empty where stores are not partitioned.
    """

    tail: State
    head: State
    target: MirId = field(compare=False)
    members: tuple[Label, ...] = field(compare=False)
    cost: float = field(compare=False)
    yields: float = field(compare=False)
    known: tuple[AttrRef, ...] = field(compare=False)


@dataclass(frozen=True, slots=True, order=True)
class Goal:
    """A path that has to exist: for a query, or (``maintains``) for an MIR if it is kept."""

    maintains: bool
    name: str
    start: Label


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything an optimiser chooses from.

    Attributes:
        goals: goal -> its edges, in an order in which a path only goes forward.
        ends: goal -> (first state, last state).
        mirs: every store that may be kept, by id.
        partitions: candidate partition attributes per store; ``()`` if not partitioned.
        required: base stores that are kept in any case, sorted.
        inserts: what one copy of a store costs.
        reduced: queries that exceeded the cap.
    """

    queries: tuple[QueryId, ...]
    model: CostModel
    goals: dict[Goal, tuple[Edge, ...]]
    ends: dict[Goal, tuple[State, State]]
    mirs: dict[MirId, Mir]
    partitions: dict[MirId, tuple[AttrRef, ...]]
    required: tuple[MirId, ...]
    inserts: dict[MirId, float]
    reduced: tuple[QueryId, ...] = ()

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The distinct edges, in order of first appearance."""
        return tuple(dict.fromkeys(e for edges in self.goals.values() for e in edges))

    @property
    def candidates(self) -> int:
        """How many (undecorated) candidate probe orders the goals have, all together."""
        total = 0
        for goal, edges in self.goals.items():
            root, sink = self.ends[goal]
            paths = {root: 1}
            for edge in edges:
                paths[edge.head] = paths.get(edge.head, 0) + paths[edge.tail]
            total += paths[sink]
        return total

    def query_goals(self) -> list[Goal]:
        """The goals that must be met in any case."""
        return [g for g in self.goals if not g.maintains]

    def mir_goals(self, mir: MirId) -> list[Goal]:
        """The goals that keep ``mir`` up to date, one per member."""
        return [Goal(True, mir, start) for start in self.mirs[mir].members]

    def is_base(self, mir: MirId) -> bool:
        """Whether the store is a base relation's."""
        return self.mirs[mir].is_base


def build_problem(
    queries: Sequence[JoinQuery],
    model: CostModel,
    *,
    mir: bool = True,
    max_sets: int = MAX_SETS,
) -> Problem:
    """The problem of planning ``queries`` together (in order of their ids).

    Args:
        mir: whether intermediate results may be kept.
        max_sets: the cap described above.
    """
    ordered = sorted(queries, key=lambda q: q.id)
    scopes = [_Scope.of(q, model, mir=mir, max_sets=max_sets) for q in ordered]
    mirs: dict[MirId, Mir] = {}
    partitions: dict[MirId, set[AttrRef]] = {}
    for scope in scopes:
        for labels, found in scope.targets.items():
            mirs.setdefault(found.id, found)
            partitions.setdefault(found.id, set()).update(
                joining_attributes(scope.query, labels, found)
            )
    sorted_partitions = {
        m: tuple(sorted(partitions[m])) if model.partitioned else () for m in sorted(mirs)
    }
    goals: dict[Goal, tuple[Edge, ...]] = {}
    ends: dict[Goal, tuple[State, State]] = {}
    for scope in scopes:
        _add_goals(scope, model, sorted_partitions, goals, ends)
    return Problem(
        queries=tuple(q.id for q in ordered),
        model=model,
        goals=dict(sorted(goals.items())),
        ends=dict(sorted(ends.items())),
        mirs=dict(sorted(mirs.items())),
        partitions=sorted_partitions,
        required=tuple(sorted(m for m, found in mirs.items() if found.is_base)),
        inserts={m: model.insert(found) for m, found in sorted(mirs.items())},
        reduced=tuple(s.query.id for s in scopes if s.reduced),
    )


@dataclass(slots=True)
class _Scope:
    """One query's share of the graph while it is being built."""

    query: JoinQuery
    near: dict[Label, Labels]
    targets: dict[Labels, Mir]
    reduced: bool
    _subs: dict[Labels, Mir]

    @classmethod
    def of(cls, query: JoinQuery, model: CostModel, *, mir: bool, max_sets: int) -> _Scope:
        sets = connected_sets(query, max_sets)
        reduced = sets is None
        if sets is None:
            sets = tuple(frozenset({label}) for label in sorted(query.labels))
        whole = len(query.labels)
        scope = cls(query, adjacency(query), {}, reduced, {})
        if whole > 1:
            usable = [s for s in sets if len(s) == 1 or (mir and len(s) < whole)]
            scope.targets = {s: scope.sub(s) for s in usable}
        return scope

    def sub(self, labels: Labels) -> Mir:
        if labels not in self._subs:
            self._subs[labels] = sub_join(self.query, labels)
        return self._subs[labels]

    def state(self, start: Label, labels: Labels) -> State:
        return State(start, tuple(sorted(labels)), self.sub(labels).id)

    def joinable(self, head: Labels) -> list[Labels]:
        around = frozenset(x for label in head for x in self.near[label])
        return [t for t in self.targets if not t & head and t & around]

    def edge(
        self,
        start: Label,
        head: Labels,
        target: Labels,
        model: CostModel,
        partitions: dict[MirId, tuple[AttrRef, ...]],
    ) -> Edge:
        store = self.targets[target]
        reachable = {
            in_store(member, store)
            for key_class in self.query.classes
            if key_class.restrict(head)
            for member in key_class.restrict(target)
        }
        return Edge(
            tail=self.state(start, head),
            head=self.state(start, head | target),
            target=store.id,
            members=tuple(sorted(target)),
            cost=model.probe(self.sub(head)),
            yields=model.probe(self.sub(head | target)),
            known=tuple(a for a in partitions[store.id] if a in reachable),
        )

    def edges(
        self, start: Label, model: CostModel, partitions: dict[MirId, tuple[AttrRef, ...]]
    ) -> list[Edge]:
        """All edges that a tuple of ``start`` may take, smaller heads first."""
        found: list[Edge] = []
        pending: dict[int, set[Labels]] = {1: {frozenset({start})}}
        for size in range(1, len(self.query.labels)):
            for head in sorted(pending.get(size, ()), key=sorted):
                targets = self.joinable(head)
                if self.reduced:
                    targets = [self._cheapest_next(head, targets, model)]
                for target in targets:
                    found.append(self.edge(start, head, target, model, partitions))
                    pending.setdefault(size + len(target), set()).add(head | target)
        return found

    def _cheapest_next(self, head: Labels, targets: list[Labels], model: CostModel) -> Labels:
        ranked = [(model.cardinality(self.sub(head | t)), sorted(t), t) for t in targets]
        return min(ranked, key=lambda r: r[:2])[2]


def _add_goals(
    scope: _Scope,
    model: CostModel,
    partitions: dict[MirId, tuple[AttrRef, ...]],
    goals: dict[Goal, tuple[Edge, ...]],
    ends: dict[Goal, tuple[State, State]],
) -> None:
    whole = frozenset(scope.query.labels)
    kept = [(s, m) for s, m in scope.targets.items() if not m.is_base]
    for start in sorted(whole):
        edges = scope.edges(start, model, partitions)
        root = scope.state(start, frozenset({start}))
        goal = Goal(False, scope.query.id, start)
        goals[goal] = tuple(edges)
        ends[goal] = (root, scope.state(start, whole))
        for labels, mir in kept:
            upkeep = Goal(True, mir.id, start)
            if start in labels and upkeep not in goals:
                goals[upkeep] = tuple(e for e in edges if labels.issuperset(e.head.labels))
                ends[upkeep] = (root, scope.state(start, labels))
