"""Feed of a stream that is a query: the versions of the query's view or outer join.

The results folder of the query has one file per version (``sinks.parquet``). The offset is the last
version read, and the number of rows of all versions up to it, by which a missing version is
noticed. The files appear in the order of the versions, each atomically, and a version that is
written again has the same rows. So the input between two offsets is fixed. A file has the changes
of one batch of the query, and is read as a whole, in one batch.

A row of a view replaces the row with the same identity. The identity of a row is one hidden column
(:data:`IDENTITY`), made from the values of the identity columns, and equal where these are equal,
NULL included.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch_contract.connectors.sources import KEY, RUN, TOTAL, OnLoss
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.changes import IDENTITY
from anabranch_runtime.columns.nested import exact_text, is_nested
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.decode import schema_of, typed
from anabranch_runtime.sources.feed import CommonFeed, Piece, Waiting, feed_id
from anabranch_runtime.sources.files.reading import parquet_rows
from anabranch_runtime.sources.files.trouble import BROKEN
from anabranch_runtime.sources.invalid import Decoded
from anabranch_runtime.sources.loads import Load

#: Pattern of the names of versions' files.
_FILES = "version-*.parquet"
#: Least pause between two listings of the folder: seconds, and multiple of a listing's duration.
_REST, _REST_FACTOR = 0.02, 10.0
#: A listing is complete if the folder has not changed in this many nanoseconds before it, since
#: file systems store times with a resolution of up to two seconds.
_SETTLED = 2_100_000_000
#: Maximum number of unread versions whose rows are counted; further rows are estimated.
_COUNTED = 256
#: Number of rows of a piece of a large version.
_PIECE_ROWS = 1 << 16


@dataclass(slots=True)
class VersionFeed(CommonFeed):
    """Feed of a stream that is a query: reads its versions.

    Attributes:
        folder: the results folder of the query's run.
    """

    record: StreamRecord
    folder: Path
    id: str
    #: The versions that have been found, ascending.
    _found: list[int] = field(default_factory=list)
    #: Modification time of the folder at the last listing, and the time of the next.
    _listed: int = -1
    _next: float = 0.0
    #: Version -> number of its rows, and of the rows of all versions up to it.
    _sizes: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def on_loss(self) -> OnLoss:
        """Policy for a version of the query that can't be read: to wait until it can."""
        return OnLoss.STOP

    def look(self, offset: Any) -> None:
        """Check the version after ``offset``; raise an error if it can't be read."""
        for version in self._after(offset)[:1]:
            self._size(version)

    def waiting(self, offset: Any) -> Waiting:
        """Return the amount of input in the query's versions after ``offset``."""
        self._discover()
        unread = self._after(offset)
        if not unread:
            return Waiting(0)
        rows, total = self._size(unread[0])
        if total - rows != (offset or (-1, 0))[1]:
            raise SourceError(
                "unreadable-version",
                f"{self.folder} lacks a version before {unread[0]}",
                field=str(self.folder),
                remedy="put the files back: other queries read the results of this query",
            )
        counted = unread[:_COUNTED]
        rows = sum(self._size(version)[0] for version in counted)
        try:
            age = time.time() - self._path(unread[0]).stat().st_mtime
        except OSError as cause:
            raise unreadable(self._path(unread[0]), cause) from cause
        return Waiting(max(rows * len(unread) // len(counted), 1), max(age, 0.0))

    def load_end(self, offset: Any, load: Load) -> Any:
        """Return the offset after the query's last known version, where the load ends."""
        return self.advance(offset, sum(self._size(v)[0] for v in self._after(offset)))

    def has_reached(self, offset: Any, end: Any) -> bool:
        """Whether all versions of the query up to ``end`` have been read."""
        return end is None or list(offset or (-1, 0)) >= list(end)

    def advance(self, offset: Any, rows: int, end: Any = None) -> Any:
        """Return the offset about ``rows`` rows, and at least one version, later."""
        left = rows
        for version in self._after(offset):
            if left <= 0 or (end is not None and version > end[0]):
                break
            rows, total = self._size(version)
            if total - rows != (offset or (-1, 0))[1]:
                break
            left, offset = left - rows, [version, total]
        return offset

    def pieces(self, start: Any, end: Any, parts: int) -> list[Piece]:
        """Return the pieces of versions after ``start`` up to ``end``; large ones have several."""
        if not self._found or self._found[-1] < end[0]:
            self._discover(at_once=True)
        unread = [version for version in self._after(start) if version <= end[0]]
        found, at = list[Piece](), list(start or (-1, 0))
        for version in unread:
            try:
                rows, total = self._size(version)
            except SourceError:
                # The file can't be read; the task that reads it reports the error.
                found.append(self._piece(version, 0, None, at))
                return found
            if total - rows != at[1]:
                break
            size = max(_PIECE_ROWS, -(-rows // max(parts, 1)))
            found += [
                self._piece(version, first, min(first + size, rows), at)
                for first in range(0, rows, size)
            ]
            at = [version, total]
        if at[1] != end[1]:
            # A file was removed after it had been planned, so that reading this piece fails.
            found.append(self._piece(None, 0, None, at))
        return found

    def before(self, end: Any, pieces: Sequence[Piece]) -> Any:
        """Return the offset of the last version of the query before the first of ``pieces``."""
        first = min(pieces, key=lambda piece: piece.number, default=None)
        return end if first is None else first.before

    def _piece(self, version: int | None, first: int, last: int | None, before: Any) -> Piece:
        path = str(self.folder / _FILES if version is None else self._path(version))
        key = self.record.source.options.get(KEY)
        return Piece(
            "version",
            self.record.name,
            tuple((c.name, c.type) for c in self.record.columns),
            0 if last is None else last - first,
            {
                "path": path,
                "identity": None if key is None else json.loads(key),
                "first": first,
                "last": last,
            },
            feed=self.id,
            source=path,
            first=first,
            last=last,
            before=before,
        )

    def _path(self, version: int) -> Path:
        return self.folder / _FILES.replace("*", f"{version:010d}")

    def _after(self, offset: Any) -> list[int]:
        return self._found[bisect_right(self._found, -1 if offset is None else int(offset[0])) :]

    def _size(self, version: int) -> tuple[int, int]:
        """Return the number of rows of a version, and of all versions up to it."""
        size = self._sizes.get(version)
        if size is None:
            try:
                found = pq.read_metadata(self._path(version))
                size = int(found.num_rows), int(found.metadata[TOTAL])
            except BROKEN as cause:
                raise unreadable(self._path(version), cause) from cause
            if len(self._sizes) > 4 * _COUNTED:
                self._sizes.clear()
            self._sizes[version] = size
        return size

    def _discover(self, *, at_once: bool = False) -> None:
        """List the folder of versions if it has changed.

        A listing may contain a file and lack another file that got its name earlier. So the folder
        is listed twice, and versions after the last version of the first listing are ignored.
        """
        began = time.monotonic()
        if began < self._next and not at_once:
            return
        try:
            changed = self.folder.stat().st_mtime_ns
            if changed == self._listed and time.time_ns() - changed > _SETTLED:
                return
            last = max(self._versions(), default=-1)
            self._found = sorted(version for version in self._versions() if version <= last)
        except FileNotFoundError:
            # There is no folder, since the query has no version yet.
            return
        except OSError as cause:
            raise unreadable(self.folder, cause) from cause
        self._listed = changed
        ended = time.monotonic()
        self._next = ended + max(_REST, _REST_FACTOR * (ended - began))

    def _versions(self) -> list[int]:
        return [int(path.stem.partition("-")[2]) for path in self.folder.glob(_FILES)]


def version_feed(record: StreamRecord, results: str) -> VersionFeed:
    """Create the feed of a stream that is a query; ``results``: directory of its versions."""
    folder = Path(results) / record.source.options[RUN]
    return VersionFeed(record, folder, feed_id(record, ("query", record.source.options)))


def unreadable(path: Path, cause: Exception) -> SourceError:
    """Return the error for a query's version that can't be read."""
    return SourceError(
        "unreadable-version",
        f"{path} can't be read: {cause}",
        field=str(path),
        remedy="put the file back: other queries read the results of this query",
    )


def read_version(piece: Piece) -> Iterator[Decoded]:
    """Yield rows of a query's version.

    Raises:
        SourceError: the file is missing or damaged.
    """
    where = piece.where
    path, identity = Path(where["path"]), where["identity"]
    schema = schema_of(piece.columns)
    names = [name for name in schema.names if name != IDENTITY]
    wanted = list(dict.fromkeys([*names, *(identity or ())]))
    try:
        for batch in parquet_rows(path, wanted, where["first"], where["last"]):
            rows = batch
            if identity is not None:
                rows = batch.append_column(IDENTITY, identities(batch, identity))
            yield typed(rows, schema)
    except MemoryError:
        raise
    except BROKEN as cause:
        raise unreadable(path, cause) from cause


def identities(rows: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    """Return one binary value per row: equal for rows with equal values of ``columns``.

    >>> rows = pa.record_batch({"a": ["x", None, "1:x"], "b": [1, 2, 3]})
    >>> identities(rows, ["a", "b"]).to_pylist()
    [b'1:x1:1', b'~1:2', b'3:1:x1:3']
    >>> identities(rows, []).to_pylist()
    [b'', b'', b'']
    """
    found = pa.repeat(pa.scalar(b"", pa.binary()), rows.num_rows)
    nothing = pa.scalar(b"", pa.binary())
    for name in columns:
        texts = _texts(rows.column(name))
        lengths = pc.binary_length(texts).cast(pa.string()).cast(pa.binary())
        parts = pc.binary_join_element_wise(lengths, texts, pa.scalar(b":", pa.binary()))
        parts = pc.if_else(pc.is_null(texts), pa.scalar(b"~", pa.binary()), parts)
        found = pc.binary_join_element_wise(found, parts, nothing)
    return found


def _texts(column: pa.Array) -> pa.Array:
    """Return a column's values as bytes, different for different values; -0.0 counts as 0.0."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind) or pa.types.is_duration(kind):
        column = column.view(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.view(pa.int32())
    elif pa.types.is_floating(kind):
        column = pc.add(column, pa.scalar(0.0, kind))
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column.cast(pa.binary())
    elif is_nested(kind):
        column = exact_text(column)
    return column.cast(pa.string()).cast(pa.binary())
