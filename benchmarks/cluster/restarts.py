"""Time from a kill to the next commit, for each process of ``anabranch up`` on a cluster, under a
light load.

``python -m benchmarks.cluster.restarts`` prints a line per killed process, with ``--json`` one line
with all rounds, in seconds. Spark's master, three workers with a slot each, Redis and an object
store are hosts that share nothing (namespaces of Linux, which takes privileges). Apart from the
kill, nothing intervenes: the supervisor alone repairs the pipeline.

All hosts share the cores of one machine. So the benchmark also reports the CPU time of the
restarted processes until that commit, by kind.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark

from benchmarks.report.figures import tell
from benchmarks.restarts import measure
from tests.support.worlds.hosted_up import Feeder, HostedUp
from tests.support.worlds.hosts import Cluster, cluster
from tests.support.worlds.up import Target

#: Seconds between two rows of each of the three streams.
PACE = 0.075
#: Spark's settings are options of the command. A folder of settings on Java's class path would
#: disable the archive of classes (``class_archive``), which makes the JVM start faster.
EXTRA = ("--spark-conf", "spark.executor.memory=640m")
CONF = {"SPARK_CONF_DIR": str(Path(pyspark.__file__).parent / "conf")}
#: Kinds of restarted processes -> a substring of their command lines.
PARTS = {
    "driver's JVM": "org.apache.spark.deploy.SparkSubmit",
    "executors' JVMs": "CoarseGrainedExecutorBackend",
    "executors' Python": "anabranch_runtime.spark.daemon",
    "driver's Python": "anabranch_runtime",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all kills and print the times; returns the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.cluster.restarts", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=3)
    both = [Target.DRIVER, Target.JVM]
    parser.add_argument("--targets", nargs="*", type=Target, default=both, choices=both)
    parser.add_argument("--keep", type=Path, help="folder for logs, which stays")
    options = parser.parse_args(arguments)
    found: dict[str, list[float]] = {}
    parts: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="restarts-") as folder:
        home = options.keep or Path(folder)
        with cluster(home / "cluster", options.workers) as world:
            up = HostedUp(world, world.driver, home / "up", world.store("up"), EXTRA, CONF)
            up.start()
            up.wait("\nready\n")
            up.register()
            try:
                with Feeder(world.redis_url, 1, PACE):
                    up.wait_for_commits(10)
                    for target in options.targets:
                        found[target], parts[target] = [], []
                        for _ in range(options.rounds):
                            since = time.time()
                            found[target].append(round(measure(up, target), 2))
                            parts[target].append(spent(world, since))
                            tell(f"{target}: {found[target][-1]} s, CPU {parts[target][-1]}")
                up.stop()
            finally:
                world.end_commands()
    medians = {target: statistics.median(rounds) for target, rounds in found.items()}
    if options.json:
        load = os.getloadavg()[0]
        document = {"medians": medians, "rounds": found, "cpu": parts, "load": load}
        sys.stdout.write(json.dumps(document) + "\n")
        return 0
    for name, rounds in found.items():
        sys.stdout.write(f"{name:8} {medians[name]:6.2f} s  {rounds}\n")
    return 0


def spent(world: Cluster, since: float) -> dict[str, float]:
    """Return CPU seconds, by kind, of processes on all hosts that were started after ``since``."""
    found: dict[str, float] = defaultdict(float)
    for host in world.network.hosts.values():
        for process in host.processes():
            with suppress(psutil.Error):
                if process.create_time() < since:
                    continue
                command, times = " ".join(process.cmdline()), process.cpu_times()
                part = next((name for name, words in PARTS.items() if words in command), "others")
                found[part] += times.user + times.system
    return {name: round(seconds, 1) for name, seconds in sorted(found.items())}


if __name__ == "__main__":
    sys.exit(main())
