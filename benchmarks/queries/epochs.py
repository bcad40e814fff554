"""Cost of planning an epoch in the service, by number of queries.

``python -m benchmarks.queries.epochs [--json] [--queries 10 100 300 1000] [--partitions 1]``

The service and Valkey run as processes. In place of the runtime, the benchmark reports the end of
an epoch with measurements of all stored relations, and waits until the next epoch is published. For
each number of queries the table has: CPU seconds of the service and its planner process, and
seconds until the epoch is published, in three cases: all measurements stay the same, all rates
change, or one more query is registered; the bytes of the ruleset as sent and as stored; and the
time of other requests meanwhile.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import httpx
import psutil
import redis

from anabranch_client.processes.pipeline import running
from anabranch_contract import codec
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Boundary
from benchmarks.command import Benchmark, quantile, run_benchmark
from benchmarks.queries import workload
from benchmarks.queries.registration import BATCH, begin_service, common, cpu
from benchmarks.report.grids import Grid
from tests.support.worlds.processes import spec_of

#: Number of epochs of each case.
ROUNDS = 3
#: Maximum seconds until an epoch is published.
PATIENCE = 600.0
KINDS = ("same", "rates", "one more")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Plan epochs at every number of queries; return the figures."""
    levels = sorted(options.queries)
    queries = workload.queries(levels[-1] + len(levels) * ROUNDS, options.streams)
    spec = spec_of(home, mode="step", epoch_batches=1000, parallelism=options.partitions)
    with running(spec) as pipeline:
        service = begin_service(pipeline, options.streams)
        server = redis.Redis.from_url(pipeline.redis_url, decode_responses=True)
        world = _World(server, Keys(pipeline.spec.namespace), service, options.streams)
        with httpx.Client(base_url=pipeline.url, timeout=120) as http:
            found, registered = [], 0
            for level in levels:
                while registered < level:
                    part = list(itertools.islice(queries, min(BATCH, level - registered)))
                    bodies = [query.body for query in part]
                    http.post("/v1/queries:batch", json={"queries": bodies}).raise_for_status()
                    registered += len(part)

                def one_more() -> None:
                    http.post("/v1/queries", json=next(queries).body).raise_for_status()

                found.append({"queries": level} | world.level(one_more, pipeline.url))
                registered += ROUNDS
    return {"levels": found, "partitions": options.partitions}


class _World:
    """The benchmark in the role of the runtime, which reports measurements to the service."""

    def __init__(
        self, server: redis.Redis, keys: Keys, service: psutil.Process, streams: int
    ) -> None:
        self.server, self.keys, self.service = server, keys, service
        self.names, self.rng = workload.streams(streams), Random(1)
        self.rates = {name: self.rng.uniform(1_000, 20_000) for name in self.names}
        self.epoch = -1
        #: Relation -> its stream, and whether it has a filter.
        self.streams: dict[str, tuple[str, bool]] = {}

    def level(self, one_more: Callable[[], None], url: str) -> dict[str, Any]:
        """Measure the planning of the registered queries; return the figures."""
        # The first plan includes new queries, and the second is charged for changes from it:
        # neither is measured.
        for _ in range(2):
            self.plan()
            rules = httpx.get(f"{url}/v1/epochs/{self.epoch}/ruleset", timeout=60).json()
            self.streams = {r["id"]: (r["stream"], bool(r["filter"])) for r in rules["relations"]}
        found: dict[str, Any] = {}
        with _Looks(url) as looks:
            for kind in KINDS:
                spent, taken = [], []
                for _ in range(ROUNDS):
                    if kind == "rates":
                        self.rates = {
                            n: r * self.rng.uniform(0.5, 2) for n, r in self.rates.items()
                        }
                    elif kind == "one more":
                        one_more()
                    before, began = self.spent(), time.monotonic()
                    self.plan()
                    taken.append(time.monotonic() - began)
                    spent.append(self.spent() - before)
                found[kind] = {
                    "cpu_s": round(statistics.median(spent), 2),
                    "seconds": round(statistics.median(taken), 2),
                }
        kept = str(self.server.get(self.keys.ruleset(self.epoch)))
        text = httpx.get(f"{url}/v1/epochs/{self.epoch}/ruleset", timeout=60).text
        record = httpx.get(f"{url}/v1/epochs/{self.epoch}", timeout=60).json()
        return found | {
            "ruleset_mb": round(len(text) / 1e6, 2),
            "kept_mb": round(len(kept) / 1e6, 3),
            "gap": record["gap"],
            "variables": record["variables"],
            "waits_ms": {
                "p50": round(1000 * quantile(looks.seconds, 0.5), 1),
                "p99": round(1000 * quantile(looks.seconds, 0.99), 1),
                "most": round(1000 * max(looks.seconds), 1),
            },
        }

    def plan(self) -> None:
        """Report the end of an epoch, and wait for the next epoch's publication."""
        keys = {name: float(values) for name, values in workload.KEYS.items()}
        snapshot = Snapshot(
            self.epoch,
            100 * (self.epoch + 1),
            100,
            arrivals={
                relation: int(self.rates[stream] * (0.5 if filtered else 1.0))
                for relation, (stream, filtered) in self.streams.items()
            },
            distincts=dict.fromkeys(self.streams, keys),
        )
        document = codec.dumps(snapshot) if self.epoch >= 0 else None
        boundary = Boundary(self.epoch, 100 * (self.epoch + 1), document)
        self.server.rpush(self.keys.boundaries, boundary.dumps())
        self.server.xadd(self.keys.reports, {"of": "boundary"}, maxlen=1, approximate=False)
        self.epoch += 1
        end = time.monotonic() + PATIENCE
        while not self.server.exists(self.keys.ruleset(self.epoch)):
            if time.monotonic() > end:
                raise TimeoutError(f"epoch {self.epoch} was not published")
            time.sleep(0.002)

    def spent(self) -> float:
        """Return the CPU seconds of the service and its planner process so far."""
        return sum(cpu(p) for p in (self.service, *self.service.children()))


class _Looks:
    """Thread of another client, which requests a query again and again."""

    def __init__(self, url: str) -> None:
        self.url, self.seconds = url, list[float]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Looks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        with httpx.Client(base_url=self.url, timeout=120) as http:
            while not self._over.wait(0.02):
                began = time.monotonic()
                http.get("/v1/queries/q0000").raise_for_status()
                self.seconds.append(time.monotonic() - began)


def tables(found: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per number of queries."""
    head = (
        "queries",
        *(f"{kind}: {what}" for kind in KINDS for what in ("CPU s", "s")),
        "gap",
        "ruleset, MB",
        "kept, MB",
        "other requests, p99 ms",
    )
    rows = tuple(
        (
            f"{level['queries']:,}",
            *(f"{level[k][what]:.2f}" for k in KINDS for what in ("cpu_s", "seconds")),
            "–" if level["gap"] is None else f"{level['gap']:.1%}",
            f"{level['ruleset_mb']:.2f}",
            f"{level['kept_mb']:.2f}",
            f"{level['waits_ms']['p99']:.0f}",
        )
        for level in found["levels"]
    )
    each = f"partitions per store: {found.get('partitions', 2)}"
    return [Grid(f"Planning of an epoch, by the number of queries; {each}", head, rows)]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queries", type=int, nargs="+", default=[10, 100, 300, 1000])
    parser.add_argument("--streams", type=int, default=50)
    # The default of `anabranch up` on one host.
    parser.add_argument("--partitions", type=int, default=1)


BENCHMARK = Benchmark(
    "epochs",
    "Cost of an epoch's planning to the service, by the number of queries.",
    _options,
    measure,
    tables,
)

if __name__ == "__main__":
    sys.exit(run_benchmark("queries", BENCHMARK, None, common))
