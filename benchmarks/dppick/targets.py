"""Targets of dpPick's benchmarks: savings and costs of probe orders chosen at run time."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.dppick import ablations, drifting, orders
from benchmarks.dppick.drifting import Of
from benchmarks.dppick.rounds import work
from benchmarks.report.grids import Grid
from benchmarks.report.targets import Figure, Target, Verdict, table

#: Rival -> percent of its run time that dpPick saves in the paper, on average.
PUBLISHED = {"fixed": 31.2, "greedy": 20.4, "selectivity": 56.1}
#: Percent of the initial orders from which dpPick runs faster than no-smooth in the paper.
PUBLISHED_WINS = 91.7
#: Length in seconds of a measurement period in pipelines.
PERIOD = 3.0
#: Minimum number of initial orders that must differ for a verdict: with five, all differ in favour
#: of one side by chance with a probability of some 3 %.
FEWEST = 5


def targets(newest: Mapping[str, dict[str, Any]]) -> Grid:
    """Return a table of all targets with figures; ``newest``: benchmark -> its newest line."""
    return table(_READERS, newest)


def _orders(entry: dict[str, Any]) -> Iterator[Target]:
    found, best = entry["orders"], work(entry["best"])
    name = "TPC-DS, of 24: "
    most = max(work(one["dppick"]) for one in found.values()) / best
    what = f"{name}probes and matches, of hindsight's, in the worst"
    yield Target(what, Figure.counted(most), 1.03, False, 3)
    for other in ("greedy", "selectivity"):
        most = max(work(one["dppick"]) / work(one[other]) for one in found.values())
        what = f"{name}probes and matches, of {other}'s, in the worst"
        yield Target(what, Figure.counted(most), 1, False, 3)
    rounds = entry["settings"]["rounds"]
    to_fixed = {
        order: Figure.of(one["dppick"]["seconds"], rounds).over(
            Figure.of(one["fixed"]["seconds"], rounds)
        )
        for order, one in found.items()
    }
    worst = max(to_fixed.values(), key=lambda figure: figure.value)
    yield Target(f"{name}run time, of fixed, in the worst", worst, 1.03, False)
    for other, limit in PUBLISHED.items():
        ratios = list(orders.ratios(entry, "dppick", other).values())
        yield _saved(f"{name}run time saved of {other}, mean", ratios, limit)
    firsts = [r for one in found.values() for r in one["dppick"]["first"]]
    if firsts:
        what = "TPC-DS: first batch after a change, of its neighbours, median"
        yield Target(what, Figure.median(firsts), 1.1, False)
    some = [one["dppick"] for one in found.values()]
    period = entry["settings"]["period"]
    each = (entry["batches"] - 1) // period
    seconds = [one["seconds"]["median"] for one in some]
    counting = [one["counting"]["median"] for one in some]
    deciding = [one["deciding"]["median"] / took for one, took in zip(some, seconds, strict=True)]
    length = statistics.fmean(seconds) / each
    what = f"TPC-DS: statistics and decisions, of run time (periods of {length:.2f} s)"
    shares = [100 * (c + d) for c, d in zip(counting, deciding, strict=True)]
    yield Target(what, Figure.mean(shares), 3, False, 1, " %")
    rarely = [
        100 * (c + d * took / each / PERIOD)
        for c, d, took in zip(counting, deciding, seconds, strict=True)
    ]
    what = f"the same, were periods {PERIOD:g} s long"
    yield Target(what, Figure.mean(rarely), 3, False, 1, " %")


def _saved(what: str, ratios: Sequence[float], limit: float) -> Target:
    """Return a target for the mean of the savings in several cases, in percent."""
    return Target(what, Figure.mean(ratios).map(_percent_saved), limit, True, 1, " %")


def _percent_saved(ratio: float) -> float:
    return 100 * (1 - ratio)


def _ablations(entry: dict[str, Any]) -> Iterator[Target]:
    """Yield the targets of the ablation no-smooth. The paper's 22 of 24 initial orders are counted
    by run time, without ties; for the target on work, orders of equal work are left out.
    """
    counts = ablations.tally(entry, "no-smooth")
    what = "TPC-DS: less work than no-smooth, of the initial orders in which work differs"
    share = Figure.counted(100 * counts.wins / counts.decided if counts.decided else 0.0)
    few = Verdict.UNDECIDED if counts.decided < FEWEST else Verdict.YES
    yield Target(what, share, PUBLISHED_WINS, True, 0, " %", few, str(counts))
    rounds, times = entry["settings"]["rounds"], []
    for one in entry["orders"].values():
        ours, theirs = (Figure.of(one[n]["seconds"], rounds) for n in ("dppick", "no-smooth"))
        times.append(ours.over(theirs))
    faster = sum(ratio.value < 1 for ratio in times)
    surely, perhaps = (sum(ratio.interval[end] < 1 for ratio in times) for end in (1, 0))
    what = "TPC-DS: less run time than no-smooth, of 24 initial orders"
    found = Figure(faster, faster, faster, rounds, (surely, perhaps))
    yield Target(what, found, 22, True, 0)


def _drifting(entry: dict[str, Any]) -> Iterator[Target]:
    scenarios = entry["scenarios"]

    def ratios(of: str, to: str, by: Of, pattern: str | None = None) -> list[float]:
        some = [one for one in scenarios if pattern in (None, one["pattern"])]
        return [drifting.ratio(one, of, to, by) for one in some]

    for other, limit in PUBLISHED.items():
        for by in (Of.TIME, Of.NET, Of.WORK):
            yield _saved(
                f"drifting: {by} saved of {other}, mean", ratios("dppick", other, by), limit
            )
    there = {one["pattern"] for one in scenarios}
    for pattern, limit in (("constant", 1.05), ("swap", 0.9)):
        for by in (Of.TIME, Of.NET, Of.WORK) if pattern in there else ():
            found = Figure.mean(ratios("dppick", "hindsight", by, pattern))
            yield Target(f"drifting, {pattern}: {by}, of hindsight's, mean", found, limit, False)
    if "trend" in there:
        what = "drifting, trend: probes and matches of no-smooth, of dppick's, mean"
        found = Figure.mean(ratios("no-smooth", "dppick", Of.WORK, "trend"))
        yield Target(what, found, 1, True, 3)


def _decisions(entry: dict[str, Any]) -> Iterator[Target]:
    limits, rounds = {10: 5, 15: 100}, entry["settings"]["rounds"]
    for one in entry["decisions"]:
        if one["streams"] in limits:
            for graph in ("chain", "clique"):
                took = Figure.of(one[f"{graph}, exact"], rounds)
                what = f"exact search over a {graph} of {one['streams']} streams"
                yield Target(what, took, limits[one["streams"]], False, 1, " ms")
            both = Figure.of(one["forecasts"], rounds).plus(took)
            what = f"the same over a clique, with the forecasts of {one['series']} series"
            yield Target(what, both, limits[one["streams"]], False, 1, " ms")


_READERS = {
    "orders": _orders,
    "ablations": _ablations,
    "drifting": _drifting,
    "decisions": _decisions,
}
