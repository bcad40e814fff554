"""Redis Streams as a feed: the Redis Streams under one or more keys (partitions) form one stream.

The offset has, per key: the id of the last entry read; that entry's *ordinal*, the number of
entries ever added up to it; the *base*, the ordinal before the first entry read; and the
*generation*, the number of times that the key's Redis Stream was replaced by another. The server
counts the entries that it adds, so a difference reveals entries removed unread:

* After entry ``n`` of ``N`` ever added, ``N - n`` must be unread. Trimming removes the oldest
  entries, so unread entries are lost if fewer than ``N - n`` entries are left.
* Entries deleted one by one are detected when the ordinal at the last entry is too small.

A planned batch is read by exact ranges of ids, each with its expected number of entries. If a range
has fewer, reading it raises an error with the number of lost entries: the stream stops before the
range, or (``on_loss``) skips them, and the batch records their number.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import redis
from redis.exceptions import RedisError, ResponseError

from anabranch_contract.connectors.sources import (
    OnLoss,
    RedisStreamOptions,
    SourcePayload,
    StreamStart,
    redis_stream_options,
)
from anabranch_contract.protocol.keys import entry_numbers
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_runtime.errors import EntriesLost, SourceError
from anabranch_runtime.sources.decode import from_arrow, from_json, schema_of
from anabranch_runtime.sources.feed import EntryFeed, Piece, PieceError, Waiting, feed_id
from anabranch_runtime.sources.invalid import Decoded, unreadable
from anabranch_runtime.sources.loads import Load
from anabranch_runtime.sources.permitted import revealed
from anabranch_runtime.sources.redis_scripts import CUT, LOOK, READ

#: A range of ids that begins after another range: last id, number of entries, number of rows.
Cut = tuple[str, int, int]


#: Number of entries that one call reads: few enough not to block other clients for long.
ENTRIES = 4096
#: Maximum number of a key's entries that form one piece, since dividing so few gains nothing.
WHOLE = 512
#: Seconds for which a task retries if the server doesn't answer, while the batch waits for it.
PATIENCE = 2.0
#: Timeouts in seconds: of :data:`LOOK`, and of reading entries.
LOOKING, READING = 5.0, 30.0
#: Approximate number of ranges into which a batch's input from one key is divided for the tasks.
CUTS = 16
_NOTHING = "0-0"
_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """Read position in one key's Redis Stream (fields: see the module docstring)."""

    last: str = _NOTHING
    ordinal: int = 0
    base: int = 0
    generation: int = 0

    def to_json(self) -> list[Any]:
        """Return the position as JSON: a list of the constructor's arguments."""
        return [self.last, self.ordinal, self.base, self.generation]


@dataclass(frozen=True, slots=True)
class Look:
    """State of one key's Redis Stream: result of the script :data:`LOOK`."""

    added: int
    length: int
    newest: str
    deleted: str
    last: str
    first_unread: str
    rows: int
    now: int


def settle(
    key: str, look: Look, position: StreamPosition | None, on_loss: OnLoss
) -> StreamPosition:
    """Return the key's position to continue from: behind lost entries if ``on_loss`` is to skip.

    If ``position`` is None, the key has never been read, and reading starts at its first entry.

    Raises:
        SourceError: entries were removed unread, or another Redis Stream has replaced the one read.
    """
    if look.added < 0:
        raise SourceError(
            "old-server",
            "the server does not count the entries of a stream",
            field=key,
            remedy="use Redis 7 or Valkey",
        )
    if position is None:
        first = look.added - look.length
        return StreamPosition(_NOTHING, first, first)
    if look.added < position.ordinal or entry_numbers(look.newest) < entry_numbers(position.last):
        if on_loss is OnLoss.STOP:
            raise SourceError(
                "stream-replaced",
                f"the Redis Stream has had {look.added} entries, but {position.ordinal} were "
                "read: it was deleted, or its server lost it",
                field=key,
                remedy="restore the Redis Stream, or set the source's option on_loss to skip to "
                "read the new one from its beginning",
            )
        first = look.added - look.length
        return StreamPosition(_NOTHING, first, first, position.generation + 1)
    lost = look.added - position.ordinal - look.length
    if lost <= 0:
        return position
    if on_loss is OnLoss.STOP:
        raise _gone(key, lost)
    return replace(position, ordinal=position.ordinal + lost)


def _not_beyond(
    look: Look, position: StreamPosition, end: StreamPosition
) -> tuple[Look, StreamPosition]:
    """Return ``look`` and ``position`` as if the key had no entries after ``end``."""
    if position.generation != end.generation or look.added <= end.ordinal:
        return look, position
    return replace(look, added=max(end.ordinal, position.ordinal), last=end.last), position


@dataclass(slots=True)
class RedisFeed(EntryFeed):
    """A stream that is read from Redis Streams."""

    NUMBER = 1
    record: StreamRecord
    options: RedisStreamOptions
    url: str
    keys: tuple[str, ...]
    id: str
    #: Key -> rows per entry, as of the last look.
    _density: dict[str, float] = field(default_factory=dict)
    #: Key -> last planned range (id before it, last id), and the cuts into which it is divided.
    _cuts: dict[str, tuple[str, str, list[Cut]]] = field(default_factory=dict)

    def begin(self) -> Any:
        """Return the streams' present end if reading is to start with new entries; else None."""
        if self.options.start is StreamStart.EARLIEST:
            return None
        looks = {key: self._look(key, _NOTHING) for key in self.keys}
        return {k: StreamPosition(v.newest, v.added, v.added).to_json() for k, v in looks.items()}

    def waiting(self, offset: Any) -> Waiting:
        """Return the number of unread rows of the keys, estimated from recent entries."""
        rows, oldest = 0.0, 0.0
        for key in self.keys:
            look, position = self._settled(key, offset)
            unread = look.added - position.ordinal
            if unread > 0:
                rows += unread * self._density.setdefault(key, float(look.rows))
            if look.first_unread != _NOTHING:
                oldest = max(oldest, (look.now - entry_numbers(look.first_unread)[0]) / 1e3)
        return Waiting(round(rows), max(oldest, 0.0))

    def load_end(self, offset: Any, load: Load) -> Any:
        """Return the offset after the last entry that each key has now."""
        end = {}
        for key in self.keys:
            look, position = self._settled(key, offset)
            if look.added > position.ordinal:
                position = replace(position, last=look.last, ordinal=look.added)
            end[key] = position.to_json()
        return end

    def has_reached(self, offset: Any, end: Any) -> bool:
        """Whether each key has been read up to ``end``, or its stream was replaced since."""
        pairs = ((StreamPosition(*offset[k]), StreamPosition(*at)) for k, at in end.items())
        return all(a.generation > b.generation or a.ordinal >= b.ordinal for a, b in pairs)

    def advance(self, offset: Any, rows: int, end: Any = None) -> Any:
        """Move the offset on by ``rows`` rows; keys share these in proportion to unread rows."""
        settled = {key: self._settled(key, offset) for key in self.keys}
        for key, at in (end or {}).items():
            settled[key] = _not_beyond(*settled[key], StreamPosition(*at))
        weights = {
            key: (look.added - position.ordinal) * self._density.get(key, float(look.rows))
            for key, (look, position) in settled.items()
        }
        total = sum(weights.values())
        after = {}
        for key, (look, position) in settled.items():
            if look.added > position.ordinal:
                most = max(int(rows * weights[key] / total), 1)
                position = self._advance(key, look, position, most)
            after[key] = position.to_json()
        return after

    def _advance(self, key: str, look: Look, position: StreamPosition, most: int) -> StreamPosition:
        unread = look.added - position.ordinal
        untouched = entry_numbers(look.deleted) <= entry_numbers(position.last)
        if self.options.payload is SourcePayload.FIELDS and unread <= most and untouched:
            return replace(position, last=look.last, ordinal=look.added)
        expected = min(unread * self._density.get(key, float(look.rows)), most)
        cuts = self._cut(key, position.last, look.last, most, max(round(expected / CUTS), 1))
        entries, last = sum(c[1] for c in cuts), cuts[-1][0] if cuts else look.last
        if entries:
            self._density[key] = sum(c[2] for c in cuts) / entries
        self._cuts[key] = (position.last, last, cuts)
        if last == look.last and entries < unread:
            if self.options.on_loss is OnLoss.STOP:
                raise _gone(key, unread - entries)
            entries = unread
        return replace(position, last=last, ordinal=position.ordinal + entries)

    def pieces(self, start: Any, end: Any, parts: int) -> list[Piece]:
        """Return pieces: ranges of a key's ids, each with its expected number of entries."""
        found = []
        for key, document in end.items():
            upto = StreamPosition(*document)
            before = StreamPosition(*start[key]) if start and key in start else None
            if before is not None and before.generation != upto.generation:
                found.append(self._replaced(key, before))
                before = None
            if before is None:
                # A key that had not been read before begins at its base.
                before = StreamPosition(_NOTHING, upto.base, upto.base, upto.generation)
            count = upto.ordinal - before.ordinal
            if count > 0:
                found += self._pieces(key, before, upto.last, count, parts)
        return found

    def _pieces(
        self, key: str, before: StreamPosition, upto: str, count: int, parts: int
    ) -> list[Piece]:
        planned = self._cuts.pop(key, None)
        if planned is not None and planned[:2] == (before.last, upto):
            cuts = planned[2]
        else:
            # The batch was planned before a restart, or its entries were not divided then.
            try:
                cuts = self._cut(key, before.last, upto, -1, max(count // CUTS, 1))
            except SourceError:
                cuts = []
        held = sum(c[1] for c in cuts)
        if held != count:
            # Without cuts, the task that reads the entries finds the error.
            return [self._piece(key, before, upto, count, sum(c[2] for c in cuts))]
        found = []
        size = sum(c[2] for c in cuts) / parts if held > WHOLE or self._is_arrow else _ALL
        entries = rows = 0
        for last, more, longer in cuts:
            entries, rows = entries + more, rows + longer
            if rows >= size or last == cuts[-1][0]:
                found.append(self._piece(key, before, last, entries, rows))
                before = replace(before, last=last, ordinal=before.ordinal + entries)
                entries, rows = 0, 0
        return found

    def _replaced(self, key: str, before: StreamPosition) -> Piece:
        """Return the piece for the unread entries of a Redis Stream that no longer exists."""
        gone = PieceError("stream-replaced", "the Redis Stream was deleted or its server lost it")
        return replace(self._piece(key, before, "", 0, 0), gone=gone, last=None)

    @property
    def _is_arrow(self) -> bool:
        return self.options.payload is SourcePayload.ARROW

    def _piece(self, key: str, before: StreamPosition, upto: str, entries: int, rows: int) -> Piece:
        where = {
            "url": self.url,
            "key": key,
            "after": before.last,
            "upto": upto,
            "entries": entries,
            "payload": self.options.payload,
            "field": self.options.field,
            "envelope": self.record.envelope,
        }
        columns = tuple((c.name, c.type) for c in self.record.columns)
        return Piece(
            "redis",
            self.record.name,
            columns,
            rows,
            where,
            feed=self.id,
            source=key,
            unit="entries",
            first=before.last,
            last=upto,
            before=before.to_json(),
        )

    def _settled(self, key: str, offset: Any) -> tuple[Look, StreamPosition]:
        known = StreamPosition(*offset[key]) if offset and key in offset else None
        look = self._look(key, known.last if known else _NOTHING)
        return look, settle(key, look, known, self.options.on_loss)

    def _look(self, key: str, after: str) -> Look:
        added, length, newest, deleted, last, first, rows, now = self._run(LOOK, key, after)
        newest, deleted, last, first = (i.decode() for i in (newest, deleted, last, first))
        return Look(added, length, newest, deleted, last, first, rows, int(now))

    def _cut(self, key: str, after: str, upto: str, most: int, step: int) -> list[Cut]:
        """Divide a key's entries after ``after`` into consecutive ranges (cuts)."""
        counted = 0 if self.options.payload is SourcePayload.FIELDS else 1
        cuts = self._run(CUT, key, after, upto, most, step, counted)
        return [(last.decode(), entries, rows) for last, entries, rows in cuts]

    def _run(self, script: str, key: str, *arguments: object) -> Any:
        try:
            return _script(self.url, script, LOOKING)(keys=[key], args=list(arguments))
        except RedisError as cause:
            raise _unreadable(key, self.url, cause) from cause


def redis_feed(record: StreamRecord, url: str, key: str) -> RedisFeed:
    """Make the feed of a ``redis-stream`` source; ``url`` and ``key`` are the defaults.

    Raises:
        StreamError: bad options.
    """
    options = redis_stream_options(record.source.options)
    at, keys = options.url or url, options.keys or (key,)
    # The feed's id omits the address of the default server (the pipeline's own), which may move.
    made_of = ("redis-stream", options.url, keys)
    return RedisFeed(record, options, at, keys, feed_id(record, made_of))


def read_entries(piece: Piece) -> Iterator[Decoded]:
    """Yield the rows of a range of a Redis Stream's ids.

    Raises:
        EntriesLost: entries of the range are lost; all others have been yielded.
        SourceError: the server does not answer.
    """
    where = piece.where
    key, after, upto = where["key"], where["after"], where["upto"]
    payload = SourcePayload(where["payload"])
    names = [n for n, _ in piece.columns] if payload is SourcePayload.FIELDS else [where["field"]]
    schema = schema_of(piece.columns)
    read = 0
    while after != upto:
        entries, last, missing, found = _patiently(
            where["url"], key, [after, upto, ENTRIES, payload.value, *names]
        )
        if not entries:
            break
        read, after = read + entries, last.decode()
        if missing:
            yield unreadable(schema, pa.array(missing, pa.binary()))
        for text in found:
            if payload is SourcePayload.ARROW:
                yield from from_arrow(text, piece.columns, piece.optional)
            else:
                as_text, envelope = payload is SourcePayload.FIELDS, where["envelope"]
                yield from from_json(text, piece.columns, text=as_text, envelope=envelope)
    if read < where["entries"]:
        raise _gone(key, where["entries"] - read)


def _patiently(url: str, key: str, arguments: list[Any]) -> Any:
    """Run the script :data:`READ`; retry for a while if the server does not answer."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return _script(url, READ, READING)(keys=[key], args=arguments)
        except RedisError as cause:
            if isinstance(cause, ResponseError) or time.monotonic() > deadline:
                raise _unreadable(key, url, cause) from cause
            time.sleep(0.2)


@lru_cache(maxsize=64)
def _script(url: str, source: str, seconds: float) -> Any:
    return _server(url, seconds).register_script(source)


@lru_cache(maxsize=16)
def _server(url: str, seconds: float) -> redis.Redis:
    # The address may have a reference to a secret, which only the reading process resolves.
    return redis.Redis.from_url(
        revealed(url), socket_timeout=seconds, socket_connect_timeout=LOOKING
    )


def _gone(key: str, count: int) -> EntriesLost:
    return EntriesLost(
        "entries-lost",
        f"{count} entries were removed from the Redis Stream before they were read",
        field=key,
        remedy="let the Redis Stream keep more (MAXLEN); to go on without the entries, set "
        "the source's option on_loss"
        " to skip",
        count=count,
    )


def _unreadable(key: str, url: str, cause: RedisError) -> SourceError:
    # The server's address without user and password.
    server = url.rpartition("@")[2].removeprefix("redis://")
    wrong = isinstance(cause, ResponseError)
    return SourceError(
        "bad-stream" if wrong else "no-server",
        f"Redis at {server}: {cause}",
        field=key,
        remedy="name a key that holds a stream" if wrong else "check that the server runs",
    )
