"""Distribution of tests over worker processes: a file to one, files of Spark's session to the same,
and files of Kafka's broker.

Objects that the tests of a file share are made once that way, and long files begin first, so that
no worker is idle at the end. A plugin: ``tests/conftest.py`` registers it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

#: Parameters by which tests take Spark's session and Kafka's broker, which start once per process.
SESSIONS: Final = ("spark: SparkSession", "kafka: Broker")
#: Folders whose tests wait or take long; they begin first, in this order.
LONG: Final = (
    "test_structure.py",
    *("e2e", "cluster", "combined", "sql", "replays", "pages", "client", "benchmarks"),
    *("service", "runtime"),
)


class FileDistribution(LoadFileScheduling):  # type: ignore[misc]  # untyped
    """Gives a worker all tests of a file, and one worker all files with one of :data:`SESSIONS`."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return session_of(self.config.rootpath / path) or path


@cache
def session_of(path: Path) -> str:
    """The first one of :data:`SESSIONS` that tests of the file use; empty: none."""
    text = path.read_text("utf-8")
    return next((session for session in SESSIONS if session in text), "")


def rank(path: Path, root: Path) -> int:
    """Place of a test's file among all files of the repository ``root``."""
    if session_of(path):
        return 0
    folders = path.relative_to(root).parts
    return next((at for at, name in enumerate(LONG, 1) if name in folders), len(LONG) + 1)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileDistribution:
    """Distribute by file; pytest-xdist's own groups have no effect with pytest 9.2."""
    return FileDistribution(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests of a worker: the run distributes them in this order."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank(item.path, config.rootpath))
