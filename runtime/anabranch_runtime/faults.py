"""Points at which a test may stop a running pipeline, to kill one of its processes just there.

A testing facility, off unless ``ANABRANCH_FAULTS`` names a folder when the process starts; then
every process of the runtime looks for a file there that is called as the point it has reached. A
process that finds one renames it to ``<point>.held``, writes its process id into it, and waits
until that file is gone. So a test arms a point by creating a file, waits for the held one, kills
processes, and lets the rest go on by deleting it. A point strikes once per arming.

Nothing of this lies on the path of tuples: a batch passes about ten points per task.
"""

from __future__ import annotations

import os
import time
from enum import StrEnum
from pathlib import Path

_FOLDER = os.environ.get("ANABRANCH_FAULTS")
#: Seconds between two looks at whether a process that stands still may go on.
_LOOK = 0.002


class Point(StrEnum):
    """The steps of the batch protocol, in its order; the driver's but where a task is named."""

    WAITING = "waiting"
    """While the epoch's ruleset is waited for."""
    CHOOSING = "choosing"
    """Before epoch and ruleset of the batch are recorded."""
    CHOSEN = "chosen"
    """After that, before the tasks start."""
    STORING = "storing"
    """A task: its pack is written but not yet under its name."""
    STORED = "stored"
    """A task: its arrivals' pack is complete, the others do not know of it."""
    STAGING = "staging"
    """A task: its result files are written but not closed."""
    UPLOADED = "uploaded"
    """A task: its packs are in the object store (where there is one), it has not reported."""
    LEFT_OUT = "left-out"
    """The journal says what the batch leaves out because it can't be read; nothing is published."""
    STAGED = "staged"
    """All tasks have reported; nothing is published."""
    PUBLISHED = "published"
    """Results are under their final names; the batch is not committed."""
    COMMITTING = "committing"
    """The object store (where there is one) has the manifest, the state directory has not."""
    COMMITTED = "committed"
    """The manifest has the batch; Spark's commit log does not."""
    MERGING = "merging"
    """Beside batches: segments are about to be merged."""
    MERGED = "merged"
    """Beside batches: their pack is complete, no manifest names it."""
    RELEASING = "releasing"
    """Beside batches: it is noted that joined rows are released to a view, they are not yet."""
    RELEASED = "released"
    """Beside batches: a view's Spark query may see them."""
    VIEWED = "viewed"
    """Beside batches: a version of a view is with its sink, Spark's commit log does not have it."""
    LANDING = "landing"
    """Beside batches: what an ingest query has read is written, but not yet under its name."""
    LANDED = "landed"
    """Beside batches: it has landed, Spark's commit log of the ingest query does not have it."""
    FORGETTING = "forgetting"
    """Beside batches: landed batches that nobody needs any more are about to be deleted."""
    BOUNDARY = "boundary"
    """Before the end of an epoch is reported."""


#: The points that only a pipeline with an object store comes to.
OF_STORE = frozenset((Point.UPLOADED, Point.COMMITTING))

#: The point that only a batch comes to which has input that can't be read.
OF_BAD_INPUT = frozenset((Point.LEFT_OUT,))

#: Points that only a pipeline with views comes to.
OF_VIEWS = frozenset((Point.RELEASING, Point.RELEASED, Point.VIEWED))

#: Points that only a pipeline with sources of Spark's comes to.
OF_INGEST = frozenset((Point.LANDING, Point.LANDED, Point.FORGETTING))


def reach(point: Point) -> None:
    """Report that this process is at ``point``; returns at once unless a test has armed it."""
    if _FOLDER is not None:
        _stand_still(Path(_FOLDER), point)


def _stand_still(folder: Path, point: Point) -> None:
    held = folder / f"{point}.held"
    try:
        (folder / point).rename(held)
    except OSError:
        return
    held.write_text(str(os.getpid()))
    while held.exists():
        time.sleep(_LOOK)
