"""Repair of an ingest query's Spark checkpoint, to agree with the batches that it has written.

The last batch on disk (landed batch) is authoritative: its document has its end offsets, and the
contents of Spark's logs of the source then. Entries that Spark's checkpoint has lost are restored
(Spark does not sync them, so a power failure can lose them). Entries after the last landed batch
may be removed, as none of their input has landed.
"""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

from anabranch_runtime.errors import SourceError, StateError
from anabranch_runtime.recovery.checkpoint import (
    COMMIT,
    Repair,
    is_commit,
    is_json,
    look,
    perform,
)
from anabranch_runtime.recovery.logs import check_logs
from anabranch_runtime.sources.ingest.landing import Landed

_ANEW = (
    "restore the state directory from a backup; or delete the stream and register it again, which"
    " reads the source from its beginning"
)


def mend(home: Path, last: Landed | None, reached: int, number: int) -> None:
    """Make the checkpoint in ``home`` agree with ``last``, the newest landed batch, before the
    ingest query starts.

    Args:
        home: the source's folder.
        last: the newest landed batch; None: none.
        reached: the number of the landed batch that the main query reads next.
        number: the number of the next batch to land.

    Raises:
        SourceError: ``ingest-lost``: landed batches that the main query has read are missing.
            ``damaged-log``: Spark's record of the files read is lost.
    """
    if reached > number:
        raise SourceError(
            "ingest-lost",
            f"{home} has {number} landed batches, and {reached} have been read",
            remedy=_ANEW,
        )
    if last is None:
        return
    try:
        check_logs(home, last.logs)
    except StateError as cause:
        raise SourceError(cause.code, f"{home}: {cause.message}", remedy=_ANEW) from cause
    checkpoint = home / "checkpoint"
    seen = look(checkpoint)
    oldest, newest = min(seen.offsets, default=0), max(seen.offsets, default=-1)
    kept = seen.offsets.get(last.batch) == last.offsets or oldest > last.batch
    whole = (
        kept
        and newest >= last.batch
        and None not in seen.offsets.values()
        and all(is_commit(text) for text in seen.commits.values())
        and is_json(seen.metadata)
    )
    if whole:
        return
    write = {f"commits/{last.batch}": COMMIT} | offset_entries(last.batch, last.offsets)
    if not is_json(seen.metadata):
        write["metadata"] = json.dumps({"id": str(uuid4())})
    remove = {f"offsets/{b}" for b in seen.offsets} | {f"commits/{b}" for b in seen.commits}
    perform(checkpoint, Repair(write, tuple(sorted(remove - write.keys()))))


def offset_entries(batch: int, text: str) -> dict[str, str]:
    """Return the last entries of an offset log up to ``batch``; Spark reads the last two."""
    return {f"offsets/{b}": text for b in range(max(batch - 1, 0), batch + 1)}
