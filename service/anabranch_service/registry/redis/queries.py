"""Records of queries, and of their runs, in Redis."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from anabranch_contract.protocol.keys import CHANGES_KEPT
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.runs import SEPARATOR, next_run, number_of, query_of, run_name
from anabranch_service.registry.mirror import Mirror
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.redis.base import RedisRecords, Swap
from anabranch_service.registry.redis.reading import lenient, reply, reply_text, strict
from anabranch_service.registry.search import ListedQuery, listed
from anabranch_service.registry.statements import NormalForms

IDEMPOTENCY_SECONDS = 24 * 3600

#: Register runs of queries, all or none. KEYS queries, streams, runs, journal, idempotency; ARGV
#: journal entries kept, answer or "", its lifetime (s), and a JSON list with, per record: run,
#: text, query, run that it replaces later or "", streams, streams to register with it ([name,
#: text] pairs), runs that must be neither withdrawn nor paused, users' functions that must be
#: registered, and a run with the text of its record, which must still be there, or null. KEYS[6]:
#: these functions. The field "query~" of KEYS[3] is the last run that waited
#: for a cutover.
#: Returns the index of the first failing record, and why.
_ADD = """
local records, runs, streams = cjson.decode(ARGV[4]), {}, {}
local function going_on(run)
  local text = redis.call('HGET', KEYS[1], run)
  if not text then return false end
  local one = cjson.decode(text)
  return one.removed_at == cjson.null and one.paused_at == cjson.null
end
local function is_query(name)
  local text = redis.call('HGET', KEYS[2], name)
  return text and cjson.decode(text).source.format == 'query'
end
if ARGV[2] ~= '' then
  local seen = redis.call('GET', KEYS[5])
  if seen then return {0, 'seen', seen} end
end
for n, one in ipairs(records) do
  if redis.call('HEXISTS', KEYS[1], one.run) == 1 then return {n - 1, 'duplicate', ''} end
  if redis.call('HEXISTS', KEYS[2], one.query) == 1 then
    return {n - 1, is_query(one.query) and 'read' or 'named', one.query}
  end
  local made = {}
  for _, pair in ipairs(one.made) do
    if redis.call('HEXISTS', KEYS[2], pair[1]) == 1 and not is_query(pair[1]) then
      return {n - 1, 'gone', pair[1]}
    end
    made[pair[1]] = true
  end
  for _, name in ipairs(one.streams) do
    if not made[name] and redis.call('HEXISTS', KEYS[2], name) == 0 then
      return {n - 1, 'gone', name}
    end
  end
  for _, run in ipairs(one.reads) do
    if not going_on(run) then return {n - 1, 'ended', run} end
  end
  if one.since ~= cjson.null and redis.call('HGET', KEYS[1], one.since[1]) ~= one.since[2] then
    return {n - 1, 'changed', one.since[1]}
  end
  for _, name in ipairs(one.functions) do
    if redis.call('HEXISTS', KEYS[6], name) == 0 then return {n - 1, 'uncallable', name} end
  end
end
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
if ARGV[2] ~= '' then redis.call('SET', KEYS[5], ARGV[2], 'EX', ARGV[3]) end
local entry = {'queries', cjson.encode(runs)}
if #streams > 0 then entry = {'queries', cjson.encode(runs), 'streams', cjson.encode(streams)} end
redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[1], '*', unpack(entry))
return {-1, 'added', ''}
"""


@dataclass(frozen=True, slots=True)
class Added:
    """The outcome of a registration.

    Attributes:
        outcome: ``added``, ``duplicate`` (the run exists already), ``gone`` (the stream ``detail``
            was deleted meanwhile), ``ended`` (the run ``detail``, which it reads, was withdrawn
            meanwhile), ``read`` (an earlier run of the query is still read), ``named`` (a stream
            has the query's name), ``uncallable`` (function ``detail`` was deleted), ``changed``
            (the record of run ``detail`` has another text) or ``seen`` (``detail`` is the answer
            kept under the same idempotency key).
    """

    outcome: str
    detail: str


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to register.

    Attributes:
        made: queries that it is the first to read, as streams to register with it.
        reads: the runs of the queries that it reads; none may be withdrawn or paused.
        since: run with the text of its record (:meth:`QueryStore.run_and_text`), which must not
            change before the registration.
    """

    record: QueryRecord
    made: Sequence[StreamRecord] = ()
    reads: Sequence[str] = ()
    since: tuple[str, str] | None = None

    @property
    def document(self) -> dict[str, object]:
        """The run as an argument of the script."""
        return {
            "run": self.record.id,
            "text": self.record.model_dump_json(),
            "query": query_of(self.record.id),
            "replaces": self.record.replaces,
            "streams": sorted({a.stream for a in self.record.normalised.aliases}),
            "made": [[one.name, one.model_dump_json()] for one in self.made],
            "reads": list(self.reads),
            "functions": sorted(self.record.functions),
            "since": self.since,
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
        self._queries = Mirror(redis, keys.changes, keys.queries, "queries", read, order)
        #: Newest run of each query, with the version of the records that the list comes from.
        self._newest: tuple[int, Sequence[ListedQuery]] = -1, ()

    async def queries(self) -> list[QueryRecord]:
        """All runs of all queries in order of registration; logs and leaves out unreadable
        records."""
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
        """The run that a query's name denotes, its newest one that does not wait for a cutover, or
        the run of that name; None without one.
        """
        if SEPARATOR in name:
            run = run_name(query_of(name), number_of(name))
        else:
            run = await self._hget(self.runs_key, name) or name
        return await self.run(run)

    async def query_and_next(self, name: str) -> tuple[QueryRecord | None, str]:
        """:meth:`query` with the name of the query's next run. If another run is registered
        meanwhile, the name is that of the other run.
        """
        last = await self._last_run(name)  # read first: a run registered later has the next name
        record = await self.query(name)
        if last is None:
            return record, name if record is None else next_run(record.id)
        return record, next_run(last)

    async def _last_run(self, query: str) -> str | None:
        """Name of the newest run of a query, whether or not its record was removed; None if the
        query never ran, or only its first run exists.
        """
        fields = (query, query + SEPARATOR)
        names = [name for one in fields if (name := await self._hget(self.runs_key, one))]
        return max(names, key=number_of, default=None)

    async def ended(self) -> dict[str, float]:
        """Run -> when it was first seen to have ended, in seconds since 1970."""
        found = await reply(self.redis.hgetall(self.ended_key), dict[str, str])
        return {name: float(at) for name, at in found.items()}

    async def run(self, name: str) -> QueryRecord | None:
        """The run with exactly this name, or None."""
        return strict(QueryRecord, name, await self._hget(self.keys.queries, name))

    async def run_and_text(self, name: str) -> tuple[QueryRecord | None, str]:
        """The run with exactly this name, or None, and the text of its record."""
        text = await self._hget(self.keys.queries, name)
        return strict(QueryRecord, name, text), text or ""

    async def has_query(self, name: str) -> bool:
        """Whether there is a query called ``name``, in any case, live or ended."""
        runs = await reply(self.redis.hkeys(self.keys.queries), list[str])
        return any(query_of(run).lower() == name.lower() for run in runs)

    async def next_sequence(self) -> int:
        """A fresh registration number."""
        return await reply(self.redis.incr(self._own("sequence")), int)

    async def kept_answer(self, idempotency_key: str) -> str | None:
        """The answer kept under an idempotency key."""
        key = self._own("idempotency", idempotency_key)
        return await reply_text(self.redis.get(key))

    async def add_queries(
        self, runs: Sequence[NewRun], idempotency_key: str = "", answer: str = ""
    ) -> tuple[int, Added]:
        """Register several queries or runs, all or none; keep ``answer`` under the idempotency key,
        if one is given. Returns -1 on success, or the index of the first run that can't be
        registered, with the outcome.
        """
        keys, seen = self.keys, self._own("idempotency", idempotency_key)
        documents = json.dumps([run.document for run in runs])
        at, outcome, detail = await self._run(
            _ADD,
            [keys.queries, keys.streams, self.runs_key, keys.changes, seen, self.functions_key],
            [CHANGES_KEPT, answer, IDEMPOTENCY_SECONDS, documents],
        )
        return int(at), Added(outcome, detail)

    async def change_queries(
        self, decide: Callable[[Sequence[QueryRecord]], Sequence[QueryRecord]]
    ) -> None:
        """Write the changed records that ``decide`` makes of all records, in one transaction: no
        query is registered or changed in between. ``decide`` may run several times, and may raise.
        """

        async def attempt(pipe: Pipeline) -> None:
            changed = decide(await self.queries())
            if changed:
                pipe.multi()  # type: ignore[no-untyped-call]
                for record in changed:
                    pipe.hset(self.keys.queries, record.id, record.model_dump_json())
                self._note(pipe, queries=[record.id for record in changed])

        await self._transact(attempt, self.keys.queries)

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
