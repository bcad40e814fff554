"""The leader's writes to Redis: epochs, held plans, revisions, schedules of rations, records.

Each write is one script that the leader alone may run (:mod:`.lease`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import structlog

from anabranch_contract.packed import pack
from anabranch_contract.plans.rations import RationSchedule
from anabranch_contract.plans.ruleset import RulesetId, digest
from anabranch_contract.protocol.keys import CHANGES_KEPT
from anabranch_contract.protocol.revisions import RevisionAnswer
from anabranch_contract.queries.runs import query_of
from anabranch_contract.rest.queries import ProblemRecord
from anabranch_service.registry.publishing.approvals import HOLD, Approvals, HeldPlan
from anabranch_service.registry.publishing.history import KEPT, HistoryPoint
from anabranch_service.registry.publishing.lease import LeaderTerm, fenced, run_fenced
from anabranch_service.registry.records import EpochRecord, Explanation, KeptRevision, QueryRecord
from anabranch_service.registry.store import Store

#: Run several Redis commands atomically. KEYS leader, then the key of each command; ARGV owner,
#: token, then per command: name, number of arguments, arguments. Returns the replies (nil as "").
_COMMANDS = fenced("""
local answers, at = {}, 3
for i = 2, #KEYS do
  local count = tonumber(ARGV[at + 1])
  local answer = redis.call(ARGV[at], KEYS[i], unpack(ARGV, at + 2, at + 1 + count))
  answers[#answers + 1] = answer or ''
  at = at + 2 + count
end
return answers
""")

#: Compare-and-set of a record. KEYS leader, hash, journal; ARGV owner, token, field, old value, new
#: value, the journal's name for the hash, journal entries kept. With KEYS[4], the hash of runs, the
#: record becomes the run of the query ARGV[8] in place of the run ARGV[10]; -1: its run is another
#: one. ARGV[9]: 1 if the change requires no plan, else 0.
_SWAP = fenced("""
if KEYS[4] and (redis.call('HGET', KEYS[4], ARGV[8]) or ARGV[8]) ~= ARGV[10] then return -1 end
if redis.call('HGET', KEYS[2], ARGV[3]) ~= ARGV[4] then return 0 end
redis.call('HSET', KEYS[2], ARGV[3], ARGV[5])
if KEYS[4] then redis.call('HSET', KEYS[4], ARGV[8], ARGV[3]) end
local note = {ARGV[6], cjson.encode({ARGV[3]})}
if ARGV[9] == '1' then note = {note[1], note[2], 'planned', '1'} end
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[7], '*', unpack(note))
return 1
""")

#: Move the cursor past an epoch boundary. KEYS leader, cursor, boundaries; ARGV owner, token, the
#: boundary. It is kept until the cursor moves again, since it has the newest statistics.
_ADVANCE = fenced("""
local at = tonumber(redis.call('GET', KEYS[2]) or '0')
if redis.call('LINDEX', KEYS[3], at) ~= ARGV[3] then return 0 end
redis.call('LTRIM', KEYS[3], at, -1)
redis.call('SET', KEYS[2], 1)
return 1
""")

_HOLD = fenced(HOLD)

#: Skip all boundaries before the newest. KEYS leader, cursor, boundaries; ARGV owner, token, the
#: newest boundary. Returns the number of skipped ones; the last of them stays in the list.
_PASS_OVER = fenced("""
local length, at = redis.call('LLEN', KEYS[3]), tonumber(redis.call('GET', KEYS[2]) or '0')
if redis.call('LINDEX', KEYS[3], -1) ~= ARGV[3] or length - at < 2 then return 0 end
redis.call('LTRIM', KEYS[3], -2, -1)
redis.call('SET', KEYS[2], 1)
return length - at - 1
""")

#: Publish an epoch with copies of an earlier one's ruleset and details. KEYS leader, ruleset and
#: copy, details and copy, record, summaries, bytes, published, bases; ARGV owner, token, epoch,
#: record, summary, bytes of both, the earlier epoch.
_AGAIN = fenced("""
if redis.call('EXISTS', KEYS[2], KEYS[4]) ~= 2 then return 0 end
if redis.call('COPY', KEYS[2], KEYS[3]) ~= 1 then return 0 end
redis.call('COPY', KEYS[4], KEYS[5], 'REPLACE')
redis.call('SET', KEYS[6], ARGV[4])
redis.call('HSET', KEYS[7], ARGV[3], ARGV[5])
local size = redis.call('STRLEN', KEYS[3]) + redis.call('STRLEN', KEYS[5]) + tonumber(ARGV[6])
redis.call('HSET', KEYS[8], ARGV[3], size)
redis.call('ZADD', KEYS[9], ARGV[3], ARGV[3])
local base = redis.call('HGET', KEYS[10], ARGV[7])
if base then redis.call('HSET', KEYS[10], ARGV[3], base) end
return 1
""")

_LOG = structlog.get_logger(__name__)

#: Number of newest epochs kept whatever their size: a roll-back of the state needs some of them.
LEAST_EPOCHS = 16


@dataclass(frozen=True, slots=True)
class Patched:
    """A ruleset in the form of a patch of an earlier one, its base.

    Attributes:
        base: epoch of the base. ``check``: digest of the base's stored form.
        text: the patch, compressed.
    """

    base: int
    check: str
    text: str


@dataclass(frozen=True, slots=True)
class Sealed:
    """Stored form of an epoch.

    Attributes:
        record: the record without details (plan, decisions). ``text``: the same as JSON text.
        summary: JSON text of the epoch's entry in lists.
        ruleset, details: compressed ruleset and details; empty if equal to an earlier epoch's.
        patch: stored in place of the ruleset; None: the whole ruleset is stored.
    """

    record: EpochRecord
    text: str
    summary: str
    ruleset: str = ""
    details: str = ""
    patch: Patched | None = None

    @property
    def rejected(self) -> Mapping[str, ProblemRecord]:
        """Queries that the planner rejected -> the reason."""
        return self.record.rejected

    def rejecting(self, others: Mapping[str, ProblemRecord]) -> Sealed:
        """Return a copy that also rejects the queries ``others``."""
        rejected = {**others, **self.record.rejected}
        record = self.record.model_copy(update={"rejected": rejected})
        return replace(self, record=record, text=record.model_dump_json())

    @property
    def rules(self) -> str:
        """Stored form of the ruleset: the patch, or the whole compressed ruleset."""
        return self.ruleset if self.patch is None else self.patch.text

    @property
    def size(self) -> int:
        """Number of characters of this epoch's own stored parts."""
        return len(self.text) + len(self.rules) + len(self.details)


def seal(record: EpochRecord, ruleset: str) -> Sealed:
    """Return the stored form of the epoch of ``record`` with the text ``ruleset``."""
    light = record.without_details()
    return Sealed(
        light,
        light.model_dump_json(),
        record.summary().model_dump_json(),
        pack(ruleset),
        pack(record.details().model_dump_json()),
    )


def seal_again(record: EpochRecord) -> Sealed:
    """Return the stored form of an epoch with the plan and rules of an earlier epoch."""
    return Sealed(record, record.model_dump_json(), record.summary().model_dump_json())


class _Overtaken(Exception):
    """Raised if the query has another run by now than the one to be replaced."""


#: A Redis command: its name, its key, its other arguments.
_Command = tuple[str, str, tuple[Any, ...]]


class Publication:
    """The leader's writes in one term; each raises :class:`LeadershipLost` after the term's end.

    Each term has its own object: decisions on data read in one term are never written in another.
    """

    def __init__(self, store: Store, term: LeaderTerm) -> None:
        self.store, self.term = store, term
        register = store.redis.register_script
        self._commands = register(_COMMANDS)
        self._swap = register(_SWAP)
        self._advance = register(_ADVANCE)
        self._pass_over = register(_PASS_OVER)
        self._hold = register(_HOLD)
        self._again = register(_AGAIN)
        #: Ended epoch -> size in bytes of its statistics in Redis.
        self._measured: dict[int, int] = {}

    async def epoch(self, sealed: Sealed) -> bool:
        """Publish an epoch atomically; False if it had been published before.

        If Redis lacks the base of a patch, the whole ruleset is published instead of the patch.
        """
        store, keys, number = self.store, self.store.keys, sealed.record.epoch
        patch, newest = sealed.patch, keys.newest_ruleset
        if patch is not None and not await self._has(patch):
            _LOG.warning("the base of a patch is gone", epoch=number, base=patch.base)
            sealed, patch = replace(sealed, patch=None), None
        others: list[_Command] = [("UNLINK", newest, ())]
        if patch is not None:
            others = [("SET", newest, (sealed.ruleset,))]
            others.append(("HSETNX", store.bases_key, (number, patch.base)))
        answers = await self._write(
            ("SET", keys.ruleset(number), (sealed.rules, "NX")),
            ("SET", store.details_key(number), (sealed.details, "NX")),
            ("SET", keys.epoch(number), (sealed.text, "NX")),
            ("HSETNX", store.summaries_key, (number, sealed.summary)),
            ("HSETNX", store.epoch_bytes_key, (number, sealed.size)),
            ("ZADD", keys.published, (number, number)),
            *others,
        )
        return bool(answers[0])

    async def _has(self, patch: Patched) -> bool:
        """Whether Redis has the base of ``patch`` as it was published."""
        kept = cast("str | None", await self.store.redis.get(self.store.keys.ruleset(patch.base)))
        return kept is not None and digest(kept) == patch.check

    async def epoch_again(self, sealed: Sealed, before: int) -> bool:
        """Publish an epoch equal to epoch ``before``. Redis copies ruleset and details, so that the
        new epoch does not depend on ``before``; a copied patch has the same base.

        Returns:
            Whether it was published. False if Redis already has an epoch of that number, or lacks
            epoch ``before``.
        """
        store, keys, number = self.store, self.store.keys, sealed.record.epoch
        names = [keys.ruleset(before), keys.ruleset(number), store.details_key(before)]
        names += [store.details_key(number), keys.epoch(number), store.summaries_key]
        names += [store.epoch_bytes_key, keys.published, store.bases_key]
        given = [number, sealed.text, sealed.summary, sealed.size, before]
        return bool(await self._run(self._again, names, given))

    async def explanation(self, record: EpochRecord, found: Explanation) -> None:
        """Store the explanation of the epoch of ``record``, made after its publication."""
        store, number = self.store, record.epoch
        text = pack(found.model_dump_json())
        summary = record.with_explanation(found).summary().model_dump_json()
        await self._write(
            ("HSET", store.explanations_key, (number, text)),
            ("HSET", store.summaries_key, (number, summary)),
            ("HINCRBY", store.epoch_bytes_key, (number, len(text))),
        )

    async def forget_epochs(self, keep: int, most: int) -> None:
        """Remove old epochs and their measurements: all but the newest ``keep``, and the oldest of
        these until the rest has at most ``most`` bytes. The latter limit does not affect the newest
        :data:`LEAST_EPOCHS`, the running epoch, and later ones. Bases of remaining patches stay."""
        store, keys = self.store, self.store.keys
        published, progress = await store.published(), await store.progress()
        sizes, spent, needed = await store.epoch_bytes(), 0, 0
        await self._measure(published)
        runs = published[-1:] if progress is None else [progress.ruleset_epoch]
        for needed, number in enumerate(reversed(published)):
            spent += sizes.get(number, 0) + self._measured.get(number, 0)
            large = spent > most and needed >= LEAST_EPOCHS and number < min(runs, default=0)
            if needed >= keep or large:
                break
        else:
            return
        first, last = published[0], published[-needed]
        bases = await store.bases()
        rulesets = {*range(first, last), *(base for n, base in bases.items() if n < last)}
        rulesets -= {base for n, base in bases.items() if n >= last}
        # The range includes epochs without a plan of their own, which still have statistics.
        gone = [
            key
            for n in range(first, last)
            for key in (
                keys.epoch(n),
                store.details_key(n),
                keys.statistics(n),
                store.revisions_key(n),
                *[keys.ruleset(RulesetId(n, r)) for r in await store.revision_numbers(n)],
            )
        ]
        await self._write(
            *(("UNLINK", keys.ruleset(n), ()) for n in sorted(rulesets)),
            *(("UNLINK", key, ()) for key in gone),
            ("HDEL", store.bases_key, tuple(range(first, last))),
            ("HDEL", store.summaries_key, tuple(range(first, last))),
            ("HDEL", store.epoch_bytes_key, tuple(range(first, last))),
            ("HDEL", store.explanations_key, tuple(range(first, last))),
            ("ZREMRANGEBYSCORE", keys.published, ("-inf", f"({last}")),
        )

    async def _measure(self, published: Sequence[int]) -> None:
        """Read the sizes of ended epochs' statistics from Redis. Statistics of an epoch without a
        plan of its own count with the epoch before."""
        first, following = published[0], published[1:]
        self._measured = {n: size for n, size in self._measured.items() if n >= first}
        unknown = [pair for pair in pairwise(published) if pair[0] not in self._measured]
        if not unknown:
            return
        sizes = await self.store.statistics_bytes(unknown[0][0], following[-1])
        for number, end in unknown:
            self._measured[number] = sum(sizes[n] for n in range(number, end))

    async def answer(self, answer: RevisionAnswer) -> None:
        """Store the decision that a measurement period needs no revision."""
        await self._write(("SET", self.store.keys.revision, (answer.dumps(),)))

    async def revision(self, record: KeptRevision, ruleset: str, answer: RevisionAnswer) -> None:
        """Publish a revision atomically."""
        keys, name = self.store.keys, RulesetId(record.epoch, record.revision)
        text = pack(ruleset)
        await self._write(
            ("SET", keys.ruleset(name), (text,)),
            ("HINCRBY", self.store.epoch_bytes_key, (record.epoch, len(text))),
            self._keep(record),
            ("SET", keys.revision, (answer.dumps(),)),
        )

    async def measured(self, record: KeptRevision) -> None:
        """Store the record of a revision with its newly measured gain."""
        await self._write(self._keep(record))

    async def rations(self, schedule: RationSchedule | None) -> None:
        """Publish a schedule of rations (shares of tuples that probe, per CPU budget); None ends
        rationing with the next batch."""
        key = self.store.keys.rations
        if schedule is None:
            await self._write(("DEL", key, ()))
        else:
            await self._write(("SET", key, (schedule.dumps(),)))

    async def hold(
        self,
        seen: Approvals,
        held: HeldPlan | None,
        record: EpochRecord | None = None,
        ruleset: str = "",
        *,
        forget: bool = False,
    ) -> None:
        """Replace or remove the held plan, unless an operator has decided since ``seen`` was read.

        Args:
            record, ruleset: epoch record and ruleset of ``held``, as they would be published.
            forget: whether refused plans may be proposed again.
        """
        if held is None and not seen.text and not (forget and seen.refused):
            return
        fields = [seen.text, seen.approved, int(forget)]
        if held is not None and record is not None:
            texts = held.model_dump_json(), record.model_dump_json()
            fields += ["digest", held.digest, "held", texts[0], "record", texts[1]]
            fields += ["ruleset", ruleset]
        await self._run(self._hold, [self.store.keys.approval], fields)

    async def query(
        self,
        name: str,
        change: Callable[[QueryRecord], QueryRecord],
        *,
        takes_over: str = "",
        planned: bool = False,
    ) -> QueryRecord | None:
        """Apply ``change`` to the newest version of a run's record, and return the result; None
        without such a record, or if the query no longer has the run ``takes_over``.

        Args:
            change: may run several times.
            takes_over: run that this one replaces as the meaning of the query's name; empty: none.
            planned: whether the change is part of a plan, so that it does not require another plan.
        """

        async def swap(key: str, field: str, old: str, new: str) -> bool:
            store = self.store
            keys = [key, store.keys.changes, *([store.runs_key] if takes_over else [])]
            arguments = [field, old, new, store.kind_of(key), CHANGES_KEPT, query_of(name)]
            arguments += [int(planned), takes_over]
            done = int(await self._run(self._swap, keys, arguments))
            if done < 0:
                raise _Overtaken
            return bool(done)

        try:
            return await self.store.update_query(name, change, swap)
        except _Overtaken:
            return None

    async def history(self, point: HistoryPoint) -> None:
        """Append a point to the history of rates, which keeps the newest :data:`KEPT` points."""
        key = self.store.keys.history
        await self._write(("RPUSH", key, (point.model_dump_json(),)), ("LTRIM", key, (-KEPT, -1)))

    async def lineage(self, run: str, event: str) -> None:
        """Store the last lineage event sent for a run."""
        await self._write(("HSET", self.store.keys.lineage, (run, event)))

    async def forget_lineage(self, runs: Sequence[str]) -> None:
        """Remove the stored lineage events of ``runs``."""
        await self._write(*(("HDEL", self.store.keys.lineage, (run,)) for run in runs))

    async def forget_runs(
        self,
        runs: Sequence[str],
        activations: Sequence[str],
        *,
        fresh: Mapping[str, float],
        stale: Sequence[str],
    ) -> None:
        """Remove query runs and activations, and update the hash with the times when runs ended.

        Args:
            fresh: newly ended runs -> when their end was first seen, in seconds since 1970.
            stale: runs whose stored time of ending is to be removed.
        """
        store, keys = self.store, self.store.keys
        commands: list[_Command] = []
        if fresh:
            noted = [x for run, at in fresh.items() for x in (run, at)]
            commands.append(("HSET", store.ended_key, tuple(noted)))
        if stale:
            commands.append(("HDEL", store.ended_key, tuple(stale)))
        # HSETNX: a run registered meanwhile stays the newest run of its query.
        commands += [("HSETNX", store.runs_key, (query_of(run), run)) for run in runs]
        if runs:
            commands.append(("HDEL", keys.queries, tuple(runs)))
            commands.append(("HDEL", keys.views, tuple(runs)))
            note = ("MAXLEN", "~", CHANGES_KEPT, "*", "queries", json.dumps(list(runs)))
            commands.append(("XADD", keys.changes, note))
        if activations:
            commands.append(("HDEL", keys.activations, tuple(activations)))
            note = ("MAXLEN", "~", CHANGES_KEPT, "*", "activations", json.dumps(list(activations)))
            commands.append(("XADD", keys.activation_changes, note))
        if commands:
            await self._write(*commands)

    async def advance(self, text: str) -> None:
        """Record that an epoch was planned for the boundary ``text``; idempotent."""
        keys = self.store.keys
        await self._run(self._advance, [keys.cursor, keys.boundaries], [text])

    async def pass_over(self, newest: str) -> int:
        """Skip unplanned boundaries before ``newest`` if still the newest; return their number."""
        keys = self.store.keys
        return int(await self._run(self._pass_over, [keys.cursor, keys.boundaries], [newest]))

    def _keep(self, record: KeptRevision) -> _Command:
        key, number = self.store.revisions_key(record.epoch), str(record.revision)
        return "HSET", key, (number, record.model_dump_json())

    async def _write(self, *commands: _Command) -> list[Any]:
        keys = [key for _, key, _ in commands]
        arguments = [x for name, _, given in commands for x in (name, len(given), *given)]
        return cast("list[Any]", await self._run(self._commands, keys, arguments))

    async def _run(self, script: Any, keys: list[str], arguments: list[Any]) -> Any:
        return await run_fenced(script, self.store.keys, self.term, keys, arguments)
