"""Distribution of tests over worker processes: all tests of a file in one process, all files with
Spark's session in the same one, and all files with Kafka's broker in the same one.

So objects that the tests of a file share are made once. Long files begin first, so that no worker
is idle at the end. A plugin: ``tests/conftest.py`` registers it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

#: Parameters by which tests request Spark's session and Kafka's broker, which start once per
#: process.
SESSIONS: Final = ("spark: SparkSession", "kafka: Broker")
#: Folders with slow tests, which begin first, in this order.
LONG: Final = (
    "test_structure.py",
    *("e2e", "cluster", "combined", "sql", "replays", "pages", "client", "benchmarks"),
    *("service", "runtime"),
)


class FileDistribution(LoadFileScheduling):  # type: ignore[misc]  # untyped
    """Scheduler: one worker runs all tests of a file, one all files with one
    of :data:`SESSIONS`.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return session_of(self.config.rootpath / path) or path


@cache
def session_of(path: Path) -> str:
    """Return the first of :data:`SESSIONS` that tests of the file use; empty: none."""
    text = path.read_text("utf-8")
    return next((session for session in SESSIONS if session in text), "")


def rank(path: Path, root: Path) -> int:
    """Return the position of a test's file among all files of the repository ``root``."""
    if session_of(path):
        return 0
    folders = path.relative_to(root).parts
    return next((at for at, name in enumerate(LONG, 1) if name in folders), len(LONG) + 1)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileDistribution:
    """Distribute by file; pytest-xdist's own groups have no effect with pytest 9.2."""
    return FileDistribution(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests of a worker; the run distributes them in this order."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank(item.path, config.rootpath))
