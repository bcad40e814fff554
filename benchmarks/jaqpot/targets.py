"""What the paper reports, as targets, and what the simulation finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.jaqpot.plans import Shape
from benchmarks.jaqpot.throughput import SHARES
from benchmarks.report.grids import Grid
from benchmarks.report.targets import Target

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Times the best rival's results, on average (section 5.1).
RATIOS = {Shape.LINEAR: 2.5, Shape.BUSHY: 2.0}


def targets(entry: dict[str, Any]) -> Grid:
    """Every target."""
    rows = tuple(target.row() for target in _targets(entry))
    return Grid("targets", ("target", "wanted", "found (mean)", "met"), rows)


def _targets(entry: dict[str, Any]) -> Iterator[Target]:
    for one in entry["throughput"]:
        what = f"{one['shape']}: JAQPOT's results, times those of the best rival"
        yield Target(what, one["ratio"]["mean"], RATIOS[one["shape"]], True)
    linear = next(one for one in entry["throughput"] if one["shape"] == Shape.LINEAR)
    at_60 = linear["results"]["JAQPOT"][SHARES.index(60)]["mean"]
    yield Target(
        "linear: share of saturation's results at 60 % of μ", 100 * at_60, 80, True, 1, " %"
    )
    for one in entry["freshness"]:
        if one["factor"] == 5 and one["taken"] is not None:
            what = f"{one['shape']}: share of μ that freshness takes at 5 windows"
            yield Target(what, 100 * one["taken"]["mean"], 5, False, 1, " %")
    for one in entry["decisions"]["exact"]:
        if one["cost"] is not None:
            what = f"{one['plans']}: cost of greedy covers, over exact ones"
            yield Target(what, one["cost"]["mean"], 1.11, False, 3)
