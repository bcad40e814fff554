"""Builder of the joint planning problem, updated as queries are added and dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from anabranch_contract.queries.joins import AttrRef, JoinQuery, QueryId
from anabranch_planner.cost.model import CostModel
from anabranch_planner.search.building.scopes import QueryScope
from anabranch_planner.search.building.states import GrowingGraph, StoresKept
from anabranch_planner.search.problem import Goal, PlanProblem, Sub

#: Maximum number of connected alias sets of a query whose graph is built in full.
MAX_SETS = 600


def build_problem(
    queries: Sequence[JoinQuery],
    model: CostModel,
    *,
    mir: bool = True,
    there: StoresKept | None = None,
) -> PlanProblem:
    """The problem of planning ``queries`` together (sorted by id).

    Args:
        mir: whether intermediate results may be kept.
        there: the running stores and copies, if a plan may probe no others. Copies of base stores
            then remain in any case, so inserts into them cost nothing. None: any store.
    """
    builder = Builder(model, mir=mir, there=there)
    builder.add(queries)
    return builder.problem()


class Builder(GrowingGraph):
    """Graph of the planning problem under construction; queries can be added and dropped.

    Additions do not change existing edges. An edge depends only on its state and store. Candidate
    partition attributes of a store may be added, but the tuples of existing edges do not have an
    added attribute: the edge's own query contributes every attribute that its tuples can have
    (:func:`candidates.joining_attributes`).
    """

    def __init__(
        self, model: CostModel, *, mir: bool = True, there: StoresKept | None = None
    ) -> None:
        super().__init__(model, there)
        self._mir = mir
        self._scopes: dict[QueryId, QueryScope] = {}
        self._query_goals: dict[QueryId, list[Goal]] = {}
        self._upkeep: dict[Sub, list[Goal]] = {}
        #: Number of queries that use each store, and each of its partition attributes.
        self._users: Counter[Sub] = Counter()
        self._joined_by: Counter[tuple[Sub, AttrRef]] = Counter()
        self._changes = 0

    @property
    def built_at_once(self) -> bool:
        """Whether all queries were added together, and none was dropped."""
        return self._changes == 1

    def add(self, queries: Sequence[JoinQuery]) -> None:
        """Add ``queries`` (sorted by id) to the planning problem."""
        self._changes += 1
        ordered = sorted(queries, key=lambda q: q.id)
        scopes = [QueryScope(self, q, mir=self._mir, max_sets=MAX_SETS) for q in ordered]
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
        """Remove ``query`` from the problem; its states and edges stay in the graph, unused."""
        self._changes += 1
        scope = self._scopes.pop(query)
        del self._query_goals[query]
        self._users.subtract(set(scope.targets.values()))
        self._joined_by.subtract(scope.attributes)

    def has_idle_attributes(self, stores: Collection[Sub]) -> bool:
        """Whether a store in ``stores`` that queries use has a candidate partition attribute by
        which no query joins any more."""
        return any(
            self._users[store] and not self._joined_by[store, attribute]
            for store in stores
            for attribute in self.partitions.get(store, ())
        )

    def subs_of(self, query: QueryId) -> set[Sub]:
        """Indices of the sub-joins and stores of ``query`` in the graph."""
        scope = self._scopes[query]
        return {*scope.subs.values(), *scope.targets.values()}

    def bases_of(self, queries: Iterable[QueryId]) -> set[Sub]:
        """The base stores that every plan of ``queries`` has."""
        found = (self._scopes[query].targets.values() for query in queries)
        return {store for stores in found for store in stores} & self.graph.bases

    def query_goals(self, query: QueryId) -> list[Goal]:
        """The goals that answer the query: one per alias and substream."""
        return self._query_goals[query]

    def upkeep(self, mir: Sub) -> list[Goal]:
        """The goals that maintain the intermediate result ``mir``: one per member and substream."""
        return self._upkeep[mir]

    def problem(self) -> PlanProblem:
        """The planning problem of all queries that have been added and not dropped."""
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
        """Queries with only one probe order per alias, since they exceed the cap on alias sets."""
        return tuple(q for q in sorted(self._scopes) if self._scopes[q].reduced)
