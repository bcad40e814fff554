"""Conversion of queries, with the cost model's figures, into PMJoin's placement problems.

Rates follow :mod:`anabranch_planner.cost.timing`, and equal PMJoin's if windows are short compared
with the history. Rates by value need no selectivity: tuples match if their values are equal. The
share of a value's combinations that are within the windows does not depend on its rates.
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
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.timing import LoosestBounds
from benchmarks.papers.pmjoin.rates import Mask, ValueRates, connected, members

#: Maximum number of distinct values of a key; unnamed values share the rest of the rate.
MAX_VALUES = 10_000
#: Share of a rate that may be left by rounding errors when all its values are named.
_ROUNDING = 1e-9


@dataclass
class QueryRates:
    """Rates of a query's sub-joins; its labels, in order, are the streams."""

    query: JoinQuery
    model: CostModel
    _known: dict[Mask, float] = field(default_factory=dict)

    def rate(self, streams: Mask) -> float:
        """Return the tuples per unit of time of the join of ``streams``."""
        found = self._known.get(streams)
        if found is None:
            found = self._known[streams] = self.model.added(_over(self.query, streams))
        return found

    def joinable(self, one: Mask, other: Mask) -> bool:
        """Whether a key class has members in both sets."""
        left, right = ({self.query.labels[i] for i in members(side)} for side in (one, other))
        return any(
            left & labels and right & labels
            for labels in ({m.label for m in c.members} for c in self.query.classes)
        )


def common_key(query: JoinQuery) -> KeyClass | None:
    """Return the key class by which all labels of ``query`` are joined; None if there is none."""
    labels = set(query.labels)
    return next((c for c in query.classes if {m.label for m in c.members} == labels), None)


def value_rates(
    query: JoinQuery,
    key: KeyClass,
    named: Mapping[Label, Mapping[str, float]],
    statistics: Statistics,
    history: float | None,
) -> tuple[tuple[str, ...], ValueRates]:
    """Return the values of the key that joins all labels of a query, and rates of sub-joins by
    value.

    Values that are named for any label come first, sorted. The rest of a label's rate is spread
    over its unnamed distinct values; if their number is unknown, over the unnamed values of the
    label with most.

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
    """Return the values of a key as in :func:`value_rates`, and for the number of each label with
    the key the shares of its tuples by value.

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
    """Return a key's named values, and an array (label x value) of tuples per unit of time."""
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
        # The number of unnamed values is not known: one value represents them all.
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
    """Return an array (set of labels x value) of the rates of joins."""
    # With one tuple and one value per relation, the rates are the shares of combinations within
    # windows.
    ones = {relation.id: 1.0 for relation in query.relations}
    unit = CostModel(
        Statistics(ones, every_distinct=ones, history=history),
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
    """Return the number of each label's host: the stated one, else hosts in turn."""
    found, dealt = [], 0
    for label in labels:
        host = stated.get(label)
        if host is None:
            found.append(dealt % len(hosts))
            dealt += 1
        else:
            found.append(hosts.index(host))
    return found
