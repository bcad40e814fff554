"""Fault injection: points at which a test pauses a process of a running pipeline, to kill it there.

Off unless ``ANABRANCH_FAULTS`` names a folder when the process starts. A test arms a point by
creating a file with the point's name in this folder. The first process that reaches the point
renames the file to ``<point>.held``, writes its process id into it, and waits until the file is
deleted. Meanwhile the test kills this or other processes.

The overhead is small: each task passes about ten points in a batch, and none for each tuple.
"""

from __future__ import annotations

import os
import time
from enum import StrEnum
from pathlib import Path

_FOLDER = os.environ.get("ANABRANCH_FAULTS")
#: Seconds between a paused process's checks for its release by the test.
_LOOK = 0.002


class Point(StrEnum):
    """Fault points in the order in which a batch passes them: in the driver, in a task, or in
    background work concurrent with batches."""

    WAITING = "waiting"
    """While the driver waits for the epoch's ruleset."""
    CHOOSING = "choosing"
    """Before the batch's epoch and ruleset are written to the journal."""
    CHOSEN = "chosen"
    """The journal entry is being written; the tasks have not started."""
    SENDING = "sending"
    """The batch is sent to some of its tasks, not yet to the others."""
    STORING = "storing"
    """A task: its pack file is written but not yet renamed to its final name."""
    STORED = "stored"
    """A task: the pack file with its arrivals is complete, not yet announced to other tasks."""
    STAGING = "staging"
    """A task: its result files are written but not closed."""
    UPLOADED = "uploaded"
    """A task: its packs are uploaded to the object store, if any; it has not reported."""
    LEFT_OUT = "left-out"
    """The journal names unreadable input that the batch skips; no results are published."""
    STAGED = "staged"
    """All tasks have reported; no results are published."""
    SENT = "sent"
    """A Kafka sink's transaction has all messages of a delivery; it is not committed."""
    PUBLISHED = "published"
    """Results are under their final names; the batch is not committed."""
    COMMITTING = "committing"
    """The object store, if any, has the batch's manifest; the state directory does not."""
    COMMITTED = "committed"
    """The batch's manifest is durable; the work that follows a commit has not begun."""
    MERGING = "merging"
    """Beside batches: segments are about to be merged."""
    MERGED = "merged"
    """Beside batches: the merged segment's pack is complete; no manifest names it."""
    VIEWED = "viewed"
    """Beside batches: the sink has a table's new version; no manifest counts it."""
    KEEPING = "keeping"
    """Beside batches: a checkpoint of tables is complete; no manifest names it."""
    GROUPING = "grouping"
    """Beside batches: groups of results are written, not yet renamed into the outbox."""
    GROUPED = "grouped"
    """Beside batches: the outbox has groups of results, which are still gathered as well."""
    DELIVERED = "delivered"
    """Beside batches: a sink has results that the outbox has, too."""
    LANDING = "landing"
    """Beside batches: an ingest query's rows are written to a file, not yet renamed."""
    LANDED = "landed"
    """Beside batches: the file of ingested rows is complete; Spark's commit log lacks it."""
    FORGETTING = "forgetting"
    """Beside batches: files of ingested rows that all batches have read are about to be deleted."""
    BOUNDARY = "boundary"
    """Before the end of an epoch is reported."""


def reach(point: Point) -> None:
    """Pause the process at the fault point ``point`` if a test has armed it."""
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
