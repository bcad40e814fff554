"""Targets of the planner, as data, and the verdicts on them."""

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

    * ``PROVEN``: seconds to the proven optimum, at most.
    * ``CERTIFIED``: the gap that is proven ``within`` seconds, at most.
    * ``ADDED``: seconds in which one query more is planned, at most, proven ``within`` a gap.
    * ``SAVED``: the share of the probes of individually optimised plans that is saved, at least.
    * ``FASTER``: how many times faster the tight formulation is than the printed one, at least.
    * ``ALONE``: the share of the problems on which the printed one proves nothing ``within``
      seconds that the tight one proves, at least.
    * ``MEMORY``: the peak of any process in bytes, at most.
    """

    PROVEN = "proven"
    CERTIFIED = "certified"
    ADDED = "added"
    SAVED = "saved"
    FASTER = "faster"
    ALONE = "alone"
    MEMORY = "memory"


#: Kinds whose figure must be at least the target.
AT_LEAST = (Kind.SAVED, Kind.FASTER, Kind.ALONE)


@dataclass(frozen=True, slots=True)
class Target:
    """One target; ``shape`` is None where it is about all of them."""

    kind: Kind
    shape: Shape | None
    wanted: float
    within: float = 0.0

    def met(self, median: float) -> bool:
        """Whether ``median`` reaches it."""
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
    """The targets of one kind and their shapes."""
    return [(t, t.shape) for t in TARGETS if t.kind is kind and t.shape is not None]


def verdict(
    target: Target, found: dict[str, float], *, met: bool | None = None, **about: Any
) -> dict[str, Any]:
    """A target beside its measured figure, as JSON.

    Args:
        found: a rounded spread.
        met: whether the median meets it, where more than the median decides; the table's verdict
            is that of its interval (:func:`judged`).
        about: under which settings it was found.
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
    """A saved target's figure with its interval, and the verdict.

    Args:
        saved: what :func:`verdict` made.
        runs: problems of the line, where the target does not say how many it is of.
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
        # The greatest times are those at which the limit stopped a run.
        figure = replace(figure, interval=(figure.interval[0], math.inf))
    least = kind in AT_LEAST
    conditions = [figure.verdict(wanted, least=least)]
    if kind is Kind.CERTIFIED:
        conditions.append(Figure.of(saved["seconds"], count).verdict(saved["within"], least=False))
    if not saved["met"] and keeps(figure.value, wanted, least):
        # The figure keeps its limit, so something else failed: too few problems were proven.
        conditions.append(Verdict.NO)
    return figure, Verdict.all(conditions)


def memory_verdicts(
    targets: Iterable[Target], peaks: Iterable[int], **about: Any
) -> list[dict[str, Any]]:
    """The targets for memory and the peaks of processes; the highest decides."""
    found = Spread.of(peaks).rounded(0)
    return [
        verdict(t, found, met=t.met(found["high"]), **about)
        for t in targets
        if t.kind is Kind.MEMORY
    ]
