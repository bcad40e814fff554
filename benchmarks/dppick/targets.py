"""What orders chosen at run time are to reach, and what the newest figures say about it."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.dppick import drifting, orders
from benchmarks.dppick.drifting import Of
from benchmarks.dppick.rounds import work
from benchmarks.report.targets import Target, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.report.grids import Grid

#: What the paper saves of the run time of each, on average.
PUBLISHED = {"fixed": 31.2, "greedy": 20.4, "selectivity": 56.1}
#: Seconds of a period as pipelines have it.
PERIOD = 3.0


def targets(newest: Mapping[str, dict[str, Any]]) -> Grid:
    """Every target that there are figures for; ``newest``: part -> its newest line."""
    return table(_READERS, newest)


def _orders(entry: dict[str, Any]) -> Iterator[Target]:
    found, best = entry["orders"], work(entry["best"])
    name = "TPC-DS, of 24: "
    most = max(work(one["dppick"]) for one in found.values()) / best
    yield Target(f"{name}probes and matches, of hindsight's, in the worst", most, 1.03, False, 3)
    for other in ("greedy", "selectivity"):
        most = max(work(one["dppick"]) / work(one[other]) for one in found.values())
        yield Target(f"{name}probes and matches, of {other}'s, in the worst", most, 1, False, 3)
    to_fixed = orders.ratios(entry, "dppick", "fixed")
    yield Target(f"{name}run time, of fixed, in the worst", max(to_fixed.values()), 1.03, False)
    for other, limit in PUBLISHED.items():
        mean = statistics.fmean(orders.ratios(entry, "dppick", other).values())
        what = f"{name}run time saved of {other}, mean"
        yield Target(what, 100 * (1 - mean), limit, True, 1, " %")
    firsts = [r for one in found.values() for r in one["dppick"]["first"]]
    if firsts:
        what = "TPC-DS: first batch after a change, of its neighbours, median"
        yield Target(what, statistics.median(firsts), 1.1, False)
    some = [one["dppick"] for one in found.values()]
    seconds = sum(one["seconds"]["median"] for one in some)
    counting = sum(one["counting"]["median"] for one in some) / seconds
    deciding = sum(one["deciding"]["median"] for one in some)
    share = counting + deciding / seconds
    decisions = len(some) * ((entry["batches"] - 1) // entry["settings"]["period"])
    length = seconds / decisions
    what = f"TPC-DS: statistics and decisions, of run time (periods of {length:.2f} s)"
    yield Target(what, 100 * share, 3, False, 1, " %")
    what = f"the same, were periods {PERIOD:g} s long"
    yield Target(what, 100 * (counting + deciding / decisions / PERIOD), 3, False, 1, " %")


def _ablations(entry: dict[str, Any]) -> Iterator[Target]:
    found = entry["orders"].values()
    not_better = sum(work(one["no-smooth"]) >= work(one["dppick"]) for one in found)
    what = "TPC-DS: initial orders in which no-smooth has not less probes and matches"
    yield Target(what, not_better, 22, True, 0)


def _drifting(entry: dict[str, Any]) -> Iterator[Target]:
    scenarios = entry["scenarios"]

    def mean(of: str, to: str, by: Of, pattern: str | None = None) -> float:
        some = [one for one in scenarios if pattern in (None, one["pattern"])]
        return statistics.fmean(drifting.ratio(one, of, to, by) for one in some)

    for other, limit in PUBLISHED.items():
        for by in (Of.TIME, Of.NET, Of.WORK):
            what = f"drifting: {by} saved of {other}, mean"
            yield Target(what, 100 * (1 - mean("dppick", other, by)), limit, True, 1, " %")
    there = {one["pattern"] for one in scenarios}
    for pattern, limit in (("constant", 1.05), ("swap", 0.9)):
        for by in (Of.TIME, Of.NET, Of.WORK) if pattern in there else ():
            found = mean("dppick", "hindsight", by, pattern)
            yield Target(f"drifting, {pattern}: {by}, of hindsight's, mean", found, limit, False)
    if "trend" in there:
        what = "drifting, trend: probes and matches of no-smooth, of dppick's, mean"
        yield Target(what, mean("no-smooth", "dppick", Of.WORK, "trend"), 1, True, 3)


def _decisions(entry: dict[str, Any]) -> Iterator[Target]:
    limits = {10: 5, 15: 100}
    for one in entry["decisions"]:
        if one["streams"] in limits:
            for graph in ("chain", "clique"):
                took = one[f"{graph}, exact"]["median"]
                what = f"exact search over a {graph} of {one['streams']} streams"
                yield Target(what, took, limits[one["streams"]], False, 1, " ms")
            both = one["forecasts"]["median"] + one["clique, exact"]["median"]
            what = f"the same over a clique, with the forecasts of {one['series']} series"
            yield Target(what, both, limits[one["streams"]], False, 1, " ms")


_READERS = {
    "orders": _orders,
    "ablations": _ablations,
    "drifting": _drifting,
    "decisions": _decisions,
}
