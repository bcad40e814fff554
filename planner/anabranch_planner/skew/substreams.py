"""Split of a relation's tuples by key value, with probe orders per group (PMJoin, section 4).

A *start* is an alias whose arriving tuples begin probe orders. Every frequent value of its key has
its own cheapest orders: one per query, over base stores, by its own rates, rows and selectivities
(:mod:`~..cost.values`). Values with equal orders form a group. At most ``most`` groups of orders
are chosen so that the total cost is least: each value uses the cheapest chosen group, and each
further group costs additional calls. The choice is optimal among all selections. A start is split
by the attribute that saves most, if it saves at least :data:`WORTH`.

The integer program then chooses the probe orders of the substreams, which may share steps or use
intermediate results.

A split start keeps its substreams unless another split saves :data:`WORTH` more, so that errors of
the estimated shares do not move values back and forth between substreams.

Limits. Queries with more than :data:`MOST_LABELS` aliases are ignored. Only the :data:`MOST_STARTS`
starts that send most tuples are considered. Only the :data:`MOST_KINDS` groups of highest cost are
candidates, and values of other groups take the orders of these. Only :data:`MOST_QUERIES` queries
of a start determine its split. Starts are split in descending order of saving, until the number of
orders has grown by half, or by :data:`MOST_MORE`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from anabranch_planner.skew.start_orders import Costs, Starts

#: For each query: its aliases in the order in which they are probed.
Orders = tuple[tuple[Label, ...], ...]


MOST_LABELS = 8
MOST_STARTS = 16
MOST_KINDS = 16
MOST_QUERIES = 8
MOST_MORE = 64
#: Minimum saving of a split, as a fraction of the cost without it.
WORTH = 0.02


@dataclass(frozen=True, slots=True)
class SubstreamChoice:
    """The split of an alias's arriving tuples into substreams, and the saving by it.

    Attributes:
        before, after: cost of the alias's orders per unit of time, without and with the split.
    """

    function: Substreams
    before: float
    after: float


def choose(
    starts: Starts, most: int, earlier: Iterable[Substreams] = ()
) -> tuple[SubstreamChoice, ...]:
    """Choose the aliases whose tuples are split into two to ``most`` substreams; sorted.

    Args:
        starts: orders under a cost model that charges calls (objective ``seconds``).
        earlier: the substreams in use.
    """
    if most < 2:
        return ()
    kept = {
        (one.start, one.attribute): one for one in earlier if one.count <= most and not one.aside
    }
    found = []
    for start, using in _with_a_choice(starts):
        options = []
        considered = sorted(using, key=lambda q: (-len(q.labels), q.id))[:MOST_QUERIES]
        for attribute, kind in _attributes(start, considered, starts):
            before = kept.get((start, attribute))
            choice = _divided(AttrRef(start, attribute), kind, considered, starts, most, before)
            if choice is not None:
                stays = choice.function == before
                gain = choice.before - choice.after + (WORTH * choice.before if stays else 0.0)
                options.append((gain, choice))
        if options:
            best = max(options, key=lambda option: option[0])
            found.append((*best, len(using)))
    left = max(sum(len(query.labels) for query in starts.queries) // 2, MOST_MORE)
    chosen = []
    for _, choice, goals in sorted(found, key=lambda f: (-f[0], f[1].function)):
        more = (choice.function.count - 1) * goals
        if more <= left:
            left -= more
            chosen.append(choice)
    return tuple(sorted(chosen, key=lambda c: c.function))


def _with_a_choice(starts: Starts) -> Iterable[tuple[Label, list[JoinQuery]]]:
    """Aliases that may be split, with their queries of three or more aliases; busiest first."""
    using: dict[Label, list[JoinQuery]] = defaultdict(list)
    for query in starts.queries:
        if 2 < len(query.labels) <= MOST_LABELS:
            for label in query.labels:
                using[label].append(query)

    def rank(label: Label) -> tuple[float, Label]:
        sent = starts.model.probe(starts.sub(using[label][0], [label]), label)
        return -sent * len(using[label]), label

    return [(label, using[label]) for label in sorted(using, key=rank)[:MOST_STARTS]]


def _attributes(
    start: Label, queries: Sequence[JoinQuery], starts: Starts
) -> list[tuple[str, str]]:
    """Attributes of ``start`` that may split its tuples, as (attribute, key type)."""
    found = set()
    for query in queries:
        for key_class in query.classes:
            for member in key_class.members:
                if member.label == start:
                    columns = starts.columns(query, member)
                    if any(map(starts.model.values.are_known, columns)):
                        found.add((member.attribute, key_class.type))
    return sorted(found)


def _divided(
    key: AttrRef,
    kind: str,
    queries: Sequence[JoinQuery],
    starts: Starts,
    most: int,
    earlier: Substreams | None,
) -> SubstreamChoice | None:
    """The best split of an alias's tuples by the attribute ``key``; None if no split saves enough.

    Args:
        earlier: the split in use, if it is by this attribute.
    """
    columns = [column for query in queries for column in starts.columns(query, key)]
    values = starts.model.values
    hashes = values.frequent(columns)
    goals = [starts.of(query, key, hashes) for query in queries]
    # The best orders of each value, and the best orders for all values together.
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
            return SubstreamChoice(earlier, before, stays)
    if len(chosen) < 2 or before - after < WORTH * before:
        return None
    nearest = prices[list(chosen)].argmin(axis=0)
    arriving = values.weights(columns[:1], hashes, first_arrives=True)
    groups = []
    # The first substream also contains all values that no group lists.
    for number in range(len(chosen)):
        own = np.flatnonzero(nearest[:-1] == number)
        if number != nearest[-1] and len(own):
            groups.append((tuple(hashes[own].tolist()), round(float(arriving[own].sum()), 6)))
    if not groups:
        return None
    found, shares = zip(*sorted(groups), strict=True)
    others = round(max(1.0 - sum(shares), 0.0), 6)
    function = Substreams(key.label, key.attribute, kind, found, shares=(others, *shares))
    return SubstreamChoice(function, before, after)


def _cost(function: Substreams, prices: Costs, hashes: NDArray[np.uint64], calls: float) -> float:
    """Cost of an alias's tuples if ``function`` splits them, with the best orders per substream.

    Args:
        prices: costs, shape (combination of orders, value); last column: all other values.
    """
    of = np.zeros(len(hashes) + 1, np.int64)
    for number, group in enumerate(function.groups, 1):
        of[:-1][np.isin(hashes, np.array(group, np.uint64))] = number
    parts = (prices[:, of == number] for number in range(function.count))
    return float(sum(part.sum(axis=1).min() for part in parts)) + calls * (function.count - 1)


def selected(prices: Costs, calls: float, most: int) -> tuple[tuple[int, ...], float]:
    """Choose at most ``most`` rows of the matrix ``prices`` that minimise the sum of the columns'
    least entries, plus ``calls`` for each row beyond the first.

    Args:
        prices: shape (group of orders, value).

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
