"""Costs per key value of the probe orders of a query that begin with one alias.

A frequent value of a key has its own rates, rows and selectivities
(:mod:`~anabranch_planner.cost.values`), and so its own cheapest order. Dynamic programming over the
sets of joined aliases finds the cheapest orders of all values at once:

    least(X) = min over the aliases j of X of (least(X - j) + step(X - j, j)),

The same recursion finds the rest of an order that has probed or completed an intermediate result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label, QueryId
from anabranch_contract.queries.mirs import Mir, MirId, base_mir
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.steps import SubJoins
from anabranch_planner.cost.values import Column, column_of_each, combined, joined_columns

#: Costs in CPU seconds, one entry per key value.
Costs = NDArray[np.float64]


class Starts:
    """Cache of probe orders and their costs per key value, by query and starting alias.

    Attributes:
        queries: the queries planned together.
        model: cost model without substreams.
    """

    def __init__(self, queries: Sequence[JoinQuery], model: CostModel) -> None:
        self.queries, self.model = queries, model
        self._subs = SubJoins(queries)
        self._known: dict[tuple[QueryId, AttrRef, bytes], StartOrders] = {}

    def of(self, query: JoinQuery, key: AttrRef, hashes: NDArray[np.uint64]) -> StartOrders:
        """Probe orders of ``query`` from the alias of ``key``; costs per value in ``hashes``."""
        name = query.id, key, hashes.tobytes()
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = StartOrders(query, key, hashes, self.model, self._subs)
        return found

    def sub(self, query: JoinQuery, labels: Iterable[Label]) -> Mir:
        """The sub-join of ``query`` over ``labels``, from a cache."""
        return self._subs.of(query, frozenset(labels))

    def columns(self, query: JoinQuery, key: AttrRef) -> list[Column]:
        """The column of a skewed ``key``, and all columns that ``query`` equates with it."""
        return joined_columns(self.sub(query, query.labels), key)


class StartOrders:
    """Probe orders of ``query`` from the alias of ``key`` over base stores, with their costs.

    Costs have an entry per key value in ``hashes``, and a last one for all other values.

    Attributes:
        calls: fixed cost of an order's calls, which the costs per value exclude.
        best: the cheapest order for each value, and last the cheapest for all values together.
        plain: cost of each value if all values take the cheapest order for all together.
    """

    def __init__(
        self,
        query: JoinQuery,
        key: AttrRef,
        hashes: NDArray[np.uint64],
        model: CostModel,
        subs: SubJoins | None = None,
    ) -> None:
        self._start, self._model = key.label, model
        self._grow(query)
        subs = SubJoins([query]) if subs is None else subs
        self._sent = self._rates(query, key, hashes, subs)
        stores = {m.label: base_mir(m.relation).id for m in query.members}
        others = sorted(stores.keys() - {key.label})
        self.calls = sum(model.price(0.0, 0.0, stores[label]) for label in others)
        price = {label: _prices(model, stores[label]) for label in others}
        before, after = np.array(list(self._steps)).T
        probe, match = np.array([price[label] for label in self._labels]).T[..., None]
        self._costs = probe * self._sent[before] + match * self._sent[after]
        self._least = self._grown({0: np.zeros(len(hashes) + 2)})
        self.plain = self._least[len(self._sets) - 1][:-1]
        self.best = self._read(len(hashes) + 2)

    def _grow(self, query: JoinQuery) -> None:
        """Find the connected sets of aliases for probe orders, smaller first, and steps between."""
        near: dict[Label, set[Label]] = defaultdict(set)
        for key_class in query.classes:
            labels = {member.label for member in key_class.members}
            for label in labels:
                near[label] |= labels
        self._sets = [frozenset({self._start})]
        self._at = {self._sets[0]: 0}
        #: (set of aliases before, set after) -> number of the step between them.
        self._steps: dict[tuple[int, int], int] = {}
        #: Step -> the alias that it adds.
        self._labels: list[Label] = []
        #: Set of aliases -> the sets with one alias less from which a step leads to it.
        self._before: list[list[int]] = [[]]
        for before, head in enumerate(self._sets):
            for label in sorted(set().union(*(near[one] for one in head)) - head):
                after = self._at.setdefault(head | {label}, len(self._sets))
                if after == len(self._sets):
                    self._sets.append(head | {label})
                    self._before.append([])
                self._before[after].append(before)
                self._steps[before, after] = len(self._labels)
                self._labels.append(label)

    def _rates(
        self, query: JoinQuery, key: AttrRef, hashes: NDArray[np.uint64], subs: SubJoins
    ) -> Costs:
        """Partial results per unit of time over each set of aliases: per key value, then of all
        other values, and last of all values together; without NULL keys, which never match."""
        values, columns = self._model.values, column_of_each(subs.of(query, self._sets[-1]), key)
        shares = {
            label: values.shares_of(column, hashes, arriving=label == key.label)
            for label, column in columns.items()
        }
        found = np.empty((len(self._sets), len(hashes) + 2))
        for row, labels in zip(found, self._sets, strict=True):
            joined = [label for label in columns if label in labels]
            weights = combined([shares[label] for label in joined])
            nulls = values.nulls([columns[label] for label in joined], first_arrives=True)
            sent = self._model.probe(subs.of(query, labels), key.label)
            row[:-1] = sent / max(float(weights.sum()) + nulls, 1e-300) * weights
        found[:, -1] = found[:, :-1].sum(axis=1)
        return found

    def cost(self, order: Sequence[Label]) -> Costs:
        """Cost of each key value if its tuples take the probe order ``order``."""
        sets = [self._at[frozenset(order[:size])] for size in range(1, len(order) + 1)]
        steps = [self._steps[step] for step in pairwise(sets)]
        found: Costs = self._costs[steps, :-1].sum(axis=0)
        return found

    def least(self, through: Mir) -> Costs:
        """Least cost of each key value if orders may also probe the stored sub-join ``through``."""
        members = frozenset(through.members)
        probe, match = _prices(self._model, through.id)
        probed = {}
        for head, least in self._least.items():
            after = self._at.get(self._sets[head] | members)
            if after is not None and members.isdisjoint(self._sets[head]):
                probed[after] = least + probe * self._sent[head] + match * self._sent[after]
        return np.minimum(self.plain, self._to_the_end(probed))

    def upkeep(self, mir: Mir) -> Costs:
        """Additional cost per key value if tuples of the starting alias also maintain ``mir``: as
        part of an order that passes through its sub-join, or by a separate order if that is
        cheaper."""
        inside = self._at[frozenset(mir.members)]
        own = self._least[inside]
        return np.minimum(own[:-1], self._to_the_end({inside: own}) - self.plain)

    def _to_the_end(self, known: dict[int, Costs]) -> Costs:
        return self._grown(known)[len(self._sets) - 1][:-1]

    def _grown(self, known: dict[int, Costs]) -> dict[int, Costs]:
        """Set of aliases -> the least cost to reach it, if orders continue from the sets ``known``
        (set -> cost)."""
        for after, heads in enumerate(self._before):
            for before in heads:
                if before in known:
                    cost = known[before] + self._costs[self._steps[before, after]]
                    known[after] = np.minimum(known[after], cost) if after in known else cost
        return known

    def _read(self, values: int) -> list[tuple[Label, ...]]:
        """The cheapest probe order of each key value, traced back from the set of all aliases."""
        found: list[tuple[Label, ...]] = [()] * values
        pending: list[tuple[int, NDArray[np.int64], tuple[Label, ...]]] = [
            (len(self._sets) - 1, np.arange(values), ())
        ]
        while pending:
            after, of, tail = pending.pop()
            if not after:
                for value in of.tolist():
                    found[value] = (self._start, *tail)
                continue
            steps = [(before, self._steps[before, after]) for before in self._before[after]]
            costs = [self._least[before] + self._costs[step] for before, step in steps]
            cheapest = np.array(costs).argmin(axis=0)[of]
            for number, (before, step) in enumerate(steps):
                some = of[cheapest == number]
                if len(some):
                    pending.append((before, some, (self._labels[step], *tail)))
        return found


def _prices(model: CostModel, store: MirId) -> tuple[float, float]:
    """Cost per tuple that probes ``store``, and cost per match."""
    call = model.price(0.0, 0.0, store)
    return model.price(1.0, 0.0, store) - call, model.price(0.0, 1.0, store) - call
