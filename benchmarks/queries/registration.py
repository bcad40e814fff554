"""Cost of registering one more query, by number of registered queries.

``python -m benchmarks.queries.registration [--json] [--queries 10 100 1000 3000]``

The service and Valkey run as processes, without a runtime; queries are registered over HTTP. For
each number of queries the table has: the service's CPU milliseconds per registration, one after the
other; registrations per second of eight clients at once, and the number of refused or failed ones;
the median time of lists; and the service's CPU milliseconds for two pages of queries: the first
hundred, and the result of a search for rare words.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil

from anabranch_client.processes.pipeline import Pipeline, running
from benchmarks.command import Benchmark, run_benchmark, spread
from benchmarks.queries import workload
from benchmarks.report.grids import Grid
from tests.support.worlds.processes import spec_of

#: Number of registrations measured one by one; number of registrations of each concurrent client,
#: and number of these clients.
SINGLE, EACH, CLIENTS = 20, 10, 8
#: Queries per request, for queries whose registration is not measured.
BATCH = 250
#: Number of requests for each list; many, since the kernel counts CPU time in hundredths of a
#: second.
LOOKS = 20
LISTS = ("/v1/queries?limit=100", "/v1/epochs?limit=200", "/v1/queries/q0000")
PAGE, FOUND = LISTS[0], "/v1/queries?limit=100&find=q0007&stream=s00&status=pending"


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Register queries, and measure at every number of queries; return the figures."""
    levels = sorted(options.queries)
    most = levels[-1] + len(levels) * (SINGLE + EACH * CLIENTS)
    queries = workload.queries(most, options.streams)
    with running(spec_of(home, mode="live", epoch_batches=1000)) as pipeline:
        service = begin_service(pipeline, options.streams)
        with httpx.Client(base_url=pipeline.url, timeout=120) as http:
            found = []
            registered = 0
            for level in levels:
                while registered < level:
                    part = list(itertools.islice(queries, min(BATCH, level - registered)))
                    body = {"queries": [query.body for query in part]}
                    http.post("/v1/queries:batch", json=body).raise_for_status()
                    registered += len(part)
                found.append({"queries": level} | _at(http, queries, service, pipeline.url))
                registered += SINGLE + EACH * CLIENTS
    return {"levels": found}


def begin_service(pipeline: Pipeline, streams: int) -> psutil.Process:
    """Start the service, and register the workload's streams."""
    with pipeline.start_service() as client:
        for name in workload.streams(streams):
            client.create_stream(
                name, tuple(workload.COLUMNS.items()), event_time="ts", lateness="1 minute"
            )
    return psutil.Process(next(c.pid for c in pipeline.children if c.name == "service"))


def _at(
    http: httpx.Client, queries: Iterator[workload.Query], service: psutil.Process, url: str
) -> dict[str, Any]:
    """Measure at the present number of queries; return the figures."""
    single = []
    waits = []
    for query in itertools.islice(queries, SINGLE):
        before, began = cpu(service), time.monotonic()
        _register(http, query).raise_for_status()
        waits.append(1000 * (time.monotonic() - began))
        single.append(1000 * (cpu(service) - before))
    many = list(itertools.islice(queries, EACH * CLIENTS))
    began, before = time.monotonic(), cpu(service)
    with ThreadPoolExecutor(CLIENTS) as pool:
        parts = [many[at::CLIENTS] for at in range(CLIENTS)]
        codes = list(itertools.chain.from_iterable(pool.map(lambda p: _client(url, p), parts)))
    taken, spent = time.monotonic() - began, cpu(service) - before
    pages = {path: _page_cpu(http, path, service) for path in (PAGE, FOUND)}
    lists = {path: statistics.median(_look(http, path) for _ in range(LOOKS)) for path in LISTS}
    return {
        "cpu_ms": round(statistics.mean(single), 2),
        "answer_ms": spread(waits, 1),
        "per_second": round(len(many) / taken, 1),
        "cpu_ms_at_once": round(1000 * spent / len(many), 2),
        "failed": sum(code != 201 for code in codes),
        "page_cpu_ms": pages,
        "lists_ms": {path: round(taken, 1) for path, taken in lists.items()},
    }


def _client(url: str, queries: Sequence[workload.Query]) -> list[int]:
    with httpx.Client(base_url=url, timeout=120) as http:
        return [_register(http, query).status_code for query in queries]


def _register(http: httpx.Client, query: workload.Query) -> httpx.Response:
    return http.post("/v1/queries", json=query.body)


def _look(http: httpx.Client, path: str) -> float:
    began = time.monotonic()
    http.get(path).raise_for_status()
    return 1000 * (time.monotonic() - began)


def _page_cpu(http: httpx.Client, path: str, service: psutil.Process) -> float:
    """Return the CPU milliseconds of the service for one request of a page."""
    before = cpu(service)
    for _ in range(LOOKS):
        _look(http, path)
    return round(1000 * (cpu(service) - before) / LOOKS, 1)


def cpu(process: psutil.Process) -> float:
    """Return the CPU seconds of a process so far, to the nanosecond if the system has a clock per
    process.

    Times in /proc have a resolution of a hundredth of a second, which is more than a registration
    takes. On Linux the clock's id follows from the process's, as in clock_getcpuclockid(3).
    """
    if sys.platform == "linux":
        return time.clock_gettime((~process.pid << 3) | 2)
    times = process.cpu_times()
    return times.user + times.system


def tables(found: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per number of queries."""
    head = (
        "queries",
        "CPU ms",
        "answer ms",
        "8 clients, per s",
        "failed",
        *LISTS,
        "page, CPU ms",
        "search, CPU ms",
    )
    rows = tuple(
        (
            f"{level['queries']:,}",
            f"{level['cpu_ms']:.1f}",
            f"{level['answer_ms']['median']:.0f}",
            f"{level['per_second']:.0f}",
            str(level["failed"]),
            *(f"{level['lists_ms'][path]:.0f}" for path in LISTS),
            *(f"{level['page_cpu_ms'][path]:.1f}" for path in (PAGE, FOUND)),
        )
        for level in found["levels"]
    )
    return [Grid("Registration, by the number of queries", head, rows)]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queries", type=int, nargs="+", default=[10, 100, 1000, 3000])
    parser.add_argument("--streams", type=int, default=50)


def common(parser: argparse.ArgumentParser) -> None:
    """Add the common options of the benchmarks of many queries."""
    parser.add_argument("--folder", type=str, default=None, help="where to work")


BENCHMARK = Benchmark(
    "registration",
    "Cost of registering one more query, by the number of queries.",
    _options,
    measure,
    tables,
)

if __name__ == "__main__":
    sys.exit(run_benchmark("queries", BENCHMARK, None, common))
