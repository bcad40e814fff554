"""The optimisation problem as a graph of states (partial results), shared by all queries.

A *state* ``(r, X)`` is the partial result over the canonical sub-join ``X`` that a tuple of ``r``
started; an *edge* probes a store and leads to a larger state. Equal states of different queries
are one node, because a step's cost and matches depend only on the state and the store. If the
tuples of ``r`` are split into substreams, each substream has states, edges and goals of its own. A
*goal* is a path that must exist: from ``(r, {r})`` to ``(r, K)`` for every alias ``r`` of every
query ``K`` and, for a probed intermediate result (MIR) ``M``, to ``(r, M)`` for its members ``r``.

The paths of a goal are exactly the candidate probe orders of Algorithm 1. But there are at most as
many states as connected alias sets, while there are as many orders as permutations. Partition
attributes do not multiply edges: an edge records the attributes that its probing tuples have.

Sub-joins, states and edges are integer indices here, because a problem has tens of thousands of
edges and is rebuilt every epoch; within a query, sets of aliases are bit masks. Indices are
assigned in order of first appearance over queries sorted by id, so equal input gives equal indices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from anabranch_contract.plans.plan import Objective
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label, QueryId
from anabranch_contract.queries.mirs import Mir, sub_join
from anabranch_planner.cost.model import CostModel

#: Index of a sub-join in :attr:`Graph.subs`, and index of an edge in the lists of :class:`Graph`.
Sub = int
EdgeId = int
#: The tuples that begin a path of the graph: their alias, and the index of their substream.
Origin = tuple[Label, int]
#: Identity of a goal in any problem over its graph: (maintained intermediate result, name, origin).
GoalKey = tuple["Sub | None", str, Origin]


class SubJoin:
    """A canonical sub-join: the content of a partial result or of a store.

    Its ``Mir`` (materializable intermediate result) is made at first access: sub-joins that only
    end a query's path (one per query) never need one.
    """

    __slots__ = ("_mir", "labels", "mask", "query")

    def __init__(self, query: JoinQuery, labels: tuple[Label, ...]) -> None:
        self.query = query
        self.labels = labels
        self._mir: Mir | None = None

    @property
    def mir(self) -> Mir:
        """The sub-join under the canonical name that its store has."""
        if self._mir is None:
            self._mir = sub_join(self.query, frozenset(self.labels))
        return self._mir


@dataclass(frozen=True, slots=True)
class Goal:
    """A path (probe order) that must exist: for a query, or for a kept intermediate result.

    Attributes:
        name: id of the query or of the intermediate result.
        mir: the intermediate result that the path maintains; None: it answers a query.
        root, sink: the first and last state of the path.
        edges: candidate edges, sorted so that every path takes them in this order.
        limited: whether there are edges between its states that only other goals may use.
    """

    name: str
    start: Label
    mir: Sub | None
    root: int
    sink: int
    edges: tuple[EdgeId, ...]
    limited: bool = False
    substream: int = 0

    @property
    def origin(self) -> Origin:
        """The arriving tuples that begin the path: alias and substream."""
        return self.start, self.substream

    @property
    def maintains(self) -> bool:
        """Whether the path maintains an intermediate result instead of answering a query."""
        return self.mir is not None

    @property
    def key(self) -> GoalKey:
        """Identity of the goal within its graph."""
        return self.mir, self.name, self.origin


@dataclass(slots=True)
class Graph:
    """The graph of states: attributes of its sub-joins and edges, as parallel lists.

    Attributes:
        subs: sub-joins.
        bases: the subset of sub-joins that are base relations.
        start, substream, before, after, target: per edge: the alias and substream of the tuple that
            began the path, the sub-join before and after the step, and the probed store.
        tail, head: per edge: the states before and after the step.
        size: per edge: number of relations joined before the step.
        cost: per edge: cost of the step if it is sent to one partition (chi = 1).
        spread: per edge: the additional cost of a broadcast.
        known: per edge: mask of the store's candidate partition attributes whose value the probing
            tuple has. Bit ``i`` is ``partitions[store][i]`` of the problem; 0 if there are none.
        states: number of states.
    """

    subs: list[SubJoin] = field(default_factory=list)
    bases: set[Sub] = field(default_factory=set)
    start: list[Label] = field(default_factory=list)
    substream: list[int] = field(default_factory=list)
    before: list[Sub] = field(default_factory=list)
    after: list[Sub] = field(default_factory=list)
    target: list[Sub] = field(default_factory=list)
    tail: list[int] = field(default_factory=list)
    head: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    spread: list[float] = field(default_factory=list)
    known: list[int] = field(default_factory=list)
    states: int = 0

    def mir(self, sub: Sub) -> Mir:
        """The sub-join with the index ``sub``, under its canonical name."""
        return self.subs[sub].mir

    def smaller_first(self, stores: Iterable[Sub]) -> list[Sub]:
        """``stores`` by number of joined relations, each after the stores that maintain it."""
        return sorted(stores, key=lambda store: (len(self.subs[store].labels), store))

    def members(self, edge: EdgeId) -> tuple[Label, ...]:
        """Aliases of the query that the step ``edge`` adds, sorted."""
        covered = self.subs[self.before[edge]].labels
        return tuple(x for x in self.subs[self.after[edge]].labels if x not in covered)


@dataclass(frozen=True, slots=True)
class PlanProblem:
    """The planning problem: a graph with goals, and the constraints and charges of its plans.

    Attributes:
        goals: goals of queries, then of intermediate results, smaller ones first.
        mirs: every intermediate result that may be stored -> the indices of its goals.
        partitions: candidate partition attributes per store; ``()`` if not partitioned.
        required: base stores, which every plan stores.
        inserts: cost of one copy of a store.
        reduced: queries that exceeded the cap on connected alias sets.
        most_copies: maximum number of copies per store, or None.
        most_mirs: maximum number of ``mirs`` in a plan, or None; ``paid_mirs``, kept by queries
            outside the problem, do not count.
        memory: maximum bytes of all copies together, or None. ``bytes``: size of one copy.
        extra_steps, extra_copies: switching penalty of each element that the running plan lacks.
        given: whether a plan may only use the running store copies, and add none.
    """

    queries: tuple[QueryId, ...]
    model: CostModel
    graph: Graph
    goals: tuple[Goal, ...]
    mirs: dict[Sub, tuple[int, ...]]
    partitions: dict[Sub, tuple[AttrRef, ...]]
    required: tuple[Sub, ...]
    inserts: dict[Sub, float]
    reduced: tuple[QueryId, ...] = ()
    most_copies: int | None = None
    most_mirs: int | None = None
    paid_mirs: frozenset[Sub] = frozenset()
    memory: float | None = None
    bytes: dict[Sub, float] = field(default_factory=dict)
    extra_steps: dict[EdgeId, float] = field(default_factory=dict)
    extra_copies: dict[tuple[Sub, AttrRef | None], float] = field(default_factory=dict)
    given: bool = False

    @property
    def charged(self) -> bool:
        """Whether store copies have to be chosen, because they cost something or are limited."""
        limited = self.given or self.most_copies is not None or self.memory is not None
        charged = limited or self.model.objective is not Objective.PAPER
        return self.model.partitioned and (charged or any(self.extra_copies.values()))

    def may_keep(self, stores: Collection[Sub]) -> bool:
        """Whether a plan with ``stores`` respects the maximum number of intermediate results."""
        if self.most_mirs is None:
            return True
        counted = self.mirs.keys() - self.paid_mirs
        return sum(store in counted for store in stores) <= self.most_mirs

    def step_extra(self, edge: EdgeId) -> float:
        """Switching penalty of a step that the running plan lacks; 0 for a running step."""
        return self.extra_steps.get(edge, 0.0)

    def copy_extra(self, store: Sub, attribute: AttrRef | None) -> float:
        """Switching penalty of a copy that the running plan lacks; 0 for a running copy."""
        return self.extra_copies.get((store, attribute), 0.0)

    def copy_price(self, store: Sub, attribute: AttrRef | None) -> float:
        """Cost of a store copy, including the switching penalty."""
        return self.inserts[store] + self.copy_extra(store, attribute)

    @property
    def candidates(self) -> int:
        """The number of (undecorated) candidate probe orders of all goals."""
        return sum(self.candidates_of(goal) for goal in self.goals)

    def candidates_of(self, goal: Goal) -> int:
        """The number of (undecorated) candidate probe orders of one goal."""
        graph, paths = self.graph, {goal.root: 1}
        for e in goal.edges:
            head = graph.head[e]
            paths[head] = paths.get(head, 0) + paths[graph.tail[e]]
        return paths[goal.sink]

    @property
    def flows(self) -> int:
        """Number of flow variables (edges summed over goals): the size of the integer program."""
        return sum(len(g.edges) for g in self.goals)

    def apart(self) -> list[PlanProblem]:
        """Each query's own planning problem, over the same graph of states."""
        mine: dict[str, list[Goal]] = {str(q): [] for q in self.queries}
        for goal in self.goals:
            if goal.mir is None:
                mine[goal.name].append(goal)
        return [self._part((query,), mine[query]) for query in self.queries]

    def part_of(self, names: Collection[str]) -> PlanProblem:
        """The planning problem of the queries ``names`` only, over the same graph of states."""
        goals = [goal for goal in self.goals if goal.mir is None and goal.name in names]
        return self._part(tuple(q for q in self.queries if q in names), goals)

    def _part(self, queries: tuple[QueryId, ...], goals: list[Goal]) -> PlanProblem:
        target = self.graph.target
        probed = dict.fromkeys(target[e] for goal in goals for e in goal.edges)
        mirs = {}
        for store in sorted(probed):
            if store in self.mirs:
                upkeep = [self.goals[g] for g in self.mirs[store]]
                mirs[store] = tuple(range(len(goals), len(goals) + len(upkeep)))
                goals = goals + upkeep
        required = tuple(s for s in probed if s not in mirs)
        stores = (*required, *mirs)
        return replace(
            self,
            queries=queries,
            goals=tuple(goals),
            mirs=mirs,
            partitions={s: self.partitions[s] for s in stores},
            required=required,
            inserts={s: self.inserts[s] for s in stores},
            reduced=tuple(q for q in self.reduced if q in queries),
        )
