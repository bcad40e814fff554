"""Queries and their runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from redis.asyncio import Redis

from anabranch_contract.protocol.keys import CHANGES_KEPT
from anabranch_contract.queries.runs import SEPARATOR, number_of, query_of, run_name
from anabranch_service.registry.mirror import Mirror
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.redis.base import RedisRecords, Swap
from anabranch_service.registry.redis.reading import lenient, reply, reply_text, strict
from anabranch_service.registry.search import ListedQuery, listed
from anabranch_service.registry.statements import NormalForms

IDEMPOTENCY_SECONDS = 24 * 3600

#: Register runs of queries, all or none. KEYS queries, streams, runs, journal, idempotency; ARGV
#: journal entries kept, answer or "", its lifetime (s), number of records, and per record: run,
#: text, query, number of streams, streams. Returns the index of the first failing record, and why.
_ADD = """
local at, count, names = 5, tonumber(ARGV[4]), {}
if ARGV[2] ~= '' then
  local seen = redis.call('GET', KEYS[5])
  if seen then return {0, 'seen', seen} end
end
for n = 0, count - 1 do
  if redis.call('HEXISTS', KEYS[1], ARGV[at]) == 1 then return {n, 'duplicate', ''} end
  local streams = tonumber(ARGV[at + 3])
  for i = at + 4, at + 3 + streams do
    if redis.call('HEXISTS', KEYS[2], ARGV[i]) == 0 then return {n, 'gone', ARGV[i]} end
  end
  at = at + 4 + streams
end
at = 5
for n = 0, count - 1 do
  redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
  if ARGV[at + 2] ~= ARGV[at] then redis.call('HSET', KEYS[3], ARGV[at + 2], ARGV[at]) end
  names[#names + 1] = ARGV[at]
  at = at + 4 + tonumber(ARGV[at + 3])
end
if ARGV[2] ~= '' then redis.call('SET', KEYS[5], ARGV[2], 'EX', ARGV[3]) end
redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[1], '*', 'queries', cjson.encode(names))
return {-1, 'added', ''}
"""


@dataclass(frozen=True, slots=True)
class Added:
    """The outcome of a registration.

    Attributes:
        outcome: ``added``, ``duplicate`` (the run exists already), ``gone`` (the stream ``detail``
            was deleted meanwhile) or ``seen`` (``detail`` is the answer kept under the same
            idempotency key).
    """

    outcome: str
    detail: str


class QueryStore(RedisRecords):
    """Records of queries.

    Attributes:
        forms: normal forms of the queries, cached in this process.
    """

    def __init__(self, redis: Redis, namespace: str) -> None:
        super().__init__(redis, namespace)
        self.forms = NormalForms()
        keys = self.keys
        read, order = partial(lenient, QueryRecord), attrgetter("sequence")
        self._queries = Mirror(redis, keys.changes, keys.queries, "queries", read, order)
        #: Newest run of each query, with the version of the records that the list comes from.
        self._newest: tuple[int, Sequence[ListedQuery]] = -1, ()

    async def queries(self) -> list[QueryRecord]:
        """All runs of all queries in order of registration; unreadable records are logged and left
        out.
        """
        return list((await self._queries.all()).values())

    async def count_queries(self) -> int:
        """Number of runs of all queries."""
        return await self._queries.count()

    async def newest_queries(self) -> Sequence[ListedQuery]:
        """Newest run of each query, with its searchable fields, in order of registration."""
        found = await self._queries.all()
        if self._newest[0] != self._queries.version:
            self._newest = self._queries.version, listed(found.values(), self._newest[1])
        return self._newest[1]

    async def query(self, name: str) -> QueryRecord | None:
        """The newest run of the query ``name``, or the run with that name; None: neither exists."""
        if SEPARATOR in name:
            run = run_name(query_of(name), number_of(name))
        else:
            run = await self._hget(self.runs_key, name) or name
        return await self.run(run)

    async def last_run(self, query: str) -> str | None:
        """Name of the newest run of a query whose record was removed; None: the query never ran, or
        only its first run exists.
        """
        return await self._hget(self.runs_key, query)

    async def ended(self) -> dict[str, float]:
        """Run -> when it was first seen to have ended, in seconds since 1970."""
        found = await reply(self.redis.hgetall(self.ended_key), dict[str, str])
        return {name: float(at) for name, at in found.items()}

    async def run(self, name: str) -> QueryRecord | None:
        """The run with exactly this name, or None."""
        return strict(QueryRecord, name, await self._hget(self.keys.queries, name))

    async def next_sequence(self) -> int:
        """A fresh registration number."""
        return await reply(self.redis.incr(self._own("sequence")), int)

    async def kept_answer(self, idempotency_key: str) -> str | None:
        """The answer kept under an idempotency key."""
        key = self._own("idempotency", idempotency_key)
        return await reply_text(self.redis.get(key))

    async def add_query(
        self, record: QueryRecord, *, idempotency_key: str = "", answer: str = ""
    ) -> Added:
        """Register a query, or a new run of a query; keep ``answer`` under the idempotency key, if
        one is given.
        """
        kept = answer if idempotency_key else ""
        return (await self.add_queries([record], idempotency_key, kept))[1]

    async def add_queries(
        self, records: Sequence[QueryRecord], idempotency_key: str = "", answer: str = ""
    ) -> tuple[int, Added]:
        """Register several queries or runs, all or none. Returns -1 on success, or the index of the
        first record that can't be registered, with the outcome.
        """
        given: list[str | int] = []
        for record in records:
            streams = sorted({a.stream for a in record.normalised.aliases})
            query = query_of(record.id)
            given += [record.id, record.model_dump_json(), query, len(streams), *streams]
        keys, seen = self.keys, self._own("idempotency", idempotency_key)
        at, outcome, detail = await self._run(
            _ADD,
            [keys.queries, keys.streams, self.runs_key, keys.changes, seen],
            [CHANGES_KEPT, answer, IDEMPOTENCY_SECONDS, len(records), *given],
        )
        return int(at), Added(outcome, detail)

    async def update_query(
        self,
        run: str,
        change: Callable[[QueryRecord], QueryRecord],
        swap: Swap | None = None,
    ) -> QueryRecord | None:
        """Apply ``change`` to the newest version of a run; None if no such run exists.

        ``change`` may run several times, and may raise to leave the record alone. ``swap`` writes
        instead of a plain compare-and-set.
        """
        return await self._update(QueryRecord, self.keys.queries, run, change, swap)

    async def lineage(self) -> dict[str, str]:
        """Run of a query -> the last lineage event sent for it."""
        return await reply(self.redis.hgetall(self.keys.lineage), dict[str, str])
