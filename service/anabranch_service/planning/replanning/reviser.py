"""Revises rulesets after each measurement period: reads input, decides in a thread, publishes.

In live mode only the newest period gets a decision. After a decision the reviser pauses in
proportion to the decision's time, which is seconds with a thousand queries. In step mode the
runtime waits for decisions, so every period that requests one gets it, with or without a revision.

In live mode an epoch is planned two epochs in advance. After a drift or a revision, the rulesets of
epochs that have not begun are revised, too: together with the running one, and when they are
published. So no epoch begins with probe orders older than a decided change.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import structlog

from anabranch_contract.codec import Malformed
from anabranch_contract.errors import PlannerError
from anabranch_contract.plans import ruleset as wire
from anabranch_contract.plans.plan import Approval
from anabranch_contract.plans.rows import read_ruleset
from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_contract.plans.steps import orders_digest
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.protocol.revisions import RevisionAnswer
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.rest.planning.revisions import RevisionReason
from anabranch_planner.replan.running import RunningPlan, running_plan
from anabranch_service.clock import Clock
from anabranch_service.planning.options import default_planning
from anabranch_service.planning.rations import may_ration, ration_schedule
from anabranch_service.planning.replanning.gains import Orders, newest_change, orders_of
from anabranch_service.planning.replanning.periods import Periods
from anabranch_service.planning.replanning.revisions import Decision, RevisionInput, decide
from anabranch_service.planning.request import read_queries
from anabranch_service.presenters.metrics import Metrics
from anabranch_service.registry.publishing.lease import LeadershipLost
from anabranch_service.registry.publishing.publication import Publication
from anabranch_service.registry.records import EpochRecord, KeptRevision, QueryRecord
from anabranch_service.registry.store import Store
from anabranch_service.settings import ServiceSettings

_LOG = structlog.get_logger(__name__)

#: Pause after a decision in live mode, as a multiple of the decision's time.
REST = 20.0
#: Rulesets cached in memory: the running one, its revision, and the next two epochs' rulesets.
REMEMBERED = 4


class _Memory(NamedTuple):
    """Cached input of decisions on one ruleset: plan, digest, parsed periods."""

    running: RunningPlan
    digest: str
    periods: Periods


class Reviser:
    """Decides on revisions from measurement periods (``Keys.interims``); one per epoch loop."""

    def __init__(
        self, store: Store, settings: ServiceSettings, metrics: Metrics, clock: Clock
    ) -> None:
        self._store, self._settings, self._metrics, self._clock = store, settings, metrics, clock
        self._seen = ""
        #: A lock that is held during a decision, and whether an epoch was published meanwhile.
        self._deciding, self._published = asyncio.Lock(), False
        self._resting_until = 0.0
        self._memories: dict[RulesetId, _Memory] = {}
        self._orders: dict[RulesetId, Orders] = {}
        #: First batch after the newest drift, and whether probe orders have proved worse since
        #: then.
        self._drifted, self._barred = -1, False

    async def turn(self, publication: Publication) -> bool:
        """Decide on the newest period; False if no period is new, or during a pause.

        Raises:
            LeadershipLost: another service leads; the decision is not published.
        """
        live = self._settings.mode is Mode.LIVE
        if live and time.monotonic() < self._resting_until:
            return False
        text = await self._store.interim_text(-1)
        if text is None or text == self._seen:
            return False
        async with self._deciding:
            await self._answer(text, publication)
            # Set only now: if the lead is lost before, the period is decided on when this service
            # leads again.
            self._seen = text
        while self._published:
            await self.published(publication)
        return True

    async def _answer(self, text: str, publication: Publication) -> None:
        live = self._settings.mode is Mode.LIVE
        try:
            interim = Interim.loads(text)
        except Malformed as cause:
            _LOG.error("unreadable measurements skipped", reason=str(cause))
            return
        if not live and not interim.asks:
            return
        last = await self._store.answer() or RevisionAnswer(interim.ruleset_epoch)
        last = last.following(interim.ruleset_epoch)
        if last.answered >= interim.next_batch:
            return
        started = time.monotonic()
        name = RulesetId(interim.ruleset_epoch, interim.revision)
        decision = await self._decide(interim, name, last.revision, publication)
        if decision.measured is not None and decision.measured.measured is not None:
            await publication.measured(decision.measured)
            gain = decision.measured.measured.gain
            self._metrics.revision_gain.labels("measured").set(gain)
        if live and (decision.ruleset is not None or self._may_differ(interim, last)):
            last = await self._carry_over(interim, last, publication)
        self._rest_after(started)
        answer = replace(last, answered=interim.next_batch)
        if decision.ruleset is None or decision.record is None:
            await publication.answer(answer)
            return
        await self._publish(decision, answer, publication)

    async def published(self, publication: Publication) -> None:
        """After the publication of an epoch, revise the rulesets of epochs that have not begun. If
        the newest period has no decision yet, or another decision is in progress, :meth:`turn` will
        do so.

        Raises:
            LeadershipLost: another service leads.
        """
        if self._settings.mode is not Mode.LIVE:
            return
        self._published = self._deciding.locked()
        if self._published:
            return
        async with self._deciding:
            text, answer = await self._store.interim_text(-1), await self._store.answer()
            if text is None or text != self._seen or answer is None:
                return
            started, interim = time.monotonic(), Interim.loads(text)
            answer = answer.following(interim.ruleset_epoch)
            if self._may_differ(interim, answer):
                await self._carry_over(interim, answer, publication)
                self._rest_after(started)

    def _rest_after(self, started: float) -> None:
        ended = time.monotonic()
        self._resting_until = ended + REST * (ended - started)

    def _may_differ(self, interim: Interim, answer: RevisionAnswer) -> bool:
        """Whether a drift or a revision may be newer than the plans of future epochs."""
        return bool(interim.drifted or interim.revision or answer.revision or self._barred)

    async def _carry_over(
        self, interim: Interim, answer: RevisionAnswer, publication: Publication
    ) -> RevisionAnswer:
        """Revise the rulesets of epochs that have not begun; returns ``answer`` with them added."""
        for epoch in await self._store.published():
            if epoch <= interim.ruleset_epoch:
                continue
            known = answer.of_epoch(epoch)
            name = RulesetId(epoch, 0 if known is None else known.revision)
            decision = await self._decide(interim, name, name.revision, publication)
            if decision.ruleset is not None:
                answer = await self._publish(decision, answer, publication)
        return answer

    async def _decide(
        self, interim: Interim, name: RulesetId, newest: int, publication: Publication
    ) -> Decision:
        """Decide on a revision of the ruleset ``name``. A failure is logged, and means no revision;
        it never stops the epoch loop."""
        try:
            asked = await self._question(interim, name, newest, publication)
            if asked is None:
                return Decision()
            if not asked.upcoming:
                await self._ration(asked, publication)
            return await asyncio.to_thread(decide, asked)
        except LeadershipLost:
            raise
        except PlannerError as cause:
            _LOG.warning("no revision", ruleset=str(name), reason=str(cause))
        except Exception as cause:  # noqa: BLE001 - the runtime may wait: keep the present rules
            _LOG.error("revision failed", error=repr(cause), exc_info=cause)
        return Decision()

    async def _question(
        self, interim: Interim, name: RulesetId, newest: int, publication: Publication
    ) -> RevisionInput | None:
        """Read the input of a decision; None if revisions are off or input is missing."""
        store, epoch = self._store, name.epoch
        upcoming = epoch > interim.ruleset_epoch
        options = await store.planning() or default_planning(self._settings)
        if options.approval is Approval.MANUAL:
            # A revision would change probe orders without approval. Rations are not part of a plan.
            options = options.model_copy(update={"revision_gain": None})
        rationed = may_ration(options, self._settings.mode)
        if not rationed:
            await publication.rations(None)
        if options.revision_gain is None and not rationed:
            return None
        record, snapshot = await store.epoch(epoch), await store.last_snapshot()
        if record is None:
            return None
        memory = await self._remember(name, record)
        if memory is None:
            return None
        by = self._memories.get(RulesetId(interim.ruleset_epoch, interim.revision), memory)
        texts = await store.interim_texts(self._settings.planning.series_periods)
        progress = await store.progress() if rationed else None
        periods = await asyncio.to_thread(memory.periods.read, texts, snapshot)
        interims = [period.interim for period in periods]
        records = await self._records([*interims, interim], epoch)
        failed, now = self._failed(interims, records), by.running.ruleset
        earlier = None
        if upcoming and orders_digest(memory.running.ruleset) in failed:
            earlier = now
            if orders_digest(now) in failed and name.revision:
                # Revert to the first ruleset of the epoch, which has all stores.
                memory = await self._remember(RulesetId(epoch), record) or memory
                earlier = memory.running.ruleset
        same = {q.id for q in by.running.queries} == {q.id for q in memory.running.queries}
        asked = RevisionInput(
            periods=periods,
            length=self._settings.planning.series_periods,
            snapshot=snapshot,
            running=memory.running,
            options=options.model_copy(
                update={"optimizer": record.optimizer, "objective": record.objective}
            ),
            records=tuple(r for r in records if r.next_batch >= self._drifted),
            newest=max(newest, name.revision, *(r.revision for r in records if r.epoch == epoch)),
            now=self._clock(),
            mode=self._settings.mode,
            rations=() if progress is None else progress.rationing.rations,
            upcoming=upcoming,
            ran=by.running if upcoming and same else None,
            counted=now.substreams,
            failed=failed,
            earlier=earlier,
        )
        return asked if upcoming else await self._with_change(asked, interims)

    async def _records(self, interims: Sequence[Interim], epoch: int) -> tuple[KeptRevision, ...]:
        """Return the revisions of ``epoch`` and of the epochs of ``interims``, oldest first."""
        epochs = {name.epoch for one in interims for name in one.rulesets} | {epoch}
        found = [await self._store.revisions(number) for number in sorted(epochs)]
        return tuple(record for records in found for record in records)

    def _failed(
        self, interims: Sequence[Interim], records: Sequence[KeptRevision]
    ) -> frozenset[str]:
        """Return the digests of probe orders that made rows costlier since the newest drift."""
        drifted = [one.next_batch for one in interims if one.drifted]
        self._drifted = max([self._drifted, *drifted])
        since = [r for r in records if r.next_batch >= self._drifted]
        lost = [r.orders for r in since if r.measured is not None and r.measured.lost]
        found = frozenset([*lost, *(r.undone for r in since if r.undone)])
        self._barred = bool(found)
        return found

    async def _with_change(
        self, asked: RevisionInput, interims: Sequence[Interim]
    ) -> RevisionInput:
        """Return ``asked`` with the measured gain of the newest change of probe orders, if any."""
        names = {name for one in interims for name in one.rulesets}
        known = {name: found for name, found in self._orders.items() if name in names}
        for name in names - known.keys():
            ruleset = await self._ruleset(name)
            if ruleset is not None:
                known[name] = await asyncio.to_thread(orders_of, ruleset)
        self._orders = known
        change = newest_change(interims, known, timed=asked.timed)
        if change is None:
            return asked
        first = next((r for r in asked.records if (r.epoch, r.revision) == change.after), None)
        earlier = None
        # Orders restored after a loss stay until a drift: two orders never alternate.
        settled = first is not None and first.reason == RevisionReason.TAKEN_BACK
        undone = any(r.undone == change.new for r in asked.records)
        if change.gain.lost and not settled and not undone:
            earlier = await self._ruleset(change.before)
        gain, changed = change.explained(asked.records, names)
        change = replace(change, gain=gain)
        return replace(asked, change=change, changed=changed, earlier=earlier)

    async def _ration(self, asked: RevisionInput, publication: Publication) -> None:
        """Publish a new schedule of rations (shares of probing tuples under overload), if rationing
        is on and steps have been measured."""
        measured = any(period.interim.steps for period in asked.periods)
        if not may_ration(asked.options, asked.mode) or not measured:
            return
        records = await self._store.queries()
        priorities = {q.id: q.priority for q in records}
        running = asked.running
        try:
            found = await asyncio.to_thread(
                ration_schedule,
                running.ruleset,
                running.queries,
                priorities,
                [period.interim for period in asked.periods],
                asked.options,
                {q.id: q.slo for q in records},
            )
        except PlannerError as cause:
            # The previous schedule stays in force, and a revision is still possible.
            _LOG.warning("no schedule of rations", reason=str(cause))
            return
        await publication.rations(found)

    async def _remember(self, name: RulesetId, record: EpochRecord) -> _Memory | None:
        """Return cached input of decisions on ruleset ``name``; None if it or a query is gone."""
        known = self._memories.get(name)
        # The digest is compared too, as epoch numbers are reused after a loss of Redis's data.
        if known is None or known.digest != record.ruleset_digest:
            ruleset, queries = await self._ruleset(name), await self._queries(record)
            if ruleset is None or queries is None:
                return None
            running = await asyncio.to_thread(
                running_plan, ruleset, queries, record.optimizer, record.objective
            )
            known = _Memory(running, record.ruleset_digest, Periods(running.inference))
            newest = sorted({*self._memories, name})[-REMEMBERED:]
            self._memories = {n: m for n, m in self._memories.items() if n in newest}
            self._memories[name] = known
        return known

    async def _queries(self, record: EpochRecord) -> tuple[JoinQuery, ...] | None:
        """Return the normalised joins of an epoch's queries; None if a query is gone."""
        names = set(map(registered, record.queries))
        records: list[QueryRecord] = [q for q in await self._store.queries() if q.id in names]
        streams = await self._store.usable_streams()
        read = await asyncio.to_thread(read_queries, records, streams, self._store.forms)
        found = tuple(q for q in read[0] if q.id in set(record.queries))
        return found if len(found) == len(record.queries) else None

    async def _ruleset(self, name: RulesetId) -> Ruleset | None:
        text = await self._store.ruleset(name)
        return None if text is None else await asyncio.to_thread(read_ruleset, text, name)

    async def _publish(
        self, decision: Decision, answer: RevisionAnswer, publication: Publication
    ) -> RevisionAnswer:
        """Publish a revision; returns ``answer`` with it added."""
        assert decision.ruleset is not None  # checked by the caller
        assert decision.record is not None
        text = wire.dumps(decision.ruleset)
        digest = wire.digest(text)
        record = decision.record.model_copy(update={"digest": digest})
        name = decision.ruleset.id
        newer = answer.revised(name, digest)
        await publication.revision(record, text, newer)
        self._metrics.revisions.labels(str(record.reason)).inc()
        self._metrics.revision_gain.labels("predicted").set(record.predicted)
        _LOG.info(
            "revision published",
            revision=str(name),
            reason=str(record.reason),
            predicted=round(record.predicted, 3),
            closed=list(record.closed),
            plan_ms=round(record.plan_ms, 1),
        )
        return newer
