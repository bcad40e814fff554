"""dpPick with different periods T and lengths L of the series of measurements.

The inputs are TPC-DS, from the two initial orders of the paper's experiment (CrWrSrCu, WrCuCrSr),
and a star join whose best order oscillates. While L is varied, a decision is made after every
batch, so that series become long enough to be cut; runs have 60 (TPC-DS at scale 1) and 120
batches.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.command import Benchmark
from benchmarks.dppick.command import stream_options
from benchmarks.dppick.drifts import Drift, workload_of
from benchmarks.dppick.engine import Orders, Policy, Workload
from benchmarks.dppick.rounds import in_turns, initial_orders, work
from benchmarks.dppick.streams import SHORT, tpcds_stream
from benchmarks.papers.dppick.search import Algorithm
from benchmarks.report.charts import Line, lines
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid

#: The initial orders of the paper's experiment with T and L.
SWEPT = ("CrWrSrCu", "WrCuCrSr")


def _options(parser: argparse.ArgumentParser) -> None:
    stream_options(parser)
    parser.add_argument("--periods", type=int, nargs="+", default=[1, 2, 3, 6, 10, 15, 20])
    parser.add_argument("--lengths", type=int, nargs="+", default=[5, 10, 20, 40, 60, 100])
    parser.add_argument("--tuples", type=int, default=1000, help="per batch of the star")
    parser.add_argument("--rounds", type=int, default=1, help="timed runs of each")


def _measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    tpcds = tpcds_stream(options.scale, options.batch, options.seed, options.cache)
    star = workload_of(Drift("star", "oscillate", 1, options.tuples))
    by_name = initial_orders(tpcds.join, SHORT)
    cases: list[tuple[str, Workload, Orders]] = [
        *((name, tpcds, by_name[name]) for name in SWEPT),
        (star.name, star, initial_orders(star.join, tuple(star.join.by_name))["habc"]),
    ]
    found = []
    for name, workload, first in cases:
        tell(f"sweeps of {name}")
        policies = [
            *(Policy(f"T {t}", Algorithm.DPPICK, period=t) for t in options.periods),
            *(Policy(f"L {n}", Algorithm.DPPICK, period=1, length=n) for n in options.lengths),
        ]
        figures = in_turns(workload, [(p, first) for p in policies], options.rounds, home)
        found.append({"name": name, "figures": figures})
    return {"cases": found}


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a row for each T and L."""
    rows = tuple(
        (
            one["name"],
            name,
            f"{work(figures) / 1e6:.2f}",
            f"{figures['seconds']['median']:.2f}",
            f"{figures['deciding']['median']:.2f}",
            str(figures["reorderings"]),
        )
        for one in entry["cases"]
        for name, figures in one["figures"].items()
    )
    head = ("", "", "millions of probes and matches", "run time, s", "decisions, s", "re-orderings")
    return [Grid("periods (T, in batches) and lengths (L, in periods, T = 1)", head, rows, texts=2)]


def charts(entry: dict[str, Any]) -> dict[str, str]:
    """Return the charts of the paper's Figs. 4 and 5."""
    found = {}
    titles = {"T": "Run time by period (Fig. 4)", "L": "Run time by length (Fig. 5)"}
    for letter, title in titles.items():
        series = [
            Line(
                one["name"],
                tuple(
                    (float(name[2:]), figures["seconds"]["median"])
                    for name, figures in one["figures"].items()
                    if name.startswith(letter)
                ),
            )
            for one in entry["cases"]
        ]
        across = "batches" if letter == "T" else "periods"
        found[f"dppick-{letter.lower()}"] = lines(title, across, "seconds", series)
    return found


PART = Benchmark("sweeps", "the period T and the length L of series", _options, _measure, tables)
