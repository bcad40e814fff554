"""Failures of Spark tasks that stay between batches (``Workers``), in a separate process with one
Spark session.

``python -m tests.support.worlds.resident MASTER`` prints a JSON line per strike: the error of the
struck batch, and the processes of the tasks before and after.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import psutil

from anabranch_contract.plans.ruleset import RulesetId
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.exchange.lines import TaskLine, TaskListener
from anabranch_runtime.spark.session import free_slots, spark_session
from anabranch_runtime.spark.workers import Workers
from anabranch_runtime.task.context import BatchContext

TASKS = 2


def context(batch: int, attempt: str = "") -> BatchContext:
    """Return the context of a batch; the attempt's name says what its tasks have to do."""
    return BatchContext(batch, 0, RulesetId(0), attempt, "", "", "", "")


def work(context: BatchContext, line: TaskLine, hosts: list[str]) -> TaskReport:
    """Exchange messages once, then report task, process and batch."""
    task = line.task
    if context.attempt == "fail" and task == 0:
        raise ValueError("no such thing")
    if context.attempt in ("fail", "hang"):
        time.sleep(60)
    assert line(f"{context.batch} {task}") == [f"{context.batch} {n}" for n in range(TASKS)]
    return TaskReport(phases={"task": task, "process": os.getpid(), "batch": context.batch})


def processes(workers: Workers, batch: int) -> list[int]:
    """Run a batch; return the process of each task."""
    reports = workers.run(context(batch))
    found = [(r.phases["task"], r.phases["batch"]) for r in reports]
    assert found == [(task, batch) for task in range(TASKS)], found
    return [int(r.phases["process"]) for r in reports]


def cancel(workers: Workers, tasks: list[int]) -> None:
    """Cancel Spark's stage in the middle of a batch."""
    threading.Timer(0.5, workers.cancel).start()
    workers.run(context(1, "hang"))


def kill(workers: Workers, tasks: list[int]) -> None:
    """Kill a task's process in the middle of a batch."""
    threading.Timer(0.5, os.kill, (tasks[1], signal.SIGKILL)).start()
    workers.run(context(1, "hang"))


def kill_between(workers: Workers, tasks: list[int]) -> None:
    """Kill a task's process between two batches."""
    os.kill(tasks[0], signal.SIGKILL)
    psutil.wait_procs([psutil.Process(tasks[0])] if psutil.pid_exists(tasks[0]) else [], 10)
    workers.run(context(1))


def fail(workers: Workers, tasks: list[int]) -> None:
    """Make one task fail while the other one works."""
    workers.run(context(1, "fail"))


def close(workers: Workers, tasks: list[int]) -> None:
    """End Spark's stage."""
    stage = workers._stage
    assert stage is not None
    workers.close()
    assert stage.job.exception(timeout=0) is None


STRIKES: tuple[Callable[[Workers, list[int]], None], ...] = (
    close, fail, kill, kill_between, cancel
)  # fmt: skip


def main() -> None:
    """Run the failures one after the other, and continue after each."""
    session, listener = spark_session(sys.argv[1]), TaskListener("127.0.0.1")
    while free_slots(session) < TASKS:
        time.sleep(0.1)
    for strike in STRIKES:
        workers, error = Workers(session, listener, lambda: (TASKS, None), work), None
        workers.start()
        before = [processes(workers, batch) for batch in range(20)]
        stage = workers._stage
        try:
            strike(workers, before[0])
        except Exception as caught:  # noqa: BLE001 - printed
            error = caught
        after = processes(workers, 1)
        found = {
            "strike": strike.__name__,
            "error": None if error is None else type(error).__name__,
            "text": "" if error is None else str(error),
            "before": before,
            "after": after,
            "anew": workers._stage is not stage,
        }
        sys.stdout.write(f"{json.dumps(found)}\n")
        workers.close()
    listener.close()
    session.stop()


if __name__ == "__main__":
    main()
