"""A batch as a Spark job: one barrier stage whose tasks exchange segments between levels."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch_planner.plain import plain
from anabranch_runtime.context import exchange_directory
from anabranch_runtime.sources.blocks import read_blocks, read_pieces
from anabranch_runtime.state.rulesets import task_ruleset
from anabranch_runtime.task.rendezvous import Rendezvous
from anabranch_runtime.task.worker import TaskReport, run_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from anabranch_runtime.context import BatchContext
    from anabranch_runtime.sources.feed import Piece

REPORT = "report string"


def run_batch(
    blocks: DataFrame, context: BatchContext, shares: Sequence[Sequence[Piece]] | None = None
) -> list[TaskReport]:
    """Run the batch of ``context`` over a frame of blocks; one report per task.

    The tasks of a barrier stage run at once, which is what the exchange of segments between levels
    needs. A failed task fails the job; what its attempt wrote no manifest names.

    Args:
        blocks: one partition per task. ``shares``: what each task has to read beside its blocks.
    """
    rows = blocks.mapInArrow(_task(context, shares or ()), REPORT, barrier=True).collect()
    return [_report(json.loads(row.report)) for row in rows]


def _task(
    context: BatchContext, shares: Sequence[Sequence[Piece]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import BarrierTaskContext

        here = BarrierTaskContext.get()
        task, tasks = here.partitionId(), len(here.getTaskInfos())
        report = run_task(
            context,
            task_ruleset(context.root, context.redis_url, context.namespace, context.ruleset),
            chain(read_blocks(batches), read_pieces(shares[task] if shares else ())),
            task=task,
            tasks=tasks,
            exchange=Rendezvous(exchange_directory(context), task, tasks),
        )
        text = json.dumps(report, default=plain)
        yield pa.RecordBatch.from_arrays([pa.array([text])], names=["report"])

    return task


def _report(document: dict[str, object]) -> TaskReport:
    return TaskReport(**document)  # type: ignore[arg-type]
