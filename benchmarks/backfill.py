"""Cost of the two ways to get a new intermediate result's past: by coverage (probes read its base
stores instead), or by backfill; while the past is computed, and afterwards.

``python -m benchmarks.backfill [--json] [--batches 12] [--probes 4000] [--rows 400]``

The workload is a four-way join over full history, ``R(a) S(a,b) T(b,c) U(c)``, in the real driver
and worker with one task, without Spark; results are only counted. R has ten times the rate of the
other streams. After ``--batches`` batches without intermediate results the optimiser's plan for
these rates takes over, in which R's tuples probe S-T-U. Then the past of S-T-U is left to coverage
in one run, and computed in slices (backfilled) in the next batches of another run. In a third run,
for comparison, the plan without intermediate results continues. The runs alternate. They are
compared by CPU time per batch, so that other programs don't count, and only batches of the same
number are compared, because each batch finds more results than the one before.

``during`` and ``after`` are the batches in which the past is computed and the batches that follow;
``alone`` is the plan without intermediate results. All are medians over batches, as multiples of
the time of the same batch with coverage. ``slices`` is the number of batches in which the past was
computed, ``decided`` the decision that the planner would make. Results are the same in all runs, or
the benchmark fails.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import redis
import structlog

from anabranch_contract.connectors.sinks import SinkKind, SinkSpec
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.plan import Backfilling
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import RelationId, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.backfill import decide, document
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_runtime.control import Control, fetch_ruleset
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task
from benchmarks.report import figures
from tests.support.surroundings.redis import redis_url

_NAMESPACE = "backfill"
_RATIOS = ("alone", "during", "after")
_SQL = "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b JOIN U ON T.c = U.c"
_COLUMNS = {"R": ("a",), "S": ("a", "b"), "T": ("b", "c"), "U": ("c",)}


@dataclass(frozen=True, slots=True)
class Size:
    """Size of the input: ``probes`` tuples of R and ``rows`` of each other stream per batch;
    numbers of batches ``before`` and ``after`` the end of history.
    """

    probes: int
    rows: int
    before: int
    after: int

    def distinct(self, column: str) -> int:
        """Number of distinct values of a key, chosen so that at the end of history an R tuple meets
        two S tuples, an S tuple eight T tuples, and one T tuple in ten meets a U tuple.
        """
        return max(1, int(self.rows * self.before / {"a": 2, "b": 8, "c": 0.1}[column]))


@dataclass(frozen=True, slots=True)
class Run:
    """Per batch of a run: CPU seconds, whether it backfilled a slice, number of results so far."""

    cpu: tuple[float, ...]
    sliced: tuple[bool, ...]
    results: tuple[int, ...]


def run(home: Path, url: str, size: Size, rules: Sequence[dict[str, Any]]) -> Run:
    """Run batches with the first of ``rules`` up to the end of history, then with the second."""
    redis.Redis.from_url(url).flushall()
    fetch_ruleset.cache_clear()
    server, keys = redis.Redis.from_url(url), Keys(_NAMESPACE)
    for epoch in range(2 + size.after // size.before):
        text = json.dumps({**rules[min(epoch, 1)], "epoch": epoch})
        server.set(keys.ruleset(epoch), text)
        server.zadd(keys.published, {str(epoch): epoch})
    state = home / "state"
    state.mkdir(parents=True)
    settings = DriverSettings(state, home / "results", size.before, mode=Mode.STEP, patience=5)
    driver = Driver(settings, Control(url, _NAMESPACE))
    driver.announce()
    random = np.random.default_rng(3)
    cpu, sliced, results = [], [], []
    for _ in range(size.before + size.after):
        blocks = _blocks(size, random)
        did: list[bool] = []

        def job(
            context: BatchContext, blocks: list[Block] = blocks, did: list[bool] = did
        ) -> list[TaskReport]:
            did.append(context.backfill is not None)
            by = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
            return [
                run_task(context, by, blocks, task=0, tasks=1, exchange=lambda message: [message])
            ]

        started = time.process_time()
        driver.run(job)
        cpu.append(time.process_time() - started)
        sliced.append(did[-1])
        results.append(sum(q.results for q in driver.state.queries.values()))
    return Run(tuple(cpu), tuple(sliced), tuple(results))


def _blocks(size: Size, random: np.random.Generator) -> list[Block]:
    found = []
    for stream, columns in _COLUMNS.items():
        count = size.probes if stream == "R" else size.rows
        arrays = [pa.array(random.integers(0, size.distinct(c), count)) for c in columns]
        found.append(Block(stream, pa.RecordBatch.from_arrays(arrays, names=list(columns))))
    return found


def plans(size: Size) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return three rulesets: without intermediate results, with one whose past is left to coverage,
    and with one that is backfilled; and the planner's own decision on its past.
    """
    bigint = parse_type("bigint")
    streams = [
        Stream(StreamName(name), tuple((c, bigint) for c in columns))
        for name, columns in _COLUMNS.items()
    ]
    query = parse_sql("q", _SQL, {s.name: s for s in streams})
    known = Statistics(
        {
            RelationId(s): float((size.probes if s == "R" else size.rows) * size.before)
            for s in _COLUMNS
        },
        {
            (RelationId(s), c): float(size.distinct(c))
            for s, columns in _COLUMNS.items()
            for c in columns
        },
    )
    made = {}
    for name, mir, setting in (
        ("alone", False, Backfilling.NEVER),
        ("coverage", True, Backfilling.NEVER),
        ("backfill", True, Backfilling.ALWAYS),
    ):
        plan = optimise([query], known, Options(mir=mir))
        model = CostModel(known)
        made[name] = rulesets.to_json(
            compile_ruleset(
                plan,
                [query],
                streams,
                epoch=0,
                parallelism=1,
                sinks={"q": SinkSpec(SinkKind.COUNT)},
                backfills=decide(plan, [query], model, setting=setting),
            )
        )
        decided = decide(plan, [query], model)
    if not decided:
        raise ValueError("the plan keeps no intermediate result")
    return made, document(decided[0])


def measure(size: Size, folder: Path, url: str, rounds: int) -> dict[str, Any]:
    """Return the figures of ``rounds`` rounds, in which the runs alternate."""
    rules, decided = plans(size)
    found: dict[str, list[float]] = {name: [] for name in (*_RATIOS, "coverage")}
    slices: list[int] = []
    for number in range(-1, rounds):
        runs = {
            name: run(folder / f"{number}-{name}", url, size, (rules["alone"], rules[name]))
            for name in rules
        }
        if len({r.results for r in runs.values()}) > 1:
            raise ValueError("not the same results in all runs")
        # Leave out the first batch, which enters the epoch, and the first round, which warms up.
        later = range(size.before + 1, size.before + size.after)
        filled = runs["backfill"]
        end = max(b for b, sliced in enumerate(filled.sliced) if sliced)
        if number < 0:
            continue
        if end + 1 >= later[-1]:
            raise ValueError("the past was not computed in time: more batches are needed")
        base = runs["coverage"].cpu
        during = [b for b in later if b <= end] or [size.before]
        groups = {
            "alone": [runs["alone"].cpu[b] / base[b] for b in later],
            "during": [filled.cpu[b] / base[b] for b in during],
            "after": [filled.cpu[b] / base[b] for b in later if b > end],
            "coverage": [base[b] for b in later],
        }
        for name, one in groups.items():
            found[name].append(statistics.median(one))
        slices.append(sum(filled.sliced))
        figures.tell(f"round {number + 1}: " + str({k: round(v[-1], 3) for k, v in found.items()}))
    return {
        "decided": decided,
        "slices": figures.Spread.of(slices).rounded(0),
        "coverage_cpu_seconds": figures.Spread.of(found["coverage"]).rounded(4),
        **{name: figures.Spread.of(found[name]).rounded(3) for name in _RATIOS},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description="what an intermediate result's past costs")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--batches", type=int, default=12, help="batches of history")
    parser.add_argument("--after", type=int, default=24, help="batches after it")
    parser.add_argument("--probes", type=int, default=4000, help="tuples of R per batch")
    parser.add_argument("--rows", type=int, default=400, help="tuples of each other stream")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    load = os.getloadavg()
    size = Size(options.probes, options.rows, options.batches, options.after)
    # Discard the driver's log: it would go to standard output, which is for the figures.
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    try:
        with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as name, redis_url() as url:
            found = measure(size, Path(name), url, options.rounds)
    finally:
        structlog.reset_defaults()
    if options.json:
        settings = {name: value for name, value in vars(options).items() if name != "json"}
        sys.stdout.write(figures.line(figures.document("backfill", settings, load) | found) + "\n")
        return 0
    decided = found["decided"]
    sys.stdout.write(
        f"past of {decided['label']}: coverage {decided['coverage']:.0f}, backfill "
        f"{decided['cost']:.0f}; computed in {found['slices']['median']:.0f} batches\n"
        f"CPU time of a batch, as multiples of that with coverage "
        f"({found['coverage_cpu_seconds']['median']:.3f} s):\n"
        + "".join(
            f"  {name:<7} {found[name]['median']:.2f} "
            f"({found[name]['low']:.2f} to {found[name]['high']:.2f})\n"
            for name in _RATIOS
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
