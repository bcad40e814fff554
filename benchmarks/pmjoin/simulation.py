"""Simulation of PMJoin's experiments: tuples per second sent between hosts, by its rate model.

`python -m benchmarks.pmjoin.simulation [--json] [--seeds 1]`

Streams are as in the paper's Fig. 5 to 11, as far as it describes them. Rates of values follow
uniform, normal, Zipf (exponent 0.1 to 1.5) or self-similar (0.1 to 0.9) distributions; *similar*
ones are Zipf of 0.1 to 0.3. Hot spots are contiguous, at the places that the paper defines, or
random; random ones differ between streams if distributions differ. Costs are means of the rate
model; single events are not simulated. Joins are by one key, except in Fig. 11. Each figure is the
mean over ``--seeds`` draws, for Fig. 5 to 7 over three times as many.

*Routing (Fig. 9)*: the tuples of one second are drawn, and each is routed by the table of its
value's group (with one group, the group is not looked up). Milliseconds are CPU time of Python
code, so only ratios are meaningful. *Several keys (Fig. 11)*: 20 streams of 100 to 1,000 tuples per
second with windows of 10 to 100 s are assigned to ten hosts at random; each of 200 queries joins
all of them along a random tree whose edges have 3 to 7 keys; each PMJoin has ten groups by rate.
*Alternative* selects among the PMJoins that the paper's heuristic leaves out, *saving* is the best
selection. Ratios (×) are relative to a single plan for all values, as means over the queries that
have PMJoins; tuples are means over all queries, which a few queries dominate.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.command import Benchmark, run_benchmark
from benchmarks.papers.pmjoin.exact import exact
from benchmarks.papers.pmjoin.operators import cost
from benchmarks.papers.pmjoin.partitioners import (
    Group,
    by_hash,
    by_range,
    by_rate,
    placed,
    placed_by_plan,
)
from benchmarks.papers.pmjoin.rates import ValueRates, windowed
from benchmarks.papers.pmjoin.stream_join_opt import local, simple, stream_join_opt
from benchmarks.pmjoin import readings, several_keys
from benchmarks.pmjoin.draws import KINDS, Kind, drawn, rates_of
from benchmarks.pmjoin.routing import route
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid

Floats = NDArray[np.float64]
Groups = NDArray[np.int64]


#: Default number of streams.
STREAMS = 10
RANGES = (10, 100, 1000, 10_000, 100_000)
COUNTS = (4, 6, 8, 10, 12, 14)
STREAM_COUNTS = (4, 7, 10)
PARTITIONS = (1, 2, 4, 10, 100, 1000)
#: Numbers of groups in Fig. 10.
FEW_PARTITIONS = (1, 500, 1000)
#: Number of draws of Fig. 5 to 7 per draw of the other figures, since they take less time.
EASY = 3
#: Number of values whose rates are computed at once, with 2^(number of streams) numbers per value.
CHUNK = 2000
WAYS: dict[str, Callable[[ValueRates, int], Groups]] = {
    "hash": lambda rates, groups: by_hash(rates.values, groups),
    "range": lambda rates, groups: by_range(rates.values, groups),
    "rate": lambda rates, groups: by_rate(rates, groups),
}


def totals(rates: Floats, windows: Floats) -> ValueRates:
    """Return the rates of all values together, as if they were one value."""
    parts = range(0, rates.shape[1], CHUNK)
    sums = [
        windowed(rates[:, at : at + CHUNK], windows[:, at : at + CHUNK]).by_value.sum(axis=1)
        for at in parts
    ]
    return ValueRates(np.sum(sums, axis=0)[:, None])


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=1, help="draws of each")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Simulate all figures; return figure -> rows of means."""
    found: dict[str, Any] = {}
    seeds = options.seeds
    figures: dict[tuple[str, ...], Callable[[], tuple[list[dict[str, Any]], ...]]] = {
        ("5",): lambda: (_ranges(EASY * seeds),),
        ("6",): lambda: (_counts(EASY * seeds),),
        ("7",): lambda: (_hosts(EASY * seeds),),
        ("8", "9"): lambda: _partitions(seeds),
        ("10",): lambda: (_streams(seeds),),
        ("11",): lambda: (several_keys.measure(seeds),),
        ("readings",): lambda: (readings.measure(),),
    }
    for names, make in figures.items():
        began = time.perf_counter()
        found |= zip(names, make(), strict=True)
        tell(f"figure {' and '.join(names)}: {time.perf_counter() - began:.0f} s")
    return {"figures": found}


def _mean(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.fmean(run[name] for run in runs), 3) for name in runs[0]}


def _algorithms(rates: ValueRates, sites: Sequence[int]) -> dict[str, float]:
    found = {
        place.__name__: cost(place(rates, sites), rates)
        for place in (simple, local, stream_join_opt)
    }
    began = time.perf_counter()
    found["exact"] = cost(exact(rates, sites), rates)
    found["exact_seconds"] = time.perf_counter() - began
    found["ratio"] = found["stream_join_opt"] / found["exact"] if found["exact"] else 1.0
    return found


def _ranges(seeds: int) -> list[dict[str, Any]]:
    """Fig. 5: cost by data range; LASW: slower streams have shorter windows, HASW: faster ones."""
    rows = []
    for windows in ("LASW", "HASW"):
        for kind in (Kind(similar=True), Kind(similar=False)):
            for values in RANGES:
                runs = []
                for seed in range(seeds):
                    rng = np.random.default_rng([5, seed])
                    rates = np.sort(rng.uniform(10, 1000, STREAMS))
                    seconds = np.sort(rng.uniform(10, 100, STREAMS))
                    if windows == "HASW":
                        seconds = seconds[::-1]
                    given = drawn(rng, kind, list(rates), list(seconds), values)
                    runs.append(_algorithms(totals(*given), range(STREAMS)))
                which = "similar" if kind.similar else "different"
                rows.append({"windows": windows, "kind": which, "values": values, **_mean(runs)})
    return rows


def _counts(seeds: int) -> list[dict[str, Any]]:
    """Fig. 6: cost by number of streams with 100 tuples per second, each at a separate host."""
    rows = []
    for count in COUNTS:
        runs = []
        for seed in range(seeds):
            rng = np.random.default_rng([6, seed])
            seconds = list(rng.uniform(10, 100, count))
            given = drawn(rng, Kind(similar=False), [100.0] * count, seconds)
            runs.append(_algorithms(totals(*given), range(count)))
        rows.append({"streams": count, **_mean(runs)})
    return rows


def _hosts(seeds: int) -> list[dict[str, Any]]:
    """Fig. 7: cost of streams with 100 to 500 tuples per second at five random hosts."""
    rows = []
    for count in (5, *COUNTS[1:]):
        runs = []
        for seed in range(seeds):
            rng = np.random.default_rng([7, seed])
            rates, seconds = list(rng.uniform(100, 500, count)), list(rng.uniform(10, 100, count))
            given = drawn(rng, Kind(similar=False), rates, seconds)
            sites = [int(host) for host in rng.integers(5, size=count)]
            runs.append(_algorithms(totals(*given), sites))
        rows.append({"streams": count, **_mean(runs)})
    return rows


def _partitions(seeds: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Fig. 8: cost by number of groups, partitioner and kind of distribution; Fig. 9: cost of
    routing by these groups.
    """
    rows, routings = [], []
    for kind in KINDS:
        for groups in PARTITIONS:
            runs, routed = [], []
            for seed in range(seeds):
                rng = np.random.default_rng([8, seed])
                rates = rates_of(rng, STREAMS)
                seconds = list(rng.uniform(10, 100, STREAMS))
                given = windowed(*drawn(rng, kind, rates, seconds))
                made = _grouped(given, groups)
                runs.append(_sums(made))
                routed.append(_routed(given, made, seed))
            rows.append({"kind": str(kind), "groups": groups, **_mean(runs)})
            routings.append({"kind": str(kind), "groups": groups, **_mean(routed)})
    return rows, routings


def _grouped(rates: ValueRates, groups: int) -> dict[str, list[Group]]:
    """Return partitioner -> its groups of the values."""
    sites = range(rates.count)
    found = {
        name: placed(rates, sites, way(rates, groups), stream_join_opt)
        for name, way in WAYS.items()
    }
    found["plan"] = placed_by_plan(rates, sites, groups, stream_join_opt)
    return found


def _sums(made: dict[str, list[Group]]) -> dict[str, float]:
    return {name: sum(group.cost for group in some) for name, some in made.items()}


def _routed(rates: ValueRates, made: dict[str, list[Group]], seed: int) -> dict[str, float]:
    """Return by partitioner: number of routed and of sent tuples, and milliseconds of routing."""
    found = {}
    for name in ("hash", "range", "rate", "plan"):
        one = route(rates, made[name], seed)
        found[f"{name}_sent"] = float(one.sent)
        found[f"{name}_ms"] = one.milliseconds
    return found


def _streams(seeds: int) -> list[dict[str, Any]]:
    """Fig. 10: cost by number of streams, for no groups, 500 groups, and one group per value."""
    rows = []
    for contiguous in (True, False):
        kind = Kind(similar=False, contiguous=contiguous)
        for count in STREAM_COUNTS:
            for groups in FEW_PARTITIONS:
                runs = []
                for seed in range(seeds):
                    rng = np.random.default_rng([10, seed])
                    rates = rates_of(rng, count)
                    seconds = list(rng.uniform(10, 100, count))
                    given = windowed(*drawn(rng, kind, rates, seconds))
                    runs.append(_sums(_grouped(given, groups)))
                row: dict[str, Any] = {"hot_spots": "contiguous" if contiguous else "random"}
                rows.append({**row, "streams": count, "groups": groups, **_mean(runs)})
    return rows


HEADINGS = {
    "5": "data range (Fig. 5)",
    "6": "number of streams (Fig. 6)",
    "7": "streams on five hosts (Fig. 7)",
    "8": "groups of values (Fig. 8)",
    "9": "tuples sent and milliseconds of routing, a second (Fig. 9)",
    "10": "groups and streams (Fig. 10)",
    "11": "selection of PMJoins (Fig. 11)",
    "readings": "what the paper leaves open: two groups by rate, and each value by itself",
}


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return one table per figure."""
    found = []
    for figure, rows in entry["figures"].items():
        names = [name.replace("_", " ") for name in rows[0]]
        cells = [tuple(_cell(value) for value in row.values()) for row in rows]
        texts = sum(isinstance(value, str) for value in rows[0].values())
        found.append(Grid(HEADINGS[figure], tuple(names), tuple(cells), texts=texts))
    return found


def _cell(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


BENCHMARK = Benchmark("simulation", (__doc__ or "").split("\n", 1)[0], _options, measure, tables)


def main(arguments: list[str] | None = None) -> int:
    """Simulate and print; returns the exit code."""
    return run_benchmark("pmjoin", BENCHMARK, arguments, lambda _: None)


if __name__ == "__main__":
    sys.exit(main())
