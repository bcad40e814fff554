"""PMJoin's experiments: tuples per second between hosts, by its rate model.

`python -m benchmarks.pmjoin.simulation [--json] [--seeds 1]`

The streams of the paper's Fig. 5, 6, 7, 8 and 10, of which it leaves details open. Rates of values
follow uniform, normal, Zipf (exponent 0.1 to 1.5) or self-similar (0.1 to 0.9) distributions;
*similar* ones are Zipf of 0.1 to 0.3. Hot spots are contiguous, or spread at random, each stream's
its own way where distributions differ. Costs are those of the rate model, not of a simulation event
by event: its means. All joins are by one key. Each figure is the mean over ``--seeds`` draws.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from anabranch_planner.placement.exact import exact
from anabranch_planner.placement.operators import cost
from anabranch_planner.placement.partitioners import (
    by_hash,
    by_range,
    by_rate,
    placed,
    placed_by_plan,
)
from anabranch_planner.placement.rates import ValueRates, windowed
from anabranch_planner.placement.stream_join_opt import local, simple, stream_join_opt
from benchmarks.command import Benchmark, run_benchmark
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Groups = NDArray[np.int64]

#: Streams, and values of their key, where nothing else is said.
STREAMS, VALUES = 10, 1000
RANGES = (10, 100, 1000, 10_000, 100_000)
COUNTS = (4, 6, 8, 10, 12, 14)
STREAM_COUNTS = (4, 7, 10)
PARTITIONS = (1, 2, 4, 10, 100, 1000)
#: Values whose rates are worked out at once: two to the number of streams times as many numbers.
CHUNK = 2000
WAYS: dict[str, Callable[[ValueRates, int], Groups]] = {
    "hash": lambda rates, groups: by_hash(rates.values, groups),
    "range": lambda rates, groups: by_range(rates.values, groups),
    "rate": lambda rates, groups: by_rate(rates, groups),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """How the rates of values are drawn."""

    similar: bool
    contiguous: bool = True

    def __str__(self) -> str:
        spot = "contiguous" if self.contiguous else "random"
        return f"{'similar' if self.similar else 'different'}, {spot} hot spots"


KINDS = [Kind(similar, contiguous) for contiguous in (True, False) for similar in (True, False)]


def weights(rng: np.random.Generator, values: int, kind: Kind) -> Floats:
    """The part of a stream's tuples that each value has."""
    number = np.arange(1, values + 1, dtype=np.float64)
    which = "zipf" if kind.similar else rng.choice(["uniform", "normal", "zipf", "self-similar"])
    if which == "uniform":
        found = np.ones(values)
    elif which == "normal":
        found = np.exp(-(((number - values / 2) / (values * rng.uniform(0.05, 0.5))) ** 2) / 2)
    elif which == "zipf":
        found = number ** -rng.uniform(0.1, 0.3 if kind.similar else 1.5)
    else:
        # The first h * n values have the part 1 - h of the weight, and so on within these.
        h = rng.uniform(0.1, 0.9)
        ends = (np.arange(values + 1) / values) ** (np.log(1 - h) / np.log(h))
        found = np.diff(ends)
    total: Floats = found / found.sum()
    return total


def drawn(
    rng: np.random.Generator,
    kind: Kind,
    rates: Sequence[float],
    seconds: Sequence[float],
    values: int = VALUES,
) -> tuple[Floats, Floats]:
    """Rates and windows by stream and value; hot spots at random are each stream's where streams
    differ, else those of all.
    """
    common = rng.permutation(values)
    rows = []
    for rate in rates:
        part = weights(rng, values, kind)
        if not kind.contiguous:
            part = part[common if kind.similar else rng.permutation(values)]
        elif not kind.similar:
            part = np.roll(part, int(rng.integers(values)))
        rows.append(rate * part)
    found = np.array(rows)
    return found, found * np.array(seconds)[:, None]


def totals(rates: Floats, windows: Floats) -> ValueRates:
    """The rates of all values together, as if they were one."""
    parts = range(0, rates.shape[1], CHUNK)
    sums = [
        windowed(rates[:, at : at + CHUNK], windows[:, at : at + CHUNK]).by_value.sum(axis=1)
        for at in parts
    ]
    return ValueRates(np.sum(sums, axis=0)[:, None])


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=1, help="draws of each")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Figure -> rows of means."""
    found: dict[str, Any] = {}
    figures = (("5", _ranges), ("6", _counts), ("7", _hosts), ("8", _partitions), ("10", _streams))
    for figure, make in figures:
        began = time.perf_counter()
        found[figure] = make(options.seeds)
        tell(f"figure {figure}: {time.perf_counter() - began:.0f} s")
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
    """Fig. 5: the data range; LASW: slower streams have shorter windows, HASW: faster ones."""
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
    """Fig. 6: the number of streams, each at its own host, of 100 tuples per second."""
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
    """Fig. 7: streams of 100 to 500 tuples per second, dealt to five hosts at random."""
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


def _partitions(seeds: int) -> list[dict[str, Any]]:
    """Fig. 8: the number of groups, by partitioner and kind of distribution."""
    rows = []
    for kind in KINDS:
        for groups in PARTITIONS:
            runs = []
            for seed in range(seeds):
                rng = np.random.default_rng([8, seed])
                rates = list(rng.uniform(10, 1000, STREAMS))
                seconds = list(rng.uniform(10, 100, STREAMS))
                given = windowed(*drawn(rng, kind, rates, seconds))
                runs.append(_by_groups(given, groups))
            rows.append({"kind": str(kind), "groups": groups, **_mean(runs)})
    return rows


def _by_groups(rates: ValueRates, groups: int) -> dict[str, float]:
    sites = range(rates.count)
    found = {
        name: placed(rates, sites, way(rates, groups), stream_join_opt)
        for name, way in WAYS.items()
    }
    found["plan"] = placed_by_plan(rates, sites, groups, stream_join_opt)
    return {name: sum(group.cost for group in some) for name, some in found.items()}


def _streams(seeds: int) -> list[dict[str, Any]]:
    """Fig. 10: the number of streams, without groups and with as many as values."""
    rows = []
    for count in STREAM_COUNTS:
        for groups in (1, 1000):
            runs = []
            for seed in range(seeds):
                rng = np.random.default_rng([10, seed])
                rates = list(rng.uniform(10, 1000, count))
                seconds = list(rng.uniform(10, 100, count))
                given = drawn(rng, Kind(similar=False, contiguous=False), rates, seconds)
                runs.append(_by_groups(windowed(*given), groups))
            rows.append({"streams": count, "groups": groups, **_mean(runs)})
    return rows


HEADINGS = {
    "5": "data range (Fig. 5)",
    "6": "number of streams (Fig. 6)",
    "7": "streams on five hosts (Fig. 7)",
    "8": "groups of values (Fig. 8)",
    "10": "groups and streams (Fig. 10)",
}


def tables(entry: dict[str, Any]) -> list[Grid]:
    """One table per figure."""
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
    """Entry point; returns the exit code."""
    return run_benchmark("pmjoin", BENCHMARK, arguments, lambda _: None)


if __name__ == "__main__":
    sys.exit(main())
