"""Targets on limited CPU time: the paper's figures for simulations, our own for the runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.papers.jaqpot.plans import Shape
from benchmarks.papers.jaqpot.rations import cost
from benchmarks.papers.jaqpot.rations.budgets import ratios
from benchmarks.papers.jaqpot.rations.policies import EXACT, OURS, RIVALS
from benchmarks.papers.jaqpot.sums import mean
from benchmarks.papers.jaqpot.throughput import SHARES
from benchmarks.report.grids import Grid
from benchmarks.report.targets import Figure, Target, grid

#: Shape -> results relative to the best rival's, on average (section 5.1).
RATIOS = {Shape.LINEAR: 2.5, Shape.BUSHY: 2.0}


#: Targets of the runtime: results relative to the best rival's over the selective chain, and
#: relative to the optimum's.
MEASURED_RATIO, OF_EXACT = 2.0, 0.95
#: Targets: CPU time of batches with rationing, relative to those without; milliseconds of one
#: allocation, and its number of edges; 99th percentile of latency, relative to the goal.
COST, ALLOCATION, EDGES, LATENCY = 1.01, 10.0, 1000, 1.2


def targets(entry: dict[str, Any]) -> Grid:
    """Return every target of the simulations."""
    return grid(_targets(entry))


def all_targets(simulated: dict[str, Any] | None, measured: Sequence[dict[str, Any]]) -> Grid:
    """Return every target that has figures, the runtime's targets first.

    Args:
        measured: the newest line of each measured benchmark.
    """
    found = [target for entry in measured for target in _measured(entry)]
    return grid([*found, *(_targets(simulated) if simulated else ())])


def _measured(entry: dict[str, Any]) -> Iterator[Target]:
    if entry["part"] == "budgets":
        yield from _budgets(entry)
    elif entry["part"] == "forests":
        least = Figure.counted(min(one["least"] for one in entry["budgets"]))
        yield Target("simulated, random forests: results, times GrePP's, least", least, 1.0, True)
    elif entry["part"] == "cost":
        found = entry["batches"]
        ratio, low, high = (found[name] for name in ("ratio", "low", "high"))
        # The least and the greatest ratio of the pairs are not saved in the line.
        figure = Figure(ratio, ratio, ratio, found["pairs"], (low, high))
        yield Target("measured: CPU time of 'ration', times that of 'wait'", figure, COST, False, 4)
        largest = entry["planning"][-1]
        what = f"measured: one allocation over {largest['edges']} edges"
        took = Figure.of(largest["allocation"], cost.ROUNDS)
        yield Target(what, took, ALLOCATION, False, 1, " ms")
    elif entry["part"] == "overload":
        yield from _overload(entry)


def _budgets(entry: dict[str, Any]) -> Iterator[Target]:
    """Return the targets on budgets; of CPU time, there is one measurement per share."""
    for one in entry["workloads"]:
        name, found = one["workload"], one["policies"]
        over = ratios(one, RIVALS)
        if name == "selective" and over:
            what = f"measured, {name}: results, times the best rival's, mean of the shares"
            yield Target(what, Figure.counted(mean(over)), MEASURED_RATIO, True)
        exact = ratios(one, [EXACT])
        if exact:
            what = f"measured, {name}: results, times the optimum's, least"
            yield Target(what, Figure.counted(min(exact)), OF_EXACT, True, 3)
        if OURS[0] in found:
            off = Figure.mean([100 * row["used"] - row["share"] for row in found[OURS[0]]])
            what = f"measured, {name}: CPU time used beyond the budget, points, mean of the shares"
            yield Target(what, off, 5.0, False, 1)


def _overload(entry: dict[str, Any]) -> Iterator[Target]:
    """Return the targets on overload. Latencies come from one run each; the worst one decides."""
    name, goal = entry["settings"]["workload"], entry["settings"]["latency"]
    alone = {one["times"]: one["p99"] for one in entry["runs"] if one["policy"] == "storing"}
    rationed = [one for one in entry["runs"] if one["policy"] not in ("wait", "storing", "equal")]
    fitting = [one["p99"] / goal for one in rationed if alone[one["times"]] <= goal]
    if fitting:
        what = (
            f"live, {name}: 99 % of latencies, times the goal, where storing alone fits, worst run"
        )
        yield Target(what, Figure.once(max(fitting)), LATENCY, False)
    kept = {(one["times"], one["policy"]): one["kept"] for one in entry["runs"]}
    gained = [
        kept[times, OURS[0]] / equal
        for (times, policy), equal in kept.items()
        if policy == "equal" and equal and (times, OURS[0]) in kept
    ]
    if gained:
        what = f"live, {name}: results kept, times those under equal rations, least of the loads"
        yield Target(what, Figure.once(min(gained)), 1.0, True)
    stale = [one["stale"] for one in rationed if one["stale"] is not None]
    if stale:
        count = Figure.counted(sum(one["stale"] for one in stale), len(stale))
        note = f"of {sum(one['looked'] for one in stale):,} results"
        yield Target(f"live, {name}: stale results", count, 0, False, 0, note=note)


def _targets(entry: dict[str, Any]) -> Iterator[Target]:
    """Return the targets of a simulation: means over random plans."""
    for one in entry["throughput"]:
        what = f"{one['shape']}: JAQPOT's results, times the best rival's, mean"
        yield Target(what, Figure.of_mean(one["ratio"]), RATIOS[one["shape"]], True)
    linear = next(one for one in entry["throughput"] if one["shape"] == Shape.LINEAR)
    at_60 = Figure.of_mean(linear["results"]["JAQPOT"][SHARES.index(60)], 0.01)
    what = "linear: share of saturation's results at 60 % of μ, mean"
    yield Target(what, at_60, 80, True, 1, " %")
    for one in entry["freshness"]:
        if one["factor"] == 5 and one["taken"] is not None:
            what = f"{one['shape']}: share of μ that freshness takes at 5 windows, mean"
            yield Target(what, Figure.of_mean(one["taken"], 0.01), 5, False, 1, " %")
    for one in entry["decisions"]["exact"]:
        if one["cost"] is not None:
            what = f"{one['plans']}: cost of greedy covers, over exact ones, mean"
            yield Target(what, Figure.of_mean(one["cost"]), 1.11, False, 3)
