"""The registry in Redis: reads validate, writes are atomic.

Every change of a record is a compare-and-set, every registration one script: several service
processes on one namespace can't lose each other's writes. What only one of them writes is in
:mod:`.publication`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any, TypeVar, cast

import structlog
from pydantic import BaseModel, ValidationError
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import ResponseError, WatchError

from anabranch_contract import codec
from anabranch_contract.errors import RulesetError
from anabranch_contract.packed import unpack
from anabranch_contract.plans import patches
from anabranch_contract.plans.rations import RationSchedule
from anabranch_contract.plans.ruleset import RulesetId, digest, renumbered
from anabranch_contract.protocol.activations import Activation, ViewRows
from anabranch_contract.protocol.batches import BatchReport
from anabranch_contract.protocol.intake import SourceState, SourceStatus
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.keys import CHANGES_KEPT, Keys
from anabranch_contract.protocol.measurements import Snapshot, StreamSample
from anabranch_contract.protocol.progress import Boundary, Heartbeat, Progress
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.protocol.revisions import RevisionAnswer
from anabranch_contract.protocol.state_report import StateReport, StoreParts
from anabranch_contract.queries.joins import Stream
from anabranch_contract.queries.runs import SEPARATOR, number_of, query_of, run_name
from anabranch_contract.rest.planning.epochs import KeptSummary
from anabranch_contract.rest.planning.settings import PlanningSettings
from anabranch_service.errors import Conflict, CorruptRecord
from anabranch_service.registry.mirror import Mirror
from anabranch_service.registry.publishing.approvals import (
    APPROVE,
    REFUSE,
    Approvals,
    HeldPlan,
    Refusals,
)
from anabranch_service.registry.publishing.history import HistoryPoint
from anabranch_service.registry.records import (
    EpochRecord,
    Explanation,
    KeptRevision,
    PlanDetails,
    QueryRecord,
)
from anabranch_service.registry.search import Listed, listed
from anabranch_service.registry.source_status import Sources
from anabranch_service.registry.statements import NormalForms, usable_streams

_T = TypeVar("_T")
_R = TypeVar("_R", bound=BaseModel)

#: All streams and all queries -> the queries that are to be changed.
Follow = Callable[[dict[str, StreamRecord], list[QueryRecord]], Awaitable[list[QueryRecord]]]
#: Hash, field, old and new text -> whether the field had the old text, and has the new one.
Swap = Callable[[str, str, str, str], Awaitable[bool]]

IDEMPOTENCY_SECONDS = 24 * 3600

_LOG = structlog.get_logger(__name__)

#: KEYS queries, streams, idempotency, runs, changes; ARGV run, record, answer or "", seconds,
#: query, changes kept, stream names...
_ADD_QUERY = """
if ARGV[3] ~= '' then
  local seen = redis.call('GET', KEYS[3])
  if seen then return {'seen', seen} end
end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return {'duplicate', ''} end
for i = 7, #ARGV do
  if redis.call('HEXISTS', KEYS[2], ARGV[i]) == 0 then return {'gone', ARGV[i]} end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if ARGV[5] ~= ARGV[1] then redis.call('HSET', KEYS[4], ARGV[5], ARGV[1]) end
if ARGV[3] ~= '' then redis.call('SET', KEYS[3], ARGV[3], 'EX', ARGV[4]) end
redis.call('XADD', KEYS[5], 'MAXLEN', '~', ARGV[6], '*', 'queries', cjson.encode({ARGV[1]}))
return {'added', ''}
"""

#: KEYS queries, streams, runs, changes; ARGV changes kept, how many records follow, and of each its
#: run, text, query, how many streams follow, and these. All of them, or none: then the number of
#: the first (from 0) that can't be, and why.
_ADD_QUERIES = """
local at, count, names = 3, tonumber(ARGV[2]), {}
for n = 0, count - 1 do
  if redis.call('HEXISTS', KEYS[1], ARGV[at]) == 1 then return {n, 'duplicate', ''} end
  local streams = tonumber(ARGV[at + 3])
  for i = at + 4, at + 3 + streams do
    if redis.call('HEXISTS', KEYS[2], ARGV[i]) == 0 then return {n, 'gone', ARGV[i]} end
  end
  at = at + 4 + streams
end
at = 3
for n = 0, count - 1 do
  redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
  if ARGV[at + 2] ~= ARGV[at] then redis.call('HSET', KEYS[3], ARGV[at + 2], ARGV[at]) end
  names[#names + 1] = ARGV[at]
  at = at + 4 + tonumber(ARGV[at + 3])
end
redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[1], '*', 'queries', cjson.encode(names))
return {-1, 'added', ''}
"""

#: KEYS hash, changes; ARGV field, old value, new value, what the changes call the hash, changes
#: kept.
_SWAP = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[5], '*', ARGV[4], cjson.encode({ARGV[1]}))
return 1
"""

#: KEYS streams, changes; ARGV name, record, changes kept.
_ADD_STREAM = """
if redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], '*', 'streams', cjson.encode({ARGV[1]}))
return 1
"""


@dataclass(frozen=True, slots=True)
class Added:
    """The outcome of a registration.

    Attributes:
        outcome: ``added``, ``duplicate`` (there is such a run), ``gone`` (the stream ``detail`` was
            deleted meanwhile) or ``seen`` (``detail`` is the answer kept under the same
            idempotency key).
    """

    outcome: str
    detail: str


@dataclass(frozen=True, slots=True)
class Misfit:
    """A key of the registry that holds another type of value than it must."""

    key: str
    wanted: str
    found: str


class Store:
    """All the service's state, under one namespace.

    Attributes:
        forms: the normal forms of its queries, kept in this process.
    """

    def __init__(self, redis: Redis, namespace: str) -> None:
        self.redis = redis
        self.keys = Keys(namespace)
        self.forms = NormalForms()
        #: Hash -> field -> its text and value, as last read by :meth:`_all`.
        self._known: dict[str, dict[str, tuple[str, Any]]] = {}
        #: The schedule of rations as it was read last: its text, and what that says.
        self._rations: tuple[str | None, RationSchedule | None] = None, None
        self._add_query = redis.register_script(_ADD_QUERY)
        self._add_queries = redis.register_script(_ADD_QUERIES)
        self._add_stream = redis.register_script(_ADD_STREAM)
        self._swap = redis.register_script(_SWAP)
        self._approve = redis.register_script(APPROVE)
        self._refuse = redis.register_script(REFUSE)
        keys = self.keys
        self._streams = self._mirror(StreamRecord, keys.changes, keys.streams, "streams")
        self._queries = self._mirror(
            QueryRecord, keys.changes, keys.queries, "queries", attrgetter("sequence")
        )
        self._activations = self._mirror(
            Activation, keys.activation_changes, keys.activations, "activations"
        )
        #: The version of the streams that are in the planner's form, and these.
        self._usable: tuple[int, Mapping[str, Stream]] = -1, {}
        #: The version of the queries with these newest runs.
        self._newest: tuple[int, Sequence[Listed]] = -1, ()

    def _mirror(
        self,
        kind: type[_T],
        journal: str,
        key: str,
        name: str,
        order: Callable[[_T], int] | None = None,
    ) -> Mirror[_T]:
        def read(record: str, text: str) -> _T | None:
            return _lenient(kind, record, text)

        return Mirror(self.redis, journal, key, name, read, order)

    def _own(self, *parts: str) -> str:
        """A key that only the service uses."""
        return ":".join((self.keys.namespace, *parts))

    async def ping(self) -> None:
        """Raise unless Redis answers."""
        await _answer(self.redis.ping(), bool)

    async def misfits(self) -> list[Misfit]:
        """The keys of the registry whose values are of another type than they must be."""
        keys = self.keys
        wanted = {
            **dict.fromkeys((keys.streams, keys.queries, keys.activations), "hash"),
            **dict.fromkeys((keys.samples, keys.views, keys.state_parts), "hash"),
            **dict.fromkeys((keys.tokens, keys.token_uses, self.runs_key), "hash"),
            **dict.fromkeys((keys.leader, keys.lineage, keys.approval), "hash"),
            **dict.fromkeys((keys.settings, keys.cursor, keys.runtime, keys.state), "string"),
            **dict.fromkeys((keys.heartbeat, keys.lease, self._own("sequence")), "string"),
            **dict.fromkeys((keys.published, keys.listeners), "zset"),
            keys.boundaries: "list",
        }
        async with self.redis.pipeline(transaction=False) as pipe:
            for key in wanted:
                pipe.type(key)
            found = cast("list[str]", await pipe.execute())
        pairs = zip(wanted.items(), found, strict=True)
        return [Misfit(k, want, kind) for (k, want), kind in pairs if kind not in (want, "none")]

    # --- streams -------------------------------------------------------------------------------

    async def streams(self) -> dict[str, StreamRecord]:
        """All streams by name, sorted; unreadable records are logged and left out."""
        return dict(sorted((await self._streams.all()).items()))

    async def usable_streams(self) -> Mapping[str, Stream]:
        """The planner's form of the streams that it can use (:func:`usable_streams`), by name."""
        records = await self._streams.all()
        if self._usable[0] != self._streams.version:
            found = usable_streams(record for _, record in sorted(records.items()))
            self._usable = self._streams.version, MappingProxyType(found)
        return self._usable[1]

    async def has_streams(self) -> bool:
        """Whether a stream is registered."""
        return await _answer(self.redis.hlen(self.keys.streams), int) > 0

    async def stream(self, name: str) -> StreamRecord | None:
        """One stream, or None."""
        return _strict(StreamRecord, name, await self._hget(self.keys.streams, name))

    async def add_stream(self, record: StreamRecord) -> bool:
        """Register a stream; False if the name is taken."""
        keys = [self.keys.streams, self.keys.changes]
        arguments: list[str | int] = [record.name, record.model_dump_json(), CHANGES_KEPT]
        return bool(await self._add_stream(keys=keys, args=arguments))

    async def update_stream(
        self, name: str, change: Callable[[StreamRecord], StreamRecord]
    ) -> StreamRecord | None:
        """Apply ``change`` to the newest version of a stream; None if there is none.

        ``change`` may run several times, and may raise to leave the record alone.
        """
        return await self._update(StreamRecord, self.keys.streams, name, change)

    async def update_stream_and_readers(
        self,
        name: str,
        change: Callable[[StreamRecord], StreamRecord],
        follow: Follow,
    ) -> StreamRecord | None:
        """Apply ``change`` to a stream, and to queries what follows; None if there is no stream.

        ``follow`` is given all streams as they are to be and all queries, and returns the queries
        that change with them. Both may run several times, and may raise to leave everything alone.
        All is one transaction: no query is registered or changed in between.
        """
        async with self.redis.pipeline() as pipe:
            while True:
                await pipe.watch(self.keys.streams, self.keys.queries)
                record = await self.stream(name)
                if record is None:
                    return None
                changed = change(record)
                if changed == record:
                    return record
                queries = await follow(
                    {**await self.streams(), name: changed}, await self.queries()
                )
                pipe.multi()  # type: ignore[no-untyped-call]
                pipe.hset(self.keys.streams, name, changed.model_dump_json())
                for query in queries:
                    pipe.hset(self.keys.queries, query.id, query.model_dump_json())
                self._note(pipe, streams=[name], queries=[q.id for q in queries])
                try:
                    await pipe.execute()
                except WatchError:
                    continue
                return changed

    async def delete_stream(
        self,
        name: str,
        users: Callable[[list[QueryRecord]], list[str]],
        check: Callable[[StreamRecord], None],
    ) -> list[str]:
        """Delete a stream unless ``users`` names queries that need it (which are returned), or
        ``check`` raises.

        The checks and the deletion are one transaction.
        """
        async with self.redis.pipeline() as pipe:
            while True:
                await pipe.watch(self.keys.streams, self.keys.queries)
                record = await self.stream(name)
                if record is None:
                    return []
                check(record)
                blocking = users(await self.queries())
                if blocking:
                    return blocking
                pipe.multi()  # type: ignore[no-untyped-call]
                pipe.hdel(self.keys.streams, name)
                self._note(pipe, streams=[name])
                try:
                    await pipe.execute()
                except WatchError:
                    continue
                return []

    # --- queries -------------------------------------------------------------------------------

    async def queries(self) -> list[QueryRecord]:
        """All runs of all queries in order of registration; unreadable records are logged and left
        out.
        """
        return list((await self._queries.all()).values())

    async def count_queries(self) -> int:
        """How many runs of queries there are."""
        return await self._queries.count()

    async def newest_queries(self) -> Sequence[Listed]:
        """Of every query its newest run, in order of registration, with what it is found by."""
        found = await self._queries.all()
        if self._newest[0] != self._queries.version:
            self._newest = self._queries.version, listed(found.values(), self._newest[1])
        return self._newest[1]

    async def query(self, name: str) -> QueryRecord | None:
        """The newest run of the query ``name``, or the run of this name; None: there is none."""
        if SEPARATOR in name:
            run = run_name(query_of(name), number_of(name))
        else:
            run = await self._hget(self.runs_key, name) or name
        return await self.run(run)

    async def last_run(self, query: str) -> str | None:
        """The name of the newest run that a query without a record has had; None: it has had none,
        or is not forgotten.
        """
        return await self._hget(self.runs_key, query)

    async def ended(self) -> dict[str, float]:
        """Run -> when it was first seen to have ended, in seconds since 1970."""
        found = await cast("Any", self.redis.hgetall(self.ended_key))
        return {name: float(at) for name, at in found.items()}

    @property
    def ended_key(self) -> str:
        """A hash: run -> when it was first seen to have ended."""
        return self._own("ended")

    @property
    def runs_key(self) -> str:
        """A hash: query -> its newest run, where that is not its first or has been forgotten."""
        return self._own("runs")

    async def run(self, name: str) -> QueryRecord | None:
        """The run of this very name, or None."""
        return _strict(QueryRecord, name, await self._hget(self.keys.queries, name))

    async def next_sequence(self) -> int:
        """A fresh registration number."""
        return await _answer(self.redis.incr(self._own("sequence")), int)

    async def kept_answer(self, idempotency_key: str) -> str | None:
        """The answer kept under an idempotency key."""
        key = self._own("idempotency", idempotency_key)
        return await _text(self.redis.get(key))

    async def add_query(
        self, record: QueryRecord, *, idempotency_key: str = "", answer: str = ""
    ) -> Added:
        """Register a query, or a run of one which is its newest then, and keep ``answer`` under the
        idempotency key (if one is given).
        """
        streams = sorted({a.stream for a in record.normalised.aliases})
        result = await self._add_query(
            keys=[
                self.keys.queries,
                self.keys.streams,
                self._own("idempotency", idempotency_key),
                self.runs_key,
                self.keys.changes,
            ],
            args=[
                record.id,
                record.model_dump_json(),
                answer if idempotency_key else "",
                IDEMPOTENCY_SECONDS,
                query_of(record.id),
                CHANGES_KEPT,
                *streams,
            ],
        )
        outcome, detail = cast("list[str]", result)
        return Added(outcome, detail)

    async def add_queries(self, records: Sequence[QueryRecord]) -> tuple[int, Added]:
        """Register several queries or runs, all or none: then the first that can't be, and why; -1
        where they have been.
        """
        given: list[str | int] = []
        for record in records:
            streams = sorted({a.stream for a in record.normalised.aliases})
            query = query_of(record.id)
            given += [record.id, record.model_dump_json(), query, len(streams), *streams]
        keys = self.keys
        at, outcome, detail = await self._add_queries(
            keys=[keys.queries, keys.streams, self.runs_key, keys.changes],
            args=[CHANGES_KEPT, len(records), *given],
        )
        return int(at), Added(outcome, detail)

    async def update_query(
        self,
        run: str,
        change: Callable[[QueryRecord], QueryRecord],
        swap: Swap | None = None,
    ) -> QueryRecord | None:
        """Apply ``change`` to the newest version of a run; None if there is none.

        ``change`` may run several times, and may raise to leave the record alone. ``swap`` writes
        instead of a plain compare-and-set.
        """
        return await self._update(QueryRecord, self.keys.queries, run, change, swap)

    # --- settings ------------------------------------------------------------------------------

    async def planning(self) -> PlanningSettings | None:
        """The planning settings that were put over REST, if any."""
        text = await _text(self.redis.get(self._own("settings")))
        return _strict(PlanningSettings, "settings", text)

    async def update_planning(
        self, change: Callable[[PlanningSettings | None], PlanningSettings]
    ) -> PlanningSettings:
        """Apply ``change`` to the newest planning settings; None stands for the defaults.

        ``change`` may run several times, and may raise to leave them alone.
        """
        key = self._own("settings")
        async with self.redis.pipeline() as pipe:
            while True:
                await pipe.watch(key)
                changed = change(await self.planning())
                pipe.multi()  # type: ignore[no-untyped-call]
                pipe.set(key, changed.model_dump_json())
                self._note(pipe, settings=[])
                try:
                    await pipe.execute()
                except WatchError:
                    continue
                return changed

    # --- approval ------------------------------------------------------------------------------

    async def approvals(self) -> Approvals:
        """The held plan and decisions on it; an unreadable one is logged and counts as none."""
        names = ["held", "approved", "refused"]
        texts = await _answer(self.redis.hmget(self.keys.approval, names), list[str | None])
        held, approved, refused = (text or "" for text in texts)
        return Approvals(
            held=_lenient(HeldPlan, "held plan", held) if held else None,
            text=held,
            approved=approved,
            refused=_lenient(Refusals, "refused plans", refused) if refused else None,
        )

    async def held_plan(self) -> tuple[EpochRecord, str] | None:
        """The plan that is held, as it would be published: its record and its ruleset; None: there
        is none (or it can't be read).
        """
        names = ["record", "ruleset"]
        texts = await _answer(self.redis.hmget(self.keys.approval, names), list[str | None])
        record, ruleset = texts
        found = None if record is None else _lenient(EpochRecord, "held plan", record)
        return None if found is None or ruleset is None else (found, ruleset)

    async def approve(self, held: HeldPlan) -> bool:
        """Approve ``held``; False if it is not the plan that is held any more."""
        return bool(await self._approve(keys=[self.keys.approval], args=[held.digest]))

    async def refuse(self, seen: Approvals, held: HeldPlan) -> bool:
        """Refuse ``held``; False if it is not the plan that waits any more."""
        after = Refusals.after(seen.refused, held).model_dump_json()
        return bool(await self._refuse(keys=[self.keys.approval], args=[held.digest, after]))

    # --- epochs --------------------------------------------------------------------------------

    async def published(self) -> list[int]:
        """Published epoch numbers, ascending."""
        raw = await _answer(self.redis.zrange(self.keys.published, 0, -1), list[str])
        return [int(n) for n in raw]

    async def epoch(self, number: int) -> EpochRecord | None:
        """One published epoch's record, with its explanation if there is one, or None."""
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.get(self.keys.epoch(number))
            pipe.hget(self.explanations_key, str(number))
            pipe.get(self.details_key(number))
            text, later, details = map(_unpacked, await pipe.execute())
        record = _strict(EpochRecord, str(number), text)
        if record is None:
            return None
        if details is not None:
            found = _lenient(PlanDetails, f"details of {number}", details)
            record = record if found is None else record.with_details(found)
        explanation = None
        if later is not None:
            explanation = _lenient(Explanation, f"explanation of {number}", later)
        return record if explanation is None else record.with_explanation(explanation)

    async def explanation(self, number: int) -> Explanation | None:
        """The explanation of an epoch made after its publication, or None."""
        text = _unpacked(await _text(self.redis.hget(self.explanations_key, str(number))))
        return None if text is None else _lenient(Explanation, f"explanation of {number}", text)

    def details_key(self, number: int) -> str:
        """The long part of an epoch's record."""
        return self._own("plans", str(number))

    async def newest_epoch(self, before: int | None = None) -> EpochRecord | None:
        """The record of the newest epoch (published ``before`` another), or None."""
        numbers = [n for n in await self.published() if before is None or n < before]
        return await self.epoch(numbers[-1]) if numbers else None

    async def summaries(self, numbers: list[int]) -> list[tuple[KeptSummary, int]]:
        """Several epochs' summaries in the order of ``numbers``, each with the number of revisions;
        unreadable ones are left out.
        """
        if not numbers:
            return []
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.hmget(self.summaries_key, [str(n) for n in numbers])
            for n in numbers:
                pipe.hlen(self.revisions_key(n))
            texts, *revised = await pipe.execute()
        found = []
        for number, text, revisions in zip(numbers, texts, revised, strict=True):
            summary = None if text is None else _lenient(KeptSummary, str(number), text)
            if summary is not None:
                found.append((summary, int(revisions)))
        return found

    async def epoch_bytes(self) -> dict[int, int]:
        """Epoch -> what its record and rulesets take in Redis."""
        found = await _answer(self.redis.hgetall(self.epoch_bytes_key), dict[str, str])
        return {int(number): int(size) for number, size in found.items()}

    async def statistics_bytes(self, first: int, last: int) -> dict[int, int]:
        """Epoch -> what its statistics take in Redis, from ``first`` to before ``last``."""
        epochs = range(first, last)
        async with self.redis.pipeline(transaction=False) as pipe:
            for epoch in epochs:
                pipe.strlen(self.keys.statistics(epoch))
            return dict(zip(epochs, map(int, await pipe.execute()), strict=True))

    @property
    def epoch_bytes_key(self) -> str:
        """Hash: epoch -> bytes."""
        return self._own("epochs", "bytes")

    @property
    def explanations_key(self) -> str:
        """Hash: epoch -> its explanation made after its publication."""
        return self._own("epochs", "explanations")

    @property
    def summaries_key(self) -> str:
        """Hash: epoch -> its entry in lists."""
        return self._own("epochs", "summaries")

    async def ruleset(self, name: int | RulesetId) -> str | None:
        """The wire text of one epoch's ruleset, or of a revision of it; None: there is none, or it
        is a patch that can't be applied.
        """
        text = _unpacked(await _text(self.redis.get(self.keys.ruleset(name))))
        if text is not None and patches.is_patch(text):
            text = await self._patched(name, text)
        epoch = name if isinstance(name, int) else name.epoch
        # Where nothing had changed it is a copy of an earlier epoch's.
        return None if text is None else renumbered(text, epoch)

    async def _patched(self, name: int | RulesetId, text: str) -> str | None:
        """The whole ruleset of the patch ``text``, published under ``name``."""
        try:
            patch = patches.loads(text)
            base = _unpacked(await _text(self.redis.get(self.keys.ruleset(patch.base))))
            base = renumbered(base or "", patch.base.epoch)
            try:
                return await asyncio.to_thread(patches.applied, base, patch)
            except RulesetError as cause:
                _LOG.warning("a patch can't be applied", ruleset=str(name), reason=cause.message)
                newest = _unpacked(await _text(self.redis.get(self.keys.newest_ruleset)))
                if newest is None or digest(newest) != patch.digest:
                    raise
                return newest
        except RulesetError as cause:
            _LOG.error("a ruleset can't be read", ruleset=str(name), reason=str(cause))
            return None

    async def bases(self) -> dict[int, int]:
        """Epochs whose rulesets are patches -> the epochs of their bases."""
        found = await _answer(self.redis.hgetall(self.bases_key), dict[str, str])
        return {int(number): int(base) for number, base in found.items()}

    @property
    def bases_key(self) -> str:
        """Hash: epoch whose ruleset is a patch -> epoch of the patch's base."""
        return self._own("epochs", "bases")

    async def answer(self) -> RevisionAnswer | None:
        """The newest answer to interim measurements, or None."""
        return await _one(RevisionAnswer, "revision", self.redis.get(self.keys.revision))

    async def revisions(self, epoch: int) -> list[KeptRevision]:
        """The revisions of an epoch's ruleset, oldest first; unreadable ones are left out."""
        texts = await _answer(self.redis.hgetall(self.revisions_key(epoch)), dict[str, str])
        read = (_lenient(KeptRevision, f"revision {epoch}.{n}", t) for n, t in texts.items())
        return sorted((r for r in read if r is not None), key=lambda r: r.revision)

    async def revision_numbers(self, epoch: int) -> list[int]:
        """The numbers of the revisions of an epoch's ruleset."""
        return [int(n) for n in await _answer(self.redis.hkeys(self.revisions_key(epoch)), list)]

    def revisions_key(self, epoch: int) -> str:
        """Hash: number -> record of a revision."""
        return self._own("revisions", str(epoch))

    async def lineage(self) -> dict[str, str]:
        """Run of a query -> the last event about it that was sent."""
        return await _answer(self.redis.hgetall(self.keys.lineage), dict[str, str])

    # --- what the runtime writes ---------------------------------------------------------------

    async def cursor(self) -> int:
        """How many of the boundaries that are kept have been answered."""
        text = await _text(self.redis.get(self.keys.cursor))
        return int(text or 0)

    async def boundary_text(self, index: int) -> str | None:
        """The boundary at ``index`` (negative: from the end), as text, or None."""
        return await _text(self.redis.lindex(self.keys.boundaries, index))

    async def last_snapshot(self) -> Snapshot | None:
        """The newest statistics that the runtime reported, if any can be read."""
        text = await self.boundary_text(-1)
        if text is None:
            return None
        try:
            return read_snapshot(read_boundary(text))
        except CorruptRecord:
            return None

    async def statistics(self, epoch: int) -> Snapshot | None:
        """The measurements of an epoch, or None if it has not ended (or they can't be read)."""
        text = _unpacked(await _text(self.redis.get(self.keys.statistics(epoch))))
        return None if text is None else _lenient(Snapshot, f"statistics {epoch}", text)

    async def interim_text(self, index: int) -> str | None:
        """The measurements of the period at ``index`` (from the end: negative), as text."""
        return _unpacked(await _text(self.redis.lindex(self.keys.interims, index)))

    async def interims(self, last: int) -> list[Interim]:
        """The measurements of the newest ``last`` periods, oldest first.

        A period that can't be read (another release's) is left out, which is logged.
        """
        texts = await self.interim_texts(last)
        found = (_lenient(Interim, "interim measurements", text) for text in texts)
        return [one for one in found if one is not None]

    async def batches(self, last: int) -> list[BatchReport]:
        """The reports of the newest ``last`` batches, oldest first; unreadable ones left out."""
        texts = await _answer(self.redis.lrange(self.keys.batches, -last, -1), list[str])
        found = (_lenient(BatchReport, "report of a batch", text) for text in texts)
        return [one for one in found if one is not None]

    async def history(self, last: int) -> list[HistoryPoint]:
        """The newest ``last`` points of history, oldest first; unreadable ones left out."""
        texts = await _answer(self.redis.lrange(self.keys.history, -last, -1), list[str])
        points: list[HistoryPoint] = []
        for text in texts:
            with suppress(ValidationError):
                points.append(HistoryPoint.model_validate_json(text))
        return points

    async def interim_texts(self, last: int) -> tuple[str, ...]:
        """The documents of :meth:`interims`."""
        kept = await _answer(self.redis.lrange(self.keys.interims, -last, -1), list[str])
        return tuple(text for text in map(_unpacked, kept) if text is not None)

    async def statistics_texts(self, epochs: Iterable[int]) -> tuple[str, ...]:
        """The documents of :meth:`statistics` of those ``epochs`` that have any."""
        keys = [self.keys.statistics(epoch) for epoch in epochs if epoch >= 0]
        kept = await _answer(self.redis.mget(keys), list[str | None]) if keys else []
        return tuple(text for text in map(_unpacked, kept) if text is not None)

    async def samples(self) -> dict[str, StreamSample]:
        """Stream -> its newest sample."""
        return await self._all(StreamSample, self.keys.samples, "sample ")

    async def sample(self, stream: str) -> StreamSample | None:
        """The newest sample of one stream."""
        return await self._field(StreamSample, self.keys.samples, stream, "sample ")

    async def progress(self) -> Progress | None:
        """The progress of the runtime, or None if it never started (or it can't be read)."""
        return await _one(Progress, "runtime", self.redis.get(self.keys.runtime))

    async def rations(self) -> RationSchedule | None:
        """The schedule of rations; None: there is none (or it can't be read)."""
        text = await _text(self.redis.get(self.keys.rations))
        # For thousands of goals reading it takes long, and every answer about queries needs it.
        if text != self._rations[0]:
            found = None if text is None else _lenient(RationSchedule, "rations", text)
            self._rations = text, found
        return self._rations[1]

    async def sources(self) -> Sources:
        """The state of the streams' sources, as the runtime reports it.

        One that was opened and can't be read on counts as failed: a stream that is held before a
        bad file, or whose server does not answer.
        """
        reported = await self._all(SourceStatus, self.keys.sources, "source ")
        progress = await self.progress()
        for name, intake in ({} if progress is None else progress.intake).items():
            known = reported.get(name)
            if intake.error and known is not None and known.state is SourceState.READING:
                reported[name] = replace(known, state=SourceState.FAILED, error=intake.error)
        heartbeat = await self.heartbeat()
        return Sources(reported, heartbeat is not None and heartbeat.state != "starting")

    async def heartbeat(self) -> Heartbeat | None:
        """The runtime's heartbeat; None if there was none lately."""
        return await _one(Heartbeat, "heartbeat", self.redis.get(self.keys.heartbeat))

    async def state(self) -> StateReport | None:
        """The contents of the stores, or None before the runtime's first report."""
        return await _one(StateReport, "state", self.redis.get(self.keys.state))

    async def state_parts(self, store: str) -> StoreParts | None:
        """One store's segments and readers, or None before the runtime's first report of them."""
        return await self._field(StoreParts, self.keys.state_parts, store, "parts of ")

    async def activations(self) -> Mapping[str, Activation]:
        """Query -> its activation by the runtime."""
        return await self._activations.all()

    async def activation(self, name: str) -> Activation | None:
        """The activation of one query."""
        return await self._field(Activation, self.keys.activations, name)

    async def view_rows(self, name: str) -> ViewRows | None:
        """The rows of one view, as last reported."""
        return await self._field(ViewRows, self.keys.views, name)

    async def push(self, key: str, entries: list[dict[Any, Any]]) -> None:
        """Append entries to a Redis Stream, all at once.

        Raises:
            Conflict: the key holds something else.
        """
        try:
            async with self.redis.pipeline(transaction=True) as pipe:
                for entry in entries:
                    pipe.xadd(key, entry)
                await pipe.execute()
        except ResponseError as cause:
            if "WRONGTYPE" not in str(cause):
                raise
            raise Conflict(
                "not-a-redis-stream",
                f"the key {key!r} in Redis holds no Redis Stream",
                field="source.options.keys",
                remedy="register the stream with another key, or rename what is there",
            ) from None

    async def _update(
        self,
        kind: type[_R],
        key: str,
        name: str,
        change: Callable[[_R], _R],
        swap: Swap | None = None,
    ) -> _R | None:
        """Apply ``change`` to a record of the hash ``key``, again where somebody else was first."""
        swap = swap or self._compare_and_set
        while True:
            old = await self._hget(key, name)
            record = _strict(kind, name, old)
            if record is None or old is None:
                return None
            changed = change(record)
            if changed == record:
                return record
            if await swap(key, name, old, changed.model_dump_json()):
                return changed

    async def _compare_and_set(self, key: str, field: str, old: str, new: str) -> bool:
        arguments: list[str | int] = [field, old, new, self.kind_of(key), CHANGES_KEPT]
        return bool(await self._swap(keys=[key, self.keys.changes], args=arguments))

    def kind_of(self, key: str) -> str:
        """The name of the hash ``key`` in the journal of changes."""
        return "streams" if key == self.keys.streams else "queries"

    def _note(self, pipe: Pipeline, **changed: list[str]) -> None:
        """Add to the changes of the registry, in a transaction: kind -> names."""
        entry = {kind: json.dumps(names) for kind, names in changed.items()}
        pipe.xadd(self.keys.changes, cast("Any", entry), maxlen=CHANGES_KEPT)

    async def _all(self, kind: type[_T], key: str, prefix: str = "") -> dict[str, _T]:
        """The fields of a hash; unreadable ones are logged (after ``prefix``) and left out."""
        raw = await _answer(self.redis.hgetall(key), dict[str, str])
        before, found = self._known.get(key, {}), {}
        for name, text in raw.items():
            # A text that was read before is not read again: values are immutable.
            known, value = before.get(name, ("", None))
            value = value if known == text else _lenient(kind, prefix + name, text)
            if value is not None:
                found[name] = text, value
        self._known[key] = found
        return {name: value for name, (_, value) in found.items()}

    async def _field(self, kind: type[_T], key: str, name: str, prefix: str = "") -> _T | None:
        """One field of a hash as a record; None if missing or unreadable."""
        return await _one(kind, prefix + name, self.redis.hget(key, name))

    async def _hget(self, key: str, field: str) -> str | None:
        return await _text(self.redis.hget(key, field))


def read_boundary(text: str) -> Boundary:
    """The boundary in ``text``.

    Raises:
        CorruptRecord: it is none.
    """
    return _checked(Boundary, "boundary", text)


def read_snapshot(boundary: Boundary) -> Snapshot | None:
    """The statistics that came with ``boundary``, if any.

    Raises:
        CorruptRecord: they can't be read.
    """
    if boundary.snapshot is None:
        return None
    try:
        return codec.loads(boundary.snapshot, Snapshot)
    except codec.Malformed as cause:
        raise _corrupt(f"statistics of epoch {boundary.epoch}", cause) from cause


async def _answer(response: Awaitable[Any] | Any, kind: type[_T]) -> _T:
    """Await a redis-py answer, whose declared type covers the synchronous client as well."""
    return cast("_T", await response)


async def _text(response: Awaitable[Any] | Any) -> str | None:
    """Await an answer that is text or nothing."""
    return cast("str | None", await response)


async def _one(kind: type[_T], name: str, response: Awaitable[Any] | Any) -> _T | None:
    """Await a value; None where there is none, or it can't be read, which is logged."""
    text = await _text(response)
    return None if text is None else _lenient(kind, name, text)


def _unpacked(text: str | None) -> str | None:
    """A text that may be kept compressed; one that is damaged is left as it is, and refused."""
    try:
        return None if text is None else unpack(text)
    except ValueError:
        return text


def _checked(kind: type[_T], name: str, text: str) -> _T:
    try:
        if issubclass(kind, BaseModel):
            return kind.model_validate_json(text)
        return codec.loads(text, kind)
    except (ValidationError, codec.Malformed) as cause:
        raise _corrupt(name, cause) from cause


def _strict(kind: type[_R], name: str, text: str | None) -> _R | None:
    return None if text is None else _checked(kind, name, text)


def _lenient(kind: type[_T], name: str, text: str) -> _T | None:
    """Return what :func:`_checked` reads, or None: one bad record must not hide the others."""
    try:
        return _checked(kind, name, text)
    except CorruptRecord as cause:
        _LOG.error("unreadable record", record=name, reason=cause.message)
        return None


def _corrupt(name: str, cause: ValidationError | codec.Malformed) -> CorruptRecord:
    reason = str(cause)
    if isinstance(cause, ValidationError):
        first = cause.errors(include_url=False, include_context=False, include_input=False)[0]
        reason = f"{'.'.join(map(str, first['loc'])) or 'document'}: {first['msg']}"
    return CorruptRecord(
        "corrupt-record",
        f"the record {name!r} in Redis can't be read: {reason}",
        remedy="something else wrote to this namespace, or a newer version did",
    )
