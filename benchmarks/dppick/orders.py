"""Probe orders of TPC-DS's four-way join: each algorithm from 24 initial orders.

``store_returns``, ``customer``, ``web_returns`` and ``catalog_returns`` are joined on equal
addresses; all rows are in one random order, and results are counted but not materialised. The
paper's 24 initial orders are permutations of the four streams. A permutation stands for four probe
orders, one per stream: the permutation without this stream. Since all four tables have the same
key, a stream may probe the others in any of six orders; the algorithms choose among all 6^4
combinations. *Hindsight* is the permutation with the least work if it is used from beginning to
end.

The bound (:mod:`.bound`) is the saving of the best orders if keys are independent, calculated from
the tables' sizes and the greatest number of distinct keys. No algorithm can save more.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.command import Benchmark
from benchmarks.dppick.bound import savings
from benchmarks.dppick.command import stream_options
from benchmarks.dppick.rounds import FIXED, in_turns, initial_orders, net, rivals, statics, work
from benchmarks.dppick.streams import SHORT, sizes_of, tpcds_stream
from benchmarks.report.charts import Row, grouped
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid, columns

#: References to which savings are relative: the mean or the worst of all permutations.
OVER = ("mean", "worst")


def _options(parser: argparse.ArgumentParser) -> None:
    stream_options(parser)
    parser.add_argument("--rounds", type=int, default=3, help="timed runs of each")


def _measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    workload = tpcds_stream(options.scale, options.batch, options.seed, options.cache)
    sizes, keys = sizes_of(workload)
    first = initial_orders(workload.join, SHORT)
    in_turns(workload, [(FIXED, next(iter(first.values())))], 1, home)
    counts = statics(workload, first, home)
    best = min(counts, key=lambda name: work(counts[name]))
    found = {}
    for name, orders in first.items():
        tell(f"initial order {name}")
        policies = [(p, orders) for p in rivals(options.period, options.length)]
        found[name] = in_turns(workload, policies, options.rounds, home)
        found[name]["fixed"] |= counts[name]
    return {
        "batches": len(workload.batches),
        "results": workload.expected,
        "sizes": {name: asdict(size) for name, size in sizes.items()},
        "keys": keys,
        "bound": {name: asdict(one) for name, one in savings(sizes, keys).items()},
        "best": {"order": best} | counts[best],
        "orders": found,
    }


def saved(entry: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the measured savings of the best permutation, relative to the mean and the worst one:
    of ``probes``, of ``both`` (probes and matches), and of ``seconds``.
    """
    fixed = {name: one["fixed"] for name, one in entry["orders"].items()}
    figures = {
        "probes": {n: float(f["probes"]) for n, f in fixed.items()},
        "both": {n: float(work(f)) for n, f in fixed.items()},
        "seconds": {n: f["seconds"]["median"] for n, f in fixed.items()},
    }
    best = entry["best"]["order"]
    return {
        name: {
            "mean": 1 - of[best] / statistics.fmean(of.values()),
            "worst": 1 - of[best] / max(of.values()),
        }
        for name, of in figures.items()
    }


def ratios(entry: dict[str, Any], of: str, to: str) -> dict[str, float]:
    """Return the run time of algorithm ``of``, divided by that of ``to``, by initial order."""
    return {
        name: one[of]["seconds"]["median"] / one[to]["seconds"]["median"]
        for name, one in entry["orders"].items()
    }


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables of the bound, of the algorithms, and of the initial orders."""
    orders, best = entry["orders"], work(entry["best"])
    measured = saved(entry)
    bound = tuple(
        (
            what,
            *(_percent(entry["bound"].get(name, {}).get(of)) for of in OVER),
            *(_percent(measured[name][of]) for of in OVER),
        )
        for what, name in (
            ("probes", "probes"), ("probes and matches", "both"), ("run time", "seconds"),
        )
    )  # fmt: skip
    algorithms = tuple(next(iter(orders.values())))
    summed = []
    for name in algorithms:
        some = [one[name] for one in orders.values()]
        works = [work(f) / best for f in some]
        seconds = [f["seconds"]["median"] for f in some]
        to_fixed = [f["seconds"]["median"] / one["fixed"]["seconds"]["median"]
                    for f, one in zip(some, orders.values(), strict=True)]  # fmt: skip
        share = sum(f["counting"]["median"] + f["deciding"]["median"] for f in some) / sum(seconds)
        summed.append(
            (
                name,
                f"{statistics.fmean(works):.3f} ({min(works):.3f}–{max(works):.3f})",
                f"{statistics.fmean(seconds):.3f}",
                f"{statistics.fmean(to_fixed):.2f} ({min(to_fixed):.2f}–{max(to_fixed):.2f})",
                f"{statistics.fmean(map(net, some)):.3f}",
                f"{100 * share:.1f} %",
                f"{statistics.fmean(f['reorderings'] for f in some):.1f}",
            )
        )
    single = tuple(
        (
            name,
            *(f"{work(one[a]) / 1e6:.2f}" for a in algorithms),
            *(f"{one[a]['seconds']['median']:.2f}" for a in algorithms),
        )
        for name, one in orders.items()
    )
    return [
        Grid(
            f"what the best of the 24 permutations ({entry['best']['order']}) saves",
            ("", "of their mean, by arithmetic", "of the worst, by arithmetic",
             "of their mean, measured", "of the worst, measured"),
            bound,
        ),
        Grid(
            "means over the 24 initial orders, and ranges",
            ("", "probes and matches, of hindsight's", "run time, s", "of fixed",
             "without statistics and decisions, s", "share of these", "re-orderings"),
            tuple(summed),
        ),
        Grid(
            "each initial order: millions of probes and matches, and run time in seconds",
            columns(
                ("initial order",),
                [f"work: {a}" for a in algorithms],
                [f"s: {a}" for a in algorithms],
            ),
            single,
        ),
    ]  # fmt: skip


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


def charts(entry: dict[str, Any]) -> dict[str, str]:
    """Return the paper's Fig. 2: charts of run times, probes and matches."""
    names = [n for n in next(iter(entry["orders"].values())) if n != "exact"]
    seconds, works = [], []
    for order, one in entry["orders"].items():
        seconds.append(Row(order, tuple(one[n]["seconds"]["median"] for n in names)))
        works.append(Row(order, tuple(work(one[n]) / 1e6 for n in names)))
    return {
        "dppick-seconds": grouped("Run time by initial order, seconds (Fig. 2)", names, seconds),
        "dppick-work": grouped("Millions of probes and matches by initial order", names, works),
    }


PART = Benchmark("orders", "24 initial orders of TPC-DS", _options, _measure, tables)
