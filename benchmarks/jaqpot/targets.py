"""What the paper reports and what is wanted of the runtime, as targets, and what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.jaqpot.plans import Shape
from benchmarks.jaqpot.rations.budgets import ratios
from benchmarks.jaqpot.rations.policies import EXACT, OURS, RIVALS
from benchmarks.jaqpot.sums import mean
from benchmarks.jaqpot.throughput import SHARES
from benchmarks.report.grids import Grid
from benchmarks.report.targets import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Times the best rival's results, on average (section 5.1).
RATIOS = {Shape.LINEAR: 2.5, Shape.BUSHY: 2.0}


#: Of the runtime: times the best rival's results over the selective chain; of the optimum's.
MEASURED_RATIO, OF_EXACT = 2.0, 0.95
#: CPU time of batches with the policy, over those without; milliseconds of one allocation, and
#: over how many edges; the 99th percentile of latency, over its goal.
COST, ALLOCATION, EDGES, LATENCY = 1.01, 10.0, 1000, 1.2


def targets(entry: dict[str, Any]) -> Grid:
    """Every target of the simulation."""
    return _grid(_targets(entry))


def all_targets(simulated: dict[str, Any] | None, measured: Sequence[dict[str, Any]]) -> Grid:
    """Every target that there are figures for, those of the runtime first.

    Args:
        measured: the newest line of each part.
    """
    found = [target for entry in measured for target in _measured(entry)]
    return _grid(iter([*found, *(_targets(simulated) if simulated else ())]))


def _grid(found: Iterator[Target]) -> Grid:
    rows = tuple(target.row() for target in found)
    return Grid("targets", ("target", "wanted", "found (mean)", "met"), rows)


def _measured(entry: dict[str, Any]) -> Iterator[Target]:
    if entry["part"] == "budgets":
        yield from _budgets(entry)
    elif entry["part"] == "forests":
        least = min(one["least"] for one in entry["budgets"])
        yield Target("simulated, random forests: results, times GrePP's, least", least, 1.0, True)
    elif entry["part"] == "cost":
        ratio = entry["batches"]["ratio"]
        yield Target("measured: CPU time of 'ration', times that of 'wait'", ratio, COST, False, 4)
        largest = entry["planning"][-1]
        what = f"measured: one allocation over {largest['edges']} edges"
        yield Target(what, largest["allocation"]["median"], ALLOCATION, False, 1, " ms")
    elif entry["part"] == "overload":
        yield from _overload(entry)


def _budgets(entry: dict[str, Any]) -> Iterator[Target]:
    for one in entry["workloads"]:
        name, found = one["workload"], one["policies"]
        over = ratios(one, RIVALS)
        if name == "selective" and over:
            what = f"measured, {name}: results, times those of the best rival"
            yield Target(what, mean(over), MEASURED_RATIO, True)
        exact = ratios(one, [EXACT])
        if exact:
            what = f"measured, {name}: results, times the optimum's, least"
            yield Target(what, min(exact), OF_EXACT, True, 3)
        if OURS[0] in found:
            off = mean(100 * row["used"] - row["share"] for row in found[OURS[0]])
            what = f"measured, {name}: CPU time used beyond the budget, points"
            yield Target(what, off, 5.0, False, 1)


def _overload(entry: dict[str, Any]) -> Iterator[Target]:
    name, goal = entry["settings"]["workload"], entry["settings"]["latency"]
    alone = {one["times"]: one["p99"] for one in entry["runs"] if one["policy"] == "storing"}
    rationed = [one for one in entry["runs"] if one["policy"] not in ("wait", "storing")]
    fitting = [one["p99"] / goal for one in rationed if alone[one["times"]] <= goal]
    if fitting:
        what = f"live, {name}: 99 % of latencies, times the goal, where storing alone fits, most"
        yield Target(what, max(fitting), LATENCY, False)
    stale = [one["stale"]["stale"] for one in rationed if one["stale"] is not None]
    if stale:
        yield Target(f"live, {name}: stale results", sum(stale), 0, False, 0)


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
