"""Time from the registration of one more query to its activation, by the number of queries.

``python -m benchmarks.queries.activation [--json] [--rules 50 500 5000] [--rate 1000]``

Valkey, service and runtime run as processes with the settings of ``anabranch up``, while
``--rate`` events per second arrive. The queries are rules (``benchmarks.queries.rules``). At each
number of rules, :data:`MORE` further ones are registered one after the other over HTTP, each
:data:`PAUSE` seconds after the activation of the one before. The table has the milliseconds of a
registration's answer, and the seconds from its request to the report of the first batch that the
query is active in.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch_client.processes.pipeline import Pipeline, running
from benchmarks.command import Benchmark, made, run_benchmark, spread
from benchmarks.papers.jaqpot.live.overload_workloads import TICK
from benchmarks.queries import rules, whole
from benchmarks.queries.registration import common
from benchmarks.queries.workload import Query
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown

#: Rules registered one by one at each number of rules, and seconds before each.
MORE, PAUSE = 10, 6.0
#: Seconds in which the same entities have events.
ALIVE = 5.0


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Register rules up to each number, then some more one by one."""
    levels = sorted(options.rules)
    wanted = rules.rules(levels[-1] + MORE)
    with running(whole.spec(home, options.tasks)) as pipeline:
        with pipeline.start_service() as client:
            source = {"format": "files", "path": str(made(home / rules.STREAM))}
            client.create_stream(
                rules.STREAM,
                tuple(rules.COLUMNS.items()),
                event_time="ts",
                lateness="1 minute",
                source=source | {"options": {"type": "parquet"}},
            )
        pipeline.start_runtime()
        http = httpx.Client(base_url=pipeline.url, timeout=300)
        with http, _events(home, options.rate):
            found, registered = [], 0
            for level in levels:
                whole.register(http, list(itertools.islice(wanted, level - registered)))
                whole.wait_for_activation(pipeline, level)
                tell(f"{level:,} rules are active")
                found.append({"rules": level} | _more(pipeline, http, wanted))
                registered = level + MORE
    return {"levels": found}


@contextlib.contextmanager
def _events(home: Path, rate: float) -> Iterator[None]:
    """Meanwhile ``rate`` events arrive per second, in a file per :data:`TICK` seconds."""
    ended = threading.Event()
    writer = threading.Thread(target=_write, args=(home, round(rate * TICK), ended), daemon=True)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


def _write(home: Path, count: int, ended: threading.Event) -> None:
    """Write files of ``count`` events until ``ended``. After :data:`ALIVE` seconds new entities
    take the place of all earlier ones.
    """
    drawn, began, waiting = np.random.default_rng(0), time.monotonic(), home / "waiting.parquet"
    for number in itertools.count():
        if ended.wait(began + number * TICK - time.monotonic()):
            return
        batch = rules.events(count, int((time.time() - TICK) * 1e6), int(TICK * 1e6), drawn)
        entities = int(number * TICK / ALIVE) * count * len(rules.KEYS)
        columns = {
            name: pc.add(batch[name], entities) if name in rules.KEYS else batch[name]
            for name in batch.schema.names
        }
        pq.write_table(pa.table(columns), waiting)
        waiting.rename(home / rules.STREAM / f"{number:06}.parquet")


def _more(pipeline: Pipeline, http: httpx.Client, wanted: Iterator[Query]) -> dict[str, Any]:
    """Register :data:`MORE` rules one by one."""
    answers, active = [], []
    server, keys = whole.connect(pipeline)
    for query in itertools.islice(wanted, MORE):
        time.sleep(PAUSE)
        began = time.monotonic()
        http.post("/v1/queries", json=query.body).raise_for_status()
        answers.append(1000 * (time.monotonic() - began))
        while not server.hexists(keys.activations, query.name):
            pipeline.check()
            time.sleep(0.01)
        active.append(time.monotonic() - began)
    return {"answer_ms": spread(answers, 1), "active_s": spread(active, 2)}


def tables(found: dict[str, Any]) -> list[Grid]:
    """A line per number of rules."""
    head = ("rules", "answer, ms", "active after, s")
    rows = tuple(
        (f"{one['rules']:,}", shown(one["answer_ms"], 1), shown(one["active_s"], 2))
        for one in found["levels"]
    )
    return [Grid("One rule more", head, rows)]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rules", type=int, nargs="+", default=[50, 500, 5000])
    parser.add_argument("--rate", type=float, default=1000.0, help="events per second")
    parser.add_argument("--tasks", type=int, default=2, help="Spark's")


BENCHMARK = Benchmark(
    "activation",
    "Time from the registration of one more query to its activation.",
    _options,
    measure,
    tables,
)

if __name__ == "__main__":
    sys.exit(run_benchmark("queries", BENCHMARK, None, common))
