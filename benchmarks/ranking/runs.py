"""Runs of a workload with a given plan: CPU seconds and counts of operations per batch."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

from anabranch_contract.plans.ruleset import Ruleset
from benchmarks.engine import Engine
from benchmarks.pmjoin.workloads import Workload
from benchmarks.session import WrongResultError
from tests.support.surroundings.redis import redis_url


@dataclass(frozen=True, slots=True)
class Done:
    """CPU seconds and counts of operations, of one or several batches.

    Attributes:
        cpu: CPU seconds of the process, including merges.
        batches, arrived: number of batches, and of arriving tuples.
        calls, probes, looked, matches: counts of steps.
        writes, rows: counts of stores. ``merges``, ``rewritten``: number of merges, and of rows
            that they rewrote.
        results: number of results.
    """

    cpu: float = 0.0
    batches: int = 0
    arrived: int = 0
    calls: int = 0
    probes: int = 0
    looked: int = 0
    matches: int = 0
    writes: int = 0
    rows: int = 0
    merges: int = 0
    rewritten: int = 0
    results: int = 0

    def __add__(self, other: Done) -> Done:
        return Done(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def run(workload: Workload, home: Path, rules: Ruleset) -> list[Done]:
    """Run each batch of ``workload`` under ``rules`` in this process, with one task.

    Raises:
        WrongResultError: DuckDB counts other results.
    """
    found: list[Done] = []
    results = Counter[str]()
    with redis_url() as url:
        engine = Engine(home, url, workload.streams, workload.queries, parallelism=1, rules=rules)
        for number in range(len(workload.batches)):
            began = time.process_time()
            engine.run(partial(workload.blocks, number))
            found.append(_done(engine, workload, number, time.process_time() - began))
            for report in engine.reports:
                results.update(report.results)
        engine.finish()
    shutil.rmtree(home)
    if {name: results[name] for name in workload.results} != dict(workload.results):
        raise WrongResultError(f"{workload.name}: {dict(results)}, not {workload.results}")
    return found


def _done(engine: Engine, workload: Workload, number: int, cpu: float) -> Done:
    edges = [edge for report in engine.reports for edge in report.measured.edges.values()]
    inserts, merged = [r.measured.inserts for r in engine.reports], engine.driver.compactor.spent
    return Done(
        cpu=cpu,
        batches=1,
        arrived=sum(table.num_rows for table in workload.batches[number].values()),
        calls=sum(e.calls for e in edges),
        probes=sum(e.probes for e in edges),
        looked=sum(e.looked for e in edges),
        matches=sum(e.matches for e in edges),
        writes=sum(i.writes for i in inserts),
        rows=sum(i.rows for i in inserts),
        merges=merged.writes,
        rewritten=merged.rows,
        results=engine.results,
    )
