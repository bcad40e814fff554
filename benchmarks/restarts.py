"""Time from a kill to the next commit, for each process of ``anabranch up``, with and without a
standby.

``python -m benchmarks.restarts`` kills the processes in turns under a light, steady input, and
prints the times in seconds per process: median, 99th percentile, greatest. ``--json`` prints one
line with all times and the memory. Apart from the kill, nothing intervenes: the supervisor alone
repairs the pipeline. At the end the results are compared with DuckDB's join of all rows in Redis:
no result may be missing or doubled.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import psutil

from anabranch_contract.protocol.progress import Progress
from tests.support.worlds.processes import wait_until
from tests.support.worlds.steady import differences, fed, register
from tests.support.worlds.up import Target, upped

#: Seconds between a commit and the next kill, and maximum seconds of a round.
_REST, _PATIENCE = 2.0, 180.0


class Killable(Protocol):
    """Interface: a running ``anabranch up``, on one machine or a cluster."""

    def wait_for_commits(self, count: int = 1) -> None:
        """Wait until ``count`` further batches have been committed."""

    def committed(self) -> int:
        """Return the number of committed batches."""

    def progress(self) -> Progress | None:
        """Return the progress of the runtime."""

    def kill(self, target: Target) -> int:
        """Kill the processes of ``target``."""

    def text(self) -> str:
        """Return the output of the command."""


def measure(up: Killable, target: Target, rest: float = _REST) -> float:
    """Return the seconds from a kill of ``target`` to the next commit, while rows keep arriving."""
    up.wait_for_commits(3)
    time.sleep(rest)
    before, run = up.committed(), up.progress()
    assert run is not None
    began = time.monotonic()
    up.kill(target)
    killed = time.monotonic()
    if target in (Target.DRIVER, Target.JVM, Target.RUNTIME, Target.ALL):
        # A batch may be committed after the progress was read and before the kill.
        while (now := up.progress()) is None or now.run == run.run:
            assert time.monotonic() - killed < _PATIENCE, f"{target}: {up.text()}"
            time.sleep(0.02)
        before = max(before, now.committed)
    else:
        before += 1
    while up.committed() <= before:
        assert time.monotonic() - killed < _PATIENCE, f"{target}: {up.text()}"
        time.sleep(0.02)
    return time.monotonic() - began


def memory(processes: Sequence[psutil.Process]) -> int:
    """Return the proportional set size of ``processes`` in bytes."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total


def run(targets: Sequence[Target], rounds: int, *, standby: bool) -> dict[str, Any]:
    """Kill each of ``targets`` ``rounds`` times, in turns, and check the results."""
    found: dict[str, list[float]] = {target: [] for target in targets}
    options = ("--port", "0", "--master", "local[2]", *(["--standby"] if standby else []))
    with (
        tempfile.TemporaryDirectory(prefix="restarts-") as folder,
        upped(Path(folder), arguments=options) as up,
    ):
        register(up)
        with fed(up):
            up.wait_for_commits(10)
            for number in range(rounds):
                for target in targets:
                    if standby:
                        wait_until("a standby", up.has_standby, 120)
                    seconds = measure(up, target)
                    found[target].append(round(seconds, 2))
                    sys.stderr.write(f"{number} {target} {seconds:.2f}\n")
            if standby:
                wait_until("a standby", up.has_standby, 120)
            spare = memory(up.find(Target.STANDBY)) if standby else 0
            everything = memory(up.family())
        missing, surplus, results = differences(up)
    load = os.getloadavg()[0]
    return {
        "standby": standby,
        "seconds": found,
        "memory": everything,
        "memory of the standby": spare,
        "missing": missing,
        "surplus": surplus,
        "results": results,
        "load": load,
    }


def line(target: str, seconds: Sequence[float]) -> str:
    """Return the times of one process as a line of text."""
    ordered = sorted(seconds)
    most = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    median = statistics.median(ordered)
    return f"{target:8} n={len(ordered):3} p50={median:5.2f} p99={most:5.2f} max={ordered[-1]:5.2f}"


def main() -> int:
    """Measure and print; returns 1 if a result is missing or doubled."""
    parser = argparse.ArgumentParser(prog="benchmarks.restarts", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--standby", choices=("with", "without", "both"), default="both")
    kinds = [Target.DRIVER, Target.JVM, Target.WORKER, Target.RUNTIME, Target.ALL]
    parser.add_argument("--targets", nargs="*", type=Target, default=kinds)
    options = parser.parse_args()
    wrong = 0
    for standby in (False, True):
        if options.standby in ("both", "with" if standby else "without"):
            found = run(options.targets, options.rounds, standby=standby)
            wrong += found["missing"] + found["surplus"]
            if options.json:
                sys.stdout.write(json.dumps(found) + "\n")
                continue
            mib = 1 << 20
            sys.stdout.write(
                f"{'with' if standby else 'without'} a standby: {found['results']} results,"
                f" {found['missing']} missing, {found['surplus']} surplus; memory"
                f" {found['memory'] // mib} MiB, of the standby"
                f" {found['memory of the standby'] // mib} MiB\n"
            )
            for target, seconds in found["seconds"].items():
                sys.stdout.write(line(target, seconds) + "\n")
            sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
