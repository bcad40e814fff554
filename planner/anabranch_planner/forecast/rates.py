"""Forecast of each relation's number of arriving tuples per batch.

Rates are per batch, not per second: epochs and ages of stored rows are counted in batches, and a
replay has no clock but the number of batches. Each relation has a series as in :mod:`.forecast`,
with batches instead of seconds. Three rules are added:

* **Intermittent** relations have no tuples in some periods between others that have them (for
  example, if their files arrive every other minute). Neither the last value nor a trend forecasts
  them well. Their forecast is the mean of the series, tuples divided by batches. That is
  J. D. Croston's forecast, mean size over mean interval, without his smoothing ("Forecasting and
  stock control for intermittent demands", Operational Research Quarterly 23, 1972).
* **A floor.** Tuples may resume, so no forecast is below a tenth (:data:`FLOOR`) of the mean. A
  rate of 0 would make every step that begins with the relation free of charge.
* **Drift.** When the runtime has detected a sudden change of a rate, the rate's series restarts
  with the period of the change, and a single period suffices for a forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from anabranch_contract.protocol.interims import Arrivals
from anabranch_planner.forecast.forecast import StatisticKind, forecasts
from anabranch_planner.forecast.series import Series

#: Default of the maximum number of periods from which rates are forecast.
PERIODS = 20
#: Minimum number of measured periods for a forecast, since a single one is not a series.
EVIDENCE = 2
#: Least forecast, as a fraction of the series' mean.
FLOOR = 0.1
#: Half-life of a measurement's weight, as a fraction of the periods used.
HALF_LIFE = 1 / 3


def rates(measured: Sequence[Arrivals], horizon: float, length: int = PERIODS) -> dict[str, float]:
    """Forecast the rates: relation -> expected number of arriving tuples per batch.

    Args:
        measured: consecutive periods, oldest first; only the newest ``length`` are used. If the
            number of batches decreases (another pipeline, or a recovery), earlier ones are ignored.
        horizon: number of periods between the newest one and the forecast one.

    A relation is listed if it had tuples in these periods and was counted in at least
    :data:`EVIDENCE` of them, or in one period since a drift.

    >>> from anabranch_contract.protocol.interims import Arrivals
    >>> rates([Arrivals(4, 4, {"R": 40, "S": 0}), Arrivals(8, 4, {"R": 44, "S": 8})], 1.0)
    {'R': 11.0, 'S': 2.0}
    """
    periods = _newest(measured, length)
    if len(periods) < EVIDENCE:
        return {}
    batches = float(median(one.batches for one in periods))
    found, asked = {}, {}
    for relation in sorted({name for one in periods for name in one.arrivals}):
        since = _drifted(periods, relation)
        series = [
            (float(one.next_batch), one.arrivals[relation] / one.batches, float(one.batches))
            for one in periods[since:]
            if one.arrivals.get(relation, -1) >= 0
        ]
        arrived = [value > 0 for _, value, _ in series]
        if (len(series) < EVIDENCE and not since) or not any(arrived):
            continue
        mean = sum(v * w for _, v, w in series) / sum(w for _, _, w in series)
        first, last = arrived.index(True), len(arrived) - 1 - arrived[::-1].index(True)
        if all(arrived[first:last]):
            asked[relation] = (mean, Series.of(series, length, HALF_LIFE * length * batches))
        else:
            found[relation] = mean
    made = forecasts(
        [(series, StatisticKind.RATE) for _, series in asked.values()], batches, horizon
    )
    for (relation, (mean, _)), one in zip(asked.items(), made, strict=True):
        found[relation] = max(one.value or 0.0, FLOOR * mean)
    return dict(sorted(found.items()))


def recent(
    measured: Sequence[Arrivals], length: int = PERIODS
) -> dict[str, tuple[tuple[int, int], ...]]:
    """Relation -> age profile: pairs (n, number of tuples in the newest n batches), ascending.

    >>> from anabranch_contract.protocol.interims import Arrivals
    >>> recent([Arrivals(4, 4, {"R": 40}), Arrivals(8, 4, {"R": 44, "S": 8})])
    {'R': ((4, 44), (8, 84)), 'S': ((4, 8),)}
    """
    periods = _newest(measured, length)
    found = {}
    for relation in sorted({name for one in periods for name in one.arrivals}):
        points, tuples = [], 0
        for one in reversed(periods):
            count = one.arrivals.get(relation, -1)
            if count < 0:
                break
            tuples += count
            points.append((periods[-1].next_batch - one.next_batch + one.batches, tuples))
        if points:
            found[relation] = tuple(points)
    return found


def _drifted(periods: Sequence[Arrivals], relation: str) -> int:
    """Index of the newest period that began with a drift of the relation's rate, or 0."""
    places = [
        place
        for place, one in enumerate(periods)
        if any(rate.relation == relation for rate in one.drifted.rates)
    ]
    return places[-1] if places else 0


def _newest(measured: Sequence[Arrivals], length: int) -> list[Arrivals]:
    return _consecutive([one for one in measured if one.batches > 0])[-length:]


def _consecutive(periods: Sequence[Arrivals]) -> list[Arrivals]:
    """The newest periods with increasing batch numbers, i.e. from one run of the pipeline."""
    found: list[Arrivals] = []
    for one in periods:
        if found and one.next_batch <= found[-1].next_batch:
            found.clear()
        found.append(one)
    return found
