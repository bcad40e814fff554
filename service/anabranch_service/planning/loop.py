"""The epoch loop: plans and publishes a ruleset for each epoch boundary that the runtime reports.

A cursor in Redis counts the boundaries that have been handled. An epoch is published atomically
(``SET NX``: the first publication is final), then its effects are written into the query records,
and only then the cursor moves: after a crash in between, repeating the work changes nothing. Only
the leading service runs the loop (:mod:`..registry.publishing.lease`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import structlog
from redis.exceptions import RedisError

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans import ruleset as wire
from anabranch_contract.plans.plan import Approval
from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Boundary, Mode
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.queries.runs import query_of
from anabranch_contract.rest.planning.insight import SharesRecord
from anabranch_contract.rest.queries import ProblemRecord
from anabranch_planner.cost.validate import validate_plan
from anabranch_service.clock import Clock
from anabranch_service.errors import CorruptRecord
from anabranch_service.planning.approval import KeptPlan, Weighed, weigh
from anabranch_service.planning.epoch import PlannedEpoch, dump_ruleset, plan_epoch
from anabranch_service.planning.process.pace import Pace
from anabranch_service.planning.process.process import NICE, PlannerProcess
from anabranch_service.planning.rations import expected_schedule, may_ration
from anabranch_service.planning.replanning.reviser import Reviser
from anabranch_service.planning.request import Registered, plan_task, read_registered, running_epoch
from anabranch_service.planning.sharing import decide_sharing
from anabranch_service.planning.task import PlanTask
from anabranch_service.planning.what_if.explanation import explained
from anabranch_service.presenters.metrics import Metrics
from anabranch_service.registry.lifecycle import overtaken
from anabranch_service.registry.publishing.approvals import Approvals
from anabranch_service.registry.publishing.lease import LeadershipLost, Lease
from anabranch_service.registry.publishing.publication import Publication, Sealed, seal
from anabranch_service.registry.records import EpochRecord, Explanation, QueryRecord
from anabranch_service.registry.redis.reading import read_boundary, read_snapshot
from anabranch_service.registry.store import Store
from anabranch_service.settings import ServiceSettings
from anabranch_service.tasks import cancel

_LOG = structlog.get_logger(__name__)

#: Maximum number of seconds between two attempts to go on after failures.
_LONGEST_PAUSE = 2.0
#: Seconds between two looks at the lease while another service leads, and at a decision on a
#: revision that is in progress.
_FOLLOWING = 0.02
#: A planned epoch: as planned in this process, or in stored form from the planner's process.
_Made = TypeVar("_Made", PlannedEpoch, Sealed)


def plan_and_explain(task: PlanTask) -> PlannedEpoch:
    """Plan and explain ``task``; changes no shared state, so it can run in a thread."""
    return explained(plan_epoch(task))


#: Minimum number of queries for planning in a separate process.
APART = 25
#: Seconds without a new plan before the newest one is explained in live mode, and maximum number of
#: seconds for which an explanation waits.
CALM, WAITING = 3.0, 30.0
#: Time limit of planning in the separate process: seconds, plus this many times the solver's limit.
PLAN_SECONDS, PLAN_SOLVES = 30.0, 6


def target_epoch(boundary: Boundary, mode: Mode) -> int:
    """Return the epoch to plan at the end of the boundary's epoch (-1: the runtime has started). In
    live mode the next epoch runs meanwhile, so the one after it is planned.

    >>> [target_epoch(Boundary(e, 0), Mode.STEP) for e in (-1, 0, 1)]
    [0, 1, 2]
    >>> [target_epoch(Boundary(e, 0), Mode.LIVE) for e in (-1, 0, 1)]
    [0, 2, 3]
    """
    if boundary.epoch == -1:
        return 0
    return boundary.epoch + (1 if mode is Mode.STEP else 2)


class EpochLoop:
    """Plans an epoch for each boundary in ``Keys.boundaries``; one per process.

    Attributes:
        plan: plans and explains a task (tests replace it); its plan is validated.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease,
        settings: ServiceSettings,
        metrics: Metrics,
        clock: Clock,
        plan: Callable[[PlanTask], PlannedEpoch] = plan_and_explain,
    ) -> None:
        self.plan = plan
        seconds = PLAN_SECONDS + PLAN_SOLVES * settings.planning.solve_seconds
        self.process, self.explainer = PlannerProcess(seconds), PlannerProcess(seconds, NICE)
        #: Epochs with the newest plan that lack an explanation, and the time of that planning.
        self._unexplained: list[tuple[EpochRecord, Publication]] = []
        self._planned_at = 0.0
        self._pace = Pace()
        self._explaining: asyncio.Task[None] | None = None
        self._reviser = Reviser(store, settings, metrics, clock)
        #: The decision on a revision that is in progress in live mode, and the term in which it
        #: began.
        self._revising: tuple[asyncio.Task[bool], Publication] | None = None
        self.store, self.lease = store, lease
        self._publication: Publication | None = None
        self.settings = settings
        self.metrics = metrics
        self.clock = clock
        self.failures = 0
        self.last_error = ""
        self.last_turn = time.monotonic()
        self.planning = False
        self._stop = asyncio.Event()
        #: Newest report of the runtime (entry of ``Keys.reports``) that the loop has seen.
        self._report = "0-0"

    def stop(self) -> None:
        """Make :meth:`run` return after its current boundary."""
        self._stop.set()

    def close(self) -> None:
        """Kill the planner's two processes; called after :meth:`run`."""
        self.process.close()
        self.explainer.close()

    async def stop_background(self) -> None:
        """Cancel the explanation and the decision in progress; called after :meth:`run`."""
        tasks = set[asyncio.Task[Any]]()
        if self._explaining is not None:
            tasks.add(self._explaining)
        if self._revising is not None:
            tasks.add(self._revising[0])
        await cancel(tasks)

    async def run(self) -> None:
        """Take turns until stopped; no failure ends the loop."""
        stop = asyncio.create_task(self._stop.wait())
        while not self._stop.is_set():
            pause = 0.0
            try:
                worked = await self.turn()
                self.failures, self.last_error = 0, ""
                if not worked:
                    await self._await_report(stop)
            except LeadershipLost:
                pause = _FOLLOWING
            except Exception as cause:  # noqa: BLE001 - retried; the current plan stays in force
                self.failures += 1
                self.last_error = repr(cause)
                self.metrics.loop_errors.inc()
                pause = min(self.settings.planning.poll_seconds * 2**self.failures, _LONGEST_PAUSE)
                _LOG.error(
                    "epoch loop failed",
                    error=repr(cause),
                    failures=self.failures,
                    retry_in=pause,
                    exc_info=None if isinstance(cause, RedisError) else cause,
                )
            self.last_turn = time.monotonic()
            await asyncio.wait({stop}, timeout=pause)
        await cancel({stop})

    async def _await_report(self, stop: asyncio.Task[Any]) -> None:
        """Wait for a report of the runtime, at most ``poll_seconds``, or until ``stop``."""
        if self.lease.term is None:
            await asyncio.wait({stop}, timeout=_FOLLOWING)
            return
        seconds = self.settings.planning.poll_seconds
        report = asyncio.create_task(self.store.await_report(self._report, seconds))
        try:
            await asyncio.wait({stop, report}, return_when=asyncio.FIRST_COMPLETED)
            if report.done():
                self._report = report.result()
        finally:
            await cancel({report})

    def check(self) -> str:
        """Return ``"ok"`` (also while another service leads), or why the loop is stuck."""
        if self.lease.error:
            return f"no lease: {self.lease.error}"
        if self.failures:
            return f"failed {self.failures} times in a row: {self.last_error}"
        stalled = time.monotonic() - self.last_turn
        if not self.planning and stalled > 10:
            return f"no turn for {stalled:.0f} s"
        return "ok"

    async def turn(self) -> bool:
        """Handle the next epoch boundary or, if there is none, a new measurement period. Returns
        False if there is neither, or if another service leads.

        Raises:
            LeadershipLost: another service has taken the lead meanwhile; nothing more is written.
        """
        term = self.lease.term
        if term is None:
            return False
        if self._publication is None or self._publication.term != term:
            self._publication = Publication(self.store, term)
        try:
            return await self._work(self._publication)
        except LeadershipLost:
            self.lease.lose(term)
            raise

    async def _work(self, publication: Publication) -> bool:
        cursor = await self.store.cursor()
        text = await self.store.boundary_text(cursor)
        if text is None:
            if self.settings.mode is Mode.LIVE:
                return await self._revise(publication)
            return await self._reviser.turn(publication)
        if await self._pass_over(text, publication):
            return True
        try:
            boundary = read_boundary(text)
        except CorruptRecord as cause:
            _LOG.error("unreadable boundary skipped", index=cursor, reason=cause.message)
        else:
            await self._answer(boundary, publication)
            found = _snapshot(boundary)
            if found is not None:
                self.metrics.observe(found)
        await publication.advance(text)
        return True

    async def _revise(self, publication: Publication) -> bool:
        """Decide on revisions in a separate task, since a decision takes seconds with a thousand
        queries and boundaries must not wait. Returns whether a decision was made."""
        if self._revising is None:
            task = asyncio.create_task(self._reviser.turn(publication))
            self._revising = task, publication
        task, begun = self._revising
        await asyncio.wait({task}, timeout=_FOLLOWING)
        if not task.done():
            return True
        self._revising = None
        try:
            return task.result()
        except LeadershipLost:
            if begun is publication:
                raise
            return True

    async def _pass_over(self, text: str, publication: Publication) -> bool:
        """Skip all boundaries but the newest, if planning is slower than epochs in live mode: only
        the newest statistics matter. Returns whether any was skipped."""
        newest = await self.store.boundary_text(-1)
        if self.settings.mode is not Mode.LIVE or newest is None or newest == text:
            return False
        try:
            # A boundary without statistics reports a start of the runtime: skip nothing for it.
            useful = read_boundary(newest).snapshot is not None
        except CorruptRecord:
            useful = False
        if not useful or not await self.store.published():
            return False
        passed = await publication.pass_over(newest)
        if passed:
            self.metrics.passed_over.inc(passed)
            _LOG.warning("planning is slower than epochs", boundaries_passed_over=passed)
        return passed > 0

    async def _answer(self, boundary: Boundary, publication: Publication) -> None:
        epoch = target_epoch(boundary, self.settings.mode)
        with structlog.contextvars.bound_contextvars(epoch=epoch):
            await self._answer_with(epoch, boundary, publication)

    async def _answer_with(self, epoch: int, boundary: Boundary, publication: Publication) -> None:
        record = await self.store.epoch(epoch)
        if record is None:
            self.planning = True
            try:
                record = await self._publish(epoch, boundary, publication)
            finally:
                self.planning = False
                self.last_turn = time.monotonic()
        if record is not None:
            await self._settle(record, publication)

    async def _publish(
        self, epoch: int, boundary: Boundary, publication: Publication
    ) -> EpochRecord | None:
        """Plan and publish ``epoch``; returns its record. If the epoch had been published before,
        returns the record of that publication."""
        fulfilled: Approvals | None = None
        try:
            sealed, fulfilled = await self._plan(epoch, boundary, publication)
        except (RedisError, LeadershipLost):
            raise
        except Exception as cause:
            carried = await self._carry_over(epoch, cause)
            if carried is None:
                raise
            sealed = await asyncio.to_thread(seal, *carried)
        record = sealed.record
        if not await self._put(sealed, publication):
            return await self.store.epoch(epoch)
        if fulfilled is not None:
            await publication.hold(fulfilled, None)
        await publication.forget_epochs(
            self.settings.retention.kept_epochs, self.settings.retention.kept_bytes
        )
        self._measure(record)
        await self._reviser.published(publication)
        if not record.explained:
            self._explain_later(record, publication)
        _LOG.info(
            "epoch published",
            epoch=epoch,
            queries=len(record.queries),
            rejected=sorted(record.rejected),
            optimizer=str(record.optimizer),
            cost=record.cost,
            individual_cost=record.individual_cost,
            solve_ms=round(record.solve_ms, 1),
            method=record.method,
        )
        return record

    async def _put(self, sealed: Sealed, publication: Publication) -> bool:
        """Publish the epoch ``sealed``; False if it had been published before.

        Raises:
            CorruptRecord: ``sealed`` repeats an earlier epoch whose ruleset Redis has lost.
        """
        before = sealed.record.same_as
        if before is None:
            return await publication.epoch(sealed)
        if await publication.epoch_again(sealed, before):
            return True
        if sealed.record.epoch in await self.store.published():
            return False
        # Kill the planner's process, whose next plan would be based on the lost epoch again.
        await asyncio.to_thread(self.process.close)
        raise CorruptRecord(
            "corrupt-registry",
            f"the ruleset of epoch {before} is missing, which epoch {sealed.record.epoch} repeats",
            remedy="another program removed it from Redis; the next epoch is planned from scratch",
        )

    async def _plan(
        self, epoch: int, boundary: Boundary, publication: Publication
    ) -> tuple[Sealed, Approvals | None]:
        """Plan ``epoch``; returns its stored form and, if it is an approved plan, the approval."""
        snapshot, now = _snapshot(boundary), self.clock()
        found = await read_registered(
            self.store, self.settings, now, snapshot, epoch, running=False
        )
        found = await self._share(found, publication)
        manual, first = found.options.approval is Approval.MANUAL, await self._rations_first(found)
        seen = await self.store.approvals()
        if len(found.wanted) >= APART and not (manual or first):
            sealed = await self._planned_apart(found, epoch)
            await publication.hold(seen, None, forget=True)
            return sealed, None
        found = replace(found, running=await running_epoch(self.store, epoch))
        found, planned = await asyncio.to_thread(self._planned, found, epoch, self._checked)
        weighed = Weighed(planned, forget=True)
        if manual:
            weighed = await self._weigh(found, planned, seen)
        if first:
            await self._ration(weighed.planned, found, publication)
        published, now = weighed.planned, self.clock()
        sealed = await asyncio.to_thread(lambda: seal(*published.publish(now)))
        if weighed.approved:
            return sealed, seen
        await publication.hold(
            seen, weighed.held, weighed.record, weighed.text, forget=weighed.forget
        )
        if weighed.held is not None and weighed.held.digest != (seen.held and seen.held.digest):
            _LOG.info("plan held", version=weighed.held.digest, waiting=weighed.held.waiting)
        return sealed, None

    async def _planned_apart(self, found: Registered, epoch: int) -> Sealed:
        """Plan in the planner's process; send the running epoch only if the process lacks it."""
        published = [n for n in await self.store.published() if n < epoch]
        after = published[-1] if published else None
        prepare = partial(self._prepare_apart, after)
        try:
            return (await asyncio.to_thread(self._planned, found, epoch, prepare))[1]
        except _RunningWanted:
            found = replace(found, running=await running_epoch(self.store, epoch))
            return (await asyncio.to_thread(self._planned, found, epoch, prepare))[1]

    def _explain_later(self, record: EpochRecord, publication: Publication) -> None:
        """Explain an epoch in the background; of several waiting plans only the newest."""
        if record.same_as is None:
            self._unexplained, self._planned_at = [], time.monotonic()
        self._unexplained.append((record, publication))
        if self._explaining is None or self._explaining.done():
            self._explaining = asyncio.create_task(self._explain())

    async def _calm(self) -> None:
        """In live mode, wait while plans follow each other: an explanation takes as much CPU time
        as planning, or tasks that begin with a new plan. Explanations have the same share of a CPU
        as plans under new statistics (:class:`Pace`)."""
        latest = time.monotonic() + WAITING
        while self.settings.mode is Mode.LIVE:
            now = time.monotonic()
            rest = max(min(self._planned_at + CALM, latest), self._pace.due) - now
            if rest <= 0:
                return
            await asyncio.sleep(rest)

    async def _explain(self) -> None:
        while self._unexplained:
            await self._calm()
            record, publication = self._unexplained.pop(0)
            try:
                found = await self._explained(record)
                if found is not None:
                    await publication.explanation(record, found)
            except Exception as cause:  # noqa: BLE001 - logged; planning continues without it
                _LOG.error("no explanation is kept", epoch=record.epoch, error=repr(cause))

    async def _explained(self, record: EpochRecord) -> Explanation | None:
        """Explain the epoch of ``record``; None if a later epoch has been planned."""
        before, found = record.same_as, None
        if before is not None:
            found = await self.store.explanation(before)
        if found is None:
            began = time.monotonic()
            found = await asyncio.to_thread(self._explanation, record.epoch)
            self._pace.planned(time.monotonic(), time.monotonic() - began)
        if found is None or before is None:
            return found
        return found.model_copy(update={"diff": None, "diff_reason": record.diff_reason})

    def _explanation(self, epoch: int) -> Explanation | None:
        """Explain ``epoch`` in the explaining process; None if a later one has been planned."""
        try:
            plan = self.process.hand_over(epoch)
            return None if plan is None else self.explainer.explain(plan)
        except PlannerError as cause:
            _LOG.error("an epoch can't be explained", epoch=epoch, error=repr(cause))
            return Explanation.missing(f"the explanation failed: {cause.message}")

    async def _weigh(self, found: Registered, proposed: PlannedEpoch, seen: Approvals) -> Weighed:
        """Choose the plan to publish under manual approval."""
        store, running, approved = self.store, None, None
        if found.running is not None:
            number = found.running.epoch
            name = RulesetId(number, max(await store.revision_numbers(number), default=0))
            text = await store.ruleset(name)
            if text is None:
                raise CorruptRecord(
                    "corrupt-registry",
                    f"the running ruleset {name} is missing",
                    remedy="another program removed it from Redis; set approval to automatic",
                )
            running = KeptPlan(found.running, text)
        held = await store.held_plan() if seen.is_approved else None
        if held is not None:
            approved = KeptPlan(*held)
        return await asyncio.to_thread(
            weigh, found, proposed, running, seen, approved, store.forms, self.clock()
        )

    async def _share(self, found: Registered, publication: Publication) -> Registered:
        """Decide which stores new queries share; returns ``found`` with the decisions."""
        decided = await asyncio.to_thread(decide_sharing, found, self.store.forms)
        if not decided:
            return found
        wanted = []
        for record in found.wanted:
            shared = decided.get(record.id)
            if shared is None:
                wanted.append(record)
                continue

            change = partial(shared.on, seen=record)
            written = await publication.query(record.id, change, planned=True)
            wanted.append(record if written is None else written)
        return replace(found, wanted=wanted)

    async def _rations_first(self, found: Registered) -> bool:
        """Whether to publish a schedule of rations (shares of probing tuples under overload) from
        estimates, before the first measurements. Not in a replay, which has no deadline."""
        live = self.settings.mode is Mode.LIVE
        wanted = live and may_ration(found.options, found.mode)
        return wanted and await self.store.rations() is None

    async def _ration(
        self, planned: PlannedEpoch, found: Registered, publication: Publication
    ) -> None:
        """Publish a schedule of rations from the cost model's estimates."""
        names = {registered(query.id) for query in planned.queries}
        records = [record for record in found.queries if record.id in names]
        priorities = {record.id: record.priority for record in records}
        slos = {record.id: record.slo for record in records}
        try:
            schedule = await asyncio.to_thread(expected_schedule, planned, priorities, slos)
        except Exception as cause:  # noqa: BLE001 - logged; the epoch is published without it
            _LOG.error("no schedule of rations", reason=repr(cause), exc_info=cause)
            return
        if schedule is not None:
            await publication.rations(schedule)

    def _planned(
        self, found: Registered, epoch: int, prepare: Callable[[PlanTask], _Made]
    ) -> tuple[Registered, _Made]:
        """Plan the registered queries, in a thread. If the newest run of a query is rejected, its
        previous run is planned instead."""
        rejected: dict[str, ProblemRecord] = {}
        while True:
            prepared = prepare(self._task(found, epoch))
            places = {query_of(name) for name in prepared.rejected.keys() - rejected.keys()}
            rejected |= prepared.rejected
            staying: dict[str, QueryRecord] = {}
            for one in found.replaced:
                if query_of(one.id) in places and one.id not in rejected:
                    staying.setdefault(query_of(one.id), one)
            if not staying:
                return found, prepared.rejecting(rejected)
            others: list[QueryRecord] = [q for q in found.wanted if q.id not in rejected]
            found = replace(found, wanted=[*others, *staying.values()])

    def _task(self, found: Registered, epoch: int) -> PlanTask:
        task = plan_task(found, self.store.forms, self.settings.planning.solve_seconds)
        return replace(task, epoch=epoch).on_terms_of(found.wanted)

    def _checked(self, task: PlanTask) -> PlannedEpoch:
        """Plan in this process, and validate the plan."""
        planned = self.plan(task)
        validate_plan(planned.plan, planned.queries)
        return planned

    def _prepare_apart(self, after: int | None, task: PlanTask) -> Sealed:
        """Plan in the planner's process; ``after``: the newest published epoch."""
        rests = self.settings.mode is Mode.LIVE
        found = self.process.prepare(task, self.clock(), after, rests=rests)
        if found is None:
            raise _RunningWanted
        return found

    async def _carry_over(self, epoch: int, cause: Exception) -> tuple[EpochRecord, str] | None:
        """Return the newest published plan, renumbered as ``epoch``, after planning has failed."""
        old = await self.store.newest_epoch(before=epoch)
        text = None if old is None else await self.store.ruleset(old.epoch)
        if old is None or text is None:
            return None
        _LOG.error("planning failed, rules go on", epoch=epoch, earlier=old.epoch, exc_info=cause)
        ruleset = replace(wire.loads(text), epoch=epoch)
        text, digest = dump_ruleset(ruleset)
        reason = f"planning failed ({cause!r}); the rules of epoch {old.epoch} go on"
        changes = {
            "epoch": epoch,
            "published_at": self.clock(),
            "fallback": reason,
            "rejected": {},
            "switching_cost": 0.0,
            "ruleset_digest": digest,
            "diff": None,
            "diff_reason": reason,
            "explained": True,
        }
        if old.shares is None:
            changes["shares"] = SharesRecord.missing(reason)
        return EpochRecord.model_validate(dict(old) | changes), text

    async def _settle(self, epoch: EpochRecord, publication: Publication) -> None:
        """Write the effects of a published epoch into the query records: first and last epoch,
        rejection or withdrawal. Idempotent."""
        included = set(epoch.queries)
        for query in await self.store.queries():
            if settled(query, epoch.epoch, query.id in included, epoch.rejected) is not query:
                await publication.query(
                    query.id,
                    lambda q: settled(q, epoch.epoch, q.id in included, epoch.rejected),
                    planned=True,
                )
        now = self.clock()
        await self.store.delete_unread(await self.store.known_queries(now, self.settings.mode))
        for query in overtaken(await self.store.queries(), now):
            await publication.query(
                query.id, lambda q: q.model_copy(update={"removed_at": q.removed_at or now})
            )

    def _measure(self, record: EpochRecord) -> None:
        self.metrics.published.inc()
        self.metrics.rejected.inc(len(record.rejected))
        self.metrics.solve.labels(record.optimizer).observe(record.solve_ms / 1000)


class _RunningWanted(Exception):
    """Raised if the running epoch must be sent to the planner's process, which did not plan it."""


def settled(
    query: QueryRecord, epoch: int, included: bool, rejected: Mapping[str, ProblemRecord]
) -> QueryRecord:
    """Update the record ``query`` after the publication of ``epoch``: its first epoch, its last
    epoch (before the first later epoch without it), and the reason for its rejection. Returns the
    same object if nothing changes.

    Args:
        included: whether the epoch's plan includes the query.
    """
    changes: dict[str, object] = {}
    if included:
        if query.first_epoch is None or epoch < query.first_epoch:
            changes["first_epoch"] = epoch
    elif query.first_epoch is not None and epoch > query.first_epoch:
        last = epoch - 1
        if query.last_epoch is None or last < query.last_epoch:
            changes["last_epoch"] = last
    if query.id in rejected and query.rejected is None:
        changes["rejected"] = rejected[query.id]
    return query.model_copy(update=changes) if changes else query


def _snapshot(boundary: Boundary) -> Snapshot | None:
    try:
        return read_snapshot(boundary)
    except CorruptRecord as cause:
        _LOG.error("unreadable statistics ignored", epoch=boundary.epoch, reason=cause.message)
        return None
