"""The optimisation problem as a graph of states, shared by all queries.

A *state* ``(r, X)`` is the partial result over the canonical sub-join ``X`` that a tuple of ``r``
started; an *edge* probes a store and leads to a larger state. Equal states of different queries are
one node, because what a step costs and finds depends on the state and the store only. Where the
tuples of ``r`` are split, each substream has states, edges and goals of its own. A *goal* is a path
that must exist: from ``(r, {r})`` to ``(r, K)`` for every label ``r`` of every query ``K`` and,
where an MIR is probed, to ``(r, M)`` for every member ``r`` of the MIR ``M``.

The paths of a goal are exactly the candidate probe orders of Algorithm 1, but states are at most as
many as connected label sets, where orders are as many as permutations of them. Decorations never
multiply: partition attributes belong to stores, and an edge only says which it knows.

Everything is an index here (a sub-join, a state, an edge), because a problem has tens of thousands
of edges and is rebuilt every epoch; within a query label sets are bit masks. Indices are given in
order of first appearance over queries sorted by id, so equal input gives equal indices.

Caps are explicit. A query with more than ``max_sets`` connected label sets gets one order per start
(cheapest next relation first) instead of the full graph; it is named in :attr:`Problem.reduced`,
and the plan says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from anabranch_contract.plans.plan import Objective
from anabranch_contract.queries.joins import AttrRef, JoinQuery, KeyClass, Label, QueryId
from anabranch_contract.queries.mirs import Mir, sub_join
from anabranch_planner.cost.model import CostModel

#: Connected label sets up to which a query's graph is built in full.
MAX_SETS = 600

#: An index into :attr:`Graph.subs`, and into the parallel lists of edges of a :class:`Graph`.
Sub = int
EdgeId = int
#: The tuples that set out: the label that they fill, and which substream of it they are.
Origin = tuple[Label, int]
#: A goal whatever problem it is listed in: (maintained MIR, name, origin).
GoalKey = tuple["Sub | None", str, Origin]


class StoresKept(Protocol):
    """The stores that there are, where none may be opened (``replan.there``)."""

    def partitions(self, mir: Mir) -> tuple[AttrRef | None, ...]:
        """The partition attributes of the copies of ``mir``'s store; none: it is not there."""

    def serves(self, query: JoinQuery, mir: Mir) -> bool:
        """Whether ``query`` may probe the store of ``mir``, an intermediate result."""

    def feeds(self, larger: Mir, mir: Mir) -> bool:
        """Whether the upkeep of ``larger`` may probe the store of ``mir``."""

    def holds(self, classes: Sequence[KeyClass], mir: Mir, origin: Origin) -> bool:
        """Whether the store of ``mir`` has the values of all tuples of ``origin``, which join by
        ``classes``.
        """


class SubJoin:
    """A canonical sub-join: what a state holds, and what a store may hold.

    Its ``Mir`` is made at the first access: the sub-joins that only
    end a query's path (there are as many as queries) never need one.
    """

    __slots__ = ("_mir", "labels", "mask", "query")

    def __init__(self, query: JoinQuery, labels: tuple[Label, ...]) -> None:
        self.query = query
        self.labels = labels
        self._mir: Mir | None = None

    @property
    def mir(self) -> Mir:
        """The sub-join as a store would name it."""
        if self._mir is None:
            self._mir = sub_join(self.query, frozenset(self.labels))
        return self._mir


@dataclass(frozen=True, slots=True)
class Goal:
    """A path that has to exist: for a query, or (``mir`` is not None) for an MIR if it is kept.

    Attributes:
        name: the query's id, or the MIR's.
        mir: the MIR that the path maintains.
        root, sink: the states that it leads from and to.
        edges: in an order in which a path only goes forward.
        limited: whether other goals may pass its states by edges that are none of its own.
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
        """The tuples that set out on it."""
        return self.start, self.substream

    @property
    def maintains(self) -> bool:
        """Whether the path keeps an MIR up to date, rather than answering a query."""
        return self.mir is not None

    @property
    def key(self) -> GoalKey:
        """The identity of the goal within its graph."""
        return self.mir, self.name, self.origin


@dataclass(slots=True)
class Graph:
    """States and edges, as parallel lists.

    Attributes:
        subs: sub-joins. ``bases``: the subset that are base relations' stores.
        start, substream, before, after, target: per edge: the label and substream of the tuple that
            set out, the sub-join before and after the step, and the store that is probed.
        tail, head: per edge: the states before and after.
        size: per edge: how many relations are joined before the step.
        cost: the cost of the step to one partition (chi = 1).
        spread: the additional cost of a broadcast.
        known: mask of the store's candidate partition attributes whose value the probing tuple
            knows: bit ``i`` stands for ``Problem.partitions[store][i]``. 0 without partitioning.
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
        """The sub-join at ``sub`` by its canonical name."""
        return self.subs[sub].mir

    def smaller_first(self, stores: Iterable[Sub]) -> list[Sub]:
        """``stores`` by how many relations they join: the upkeep of one probes none after it."""
        return sorted(stores, key=lambda store: (len(self.subs[store].labels), store))

    def members(self, edge: EdgeId) -> tuple[Label, ...]:
        """The goal's labels that the step adds, sorted."""
        covered = self.subs[self.before[edge]].labels
        return tuple(x for x in self.subs[self.after[edge]].labels if x not in covered)


@dataclass(frozen=True, slots=True)
class Problem:
    """The choices of an optimiser.

    Attributes:
        goals: query goals first, then MIR goals, smaller MIRs first.
        mirs: every MIR that may be kept -> the indices of its goals.
        partitions: candidate partition attributes per store; ``()`` if not partitioned.
        required: base stores that are kept in any case.
        inserts: cost of one copy of a store.
        reduced: queries that exceeded the cap.
        most_copies: of one store, or None.
        most_mirs: maximum number of ``mirs`` in a plan, or None; ``paid_mirs``, kept by others, do
            not count.
        memory: bytes that all copies may have together, or None; ``bytes``: of one copy.
        extra_steps, extra_copies: switching penalty of elements that the running plan lacks.
        given: whether there are only some copies of each store, and none may be added.
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
        """Whether copies of one store are distinguished: they are charged, or limited."""
        limited = self.given or self.most_copies is not None or self.memory is not None
        charged = limited or self.model.objective is not Objective.PAPER
        return self.model.partitioned and (charged or any(self.extra_copies.values()))

    def may_keep(self, stores: Collection[Sub]) -> bool:
        """Whether a plan with these stores has no more intermediate results than it may."""
        if self.most_mirs is None:
            return True
        counted = self.mirs.keys() - self.paid_mirs
        return sum(store in counted for store in stores) <= self.most_mirs

    def step_extra(self, edge: EdgeId) -> float:
        """The charge for a step that the running plan does not have."""
        return self.extra_steps.get(edge, 0.0)

    def copy_extra(self, store: Sub, attribute: AttrRef | None) -> float:
        """The charge for a copy that the running plan does not have."""
        return self.extra_copies.get((store, attribute), 0.0)

    def copy_price(self, store: Sub, attribute: AttrRef | None) -> float:
        """The price of a copy in the objective."""
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
        """Edges summed over goals: the size of the integer program."""
        return sum(len(g.edges) for g in self.goals)

    def apart(self) -> list[Problem]:
        """The problems that the queries would be alone, over the same graph."""
        mine: dict[str, list[Goal]] = {str(q): [] for q in self.queries}
        for goal in self.goals:
            if goal.mir is None:
                mine[goal.name].append(goal)
        return [self._part((query,), mine[query]) for query in self.queries]

    def part_of(self, names: Collection[str]) -> Problem:
        """The problem that the queries ``names`` would be alone, over the same graph."""
        goals = [goal for goal in self.goals if goal.mir is None and goal.name in names]
        return self._part(tuple(q for q in self.queries if q in names), goals)

    def _part(self, queries: tuple[QueryId, ...], goals: list[Goal]) -> Problem:
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


def build_problem(
    queries: Sequence[JoinQuery],
    model: CostModel,
    *,
    mir: bool = True,
    max_sets: int = MAX_SETS,
    there: StoresKept | None = None,
) -> Problem:
    """The problem of planning ``queries`` together (in order of their ids).

    Args:
        mir: whether intermediate results may be kept.
        max_sets: the cap described above.
        there: the only stores that may be probed, with the only copies. What arrives is kept in its
            stores in any case, so that costs nothing here. None: any store may be kept.
    """
    builder = Builder(model, mir=mir, max_sets=max_sets, there=there)
    builder.add(queries)
    return builder.problem()


class Builder:
    """A problem that grows: gives sub-joins, states and edges their indices, and keeps them.

    Additions never change earlier entries: an edge depends on its state and its store, a store's
    candidate partition attributes only grow, and no earlier edge knows an attribute added later
    (:func:`candidates.joining_attributes` gives all that an edge can know together with the query
    that the edge comes from).
    """

    def __init__(
        self,
        model: CostModel,
        *,
        mir: bool = True,
        max_sets: int = MAX_SETS,
        there: StoresKept | None = None,
    ) -> None:
        self.model = model
        self.there = there
        #: Whether stores may have partition attributes. Existing stores keep theirs, even in a
        #: single partition.
        self.partitioned = model.partitioned or there is not None
        self.graph = Graph()
        #: Candidate partition attributes per store, and the bit of each.
        self.partitions: dict[Sub, dict[AttrRef, int]] = {}
        self._mir = mir
        self._max_sets = max_sets
        self._scopes: dict[QueryId, _Scope] = {}
        self._query_goals: dict[QueryId, list[Goal]] = {}
        self._upkeep: dict[Sub, list[Goal]] = {}
        self._inserts: dict[Sub, float] = {}
        self._subs: dict[object, Sub] = {}
        self._states: dict[tuple[Origin, Sub], int] = {}
        self._edges: dict[tuple[int, int], EdgeId] = {}
        self._sizes: dict[int, float] = {}
        #: How many queries there are with each store, and with each partition attribute of it.
        self._users: Counter[Sub] = Counter()
        self._joined_by: Counter[tuple[Sub, AttrRef]] = Counter()

    def add(self, queries: Sequence[JoinQuery]) -> None:
        """Add ``queries`` (in order of their ids)."""
        ordered = sorted(queries, key=lambda q: q.id)
        scopes = [_Scope(self, q, mir=self._mir, max_sets=self._max_sets) for q in ordered]
        for scope in scopes:
            scope.add_edges()
        for scope in scopes:
            self._query_goals[scope.query.id] = scope.query_goals()
            self._scopes[scope.query.id] = scope
            self._users.update(set(scope.targets.values()))
            self._joined_by.update(scope.attributes)
        for scope in scopes:
            scope.add_upkeep(self._upkeep)

    def reprice(self, model: CostModel) -> None:
        """Price the same graph under another model of the same stores and time bounds.

        Problems that were built before keep their prices. Queries that are :attr:`reduced` keep
        their one order, though another may be the cheapest now.
        """
        self.model, self._sizes, self._inserts = model, {}, {}
        graph = self.graph = replace(self.graph, cost=[], spread=[])
        for e in range(len(graph.tail)):
            self._price(
                graph.tail[e],
                graph.head[e],
                (graph.start[e], graph.substream[e]),
                graph.before[e],
                graph.after[e],
                graph.target[e],
            )

    def reprice_some(self, subs: Collection[Sub]) -> tuple[dict[EdgeId, float], dict[Sub, float]]:
        """Price what concerns ``subs`` by :attr:`model`, which may be another one by now; in place,
        so problems that were built before are no longer what they were.

        Returns:
            How much less steps cost at most, and one copy of stores, where they are cheaper now.
        """
        graph, self._sizes = self.graph, {}
        before_now = {s: self._inserts.pop(s) for s in subs if s in self._inserts}
        less = {s: was - self._insert(s) for s, was in before_now.items()}
        cheaper: dict[EdgeId, float] = {}
        for e, (before, after) in enumerate(zip(graph.before, graph.after, strict=True)):
            if before in subs or after in subs:
                was = graph.cost[e] + graph.spread[e]
                origin = graph.start[e], graph.substream[e]
                graph.cost[e], graph.spread[e] = self._priced(
                    graph.tail[e], graph.head[e], origin, before, after, graph.target[e]
                )
                now = graph.cost[e] + graph.spread[e]
                if now < was:
                    cheaper[e] = was - now
        return cheaper, {s: amount for s, amount in less.items() if amount > 0}

    def drop(self, query: QueryId) -> None:
        """Forget ``query``; its part of the graph stays, unused."""
        scope = self._scopes.pop(query)
        del self._query_goals[query]
        self._users.subtract(set(scope.targets.values()))
        self._joined_by.subtract(scope.attributes)

    def has_idle_attributes(self, stores: Collection[Sub]) -> bool:
        """Whether one of ``stores`` is there for some query, and may be partitioned by an attribute
        that none joins by any more.
        """
        return any(
            self._users[store] and not self._joined_by[store, attribute]
            for store in stores
            for attribute in self.partitions.get(store, ())
        )

    def subs_of(self, query: QueryId) -> set[Sub]:
        """The sub-joins and stores of ``query``."""
        scope = self._scopes[query]
        return {*scope.subs.values(), *scope.targets.values()}

    def query_goals(self, query: QueryId) -> list[Goal]:
        """The goals of ``query``, without the goals of intermediate results."""
        return self._query_goals[query]

    def upkeep(self, mir: Sub) -> list[Goal]:
        """The goals that maintain an intermediate result."""
        return self._upkeep[mir]

    def insert_price(self, store: Sub) -> float:
        """Cost of one copy of a store."""
        return self._insert(store)

    def is_kept(self, store: Sub) -> bool:
        """Whether ``store`` is that of an intermediate result."""
        return store not in self.graph.bases

    def problem(self) -> Problem:
        """The problem of all queries that are there."""
        goals = [g for query in sorted(self._scopes) for g in self._query_goals[query]]
        stores = dict.fromkeys(s for scope in self._scopes.values() for s in scope.targets.values())
        bases = tuple(s for s in stores if s in self.graph.bases)
        mirs = {}
        for sub in self.graph.smaller_first(stores.keys() - set(bases)):
            upkeep = self._upkeep[sub]
            mirs[sub] = tuple(range(len(goals), len(goals) + len(upkeep)))
            goals += upkeep
        return Problem(
            queries=tuple(sorted(self._scopes)),
            model=self.model,
            graph=self.graph,
            goals=tuple(goals),
            mirs=mirs,
            partitions={s: tuple(self.partitions[s]) for s in (*bases, *mirs)},
            required=bases,
            inserts={s: self._insert(s) for s in (*bases, *mirs)},
            reduced=self.reduced,
            given=self.there is not None,
        )

    @property
    def reduced(self) -> tuple[QueryId, ...]:
        """Queries beyond the cap."""
        return tuple(q for q in sorted(self._scopes) if self._scopes[q].reduced)

    def _insert(self, store: Sub) -> float:
        if store not in self._inserts:
            mir = self.graph.mir(store)
            free = self.there is not None and mir.is_base
            self._inserts[store] = 0.0 if free else self.model.insert(mir)
        return self._inserts[store]

    def sub(self, key: object, query: JoinQuery, labels: tuple[Label, ...]) -> Sub:
        """The index of the sub-join that ``key`` identifies."""
        found = self._subs.get(key)
        if found is None:
            found = self._subs[key] = len(self.graph.subs)
            self.graph.subs.append(SubJoin(query, labels))
        return found

    def state(self, origin: Origin, sub: Sub) -> int:
        """The index of a state."""
        key = (origin, sub)
        found = self._states.get(key)
        if found is None:
            found = self._states[key] = self.graph.states
            self.graph.states += 1
        return found

    def edge(self, origin: Origin, before: Sub, after: Sub, target: Sub, known: int) -> EdgeId:
        """The edge of that step, new or known."""
        graph = self.graph
        tail = self.state(origin, before)
        head = self.state(origin, after)
        found = self._edges.get((tail, head))
        if found is None:
            found = self._edges[tail, head] = len(graph.cost)
            graph.start.append(origin[0])
            graph.substream.append(origin[1])
            graph.before.append(before)
            graph.after.append(after)
            graph.target.append(target)
            graph.tail.append(tail)
            graph.head.append(head)
            graph.size.append(len(graph.subs[before].labels))
            self._price(tail, head, origin, before, after, target)
            graph.known.append(known)
        return found

    def _price(
        self, tail: int, head: int, origin: Origin, before: Sub, after: Sub, target: Sub
    ) -> None:
        cost, spread = self._priced(tail, head, origin, before, after, target)
        self.graph.cost.append(cost)
        self.graph.spread.append(spread)

    def _priced(
        self, tail: int, head: int, origin: Origin, before: Sub, after: Sub, target: Sub
    ) -> tuple[float, float]:
        """The cost of an edge, and how much more it is where it is broadcast."""
        model = self.model
        sent = self._sent(tail, origin, before)
        if model.constants is None and model.on_one_host:
            # As below, without the names of the sub-joins that a path ends with.
            return sent, sent * (model.chi(broadcast=True) - 1)
        made, store = self._sent(head, origin, after), self.graph.mir(target).id
        over, joined = self.graph.mir(before), self.graph.mir(after)
        routed, spread = (
            model.price(sent, made, store, broadcast=everywhere)
            + model.hop(sent, over, joined, origin[0], broadcast=everywhere)
            for everywhere in (False, True)
        )
        return routed, spread - routed

    def _sent(self, state: int, origin: Origin, sub: Sub) -> float:
        """Tuples per unit of time that a state holds."""
        found = self._sizes.get(state)
        if found is None:
            found = self._sizes[state] = self.model.probe(self.graph.mir(sub), *origin)
        return found


class _Scope:
    """One query's share of the graph while it is being built. Bit ``i`` is the i-th label."""

    def __init__(self, builder: Builder, query: JoinQuery, *, mir: bool, max_sets: int) -> None:
        self.builder = builder
        self.query = query
        self.labels = tuple(sorted(query.labels))
        relation = {m.label: m.relation for m in query.members}
        self.relations = [relation[x] for x in self.labels]
        bit = {label: i for i, label in enumerate(self.labels)}
        #: Per key class: (its mask, its type, its members as (bit, attribute)).
        self.classes: list[tuple[int, str, list[tuple[int, AttrRef]]]] = []
        self.near = [0] * len(self.labels)
        for key_class in query.classes:
            members = [(1 << bit[m.label], m) for m in key_class.members]
            mask = 0
            for one, _ in members:
                mask |= one
            self.classes.append((mask, key_class.type, members))
            for i in range(len(self.labels)):
                if mask >> i & 1:
                    self.near[i] |= mask & ~(1 << i)
        self.whole = (1 << len(self.labels)) - 1
        sets = self._connected(max_sets)
        self.reduced = sets is None
        singles = [1 << i for i in range(len(self.labels))]
        self.sets = singles if sets is None else sets
        self.subs: dict[int, Sub] = {}
        #: Stores that may be probed: mask of labels -> the store's sub-join.
        self.targets: dict[int, Sub] = {}
        #: Stores, and attributes that the query joins them by.
        self.attributes: set[tuple[Sub, AttrRef]] = set()
        if self.whole & (self.whole - 1):
            for mask in self.sets:
                single = not mask & (mask - 1)
                if single or (mir and mask != self.whole):
                    self._add_target(mask, single=single)
        #: Per label the tuples that set out, each with (mask after, edge), smaller heads first.
        self.edges: list[dict[Origin, list[tuple[int, EdgeId]]]] = [
            {(label, n): [] for n in range(builder.model.substreams_of(label))}
            for label in self.labels
        ]

    def _connected(self, limit: int) -> list[int] | None:
        """Connected masks, smaller first; None if more than ``limit``.

        A connected set of size k + 1 always contains a connected set of size k.
        """
        level = [1 << i for i in range(len(self.labels))]
        found: list[int] = []
        while level:
            found += level
            if len(found) > limit:
                return None
            grown: set[int] = set()
            for mask in level:
                around = self.around(mask) & ~mask
                while around:
                    one = around & -around
                    around ^= one
                    grown.add(mask | one)
            level = sorted(grown)
        return found

    def around(self, mask: int) -> int:
        """The labels that share a key class with one of ``mask``."""
        found, i = 0, 0
        while mask:
            if mask & 1:
                found |= self.near[i]
            mask >>= 1
            i += 1
        return found

    def sub(self, mask: int) -> Sub:
        """The canonical sub-join over ``mask``: equal labels under equal predicates are one."""
        known = self.subs.get(mask)
        if known is None:
            labels = tuple(x for i, x in enumerate(self.labels) if mask >> i & 1)
            inside = []
            for shape, kind, members in self.classes:
                both = shape & mask
                if both & (both - 1):
                    inside.append((kind, tuple(m for one, m in members if one & mask)))
            inside.sort()
            known = self.subs[mask] = self.builder.sub((labels, tuple(inside)), self.query, labels)
        return known

    def _add_target(self, mask: int, *, single: bool) -> None:
        builder = self.builder
        if single:
            # All occurrences of a relation read the relation's one store.
            relation = self.relations[mask.bit_length() - 1]
            sub = builder.sub(relation, self.query, (self.labels[mask.bit_length() - 1],))
            builder.graph.bases.add(sub)
        else:
            sub = self.sub(mask)
        if builder.there is not None:
            copies = builder.there.partitions(builder.graph.mir(sub))
            if copies:
                self.targets[mask] = sub
                named = [c for c in copies if c is not None]
                builder.partitions[sub] = {c: 1 << bit for bit, c in enumerate(named)}
            return
        self.targets[mask] = sub
        found = builder.partitions.setdefault(sub, {})
        if builder.model.partitioned:
            for shape, _, members in self.classes:
                both = shape & mask
                if both and shape & ~mask:
                    # As in :func:`candidates.joining_attributes`.
                    inside = [m for one, m in members if one & mask]
                    for m in inside[:1] if both & (both - 1) else inside:
                        attribute = self._in_store(m, mask)
                        found.setdefault(attribute, 1 << len(found))
                        self.attributes.add((sub, attribute))

    def _in_store(self, attribute: AttrRef, mask: int) -> AttrRef:
        if mask & (mask - 1):
            return attribute
        return AttrRef(Label(self.relations[mask.bit_length() - 1]), attribute.attribute)

    def _known(self, head: int, target: int) -> int:
        bits = self.builder.partitions[self.targets[target]]
        found = 0
        for shape, _, members in self.classes:
            if shape & head and shape & target:
                for one, m in members:
                    if one & target:
                        found |= bits.get(self._in_store(m, target), 0)
        return found

    def add_edges(self) -> None:
        """All edges of the query, smaller heads first."""
        if self.reduced:
            return self._add_one_order()
        edge, partitioned = self.builder.edge, self.builder.partitioned
        subs = {mask: self.sub(mask) for mask in self.sets}
        for head in self.sets:
            around = self.around(head)
            before = subs[head]
            starts = [
                (origin, edges)
                for i, found in enumerate(self.edges)
                if head >> i & 1
                for origin, edges in found.items()
            ]
            for target, store in self.targets.items():
                if target & head or not target & around:
                    continue
                after = head | target
                known = self._known(head, target) if partitioned else 0
                for origin, edges in starts:
                    edges.append((after, edge(origin, before, subs[after], store, known)))
        return None

    def _add_one_order(self) -> None:
        """Beyond the cap: from every start the cheapest next relation first."""
        builder = self.builder
        model, graph = builder.model, builder.graph
        for i, found in enumerate(self.edges):
            head = 1 << i
            while head != self.whole:
                around = self.around(head) & ~head
                options = [t for t in self.targets if t & around]
                _, target = min((model.added(graph.mir(self.sub(head | t))), t) for t in options)
                known = self._known(head, target) if builder.partitioned else 0
                after = head | target
                for origin, edges in found.items():
                    step = builder.edge(
                        origin, self.sub(head), self.sub(after), self.targets[target], known
                    )
                    edges.append((after, step))
                head = after

    def query_goals(self) -> list[Goal]:
        """One goal per label and substream."""
        return self._goals(self.query.id, self.whole, None)

    def _goals(self, name: str, mask: int, mir: Sub | None) -> list[Goal]:
        aside, graph = self.builder.model.aside, self.builder.graph
        return [
            self._goal(name, i, origin, mask, mir)
            for i, found in enumerate(self.edges)
            if mask >> i & 1
            for origin in found
            if mir is None or not aside.any or aside.keeps_up(graph.mir(mir), *origin)
        ]

    def _goal(self, name: str, i: int, origin: Origin, mask: int, mir: Sub | None) -> Goal:
        builder = self.builder
        within = [e for after, e in self.edges[i][origin] if not after & ~mask]
        edges = within
        if builder.there is not None or builder.model.aside.any:
            target = builder.graph.target
            edges = [e for e in within if self._may_probe(mir, target[e], origin)]
        return Goal(
            name,
            origin[0],
            mir,
            builder.state(origin, self.sub(1 << i)),
            builder.state(origin, self.sub(mask)),
            tuple(edges),
            limited=len(edges) < len(within),
            substream=origin[1],
        )

    def _may_probe(self, goal: Sub | None, store: Sub, origin: Origin) -> bool:
        """Whether tuples of ``origin`` may, for a goal, the query's or an MIR's, probe a store that
        is there, or may be kept.
        """
        graph, there = self.builder.graph, self.builder.there
        if store in graph.bases:
            return True
        mir = graph.mir(store)
        if not self.builder.model.aside.may_probe(self.query.classes, mir, *origin):
            return False
        if there is None:
            return True
        may = there.serves(self.query, mir) if goal is None else there.feeds(graph.mir(goal), mir)
        return may and there.holds(self.query.classes, mir, origin)

    def add_upkeep(self, kept: dict[Sub, list[Goal]]) -> None:
        """The goals of the query's MIRs that no query before it has."""
        for mask, sub in self.targets.items():
            if mask & (mask - 1) and sub not in kept:
                name = self.builder.graph.mir(sub).id
                kept[sub] = self._goals(name, mask, sub)
