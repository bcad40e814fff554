"""Records of queries, and of their runs, in Redis."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from anabranch_contract.protocol.keys import CHANGES_KEPT
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.runs import SEPARATOR, next_run, number_of, query_of, run_name
from anabranch_service.registry.mirror import Mirror
from anabranch_service.registry.records import QueryRecord, name_key
from anabranch_service.registry.redis.base import CHANGED, RedisRecords, Swap
from anabranch_service.registry.redis.reading import lenient, reply, reply_text, strict
from anabranch_service.registry.search import ListedQuery, listed
from anabranch_service.registry.statements import NormalForms

IDEMPOTENCY_SECONDS = 24 * 3600

#: Register runs of queries, all or none. KEYS queries, streams, runs, journal, idempotency; ARGV
#: version of the registry that the runs were checked in, journal entries kept, answer or "", its
#: lifetime (s), and a JSON list with, per record: run, text, query, run that it replaces later or
#: "", streams to register with it ([name, text] pairs). The field "query~" of KEYS[3] is the last
#: run that waited for a cutover. Returns the outcome, and an earlier answer.
_ADD = (
    CHANGED
    + """
if ARGV[3] ~= '' then
  local seen = redis.call('GET', KEYS[5])
  if seen then return {'seen', seen} end
end
if changed(KEYS[4], ARGV[1]) then return {'changed', ''} end
local records, runs, streams = cjson.decode(ARGV[5]), {}, {}
for _, one in ipairs(records) do
  redis.call('HSET', KEYS[1], one.run, one.text)
  if one.replaces ~= '' then
    redis.call('HSETNX', KEYS[3], one.query, one.replaces)
    redis.call('HSET', KEYS[3], one.query .. '~', one.run)
  elseif one.query ~= one.run then
    redis.call('HSET', KEYS[3], one.query, one.run)
  end
  runs[#runs + 1] = one.run
  for _, pair in ipairs(one.made) do
    if redis.call('HSETNX', KEYS[2], pair[1], pair[2]) == 1 then streams[#streams + 1] = pair[1] end
  end
end
if ARGV[3] ~= '' then redis.call('SET', KEYS[5], ARGV[3], 'EX', ARGV[4]) end
local entry = {'queries', cjson.encode(runs)}
if #streams > 0 then entry = {'queries', cjson.encode(runs), 'streams', cjson.encode(streams)} end
redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[2], '*', unpack(entry))
return {'added', ''}
"""
)


@dataclass(frozen=True, slots=True)
class Added:
    """The outcome of a registration.

    Attributes:
        outcome: ``added``, ``changed`` (the registry has changed since the check) or ``seen``
            (``answer`` is kept under the same idempotency key).
    """

    outcome: str
    answer: str


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to register.

    Attributes:
        made: streams to register with the run: queries that it is the first to read.
    """

    record: QueryRecord
    made: Sequence[StreamRecord] = ()

    @property
    def document(self) -> dict[str, object]:
        """The run as an argument of the script."""
        return {
            "run": self.record.id,
            "text": self.record.model_dump_json(),
            "query": query_of(self.record.id),
            "replaces": self.record.replaces,
            "made": [[one.name, one.model_dump_json()] for one in self.made],
        }


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
        keys_of = attrgetter("keys")
        self._queries = Mirror(redis, keys.changes, keys.queries, "queries", read, order, keys_of)
        #: Newest run of each query, with the version of the records that the list comes from.
        self._newest: tuple[int, Sequence[ListedQuery]] = -1, ()

    async def queries(self) -> list[QueryRecord]:
        """Return all runs of all queries in order of registration; logs and leaves out unreadable
        records."""
        return list((await self._queries.all()).values())

    async def indexed_queries(
        self,
    ) -> tuple[list[QueryRecord], Mapping[str, Mapping[str, QueryRecord]]]:
        """Return :meth:`queries`, and the same runs by each of their ``keys``."""
        found, index = await self._queries.indexed()
        return list(found.values()), index

    async def runs_of(self, query: str) -> list[QueryRecord]:
        """Return the runs of a query, oldest first."""
        runs = (await self._queries.indexed())[1].get(name_key(query), {}).values()
        return [run for run in runs if query_of(run.id) == query]

    async def count_queries(self) -> int:
        """Return the number of runs of all queries."""
        return await self._queries.count()

    async def newest_queries(self) -> Sequence[ListedQuery]:
        """Return each query's newest run, with its searchable fields, in order of registration."""
        found = await self._queries.all()
        if self._newest[0] != self._queries.version:
            self._newest = self._queries.version, listed(found.values(), self._newest[1])
        return self._newest[1]

    async def query(self, name: str) -> QueryRecord | None:
        """Return the run with exactly this name or, for a query's name, the newest run that does
        not wait for a cutover; None if there is none."""
        if SEPARATOR in name:
            run = run_name(query_of(name), number_of(name))
        else:
            run = await self._hget(self.runs_key, name) or name
        return await self.run(run)

    async def query_and_next(self, name: str) -> tuple[QueryRecord | None, str]:
        """Return :meth:`query`, and the name for the query's next run. If another run is registered
        meanwhile, the name is taken by that run."""
        last = await self._last_run(name)  # read first: a run registered later has the next name
        record = await self.query(name)
        if last is None:
            return record, name if record is None else next_run(record.id)
        return record, next_run(last)

    async def _last_run(self, query: str) -> str | None:
        """Return the name of the newest run of a query, whether or not its record was removed; None
        if the query never ran, or only its first run exists."""
        fields = (query, query + SEPARATOR)
        names = [name for one in fields if (name := await self._hget(self.runs_key, one))]
        return max(names, key=number_of, default=None)

    async def ended(self) -> dict[str, float]:
        """Map each ended run to the time when its end was first seen, in seconds since 1970."""
        found = await reply(self.redis.hgetall(self.ended_key), dict[str, str])
        return {name: float(at) for name, at in found.items()}

    async def run(self, name: str) -> QueryRecord | None:
        """Return the run with exactly this name, or None."""
        return strict(QueryRecord, name, await self._hget(self.keys.queries, name))

    async def has_query(self, name: str) -> bool:
        """Whether there is a query called ``name``, in any case, live or ended."""
        runs = await reply(self.redis.hkeys(self.keys.queries), list[str])
        return any(query_of(run).lower() == name.lower() for run in runs)

    async def next_sequence(self) -> int:
        """Return a fresh registration number."""
        return await reply(self.redis.incr(self._own("sequence")), int)

    async def kept_answer(self, idempotency_key: str) -> str | None:
        """Return the answer kept under an idempotency key."""
        key = self._own("idempotency", idempotency_key)
        return await reply_text(self.redis.get(key))

    async def add_queries(
        self, runs: Sequence[NewRun], version: str, idempotency_key: str = "", answer: str = ""
    ) -> Added:
        """Register several queries or runs, all or none, if the registry has the ``version`` that
        they were checked in; keep ``answer`` under the idempotency key, if one is given."""
        keys, seen = self.keys, self._own("idempotency", idempotency_key)
        documents = json.dumps([run.document for run in runs])
        outcome, kept = await self._run(
            _ADD,
            [keys.queries, keys.streams, self.runs_key, keys.changes, seen],
            [version, CHANGES_KEPT, answer, IDEMPOTENCY_SECONDS, documents],
        )
        return Added(outcome, kept)

    async def change_queries(
        self,
        decide: Callable[[Sequence[QueryRecord]], Sequence[QueryRecord]],
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Write the changed records that ``decide`` returns for all records, in one transaction: no
        stream or query is registered or changed in between. ``check`` is called first. Both may run
        several times, and may raise."""

        async def attempt(pipe: Pipeline) -> None:
            if check is not None:
                await check()
            changed = decide(await self.queries())
            if changed:
                pipe.multi()  # type: ignore[no-untyped-call]
                for record in changed:
                    pipe.hset(self.keys.queries, record.id, record.model_dump_json())
                self._note(pipe, queries=[record.id for record in changed])

        await self._transact(attempt, self.keys.queries, self.keys.streams)

    async def update_query(
        self, run: str, change: Callable[[QueryRecord], QueryRecord], swap: Swap | None = None
    ) -> QueryRecord | None:
        """Apply ``change`` to the newest version of a run; None if no such run exists.

        ``change`` may run several times, and may raise to leave the record alone. ``swap`` writes
        instead of a plain compare-and-set.
        """
        return await self._update(QueryRecord, self.keys.queries, run, change, swap)

    async def lineage(self) -> dict[str, str]:
        """Map runs of queries to the last lineage event sent for each."""
        return await reply(self.redis.hgetall(self.keys.lineage), dict[str, str])
