"""Decision on revising a ruleset, from the newest measurements. Pure functions.

A revision (new probe orders over the same stores, within an epoch) is published if, under current
statistics, its relative saving exceeds the setting ``revision_gain`` plus the mean error of earlier
predictions, and its saving exceeds the cost of the indexes that its probes need. While probes are
rationed, both plans are priced with the rations. A change of probe orders that made rows costlier
(:mod:`.gains`) is reverted, and not tried again until the next drift.

The recorded prediction compares with the ruleset that ran in the newest period, as the measurement
does. A revision of a future epoch replaces a ruleset that has never run; whether it is published
depends on its saving over that one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from anabranch_contract.plans.plan import Objective
from anabranch_contract.plans.rations import Ration
from anabranch_contract.plans.ruleset import Ruleset, Substreams
from anabranch_contract.plans.steps import orders_digest
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import Label
from anabranch_contract.rest.planning.revisions import RevisionReason
from anabranch_contract.rest.planning.settings import PlanningSettings
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.plans.decisions import footprint_document
from anabranch_planner.replan.revise import Revised, RevisionRequest, compared_with, restore, revise
from anabranch_planner.replan.running import RunningPlan
from anabranch_planner.solvers.deadline import Deadline
from anabranch_service.planning.costs import FITTED, timed
from anabranch_service.planning.options import planner_options
from anabranch_service.planning.rates import foreseen
from anabranch_service.planning.replanning.gains import ENOUGH, OrderChange
from anabranch_service.planning.replanning.periods import Measured, recent
from anabranch_service.planning.widths import with_exchange
from anabranch_service.registry.records import KeptRevision

#: Time limit in seconds of the search for a revision: rarely reached, and long enough that the
#: integer program is solved as a whole, which for 100 queries is faster than local search.
SECONDS = 2.0
#: The same in step mode: so long that even a busy machine does not reach it, since a replay must
#: have the same result each time.
STEP_SECONDS = 60.0
#: Number of earlier revisions whose predicted and measured gains are compared.
COMPARED = 5


@dataclass(frozen=True, slots=True)
class RevisionInput:
    """Input of a decision: the newest measurements and the ruleset to revise.

    Attributes:
        periods: consecutive measurement periods, the newest last.
        length: number of periods that forecasts use.
        snapshot: statistics of the last ended epoch; None: no epoch has ended, so no revisions.
        running: the ruleset to revise, and its plan.
        records: earlier revisions in the epochs of ``periods``, since the newest drift, in order.
        newest: number of the newest published revision of the epoch.
        now: time of publication of the revision. ``mode``: mode of the service; in step mode the
            decision does not depend on measured times.
        rations: rations below 1 in the newest batch.
        change: the newest change of probe orders, with its measured gain; None: not measured.
        changed: the revision that made ``change``, with its newly measured gain; None: an epoch's
            plan made it, or the gain was known.
        earlier: the ruleset to restore if ``change`` made rows costlier, or if ``running`` is for a
            future epoch with orders that have failed.
        failed: digests of probe orders that made rows costlier; they are not tried again.
        upcoming: whether the epoch has not begun, so that another ruleset ran in the newest period.
        ran: the plan of that other ruleset, if it has the same queries; else None.
        counted: the substreams (by key values) whose tuples were counted in the newest period.
    """

    periods: tuple[Measured, ...]
    length: int
    snapshot: Snapshot | None
    running: RunningPlan
    options: PlanningSettings
    records: tuple[KeptRevision, ...]
    newest: int
    now: datetime
    mode: Mode
    rations: tuple[Ration, ...] = ()
    change: OrderChange | None = None
    changed: KeptRevision | None = None
    earlier: Ruleset | None = None
    failed: frozenset[str] = frozenset()
    upcoming: bool = False
    ran: RunningPlan | None = None
    counted: tuple[Substreams, ...] = ()

    @property
    def rationed(self) -> dict[tuple[str, Label], float]:
        """Rations for pricing a revision, by query and alias. Empty unless the last :data:`ENOUGH`
        periods were all rationed: a short overload must not change the choice of stores."""
        newest = self.periods[-ENOUGH:]
        if len(newest) < ENOUGH or not all(period.interim.rationed for period in newest):
            return {}
        return {(r.query, r.start): r.share for r in self.rations}

    @property
    def timed(self) -> bool:
        """Whether gains are measured in CPU seconds rather than tuples."""
        return self.options.objective is Objective.SECONDS and self.mode is Mode.LIVE


@dataclass(frozen=True, slots=True)
class Decision:
    """Outcome of :func:`decide`.

    Attributes:
        measured: record of the running revision, if its gain is newly measured.
        ruleset: the revision to publish; None: none. ``record``: its record, without digest.
    """

    measured: KeptRevision | None = None
    ruleset: Ruleset | None = None
    record: KeptRevision | None = None


def decide(asked: RevisionInput) -> Decision:
    """Record the measured gain of the last change of probe orders, and decide on a revision.

    Raises:
        PlannerError: the running ruleset does not match the queries.
    """
    change, measured = asked.change, asked.changed
    if asked.options.revision_gain is None or asked.snapshot is None:
        return Decision(measured)
    found = None
    if asked.upcoming and asked.earlier is not None:
        found = _restored(asked, asked.earlier, RevisionReason.CARRIED_OVER)
    elif change is not None and change.gain.lost and asked.earlier is not None:
        found = _restored(asked, asked.earlier, RevisionReason.TAKEN_BACK)
    return replace(found or _cheaper(asked), measured=measured)


def _error(records: Sequence[KeptRevision]) -> float:
    """Return the mean absolute error of earlier predicted gains; 0: none was measured.

    A negative measured gain counts as 0: that revision is reverted, which should not prevent
    others.
    """
    gains = [r.measured for r in records if r.measured is not None]
    off = [abs(g.predicted - max(g.gain, 0.0)) for g in gains if g.predicted is not None]
    last = off[-COMPARED:]
    return sum(last) / len(last) if last else 0.0


def _restored(asked: RevisionInput, earlier: Ruleset, reason: RevisionReason) -> Decision | None:
    """Return a revision to the probe orders of ``earlier``; None if their stores are gone."""
    started, request = time.perf_counter(), _revision_request(asked)
    found = restore(request, earlier)
    if found is None or (found.footprint == asked.running.footprint and not asked.upcoming):
        return None
    record = _revision_record(asked, _compared(asked, request, found), reason, started)
    if reason is RevisionReason.TAKEN_BACK and asked.change is not None:
        undone = orders_digest(asked.running.ruleset)
        record = record.model_copy(update={"undoes": asked.change.gain, "undone": undone})
    return Decision(None, found.ruleset, record)


def _expected(asked: RevisionInput, snapshot: Snapshot) -> Statistics:
    interims = [period.interim for period in asked.periods]
    now = recent(snapshot, asked.periods)
    coming = foreseen(now, [one.arrived for one in interims], Mode.LIVE, asked.length)
    found = timed(coming, now, interims[-FITTED:] if asked.timed else [], asked.options)
    streams = {str(stream.name): stream for stream in asked.running.ruleset.streams}
    queries = asked.running.queries
    return with_exchange(found, snapshot.on_hosts, queries, streams, {}, snapshot.locality)


def _revision_request(asked: RevisionInput) -> RevisionRequest:
    options = asked.options
    assert asked.snapshot is not None  # checked by the caller
    seconds = SECONDS if asked.mode is Mode.LIVE else STEP_SECONDS
    return RevisionRequest(
        statistics=_expected(asked, asked.snapshot),
        running=asked.running,
        number=asked.newest + 1,
        options=planner_options(options, Deadline(time.monotonic, seconds=seconds)),
        switching=options.switching,
        counted=asked.counted,
        rations=asked.rationed,
    )


def _cheaper(asked: RevisionInput) -> Decision:
    started, request = time.perf_counter(), _revision_request(asked)
    options = asked.options
    assert options.revision_gain is not None  # checked by the caller
    found = revise(request)
    if found is None or found.gain < options.revision_gain + _error(asked.records):
        return Decision()
    if options.switching * found.indexing > found.running_cost - found.plan.cost:
        return Decision()
    if orders_digest(found.ruleset) in asked.failed:
        return Decision()
    reason = RevisionReason.CARRIED_OVER if asked.upcoming else RevisionReason.CHEAPER
    found = _compared(asked, request, found)
    return Decision(None, found.ruleset, _revision_record(asked, found, reason, started))


def _compared(asked: RevisionInput, request: RevisionRequest, found: Revised) -> Revised:
    return found if asked.ran is None else compared_with(request, found, asked.ran)


def _revision_record(
    asked: RevisionInput, found: Revised, reason: RevisionReason, started: float
) -> KeptRevision:
    baseline = (asked.ran or asked.running).ruleset
    return KeptRevision(
        epoch=found.ruleset.epoch,
        revision=found.ruleset.revision,
        revises=asked.running.ruleset.revision,
        published_at=asked.now,
        reason=reason,
        next_batch=asked.periods[-1].interim.next_batch,
        drifted=asked.periods[-1].interim.drifted.shown(),
        cost=found.plan.cost,
        running_cost=found.running_cost,
        predicted=found.gain,
        baseline=str(baseline.id),
        closed=found.closed,
        unindexed=tuple(
            f"{store}({', '.join(ref.attribute for ref, _ in index)})"
            for store, index in found.unindexed
        ),
        plan_ms=(time.perf_counter() - started) * 1000,
        method=found.plan.method,
        rationed=bool(asked.rationed),
        footprint=footprint_document(found.footprint),
        orders=orders_digest(found.ruleset),
        replaced=orders_digest(baseline),
    )
