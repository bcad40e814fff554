"""Main program of a process that runs one batch, and reports the private memory that it takes.

``python -m tests.support.surroundings.memory_run URL FOLDER WHAT [LIMIT]``: ``WHAT`` is
``partners`` (few tuples with many results) or ``texts`` (results with long texts); ``LIMIT`` is the
memory limit in bytes. Prints a JSON line.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import redis

from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.driver.settings import MemoryLimits
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.index import kernels
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.memory import private_bytes
from anabranch_runtime.task.worker import run_task
from tests.support.cases.states import rules
from tests.support.worlds.driven import KEYS, driver

PARTNERS = 300
#: Name of a workload -> (tuples of R, bytes of a text).
WORLDS = {"partners": (20_000, 8), "texts": (20, 60_000)}
STREAMS = (
    Stream(StreamName("R"), (("a", parse_type("bigint")),)),
    Stream(StreamName("S"), (("a", parse_type("bigint")), ("t", parse_type("string")))),
)
SQL = "SELECT R.a, S.t FROM R JOIN S ON R.a = S.a"


def main(url: str, folder: str, what: str, limit: int | None = None) -> None:
    """Run the batch and print its memory."""
    kernels.warm()
    document = rulesets.to_json(rules(0, {"q": SQL}, streams=STREAMS))
    connection = redis.Redis.from_url(url)
    connection.set(KEYS.ruleset(0), json.dumps(document))
    connection.zadd(KEYS.published, {"0": 0})
    one = driver(url, Path(folder))
    one.settings = replace(one.settings, memory=MemoryLimits(limit))
    tuples, size = WORLDS[what]
    reports: list[TaskReport] = []

    def job(context: BatchContext) -> list[TaskReport]:
        known = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
        report = run_task(
            context, known, _blocks(tuples, size), task=0, tasks=1, exchange=lambda m: [m]
        )
        reports.append(report)
        return [report]

    before, peak, stop = private_bytes(), [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.0005):
            peak[0] = max(peak[0], private_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    one.run(job)
    stop.set()
    thread.join()
    found = {
        "before": before,
        "peak": peak[0],
        "seen": reports[0].memory,
        "results": reports[0].results["q"],
    }
    sys.stdout.write(json.dumps(found) + "\n")


def _blocks(tuples: int, size: int) -> Iterator[Block]:
    yield Block("R", pa.record_batch({"a": pa.array([0] * tuples, pa.int64())}))
    # Arrow arrays, as from a source: Python's strings would count as memory of the worker.
    texts = pc.utf8_lpad(pc.cast(pa.array(range(PARTNERS)), pa.string()), width=size, padding="x")
    zeros = pa.array([0] * PARTNERS, pa.int64())
    yield Block("S", pa.record_batch({"a": zeros, "t": texts}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]) if sys.argv[4:] else None)
