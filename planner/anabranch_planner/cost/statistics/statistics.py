"""Statistics as the cost model sees them: a protocol, where unknown is ``None``, never 0."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from anabranch_contract.errors import StatisticsError
from anabranch_contract.protocol.measurements import FrequentValues, JoinSample
from anabranch_contract.queries.joins import Equality, RelationId
from anabranch_planner.cost.exchange import ExchangeModel
from anabranch_planner.cost.statistics.constants import CostConstants


@dataclass(frozen=True, slots=True)
class PeriodForecast:
    """Forecast of the next period: arrivals, ages and stored rows per relation.

    Attributes:
        length: of the period, in units of the history over which the statistics count.
        arrivals: relation -> its tuples in the period, after its local filter. Default: the rate of
            the history, ``length`` times its cardinality.
        recent: relation -> (age in units of the history, tuples at most that old), ascending; older
            tuples are spread evenly over the rest of the history.
        periods: number of measured periods behind the forecasts.
        held: relation -> its stored rows, where known: a store may be younger than the history.
            Default: all tuples of the history.

    Raises:
        StatisticsError: the length is no finite number above 0.
    """

    length: float
    arrivals: Mapping[RelationId, float] = field(default_factory=dict)
    recent: Mapping[RelationId, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    periods: int = 0
    held: Mapping[RelationId, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.length < math.inf:
            raise StatisticsError(
                "bad-period",
                f"the next period is {self.length} times as long as the history",
                field="statistics",
                remedy="give a finite number above 0",
            )


class Statistics(Protocol):
    """Statistics of the data. Every answer may be None: unknown."""

    def cardinality(self, relation: RelationId) -> float | None:
        """Tuples of ``relation`` per unit of time (after its local filter)."""

    def distinct(self, relation: RelationId, attributes: tuple[str, ...]) -> float | None:
        """Distinct values of the (sorted) attribute combination among ``relation``'s tuples."""

    def frequent(self, relation: RelationId, attribute: str) -> FrequentValues | None:
        """Frequent values of one attribute among ``relation``'s tuples."""

    def selectivity(self, predicate: Equality) -> float | None:
        """Matches of one predicate over the size of the cross product."""

    def span(self, relation: RelationId) -> float | None:
        """Event time, in microseconds, over which the tuples of :meth:`cardinality` are spread."""

    def samples(self) -> Sequence[JoinSample]:
        """Measured steps between sub-joins; empty: none."""

    def ahead(self) -> PeriodForecast | None:
        """Forecast of the next period; None: the history's rates, starting with empty stores."""

    def constants(self) -> CostConstants | None:
        """CPU time per operation."""

    def exchange(self) -> ExchangeModel | None:
        """Between how many hosts tuples travel; None: there is one."""


class NoStatistics:
    """No statistics: every figure is unknown, so cost models use their defaults."""

    def cardinality(self, relation: RelationId) -> float | None:
        """Unknown."""
        return None

    def distinct(self, relation: RelationId, attributes: tuple[str, ...]) -> float | None:
        """Unknown."""
        return None

    def frequent(self, relation: RelationId, attribute: str) -> FrequentValues | None:
        """Unknown."""
        return None

    def selectivity(self, predicate: Equality) -> float | None:
        """Unknown."""
        return None

    def span(self, relation: RelationId) -> float | None:
        """Unknown."""
        return None

    def samples(self) -> Sequence[JoinSample]:
        """Nothing has been seen."""
        return ()

    def ahead(self) -> None:
        """Nothing is foreseen."""

    def constants(self) -> None:
        """Unknown."""

    def exchange(self) -> None:
        """None: all stores are on one host."""


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """Statistics written down beforehand; whatever is in no table is unknown.

    Attributes:
        distincts: (relation, sorted attributes) -> distinct values.
        selectivities: by predicate, sides sorted.
        every_distinct: relation -> distinct values of whatever of its attributes ``distincts``
            says nothing about, alone or combined.
        history: microseconds over which the tuples that ``cardinalities`` counts have arrived.
        costs: CPU time per operation. ``hosts``: between which tuples travel.
        values: (relation, attribute) -> its frequent values.

    >>> from anabranch_contract.queries.joins import RelationId
    >>> known = TableStatistics({RelationId("R"): 100.0}, {(RelationId("R"), ("a", "b")): 70.0})
    >>> known.cardinality(RelationId("R")), known.distinct(RelationId("R"), ("a", "b"))
    (100.0, 70.0)
    >>> known.cardinality(RelationId("S")) is None
    True
    """

    cardinalities: Mapping[RelationId, float] = field(default_factory=dict)
    distincts: Mapping[tuple[RelationId, tuple[str, ...]], float] = field(default_factory=dict)
    selectivities: Mapping[Equality, float] = field(default_factory=dict)
    every_distinct: Mapping[RelationId, float] = field(default_factory=dict)
    history: float | None = None
    costs: CostConstants | None = None
    hosts: ExchangeModel | None = None
    values: Mapping[tuple[RelationId, str], FrequentValues] = field(default_factory=dict)

    def cardinality(self, relation: RelationId) -> float | None:
        """As written down."""
        return self.cardinalities.get(relation)

    def distinct(self, relation: RelationId, attributes: tuple[str, ...]) -> float | None:
        """As written down."""
        known = self.distincts.get((relation, attributes))
        return self.every_distinct.get(relation) if known is None else known

    def frequent(self, relation: RelationId, attribute: str) -> FrequentValues | None:
        """As written down."""
        return self.values.get((relation, attribute))

    def selectivity(self, predicate: Equality) -> float | None:
        """As written down."""
        return self.selectivities.get(predicate)

    def span(self, relation: RelationId) -> float | None:
        """The common history."""
        del relation
        return self.history

    def samples(self) -> Sequence[JoinSample]:
        """Nothing has been seen."""
        return ()

    def ahead(self) -> None:
        """Nothing is foreseen."""

    def constants(self) -> CostConstants | None:
        """As written down."""
        return self.costs

    def exchange(self) -> ExchangeModel | None:
        """As written down."""
        return self.hosts


@dataclass(frozen=True, slots=True)
class ForecastStatistics:
    """The statistics of ``base``, what the next period brings, what operations take, and between
    which hosts tuples travel.
    """

    base: Statistics
    coming: PeriodForecast | None
    costs: CostConstants | None = None
    hosts: ExchangeModel | None = None

    def cardinality(self, relation: RelationId) -> float | None:
        """As ``base``."""
        return self.base.cardinality(relation)

    def distinct(self, relation: RelationId, attributes: tuple[str, ...]) -> float | None:
        """As ``base``."""
        return self.base.distinct(relation, attributes)

    def frequent(self, relation: RelationId, attribute: str) -> FrequentValues | None:
        """As ``base``."""
        return self.base.frequent(relation, attribute)

    def selectivity(self, predicate: Equality) -> float | None:
        """As ``base``."""
        return self.base.selectivity(predicate)

    def span(self, relation: RelationId) -> float | None:
        """As ``base``."""
        return self.base.span(relation)

    def samples(self) -> Sequence[JoinSample]:
        """As ``base``."""
        return self.base.samples()

    def ahead(self) -> PeriodForecast | None:
        """As it is given."""
        return self.coming

    def constants(self) -> CostConstants | None:
        """As they are given."""
        return self.costs

    def exchange(self) -> ExchangeModel | None:
        """As it is given."""
        return self.hosts
