"""Cost to the driver of an all-gather of many tasks.

`python -m benchmarks.cluster.meeting [--json] [--tasks 10 50 200]`

Tasks are threads of one other process. There are two kinds of rounds: every task sends all others
its number of sent messages (4 bytes), or each of the four tasks of a host sends the other three a
list of the segments that it has written (3,000 bytes). CPU time is given separately for the
driver's process and for all tasks.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from anabranch_runtime.exchange.lines import DriverAddress, TaskLine, TaskListener, call_driver
from anabranch_runtime.exchange.stage import Stage
from benchmarks.command import Benchmark, run_benchmark
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid

#: Bytes of a message of either kind, and number of tasks on a host.
_COUNT, _SEGMENTS, MATES = 4, 3000, 4


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", type=int, nargs="+", default=[10, 50, 200], help="that meet")
    parser.add_argument("--rounds", type=int, default=20, help="of each")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Return the milliseconds of CPU time per round, of the driver and of all tasks."""
    found = []
    for size in (_COUNT, _SEGMENTS):
        for tasks in options.tasks:
            driver, others = _met(tasks, size, options.rounds)
            found.append({"tasks": tasks, "bytes": size, "driver_ms": driver, "tasks_ms": others})
            tell(f"{tasks} tasks, {size} bytes: {driver} ms of the driver")
    return {"rounds": found}


def _met(tasks: int, size: int, rounds: int) -> tuple[float, float]:
    listener, context = TaskListener("127.0.0.1"), multiprocessing.get_context("spawn")

    def run(name: str) -> None:
        process = context.Process(target=_meet, args=(listener.address, name, tasks, size))
        process.start()
        process.join()

    stage = Stage(listener, tasks, run, lambda _: None)
    try:
        # A round before the measurement, which starts all threads and connections.
        stage.run(1)
        began = time.process_time()
        others = max(stage.run(rounds))
        spent = time.process_time() - began
    finally:
        stage.close(cancel=False)
        listener.close()
    return round(1000 * spent / rounds, 2), round(1000 * others / rounds, 2)


def _meet(address: DriverAddress, stage: str, tasks: int, size: int) -> None:
    def one(line: TaskLine) -> None:
        with closing(line):
            while (rounds := line.next_order()) is not None:
                began = time.process_time()
                for _ in range(rounds):
                    told = line("x" * size, "" if size == _COUNT else str(line.task // MATES))
                    assert len(told) == tasks
                line.report(time.process_time() - began)

    hosts = ["127.0.0.1"] * tasks
    lines = [call_driver(address, stage, task, hosts) for task in range(tasks)]
    threads = [threading.Thread(target=one, args=(line,)) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per number of tasks and size of messages."""
    rows = [
        (
            str(one["tasks"]),
            f"{one['bytes']:,}",
            f"{one['driver_ms']:,.1f}",
            f"{1000 * one['driver_ms'] / one['tasks']:,.0f}",
            f"{one['tasks_ms']:,.1f}",
        )
        for one in entry["rounds"]
    ]
    head = ("tasks", "bytes of a message", "driver, ms", "driver per task, µs", "all tasks, ms")
    return [Grid("CPU time of a round", head, tuple(rows))]


BENCHMARK = Benchmark("meeting", (__doc__ or "").split("\n", 1)[0], _options, measure, tables)


if __name__ == "__main__":
    sys.exit(run_benchmark("cluster", BENCHMARK, None, lambda _: None))
