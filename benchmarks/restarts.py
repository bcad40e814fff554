"""From a kill to the next commit, per process of ``anabranch up``, under a light load.

``python -m benchmarks.restarts`` prints a line per target, ``--json`` one with all rounds,
in seconds. Nothing but the kill is done by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Protocol

from anabranch_contract.protocol.progress import Progress
from tests.support.worlds.up import Target, upped

#: Seconds of quiet between two kills, and that a round may take.
_REST, _PATIENCE = 4.0, 180.0


class Killable(Protocol):
    """A running ``up``, wherever it is."""

    def wait_for_commits(self, count: int = 1) -> None:
        """Wait until ``count`` more batches have been committed."""

    def committed(self) -> int:
        """Batches committed so far."""

    def progress(self) -> Progress | None:
        """Progress of the runtime."""

    def kill(self, target: Target) -> int:
        """Kill those processes."""

    def text(self) -> str:
        """Its output."""


def measure(up: Killable, target: Target) -> float:
    """Seconds from the kill of ``target`` to the next commit, while rows keep arriving."""
    up.wait_for_commits(3)
    time.sleep(_REST)
    before = up.committed()
    began = time.monotonic()
    up.kill(target)
    killed = time.monotonic()
    if target in (Target.DRIVER, Target.JVM, Target.ALL):
        # A batch may be committed between the look and the kill.
        run = up.progress()
        while (now := up.progress()) is None or run is None or now.run == run.run:
            assert time.monotonic() - killed < _PATIENCE, f"{target}: {up.text()}"
            run = run or now
            time.sleep(0.02)
        before = max(before, now.committed)
    else:
        before += 1
    while up.committed() <= before:
        assert time.monotonic() - killed < _PATIENCE, f"{target}: {up.text()}"
        time.sleep(0.02)
    return time.monotonic() - began


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.restarts", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--targets", nargs="*", type=Target, default=list(Target))
    options = parser.parse_args()
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="restarts-") as folder, upped(Path(folder)) as up:
        up.register()
        with up.fed():
            up.wait_for_commits(10)
            for target in options.targets:
                found[target] = [round(measure(up, target), 2) for _ in range(options.rounds)]
                if not options.json:
                    median = statistics.median(found[target])
                    sys.stdout.write(f"{target:8} {median:6.2f} s  {found[target]}\n")
                    sys.stdout.flush()
    if options.json:
        medians = {target: statistics.median(rounds) for target, rounds in found.items()}
        load = os.getloadavg()[0]
        document = {"medians": medians, "rounds": found, "load": load}
        sys.stdout.write(json.dumps(document) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
