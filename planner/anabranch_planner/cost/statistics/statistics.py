"""Statistics of the data as one frozen value, the input of the cost model.

Unknown figures are missing, never 0. Functions refine the value: measurements (:func:`measured`),
estimates from samples (:mod:`~anabranch_planner.cost.statistics.sampling`), hysteresis
(:mod:`~anabranch_planner.cost.statistics.steady`), and ``dataclasses.replace``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch_contract.errors import StatisticsError
from anabranch_contract.protocol.measurements import FrequentValues, JoinSample, Snapshot, valid
from anabranch_contract.queries.joins import Equality, RelationId
from anabranch_planner.cost.exchange import ExchangeModel
from anabranch_planner.cost.statistics.constants import CostConstants


@dataclass(frozen=True, slots=True)
class PeriodForecast:
    """Forecast of the next period: arrivals, ages and stored rows per relation.

    Attributes:
        length: length of the period, in units of the history over which the statistics count.
        arrivals: relation -> number of tuples in the period, after its local filter. Without an
            entry: ``length`` times its cardinality, the rate of the history.
        recent: relation -> (age in units of the history, tuples at most that old), ascending; older
            tuples are spread evenly over the rest of the history.
        periods: number of measured periods on which the forecasts are based.
        held: relation -> number of its stored rows, where known, since a store may be younger than
            the history. Without an entry: all tuples of the history.

    Raises:
        StatisticsError: the length is not finite, or not above 0.
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


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of the data; missing figures are unknown.

    Attributes:
        cardinalities: relation -> number of tuples per unit of time, after its local filter.
        distincts: (relation, comma-joined sorted attributes) -> number of distinct values.
        selectivities: equality with sorted sides -> matches / size of the cross product.
        every_distinct: relation -> number of distinct values of each attribute combination that is
            not in ``distincts``.
        values: (relation, attribute) -> its frequent values.
        spans: relation or stream -> microseconds of event time over which its tuples are spread.
        history: microseconds of event time of every relation missing in ``spans``.
        samples: measured steps between sub-joins.
        ahead: forecast of the next period; None: rates of the history, and empty stores.
        constants: CPU time per operation.
        exchange: the hosts between which tuples travel; None: a single host.
        estimated: relation -> its estimated share of its stream's tuples, for relations with
            figures from samples.

    >>> from anabranch_contract.queries.joins import RelationId
    >>> known = Statistics({RelationId("R"): 100.0}, {(RelationId("R"), "a,b"): 70.0})
    >>> known.cardinality(RelationId("R")), known.distinct(RelationId("R"), ("a", "b"))
    (100.0, 70.0)
    >>> known.cardinality(RelationId("S")) is None
    True
    """

    cardinalities: Mapping[RelationId, float] = field(default_factory=dict)
    distincts: Mapping[tuple[RelationId, str], float] = field(default_factory=dict)
    selectivities: Mapping[Equality, float] = field(default_factory=dict)
    every_distinct: Mapping[RelationId, float] = field(default_factory=dict)
    values: Mapping[tuple[RelationId, str], FrequentValues] = field(default_factory=dict)
    spans: Mapping[str, float] = field(default_factory=dict)
    history: float | None = None
    samples: tuple[JoinSample, ...] = ()
    ahead: PeriodForecast | None = None
    constants: CostConstants | None = None
    exchange: ExchangeModel | None = None
    estimated: Mapping[RelationId, float] = field(default_factory=dict)

    def cardinality(self, relation: RelationId) -> float | None:
        """Statistic: tuples of ``relation`` per unit of time; None if unknown."""
        return self.cardinalities.get(relation)

    def distinct(self, relation: RelationId, attributes: tuple[str, ...]) -> float | None:
        """Statistic: distinct values of the (sorted) attribute combination; None if unknown."""
        known = self.distincts.get((relation, ",".join(attributes)))
        return self.every_distinct.get(relation) if known is None else known

    def frequent(self, relation: RelationId, attribute: str) -> FrequentValues | None:
        """Frequent values of one attribute among ``relation``'s tuples; None if not measured."""
        return self.values.get((relation, attribute))

    def selectivity(self, predicate: Equality) -> float | None:
        """Statistic: matches of one predicate / size of the cross product; None if unknown."""
        return self.selectivities.get(predicate)

    def span(self, relation: RelationId) -> float | None:
        """Statistic: microseconds that a relation's tuples span; default: its stream's span."""
        known = self.spans.get(relation)
        return self.spans.get(relation.rpartition("[")[0], self.history) if known is None else known


def measured(snapshot: Snapshot) -> Statistics:
    """Statistics measured by the runtime over the whole history.

    An unfiltered relation is its stream, which is always counted. A filtered relation is counted
    only after a query reads it.
    """
    streams = {name: valid(counts) for name, counts in snapshot.streams.items()}
    counts = {**snapshot.arrivals, **streams}
    return Statistics(
        cardinalities={RelationId(name): float(max(count, 1)) for name, count in counts.items()},
        distincts={
            (RelationId(name), columns): count
            for name, distincts in snapshot.distincts.items()
            for columns, count in distincts.items()
        },
        values={
            (RelationId(name), column): values
            for name, columns in snapshot.values.items()
            for column, values in columns.items()
        },
        spans={name: float(span) for name, span in snapshot.spans.items() if span},
        samples=snapshot.steps,
    )
