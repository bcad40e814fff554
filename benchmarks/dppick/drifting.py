"""Generated four-way joins whose best order changes, or not.

Each scenario runs from one initial order, a permutation drawn by its seed. *Hindsight* is the best
of all permutations, each run as a whole without a change: where nothing drifts only orders that are
no permutation can beat it; where the best order changes, others can.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.command import Benchmark
from benchmarks.dppick.command import period_options
from benchmarks.dppick.drifts import GRAPHS, PATTERNS, Drift, workload_of
from benchmarks.dppick.rounds import (
    FIXED,
    ablations,
    in_turns,
    initial_orders,
    rivals,
    statics,
    work,
)
from benchmarks.report.charts import Row, grouped
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

HINDSIGHT = replace(FIXED, name="hindsight")


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
    # The same for all patterns of a graph, so that these compare.
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


def ratio(scenario: dict[str, Any], of: str, to: str, *, time: bool = True) -> float:
    """One policy's run time over another's, or its probes and matches."""
    a, b = scenario["figures"][of], scenario["figures"][to]
    return float(a["seconds"]["median"] / b["seconds"]["median"] if time else work(a) / work(b))


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Scenarios, and means by pattern."""
    scenarios = entry["scenarios"]
    others = ("fixed", "selectivity", "greedy", "exact", "no-smooth", "hindsight")
    rows = [
        (
            one["name"],
            f"{work(one['figures']['dppick']) / 1e6:.2f}",
            *(f"{ratio(one, 'dppick', other, time=False):.2f}" for other in others),
            f"{one['figures']['dppick']['seconds']['median']:.2f}",
            *(f"{ratio(one, 'dppick', other):.2f}" for other in others),
            str(one["figures"]["dppick"]["reorderings"]),
        )
        for one in scenarios
    ]
    for pattern in dict.fromkeys(one["pattern"] for one in scenarios):
        some = [one for one in scenarios if one["pattern"] == pattern]
        rows.append((f"mean of {pattern}", *_means(some, others), ""))
    rows.append(("mean of all", *_means(scenarios, others), ""))
    head = (
        *("graph, pattern, seed", "dppick: millions of probes and matches"),
        *(f"of {other}" for other in others),
        "dppick: s",
        *(f"of {other}" for other in others),
        "re-orderings",
    )
    return [Grid("dppick against the others: probes and matches, run time", head, tuple(rows))]


def _means(some: Sequence[dict[str, Any]], others: Sequence[str]) -> list[str]:
    found = []
    for time in (False, True):
        found.append("")
        for other in others:
            ratios = (ratio(one, "dppick", other, time=time) for one in some)
            found.append(f"{statistics.fmean(ratios):.2f}")
    return found


def charts(entry: dict[str, Any]) -> dict[str, str]:
    """Probes and matches over hindsight's."""
    names = ["fixed", "selectivity", "greedy", "dppick"]
    rows = [
        Row(one["name"], tuple(ratio(one, n, "hindsight", time=False) for n in names))
        for one in entry["scenarios"]
    ]
    title = "Probes and matches over those of hindsight's static order"
    return {"dppick-drifts": grouped(title, names, rows)}


PART = Benchmark("drifting", "streams whose best order changes", _options, _measure, tables)
