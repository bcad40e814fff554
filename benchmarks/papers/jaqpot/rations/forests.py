"""Simulated results over random forests of shared steps, under our policies and under GrePP.

``python -m benchmarks.papers jaqpot forests [--json] [--forests 1000]``

Results are simulated by the model of :mod:`anabranch_planner.allocation.forest`; nothing is
executed. In a forest queries share steps, which are executed once for all of them. GrePP is
JAQPOT's policy for paths that share nothing: with the same budget it never has more results than
the exact allocation (``allocation.results``), which is checked. Ratios are reported for the forests
and budgets for which GrePP has any results.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random
from typing import Any

from anabranch_planner.allocation.forest import Forest
from benchmarks.command import Benchmark, quantile
from benchmarks.papers.jaqpot.allocate.policies import Policy, allocate
from benchmarks.papers.jaqpot.rations.command import run_part
from benchmarks.papers.jaqpot.rations.random_forests import random_forest
from benchmarks.papers.jaqpot.sums import mean
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.session import WrongResultError

#: Budgets, in percent of the cost with all rations 1.
SHARES = (10, 30, 50, 70, 90)
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
#: Minimum ratio that counts as a gain, and tolerance for rounding errors.
BETTER, ROUNDING = 1.05, 1e-9


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--forests", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=40, help="of a forest, at most")
    parser.add_argument("--goals", type=int, default=20, help="of a forest, at most")
    parser.add_argument("--queries", type=int, default=6, help="of a forest, at most")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Simulate all forests; return the distribution of ratios at each budget.

    Raises:
        WrongResultError: GrePP has more results in some forest, or exceeds the budget.
    """
    del home
    drawn = [
        random_forest(
            Random(seed), steps=options.steps, goals=options.goals, queries=options.queries
        )
        for seed in range(options.forests)
    ]
    forests = [forest for forest in drawn if forest.full]
    found = []
    for share in SHARES:
        ratios = [ratio for f in forests for ratio in [_ratio(f, share / 100)] if ratio is not None]
        found.append({"share": share, **_distribution(ratios)})
        tell(f"{share} %: mean {found[-1]['mean']}")
    return {"drawn": len(forests), "budgets": found}


def _ratio(forest: Forest, capacity: float) -> float | None:
    """Return our results relative to GrePP's; None if GrePP has none."""
    ours, theirs = (allocate(forest, capacity, policy) for policy in (Policy.EXACT, Policy.GREPP))
    budget = capacity * forest.full * (1 + ROUNDING)
    if forest.used(ours) > budget or forest.used(theirs) > budget:
        raise WrongResultError(f"more than {capacity} of {forest.full} is used")
    output = forest.output(theirs)
    if not output:
        return None
    ratio = forest.output(ours) / output
    if ratio < 1 - ROUNDING:
        raise WrongResultError(f"{ratio} times GrePP's results at {capacity}")
    return ratio


def _distribution(ratios: list[float]) -> dict[str, Any]:
    return {
        "of": len(ratios),
        "mean": round(mean(ratios), 4),
        "least": round(min(ratios), 4),
        "most": round(max(ratios), 4),
        "quantiles": [round(quantile(ratios, q), 4) for q in QUANTILES],
        "better": round(mean(ratio > BETTER for ratio in ratios), 4),
    }


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per budget."""
    rows = tuple(
        (
            f"{one['share']} %",
            str(one["of"]),
            *(f"{one[what]:.3f}" for what in ("mean", "least")),
            *(f"{figure:.3f}" for figure in one["quantiles"]),
            f"{one['most']:.3g}",
            f"{100 * one['better']:.0f} %",
        )
        for one in entry["budgets"]
    )
    names = tuple(f"{100 * q:g} %" for q in QUANTILES)
    head = ("budget", "forests", "mean", "least", *names, "most", f"above {BETTER}")
    return [Grid("results of the exact allocation, times GrePP's", head, rows)]


BENCHMARK = Benchmark(
    "forests", "exact allocations and GrePP over random shared forests", _options, measure, tables
)


if __name__ == "__main__":
    sys.exit(run_part(BENCHMARK))
