"""Which tuples of a start are told apart: values whose cheapest orders differ (PMJoin, section 4).

For a key attribute of a start, every frequent value has its own cheapest orders: one per query,
over the relations' stores, by its own rates, rows and selectivities (:mod:`~..cost.values`).
Values with equal orders are of one kind. Of these kinds at most so many are chosen that all values
together cost least by the orders of the nearest, the calls of each further one included: exactly,
among all selections. A start is told apart by the attribute that saves most, if that is worth it.

The integer program then chooses the orders of the substreams, shared ones and those over
intermediate results among them.

A start that is told apart already stays as it is unless another way saves :data:`WORTH` more, so
values do not move to and fro with the errors of their shares.

Caps: queries of more than :data:`MOST_LABELS` labels, starts beyond the :data:`MOST_STARTS` that
send most, kinds beyond the :data:`MOST_KINDS` of most cost: they take the orders of other values. A
start's choice is made for :data:`MOST_QUERIES` of its queries. Starts that save most are told apart
first, until the orders to choose are half as many again, or :data:`MOST_MORE` more.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.queries.joins import AttrRef
from anabranch_contract.queries.mirs import base_mir, join_keys, sub_join
from anabranch_planner.cost.values import joined_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from anabranch_contract.queries.joins import JoinQuery, Label
    from anabranch_contract.queries.mirs import Mir, MirId
    from anabranch_planner.cost.model import CostModel

    Costs = NDArray[np.float64]
    #: The labels in the order in which they are probed, per query.
    Orders = tuple[tuple[Label, ...], ...]

MOST_LABELS = 8
MOST_STARTS = 16
MOST_KINDS = 16
MOST_QUERIES = 8
MOST_MORE = 64
#: Share of a start's cost that telling its tuples apart has to save.
WORTH = 0.02


@dataclass(frozen=True, slots=True)
class Choice:
    """How a start is told apart, and what that saves.

    Attributes:
        before, after: cost of the start's orders per unit of time, all alike and told apart.
    """

    function: Substreams
    before: float
    after: float


def choose(
    queries: Sequence[JoinQuery],
    model: CostModel,
    most: int,
    earlier: Iterable[Substreams] = (),
) -> tuple[Choice, ...]:
    """The starts that are told apart into two to ``most`` substreams, sorted.

    Args:
        queries: those that are planned together.
        model: of all their tuples; it charges calls only if it has prices in seconds.
        earlier: how tuples are told apart now.
    """
    if most < 2:
        return ()
    kept = {
        (one.start, one.attribute): one for one in earlier if one.count <= most and not one.aside
    }
    found = []
    for start, using in _starts(queries, model):
        options = []
        considered = sorted(using, key=lambda q: (-len(q.labels), q.id))[:MOST_QUERIES]
        for attribute, kind in _attributes(start, considered, model):
            before = kept.get((start, attribute))
            choice = _divided(start, attribute, kind, considered, model, most, before)
            if choice is not None:
                stays = choice.function == before
                gain = choice.before - choice.after + (WORTH * choice.before if stays else 0.0)
                options.append((gain, choice))
        if options:
            best = max(options, key=lambda option: option[0])
            found.append((*best, len(using)))
    left = max(sum(len(query.labels) for query in queries) // 2, MOST_MORE)
    chosen = []
    for _, choice, goals in sorted(found, key=lambda f: (-f[0], f[1].function)):
        more = (choice.function.count - 1) * goals
        if more <= left:
            left -= more
            chosen.append(choice)
    return tuple(sorted(chosen, key=lambda c: c.function))


def _starts(
    queries: Sequence[JoinQuery], model: CostModel
) -> Iterable[tuple[Label, list[JoinQuery]]]:
    """Starts with a choice of orders, and the queries that have it; what sends most first."""
    using: dict[Label, list[JoinQuery]] = defaultdict(list)
    for query in queries:
        if 2 < len(query.labels) <= MOST_LABELS:
            for label in query.labels:
                using[label].append(query)

    def rank(label: Label) -> tuple[float, Label]:
        first = using[label][0]
        sent = model.probe(sub_join(first, frozenset({label})), label)
        return -sent * len(using[label]), label

    return [(label, using[label]) for label in sorted(using, key=rank)[:MOST_STARTS]]


def _attributes(
    start: Label, queries: Sequence[JoinQuery], model: CostModel
) -> list[tuple[str, str]]:
    """(attribute, key type) of ``start`` by which some query joins what has frequent values."""
    found = set()
    for query in queries:
        whole = sub_join(query, frozenset(query.labels))
        for key_class in query.classes:
            for member in key_class.members:
                if member.label == start:
                    columns = joined_columns(whole, member)
                    if any(map(model.values.are_known, columns)):
                        found.add((member.attribute, key_class.type))
    return sorted(found)


def _divided(
    start: Label,
    attribute: str,
    kind: str,
    queries: Sequence[JoinQuery],
    model: CostModel,
    most: int,
    earlier: Substreams | None,
) -> Choice | None:
    """The best way to tell ``start`` apart by ``attribute``; None: it is not worth it.

    Args:
        earlier: the way that is in use, by this attribute.
    """
    key = AttrRef(start, attribute)
    columns = [c for q in queries for c in joined_columns(sub_join(q, frozenset(q.labels)), key)]
    hashes = model.values.frequent(columns)
    goals = [Goal(query, key, hashes, model) for query in queries]
    # Those of each value, and those that are the cheapest for all together.
    orders: list[Orders] = sorted(set(zip(*(goal.best for goal in goals), strict=True)))
    prices = np.array(
        [sum(goal.cost(order) for goal, order in zip(goals, one, strict=True)) for one in orders]
    )
    calls = sum(goal.calls for goal in goals)
    chosen, after = selected(prices, calls, most)
    before = float(prices.sum(axis=1).min())
    if earlier is not None:
        stays = _cost(earlier, prices, hashes, calls)
        if stays < before and stays <= after + WORTH * before:
            return Choice(earlier, before, stays)
    if len(chosen) < 2 or before - after < WORTH * before:
        return None
    nearest = prices[list(chosen)].argmin(axis=0)
    # All other values are the first substream.
    groups = [
        tuple(int(hashes[v]) for v in np.flatnonzero(nearest[:-1] == number))
        for number in range(len(chosen))
        if number != nearest[-1]
    ]
    found = tuple(sorted(g for g in groups if g))
    if not found:
        return None
    arriving = model.values.weights(columns[:1], hashes, first_arrives=True)
    shares = [round(float(arriving[:-1][np.isin(hashes, group)].sum()), 6) for group in found]
    others = round(max(1.0 - sum(shares), 0.0), 6)
    function = Substreams(start, attribute, kind, found, shares=(others, *shares))
    return Choice(function, before, after)


def _cost(function: Substreams, prices: Costs, hashes: NDArray[np.uint64], calls: float) -> float:
    """What the start costs where ``function`` tells its tuples apart, each kind by its best orders.

    Args:
        prices: kinds of orders x values; last all other values than ``hashes``.
    """
    of = np.zeros(len(hashes) + 1, np.int64)
    for number, group in enumerate(function.groups, 1):
        of[:-1][np.isin(hashes, np.array(group, np.uint64))] = number
    parts = (prices[:, of == number] for number in range(function.count))
    return float(sum(part.sum(axis=1).min() for part in parts)) + calls * (function.count - 1)


def selected(prices: Costs, calls: float, most: int) -> tuple[tuple[int, ...], float]:
    """The rows, at most ``most``, whose least entries per column have the least sum, with ``calls``
    for each row beyond the first.

    Args:
        prices: kinds x values.

    >>> selected(np.array([[1.0, 9.0], [9.0, 1.0], [4.0, 4.0]]), 0.5, 2)
    ((0, 1), 2.5)
    >>> selected(np.array([[1.0, 9.0], [9.0, 1.0], [4.0, 4.0]]), 7.0, 2)
    ((2,), 8.0)
    """
    kept = sorted(range(len(prices)), key=lambda row: (prices[row].sum(), row))
    if len(kept) > MOST_KINDS:
        nearest = prices.argmin(axis=0)
        gain = [float(prices[kept[0]][nearest == row].sum()) for row in range(len(prices))]
        first, *others = kept
        kept = [first, *sorted(others, key=lambda row: (-gain[row], row))[: MOST_KINDS - 1]]
    best: tuple[tuple[int, ...], float] = ((kept[0],), float(prices[kept[0]].sum()))
    for count in range(2, min(most, len(kept)) + 1):
        for rows in combinations(sorted(kept), count):
            total = float(prices[list(rows)].min(axis=0).sum()) + calls * (count - 1)
            if total < best[1]:
                best = rows, total
    return best


def _prices(model: CostModel, store: MirId) -> tuple[float, float]:
    """What a tuple costs that probes ``store``, and one that is found there."""
    call = model.price(0.0, 0.0, store)
    return model.price(1.0, 0.0, store) - call, model.price(0.0, 1.0, store) - call


class Goal:
    """The orders of one query from one start, value by value; the last value is all others.

    Attributes:
        best: of each value the cheapest order, and last that of all together.
        calls: what the calls of its steps cost.
    """

    def __init__(
        self, query: JoinQuery, key: AttrRef, hashes: NDArray[np.uint64], model: CostModel
    ) -> None:
        self._query, self._key, self._hashes, self._model = query, key, hashes, model
        self._sent: dict[frozenset[Label], Costs] = {}
        self._joined: dict[tuple[frozenset[Label], frozenset[Label]], bool] = {}
        relation_of = {m.label: m.relation for m in query.members}
        #: Label -> what a tuple costs that probes its store, and one that is found.
        self._prices = {}
        self.calls = 0.0
        for label in query.labels:
            store = base_mir(relation_of[label]).id
            self._prices[label] = _prices(model, store)
            self.calls += model.price(0.0, 0.0, store) if label != key.label else 0.0
        self.best = self._cheapest()

    def cost(self, order: Sequence[Label]) -> Costs:
        """What each value costs by ``order``, calls aside."""
        total = np.zeros(len(self._hashes) + 1)
        for at in range(1, len(order)):
            total += self._step(frozenset(order[:at]), order[at])
        return total

    def least(self, through: Mir | None = None) -> Costs:
        """What each value costs by its cheapest order, calls aside.

        Args:
            through: an intermediate result that may be probed, besides the stores of relations.
        """
        start = {frozenset({self._key.label}): np.zeros(len(self._hashes) + 1)}
        return self._grown(start, frozenset(self._query.labels), through)

    @cached_property
    def plain(self) -> Costs:
        """What each value costs by its cheapest order over the stores of relations."""
        return self.least()

    def upkeep(self, mir: Mir) -> Costs:
        """What each value costs more where the start, a member of ``mir``, also completes that:
        by the cheaper of one order that goes through it, and of an order of its own.
        """
        start = {frozenset({self._key.label}): np.zeros(len(self._hashes) + 1)}
        inside, whole = frozenset(mir.members), frozenset(self._query.labels)
        own = self._grown(start, inside)
        return np.minimum(own, self._grown({inside: own}, whole) - self.plain)

    def _grown(
        self,
        least: dict[frozenset[Label], Costs],
        whole: frozenset[Label],
        through: Mir | None = None,
    ) -> Costs:
        """The least costs of ``whole``, from those of the sets that there are."""
        prices = {frozenset({label}): self._prices[label] for label in whole}
        if through is not None:
            prices[frozenset(through.members)] = _prices(self._model, through.id)
        for size in range(1, len(whole)):
            for head in [one for one in least if len(one) == size]:
                for target, (probe, match) in prices.items():
                    if head & target or not self._joins(head, target):
                        continue
                    after = head | target
                    cost = least[head] + probe * self._of(head) + match * self._of(after)
                    known = least.get(after)
                    least[after] = cost if known is None else np.minimum(known, cost)
        return least[whole]

    def _joins(self, head: frozenset[Label], target: frozenset[Label]) -> bool:
        found = self._joined.get((head, target))
        if found is None:
            found = bool(join_keys(self._query.classes, head, target))
            self._joined[head, target] = found
        return found

    def _step(self, head: frozenset[Label], label: Label) -> Costs:
        probe, match = self._prices[label]
        return probe * self._of(head) + match * self._of(head | {label})

    def _of(self, labels: frozenset[Label]) -> Costs:
        """Tuples per unit of time over ``labels``, value by value."""
        found = self._sent.get(labels)
        if found is None:
            mir = sub_join(self._query, labels)
            columns = joined_columns(mir, self._key)
            weights = self._model.values.weights(columns, self._hashes, first_arrives=True)
            sent = self._model.probe(mir, self._key.label)
            found = self._sent[labels] = sent * weights / max(float(weights.sum()), 1e-300)
        return found

    def _cheapest(self) -> list[tuple[Label, ...]]:
        """Dynamic programming over the sets of labels that have been joined."""
        start, labels = self._key.label, sorted(self._query.labels)
        values = len(self._hashes) + 2
        level: dict[frozenset[Label], Costs] = {frozenset({start}): np.zeros(values)}
        #: Set -> of each value the number of the label that came last.
        last: dict[frozenset[Label], NDArray[np.int64]] = {}
        for _ in labels[1:]:
            grown: dict[frozenset[Label], Costs] = {}
            for head, cost in level.items():
                for number, label in enumerate(labels):
                    one = frozenset({label})
                    if label in head or not self._joins(head, one):
                        continue
                    step, reached = self._step(head, label), head | one
                    total = cost + np.append(step, step.sum())
                    if reached not in grown:
                        grown[reached] = total
                        last[reached] = np.full(values, number)
                    else:
                        better = total < grown[reached]
                        grown[reached] = np.where(better, total, grown[reached])
                        last[reached] = np.where(better, number, last[reached])
            level = grown
        return self._read(labels, last, values)

    def _read(
        self,
        labels: Sequence[Label],
        last: Mapping[frozenset[Label], NDArray[np.int64]],
        values: int,
    ) -> list[tuple[Label, ...]]:
        """The order of each value, from its last label to its first; those alike are read once."""
        found: list[tuple[Label, ...]] = [()] * values
        pending: list[tuple[frozenset[Label], NDArray[np.int64], tuple[Label, ...]]] = [
            (frozenset(labels), np.arange(values), ())
        ]
        while pending:
            covered, of, tail = pending.pop()
            if len(covered) == 1:
                for value in of.tolist():
                    found[value] = (self._key.label, *tail)
                continue
            numbers = last[covered][of]
            for number in np.unique(numbers).tolist():
                label = labels[number]
                pending.append((covered - {label}, of[numbers == number], (label, *tail)))
        return found
