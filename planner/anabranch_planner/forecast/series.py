"""Time series of a statistic's measurements, bounded in length.

An invalid measurement is left out. A measurement older than the newest one restarts the series: the
clock was set back, or the source restarted, so earlier times no longer order the values.

Periods may be missing. Weights fade with time (:mod:`.grid`), so values before a gap count less.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from anabranch_contract.errors import StatisticsError

#: Least and greatest value of :attr:`Series.length`.
SHORTEST, LONGEST = 2, 10_000
#: Greatest value and weight, so that sums of squares stay finite.
LARGEST = 1e100
#: Least weight, so that sums of squares do not underflow.
LIGHTEST = 1e-100


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
                remedy="build the series by Series.of, which leaves such measurements out",
            )

    def __len__(self) -> int:
        return len(self.times)

    @staticmethod
    def of(
        measurements: Iterable[tuple[float, float, float]],
        length: int = 60,
        half_life: float = 60.0,
    ) -> Series:
        """The series of valid (time, value, weight) measurements, in the order of arrival.

        >>> measured = [(0.0, 1.0, 9.0), (3.0, 2.0, 0.0), (6.0, 3.0, 9.0), (6.0, 4.0, 9.0)]
        >>> Series.of(measured).values
        (1.0, 3.0)
        >>> Series.of([*measured, (5.0, 7.0, 1.0)]).values
        (7.0,)
        """
        kept: list[tuple[float, float, float]] = []
        for time, value, weight in measurements:
            if not _is_valid(time, value, weight) or (kept and time == kept[-1][0]):
                continue
            if kept and time < kept[-1][0]:
                kept.clear()
            kept.append((time, value, weight))
        times, values, weights = zip(*kept[-length:], strict=True) if kept else ((), (), ())
        return Series(length, half_life, times, values, weights)

    def _in_order(self) -> bool:
        """Whether each measurement of the series is valid, and later than the one before it."""
        measurements = zip(self.times, self.values, self.weights, strict=True)
        return all(a < b for a, b in pairwise(self.times)) and all(
            _is_valid(*measurement) for measurement in measurements
        )


def _is_valid(time: float, value: float, weight: float) -> bool:
    # Written so that NaN is rejected: comparisons with it are false.
    finite = abs(time) <= LARGEST and abs(value) <= LARGEST and abs(weight) <= LARGEST
    return finite and weight >= LIGHTEST
