"""Functions that run the tasks of a batch, under a watchdog."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from anabranch_contract.errors import StructuredError
from anabranch_runtime.driver.attempts import Job
from anabranch_runtime.driver.cluster import Cluster
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.spark.executors import Executors
from anabranch_runtime.spark.job import run_batch, unfit_workers
from anabranch_runtime.spark.session import slots_now
from anabranch_runtime.spark.watchdog import Watchdog, signs
from anabranch_runtime.task.context import BatchContext, exchange_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def watched_job(run: Job, watchdog: Watchdog) -> Job:
    """Return ``run``, watched by the files that its tasks touch in the state directory."""

    def job(context: BatchContext) -> list[TaskReport]:
        with watchdog.over(context.batch, partial(signs, exchange_directory(context))):
            return run(context)

    return job


def cluster_job(session: SparkSession, cluster: Cluster, watchdog: Watchdog) -> Job:
    """Return a function that runs a batch on hosts that share the object store only."""
    executors, meeting = Executors(session), cluster.meeting

    def job(context: BatchContext) -> list[TaskReport]:
        places, room = executors.slots()
        try:
            with watchdog.over(
                context.batch,
                partial(meeting.signs, context.attempt),
                lambda: slots_now(session) < room,
            ):
                return run_batch(places, context)
        except Exception as error:
            found = meeting.failure(context.attempt) or unfit_workers(error)
            if found is None or isinstance(error, StructuredError):
                raise
            raise found from error
        finally:
            meeting.over(context.attempt)

    return job
