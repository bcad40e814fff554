"""A pipeline over a running service, without Spark: the real planner behind the REST API, the real
driver and workers, one task, in this process.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import StreamName
from anabranch_runtime.control import Control, fetch_ruleset
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task
from tests.support.surroundings.policy import OPEN
from tests.support.worlds.service import Service

MINUTE = 60_000_000
START = 1_750_000_000_000_000


def small_pipeline(service: Service, folder: Path, *, every: int = 3, fanout: int = 6) -> Driver:
    """Return a driver that executes the plans of ``service``, in step with it."""
    settings = DriverSettings(
        folder / "state",
        folder / "results",
        epoch_batches=every,
        mode=Mode.STEP,
        patience=120.0,
        access=OPEN,
        fanout=fanout,
    )
    settings.state.mkdir(parents=True, exist_ok=True)
    driver = Driver(settings, Control(service.settings.redis_url, service.keys.namespace))
    driver.announce()
    return driver


def run_batches(driver: Driver, count: int, rows: int = 40) -> None:
    """Run ``count`` batches of ``rows`` orders, half as many customers and twice as many items."""
    for batch in range(driver.state.next_batch, driver.state.next_batch + count):

        def job(context: BatchContext, number: int = batch) -> list[TaskReport]:
            rules = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
            blocks = _blocks(number, rows)
            return [run_task(context, rules, blocks, task=0, tasks=1, exchange=lambda m: [m])]

        driver.run(job)
        driver.tick()


def _blocks(batch: int, rows: int) -> list[Block]:
    draw = np.random.default_rng(batch)

    def times(count: int) -> pa.Array:
        micros = START + batch * MINUTE + draw.integers(0, MINUTE, count)
        return pa.array(micros, pa.timestamp("us", tz="UTC"))

    orders = np.arange(batch * rows, (batch + 1) * rows)
    tables = {
        "customers": {
            "customer_id": np.arange(batch * rows // 2, (batch + 1) * rows // 2),
            "city": np.array(["Oslo", "Ulm"])[draw.integers(0, 2, rows // 2)],
        },
        "orders": {
            "order_id": orders,
            "customer_id": draw.integers(0, (batch + 1) * rows, rows),
            "total": draw.random(rows),
            "ts": times(rows),
        },
        "items": {
            "order_id": draw.integers(0, 2 * (batch + 1) * rows, 2 * rows),
            "part": draw.integers(0, 9, 2 * rows).astype(np.int32),
            "quantity": draw.integers(0, 9, 2 * rows).astype(np.int32),
            "ts": times(2 * rows),
        },
    }
    return [
        Block(StreamName(name), pa.record_batch({n: pa.array(c) for n, c in columns.items()}))
        for name, columns in tables.items()
    ]
