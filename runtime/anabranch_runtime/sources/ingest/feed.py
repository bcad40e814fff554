"""Feed of a stream whose rows first land in files: of Spark's sources and of PostgreSQL tables.
These files are *landed batches*. The offset is the number of the next batch to read, and the number
of its rows that have been read. Landed batches never change and their numbers have no gaps, so the
input between two offsets is fixed. Offsets count invalid rows too; tasks separate them when they
read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch_contract.connectors.postgres.options import POSTGRES
from anabranch_contract.connectors.sources import OnLoss
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_runtime.errors import SourceError, StateError
from anabranch_runtime.expressions.added_columns import added_values
from anabranch_runtime.sources.decode import schema_of, typed
from anabranch_runtime.sources.feed import CommonFeed, Piece, PieceError, Waiting
from anabranch_runtime.sources.ingest.landing import (
    Appearance,
    Landed,
    folder_of,
    home_of,
    read_caught_up,
    read_landed,
)
from anabranch_runtime.sources.ingest.spark_stream import has_files, source_name
from anabranch_runtime.sources.invalid import Decoded, split, unreadable
from anabranch_runtime.sources.loads import LONGEST_READING, Load
from anabranch_runtime.sources.postgres.position import Position

#: Prefix of the keys of landed feeds in the offset of all feeds.
LANDED = "spark:"


@dataclass(slots=True)
class LandedFeed(CommonFeed):
    """Feed over the landed batches of one source."""

    record: StreamRecord
    home: Path
    id: str
    #: Number of a landed batch -> the batch, if it has not been read completely.
    _known: dict[int, Landed] = field(default_factory=dict)
    #: Number of the newest load (part of the input after which the watermark moves), and the
    #: longest pause in it between files, in seconds.
    _pauses: tuple[int, float] = (0, 0.0)

    @property
    def on_loss(self) -> OnLoss:
        """Return ``STOP``: landed batches are the pipeline's own files and must not be lost."""
        return OnLoss.STOP

    def look(self, offset: Any) -> None:
        """Do nothing, since an unreadable landed batch fails the whole batch, not only the feed."""

    def waiting(self, offset: Any) -> Waiting:
        """Return the amount of landed input of the feed after ``offset``."""
        number, position = offset or (0, 0)
        for old in [n for n in self._known if n < number]:
            del self._known[old]
        while (found := self._batch(number + len(self._known))) is not None:
            self._known[number + len(self._known)] = found
        if not self._known:
            return Waiting(0)
        rows = sum(batch.rows for batch in self._known.values()) - position
        return Waiting(rows, max(time.time() - self._arrived(number), 0.0)) if rows else Waiting(0)

    def _arrived(self, number: int) -> float:
        """Return the time at which the feed's first unread rows arrived, in seconds since 1970."""
        if not self._has_changes:
            return folder_of(self.home, number).stat().st_mtime
        first = next(batch for n, batch in sorted(self._known.items()) if batch.rows)
        return Position.of(first).committed / 1e6

    @property
    def _has_changes(self) -> bool:
        """Whether landed batches have transactions, read as a whole, or a copy of a table."""
        return self.record.source.format == POSTGRES

    def load_end(self, offset: Any, load: Load) -> Any:
        """Return the offset after all landed batches once the source has no more input, if the load
        is the backlog or the source consists of files; otherwise None.

        Slow reading does not end a load: the times at which files appeared are compared, and a
        source has no more input only if a check has found none (``queries``).
        """
        number = (offset or (0, 0))[0]
        landed, of_files, found = number, has_files(self.record), list[Appearance]()
        while (batch := self._batch(landed)) is not None:
            landed += 1
            if (seen := batch.files_seen) is not None:
                found.append(seen)
                if seen.newest > load.began + load.longest:
                    return [landed, 0]
        if not (of_files or load.is_first) or time.time() - load.began > LONGEST_READING:
            return [landed, 0]
        caught_up, quiet = read_caught_up(self.home)
        has_ended = caught_up >= 0
        if of_files:
            wanted = load.quiet(self._longest_pause(load, found))
            has_ended = quiet >= wanted and (caught_up > number or caught_up == landed)
        if not has_ended:
            return None
        return [caught_up if caught_up > number else landed, 0]

    def is_apart(self, offset: Any, load: Load) -> bool:
        """Whether files of the next landed batch appeared so late that they begin a load."""
        number, position = offset or (0, 0)
        batch = self._batch(number) if has_files(self.record) and number and not position else None
        if batch is None or (seen := batch.files_seen) is None:
            return False
        before = max(seen.before, load.began)
        return seen.first - before >= load.quiet(self._longest_pause(load, ()))

    def _longest_pause(self, load: Load, found: Sequence[Appearance]) -> float:
        """Return the longest pause between files of ``load``, updated with the files ``found``."""
        known = self._pauses[1] if self._pauses[0] == load.number else 0.0
        for seen in found:
            before = seen.first - max(seen.before, load.began)
            known = max(known, before, min(seen.pause, seen.newest - load.began))
        self._pauses = load.number, known
        return known

    def advance(self, offset: Any, rows: int, end: Any = None) -> Any:
        """Return the feed's offset ``rows`` rows later, possibly within a landed batch."""
        number, position = offset or (0, 0)
        left = max(rows, 1)
        stop = inf if end is None else end[0]
        while left > 0 and number < stop and (batch := self._batch(number)) is not None:
            whole = self._has_changes and not Position.of(batch).copied
            step = batch.rows - position if whole else min(batch.rows - position, left)
            position, left = position + step, left - step
            if position >= batch.rows:
                number, position = number + 1, 0
        return [number, position]

    def pieces(self, start: Any, end: Any, parts: int) -> list[Piece]:
        """Return pieces that are ranges of rows of landed files."""
        first, begin = start or (0, 0)
        last, stop = end
        spans: list[tuple[Path, int, int, int, int]] = []
        found = list[Piece]()
        for number in range(first, last + (stop > 0)):
            batch = self._batch(number)
            if batch is None:
                raise SourceError(
                    "landed-batch-lost",
                    f"{folder_of(self.home, number)} is not there, and was not read to its end",
                    field=f"streams.{self.record.name}.source",
                    remedy="restore the state directory from a backup",
                )
            low = begin if number == first else 0
            high = stop if number == last else batch.rows
            if self._has_changes and not low and (why := Position.of(batch).lost):
                gone = self._piece(folder_of(self.home, number) / "lost", 0, 0, 0, 0)
                found.append(replace(gone, gone=PieceError("changes-lost", why), last=None))
            passed = 0
            for name, rows, size in batch.files:
                a, b = max(low - passed, 0), min(high - passed, rows)
                if a < b:
                    spans.append((folder_of(self.home, number) / name, size, a, b, passed))
                passed += rows
        size = max(sum(b - a for _, _, a, b, _ in spans) // parts, 1)
        for path, length, a, b, passed in spans:
            count = max(round((b - a) / size), 1)
            cuts = [a + (b - a) * i // count for i in range(count + 1)]
            found += [self._piece(path, length, low, high, passed) for low, high in pairwise(cuts)]
        return found

    def before(self, end: Any, pieces: Sequence[Piece]) -> Any:
        """Return ``end``: an unreadable piece fails the whole batch, so no piece is skipped."""
        return end

    def _piece(self, path: Path, size: int, first: int, last: int, passed: int) -> Piece:
        """Return the piece for rows of a landed file; ``passed``: rows of the batch before it."""
        columns = tuple((c.name, c.type) for c in self.record.columns)
        added = added_values(self.record.to_stream()) if self.record.added else {}
        where = {"path": str(path), "size": size, "first": first, "last": last, "added": added}
        return Piece(
            "landed",
            self.record.name,
            columns,
            last - first,
            where,
            source=f"{self.home.name}/{path.parent.name}",
            first=passed + first,
            last=passed + last,
        )

    def _batch(self, number: int) -> Landed | None:
        if number in self._known:
            return self._known[number]
        try:
            return read_landed(self.home, number)
        except StateError as cause:
            raise SourceError(
                cause.code,
                cause.message,
                field=f"streams.{self.record.name}.source",
                remedy=cause.remedy or "restore the state directory from a backup",
            ) from cause


def landed_feed(record: StreamRecord, state: str) -> LandedFeed:
    """Create the feed of a stream over one of Spark's sources."""
    source = source_name(record)
    return LandedFeed(record, home_of(Path(state), source), LANDED + source)


def read_rows(piece: Piece) -> Iterator[Decoded]:
    """Yield the rows of a part of a landed file, valid and invalid rows separately.

    Raises:
        SourceError: the file is missing, or differs from the landed one.
    """
    where = piece.where
    path, first, last = Path(where["path"]), where["first"], where["last"]
    try:
        size = path.stat().st_size
        if size != where["size"]:
            raise OSError(f"has {size} bytes instead of {where['size']}")
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        begin = 0
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            low, high = max(first - begin, 0), min(last - begin, batch.num_rows)
            begin += batch.num_rows
            if low < high:
                yield from _decoded(batch.slice(low, high - low), piece)
    except (OSError, pa.ArrowException) as cause:
        raise SourceError(
            "unreadable-file",
            f"landed file {path}: {cause}",
            field=piece.stream,
            remedy="restore the state directory from a backup",
        ) from cause


def _decoded(batch: pa.RecordBatch, piece: Piece) -> Iterator[Decoded]:
    """Yield the rows of a landed batch with the columns of ``piece``, valid and invalid rows
    separately; the last column has the raw input of invalid rows. Columns that were added after the
    batch landed have the values for earlier rows (``added_columns``)."""
    arrived = batch.column(batch.num_columns - 1)
    rows, schema = batch.select(batch.schema.names[:-1]), schema_of(piece.columns)
    if rows.schema != schema:
        for field in schema:
            if field.name not in rows.schema.names:
                value = piece.where["added"].get(field.name, pa.scalar(None, field.type))
                rows = rows.append_column(field, pa.repeat(value, len(rows)))
        if arrived.null_count < len(rows):
            yield unreadable(schema, arrived.drop_null())
        yield typed(rows.filter(arrived.is_null()), schema)
    elif arrived.null_count == len(rows):
        yield rows, None
    else:
        yield split(rows, arrived.is_valid().to_numpy(zero_copy_only=False), arrived.take)
