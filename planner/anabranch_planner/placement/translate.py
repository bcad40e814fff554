"""Queries as placement problems, by the cost model's figures.

Rates are those of :mod:`anabranch_planner.cost.timing`, which are PMJoin's for windows that are
short against the history. Value by value they need no selectivity: tuples match where the values
are equal. What windows leave of the combinations of a value does not depend on its rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.mirs import sub_join
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics import TableStatistics
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.placement.rates import ValueRates, connected, members

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anabranch_contract.queries.joins import JoinQuery, KeyClass, Label
    from anabranch_contract.queries.mirs import Mir
    from anabranch_planner.cost.statistics import Statistics
    from anabranch_planner.placement.rates import Mask

#: Values of a key that are told apart; those that are not named share what is left.
MAX_VALUES = 10_000


@dataclass
class QueryRates:
    """The rates of a query's sub-joins; streams are its labels, in their order."""

    query: JoinQuery
    model: CostModel
    _known: dict[Mask, float] = field(default_factory=dict)

    def rate(self, streams: Mask) -> float:
        """Tuples per unit of time."""
        found = self._known.get(streams)
        if found is None:
            found = self._known[streams] = self.model.added(_over(self.query, streams))
        return found

    def joinable(self, one: Mask, other: Mask) -> bool:
        """Whether a key class has members on both sides."""
        left, right = ({self.query.labels[i] for i in members(side)} for side in (one, other))
        return any(
            left & labels and right & labels
            for labels in ({m.label for m in c.members} for c in self.query.classes)
        )


def common_key(query: JoinQuery) -> KeyClass:
    """The key class that all labels of ``query`` are joined by.

    Raises:
        PlannerError: there is none.
    """
    found = _common_key(query)
    if found is None:
        raise PlannerError(
            "no-common-key",
            f"no key joins all of {', '.join(query.labels)}, so their tuples have no common value",
            remedy="place it with one partition",
        )
    return found


def has_common_key(query: JoinQuery) -> bool:
    """Whether one key joins all labels of ``query``."""
    return _common_key(query) is not None


def _common_key(query: JoinQuery) -> KeyClass | None:
    labels = set(query.labels)
    return next((c for c in query.classes if {m.label for m in c.members} == labels), None)


def value_rates(
    query: JoinQuery,
    named: Mapping[Label, Mapping[str, float]],
    statistics: Statistics,
    history: float | None,
) -> tuple[tuple[str, ...], ValueRates]:
    """The values of a query's common key, and the rates of its sub-joins value by value.

    Values that are named for any label come first, sorted. What is left of a label's rate is spread
    over as many further values as the label with most of them has.

    Args:
        named: label -> value -> tuples per unit of time.
        history: microseconds over which tuples are counted.

    Raises:
        PlannerError: there is no common key, or there are too many values.
    """
    key = {member.label: member.attribute for member in common_key(query).members}
    model = CostModel(statistics, bounds=LoosestBounds((query,)))
    texts = sorted(set().union(*named.values())) if named else []
    relation = {member.label: member.relation for member in query.members}
    left, spread = {}, {}
    for label in query.labels:
        known = named.get(label, {})
        left[label] = max(model.added(_base(query, label)) - sum(known.values()), 0.0)
        distinct = statistics.distinct(relation[label], (key[label],))
        spread[label] = max(math.ceil(distinct or 0.0) - len(known), 0)
    further = max(spread.values())
    if len(texts) + further > MAX_VALUES:
        raise PlannerError(
            "too-many-values",
            f"its key has {len(texts) + further} values, and {MAX_VALUES} are told apart",
            remedy="state fewer distinct values, and the frequent ones under values",
        )
    if not texts and not further:
        further = 1
    arriving = np.zeros((len(query.labels), len(texts) + further))
    for number, label in enumerate(query.labels):
        known = named.get(label, {})
        arriving[number, : len(texts)] = [known.get(text, 0.0) for text in texts]
        if left[label] > 0:
            among = min(spread[label], further) or further
            arriving[number, len(texts) : len(texts) + among] = left[label] / max(among, 1)
    return tuple(texts), ValueRates(_joins(query, arriving, history))


def _joins(
    query: JoinQuery, arriving: np.typing.NDArray[np.float64], history: float | None
) -> np.typing.NDArray[np.float64]:
    """Set of labels x value -> the rate of its join."""
    # One tuple of one value each: what is left are the shares that windows leave.
    ones = {relation.id: 1.0 for relation in query.relations}
    unit = CostModel(
        TableStatistics(ones, every_distinct=ones, history=history),
        bounds=LoosestBounds((query,)),
    )
    rates = QueryRates(query, unit)
    found = np.zeros((1 << len(query.labels), arriving.shape[1]))
    products = np.ones_like(found)
    for streams in range(1, len(found)):
        last = streams.bit_length() - 1
        products[streams] = products[streams ^ (1 << last)] * arriving[last]
        if connected(rates, streams):
            found[streams] = products[streams] * rates.rate(streams)
    return found


def _over(query: JoinQuery, streams: Mask) -> Mir:
    return sub_join(query, frozenset(query.labels[i] for i in members(streams)))


def _base(query: JoinQuery, label: Label) -> Mir:
    return sub_join(query, frozenset({label}))


def sites_of(labels: Sequence[str], stated: Mapping[str, str], hosts: Sequence[str]) -> list[int]:
    """The number of each label's host: as stated, else dealt in order."""
    found, dealt = [], 0
    for label in labels:
        host = stated.get(label)
        if host is None:
            found.append(dealt % len(hosts))
            dealt += 1
        else:
            found.append(hosts.index(host))
    return found
