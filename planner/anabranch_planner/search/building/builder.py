"""The problem of planning queries together, and its changes from plan to plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from anabranch_contract.queries.joins import AttrRef, JoinQuery, QueryId
from anabranch_planner.cost.model import CostModel
from anabranch_planner.search.building.scopes import QueryScope
from anabranch_planner.search.building.states import GrowingGraph, StoresKept
from anabranch_planner.search.problem import Goal, PlanProblem, Sub

#: Connected label sets up to which a query's graph is built in full.
MAX_SETS = 600


def build_problem(
    queries: Sequence[JoinQuery],
    model: CostModel,
    *,
    mir: bool = True,
    max_sets: int = MAX_SETS,
    there: StoresKept | None = None,
) -> PlanProblem:
    """The problem of planning ``queries`` together (in order of their ids).

    Args:
        mir: whether intermediate results may be kept.
        max_sets: the cap (:mod:`~anabranch_planner.search.building.scopes`).
        there: the only stores that may be probed, with the only copies. What arrives is kept in its
            stores in any case, so that costs nothing here. None: any store may be kept.
    """
    builder = Builder(model, mir=mir, max_sets=max_sets, there=there)
    builder.add(queries)
    return builder.problem()


class Builder(GrowingGraph):
    """A problem, changed query by query.

    Later additions leave existing parts as they are: an edge depends on its state and its store; a
    store's candidate partition attributes only grow, and an added one is unknown to earlier edges
    (:func:`candidates.joining_attributes` gives all that an edge can know together with its query).
    """

    def __init__(
        self,
        model: CostModel,
        *,
        mir: bool = True,
        max_sets: int = MAX_SETS,
        there: StoresKept | None = None,
    ) -> None:
        super().__init__(model, there)
        self._mir = mir
        self._max_sets = max_sets
        self._scopes: dict[QueryId, QueryScope] = {}
        self._query_goals: dict[QueryId, list[Goal]] = {}
        self._upkeep: dict[Sub, list[Goal]] = {}
        #: How many queries there are with each store, and with each partition attribute of it.
        self._users: Counter[Sub] = Counter()
        self._joined_by: Counter[tuple[Sub, AttrRef]] = Counter()

    def add(self, queries: Sequence[JoinQuery]) -> None:
        """Add ``queries`` (in order of their ids)."""
        ordered = sorted(queries, key=lambda q: q.id)
        scopes = [QueryScope(self, q, mir=self._mir, max_sets=self._max_sets) for q in ordered]
        for scope in scopes:
            scope.add_edges()
        for scope in scopes:
            self._query_goals[scope.query.id] = scope.query_goals()
            self._scopes[scope.query.id] = scope
            self._users.update(set(scope.targets.values()))
            self._joined_by.update(scope.attributes)
        for scope in scopes:
            scope.add_upkeep(self._upkeep)

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

    def problem(self) -> PlanProblem:
        """The problem of all queries that are there."""
        goals = [g for query in sorted(self._scopes) for g in self._query_goals[query]]
        stores = dict.fromkeys(s for scope in self._scopes.values() for s in scope.targets.values())
        bases = tuple(s for s in stores if s in self.graph.bases)
        mirs = {}
        for sub in self.graph.smaller_first(stores.keys() - set(bases)):
            upkeep = self._upkeep[sub]
            mirs[sub] = tuple(range(len(goals), len(goals) + len(upkeep)))
            goals += upkeep
        return PlanProblem(
            queries=tuple(sorted(self._scopes)),
            model=self.model,
            graph=self.graph,
            goals=tuple(goals),
            mirs=mirs,
            partitions={s: tuple(self.partitions[s]) for s in (*bases, *mirs)},
            required=bases,
            inserts={s: self.insert_price(s) for s in (*bases, *mirs)},
            reduced=self.reduced,
            given=self.there is not None,
        )

    @property
    def reduced(self) -> tuple[QueryId, ...]:
        """Queries beyond the cap."""
        return tuple(q for q in sorted(self._scopes) if self._scopes[q].reduced)
