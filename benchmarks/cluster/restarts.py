"""From a kill to the next commit, per process of ``anabranch up`` on a cluster, under a light load.

``python -m benchmarks.cluster.restarts`` prints a line per target, ``--json`` one with all rounds,
in seconds. Spark's master, three workers with a slot each, Redis and an object store are hosts that
share nothing (namespaces of Linux, which takes privileges). Nothing but the kill is done by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.restarts import measure
from tests.support.worlds.hosted_up import Feeder, ready
from tests.support.worlds.hosts import cluster
from tests.support.worlds.up import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Seconds between two rows of a stream, of which there are three.
PACE = 0.075


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.cluster.restarts", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder for logs, which stays")
    options = parser.parse_args(arguments)
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="restarts-") as folder:
        home = options.keep or Path(folder)
        with cluster(home / "cluster", options.workers) as world:
            up = ready(world, home / "up")
            try:
                with Feeder(world.redis_url, 1, PACE):
                    up.wait_for_commits(10)
                    for target in (Target.DRIVER, Target.JVM):
                        found[target] = [
                            round(measure(up, target), 2) for _ in range(options.rounds)
                        ]
                        if not options.json:
                            median = statistics.median(found[target])
                            sys.stdout.write(f"{target:8} {median:6.2f} s  {found[target]}\n")
                            sys.stdout.flush()
                up.stop()
            finally:
                world.end_commands()
    if options.json:
        medians = {target: statistics.median(rounds) for target, rounds in found.items()}
        load = os.getloadavg()[0]
        sys.stdout.write(json.dumps({"medians": medians, "rounds": found, "load": load}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
