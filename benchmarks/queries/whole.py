"""The whole system as processes, for benchmarks of many queries: start, registration, CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import redis

from anabranch_client.processes.meter import cpu_seconds, resident_bytes
from anabranch_client.processes.pipeline import Pipeline, PipelineSpec
from anabranch_client.rest.api import Client
from anabranch_contract.protocol.keys import Keys
from benchmarks.command import made
from benchmarks.kinds import Kind, kinds_of
from benchmarks.queries import workload
from benchmarks.queries.batches import VALUES
from benchmarks.queries.registration import BATCH, cpu
from tests.support.worlds.processes import spec_of

if TYPE_CHECKING:
    import httpx

#: Kinds of processes; the planner's two processes are counted separately from the service.
PLANNER = "planner"
PARTS = (Kind.DRIVER, Kind.JVM, Kind.WORKERS, Kind.SERVICE, PLANNER, Kind.REDIS)
#: Seconds until all queries are planned and active.
PATIENCE = 1800.0


def spec(home: Path, tasks: int) -> PipelineSpec:
    """Return the spec of a live pipeline, like ``anabranch up`` on one host with
    ``tasks`` cores.
    """
    return spec_of(
        home / "pipeline",
        mode="live",
        epoch_batches=10,
        parallelism=1,
        master=f"local[{tasks}]",
        durable=True,
    )


def create_streams(client: Client, names: Sequence[str], home: Path, lateness: str) -> None:
    """Register streams that are read from files below ``home``."""
    for name in names:
        client.create_stream(
            name,
            tuple(workload.COLUMNS.items()),
            event_time="ts",
            lateness=lateness,
            source={
                "format": "files",
                "path": str(made(home / name)),
                "options": {"type": "parquet"},
            },
        )


def register(http: httpx.Client, queries: Sequence[workload.Query]) -> None:
    """Register queries, many with each request."""
    for at in range(0, len(queries), BATCH):
        bodies = [query.body for query in queries[at : at + BATCH]]
        http.post("/v1/queries:batch", json={"queries": bodies}).raise_for_status()


def rows(count: int, values: float, since: float, span: float, drawn: np.random.Generator) -> Any:
    """Generate rows of a stream, with event times spread over ``span`` seconds from ``since`` on.

    A join column has ``VALUES`` times ``values`` different values.
    """
    moments = int(since * 1e6) + np.arange(count) * int(span * 1e6) // max(count, 1)
    keys = {k: drawn.integers(0, max(round(n * values), 1), count) for k, n in VALUES.items()}
    filtered = {c: drawn.integers(0, workload.VALUES, count).astype(np.int32) for c in "vw"}
    stamps = pa.array(moments, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({**keys, **filtered, "ts": stamps})


def connect(pipeline: Pipeline) -> tuple[redis.Redis, Keys]:
    """Return a connection to the pipeline's Valkey, and the names of its keys."""
    server = redis.Redis.from_url(pipeline.redis_url, decode_responses=True)
    return server, Keys(pipeline.spec.namespace)


def wait(pipeline: Pipeline, what: str, holds: Callable[[], bool]) -> None:
    """Poll until ``holds()``.

    Raises:
        TimeoutError: it does not hold within :data:`PATIENCE` seconds.
        ClientError: a process ended.
    """
    deadline = time.monotonic() + PATIENCE
    while not holds():
        pipeline.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {PATIENCE:.0f} s")
        time.sleep(0.1)


def wait_for_activation(pipeline: Pipeline, queries: int) -> None:
    """Wait until ``queries`` queries are active."""
    server, keys = connect(pipeline)
    what = f"activation of {queries:,} queries"
    wait(pipeline, what, lambda: int(server.hlen(keys.activations)) >= queries)


def processes(pipeline: Pipeline) -> dict[str, list[psutil.Process]]:
    """Return the living processes of the pipeline by kind (:data:`PARTS`)."""
    roots = {child.name: child.pid for child in pipeline.children}
    found: dict[str, list[psutil.Process]] = {str(k): v for k, v in kinds_of(roots).items()}
    service = roots.get("service")
    found[PLANNER] = [p for p in found[Kind.SERVICE] if p.pid != service]
    found[Kind.SERVICE] = [p for p in found[Kind.SERVICE] if p.pid == service]
    return found


def spent(pipeline: Pipeline) -> dict[str, float]:
    """Return CPU seconds by kind; ended children of the service were planner processes."""
    those = processes(pipeline)
    found = {part: cpu_seconds(some) for part, some in those.items()}
    own = sum(cpu(process) for process in those[Kind.SERVICE])
    return found | {
        Kind.SERVICE: own,
        PLANNER: found[PLANNER] + found[Kind.SERVICE] - own,
    }


def resident(pipeline: Pipeline) -> dict[str, int]:
    """Return the bytes of resident memory by kind of process."""
    return {part: resident_bytes(those) for part, those in processes(pipeline).items()}


def difference(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Return the CPU seconds by kind between two results of :func:`spent`."""
    return {part: round(after[part] - before.get(part, 0.0), 2) for part in after}
