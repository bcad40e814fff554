"""Time from the registration of one more query to its activation, by the number of queries.

``python -m benchmarks.queries.activation [--json] [--rules 50 500 5000] [--rate 1000]``

Valkey, service and runtime run as processes with the settings of ``anabranch up``, while ``--rate``
events per second arrive. The queries are rules (``benchmarks.queries.rules``). At each number of
rules, :data:`MORE` further ones are registered one after the other over HTTP, each :data:`PAUSE`
seconds after the activation of the one before. The table has the milliseconds until the answer to a
registration, and the seconds from its request to the report of the first batch in which the query
is active.

Then :data:`CHANGED` of these rules are replaced, and as many deleted, one by one in the same way:
the table has the seconds to the activation of the new definition, and to the report of the first
batch in which a deleted rule produces no result. Finally, :data:`BURST` rules are registered within
:data:`BURST_SECONDS` seconds at equal intervals; the seconds of each are measured from its request.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch_client.processes.pipeline import Pipeline, running
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.queries.runs import run_name
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
#: Number of rules that are replaced, and that are deleted, one by one.
CHANGED = 5
#: Number of rules registered in a burst, and the length of the burst in seconds.
BURST, BURST_SECONDS = 20, 2.0
#: Seconds during which the same entities have events.
ALIVE = 5.0


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Register rules up to each number, then further ones one by one; return the times."""
    levels = sorted(options.rules)
    wanted = rules.rules(levels[-1] + len(levels) * (MORE + CHANGED + BURST))
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
            found, registered, ended = [], 0, 0
            for level in levels:
                whole.register(http, list(itertools.islice(wanted, level - registered)))
                whole.wait_for_activation(pipeline, level + ended)
                tell(f"{level:,} rules are active")
                found.append({"rules": level} | _more(pipeline, http, wanted))
                registered, ended = level + MORE - CHANGED + BURST, ended + 2 * CHANGED
    return {"levels": found}


@contextlib.contextmanager
def _events(home: Path, rate: float) -> Iterator[None]:
    """Context in which ``rate`` events arrive per second, in a file every :data:`TICK` seconds."""
    ended = threading.Event()
    writer = threading.Thread(target=_write, args=(home, round(rate * TICK), ended), daemon=True)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


def _write(home: Path, count: int, ended: threading.Event) -> None:
    """Write files of ``count`` events until ``ended``. Every :data:`ALIVE` seconds, new entities
    replace all earlier ones.
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
    """Register :data:`MORE` rules one by one, change some of them, and register a burst."""
    answers, active, replaced, deleted = [], [], [], []
    server, keys = whole.connect(pipeline)

    def is_active(run: str) -> bool:
        return bool(server.hexists(keys.activations, run))

    def is_out(run: str) -> bool:
        text = server.hget(keys.activations, run)
        return text is not None and Activation.loads(text).expired_batch is not None

    def after(began: float, happened: Callable[[str], bool], run: str) -> float:
        while not happened(run):
            pipeline.check()
            time.sleep(0.01)
        return time.monotonic() - began

    def begin() -> float:
        time.sleep(PAUSE)
        return time.monotonic()

    queries = list(itertools.islice(wanted, MORE))
    for query in queries:
        began = begin()
        http.post("/v1/queries", json=query.body).raise_for_status()
        answers.append(1000 * (time.monotonic() - began))
        active.append(after(began, is_active, query.name))
    for query, other in zip(queries, itertools.islice(wanted, CHANGED), strict=False):
        began = begin()
        body = {name: value for name, value in other.body.items() if name != "id"}
        http.put(f"/v1/queries/{query.name}", json=body).raise_for_status()
        replaced.append(after(began, is_active, run_name(query.name, 2)))
    for query in queries[-CHANGED:]:
        began = begin()
        http.delete(f"/v1/queries/{query.name}").raise_for_status()
        deleted.append(after(began, is_out, query.name))
    return {
        "answer_ms": spread(answers, 1),
        "active_s": spread(active, 2),
        "replaced_s": spread(replaced, 2),
        "deleted_s": spread(deleted, 2),
        "burst_s": spread(_burst(http, list(itertools.islice(wanted, BURST)), is_active), 2),
    }


def _burst(
    http: httpx.Client, queries: list[Query], is_active: Callable[[str], bool]
) -> list[float]:
    """Register ``queries`` within :data:`BURST_SECONDS`; return the seconds until each
    is active.
    """
    time.sleep(PAUSE)
    first, begun, found = time.monotonic(), dict[str, float](), dict[str, float]()
    waiting = list(queries)
    while len(found) < len(queries):
        now = time.monotonic()
        if waiting and now >= first + len(begun) * BURST_SECONDS / len(queries):
            query = waiting.pop(0)
            begun[query.name] = now
            http.post("/v1/queries", json=query.body).raise_for_status()
        for name in begun.keys() - found.keys():
            if is_active(name):
                found[name] = time.monotonic() - begun[name]
        time.sleep(0.005)
    return list(found.values())


def tables(found: dict[str, Any]) -> list[Grid]:
    """Return the table: a line per number of rules."""
    names = ("active_s", "replaced_s", "deleted_s", "burst_s")
    head = ("rules", "answer, ms", "active", "replaced", "deleted", "in a burst")
    rows = tuple(
        (
            f"{one['rules']:,}",
            shown(one["answer_ms"], 1),
            *(shown(one[name], 2) if name in one else "" for name in names),
        )
        for one in found["levels"]
    )
    return [Grid("One rule more or less, seconds until it takes effect", head, rows)]


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
