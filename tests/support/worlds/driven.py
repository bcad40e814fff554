"""A driver whose batches run in this process (one task), without Spark. Batch ``b`` has one tuple
of R and one of S, both with ``a = 0``, and ``b`` as S's value, so that every R joins every S.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import pyarrow as pa
import redis as redis_client

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Boundary, Mode
from anabranch_runtime.control import Control, fetch_ruleset
from anabranch_runtime.driver.attempts import Job
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task
from tests.support.cases.states import RS, rules
from tests.support.surroundings.policy import OPEN
from tests.support.worlds.kept_tables import here

KEYS = Keys("test")


def publish(
    url: str,
    epoch: int,
    queries: dict[str, str] | None = None,
    sinks: Mapping[str, SinkSpec] = MappingProxyType({}),
) -> None:
    """Publish a ruleset as the service does; by default with the query ``q`` over R and S.

    ``sinks``: sinks by query; other queries have the default.
    """
    made = rules(epoch, queries or {"q": RS})
    specs = tuple(replace(q, sink=sinks.get(q.id, q.sink)) for q in made.queries)
    document = rulesets.dumps(replace(made, queries=specs))
    connection = redis_client.Redis.from_url(url)
    connection.set(KEYS.ruleset(epoch), document)
    connection.zadd(KEYS.published, {str(epoch): epoch})


def boundaries(url: str) -> list[Boundary]:
    """Return the reported ends of epochs."""
    found = redis_client.Redis.from_url(url).lrange(KEYS.boundaries, 0, -1)
    return [Boundary.loads(text) for text in found]


def driver(
    url: str,
    folder: Path,
    mode: Mode = Mode.STEP,
    *,
    every: int = 2,
    seconds: float = 3600.0,
    **others: Any,
) -> Driver:
    """Start a driver over the files in ``folder``; ``others``: further settings.

    ``seconds``: seconds after which an epoch may end.
    """
    settings = DriverSettings(
        folder / "state",
        folder / "results",
        epoch_batches=every,
        epoch_seconds=seconds,
        mode=mode,
        patience=0.05,
        access=OPEN,
        **others,
    )
    settings.state.mkdir(parents=True, exist_ok=True)
    tables = here(settings.state, settings.results, {}, lambda *_: None)
    found = Driver(settings, Control(url, "test"), tables=tables)
    found.announce()
    return found


def job(batch: int, seen: list[tuple[int, int]] | None = None, *, copies: int = 1) -> Job:
    """Return the job of ``batch``, with ``copies`` copies of each tuple; it adds (epoch, ruleset)
    to ``seen``.
    """
    moment = pa.array([batch] * copies, pa.timestamp("us", tz="UTC"))

    def run(context: BatchContext) -> list[TaskReport]:
        if seen is not None:
            seen.append((context.epoch, context.ruleset.epoch))
        one, value = (pa.array([x] * copies, pa.int64()) for x in (0, batch))
        blocks = [
            Block("R", pa.record_batch({"a": one, "ts": moment})),
            Block("S", pa.record_batch({"a": one, "b": value, "ts": moment})),
        ]
        known = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
        return [run_task(context, known, blocks, task=0, tasks=1, exchange=lambda m: [m])]

    return run


class Killed(BaseException):
    """A simulated death of the process, which no code handles."""


def die(after: Job | None = None) -> Job:
    """Return a job in which the driver dies, when ``after`` is done."""

    def run(context: BatchContext) -> list[TaskReport]:
        if after is not None:
            after(context)
        raise Killed

    return run


def results(folder: Path, query: str = "q") -> list[int]:
    """Return S's values in a query's results."""
    files = sorted(map(str, (folder / "results" / query).glob("*.parquet")))
    return sorted(b for _, b in duckdb.read_parquet(files).fetchall()) if files else []


def expected(batches: int) -> list[int]:
    """Return the expected results, in which every R joins every S."""
    return sorted(b for b in range(batches) for _ in range(batches))
