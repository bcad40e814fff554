"""Targets of benchmarks, and verdicts on them from intervals of figures.

A median within its limit proves nothing if repeated runs are on both sides of the limit. So a
verdict depends on an interval that contains the figure without noise: *yes* if all of the interval
is within the limit, *no* if none of it is, *undecided* otherwise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from benchmarks.report.figures import Spread, student
from benchmarks.report.grids import Grid

#: Least and greatest possible value of a figure.
Interval = tuple[float, float]


#: Number of runs from which on their range is used as the interval. All of five runs are above the
#: true median with a probability of 3 %, all of three with 13 %.
FEW = 5
#: Factor between a median and the ends of its interval if there are fewer runs. For three of four
#: timed figures with at least five runs on these pages, all runs are within this factor.
NOISE = 1.6
#: The same factor for sizes of state and of processes.
SIZES = 1.02
_COUNTED = "counted"
_RULES = f"""\
*Met* compares the target's limit with an interval: *yes* if all of the interval meets the limit,
*no* if none of it does, *undecided* if the limit is inside. The interval is the 95 % confidence
interval of the median (sign test) if the figures of single runs are saved, else the range of all
runs; with fewer than {FEW} runs it extends by at least a factor of {NOISE:g} to both sides of the
median ({SIZES:g} for sizes). For means it is Student's 95 % interval over the cases.
*{_COUNTED.capitalize()}* figures are the same in every run.
"""


class Verdict(StrEnum):
    """Verdict on a target."""

    YES = "yes"
    NO = "no"
    UNDECIDED = "undecided"

    @staticmethod
    def all(verdicts: Iterable[Verdict]) -> Verdict:
        """Combine the verdicts on several conditions of one target."""
        found = set(verdicts)
        return next((v for v in (Verdict.NO, Verdict.UNDECIDED) if v in found), Verdict.YES)


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured or counted figure, and the interval that contains it.

    Attributes:
        value: median or mean.
        low, high: range of the runs or cases.
        runs: number of runs; None: a counted figure, which is equal in every run.
        interval: interval for the verdict.
    """

    value: float
    low: float
    high: float
    runs: int | None
    interval: Interval

    @classmethod
    def counted(cls, value: float, runs: int | None = None) -> Figure:
        """Return a figure without noise; ``runs``: number of runs, if another run may differ."""
        return cls(value, value, value, runs, (value, value))

    @classmethod
    def of(
        cls, saved: Mapping[str, Any], runs: int, unit: float = 1, noise: float = NOISE
    ) -> Figure:
        """Return a median from its saved spread.

        Args:
            saved: ``median``, ``low``, ``high`` and, in newer lines, ``runs`` and ``interval``.
            runs: number of runs, if it is not saved.
            unit: the figure that is shown as one.
            noise: least factor between the median of few runs and the ends of its interval.
        """
        median, low, high = (saved[name] / unit for name in ("median", "low", "high"))
        count = saved.get("runs", runs)
        ends = tuple(end / unit for end in saved.get("interval", (saved["low"], saved["high"])))
        interval = _widened(median, (min(ends), max(ends)), count, noise)
        return cls(median, low, high, count, interval)

    @classmethod
    def median(cls, values: Iterable[float]) -> Figure:
        """Return the median of runs."""
        found = list(values)
        return cls.of(Spread.of(found).rounded(12), len(found))

    @classmethod
    def once(cls, value: float, noise: float = NOISE) -> Figure:
        """Return a figure that was measured in a single run."""
        return cls(value, value, value, 1, _widened(value, (value, value), 1, noise))

    @classmethod
    def mean(cls, values: Sequence[float]) -> Figure:
        """Return the mean over cases; a single case has the interval of a single run."""
        value = statistics.fmean(values)
        if len(values) == 1:
            return cls.once(value)
        return cls(value, min(values), max(values), len(values), student(values))

    @classmethod
    def of_mean(cls, saved: Mapping[str, Any], unit: float = 1) -> Figure:
        """Return a mean from its saved ``mean``, ``low``, ``high``, ``of`` and ``interval``; older
        lines have no interval, and their range is used instead.
        """
        mean, low, high = (saved[name] / unit for name in ("mean", "low", "high"))
        first, last = (end / unit for end in saved.get("interval", (saved["low"], saved["high"])))
        return cls(mean, low, high, saved["of"], (first, last))

    def over(self, under: Figure) -> Figure:
        """Return the ratio to another figure, of unpaired runs: each end of the interval is a ratio
        of ends, infinite if the other figure may be 0.
        """
        return Figure(
            _over(self.value, under.value),
            _over(self.low, under.high),
            _over(self.high, under.low),
            self.runs,
            (
                _over(self.interval[0], under.interval[1]),
                _over(self.interval[1], under.interval[0]),
            ),
        )

    def plus(self, other: Figure) -> Figure:
        """Return the sum with another figure, end by end."""
        return Figure(
            self.value + other.value,
            self.low + other.low,
            self.high + other.high,
            self.runs,
            (self.interval[0] + other.interval[0], self.interval[1] + other.interval[1]),
        )

    def widened(self) -> Figure:
        """Widen the interval of few runs again, after a change of unit (:meth:`map`)."""
        runs = self.runs
        if runs is None:
            return self
        return replace(self, interval=_widened(self.value, (self.low, self.high), runs))

    def map(self, into: Callable[[float], float]) -> Figure:
        """Return the figure in another unit; ``into``: monotone conversion."""
        low, high = sorted((into(self.low), into(self.high)))
        first, last = sorted(map(into, self.interval))
        return Figure(into(self.value), low, high, self.runs, (first, last))

    def verdict(self, limit: float, *, least: bool) -> Verdict:
        """Return the verdict on the condition that the figure is at most (``least``: at least)
        ``limit``.

        >>> Figure.median([0.9, 0.95, 1.2, 1.3, 0.8]).verdict(1, least=False)
        <Verdict.UNDECIDED: 'undecided'>
        """
        low, high = self.interval
        bad, good = (low, high) if least else (high, low)
        if keeps(bad, limit, least):
            return Verdict.YES
        return Verdict.UNDECIDED if keeps(good, limit, least) else Verdict.NO

    def shown(self, digits: int, unit: str) -> tuple[str, str, str]:
        """Return the figure with its range, number of runs and interval, as a cell of a table."""
        value = _number(self.value, digits)
        if self.runs is None:
            return f"{value}{unit}", _COUNTED, ""
        spread = "" if self.low == self.high else f" ({_between((self.low, self.high), digits)})"
        return f"{value}{unit}{spread}", f"{self.runs:,}", _between(self.interval, digits)


def keeps(figure: float, limit: float, least: bool) -> bool:
    """Whether a figure without noise is within its limit."""
    return figure >= limit if least else figure <= limit


@dataclass(frozen=True, slots=True)
class Target:
    """A figure with the limit that it should keep.

    Attributes:
        what: name of the figure.
        figure: the measured figure.
        limit: the limit. ``least``: whether it is a minimum, not a maximum.
        digits, unit: decimal digits and unit of the figure in tables.
        also: verdict on further conditions. ``note``: description of these.
    """

    what: str
    figure: Figure
    limit: float
    least: bool
    digits: int = 2
    unit: str = ""
    also: Verdict = Verdict.YES
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        """Return the verdict on the target."""
        return Verdict.all((self.figure.verdict(self.limit, least=self.least), self.also))

    def row(self) -> tuple[str, ...]:
        """Return the target as a row of a table."""
        sign = "≥" if self.least else "≤"
        found, runs, interval = self.figure.shown(self.digits, self.unit)
        note = f"; {self.note}" if self.note else ""
        wanted = f"{sign} {self.limit:,.10g}{self.unit}"
        return self.what, wanted, found + note, runs, interval, str(self.verdict)


def grid(targets: Iterable[Target]) -> Grid:
    """Return the table of some targets."""
    head = ("target", "wanted", "found: median or mean (range)", "runs or cases", "interval", "met")
    return Grid("targets", head, tuple(target.row() for target in targets))


def paragraphs(made: Grid) -> list[str]:
    """Return the table and an explanation of its verdicts, for a page; nothing without targets."""
    return [made.markdown(), _RULES] if made.rows else []


def table(
    readers: Mapping[str, Callable[[dict[str, Any]], Iterator[Target]]],
    newest: Mapping[str, dict[str, Any]],
) -> Grid:
    """Return the table of every target that has figures.

    Args:
        readers: benchmark -> function from its line to its targets.
        newest: benchmark -> its newest line.
    """
    return grid(
        target for part, read in readers.items() if part in newest for target in read(newest[part])
    )


def _widened(median: float, ends: Interval, runs: int, noise: float = NOISE) -> Interval:
    """Widen the interval of few runs to a factor of ``noise``; equal runs have no noise."""
    if runs >= FEW or (runs > 1 and ends[0] == ends[1]):
        return ends
    around = sorted((median / noise, median * noise))
    return min(ends[0], around[0]), max(ends[1], around[1])


def _over(above: float, below: float) -> float:
    return above / below if below > 0 else math.inf


def _between(ends: Interval, digits: int) -> str:
    return f"{_number(ends[0], digits)}–{_number(ends[1], digits)}"


def _number(value: float, digits: int) -> str:
    return "∞" if math.isinf(value) else f"{value:,.{digits}f}"
