"""Distribution of tests over worker processes: a file to one, files of Spark's session to the same.

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

#: Parameter by which tests take Spark's session; Spark starts once per process.
SESSION: Final = "spark: SparkSession"
#: Folders whose tests wait or take long; they begin first, in this order.
LONG: Final = (
    *("e2e", "cluster", "combined", "sql", "replays", "pages", "client", "benchmarks"),
    *("service", "runtime"),
)


class FileDistribution(LoadFileScheduling):  # type: ignore[misc]  # untyped
    """Gives a worker all tests of a file, and one worker all files with :data:`SESSION`."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return SESSION if has_session(self.config.rootpath / path) else path


@cache
def has_session(path: Path) -> bool:
    """Whether tests of the file use Spark's session."""
    return SESSION in path.read_text("utf-8")


def rank(path: Path, root: Path) -> int:
    """Place of a test's file among all files of the repository ``root``."""
    if has_session(path):
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
