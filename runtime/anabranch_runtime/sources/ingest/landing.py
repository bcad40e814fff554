"""Landed batches: immutable files with the rows that an ingest query has read from one source.

Below the state directory, ``ingest/<source>`` (``spark_stream.source_name``) holds::

    checkpoint/          Spark's, of the ingest query
    landed/<n>/          the n-th batch that had rows: Arrow files and ``batch.json``
    caught-up            number of landed batches when a check of the source found no more input,
                         and seconds from the appearance of their last file to this check
    landed/.<random>/    a batch that is being written

A batch appears by one rename, after its files are durable. Numbers have no gaps, so a reader finds
the next batch by its name. ``batch.json`` has the number of Spark's batch and its end offsets in
the source, so that a batch which Spark repeats is recognised and not landed twice.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_runtime.errors import StateError
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.recovery.logs import Prefixes
from anabranch_runtime.sources.decode import Columns, schema_of
from anabranch_runtime.sources.ingest.evaluate import Evaluation
from anabranch_runtime.sources.ingest.links import closed
from anabranch_runtime.sources.invalid import ARRIVED
from anabranch_runtime.storage.documents import (
    Kind,
    read_document,
    sync_path,
    write_document,
    write_durably,
)
from anabranch_runtime.storage.durable import attach, durable

KIND = Kind("landed-batch", "landed")
#: Folder below the state directory with the landed batches of all sources.
INGEST = "ingest"
#: Schema of the report that :func:`file_writer` makes on its files.
WRITTEN = "name string, rows bigint, bytes bigint"
_DOCUMENT = "batch.json"
_CAUGHT_UP = "caught-up"


@dataclass(frozen=True, slots=True)
class Appearance:
    """Times at which the files of a batch appeared, in seconds since 1970.

    Attributes:
        before: time of the newest file of all earlier batches; 0 for the first batch.
        first, newest: times of the oldest and the newest file of the batch.
        pause: longest pause between two of its files, in seconds.
    """

    before: float
    first: float
    newest: float
    pause: float


@dataclass(frozen=True)
class Landed:
    """Description of a landed batch (``batch.json``).

    Attributes:
        batch: its number in the ingest query.
        offsets: the batch's end offsets, as text of Spark's offset log.
        files: name, number of rows and bytes of each file.
        logs: lengths and checksums of Spark's logs of the source then (``recovery.logs``).
        files_seen: times at which its files appeared; None for a source without files.
    """

    batch: int
    offsets: str
    files: tuple[tuple[str, int, int], ...]
    logs: Prefixes
    files_seen: Appearance | None = None

    @cached_property
    def rows(self) -> int:
        """Number of rows in all files, including invalid rows."""
        return sum(rows for _, rows, _ in self.files)

    @cached_property
    def bytes(self) -> int:
        """Bytes of all files of the landed batch."""
        return sum(size for _, _, size in self.files)


def home_of(state: Path, source: str) -> Path:
    """Return the folder of one source's landed batches."""
    return state / INGEST / source


def folder_of(home: Path, number: int) -> Path:
    """Return the folder of a landed batch."""
    return home / "landed" / str(number)


def numbers(home: Path) -> list[int]:
    """Return the numbers of a source's existing landed batches, ascending."""
    folder = home / "landed"
    if not folder.is_dir():
        return []
    return sorted(int(p.name) for p in folder.iterdir() if p.name.isdecimal())


def read_landed(home: Path, number: int) -> Landed | None:
    """Read a landed batch; None if no batch has the number.

    Raises:
        StateError: ``damaged-landed-batch``, ``unknown-version``.
    """
    path = folder_of(home, number) / _DOCUMENT
    if not path.exists():
        return None
    body = read_document(path, KIND)
    try:
        files = tuple((str(name), int(rows), int(size)) for name, rows, size in body["files"])
        logs = {name: (length, crc) for name, (length, crc) in body["logs"].items()}
        times = body["files_seen"]
        seen = None if times is None else Appearance(**times)
        return Landed(body["batch"], body["offsets"], files, logs, seen)
    except (KeyError, TypeError, ValueError) as cause:
        raise StateError(
            "damaged-landed-batch", f"{path} is not a landed batch: {cause!r}"
        ) from cause


def note_caught_up(home: Path, number: int, quiet: float) -> None:
    """Record that a check of the source, ``quiet`` seconds after its last file had appeared, found
    no input that is not in the first ``number`` landed batches."""
    write_durably(home / _CAUGHT_UP, f"{number} {quiet}")


def read_caught_up(home: Path) -> tuple[int, float]:
    """Return the last record of :func:`note_caught_up` (batches, seconds); (-1, 0.0): none."""
    try:
        number, quiet = (home / _CAUGHT_UP).read_text().split()
        return int(number), float(quiet)
    except (FileNotFoundError, ValueError):
        return -1, 0.0


def begin(home: Path) -> Path:
    """Create and return an empty folder for a landed batch that is about to be written."""
    folder = home / "landed" / f".{uuid4().hex}"
    folder.mkdir(parents=True)
    return folder


def clear_unfinished(home: Path) -> None:
    """Delete landed batches whose writing was interrupted."""
    for folder in (home / "landed").glob(".*"):
        shutil.rmtree(folder, ignore_errors=True)


def finish(home: Path, folder: Path, number: int, landed: Landed) -> None:
    """Turn the batch in ``folder`` into the landed batch ``number``; return once it is durable."""
    known = {name for name, _, _ in landed.files}
    for stray in folder.iterdir():
        # If Spark has run a task twice, one of its files was not reported and is deleted.
        if stray.name not in known:
            stray.unlink()
    write_document(folder / _DOCUMENT, KIND, asdict(landed))
    reach(Point.LANDING)
    folder.rename(folder_of(home, number))
    sync_path(home / "landed")
    reach(Point.LANDED)


def forget(home: Path, below: int) -> None:
    """Delete the landed batches with numbers less than ``below``, except the newest one, which has
    the source's current offsets."""
    for number in numbers(home)[:-1]:
        if number < below:
            _delete(home, number)


def forget_all(home: Path) -> None:
    """Delete all landed files of a source."""
    for number in numbers(home):
        _delete(home, number)
    shutil.rmtree(home, ignore_errors=True)


def _delete(home: Path, number: int) -> None:
    keeper = durable(home.parent.parent)
    if keeper.uri is not None:
        with suppress(StateError):
            found = read_landed(home, number)
            names = () if found is None else (name for name, _, _ in found.files)
            keeper.discard(object_of(folder_of(home, number) / name) for name in names)
    shutil.rmtree(folder_of(home, number), ignore_errors=True)


def object_of(file: Path) -> str:
    """Return the name that a landed file has as an object of the object store."""
    return f"{INGEST}/{file.parents[2].name}/{file.name}"


@dataclass(frozen=True, slots=True)
class Apart:
    """Destination of landed files on a cluster whose hosts share only an object store.

    Attributes:
        cache: the local directory on each host (``spark.apart``).
        objects: address of the object store.
    """

    cache: str
    objects: str


def file_writer(
    folder: str,
    columns: Columns,
    evaluation: Evaluation,
    access: AccessPolicy,
    apart: Apart | None = None,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that Spark's tasks run on rows of ``spark_stream.spark_rows``. It
    evaluates the stream's columns, writes them durably to one Arrow file in ``folder``, and yields
    a row of :data:`WRITTEN`. With ``apart`` it writes to the host's cache and the object store."""
    declared = tuple(columns)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = landed_schema(declared)
        rows = (closed(evaluation.rows(batch), len(schema), access) for batch in batches)
        written = write_file(Path(folder), schema, rows, apart)
        if written is not None:
            columns = [pa.array([x]) for x in written]
            yield pa.RecordBatch.from_arrays(columns, names=["name", "rows", "bytes"])

    return write


def write_file(
    folder: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], apart: Apart | None = None
) -> tuple[str, int, int] | None:
    """Write rows to a new landed file, durably; return its name, rows and bytes; None: no rows.

    Args:
        folder: folder of the landed batch. ``schema``: schema of the file (:func:`landed_schema`).
        apart: the host's cache and the object store to write to instead; None: neither.
    """
    path = folder / f"{uuid4().hex}.arrow"
    name = object_of(path)
    if apart is not None:
        path = Path(apart.cache).absolute() / name
        path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as file:
        for batch in batches:
            arrays = [c.cast(f.type) for c, f in zip(batch.columns, schema, strict=True)]
            file.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
            written += batch.num_rows
    if not written:
        path.unlink()
        return None
    with path.open("rb") as done:
        os.fsync(done.fileno())
    if apart is not None:
        attach(Path(apart.cache).absolute(), apart.objects).upload(name)
    return path.name, written, path.stat().st_size


def landed_schema(columns: Sequence[tuple[str, str]]) -> pa.Schema:
    """Return the schema of landed files: the stream's columns, and raw input of invalid rows."""
    return schema_of(columns).append(pa.field(ARRIVED, pa.binary()))
