"""dpPick and its rivals on generated four-way joins, whose best order changes or stays the same.

Each scenario runs from one initial order, a permutation drawn with its seed. *Hindsight* is the
permutation with the least work if it is used from beginning to end. If nothing drifts, only orders
that are not derived from a permutation can beat it; if the best order changes, other orders can
beat it as well.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import Benchmark
from benchmarks.dppick.command import period_options
from benchmarks.dppick.drifts import GRAPHS, PATTERNS, Drift, workload_of
from benchmarks.dppick.rounds import (
    FIXED,
    ablations,
    in_turns,
    initial_orders,
    net,
    rivals,
    statics,
    work,
)
from benchmarks.report.charts import Row, grouped
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid

HINDSIGHT = replace(FIXED, name="hindsight")
#: The rivals with which dpPick is compared.
OTHERS = ("fixed", "selectivity", "greedy", "exact", "no-smooth", "hindsight")


def _options(parser: argparse.ArgumentParser) -> None:
    period_options(parser, 3)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--patterns", nargs="+", choices=PATTERNS, default=list(PATTERNS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--tuples", type=int, default=1000, help="per batch")
    parser.add_argument("--batches", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=1, help="timed runs of each")


def _measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    found = []
    for graph in options.graphs:
        for pattern in options.patterns:
            for seed in options.seeds:
                drift = Drift(graph, pattern, seed, options.tuples, options.batches)
                found.append(_scenario(drift, options, home))
    return {"scenarios": found}


def _scenario(drift: Drift, options: argparse.Namespace, home: Path) -> dict[str, Any]:
    tell(drift.name)
    workload = workload_of(drift)
    orders = initial_orders(workload.join, tuple(workload.join.by_name))
    counts = statics(workload, orders, home)
    best = min(counts, key=lambda name: work(counts[name]))
    # The first order is equal in all patterns of a graph and seed, so that patterns can be
    # compared.
    first = list(orders)[int(np.random.default_rng(drift.seed).integers(len(orders)))]
    no_smooth = [p for p in ablations(options.period, options.length) if p.name == "no-smooth"]
    policies = [(p, orders[first]) for p in (*rivals(options.period, options.length), *no_smooth)]
    policies.append((HINDSIGHT, orders[best]))
    figures = in_turns(workload, policies, options.rounds, home)
    figures["fixed"] |= counts[first]
    figures["hindsight"] |= counts[best]
    return {
        "name": drift.name,
        "graph": drift.graph,
        "pattern": drift.pattern,
        "results": workload.expected,
        "first": first,
        "best": best,
        "mean_work": statistics.fmean(map(work, counts.values())),
        "figures": figures,
    }


class Of(StrEnum):
    """Measure by which two policies are compared."""

    WORK = "probes and matches"
    TIME = "run time"
    NET = "run time without statistics and decisions"

    def figure(self, figures: dict[str, Any]) -> float:
        """Return this measure from the figures of a policy's runs."""
        if self is Of.WORK:
            return work(figures)
        return net(figures) if self is Of.NET else float(figures["seconds"]["median"])


def ratio(scenario: dict[str, Any], of: str, to: str, by: Of) -> float:
    """Return the measure ``by`` of policy ``of``, divided by that of policy ``to``."""
    figures = scenario["figures"]
    return by.figure(figures[of]) / by.figure(figures[to])


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return a table per measure: the scenarios, means by pattern, and the mean of all."""
    return [_table(entry["scenarios"], by) for by in Of]


def _table(scenarios: Sequence[dict[str, Any]], by: Of) -> Grid:
    patterns = dict.fromkeys(one["pattern"] for one in scenarios)
    groups = {one["name"]: [one] for one in scenarios}
    groups |= {f"mean of {p}": [o for o in scenarios if o["pattern"] == p] for p in patterns}
    groups["mean of all"] = list(scenarios)
    rows = []
    for name, some in groups.items():
        picks = [one["figures"]["dppick"] for one in some]
        own = statistics.fmean(map(by.figure, picks))
        rows.append(
            (
                name,
                f"{own / 1e6:.2f}" if by is Of.WORK else f"{own:.2f}",
                *(
                    f"{statistics.fmean(ratio(o, 'dppick', other, by) for o in some):.2f}"
                    for other in OTHERS
                ),
                f"{statistics.fmean(pick['reorderings'] for pick in picks):.1f}",
            )
        )
    unit = "dppick, millions" if by is Of.WORK else "dppick, s"
    head = ("graph, pattern, seed", unit, *(f"of {o}" for o in OTHERS), "re-orderings")
    return Grid(f"{by}: dppick's, and over the others'", head, tuple(rows))


def history(entries: Sequence[dict[str, Any]]) -> Grid:
    """Return the table of all saved lines: means of dpPick's work, relative to each rival's."""
    rows = tuple(
        (
            entry["at"],
            *(str(entry["settings"][name]) for name in ("tuples", "batches", "period")),
            str(len(some)),
            *(
                f"{statistics.fmean(ratio(one, 'dppick', to, Of.WORK) for one in some):.2f}"
                for to in OTHERS
            ),
        )
        for entry in entries
        for some in (entry["scenarios"],)
    )
    head = ("at", "tuples", "batches", "T", "scenarios", *(f"of {other}" for other in OTHERS))
    return Grid("probes and matches of dppick, by line", head, rows)


def charts(entry: dict[str, Any]) -> dict[str, str]:
    """Return the chart of probes and matches, relative to hindsight's."""
    names = ["fixed", "selectivity", "greedy", "dppick"]
    rows = [
        Row(one["name"], tuple(ratio(one, n, "hindsight", Of.WORK) for n in names))
        for one in entry["scenarios"]
    ]
    title = "Probes and matches, relative to hindsight's static order"
    return {"dppick-drifts": grouped(title, names, rows)}


PART = Benchmark("drifting", "streams whose best order changes", _options, _measure, tables)
