"""A batch as a Spark job: one barrier stage whose tasks exchange segments between levels."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch_runtime.arrivals import Block
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.source import decode_block
from anabranch_runtime.worker import TaskReport, run_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from anabranch_runtime.context import BatchContext

REPORT = "report string"


def run_batch(blocks: DataFrame, context: BatchContext) -> list[TaskReport]:
    """Run the batch of ``context`` over a frame of blocks; one report per task.

    All tasks of a barrier stage run at once and are retried together, which is what the exchange
    of segments between levels needs. An attempt that fails leaves files that no manifest names.
    """
    rows = blocks.mapInArrow(_task(context), REPORT, barrier=True).collect()
    return [_report(json.loads(row.report)) for row in rows]


def _task(
    context: BatchContext,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import BarrierTaskContext

        here = BarrierTaskContext.get()
        attempt = f"{context.attempt}.{here.attemptNumber()}"
        staging = f"{context.staging}/{attempt}"
        report = run_task(
            replace(context, attempt=attempt, staging=staging),
            fetch_ruleset(context.redis_url, context.namespace, context.ruleset),
            _blocks(batches),
            task=here.partitionId(),
            tasks=len(here.getTaskInfos()),
            exchange=here.allGather,
        )
        yield pa.RecordBatch.from_arrays([pa.array([json.dumps(asdict(report))])], names=["report"])

    return task


def _blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[Block]:
    for batch in batches:
        streams, blocks = batch.columns
        for i in range(batch.num_rows):
            yield Block(streams[i].as_py(), decode_block(blocks[i].as_buffer()))


def _report(document: dict[str, object]) -> TaskReport:
    return TaskReport(**document)  # type: ignore[arg-type]
