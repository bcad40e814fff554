"""Results of each policy at stated budgets (shares of the CPU time of probes), measured in the
runtime.

``python -m benchmarks.papers jaqpot budgets [--json] [--workloads selective tpch results]``

Every run of a workload has the same input and the same ruleset, which was planned once, with the
statistics of a whole run, without intermediate results. A run with all rations 1 is the
calibration: the forest for planning rations is built from its measurements, as in the service, and
all policies divide a share of its CPU time for steps and results (last checks, gathering, encoding
into Parquet files). The CPU time of reading, storing and the driver's own work is not divided,
since every tuple needs it.

Every run checks that the result files have exactly the rows of DuckDB's results that the rations in
the ledger, or the rivals' limits, keep (:mod:`benchmarks.papers.jaqpot.rations.expected`); without
rations they have all rows. The rivals' policies are adapted from binary plans
(:mod:`benchmarks.papers.jaqpot.rations.rivals`).

Results are reported as shares of the results of a run without rationing. They differ from the
model's prediction if few tuples have many results; a nation of TPC-H, for example, either probes or
not. The CPU time used is the measured time of the one run per budget, as a share of the median of
the runs without rationing. It differs from the budget because the costs of calls are not
proportional to the number of tuples, and because of other work on the machine.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import Benchmark, spread
from benchmarks.papers.jaqpot.rations.command import redis_url, run_part
from benchmarks.papers.jaqpot.rations.expected import Expected
from benchmarks.papers.jaqpot.rations.policies import EXACT, OURS, POLICIES, RIVALS, Calibrated
from benchmarks.papers.jaqpot.rations.runs import Division, Outcome, Planned, plan_once, run
from benchmarks.papers.jaqpot.rations.workloads import WORKLOADS, workload
from benchmarks.report.charts import Line, lines
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown

SHARES = tuple(range(10, 100, 10))


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--shares", type=int, nargs="+", default=list(SHARES), help="percent")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--size", type=float, default=1.0, help="scale of the data; reports use 1")
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--full", type=int, default=3, help="runs with all rations 1, after one")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run all workloads, one after the other; return the figures."""
    with redis_url() as url:
        return {"workloads": [_workload(options, home, url, name) for name in options.workloads]}


def _workload(options: argparse.Namespace, home: Path, url: str, name: str) -> dict[str, Any]:
    folder = home / name
    folder.mkdir()
    plan = plan_once(workload(name, options.size, options.batches, folder), folder, url)
    # The first run in a process takes longer, so it is not used for calibration.
    fulls = [_run(plan, folder, url) for _ in range(options.full + 1)][1:]
    known = Calibrated(plan, sorted(fulls, key=lambda one: one.rationed)[len(fulls) // 2].interim)
    expected = Expected(plan, known.goals)
    _run(plan, folder, url, expected=expected)
    most = sum(expected.counts.values())
    tell(f"{name}: {most:,} results, {fulls[-1].rationed:.2f} CPU s are divided")
    found: dict[str, list[dict[str, float]]] = {policy: [] for policy in options.policies}
    for share in options.shares:
        for policy in options.policies:
            division = known.division(policy, share / 100)
            one = _run(plan, folder, url, division, expected)
            found[policy].append(
                {
                    "share": share,
                    "kept": round(sum(one.results.values()) / most, 5),
                    "predicted": round(known.predicted(division), 5),
                    "least": round(_least(one, expected), 5),
                    "probing": round(one.probing, 4),
                    "writing": round(one.writing, 4),
                    "cpu": round(one.cpu, 4),
                }
            )
        # Runs without rationing alternate with the others, since a machine's speed changes.
        fulls.append(_run(plan, folder, url))
        kept = ", ".join(f"{policy} {100 * rows[-1]['kept']:.1f}" for policy, rows in found.items())
        tell(f"{name}, {share} %: {kept}")
    shutil.rmtree(folder)
    everything = statistics.median(one.rationed for one in fulls)
    for rows in found.values():
        for row in rows:
            row["used"] = round((row["probing"] + row["writing"]) / everything, 4)
    return {
        "workload": name,
        "tuples": plan.workload.tuples,
        "edges": len(known.halves),
        "goals": len(known.goals),
        "results": expected.counts,
        "full": {
            what: spread((getattr(one, what) for one in fulls), 4)
            for what in ("probing", "writing", "rationed", "cpu")
        },
        "policies": found,
    }


def _run(
    plan: Planned,
    folder: Path,
    url: str,
    division: Division | None = None,
    expected: Expected | None = None,
) -> Outcome:
    home, division = folder / "run", division or Division()
    found = run(plan, home, url, division)
    if expected is not None:
        expected.check(home / "results", found, division)
    shutil.rmtree(home)
    return found


def _least(outcome: Outcome, expected: Expected) -> float:
    """Return the completeness of the least complete query."""
    return min(outcome.results[q] / full for q, full in expected.counts.items() if full)


def ratios(one: dict[str, Any], over: Sequence[str]) -> list[float]:
    """Return the results of policy ``results``, relative to the best of ``over`` at each share."""
    found = one["policies"]
    rivals = [found[name] for name in over if name in found]
    return [
        ours["kept"] / best
        for place, ours in enumerate(found[OURS[0]])
        for best in [max((rows[place]["kept"] for rows in rivals), default=0.0)]
        if best
    ]


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables of results and CPU time by share and policy, and of ratios."""
    grids = []
    for one in entry["workloads"]:
        found = one["policies"]
        for figure, what in (
            ("kept", "results, % of the full run's"),
            ("predicted", "results as predicted, % of the full run's"),
            ("used", "CPU time used, % of the full run's"),
        ):
            rows = tuple(
                (f"{row['share']} %", *(f"{100 * found[p][at][figure]:.1f}" for p in found))
                for at, row in enumerate(next(iter(found.values())))
            )
            grids.append(Grid(f"{one['workload']}: {what}", ("budget", *found), rows))
    return [_full(entry), _compared(entry), _kept(entry), *grids]


def _full(entry: dict[str, Any]) -> Grid:
    rows = tuple(
        (
            one["workload"],
            f"{one['tuples']:,}",
            f"{sum(one['results'].values()):,}",
            str(one["edges"]),
            str(one["goals"]),
            *(shown(one["full"][what], 2) for what in ("probing", "writing", "cpu")),
        )
        for one in entry["workloads"]
    )
    head = ("workload", "tuples", "results", "edges", "goals", "probing", "writing results", "all")
    return Grid("full runs; the last three columns are CPU seconds", head, rows)


def _compared(entry: dict[str, Any]) -> Grid:
    rows = []
    for one in entry["workloads"]:
        for title, over in (("best rival", RIVALS), (EXACT, [EXACT]), ("GrePP", ["GrePP"])):
            found = ratios(one, over)
            if found:
                figures = (statistics.fmean(found), min(found), max(found))
                rows.append((one["workload"], title, *(f"{figure:.3f}" for figure in figures)))
    head = ("workload", "over", "mean", "least", "most")
    return Grid(
        "results of the allocation 'results', as a ratio to another's", head, tuple(rows), texts=2
    )


def _kept(entry: dict[str, Any]) -> Grid:
    rows = []
    for one in entry["workloads"]:
        for policy in OURS:
            off = [100 * row["used"] - row["share"] for row in one["policies"].get(policy, ())]
            if off:
                figures = (statistics.fmean(off), min(off), max(off))
                rows.append((one["workload"], policy, *(f"{figure:+.1f}" for figure in figures)))
    head = ("workload", "policy", "mean", "least", "most")
    title = "CPU time used beyond the budget, points of the full run's"
    return Grid(title, head, tuple(rows), texts=2)


def charts(entry: dict[str, Any]) -> dict[str, str]:
    """Return the charts of results by share of CPU time, one per workload."""
    found = {}
    for one in entry["workloads"]:
        series = [
            Line(policy, tuple((float(row["share"]), 100 * row["kept"]) for row in rows))
            for policy, rows in one["policies"].items()
        ]
        title = f"Results by CPU time of probes, measured: {one['workload']}"
        found[f"jaqpot-measured-{one['workload']}"] = lines(
            title, "% of the full run's CPU time", "% of its results", series
        )
    return found


BENCHMARK = Benchmark(
    "budgets", "results by stated shares of the CPU time of probes", _options, measure, tables
)


if __name__ == "__main__":
    sys.exit(run_part(BENCHMARK))
