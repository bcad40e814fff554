"""Quarantine: files of late, future and invalid tuples, per stream that keeps them.

``<results>/.late/<stream>/<batch>-<task>.parquet`` has the stream's columns as they arrived, and
four more: ``_reason`` (``late``: below the watermark; ``ahead``: too far in the future;
``invalid``: no event time, or not of the declared types); ``_batch``; ``_watermark``, its stream's
watermark at the start of the batch (NULL: none); and ``_raw``, the raw text of an invalid row whose
values do not fit the stream's columns (``sources.invalid``), which are then NULL. ``_raw`` is NULL
for all other rows. If the stream has a column of such a name, ignoring case, more underscores
precede the name. The files follow the protocol of results (:mod:`anabranch_runtime.sinks.parquet`):
staged by the attempt, moved before the batch commits, replaced if the batch is repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_runtime.sources.invalid import ARRIVED, raw_text

#: Folder below the results directory; the names of queries do not begin with a dot.
LATE = ".late"
_OWN = ("_reason", "_batch", "_watermark", "_raw")


def own_columns(names: Iterable[str]) -> tuple[str, str, str, str]:
    """Return the names of the four added columns to late files of a stream with columns ``names``.

    >>> own_columns(["id", "_BATCH"])
    ('__reason', '__batch', '__watermark', '__raw')
    """
    taken = {name.lower() for name in names}
    mark = ""
    while any(mark + name in taken for name in _OWN):
        mark += "_"
    reason, batch, watermark, raw = (mark + name for name in _OWN)
    return reason, batch, watermark, raw


def aside(rows: pa.RecordBatch, reason: str, batch: int, watermark: int | None) -> pa.RecordBatch:
    """Add reason, batch, watermark (microseconds) and raw text to rejected ``rows``, as columns."""
    count, raw = rows.num_rows, pa.nulls(rows.num_rows, pa.large_string())
    if rows.schema.names[-1] == ARRIVED:
        raw = raw_text(rows.column(ARRIVED))
        rows = rows.select(rows.schema.names[:-1])
    mark = pa.scalar(watermark, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    columns = [
        *rows.columns,
        pa.repeat(pa.scalar(reason), count),
        pa.repeat(pa.scalar(batch, pa.int64()), count),
        pa.repeat(mark, count),
        raw,
    ]
    names = rows.schema.names
    return pa.RecordBatch.from_arrays(columns, names=[*names, *own_columns(names)])


def write_late(path: Path, pieces: Sequence[pa.RecordBatch]) -> None:
    """Write the file of rejected tuples of one task, stream and batch."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_batches(pieces), path)


def publish_late(results: Path, batch: int, staged: Iterable[tuple[str, int, Path]]) -> None:
    """Move a batch's staged files of late tuples, (stream, task, file), to their final names."""
    prefix = f"{batch:010d}-"
    folder = results / LATE
    if folder.exists():
        for stale in folder.glob(f"*/{prefix}*.parquet"):
            stale.unlink()
    for stream, task, file in staged:
        target = folder / stream / f"{prefix}{task:05d}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        file.rename(target)
