"""Server-sent events of a query's results.

While a query has readers, the runtime copies its results to a small Redis Stream, the query's tail
(``protocol.keys.Keys.tail``). Each row has an ordinal, its number among all results of the query.
If the ordinals jump, the reader is sent the number of missed rows. Rows are missed if a batch has
more rows than a tail holds, if the reader is too slow, or if the runtime was down.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

import structlog
from redis.exceptions import RedisError

from anabranch_contract.protocol.keys import (
    LISTENING_SECONDS,
    TAIL_SECONDS,
    Keys,
    entry_numbers,
    read_tail_entry,
    tail_entry,
)
from anabranch_service.errors import Busy
from anabranch_service.registry.lifecycle import LIVE, Status
from anabranch_service.registry.redis.reading import stream_entries
from anabranch_service.registry.store import Store

_LOG = structlog.get_logger(__name__)

#: Maximum number of result streams (tails) that one process serves; each needs a connection to
#: Redis.
MOST_TAILS = 64
#: Maximum number of result streams per access token, so that one client can't lock out the others.
MOST_TAILS_EACH = 16
#: Seconds between two requests for the runtime to keep copying results, without an event before a
#: comment is sent, and of waiting for the last results of an ended query.
RENEW, HEARTBEAT, PATIENCE = 4.0, 10.0, 12.0
#: Maximum wait of one read from Redis in milliseconds, and maximum number of entries per read.
BLOCK, ENTRIES = 1000, 32
#: Greater than the ordinal of any row.
_LAST = 2**63 - 1
#: Request copies of results. KEYS listeners, tail; ARGV query, seconds for request and copies.
_LISTEN = """
local now = tonumber(redis.call('TIME')[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], 'GT', now + tonumber(ARGV[2]), ARGV[1])
redis.call('EXPIRE', KEYS[2], ARGV[3])
return now
"""


class Start(StrEnum):
    """First row to send: the oldest stored result, or the next new result."""

    START = "start"
    NOW = "now"


@dataclass(frozen=True, slots=True)
class TailPosition:
    """Position of a reader: batch and ordinal of the last row that it has received.

    >>> TailPosition.read("7:1200")
    TailPosition(batch=7, ordinal=1200)
    """

    batch: int
    ordinal: int

    @staticmethod
    def read(text: str) -> TailPosition:
        """Parse the position in an event's id."""
        batch, _, ordinal = text.partition(":")
        return TailPosition(int(batch), int(ordinal))

    def __str__(self) -> str:
        """Return the position as an event's id."""
        return f"{self.batch}:{self.ordinal}"


def event(kind: str, data: str, ident: object = "") -> bytes:
    """Serialise an event; ``data`` has no line breaks."""
    head = f"id: {ident}\n" if ident else ""
    return f"{head}event: {kind}\ndata: {data}\n\n".encode()


def comment(text: str) -> bytes:
    """Serialise a comment, which clients ignore; it keeps the connection open."""
    return f": {text}\n\n".encode()


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of results.

    Attributes:
        token: id of the reader's access token; empty without a token.
        is_admitted: returns whether the reader still has access; called every few seconds.
    """

    token: str
    is_admitted: Callable[[], Awaitable[bool]]


class ServedTails:
    """Serves results as events to readers; uses at most half of the process's ``connections``."""

    def __init__(self, store: Store, connections: int) -> None:
        self._store = store
        self._room = connections // 2
        self._open: Counter[str] = Counter()
        self._listen = store.redis.register_script(_LISTEN)

    def follow(
        self,
        name: str,
        start: Start,
        after: TailPosition | None,
        limit: int | None,
        status: Callable[[], Awaitable[Status]],
        reader: Reader,
    ) -> AsyncIterator[bytes]:
        """Return events of a query's results, until ``limit`` rows are sent or the query has ended.

        Args:
            name: the query.
            start: first row to send; ignored if ``after`` is given.
            after: the last row that the reader has received.
            limit: most rows to send; None: no limit.
            status: returns the query's current status.
            reader: the caller; the events end when it loses access.

        Raises:
            Busy: too many readers in this process, or with this token.
        """
        own = self._open[reader.token] if reader.token else 0
        room = min(MOST_TAILS, self._room)
        if self._open.total() >= room or own >= MOST_TAILS_EACH:
            most = MOST_TAILS_EACH if own >= MOST_TAILS_EACH else room
            raise Busy(
                "too-many-tails",
                f"{most} tails are open already",
                remedy="close one, or try again later",
            )
        return self._events(_TailReader(self._store, name, start, after), limit, status, reader)

    async def _events(
        self,
        reader: _TailReader,
        limit: int | None,
        status: Callable[[], Awaitable[Status]],
        who: Reader,
    ) -> AsyncIterator[bytes]:
        self._open[who.token] += 1
        renewed = 0.0
        spoken = begun = time.monotonic()
        sent, over = 0, Status.ACTIVE
        try:
            yield comment(f"results of {reader.name}")
            while True:
                now = time.monotonic()
                try:
                    if now - renewed >= RENEW:
                        renewed = now
                        if not await who.is_admitted():
                            yield event("end", json.dumps({"reason": "unauthorized"}))
                            return
                        await self._renew(reader)
                        over = await status()
                        if await reader.is_reset():
                            yield event("gap", json.dumps({"missed": None}))
                    found = await reader.read()
                except RedisError as cause:
                    _LOG.warning("tail interrupted", query=reader.name, error=repr(cause))
                    yield comment("Redis does not answer")
                    spoken = time.monotonic()
                    await asyncio.sleep(1)
                    continue
                for message, is_row in found:
                    yield message
                    spoken, sent = time.monotonic(), sent + is_row
                    if limit is not None and sent >= limit:
                        yield event("end", json.dumps({"reason": "limit"}))
                        return
                waited = time.monotonic() - begun
                if not found and over not in LIVE and (reader.live or waited > PATIENCE):
                    yield event("end", json.dumps({"reason": over.value}))
                    return
                if time.monotonic() - spoken >= HEARTBEAT:
                    yield comment("nothing new")
                    spoken = time.monotonic()
        finally:
            self._open[who.token] -= 1
            if not self._open[who.token]:
                del self._open[who.token]

    async def _renew(self, reader: _TailReader) -> None:
        keys = self._store.keys
        await self._listen(
            keys=[keys.listeners, keys.tail(reader.name)],
            args=[reader.name, LISTENING_SECONDS, TAIL_SECONDS],
        )


class _TailReader:
    """One reader's position in a query's tail.

    Attributes:
        live: whether the reader has reached the end of the stored results.
    """

    def __init__(self, store: Store, name: str, start: Start, after: TailPosition | None) -> None:
        self.name = name
        self.live = False
        self._redis = store.redis
        self._key = Keys(store.keys.namespace).tail(name)
        self._cursor = "0-0"
        self._batch = -1
        #: Ordinal of the next row; None before a start at "now" has found the end of the tail.
        self._expected: int | None = 0 if start is Start.START else None
        if after is not None:
            # Start after the previous batch: the entry with the last received row may have more.
            self._cursor = tail_entry(after.batch - 1, _LAST)
            self._expected = after.ordinal + 1

    async def read(self) -> list[tuple[bytes, bool]]:
        """Return the next events, each with whether it is a row; empty if none arrives in time."""
        block = BLOCK if self.live or not await self._exists() else None
        answer = await cast(
            "Any", self._redis.xread({self._key: self._cursor}, count=ENTRIES, block=block)
        )
        entries = stream_entries(answer)
        if self._expected is None:
            return await self._skip() if entries else []
        if not entries:
            if block is None:
                return [self._announce()]
            return []
        events: list[tuple[bytes, bool]] = []
        for entry, fields in entries:
            self._cursor = entry
            events += self._take(entry, fields)
        return events

    async def is_reset(self) -> bool:
        """Whether the runtime has restarted the tail; the reader then continues at its start."""
        last = await self._last()
        if last is None or entry_numbers(last[0]) >= entry_numbers(self._cursor):
            return False
        self._cursor, self._expected = "0-0", 0
        return True

    async def _exists(self) -> bool:
        return bool(await cast("Any", self._redis.exists(self._key)))

    async def _last(self) -> tuple[str, dict[str, str]] | None:
        found = await cast("Any", self._redis.xrevrange(self._key, count=1))
        return found[0] if found else None

    async def _skip(self) -> list[tuple[bytes, bool]]:
        """Skip all stored results."""
        last = await self._last()
        if last is None:
            return []
        self._cursor = last[0]
        self._batch, first = read_tail_entry(last[0])
        rows = last[1].get("rows")
        self._expected = first if rows is None else first + rows.count("\n") + 1
        return [self._announce()]

    def _announce(self) -> tuple[bytes, bool]:
        self.live = True
        last = (self._expected or 0) - 1
        ident = TailPosition(self._batch, last) if last >= 0 and self._batch >= 0 else ""
        return event("live", json.dumps({"results": self._expected}), ident), False

    def _take(self, entry: str, fields: dict[str, str]) -> list[tuple[bytes, bool]]:
        batch, first = read_tail_entry(entry)
        self._batch = batch
        rows = fields["rows"].split("\n") if "rows" in fields else []
        events: list[tuple[bytes, bool]] = []
        expected = first if self._expected is None else self._expected
        if first > expected:
            events.append((event("gap", json.dumps({"missed": first - expected})), False))
            expected = first
        for ordinal, row in enumerate(rows, first):
            if ordinal >= expected:
                events.append((event("row", row, TailPosition(batch, ordinal)), True))
        self._expected = max(expected, first + len(rows))
        return events
