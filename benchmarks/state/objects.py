"""``python -m benchmarks.state.objects``: time that an object store adds to a batch.

Two pipelines in this process run the same batches in turns, one with its state in a directory only,
the other with an object store as well: another directory (``file://``), or S3 from a server on this
machine (``--s3``). Prints the medians of seconds per batch and of the ratio of each pair.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import structlog

from anabranch_contract.protocol.progress import Mode
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.driver.attempts import Job
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task
from tests.support.surroundings.redis import redis_url
from tests.support.surroundings.s3 import s3_server, uri
from tests.support.worlds.driven import driver, publish


def job(batch: int, rows: int) -> Job:
    """Generate the input of a batch, in which a tuple has about one partner."""
    rng = np.random.default_rng(batch)
    moments = pa.array(np.arange(rows) + batch * rows, pa.timestamp("us", tz="UTC"))
    keys = [pa.array(rng.integers(0, rows * 20, rows)) for _ in range(3)]

    def run(context: BatchContext) -> list[TaskReport]:
        blocks = [
            Block("R", pa.record_batch({"a": keys[0], "ts": moments})),
            Block("S", pa.record_batch({"a": keys[1], "b": keys[2], "ts": moments})),
        ]
        rules = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
        return [run_task(context, rules, blocks, task=0, tasks=1, exchange=lambda m: [m])]

    return run


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--rows", type=int, default=20_000, help="per stream and batch")
    parser.add_argument("--s3", action="store_true")
    options = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = (folder / "objects").as_uri()
        if options.s3:
            store = uri(stack.enter_context(s3_server()), "bench")
        drivers = []
        for name, objects in (("without", None), ("with", store)):
            url = stack.enter_context(redis_url())
            publish(url, 0)
            drivers.append(
                driver(url, folder / name, Mode.LIVE, every=10_000, object_store=objects)
            )
        seconds: list[list[float]] = [[], []]
        for batch in range(options.batches):
            for which in (0, 1) if batch % 2 else (1, 0):
                work, began = job(batch, options.rows), time.perf_counter()
                drivers[which].run(work)
                seconds[which].append(time.perf_counter() - began)
        # The first batches load code, and do not count.
        pairs = list(zip(*seconds, strict=True))[5:]
        ratio = median(there / here for here, there in pairs)
        here, there = (1e3 * median(p[i] for p in pairs) for i in (0, 1))
        sys.stdout.write(
            f"{len(pairs)} batches of {options.rows:,} rows per stream: {here:.1f} ms without, "
            f"{there:.1f} ms with the store, median ratio {ratio:.2f}\n"
        )


if __name__ == "__main__":
    main()
