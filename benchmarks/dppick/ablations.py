"""dpPick without one of its parts (ablations), from the same 24 initial orders as :mod:`.orders`.

``query-cost`` and ``match-cost`` minimise only one part of the cost; ``no-smooth`` uses the
statistics of the last period instead of forecasts. In this operator every match that is not yet a
result becomes a probe of the next store, so the numbers of probes and matches differ only by
arrivals and results, which do not depend on the order. So both ablations have the same cheapest
orders as the whole cost, as long as a look-up costs the same in every store; they only choose
differently among orders of equal forecast cost. ``printed`` is Eq. 8 as in the paper, whose engine
passes on all matches of a probe as one query; under this cost the two parts do differ.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.command import Benchmark
from benchmarks.dppick.command import stream_options
from benchmarks.dppick.rounds import FIXED, ablations, in_turns, initial_orders, work
from benchmarks.dppick.streams import SHORT, tpcds_stream
from benchmarks.report.charts import Row, grouped
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid


def _options(parser: argparse.ArgumentParser) -> None:
    stream_options(parser)
    parser.add_argument("--rounds", type=int, default=1, help="timed runs of each")


def _measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    workload = tpcds_stream(options.scale, options.batch, options.seed, options.cache)
    first = initial_orders(workload.join, SHORT)
    in_turns(workload, [(FIXED, next(iter(first.values())))], 1, home)
    found = {}
    for name, orders in first.items():
        tell(f"initial order {name}")
        policies = [(p, orders) for p in ablations(options.period, options.length)]
        found[name] = in_turns(workload, policies, options.rounds, home)
    return {"orders": found}


@dataclass(frozen=True, slots=True)
class Tally:
    """Number of initial orders in which dpPick has less work than another policy, or equal, or
    more.
    """

    wins: int
    ties: int
    losses: int

    @property
    def decided(self) -> int:
        """Number of initial orders in which the work of the two policies differs."""
        return self.wins + self.losses

    def __str__(self) -> str:
        """The three numbers as a cell of a table."""
        return f"{self.wins} less, {self.ties} equal, {self.losses} more"


def tally(entry: dict[str, Any], other: str) -> Tally:
    """Compare dpPick's probes and matches with another policy's, for each initial order."""
    pairs = [(work(one["dppick"]), work(one[other])) for one in entry["orders"].values()]
    return Tally(
        sum(ours < theirs for ours, theirs in pairs),
        sum(ours == theirs for ours, theirs in pairs),
        sum(ours > theirs for ours, theirs in pairs),
    )


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: each ablation relative to the complete dpPick."""
    orders = entry["orders"]
    rows = []
    for name in next(iter(orders.values())):
        works = [work(one[name]) / work(one["dppick"]) for one in orders.values()]
        seconds = [
            one[name]["seconds"]["median"] / one["dppick"]["seconds"]["median"]
            for one in orders.values()
        ]
        rows.append(
            (
                name,
                f"{statistics.fmean(works):.3f} ({min(works):.3f}–{max(works):.3f})",
                f"{statistics.fmean(seconds):.2f} ({min(seconds):.2f}–{max(seconds):.2f})",
                str(tally(entry, name)),
                str(sum(s < 1 for s in seconds)),
                f"{statistics.fmean(one[name]['reorderings'] for one in orders.values()):.1f}",
            )
        )
    head = (
        *("", "probes and matches, of dppick's", "run time, of dppick's", "dppick's work in"),
        *("less time than dppick in", "re-orderings"),
    )
    return [Grid("means over the 24 initial orders, and ranges", head, tuple(rows))]


def charts(entry: dict[str, Any]) -> dict[str, str]:
    """Return the paper's Fig. 3, with probes and matches in place of run time."""
    names = list(next(iter(entry["orders"].values())))
    rows = [
        Row(order, tuple(work(one[n]) / 1e6 for n in names))
        for order, one in entry["orders"].items()
    ]
    title = "Millions of probes and matches by initial order (Fig. 3)"
    return {"dppick-ablations": grouped(title, names, rows)}


PART = Benchmark("ablations", "dpPick without a part of it", _options, _measure, tables)
