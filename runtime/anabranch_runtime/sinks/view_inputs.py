"""Files with a view's input: rows joined by batches, read by the view's Spark query (aggregation).

Below ``<results>/.views/<query>/``::

    pending/<batch>/...              staged before the batch commits, or by a repetition
    input/<last>@<floor>/<batch>/... released after its batches have committed, for Spark
    input/<last>@<floor>/<batch>/_sampled  marks rows that carry inclusion probabilities
    input/<last>@<floor>/_missing    missing results as of the last batch, if any
    released                         the last batch released, as text
    clock                            the last clock that Spark has been given, as text

A release is one folder, so Spark sees all of its files or none, including the *clock*: a file with
the event time below which no more rows will come. The *floor* of a release is the preceding clock.
Names of files with left rows of outer joins begin with ``left-``, with pairs of the second look-up
with ``pairs-2-``. A released batch that is repeated (after a rollback of the state) has the same
rows, and is not released again. Spark ignores files whose names begin with an underscore.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract.protocol.activations import Activation
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.storage.documents import write_durably

HOME = ".views"
#: Column of the file with a view's clock (its event time); files of rows lack it.
CLOCK = "anabranch_clock"
_CLOCK_SCHEMA = pa.schema([(CLOCK, pa.timestamp("us", "UTC"))])
_CLOCK_FILE = "clock.parquet"
_SAMPLED, _MISSING = "_sampled", "_missing"
#: Prefix of the names of files of left rows.
LEFT_PREFIX = "left-"


def home_of(results: Path, query: str) -> Path:
    """Return the input folder of one view."""
    return results / HOME / query


def stage(
    home: Path,
    batch: int,
    parts: Mapping[int, Iterable[Path]],
    *,
    sampled: bool = False,
) -> None:
    """Stage a batch's joined rows, replacing the rows of an earlier attempt.

    Args:
        parts: number of a join within the query (``part_number``; 1 if it has one) -> its files.
        sampled: whether the rows have inclusion probabilities (``sampling``).
    """
    if batch <= released(home):
        return
    folder = home / "pending" / _name(batch)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for part, files in parts.items():
        for number, file in enumerate(files):
            file.rename(folder / f"{_prefix(part)}{number:05d}.parquet")
    if sampled:
        (folder / _SAMPLED).touch()


def forget_from(home: Path, next_batch: int) -> None:
    """Delete staged rows of ``next_batch`` and later batches, left by interrupted attempts."""
    for batch, folder in _batches(home / "pending"):
        if batch >= next_batch:
            shutil.rmtree(folder)


def release(
    home: Path,
    next_batch: int,
    clock: int | None,
    *,
    always: bool = False,
    missing: Activation | None = None,
) -> bool:
    """Make the rows of all batches before ``next_batch`` visible to Spark, with the ``clock`` after
    them (microseconds; None: unknown); returns whether there is anything new.

    Args:
        always: whether to release the clock even without rows.
        missing: the query's counts of withheld rows as of the last batch; None: none ever.
    """
    source, made = home / "input", home / "making"
    source.mkdir(parents=True, exist_ok=True)
    ready = [(b, folder) for b, folder in _batches(home / "pending") if b < next_batch]
    floor = released_clock(home)
    news = always and clock is not None and (floor is None or clock > floor)
    if not ready and not news and not made.exists():
        return any(source.iterdir())
    made.mkdir(exist_ok=True)
    if ready:
        write_durably(home / "released", str(max(ready[-1][0], released(home))))
        reach(Point.RELEASING)
    for _, folder in ready:
        folder.rename(made / folder.name)
    if clock is not None:
        moment = pa.array([clock], _CLOCK_SCHEMA.field(0).type)
        pq.write_table(pa.table([moment], _CLOCK_SCHEMA), made / _CLOCK_FILE)
    if missing is not None:
        (made / _MISSING).write_text(missing.dumps(), encoding="utf-8")
    made.rename(source / f"{_name(next_batch - 1)}@{'' if floor is None else floor}")
    reach(Point.RELEASED)
    if clock is not None:
        write_durably(home / "clock", str(clock if floor is None else max(clock, floor)))
    return True


def pending(home: Path, next_batch: int) -> list[int]:
    """Return batches before ``next_batch`` not yet visible to Spark; interrupted ones first."""
    found = (*_batches(home / "making"), *_batches(home / "pending"))
    return [batch for batch, _ in found if batch < next_batch]


def after_all(home: Path) -> int:
    """Return the number of the last staged batch plus one."""
    return max((batch + 1 for batch, _ in _batches(home / "pending")), default=0)


def released_clock(home: Path) -> int | None:
    """Return the last clock (the view's event time) given to Spark; None: none."""
    found = [
        pq.read_table(file, schema=_CLOCK_SCHEMA)[CLOCK].cast(pa.int64())[0].as_py()
        for file in (home / "input").glob(f"*/{_CLOCK_FILE}")
    ]
    with contextlib.suppress(FileNotFoundError):
        found.append(int((home / "clock").read_text()))
    return max(found, default=None)


def waiting(home: Path, next_batch: int) -> bool:
    """Whether the view may not have read all batches before ``next_batch``."""
    pending = any(batch < next_batch for batch, _ in _batches(home / "pending"))
    return pending or unread(home)


def unread(home: Path) -> bool:
    """Whether Spark may not have read all files visible to it."""
    source = home / "input"
    return source.exists() and any(source.iterdir())


def last_batch(home: Path) -> int:
    """Return the last batch among the files visible to Spark; -1: none."""
    names = (p.name.partition("@")[0] for p in (home / "input").iterdir())
    return max((int(name) for name in names), default=-1)


def missing(home: Path) -> Activation | None:
    """Return the query's counts of withheld rows as of the last visible batch; None: none ever."""
    found = sorted((home / "input").glob(f"*/{_MISSING}"))
    return Activation.loads(found[-1].read_text(encoding="utf-8")) if found else None


def sampled(home: Path) -> list[list[Path]]:
    """Return the visible files of rows with inclusion probabilities, a list per batch."""
    folders = sorted(p.parent for p in (home / "input").glob(f"*/*/{_SAMPLED}"))
    return [sorted(folder.glob("[0-9]*.parquet")) for folder in folders]


def files_of(home: Path, part: int) -> list[Path]:
    """Return the files visible to Spark of the query's ``part``-th join."""
    return sorted((home / "input").glob(f"*/*/{_prefix(part)}[0-9]*.parquet"))


def read(home: Path) -> None:
    """Delete all released files, after Spark has read them."""
    for folder in (home / "input").iterdir():
        shutil.rmtree(folder)


def released(home: Path) -> int:
    """Return the last batch whose rows are visible to Spark (file ``released``); -1: none."""
    try:
        return int((home / "released").read_text())
    except FileNotFoundError:
        return -1


def _batches(folder: Path) -> list[tuple[int, Path]]:
    if not folder.exists():
        return []
    return sorted((int(p.name), p) for p in folder.iterdir() if p.name.isdecimal())


def _prefix(part: int) -> str:
    return {0: LEFT_PREFIX, 1: ""}.get(part, f"pairs-{part}-")


def _name(batch: int) -> str:
    return f"{batch:010d}"
