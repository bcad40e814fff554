"""Joined rows between the batch that finds them and the view that reads them, as files.

Below ``<results>/.views/<query>/``::

    pending/<batch>/<task>.parquet   staged before the batch commits; an attempt replaces another's
    input/<batch>/...                released: the batch has committed; Spark's file source reads it
    released                         the last batch released, as text

A batch is moved as one folder, so Spark sees all of its files or none, with the *clock* among them:
a file that says below which event time no joined row will come any more. A batch that is repeated
after it was released (the state was rolled back) brings the same rows, and is not released again.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

HOME = ".views"
#: The column of the file that has the clock; other files lack it.
CLOCK = "anabranch_clock"
_CLOCK_SCHEMA = pa.schema([(CLOCK, pa.timestamp("us", "UTC"))])
_CLOCK_FILE = "clock.parquet"


def home_of(results: Path, query: str) -> Path:
    """The folder of one view."""
    return results / HOME / query


def stage(home: Path, batch: int, files: Iterable[Path]) -> None:
    """Take a batch's joined rows, in place of what an earlier attempt has left of it."""
    if batch <= released(home):
        return
    folder = home / "pending" / _name(batch)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, file in enumerate(files):
        file.rename(folder / f"{number:05d}.parquet")


def forget_from(home: Path, next_batch: int) -> None:
    """Remove what attempts at ``next_batch`` and later batches have left."""
    for batch, folder in _batches(home / "pending"):
        if batch >= next_batch:
            shutil.rmtree(folder)


def release(home: Path, next_batch: int, clock: int | None) -> bool:
    """Let the batches before ``next_batch`` be read, with ``clock`` (microseconds; None: nothing is
    known) as of the last of them; whether there is anything to read.
    """
    source = home / "input"
    source.mkdir(parents=True, exist_ok=True)
    ready = [(b, folder) for b, folder in _batches(home / "pending") if b < next_batch]
    if ready:
        last, folder = ready[-1]
        if clock is not None:
            moment = pa.array([clock], _CLOCK_SCHEMA.field(0).type)
            pq.write_table(pa.table([moment], _CLOCK_SCHEMA), folder / _CLOCK_FILE)
        _write(home / "released", str(max(last, released(home))))
    for _, folder in ready:
        folder.rename(source / folder.name)
    return any(_batches(source))


def waiting(home: Path) -> int:
    """How many batches the view has not read, or may not have."""
    return len(_batches(home / "pending")) + len(_batches(home / "input"))


def read(home: Path) -> None:
    """Everything released has been read, and is not needed any more."""
    for _, folder in _batches(home / "input"):
        shutil.rmtree(folder)


def released(home: Path) -> int:
    """The last batch that was released; -1: none."""
    try:
        return int((home / "released").read_text())
    except FileNotFoundError:
        return -1


def _batches(folder: Path) -> list[tuple[int, Path]]:
    if not folder.exists():
        return []
    return sorted((int(p.name), p) for p in folder.iterdir() if p.name.isdecimal())


def _name(batch: int) -> str:
    return f"{batch:010d}"


def _write(path: Path, text: str) -> None:
    """Replace a small file, so that it has the old or the new text whatever happens."""
    fresh = path.with_suffix(".new")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
