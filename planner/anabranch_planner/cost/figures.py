"""Checked statistics of data: missing figures get defaults, contradictory ones are corrected.

Impossible values (NaN, negative, infinite) are rejected. Contradictions between figures are
corrected by the rules below and listed in :attr:`Figures.contradictions`, because a plan from
slightly wrong figures is better than no plan.

* A distinct count above the cardinality is lowered to it: both count the tuples of one unit of
  time (and of the next period, where arrivals are forecast). Counts come from sketches, so
  excesses within :data:`TOLERANCE` are not listed.
* A distinct count of zero over existing tuples (all NULL, or not yet counted) is raised to one: a
  predicate without a match so far may still match a tuple.
* A distinct count of a composite key is raised to that of its largest part, and lowered to the
  product of its parts.
* A selectivity above 1 is lowered to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from anabranch_contract.errors import StatisticsError
from anabranch_contract.queries.joins import AttrRef, Equality, Label, RelationId
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.values import ValueShares

#: Default tuples per unit of time of a relation without statistics.
DEFAULT_CARDINALITY = 1000.0
#: Upper limit of every statistic, so that products of statistics stay finite.
LARGEST = 1e18
#: Relative excess of a distinct count over its upper limit that is not reported.
TOLERANCE = 0.1

Keys = tuple[tuple[AttrRef, AttrRef], ...]


class Figures:
    """Checked statistics with defaults and corrections; memoised.

    Attributes:
        values: relative frequencies of key values (:mod:`.values`).
        assumed, contradictions: defaults used and corrections made so far, as sentences.
    """

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self._ahead = statistics.ahead
        self._sizes: dict[RelationId, float] = {}
        self._links: dict[Keys, tuple[bool, float]] = {}
        self.values = ValueShares(statistics, self.distinct)
        self.assumed: set[str] = set()
        self.contradictions: set[str] = set()

    def cardinality(self, relation: RelationId) -> float:
        """Number of tuples of a relation per unit of time."""
        if relation not in self._sizes:
            known = self._statistics.cardinality(relation)
            if known is None:
                self.assumed.add(f"cardinality of {relation} = {DEFAULT_CARDINALITY:g}")
                known = DEFAULT_CARDINALITY
            self._sizes[relation] = sane(known, f"cardinality of {relation}")
        return self._sizes[relation]

    @property
    def period(self) -> float | None:
        """Length of the forecast period, relative to the history; None: there is no forecast."""
        return None if self._ahead is None else self._ahead.length

    def arriving(self, relation: RelationId) -> float:
        """Number of tuples that arrive in the forecast period, or else per unit of time."""
        if self._ahead is None:
            return self.cardinality(relation)
        known = self._ahead.arrivals.get(relation)
        if known is None:
            known = self._ahead.length * self.cardinality(relation)
        return sane(known, f"arrivals of {relation}")

    def held(self, relation: RelationId) -> float:
        """Number of stored rows of a relation, at most its number of tuples in the history."""
        size = self.cardinality(relation)
        known = None if self._ahead is None else self._ahead.held.get(relation)
        return size if known is None else min(sane(known, f"rows held of {relation}"), size)

    def recent(self, relation: RelationId) -> Sequence[tuple[float, float]]:
        """Tuples of a relation by age: ascending (fraction of history, tuples up to that age)."""
        return () if self._ahead is None else self._ahead.recent.get(relation, ())

    def _largest(self, relation: RelationId) -> float:
        """Upper limit of a relation's distinct counts: its tuples by the end of the next period."""
        size = self.cardinality(relation)
        return size if self._ahead is None else size + self.arriving(relation)

    def span(self, relation: RelationId) -> float | None:
        """Event time that the measured tuples span, in microseconds; None if it is unknown or 0."""
        known = self._statistics.span(relation)
        if known is None:
            self.assumed.add(f"windows on {relation} reach over all of its history")
            return None
        return sane(known, f"span of {relation}") or None

    def selectivity(
        self, keys: Keys, relation_of: Mapping[Label, RelationId]
    ) -> tuple[bool, float]:
        """Selectivity of an equality of two aliases on all of ``keys``; and whether it was stated.

        Keys without a stated selectivity together have that of 1 / (the greater distinct count); a
        single such key with measured frequent values is estimated from these values.
        """
        found = self._links.get(keys)
        if found is None:
            found = self._links[keys] = self._selectivity(keys, relation_of)
        return found

    def _selectivity(
        self, keys: Keys, relation_of: Mapping[Label, RelationId]
    ) -> tuple[bool, float]:
        product, derived = 1.0, []
        for left, right in keys:
            stated = self._statistics.selectivity(Equality(*sorted((left, right))))
            if stated is None:
                derived.append((left, right))
                continue
            what = f"selectivity of {left} = {right}"
            if sane(stated, what) > 1:
                self.contradictions.add(f"{what} is {stated:g}, above 1: taken as 1")
            product *= min(float(stated), 1.0)
        if len(derived) == 1:
            columns = [(relation_of[ref.label], ref.attribute) for ref in derived[0]]
            if all(map(self.values.are_known, columns)):
                return False, product * self.values.selectivity(columns)
        if derived:
            sides = ([k[0] for k in derived], [k[1] for k in derived])
            product /= max(self._distinct(relation_of[s[0].label], s) for s in sides)
        return not derived, product

    def _distinct(self, relation: RelationId, attributes: Sequence[AttrRef]) -> float:
        return self.distinct_keys(relation, tuple(sorted({a.attribute for a in attributes})))

    def distinct_keys(self, relation: RelationId, names: tuple[str, ...]) -> float:
        """Number of distinct combinations of values of sorted attributes, at least 1."""
        parts = [self.distinct(relation, name) for name in names]
        return parts[0] if len(parts) == 1 else self._composite(relation, names, parts)

    def distinct(self, relation: RelationId, name: str) -> float:
        """Number of distinct values of one attribute, at least 1."""
        size = self._largest(relation)
        known = self._statistics.distinct(relation, (name,))
        what = f"distinct {relation}({name})"
        if known is None:
            self.assumed.add(f"{what} = its cardinality")
            return max(size, 1.0)
        return self._at_least_one(self._at_most(known, size, what, "the cardinality"), size, what)

    def _composite(
        self, relation: RelationId, names: tuple[str, ...], parts: Sequence[float]
    ) -> float:
        size, product = self._largest(relation), math.prod(parts)
        known = self._statistics.distinct(relation, names)
        what = f"distinct {relation}({', '.join(names)})"
        if known is None:
            self.assumed.add(f"{what} = product, at most cardinality")
            return max(min(product, size), 1.0)
        count = self._at_most(known, size, what, "the cardinality")
        count = self._at_most(count, product, what, "the product of its parts")
        largest = max(parts)
        if count < largest:
            if count < largest / (1 + TOLERANCE):
                text = f"{what} is {count:g}, below {largest:g} of one part: taken as {largest:g}"
                self.contradictions.add(text)
            count = largest
        return self._at_least_one(count, size, what)

    def _at_most(self, value: float, most: float, what: str, why: str) -> float:
        """``value`` of the figure ``what``, cut to ``most``; a cut beyond rounding is noted as a
        contradiction, with the reason ``why``."""
        most = max(most, 1.0)
        if sane(value, what) <= most:
            return float(value)
        if value > most * (1 + TOLERANCE):
            self.contradictions.add(f"{what} is {value:g}, above {why}: taken as {most:g}")
        return most

    def _at_least_one(self, count: float, size: float, what: str) -> float:
        if count < 1 and size >= 1:
            self.contradictions.add(f"{what} is {count:g} among {size:g} tuples: taken as 1")
        return max(count, 1.0)


def sane(value: float, what: str) -> float:
    """Check that the statistic ``value`` is not negative and at most :data:`LARGEST`; return it.

    Raises:
        StatisticsError: the value is negative, NaN or too large; the message begins with ``what``.
    """
    if not 0 <= value <= LARGEST:
        raise StatisticsError(
            "bad-statistic",
            f"{what} is {value}",
            field="statistics",
            remedy=f"statistics are from 0 to {LARGEST:g}; leave out what is unknown",
        )
    return float(value)
