"""The planning graph under construction: indices and prices of sub-joins, states and edges."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from anabranch_contract.queries.joins import AttrRef, JoinQuery, KeyClass, Label
from anabranch_contract.queries.mirs import Mir
from anabranch_planner.cost.model import CostModel
from anabranch_planner.search.problem import EdgeId, Graph, Origin, Sub, SubJoin


class StoresKept(Protocol):
    """Running stores that a plan may probe if it must not open others (see ``replan.there``)."""

    def partitions(self, mir: Mir) -> tuple[AttrRef | None, ...]:
        """Partition attributes of the running copies of ``mir``'s store; empty: no copies."""

    def serves(self, query: JoinQuery, mir: Mir) -> bool:
        """Whether ``query`` may probe the store of the intermediate result ``mir``."""

    def feeds(self, larger: Mir, mir: Mir) -> bool:
        """Whether orders that maintain ``larger`` may probe the running store of ``mir``."""

    def holds(self, classes: Sequence[KeyClass], mir: Mir, origin: Origin) -> bool:
        """Whether the running store of ``mir`` has all rows that ``origin`` may match."""


class GrowingGraph:
    """Graph of the problem under construction; sub-joins, states and edges have indices."""

    def __init__(self, model: CostModel, there: StoresKept | None) -> None:
        self.model = model
        self.there = there
        #: Whether stores have partition attributes, as running stores do even with one partition.
        self.partitioned = model.partitioned or there is not None
        self.graph = Graph()
        #: Store -> candidate partition attribute -> its bit in the masks of edges.
        self.partitions: dict[Sub, dict[AttrRef, int]] = {}
        self._inserts: dict[Sub, float] = {}
        self._subs: dict[object, Sub] = {}
        self._states: dict[tuple[Origin, Sub], int] = {}
        self._edges: dict[tuple[int, int], EdgeId] = {}
        self._sizes: dict[int, float] = {}

    def sub(self, key: object, query: JoinQuery, labels: tuple[Label, ...]) -> Sub:
        """The index of the sub-join that ``key`` identifies, which is added if it is new."""
        found = self._subs.get(key)
        if found is None:
            found = self._subs[key] = len(self.graph.subs)
            self.graph.subs.append(SubJoin(query, labels))
        return found

    def state(self, origin: Origin, sub: Sub) -> int:
        """The index of the state (``origin``, ``sub``), which is added if it is new."""
        key = (origin, sub)
        found = self._states.get(key)
        if found is None:
            found = self._states[key] = self.graph.states
            self.graph.states += 1
        return found

    def edge(self, origin: Origin, before: Sub, after: Sub, target: Sub, known: int) -> EdgeId:
        """The index of the edge for a probe of ``target``, which is added if it is new."""
        graph = self.graph
        tail, head = self.state(origin, before), self.state(origin, after)
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
            graph.known.append(known)
            self._price(found)
        return found

    def _price(self, edge: EdgeId) -> None:
        cost, spread = self._priced(edge)
        self.graph.cost.append(cost)
        self.graph.spread.append(spread)

    def _priced(self, edge: EdgeId) -> tuple[float, float]:
        """Cost of an edge's probe sent to one partition, and surcharge for a broadcast."""
        model, graph = self.model, self.graph
        before, after = graph.before[edge], graph.after[edge]
        origin = graph.start[edge], graph.substream[edge]
        sent = self._sent(graph.tail[edge], origin, before)
        if model.constants is None and model.on_one_host:
            # Shortcut without the sub-joins' names: the cost is the number of tuples sent.
            return sent, sent * (model.chi(broadcast=True) - 1)
        made, store = self._sent(graph.head[edge], origin, after), graph.mir(graph.target[edge]).id
        over, joined = graph.mir(before), graph.mir(after)
        routed, spread = (
            model.price(sent, made, store, broadcast=everywhere)
            + model.hop(sent, over, joined, origin[0], broadcast=everywhere)
            for everywhere in (False, True)
        )
        return routed, spread - routed

    def _sent(self, state: int, origin: Origin, sub: Sub) -> float:
        """Number of partial results per unit of time that a state sends to one next step."""
        found = self._sizes.get(state)
        if found is None:
            found = self._sizes[state] = self.model.probe(self.graph.mir(sub), *origin)
        return found

    def insert_price(self, store: Sub) -> float:
        """Cost of keeping one copy of a store; 0 for base stores that exist in any case."""
        if store not in self._inserts:
            mir = self.graph.mir(store)
            free = self.there is not None and mir.is_base
            self._inserts[store] = 0.0 if free else self.model.insert(mir)
        return self._inserts[store]

    def is_kept(self, store: Sub) -> bool:
        """Whether ``store`` contains an intermediate result (not a base relation)."""
        return store not in self.graph.bases

    def reprice(self, model: CostModel) -> None:
        """Price this graph under another cost model with the same stores and time bounds.

        Problems built before keep their prices. Queries in :attr:`reduced` keep their single probe
        order, even if another one is cheaper now.
        """
        self.model, self._sizes, self._inserts = model, {}, {}
        graph = self.graph = replace(self.graph, cost=[], spread=[])
        for edge in range(len(graph.tail)):
            self._price(edge)

    def reprice_some(self, subs: Collection[Sub]) -> tuple[dict[EdgeId, float], dict[Sub, float]]:
        """Recompute in place the prices of edges and stores that involve ``subs``, by the current
        :attr:`model`. So the prices of earlier problems over this graph change, too.

        Returns:
            Edges (priced as broadcasts) and stores that became cheaper, with the decrease.
        """
        graph, self._sizes = self.graph, {}
        before_now = {s: self._inserts.pop(s) for s in subs if s in self._inserts}
        less = {s: was - self.insert_price(s) for s, was in before_now.items()}
        cheaper: dict[EdgeId, float] = {}
        for e, (before, after) in enumerate(zip(graph.before, graph.after, strict=True)):
            if before in subs or after in subs:
                was = graph.cost[e] + graph.spread[e]
                graph.cost[e], graph.spread[e] = self._priced(e)
                now = graph.cost[e] + graph.spread[e]
                if now < was:
                    cheaper[e] = was - now
        return cheaper, {s: amount for s, amount in less.items() if amount > 0}
