"""Spark's standalone cluster as plain processes of one machine, to which hosts can be added and
from which they can be lost.

A host is a worker with an executor of one slot and a cache directory of its own. A lost host's
processes end by SIGKILL, all at once.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

_SPARK = Path(pyspark.__file__).parent
#: Maximum seconds for the start of a daemon of Spark.
_PATIENCE = 120.0
_MEMORY = 640
_DEFAULTS = f"""\
spark.executor.memory {_MEMORY}m
spark.executor.extraJavaOptions -XX:+UseSerialGC -XX:TieredStopAtLevel=1
"""


@dataclass(slots=True)
class Standalone:
    """A standalone cluster of Spark: its master and its running workers.

    Attributes:
        folder: folder of logs, settings and working directories of executors.
        workers: the processes of the workers, the oldest first.
    """

    folder: Path
    master: str = ""
    workers: list[psutil.Popen] = field(default_factory=list)
    _roots: list[psutil.Popen] = field(default_factory=list)

    @property
    def settings(self) -> Path:
        """The folder of Spark's settings, for the driver (``SPARK_CONF_DIR``)."""
        return self.folder / "conf"

    def add(self) -> None:
        """Start a worker with one slot; it registers with the master some time after the return."""
        number = len(self._roots)
        work = self.folder / f"work-{number}"
        found = self._start(
            f"worker-{number}",
            "worker.Worker",
            *("--cores", "1", "--memory", f"{_MEMORY}m", "--work-dir", str(work), self.master),
        )
        self.workers.append(found)

    def lose(self) -> None:
        """Kill the oldest worker and all processes that it has started."""
        _kill(self.workers.pop(0))

    def await_workers(self, count: int) -> None:
        """Wait until ``count`` workers, lost ones included, have registered with the master."""
        self._await("master", rf"(?s)(Registering worker.*?){{{count}}}")

    def _start(self, name: str, module: str, *arguments: str) -> psutil.Popen:
        address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        command = [str(_SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{module}"]
        with (self.folder / f"{name}.log").open("wb") as log:
            found = psutil.Popen(
                [*command, *address, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "SPARK_HOME": str(_SPARK),
                    "SPARK_CONF_DIR": str(self.settings),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_DAEMON_MEMORY": "160m",
                    "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
                },
            )
        self._roots.append(found)
        return found

    def _await(self, name: str, words: str) -> re.Match[str]:
        deadline = time.monotonic() + _PATIENCE
        while True:
            said = (self.folder / f"{name}.log").read_text(errors="replace")
            found = re.search(words, said)
            if found is not None:
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"Spark's {name} has not said {words!r}: {said[-2000:]}")
            time.sleep(0.05)


@contextmanager
def standalone(folder: Path, workers: int) -> Iterator[Standalone]:
    """Context with a cluster of ``workers`` workers; all its processes are ended on exit."""
    found = Standalone(folder)
    found.settings.mkdir(parents=True)
    (found.settings / "spark-defaults.conf").write_text(_DEFAULTS)
    try:
        found._start("master", "master.Master")
        found.master = found._await("master", r"spark://[\d.]+:\d+")[0]
        for _ in range(workers):
            found.add()
        found.await_workers(workers)
        yield found
    finally:
        for process in reversed(found._roots):
            _kill(process)


def _kill(root: psutil.Popen) -> None:
    """Kill a process and all its descendants, and wait for its end."""
    some: list[psutil.Process] = [root]
    with suppress(psutil.NoSuchProcess):
        some += root.children(recursive=True)
    for process in some:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    root.wait(_PATIENCE)
