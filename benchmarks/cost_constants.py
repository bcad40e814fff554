"""CPU seconds of steps, inserts and merges, and the cost constants (of the objective ``seconds``)
that are fitted to them.

``python -m benchmarks.cost_constants [--json] [--scale 0.1] [--batches 24] [--rounds 3]``

The real driver and worker run the workloads of ``benchmarks.statistics_cost`` with one task,
without Spark, with a measurement of every batch. Constants are fitted to every other batch of a
workload, and checked with its remaining batches and with the other workload. ``error`` is the sum
of absolute errors of the predicted CPU times of single steps in single batches, as a share of their
sum. For comparison, the table has the error of predictions by the number of tuples sent and
inserted, times the best constant factor.

*Whole batches* come from the workloads of ``benchmarks.ranking`` with other rows, each run with
several plans. The CPU time of a whole batch is modelled by all of its work: the operations in which
plans differ, the fixed work per batch, the arriving tuples and the results. Constants are fitted to
every other batch, and ``error`` is the error for the CPU times of the remaining ones.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import redis
import structlog

from anabranch_contract.protocol.interims import Interim
from anabranch_planner.cost.statistics.constants import OPERATIONS, CostConstants
from anabranch_planner.cost.statistics.fit import factors_of, fit
from benchmarks.ranking.plans import prepared
from benchmarks.ranking.runs import Done
from benchmarks.ranking.runs import run as run_plan
from benchmarks.ranking.workloads import workloads
from benchmarks.report.figures import Spread, document, line, tell
from benchmarks.report.grids import Grid
from benchmarks.statistics_cost import KEYS, Workload, events, run, tpch_joins
from tests.support.surroundings.redis import redis_url


def measure(workload: Workload, home: Path, url: str, batches: int) -> list[Interim]:
    """Run a workload; return the measured batches without the first, which compiles kernels."""
    run(workload, home / "run", url, batches, collect=True, interim_seconds=0.0)
    texts = redis.Redis.from_url(url).lrange(KEYS.interims, 0, -1)
    assert isinstance(texts, list)
    return [Interim.loads(text) for text in texts][1:]


def fitted(periods: Sequence[Interim]) -> CostConstants:
    """Return the cost constants fitted to ``periods``."""
    steps = [step.counts for period in periods for step in period.steps]
    inserts, merges = [p.inserts for p in periods], [p.merges for p in periods]
    return fit(steps, inserts, merges, CostConstants())


def error(known: CostConstants, periods: Sequence[Interim]) -> float:
    """Return the error of predicted CPU times, as a share of the CPU times in ``periods``."""
    missed = spent = 0.0
    for period in periods:
        for counts in (step.counts for step in period.steps):
            time = (
                counts.calls * known.call
                + counts.probes * known.probe
                + counts.looked * known.look
                + counts.matches * known.match
            )
            missed += abs(time - counts.seconds)
            spent += counts.seconds
        stored, merged = period.inserts, period.merges
        missed += abs(stored.writes * known.write + stored.rows * known.row - stored.seconds)
        missed += abs(merged.writes * known.merge + merged.rows * known.rewrite - merged.seconds)
        spent += stored.seconds + merged.seconds
    return missed / spent


def error_of_tuples(periods: Sequence[Interim], held_out: Sequence[Interim]) -> float:
    """Return the error of a simpler model: one fitted price per tuple, whether sent or stored."""
    counts, seconds = _tuples(periods)
    factor = float((counts * seconds).sum() / (counts * counts).sum())
    counts, seconds = _tuples(held_out)
    return float(np.abs(counts * factor - seconds).sum() / seconds.sum())


def _tuples(periods: Sequence[Interim]) -> tuple[np.ndarray, np.ndarray]:
    found: list[tuple[float, float]] = []
    for period in periods:
        found += [(step.counts.probes, step.counts.seconds) for step in period.steps]
        found.append((period.inserts.rows, period.inserts.seconds))
    counts, seconds = np.array(found, float).T
    return counts, seconds


#: Name of the figures in ``docs/benchmarks/ranking.jsonl``.
PART = "constants"
#: Operation of a whole batch -> its count in :class:`Done`; and initial values, in seconds, of the
#: operations that all plans of a workload have alike.
COUNTS = {
    "call": "calls",
    "probe": "probes",
    "look": "looked",
    "match": "matches",
    "write": "writes",
    "row": "rows",
    "merge": "merges",
    "rewrite": "rewritten",
    "batch": "batches",
    "arrival": "arrived",
    "result": "results",
}
ALIKE = {"batch": 1e-2, "arrival": 2e-7, "result": 5e-8}


def whole_batches(batches: Sequence[Done]) -> dict[str, float]:
    """Fit seconds per operation to the CPU times of every other one of ``batches``; return them,
    with the ``error`` for the remaining batches.
    """
    counts = np.array([[getattr(b, name) for name in COUNTS.values()] for b in batches], float)
    seconds = np.array([b.cpu for b in batches])
    known = np.array([ALIKE.get(n) or getattr(CostConstants(), n) for n in COUNTS])
    factors = factors_of(counts[::2], seconds[::2], known)
    missed = np.abs(counts[1::2] @ factors - seconds[1::2]).sum()
    found = dict(zip(COUNTS, factors.tolist(), strict=True))
    return found | {"error": float(missed / seconds[1::2].sum())}


def plans_run(options: argparse.Namespace, home: Path) -> Iterator[Done]:
    """Run each workload under some plans; yield all batches except the first of each run."""
    scales = options.scale / 2, 0.0
    made = workloads(options.batch_rows, options.batches, scales, home, home, options.seed)
    for one in made:
        for rules in prepared(one, options.plans, home / "ranked").rules:
            done = run_plan(one, home / "ranked", rules)
            tell(f"{one.name}: {sum(b.cpu for b in done):.2f} s")
            yield from done[1:]


def compare(found: dict[str, list[Interim]]) -> list[dict[str, Any]]:
    """Return a round's figures: constants of each workload, their errors there and elsewhere."""
    made = []
    for name, periods in found.items():
        known, held_out = fitted(periods[::2]), periods[1::2]
        made.append(
            {
                "workload": name,
                **{constant: getattr(known, constant) for constant in OPERATIONS},
                "error": error(known, held_out),
                "error_of_tuples": error_of_tuples(periods[::2], held_out),
                "error_elsewhere": error(
                    known, [p for other in found if other != name for p in found[other]] or held_out
                ),
            }
        )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description="CPU time of steps and inserts")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--scale", type=float, default=0.1, help="TPC-H's scale factor")
    parser.add_argument("--rows", type=int, default=250_000, help="rows of each event stream")
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-rows", type=int, default=16_000, help="of whole batches")
    parser.add_argument("--plans", type=int, default=4, help="of each workload of whole batches")
    parser.add_argument("--seed", type=int, default=101)
    options = parser.parse_args(arguments)
    load = os.getloadavg()
    # Discard the driver's log: it would go to standard output, which is for the figures.
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    rounds = []
    try:
        with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as name, redis_url() as url:
            folder = Path(name)
            alone = [tpch_joins(folder / "tables", options.scale), events(options.rows)]
            for number in range(options.rounds):
                run_of = {w.name: measure(w, folder, url, options.batches) for w in alone}
                rounds.append(compare(run_of))
                tell(f"round {number + 1} of {options.rounds}")
            whole = whole_batches(list(plans_run(options, folder)))
    finally:
        structlog.reset_defaults()
    found = [_summary(same) for same in zip(*rounds, strict=True)]
    settings = {name: value for name, value in vars(options).items() if name != "json"}
    everything = document("ranking", settings, load)
    everything |= {"part": PART, "workloads": found, "whole": whole}
    if options.json:
        sys.stdout.write(line(everything) + "\n")
        return 0
    for one in found:
        sys.stdout.write(f"{one['workload']}: " + ", ".join(_shown(one)) + "\n")
    shown = [f"{name} {1e6 * whole[name]:.3g} us" for name in COUNTS]
    sys.stdout.write(f"whole batches: {', '.join(shown)}, error {100 * whole['error']:.0f} %\n")
    return 0


def _summary(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    figures = {k: [one[k] for one in rounds] for k in rounds[0] if k != "workload"}
    spreads = {k: Spread.of(values).rounded(12) for k, values in figures.items()}
    return {"workload": rounds[0]["workload"], **spreads}


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables of constants (microseconds) and errors, by workload and of
    whole batches.
    """
    errors = ("error", "error_of_tuples", "error_elsewhere")
    rows = [
        (
            one["workload"],
            *(f"{1e6 * one[name]['median']:.3g}" for name in OPERATIONS),
            *(f"{100 * one[name]['median']:.0f} %" for name in errors),
        )
        for one in entry["workloads"]
    ]
    head = ("workload", *OPERATIONS, "error", "of tuples", "elsewhere")
    whole = entry["whole"]
    batch = (*(f"{1e6 * whole[name]:.3g}" for name in COUNTS), f"{100 * whole['error']:.0f} %")
    return [
        Grid("microseconds of single steps, inserts and merges", head, tuple(rows)),
        Grid("microseconds, of whole batches", (*COUNTS, "error"), (batch,), texts=0),
    ]


def _shown(found: dict[str, Any]) -> list[str]:
    figures = {k: v["median"] for k, v in found.items() if k != "workload"}
    errors = [k for k in figures if k.startswith("error")]
    return [
        *(f"{k} {1e6 * figures[k]:.3g} us" for k in OPERATIONS),
        *(f"{k.replace('_', ' ')} {100 * figures[k]:.0f} %" for k in errors),
    ]


if __name__ == "__main__":
    sys.exit(main())
