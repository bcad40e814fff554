"""Time series of a statistic's measurements, bounded in length.

A series is an immutable value: appending returns another series. An invalid measurement is
rejected. A measurement older than the newest one restarts the series: the clock was set back, or
the source restarted, so the kept times no longer order the values. See :class:`Appended`.

Periods may be missing. Weights fade with time (:mod:`.grid`), so values before a gap count less.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from anabranch_contract.errors import StatisticsError

#: Least and greatest value of :attr:`Series.length`.
SHORTEST, LONGEST = 2, 10_000
#: Greatest value and weight, so that sums of squares stay finite.
LARGEST = 1e100
#: Least weight, so that sums of squares do not underflow.
LIGHTEST = 1e-100


class AppendOutcome(StrEnum):
    """Outcome of appending a measurement to a series."""

    #: Appended as the newest measurement.
    APPENDED = "appended"
    #: The series restarts with this measurement: it is older than the newest, so all were dropped.
    BEGUN_ANEW = "begun-anew"
    #: Rejected: time, value or weight is not a finite number, or one is above :data:`LARGEST`.
    NOT_FINITE = "not-finite"
    #: Rejected: nothing was measured, as the weight (e.g. number of probes) is 0 or negative.
    NO_WEIGHT = "no-weight"
    #: Rejected: the series already has a measurement at this time.
    SAME_TIME = "same-time"


@dataclass(frozen=True, slots=True)
class Appended:
    """The series after appending a measurement, and the outcome.

    Attributes:
        series: the extended series; unchanged if the measurement was rejected.
        outcome: whether it was appended; if not, the reason.
    """

    series: Series
    outcome: AppendOutcome


@dataclass(frozen=True, slots=True)
class Series:
    """The newest measurements of one statistic; the three tuples are equally long.

    Attributes:
        length: maximum number of measurements, and of periods that they span.
        half_life: seconds after which a measurement's weight has halved; infinite: no fading.
        times: ends of the measured periods, in seconds since a fixed origin; they increase.
        values: measurements, in the statistic's unit.
        weights: relative weight of each measurement, e.g. the number of probes behind a ratio.

    Raises:
        StatisticsError: a field is out of range; the error names ``series.length``,
            ``series.half_life`` or ``series.measurements``.

    >>> series = Series(length=3)
    >>> for time, value in ((0.0, 5.0), (3.0, 7.0), (9.0, 11.0), (12.0, 13.0)):
    ...     series = series.append(time, value).series
    >>> series.values
    (7.0, 11.0, 13.0)
    >>> series.append(1.0, 4.0).series.values
    (4.0,)
    """

    length: int = 60
    half_life: float = 60.0
    times: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not SHORTEST <= self.length <= LONGEST:
            raise StatisticsError(
                "invalid-series",
                f"a series can't be bounded to {self.length} measurements",
                field="series.length",
                remedy=f"give a whole number from {SHORTEST} to {LONGEST}",
            )
        if not self.half_life > 0:
            raise StatisticsError(
                "invalid-series",
                f"a series can't have a half-life of {self.half_life} s",
                field="series.half_life",
                remedy="give seconds, above 0; infinite: nothing fades",
            )
        counts = {len(self.times), len(self.values), len(self.weights)}
        if len(counts) > 1 or len(self.times) > self.length or not self._in_order():
            raise StatisticsError(
                "invalid-series",
                "there are more measurements than the length, or some are not finite, lack a time, "
                "value or weight, or are not in order of time",
                field="series.measurements",
                remedy="build the series by append, which reports rejected measurements",
            )

    def __len__(self) -> int:
        return len(self.times)

    def append(self, time: float, value: float, weight: float = 1.0) -> Appended:
        """The series with one more measurement; if it is full, its oldest one is dropped."""
        fault = _fault(time, value, weight)
        if fault is not None:
            return Appended(self, fault)
        if self.times and time == self.times[-1]:
            return Appended(self, AppendOutcome.SAME_TIME)
        anew = bool(self.times) and time < self.times[-1]
        begin = len(self) if anew else max(0, len(self) + 1 - self.length)
        longer = replace(
            self,
            times=(*self.times[begin:], time),
            values=(*self.values[begin:], value),
            weights=(*self.weights[begin:], weight),
        )
        return Appended(longer, AppendOutcome.BEGUN_ANEW if anew else AppendOutcome.APPENDED)

    @staticmethod
    def of(
        measurements: Iterable[tuple[float, float, float]],
        length: int = 60,
        half_life: float = 60.0,
    ) -> Series:
        """The series after appending each (time, value, weight), built in a single pass.

        >>> Series.of([(0.0, 1.0, 9.0), (3.0, 2.0, 0.0), (6.0, 3.0, 9.0)]).values
        (1.0, 3.0)
        """
        kept: list[tuple[float, float, float]] = []
        for time, value, weight in measurements:
            if _fault(time, value, weight) is not None or (kept and time == kept[-1][0]):
                continue
            if kept and time < kept[-1][0]:
                kept.clear()
            kept.append((time, value, weight))
        times, values, weights = zip(*kept[-length:], strict=True) if kept else ((), (), ())
        return Series(length, half_life, times, values, weights)

    def _in_order(self) -> bool:
        """Whether each measurement could have been appended to those before it."""
        measurements = zip(self.times, self.values, self.weights, strict=True)
        return all(a < b for a, b in pairwise(self.times)) and all(
            _fault(*measurement) is None for measurement in measurements
        )


def _fault(time: float, value: float, weight: float) -> AppendOutcome | None:
    """Reason for rejecting an invalid measurement; None if it is valid."""
    # Written so that NaN is rejected: comparisons with it are false.
    if not (abs(time) <= LARGEST and abs(value) <= LARGEST and abs(weight) <= LARGEST):
        return AppendOutcome.NOT_FINITE
    return None if weight >= LIGHTEST else AppendOutcome.NO_WEIGHT
