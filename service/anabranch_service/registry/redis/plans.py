"""Plans in Redis: settings, approvals, schedules of rations, published epochs with rulesets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from redis.asyncio.client import Pipeline

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans import patches
from anabranch_contract.plans.rations import RationSchedule
from anabranch_contract.plans.rows import renumbered
from anabranch_contract.plans.ruleset import RulesetId, digest
from anabranch_contract.protocol.revisions import RevisionAnswer
from anabranch_contract.rest.planning.epochs import KeptSummary
from anabranch_contract.rest.planning.settings import PlanningSettings
from anabranch_service.registry.publishing.approvals import (
    APPROVE,
    REFUSE,
    Approvals,
    HeldPlan,
    Refusals,
)
from anabranch_service.registry.records import EpochRecord, Explanation, KeptRevision, PlanDetails
from anabranch_service.registry.redis.base import RedisRecords
from anabranch_service.registry.redis.reading import (
    lenient,
    reply,
    reply_record,
    reply_text,
    strict,
    unpacked,
)

_LOG = structlog.get_logger(__name__)


class PlanStore(RedisRecords):
    """Reads and writes of operators' settings and approvals, and reads of published plans."""

    #: Cache of the schedule of rations: text and parsed form.
    _rations: tuple[str | None, RationSchedule | None] = None, None

    async def planning(self) -> PlanningSettings | None:
        """Return the planning settings changed over REST; None if they were never changed."""
        text = await reply_text(self.redis.get(self._own("settings")))
        return strict(PlanningSettings, "settings", text)

    async def update_planning(
        self, change: Callable[[PlanningSettings | None], PlanningSettings]
    ) -> PlanningSettings:
        """Apply ``change`` to the newest planning settings; None means the defaults.

        ``change`` may run several times, and may raise to prevent the update.
        """
        key = self._own("settings")

        async def attempt(pipe: Pipeline) -> PlanningSettings:
            changed = change(await self.planning())
            pipe.multi()  # type: ignore[no-untyped-call]
            pipe.set(key, changed.model_dump_json())
            self._note(pipe, settings=[])
            return changed

        return await self._transact(attempt, key)

    async def approvals(self) -> Approvals:
        """Return the held plan and decisions on it; unreadable parts are logged and left out."""
        names = ["held", "approved", "refused"]
        texts = await reply(self.redis.hmget(self.keys.approval, names), list[str | None])
        held, approved, refused = texts
        return Approvals(
            held=lenient(HeldPlan, "held plan", held or None),
            text=held or "",
            approved=approved or "",
            refused=lenient(Refusals, "refused plans", refused or None),
        )

    async def held_plan(self) -> tuple[EpochRecord, str] | None:
        """Return epoch record and ruleset of the held plan; None if it is missing or unreadable."""
        names = ["record", "ruleset"]
        texts = await reply(self.redis.hmget(self.keys.approval, names), list[str | None])
        found, ruleset = lenient(EpochRecord, "held plan", texts[0]), texts[1]
        return None if found is None or ruleset is None else (found, ruleset)

    async def approve(self, held: HeldPlan) -> bool:
        """Approve ``held``; False if it is no longer the held plan."""
        return bool(await self._run(APPROVE, [self.keys.approval], [held.digest]))

    async def refuse(self, seen: Approvals, held: HeldPlan) -> bool:
        """Refuse ``held``; False if it no longer waits for a decision."""
        after = Refusals.after(seen.refused, held).model_dump_json()
        return bool(await self._run(REFUSE, [self.keys.approval], [held.digest, after]))

    async def published(self) -> list[int]:
        """Return published epoch numbers, ascending."""
        raw = await reply(self.redis.zrange(self.keys.published, 0, -1), list[str])
        return [int(n) for n in raw]

    async def epoch(self, number: int) -> EpochRecord | None:
        """Record of a published epoch, with its explanation if one was made; or None."""
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.get(self.keys.epoch(number))
            pipe.hget(self.explanations_key, str(number))
            pipe.get(self.details_key(number))
            text, later, details = map(unpacked, await pipe.execute())
        record = strict(EpochRecord, str(number), text)
        if record is None:
            return None
        found = lenient(PlanDetails, f"details of {number}", details)
        record = record if found is None else record.with_details(found)
        explanation = lenient(Explanation, f"explanation of {number}", later)
        return record if explanation is None else record.with_explanation(explanation)

    async def explanation(self, number: int) -> Explanation | None:
        """Return the explanation of an epoch made after its publication, or None."""
        text = unpacked(await reply_text(self.redis.hget(self.explanations_key, str(number))))
        return lenient(Explanation, f"explanation of {number}", text)

    def details_key(self, number: int) -> str:
        """Return the key of the plan and decisions of an epoch, stored apart from its record."""
        return self._own("plans", str(number))

    async def newest_epoch(self, before: int | None = None) -> EpochRecord | None:
        """Record of the newest published epoch (of those ``before`` a given one), or None."""
        numbers = [n for n in await self.published() if before is None or n < before]
        return await self.epoch(numbers[-1]) if numbers else None

    async def summaries(self, numbers: list[int]) -> list[tuple[KeptSummary, int]]:
        """Return the summaries of ``numbers``, with counts of revisions; unreadable: omitted."""
        if not numbers:
            return []
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.hmget(self.summaries_key, [str(n) for n in numbers])
            for n in numbers:
                pipe.hlen(self.revisions_key(n))
            texts, *revised = await pipe.execute()
        found = []
        for number, text, revisions in zip(numbers, texts, revised, strict=True):
            summary = lenient(KeptSummary, str(number), text)
            if summary is not None:
                found.append((summary, int(revisions)))
        return found

    async def epoch_bytes(self) -> dict[int, int]:
        """Return epoch -> size of its record and rulesets in Redis, in bytes."""
        found = await reply(self.redis.hgetall(self.epoch_bytes_key), dict[str, str])
        return {int(number): int(size) for number, size in found.items()}

    async def statistics_bytes(self, first: int, last: int) -> dict[int, int]:
        """Return epoch -> bytes of its statistics in Redis, for ``first`` <= epoch < ``last``."""
        epochs = range(first, last)
        async with self.redis.pipeline(transaction=False) as pipe:
            for epoch in epochs:
                pipe.strlen(self.keys.statistics(epoch))
            return dict(zip(epochs, map(int, await pipe.execute()), strict=True))

    async def ruleset(self, name: int | RulesetId) -> str | None:
        """Return the JSON text of an epoch's ruleset or of a revision; None if it, or the base of
        which it is a patch, is missing."""
        text = unpacked(await reply_text(self.redis.get(self.keys.ruleset(name))))
        if text is not None and patches.is_patch(text):
            text = await self._patched(name, text)
        epoch = name if isinstance(name, int) else name.epoch
        # An unchanged epoch's ruleset is a copy, in which the epoch's number must be replaced.
        return None if text is None else renumbered(text, epoch)

    async def _patched(self, name: int | RulesetId, text: str) -> str | None:
        """Apply the patch ``text``, published as ``name``, to its base; None if that fails."""
        try:
            patch = patches.loads(text)
            base = unpacked(await reply_text(self.redis.get(self.keys.ruleset(patch.base))))
            base = renumbered(base or "", patch.base.epoch)
            try:
                return await asyncio.to_thread(patches.applied, base, patch)
            except RulesetError as cause:
                _LOG.warning("a patch can't be applied", ruleset=str(name), reason=cause.message)
                newest = unpacked(await reply_text(self.redis.get(self.keys.newest_ruleset)))
                if newest is None or digest(newest) != patch.digest:
                    raise
                return newest
        except RulesetError as cause:
            _LOG.error("a ruleset can't be read", ruleset=str(name), reason=str(cause))
            return None

    async def bases(self) -> dict[int, int]:
        """Return epoch -> epoch of its base, for rulesets stored as patches."""
        found = await reply(self.redis.hgetall(self.bases_key), dict[str, str])
        return {int(number): int(base) for number, base in found.items()}

    async def answer(self) -> RevisionAnswer | None:
        """Return the newest decision, which may have no revision; None if there is none yet."""
        return await reply_record(RevisionAnswer, "revision", self.redis.get(self.keys.revision))

    async def revisions(self, epoch: int) -> list[KeptRevision]:
        """Return the revisions of an epoch, oldest first; unreadable ones are left out."""
        texts = await reply(self.redis.hgetall(self.revisions_key(epoch)), dict[str, str])
        read = (lenient(KeptRevision, f"revision {epoch}.{n}", t) for n, t in texts.items())
        return sorted((r for r in read if r is not None), key=lambda r: r.revision)

    async def revision_numbers(self, epoch: int) -> list[int]:
        """Return the numbers of the revisions of an epoch."""
        return [int(n) for n in await reply(self.redis.hkeys(self.revisions_key(epoch)), list)]

    def revisions_key(self, epoch: int) -> str:
        """Return the key of the hash: number -> record of a revision of ``epoch``."""
        return self._own("revisions", str(epoch))

    async def rations(self) -> RationSchedule | None:
        """Return the schedule of rations; None if missing or unreadable."""
        text = await reply_text(self.redis.get(self.keys.rations))
        # Cached, since parsing takes long with thousands of queries, and answers need it often.
        if text != self._rations[0]:
            self._rations = text, lenient(RationSchedule, "rations", text)
        return self._rations[1]
