"""Targets of the planner as data, and the verdicts on them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from benchmarks.planner.runs import Shape
from benchmarks.report.figures import Spread
from benchmarks.report.targets import SIZES, Figure, Verdict, keeps

MEBI = 2**20


class Kind(StrEnum):
    """Kind of a target; figures are medians over seeds.

    * ``PROVEN``: maximum seconds to the proven optimum.
    * ``CERTIFIED``: maximum gap that is proven ``within`` this many seconds.
    * ``ADDED``: maximum seconds of planning one more query, proven ``within`` a gap.
    * ``SAVED``: minimum share of the probes of individually optimised plans that the joint plan
    saves.
    * ``FASTER``: minimum ratio of the printed program's time to the tight one's.
    * ``ALONE``: of the problems on which the printed program proves nothing ``within`` seconds, the
      minimum share that the tight one solves.
    * ``MEMORY``: maximum peak memory of any process, in bytes.
    """

    PROVEN = "proven"
    CERTIFIED = "certified"
    ADDED = "added"
    SAVED = "saved"
    FASTER = "faster"
    ALONE = "alone"
    MEMORY = "memory"


#: Kinds of targets whose figure must be at least the target.
AT_LEAST = (Kind.SAVED, Kind.FASTER, Kind.ALONE)


@dataclass(frozen=True, slots=True)
class Target:
    """A target of the planner; ``shape`` is None if the target is about all shapes."""

    kind: Kind
    shape: Shape | None
    wanted: float
    within: float = 0.0

    def met(self, median: float) -> bool:
        """Whether ``median`` reaches the target."""
        return keeps(median, self.wanted, self.kind in AT_LEAST)


TARGETS = (
    Target(Kind.PROVEN, Shape(100, 100, 3), 0.1),
    Target(Kind.PROVEN, Shape(100, 10, 4), 0.1),
    Target(Kind.PROVEN, Shape(100, 100, 4), 1.0),
    Target(Kind.PROVEN, Shape(100, 10, 5), 1.0),
    Target(Kind.PROVEN, Shape(100, 30, 5), 2.5),
    Target(Kind.PROVEN, Shape(100, 1000, 3), 1.5),
    Target(Kind.PROVEN, Shape(1000, 1000, 3), 3.0),
    Target(Kind.PROVEN, Shape(100, 10, 6), 4.0),
    Target(Kind.CERTIFIED, Shape(100, 30, 5), 0.01, within=0.7),
    Target(Kind.CERTIFIED, Shape(100, 100, 5), 0.005, within=5.0),
    Target(Kind.ADDED, Shape(100, 1000, 3), 0.2, within=0.01),
    Target(Kind.ADDED, Shape(1000, 1000, 3), 0.2, within=0.01),
    Target(Kind.FASTER, Shape(100, 100, 3), 20.0),
    Target(Kind.FASTER, Shape(100, 10, 4), 100.0),
    Target(Kind.ALONE, Shape(100, 10, 5), 1.0, within=60.0),
    Target(Kind.SAVED, Shape(10, 100, 3), 0.40),
    Target(Kind.SAVED, Shape(100, 100, 3), 0.15),
    Target(Kind.MEMORY, None, 500 * MEBI),
)


def of_kind(kind: Kind) -> list[tuple[Target, Shape]]:
    """Return the targets of one kind, with their shapes."""
    return [(t, t.shape) for t in TARGETS if t.kind is kind and t.shape is not None]


def verdict(
    target: Target, found: dict[str, float], *, met: bool | None = None, **about: Any
) -> dict[str, Any]:
    """Return a target with its measured figure, as JSON.

    Args:
        found: the figure, a rounded :class:`Spread`.
        met: whether the target is met, if more than the median decides; the verdict in tables is
            based on the interval (:func:`judged`).
        about: settings under which the figure was measured.
    """
    return {
        "kind": str(target.kind),
        "shape": str(target.shape or ""),
        "wanted": target.wanted,
        "within": target.within,
        "found": found,
        "met": target.met(found["median"]) if met is None else met,
        **about,
    }


def judged(saved: dict[str, Any], runs: int) -> tuple[Figure, Verdict]:
    """Return the figure of a saved target with its interval, and the verdict.

    Args:
        saved: a result of :func:`verdict`.
        runs: number of problems of the line, if the target does not state its own.
    """
    kind, wanted, found = Kind(saved["kind"]), saved["wanted"], saved["found"]
    count = saved.get("problems", saved.get("runs", runs))
    match kind:
        case Kind.MEMORY:
            figure = Figure.once(found["high"], SIZES)
        case Kind.ALONE:
            figure = Figure.counted(found["median"], count)
        case _:
            figure = Figure.of(found, count)
    unproven = kind is Kind.PROVEN and saved["proven"] < count
    if saved.get("at_least") or unproven:
        # The greatest times are lower bounds, since the limit stopped these runs.
        figure = replace(figure, interval=(figure.interval[0], math.inf))
    least = kind in AT_LEAST
    conditions = [figure.verdict(wanted, least=least)]
    if kind is Kind.CERTIFIED:
        conditions.append(Figure.of(saved["seconds"], count).verdict(saved["within"], least=False))
    if not saved["met"] and keeps(figure.value, wanted, least):
        # The figure is within its limit, so the target is missed because too few problems were
        # proven.
        conditions.append(Verdict.NO)
    return figure, Verdict.all(conditions)


def memory_verdicts(
    targets: Iterable[Target], peaks: Iterable[int], **about: Any
) -> list[dict[str, Any]]:
    """Return the memory targets with the peaks of processes; the highest peak decides."""
    found = Spread.of(peaks).rounded(0)
    return [
        verdict(t, found, met=t.met(found["high"]), **about)
        for t in targets
        if t.kind is Kind.MEMORY
    ]
