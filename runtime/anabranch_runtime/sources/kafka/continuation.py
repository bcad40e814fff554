"""Feed of a stream with its past in files or a Delta or Iceberg table, continued by Kafka topics.

The positions in the topics at which reading begins are fixed before the first file is read. The
past ends with the table's snapshot, or with the files of a folder once none has appeared for a
while. This end is written to a log beside the state before a batch reads beyond it; files that
appear later are not read.

The offset has the position in the past, the positions in the topics, and the time at which reading
began. A batch has rows of the past or of the topics, not of both. The past and the messages that
the topics have when it ends are one load, so none of these rows is late because of others.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from anabranch_contract.connectors.lake.options import LAKE
from anabranch_contract.connectors.sources import OnLoss
from anabranch_contract.protocol.intake import SnapshotProgress
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.feed import CommonFeed, Feed, Piece, Waiting, feed_id
from anabranch_runtime.sources.files.log import append_lines, read_lines
from anabranch_runtime.sources.kafka.feed import KafkaFeed, kafka_feed
from anabranch_runtime.sources.loads import Load

#: Keys of an offset: position in the past, positions in the topics, time when reading began.
PAST, THEN, BEGAN = "past", "then", "began"


class Past(Feed, Protocol):
    """A feed that can be read as the past of a stream, because it ends."""

    def read(self, offset: Any) -> int:
        """Return the approximate number of rows before ``offset``."""


@dataclass(slots=True)
class ContinuedFeed(CommonFeed):
    """A feed with the rows of ``past``, up to its end, then the messages of ``then`` (topics)."""

    record: StreamRecord
    past: Past
    then: KafkaFeed
    id: str
    end_path: Path
    _end: Any = None

    @property
    def on_loss(self) -> OnLoss:
        """``SKIP`` if both sources skip lost input, otherwise ``STOP``."""
        both = {self.past.on_loss, self.then.on_loss}
        return OnLoss.STOP if OnLoss.STOP in both else OnLoss.SKIP

    def look(self, offset: Any) -> None:
        """Check the source (past or topics) that ``offset`` is in; raises if it can't be read."""
        if self._is_past(offset):
            self.past.look(offset[PAST])
        else:
            self.then.look(offset[THEN])

    def begin(self) -> Any:
        """Return the first offset, with the positions in the topics after the past."""
        return {PAST: self.past.begin(), THEN: self.then.begin(), BEGAN: time.time()}

    def waiting(self, offset: Any) -> Waiting:
        """Return the unread rows of the past or, after its end, of the topics."""
        if self._is_past(offset):
            found = self.past.waiting(offset[PAST])
            self._ended(offset)
            if self._is_past(offset):
                read = self.past.read(offset[PAST])
                progress = found.snapshot or SnapshotProgress(read + found.rows, read)
                return replace(found, snapshot=progress)
        return self.then.waiting(offset[THEN])

    def load_end(self, offset: Any, load: Load) -> Any:
        """Return the end of the past with the topics' present end; None before the past ends."""
        end = self._ended(offset)
        if end is None:
            return None
        return {**offset, PAST: end, THEN: self.then.load_end(offset[THEN], load)}

    def has_reached(self, offset: Any, end: Any) -> bool:
        """Whether the past and the topics have been read up to ``end``."""
        return self.past.has_reached(offset[PAST], end[PAST]) and self.then.has_reached(
            offset[THEN], end[THEN]
        )

    def advance(self, offset: Any, rows: int, end: Any = None) -> Any:
        """Return the offset about ``rows`` rows later, in the past or in the topics."""
        if self._is_past(offset):
            return {**offset, PAST: self.past.advance(offset[PAST], rows, self._end)}
        upto = None if end is None else end[THEN]
        return {**offset, THEN: self.then.advance(offset[THEN], rows, upto)}

    def pieces(self, start: Any, end: Any, parts: int) -> list[Piece]:
        """Return the pieces of the past and of the topics between two offsets."""
        found = list[Piece]()
        for feed, key in ((self.past, PAST), (self.then, THEN)):
            first, last = start[key] if start else None, end[key]
            if last is not None and first != last:
                found += (
                    replace(piece, feed=self.id, before=[key, piece.before])
                    for piece in feed.pieces(first, last, parts)
                )
        return found

    def before(self, end: Any, pieces: Sequence[Piece]) -> Any:
        """Return ``end``, moved back to the starts of ``pieces`` in the past and in the topics."""
        found = dict(end)
        for feed, key in ((self.past, PAST), (self.then, THEN)):
            own = [replace(p, before=p.before[1]) for p in pieces if p.before[0] == key]
            if own:
                found[key] = feed.before(end[key], own)
        return found

    def _is_past(self, offset: Any) -> bool:
        """Whether rows of the past follow ``offset``, as far as the end of the past is known."""
        if self._end is None:
            self._end = next((json.loads(line) for line in read_lines(self.end_path)), None)
        return self._end is None or not self.past.has_reached(offset[PAST], self._end)

    def _ended(self, offset: Any) -> Any:
        """Return the end of the past, or None if the past has not ended yet.

        Raises:
            SourceError: a folder without files has no past.
        """
        if self._end is None:
            load = Load(self.record.name, is_open=True, began=offset[BEGAN])
            end = self.past.load_end(offset[PAST], load)
            if end == [0, 0] and self.record.source.format not in LAKE:
                raise SourceError(
                    "no-files",
                    f"{self.record.source.path} has no files, which the topics continue",
                    field=f"streams.{self.record.name}.source.path",
                    remedy="put files there, or register the stream with the topics alone",
                )
            if end is not None:
                append_lines(self.end_path, [json.dumps(end)])
                self._end = end
        return self._end


def continued_feed(record: StreamRecord, past: Past, state: str, namespace: str) -> ContinuedFeed:
    """Make the feed of a stream whose source has a continuation.

    Args:
        past: feed of the source without the continuation.

    Raises:
        StreamError: bad options.
    """
    assert record.source.then is not None
    then = kafka_feed(record.model_copy(update={"source": record.source.then}), namespace)
    start = record.source.then.options["start"]
    id = feed_id(record, ("then", past.id, then.id, start))
    return ContinuedFeed(record, past, then, id, Path(state) / "files" / f"{id}.jsonl")
