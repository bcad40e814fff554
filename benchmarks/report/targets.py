"""Targets, and the verdict of an interval on each.

A median on the right side of its limit says nothing where repeated runs lie on both sides. So a
verdict is taken from an interval, in which the figure is without noise: *yes* if all of it keeps
the limit, *no* if none of it does, *undecided* otherwise.
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

#: Least and greatest figure.
Interval = tuple[float, float]


#: Runs from which on their range is the interval. All of five lie above the median of very many
#: runs with a probability of 3 %, all of three with one of 13 %.
FEW = 5
#: Factor between a median and its interval's ends where runs are fewer. In three of four timed
#: figures with five runs or more on these pages the run furthest from the median is within it.
NOISE = 1.6
#: The same of sizes of state and of processes.
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
    """Whether a target is met."""

    YES = "yes"
    NO = "no"
    UNDECIDED = "undecided"

    @staticmethod
    def all(verdicts: Iterable[Verdict]) -> Verdict:
        """The verdict on several conditions of one target."""
        found = set(verdicts)
        return next((v for v in (Verdict.NO, Verdict.UNDECIDED) if v in found), Verdict.YES)


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured or counted figure and the interval that it is in.

    Attributes:
        value: median or mean.
        low, high: range of the runs or cases.
        runs: how many; None: counted, so that every run has the same.
        interval: for the verdict.
    """

    value: float
    low: float
    high: float
    runs: int | None
    interval: Interval

    @classmethod
    def counted(cls, value: float, runs: int | None = None) -> Figure:
        """A figure without noise; ``runs``: number of its runs, where another may differ."""
        return cls(value, value, value, runs, (value, value))

    @classmethod
    def of(
        cls, saved: Mapping[str, Any], runs: int, unit: float = 1, noise: float = NOISE
    ) -> Figure:
        """A median from its saved spread.

        Args:
            saved: ``median``, ``low``, ``high``, and of newer lines ``runs`` and ``interval``.
            runs: their number where it is not saved.
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
        """The median of runs."""
        found = list(values)
        return cls.of(Spread.of(found).rounded(12), len(found))

    @classmethod
    def once(cls, value: float, noise: float = NOISE) -> Figure:
        """A figure that was measured in one run."""
        return cls(value, value, value, 1, _widened(value, (value, value), 1, noise))

    @classmethod
    def mean(cls, values: Sequence[float]) -> Figure:
        """The mean over cases; one case has the interval of one run."""
        value = statistics.fmean(values)
        if len(values) == 1:
            return cls.once(value)
        return cls(value, min(values), max(values), len(values), student(values))

    @classmethod
    def of_mean(cls, saved: Mapping[str, Any], unit: float = 1) -> Figure:
        """A mean from its saved ``mean``, ``low``, ``high``, ``of`` and ``interval``; older lines
        have no interval, and their range is taken for it.
        """
        mean, low, high = (saved[name] / unit for name in ("mean", "low", "high"))
        first, last = (end / unit for end in saved.get("interval", (saved["low"], saved["high"])))
        return cls(mean, low, high, saved["of"], (first, last))

    def over(self, under: Figure) -> Figure:
        """The ratio to another figure, of runs that are not paired: each end is a ratio of ends,
        infinite where the other may be 0.
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
        """The sum with another figure, end by end."""
        return Figure(
            self.value + other.value,
            self.low + other.low,
            self.high + other.high,
            self.runs,
            (self.interval[0] + other.interval[0], self.interval[1] + other.interval[1]),
        )

    def widened(self) -> Figure:
        """Widen the interval of few runs once more, after a change of unit (:meth:`map`)."""
        runs = self.runs
        if runs is None:
            return self
        return replace(self, interval=_widened(self.value, (self.low, self.high), runs))

    def map(self, into: Callable[[float], float]) -> Figure:
        """The same figure in another unit; ``into`` is monotone."""
        low, high = sorted((into(self.low), into(self.high)))
        first, last = sorted(map(into, self.interval))
        return Figure(into(self.value), low, high, self.runs, (first, last))

    def verdict(self, limit: float, *, least: bool) -> Verdict:
        """Whether all of the interval, or none of it, is at most (``least``: at least) ``limit``.

        >>> Figure.median([0.9, 0.95, 1.2, 1.3, 0.8]).verdict(1, least=False)
        <Verdict.UNDECIDED: 'undecided'>
        """
        low, high = self.interval
        bad, good = (low, high) if least else (high, low)
        if keeps(bad, limit, least):
            return Verdict.YES
        return Verdict.UNDECIDED if keeps(good, limit, least) else Verdict.NO

    def shown(self, digits: int, unit: str) -> tuple[str, str, str]:
        """The figure with its range, the number of runs, and the interval, for a table."""
        value = _number(self.value, digits)
        if self.runs is None:
            return f"{value}{unit}", _COUNTED, ""
        spread = "" if self.low == self.high else f" ({_between((self.low, self.high), digits)})"
        return f"{value}{unit}{spread}", f"{self.runs:,}", _between(self.interval, digits)


def keeps(figure: float, limit: float, least: bool) -> bool:
    """Whether a figure without noise keeps its limit."""
    return figure >= limit if least else figure <= limit


@dataclass(frozen=True, slots=True)
class Target:
    """A figure with its limit.

    Attributes:
        what: the figure's name.
        figure: the measured figure.
        limit: the bound; ``least``: whether the figure has to be at least that.
        digits, unit: of the figure, for tables.
        also: verdict on conditions beside the figure, and ``note``: what they are.
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
        """Whether it is met."""
        return Verdict.all((self.figure.verdict(self.limit, least=self.least), self.also))

    def row(self) -> tuple[str, ...]:
        """For a table."""
        sign = "≥" if self.least else "≤"
        found, runs, interval = self.figure.shown(self.digits, self.unit)
        note = f"; {self.note}" if self.note else ""
        wanted = f"{sign} {self.limit:,.10g}{self.unit}"
        return self.what, wanted, found + note, runs, interval, str(self.verdict)


def grid(targets: Iterable[Target]) -> Grid:
    """The table of some targets."""
    head = ("target", "wanted", "found: median or mean (range)", "runs or cases", "interval", "met")
    return Grid("targets", head, tuple(target.row() for target in targets))


def paragraphs(made: Grid) -> list[str]:
    """The table and how its verdicts come about, for a page; nothing without targets."""
    return [made.markdown(), _RULES] if made.rows else []


def table(
    readers: Mapping[str, Callable[[dict[str, Any]], Iterator[Target]]],
    newest: Mapping[str, dict[str, Any]],
) -> Grid:
    """Every target that there are figures for.

    Args:
        readers: part -> its targets, by its line.
        newest: part -> its newest line.
    """
    return grid(
        target for part, read in readers.items() if part in newest for target in read(newest[part])
    )


def _widened(median: float, ends: Interval, runs: int, noise: float = NOISE) -> Interval:
    """At least a factor of ``noise`` about the median of few runs; equal runs have no noise."""
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
