"""Whether the running ruleset is revised, by the newest measurements: pure, so it runs in a thread.

A revision is published where it saves a stated share of what the running plan costs, under the
statistics of now, beyond what earlier predictions were off by; and where that is more than indexing
what its probes need. Its effect is measured from the periods before it and those that go by it.
One that costs more than what it replaced is taken back, and the epoch's rules stay then.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from statistics import median

from anabranch_contract.plans.plan import Objective
from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.measurements import JoinSample, Snapshot
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.rest.revisions import GainRecord, RevisionReason
from anabranch_planner.cost.footprint import footprint, to_json
from anabranch_planner.cost.inferred import Inference, Step
from anabranch_planner.cost.selectivity import MIN_PROBES
from anabranch_planner.cost.statistics import Statistics
from anabranch_planner.plans.optimise import Options
from anabranch_planner.plans.revise import RevisionRequest, revise
from anabranch_planner.plans.running import plan_of
from anabranch_planner.solvers.deadline import Deadline
from anabranch_service.planning.costs import timed
from anabranch_service.planning.rates import foresee
from anabranch_service.registry.records import KeptRevision, PlanningRecord

#: Weight of a measurement against one that is a period of usual length younger, and against one
#: that is younger than a drift of steps.
FADE, DRIFTED = 0.7, 0.02
#: Periods that a measured effect needs on either side.
ENOUGH = 2
#: By how much a revision may seem to cost more before it is taken back: what arrives differs from
#: period to period.
NOISE = 0.05
#: Seconds that the search for a revision may take.
SECONDS = 0.2
#: Earlier revisions whose predictions are compared with their measured effects.
COMPARED = 5


@dataclass(frozen=True, slots=True)
class Question:
    """The newest measurements, and the ruleset that they were made by.

    Attributes:
        interims: consecutive periods, the newest last. ``texts``: their documents; in a replay
            periods are of batches, so rates are forecast from them there, too.
        length: how many periods are asked for.
        snapshot: the statistics of the last epoch that ended.
        running: the ruleset of the newest period. ``before``: the one that it revises.
        queries: those of ``running``.
        records: the revisions of its epoch, oldest first.
        newest: the number of the newest revision that was published, taken or not.
        now: when a revision that follows is published.
        mode: of the service; in step mode nothing depends on measured times.
    """

    interims: tuple[Interim, ...]
    texts: tuple[str, ...]
    length: int
    snapshot: Snapshot
    running: Ruleset
    before: Ruleset | None
    queries: tuple[JoinQuery, ...]
    options: PlanningRecord
    records: tuple[KeptRevision, ...]
    newest: int
    now: datetime
    mode: Mode

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
    if any(r.reason == RevisionReason.TAKEN_BACK for r in records):
        return Decision(measured)
    gain = measured.measured.gain if measured and measured.measured else 0.0
    if gain < -NOISE and measured and asked.before is not None and not measured.closed:
        return _taken_back(asked, asked.before, measured)
    return replace(_cheaper(asked, records), measured=measured)


def recent(
    snapshot: Snapshot, interims: Sequence[Interim], queries: Sequence[JoinQuery]
) -> Snapshot:
    """``snapshot`` with the steps that were measured lately as these periods have them.

    A measurement fades with the batches since, in units of the median period, and by much where
    steps have drifted since. A step that the rules of a period did not run may follow from larger
    ones (``cost.inferred``).
    """
    inference = Inference(queries)
    found: dict[Step, JoinSample] = {}
    usual = median([i.batches for i in interims if i.batches > 0] or [1])
    batches, drifts = 0, 0
    for interim in reversed(interims):
        weight = FADE ** (batches / usual) * DRIFTED**drifts
        batches += max(interim.batches, 0)
        drifts += bool(interim.drifted.steps)
        for sample in inference.extend(_samples(interim)):
            step = sample.joined, sample.head, sample.target
            old = found.get(step, JoinSample(*step, 0.0, 0.0, 0.0))
            found[step] = JoinSample(
                *step,
                old.probes + weight * sample.probes,
                old.pairs + weight * sample.pairs,
                old.hits + weight * sample.hits,
            )
    known = {(s.joined, s.head, s.target): s for s in snapshot.steps}
    lately = {s.joined for s in found.values() if s.probes >= MIN_PROBES}
    steps = {k: s for k, s in known.items() if s.joined not in lately}
    steps |= {k: s for k, s in found.items() if s.joined in lately}
    return replace(snapshot, steps=tuple(steps[key] for key in sorted(steps)))


def _samples(interim: Interim) -> list[JoinSample]:
    """The steps of a period; probes of what had nothing stored yet say nothing about hits."""
    return [
        JoinSample(s.joined, s.head, s.target, s.counts.probes, s.counts.pairs, s.counts.hits)
        for s in interim.steps
        if s.counts.pairs
    ]


def effect(
    interims: Sequence[Interim], before: RulesetId, after: RulesetId, *, timed: bool = False
) -> GainRecord | None:
    """The work per arriving tuple by one ruleset and by its revision; None: not measured enough.

    Work is probes and matches, or (``timed``) CPU seconds of steps and inserts.

    A period in which a ruleset was replaced counts for neither, nor does one before the newest
    drift: other data cost otherwise by any rules. The period that begins with a drift is enough for
    the rules that went before, because it ends early and is what the revision answers.
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
        if arrived and name in (before, after):
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
    running = asked.running.id
    record = next((r for r in asked.records if r.revision == running.revision), None)
    if record is None or record.measured is not None:
        return None
    before = RulesetId(running.epoch, record.revises)
    found = effect(asked.interims, before, running, timed=asked.timed)
    return None if found is None else record.model_copy(update={"measured": found})


def _error(records: Sequence[KeptRevision]) -> float:
    """By how much predictions were off, on average; 0 where none was measured."""
    off = [abs(r.predicted - r.measured.gain) for r in records if r.measured is not None]
    last = off[-COMPARED:]
    return sum(last) / len(last) if last else 0.0


def _taken_back(asked: Question, before: Ruleset, measured: KeptRevision) -> Decision:
    """The rules that the running revision has replaced, once more."""
    indexes = {s.id: s.indexes for s in asked.running.stores}
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
        next_batch=asked.interims[-1].next_batch,
        drifted=asked.interims[-1].drifted.shown(),
        cost=measured.running_cost,
        running_cost=measured.cost,
        predicted=-measured.measured.gain if measured.measured else 0.0,
        method="as before",
        footprint=to_json(footprint(plan_of(before, asked.queries), asked.queries)),
    )
    return Decision(measured, replace(before, revision=number, stores=stores), record)


def _expected(asked: Question) -> Statistics:
    now = recent(asked.snapshot, asked.interims, asked.queries)
    coming = foresee(now, asked.texts, Mode.LIVE, asked.length)
    return timed(coming, now, asked.texts, asked.options, asked.mode)


def _cheaper(asked: Question, records: Sequence[KeptRevision]) -> Decision:
    started = time.perf_counter()
    options = asked.options
    if options.revision_gain is None:
        return Decision()
    found = revise(
        RevisionRequest(
            queries=asked.queries,
            statistics=_expected(asked),
            running=asked.running,
            number=asked.newest + 1,
            options=Options(
                optimizer=options.optimizer,
                objective=options.objective,
                solver=options.solver,
                deadline=Deadline(time.monotonic, seconds=SECONDS),
            ),
            switching=options.switching,
        )
    )
    if found is None or found.gain < options.revision_gain + _error(records):
        return Decision()
    if options.switching * found.indexing > found.running_cost - found.plan.cost:
        return Decision()
    record = KeptRevision(
        epoch=asked.running.epoch,
        revision=found.ruleset.revision,
        revises=asked.running.revision,
        published_at=asked.now,
        reason=RevisionReason.CHEAPER,
        next_batch=asked.interims[-1].next_batch,
        drifted=asked.interims[-1].drifted.shown(),
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
        footprint=to_json(footprint(found.plan, asked.queries)),
    )
    return Decision(None, found.ruleset, record)
