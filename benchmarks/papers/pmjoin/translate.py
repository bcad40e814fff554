"""Queries as placement problems, by the cost model's figures.

Rates follow :mod:`anabranch_planner.cost.timing` and are PMJoin's for windows that are short
against the history. Value by value they need no selectivity: tuples match where the values are
equal. The share of a value's combinations within the windows does not depend on its rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.joins import JoinQuery, KeyClass, Label
from anabranch_contract.queries.mirs import Mir, sub_join
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics, TableStatistics
from anabranch_planner.cost.timing import LoosestBounds
from benchmarks.papers.pmjoin.rates import Mask, ValueRates, connected, members

#: Maximum number of distinct values of a key; unnamed values share the rest of the rate.
MAX_VALUES = 10_000
#: The part of a rate that may be left by rounding once all its values are named.
_ROUNDING = 1e-9


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


def common_key(query: JoinQuery) -> KeyClass | None:
    """The key class that all labels of ``query`` are joined by; None: there is none."""
    labels = set(query.labels)
    return next((c for c in query.classes if {m.label for m in c.members} == labels), None)


def value_rates(
    query: JoinQuery,
    key: KeyClass,
    named: Mapping[Label, Mapping[str, float]],
    statistics: Statistics,
    history: float | None,
) -> tuple[tuple[str, ...], ValueRates]:
    """The values of the key that joins all of a query, and its sub-joins' rates value by value.

    Values that are named for any label come first, sorted. The rest of a label's rate is spread
    over its further distinct values, or over the further values of the label with most where it
    states no number.

    Args:
        named: label -> value -> tuples per unit of time.
        history: microseconds over which tuples are counted.

    Raises:
        PlannerError: there are too many values.
    """
    texts, arriving = _arriving(query, key, named, statistics)
    return texts, ValueRates(_joins(query, arriving, history))


def key_shares(
    query: JoinQuery,
    key: KeyClass,
    named: Mapping[Label, Mapping[str, float]],
    statistics: Statistics,
) -> tuple[tuple[str, ...], dict[int, np.typing.NDArray[np.float64]]]:
    """The values of a key, as in :func:`value_rates`, and number of a label with the key -> the
    part of its tuples by value.

    Raises:
        PlannerError: there are too many values.
    """
    texts, arriving = _arriving(query, key, named, statistics)
    having = {member.label for member in key.members}
    labels = [number for number, label in enumerate(query.labels) if label in having]
    sums = arriving.sum(axis=1)
    return texts, {
        number: row / total if total > 0 else np.full_like(row, 1 / len(row))
        for number, row, total in zip(labels, arriving, sums, strict=True)
    }


def _arriving(
    query: JoinQuery,
    key: KeyClass,
    named: Mapping[Label, Mapping[str, float]],
    statistics: Statistics,
) -> tuple[tuple[str, ...], np.typing.NDArray[np.float64]]:
    """The named values of a key, and label that has it x value -> tuples per unit of time."""
    attribute = {member.label: member.attribute for member in key.members}
    labels = [label for label in query.labels if label in attribute]
    model = CostModel(statistics, bounds=LoosestBounds((query,)))
    texts = sorted(set().union(*named.values())) if named else []
    left, spread = {}, {}
    for label in labels:
        known = named.get(label, {})
        whole = model.added(_base(query, label))
        rest = whole - sum(known.values())
        left[label] = rest if rest > whole * _ROUNDING else 0.0
        distinct = statistics.distinct(query.relation_of(label).id, (attribute[label],))
        spread[label] = max(math.ceil(distinct or 0.0) - len(known), 0)
    further = max(spread.values())
    if len(texts) + further > MAX_VALUES:
        raise PlannerError(
            "too-many-values",
            f"its key has {len(texts) + further} values, and {MAX_VALUES} are the limit",
            remedy="state fewer distinct values, and the frequent ones under values",
        )
    if not further and (not texts or any(left.values())):
        # Their number is not known: one value stands for all.
        further = 1
    arriving = np.zeros((len(labels), len(texts) + further))
    for number, label in enumerate(labels):
        known = named.get(label, {})
        arriving[number, : len(texts)] = [known.get(text, 0.0) for text in texts]
        if left[label] > 0:
            among = min(spread[label], further) or further
            arriving[number, len(texts) : len(texts) + among] = left[label] / among
    return tuple(texts), arriving


def _joins(
    query: JoinQuery, arriving: np.typing.NDArray[np.float64], history: float | None
) -> np.typing.NDArray[np.float64]:
    """Set of labels x value -> the rate of its join."""
    # With one tuple of one value each, the rates are the shares that windows leave.
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
