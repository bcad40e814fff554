"""Streams in Redis. A change of a stream can change the queries that read it, atomically."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import ResponseError

from anabranch_contract.protocol.keys import CHANGES_KEPT
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import Stream
from anabranch_service.errors import Conflict
from anabranch_service.registry.mirror import Mirror
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.redis.base import CHANGED
from anabranch_service.registry.redis.queries import IDEMPOTENCY_SECONDS, QueryStore
from anabranch_service.registry.redis.reading import lenient, reply, strict
from anabranch_service.registry.statements import usable_streams

#: Function from all streams and all queries to the changed records of queries.
Follow = Callable[[dict[str, StreamRecord], list[QueryRecord]], Awaitable[list[QueryRecord]]]

#: Register a stream. KEYS streams, journal; ARGV name, record, journal entries kept, version of the
#: registry that it was checked in. Returns whether it was registered.
_ADD_STREAM = (
    CHANGED
    + """
if changed(KEYS[2], ARGV[4]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], '*', 'streams', cjson.encode({ARGV[1]}))
return 1
"""
)

#: Append entries, unless an idempotency key says that they were. KEYS stream, idempotency; ARGV
#: digest of the request or "", its lifetime (s), and per entry: number of its fields and values,
#: and these. Returns the digest of the earlier request, or "". An error appends nothing.
_PUSH = """
local seen = ARGV[1] ~= '' and redis.call('GET', KEYS[2])
if seen then return seen end
local at = 3
while at <= #ARGV do
  local last = at + tonumber(ARGV[at])
  redis.call('XADD', KEYS[1], '*', unpack(ARGV, at + 1, last))
  at = last + 1
end
if ARGV[1] ~= '' then redis.call('SET', KEYS[2], ARGV[1], 'EX', ARGV[2]) end
return ''
"""


class StreamStore(QueryStore):
    """Records of streams."""

    def __init__(self, redis: Redis, namespace: str) -> None:
        super().__init__(redis, namespace)
        keys = self.keys
        read = partial(lenient, StreamRecord)
        self._streams = Mirror(redis, keys.changes, keys.streams, "streams", read)
        #: Streams in the planner's form, with the version of the records that they come from.
        self._usable: tuple[int, Mapping[str, Stream]] = -1, {}

    async def streams(self) -> dict[str, StreamRecord]:
        """Return all streams by name, sorted; unreadable records are logged and left out."""
        return dict(sorted((await self._streams.all()).items()))

    async def usable_streams(self) -> Mapping[str, Stream]:
        """Return all streams in the planner's form, by name, without invalid ones."""
        records = await self._streams.all()
        if self._usable[0] != self._streams.version:
            found = usable_streams(record for _, record in sorted(records.items()))
            self._usable = self._streams.version, MappingProxyType(found)
        return self._usable[1]

    async def has_streams(self) -> bool:
        """Whether any stream is registered."""
        return await reply(self.redis.hlen(self.keys.streams), int) > 0

    async def stream(self, name: str) -> StreamRecord | None:
        """Return one stream, or None."""
        return strict(StreamRecord, name, await self._hget(self.keys.streams, name))

    async def add_stream(self, record: StreamRecord, version: str) -> bool:
        """Register a stream, checked in ``version`` of the registry; False if that has changed."""
        keys = [self.keys.streams, self.keys.changes]
        arguments = [record.name, record.model_dump_json(), CHANGES_KEPT, version]
        return bool(await self._run(_ADD_STREAM, keys, arguments))

    async def update_stream(
        self, name: str, change: Callable[[StreamRecord], StreamRecord]
    ) -> StreamRecord | None:
        """Apply ``change`` to the newest version of a stream; None if there is none.

        ``change`` may run several times, and may raise to leave the record alone.
        """
        return await self._update(StreamRecord, self.keys.streams, name, change)

    async def update_stream_and_readers(
        self, name: str, change: Callable[[StreamRecord], StreamRecord], follow: Follow
    ) -> StreamRecord | None:
        """Apply ``change`` to a stream, and ``follow`` to its queries; None if no such stream.

        ``follow`` gets all streams after the change and all queries, and returns the changed
        queries. Both functions may run several times, and may raise to abort. All is one
        transaction: no query is registered or changed in between.
        """

        async def attempt(pipe: Pipeline) -> StreamRecord | None:
            record = await self.stream(name)
            changed = None if record is None else change(record)
            if changed is None or changed == record:
                return record
            queries = await follow({**await self.streams(), name: changed}, await self.queries())
            pipe.multi()  # type: ignore[no-untyped-call]
            pipe.hset(self.keys.streams, name, changed.model_dump_json())
            for query in queries:
                pipe.hset(self.keys.queries, query.id, query.model_dump_json())
            self._note(pipe, streams=[name], queries=[q.id for q in queries])
            return changed

        return await self._transact(attempt, self.keys.streams, self.keys.queries)

    async def delete_stream(
        self,
        name: str,
        users: Callable[[list[QueryRecord]], list[str]],
        check: Callable[[StreamRecord], None],
    ) -> list[str] | None:
        """Delete a stream, unless ``check`` raises or ``users`` returns queries that need it.
        Returns these queries; None if there is no such stream.

        The checks and the deletion are one transaction.
        """

        async def attempt(pipe: Pipeline) -> list[str] | None:
            record = await self.stream(name)
            if record is None:
                return None
            check(record)
            blocking = users(await self.queries())
            if not blocking:
                pipe.multi()  # type: ignore[no-untyped-call]
                pipe.hdel(self.keys.streams, name)
                self._note(pipe, streams=[name])
            return blocking

        return await self._transact(attempt, self.keys.streams, self.keys.queries)

    async def push(
        self, key: str, entries: list[dict[str, Any]], idempotency_key: str = "", digest: str = ""
    ) -> str:
        """Append entries to a Redis Stream atomically. If an earlier request with the same
        idempotency key has appended its rows, append nothing, and return that request's digest;
        else return "". ``digest``: digest of this request, to store with the key.

        Raises:
            Conflict: the key holds another type of value.
        """
        seen = self._own("idempotency", "rows", idempotency_key)
        flat = ([2 * len(e), *chain.from_iterable(e.items())] for e in entries)
        arguments = [digest, IDEMPOTENCY_SECONDS, *chain.from_iterable(flat)]
        try:
            return str(await self._run(_PUSH, [key, seen], arguments))
        except ResponseError as cause:
            if "WRONGTYPE" not in str(cause):
                raise
            raise Conflict(
                "not-a-redis-stream",
                f"the key {key!r} in Redis holds no Redis Stream",
                field="source.options.keys",
                remedy="register the stream with another key, or rename what is there",
            ) from None
