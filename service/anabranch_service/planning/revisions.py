"""Whether the running ruleset is revised, by the newest measurements: pure, so it runs in a thread.

A revision is published where it saves a stated share of what the running plan costs, under the
statistics of now, beyond what earlier predictions were off by; and where that is more than indexing
what its probes need. While probes are rationed both cost what the tuples take that are probed with.
Its effect is measured from the periods before it and those that go by it.
One that costs more than what it replaced is taken back, and the epoch's rules stay then.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from anabranch_contract.plans.plan import LookingAhead, Objective
from anabranch_contract.plans.rations import Ration
from anabranch_contract.plans.ruleset import Ruleset, RulesetId, Substreams
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import Label
from anabranch_contract.rest.revisions import GainRecord, RevisionReason
from anabranch_planner.cost.footprint import to_json
from anabranch_planner.cost.statistics import Statistics
from anabranch_planner.plans.optimise import Options
from anabranch_planner.plans.revise import RevisionRequest, revise
from anabranch_planner.plans.running import RunningPlan, running_plan
from anabranch_planner.solvers.deadline import Deadline
from anabranch_service.planning.costs import FITTED, timed
from anabranch_service.planning.periods import Measured, recent
from anabranch_service.planning.rates import AHEAD, foreseen
from anabranch_service.planning.widths import with_exchange
from anabranch_service.registry.records import KeptRevision, PlanningRecord

#: Periods that a measured effect needs on either side.
ENOUGH = 2
#: By how much a revision may seem to cost more before it is taken back: what arrives differs from
#: period to period.
NOISE = 0.05
#: Seconds that the search for a revision may take. It hardly ever does: with so much time ahead the
#: program is solved as a whole, which for 100 queries takes less than local search does.
SECONDS = 2.0
#: The same in step mode, where the runtime waits and a replay must repeat: no deadline that a busy
#: machine would reach.
STEP_SECONDS = 60.0
#: Earlier revisions whose predictions are compared with their measured effects.
COMPARED = 5


@dataclass(frozen=True, slots=True)
class Question:
    """The newest measurements, and the ruleset that they were made by.

    Attributes:
        periods: consecutive ones, the newest last. In a replay they are of batches, so rates are
            forecast from them there, too.
        length: how many periods are asked for.
        snapshot: the statistics of the last epoch that ended; None: none has, and nothing is
            revised.
        running: the ruleset to revise, and its plan. ``before``: the ruleset that it revises.
        upcoming: whether its epoch has not begun; the newest period is by another ruleset then.
        counted: how tuples were told apart in the newest period.
        records: the revisions of its epoch, oldest first.
        newest: the number of the newest revision that was published, taken or not.
        rations: those of the newest batch, of goals that do not get everything.
        now: when a revision that follows is published.
        mode: of the service; in step mode nothing depends on measured times.
    """

    periods: tuple[Measured, ...]
    length: int
    snapshot: Snapshot | None
    running: RunningPlan
    before: Ruleset | None
    options: PlanningRecord
    records: tuple[KeptRevision, ...]
    newest: int
    now: datetime
    mode: Mode
    rations: tuple[Ration, ...] = ()
    upcoming: bool = False
    counted: tuple[Substreams, ...] = ()

    @property
    def rationed(self) -> dict[tuple[str, Label], float]:
        """The rations that a revision is priced under: none unless probes have been rationed for
        some periods, so that no short peak closes an intermediate result.
        """
        newest = self.periods[-ENOUGH:]
        if len(newest) < ENOUGH or not all(period.interim.rationed for period in newest):
            return {}
        return {(r.query, r.start): r.share for r in self.rations}

    @property
    def timed(self) -> bool:
        """Whether costs are measured seconds rather than tuples."""
        return self.options.objective is Objective.SECONDS and self.mode is Mode.LIVE


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a question.

    Attributes:
        measured: the running revision, once its effect has been measured just now.
        ruleset: the revision to publish; None: the rules stay. ``record``: without its digest.
    """

    measured: KeptRevision | None = None
    ruleset: Ruleset | None = None
    record: KeptRevision | None = None


def decide(asked: Question) -> Decision:
    """Measure the effect of the running revision, and decide on another.

    Raises:
        PlannerError: the queries are not those of the running ruleset any more.
    """
    measured = _measured(asked)
    records = tuple(
        measured if measured and r.revision == measured.revision else r for r in asked.records
    )
    taken_back = any(r.reason == RevisionReason.TAKEN_BACK for r in records)
    if taken_back or asked.options.revision_gain is None:
        return Decision(measured)
    gain = measured.measured.gain if measured and measured.measured else 0.0
    if gain < -NOISE and measured and asked.before is not None and not measured.closed:
        return _taken_back(asked, asked.before, measured)
    return replace(_cheaper(asked, records), measured=measured)


def effect(
    interims: Sequence[Interim], before: RulesetId, after: RulesetId, *, timed: bool = False
) -> GainRecord | None:
    """The work per arriving tuple by one ruleset and by its revision; None: not measured enough.

    Work is probes and matches, or (``timed``) CPU seconds of steps and inserts.

    A period in which a ruleset was replaced counts for neither, nor does one in which probes were
    rationed, or one before the newest drift: other data cost otherwise by any rules. The period
    that begins with a drift is enough for the rules that went before, because it ends early and is
    what the revision answers.
    """
    by: list[list[tuple[float, int]]] = [[], []]
    enough = ENOUGH
    for last, interim in pairwise(interims):
        if interim.drifted:
            by, enough = [[], []], 1
        name = RulesetId(interim.ruleset_epoch, interim.revision)
        if (last.ruleset_epoch, last.revision, last.epoch) != (*name, interim.epoch):
            continue
        arrived = sum(interim.arrivals.values())
        if arrived and name in (before, after) and not interim.rationed:
            by[name == after].append((_work(interim, timed=timed), arrived))
    if len(by[0]) < enough or len(by[1]) < ENOUGH:
        return None
    old, new = (sum(w for w, _ in side) / sum(n for _, n in side) for side in by)
    gain = 1 - new / old if old else 0.0
    return GainRecord(before=old, after=new, gain=gain, periods=len(by[1]))


def _work(interim: Interim, *, timed: bool) -> float:
    if timed:
        return interim.inserts.seconds + sum(s.counts.seconds for s in interim.steps)
    return sum(s.counts.probes + s.counts.matches for s in interim.steps)


def _measured(asked: Question) -> KeptRevision | None:
    """The record of the running revision with its effect, where that has not been known before."""
    running = asked.running.ruleset.id
    record = next((r for r in asked.records if r.revision == running.revision), None)
    if record is None or record.measured is not None:
        return None
    before = RulesetId(running.epoch, record.revises)
    found = effect([p.interim for p in asked.periods], before, running, timed=asked.timed)
    return None if found is None else record.model_copy(update={"measured": found})


def _error(records: Sequence[KeptRevision]) -> float:
    """By how much predictions were off, on average; 0 where none was measured."""
    off = [abs(r.predicted - r.measured.gain) for r in records if r.measured is not None]
    last = off[-COMPARED:]
    return sum(last) / len(last) if last else 0.0


def _taken_back(asked: Question, before: Ruleset, measured: KeptRevision) -> Decision:
    """The rules that the running revision has replaced, once more."""
    indexes = {s.id: s.indexes for s in asked.running.ruleset.stores}
    stores = tuple(
        replace(s, indexes=tuple(sorted({*s.indexes, *indexes[s.id]}))) for s in before.stores
    )
    number = asked.newest + 1
    record = KeptRevision(
        epoch=measured.epoch,
        revision=number,
        revises=measured.revision,
        published_at=asked.now,
        reason=RevisionReason.TAKEN_BACK,
        next_batch=asked.periods[-1].interim.next_batch,
        drifted=asked.periods[-1].interim.drifted.shown(),
        cost=measured.running_cost,
        running_cost=measured.cost,
        predicted=-measured.measured.gain if measured.measured else 0.0,
        method="as before",
        footprint=to_json(running_plan(before, asked.running.queries).footprint),
    )
    return Decision(measured, replace(before, revision=number, stores=stores), record)


def _expected(asked: Question, snapshot: Snapshot) -> Statistics:
    interims = [period.interim for period in asked.periods]
    now = recent(snapshot, asked.periods)
    coming = foreseen(now, [one.arrived for one in interims], AHEAD[Mode.LIVE], asked.length)
    found = timed(coming, now, interims[-FITTED:] if asked.timed else [], asked.options)
    streams = {str(stream.name): stream for stream in asked.running.ruleset.streams}
    queries = asked.running.queries
    return with_exchange(found, snapshot.on_hosts, queries, streams, {}, snapshot.locality)


def _cheaper(asked: Question, records: Sequence[KeptRevision]) -> Decision:
    started = time.perf_counter()
    options, rations = asked.options, asked.rationed
    assert options.revision_gain is not None  # asked by the caller
    if asked.snapshot is None:
        return Decision()
    found = revise(
        RevisionRequest(
            statistics=_expected(asked, asked.snapshot),
            running=asked.running,
            number=asked.newest + 1,
            options=Options(
                optimizer=options.optimizer,
                objective=options.objective,
                solver=options.solver,
                look_ahead=options.look_ahead is LookingAhead.AUTO,
                deadline=Deadline(
                    time.monotonic,
                    seconds=SECONDS if asked.mode is Mode.LIVE else STEP_SECONDS,
                ),
            ),
            switching=options.switching,
            counted=asked.counted,
            rations=rations,
        )
    )
    if found is None or found.gain < options.revision_gain + _error(records):
        return Decision()
    if options.switching * found.indexing > found.running_cost - found.plan.cost:
        return Decision()
    record = KeptRevision(
        epoch=found.ruleset.epoch,
        revision=found.ruleset.revision,
        revises=asked.running.ruleset.revision,
        published_at=asked.now,
        reason=RevisionReason.CARRIED_OVER if asked.upcoming else RevisionReason.CHEAPER,
        next_batch=asked.periods[-1].interim.next_batch,
        drifted=asked.periods[-1].interim.drifted.shown(),
        cost=found.plan.cost,
        running_cost=found.running_cost,
        predicted=found.gain,
        closed=found.closed,
        unindexed=tuple(
            f"{store}({', '.join(ref.attribute for ref, _ in index)})"
            for store, index in found.unindexed
        ),
        plan_ms=(time.perf_counter() - started) * 1000,
        method=found.plan.method,
        rationed=bool(rations),
        footprint=to_json(found.footprint),
    )
    return Decision(None, found.ruleset, record)
