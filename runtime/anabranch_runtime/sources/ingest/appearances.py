"""Times at which files of an ingest batch appeared, from Spark's log of the source's files.

Spark's log has each file's modification time, which a writer can set. A local file's status change
time (``ctime``) can't be set, so it is preferred. Neither depends on when Spark found the file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from anabranch_runtime.sources.ingest.checkpoints import source_offsets


def appearances(home: Path, before: str | None, offsets: str) -> list[float]:
    """Return the time at which each file between two of Spark's offsets appeared, in seconds since
    1970.

    Raises:
        OSError, ValueError: Spark's log can't be read.
        StateError: ``offsets`` can't be read.
    """
    now = time.time()
    times = []
    for name, offset in source_offsets(offsets).items():
        first = source_offsets(before).get(name, {}).get("logOffset", -1) + 1
        for entry in _entries(home / "checkpoint" / "sources", first, offset["logOffset"]):
            times.append(min(_appeared(entry["path"], entry["timestamp"] / 1e3), now))
    return times


def _entries(folder: Path, first: int, last: int) -> Iterator[dict[str, Any]]:
    """Yield entries ``first`` to ``last`` of Spark's log; ``.compact`` files repeat others."""
    for log in folder.iterdir():
        for number in range(first, last + 1):
            path = log / str(number)
            if not path.exists():
                path = log / f"{number}.compact"
            for line in path.read_text().splitlines()[1:]:
                entry = json.loads(line)
                if entry["batchId"] == number:
                    yield entry


def _appeared(uri: str, modified: float) -> float:
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        return modified
    try:
        return Path(unquote(parts.path)).stat().st_ctime
    except OSError:
        # The file has been moved or deleted, for example by Spark's option ``cleanSource``.
        return modified
