"""Bodies of ``/v1/epochs``, ``/v1/batches`` and ``/v1/plan/held``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from anabranch_contract.plans.rations import Overload
from anabranch_contract.rest.documents import Closed, Document, Open, Time
from anabranch_contract.rest.planning.insight import DiffRecord, ReasonsRecord
from anabranch_contract.rest.planning.plans import ExplainedPlan, PlanFigures


class PublishedEpoch(Closed, ExplainedPlan):
    """One published epoch: plan, reasons and cost. It is immutable, except for figures that are
    computed after publication if there are many queries.

    Attributes:
        epoch: number of the epoch, from 0.
        published_at: time of its publication.
        ruleset_digest: digest of its ruleset's text.
        explained: whether shares, difference, reasons and standalone costs are computed.
        same_as: the earlier epoch with the same plan and rules, if nothing has changed since then;
            None: the plan is new.
        rejected: queries that could not be planned for this epoch.
        shares: the queries' cost shares; None: not computed yet. If their computation failed, they
            are empty, with the reason in ``note``. ``diff``: difference from the epoch published
            before.
    """

    epoch: int
    published_at: Time
    ruleset_digest: str
    explained: bool = True
    same_as: int | None = None


class EpochOut(PublishedEpoch):
    """A published epoch.

    Attributes:
        first_batch: its first batch; null before it starts, and again after 1024 later epochs.
    """

    first_batch: int | None


class ChangeCounts(Document):
    """Numbers of steps and stores in which a plan differs from the previous plan.

    Attributes:
        steps_added: number of probe steps that only the new plan has.
        steps_removed: number of probe steps that only the previous plan has.
        stores_built: number of store copies that only the new plan has.
        stores_dropped: number of store copies that only the previous plan has.
    """

    steps_added: int
    steps_removed: int
    stores_built: int
    stores_dropped: int


class KeptSummary(PlanFigures):
    """Summary of an epoch for lists, stored in addition to its record.

    Attributes:
        epoch: number of the epoch, from 0.
        published_at: time of its publication.
        fallback: empty, or why another optimiser than the chosen one made the plan.
        switching_cost: penalty for new steps and stores, in addition to ``cost`` and in its unit.
        plan: a digest of the queries, the steps and the stores; equal for equal plans.
        changes: counts of changes from the previous published epoch; None: it is the first.
    """

    epoch: int
    published_at: Time
    fallback: str
    switching_cost: float
    plan: str | None = None
    changes: ChangeCounts | None = None


class EpochSummary(KeptSummary):
    """Summary of an epoch in the list of epochs.

    Attributes:
        first_batch: its first batch; null before it starts, and again after 1024 later epochs.
        revisions: number of revisions of the epoch's ruleset.
        query_count: number of ``queries``, also where the detail ``summary`` leaves them out.
        queries_added: runs of queries that the plan published before does not answer; all of them
            in the first epoch.
        queries_removed: runs of queries that only the plan published before answers.
    """

    first_batch: int | None
    revisions: int = 0
    query_count: int = 0
    queries_added: list[str] = Field(default=[])
    queries_removed: list[str] = Field(default=[])


class EpochList(Document):
    """A page of epochs, newest first; pass ``next_cursor`` as ``cursor``.

    Attributes:
        items: the epochs of the page.
        next_cursor: ``cursor`` of the next page; null: this is the last page.
    """

    items: list[EpochSummary]
    next_cursor: str | None


class EpochDiffOut(Document):
    """Difference between the plans of one published epoch and of another (``diff.epoch``), with the
    reasons.

    Attributes:
        epoch: number of the epoch.
        queries_added: queries that only the plan of ``epoch`` has.
        queries_removed: queries that only the other plan has.
        settings: setting with different values -> its value in the other epoch, and in ``epoch``.
        diff: difference of the plan of ``epoch`` from the other; null: one plan is unknown.
        diff_reason: reason why ``diff`` is null; else empty.
        reasons: savings by shared elements and by intermediate results in ``epoch``, as of its
            publication; null: not computed.
    """

    epoch: int
    queries_added: list[str]
    queries_removed: list[str]
    settings: dict[str, tuple[str, str]]
    diff: DiffRecord | None
    diff_reason: str
    reasons: ReasonsRecord | None


class RationingOut(Document):
    """Load shedding by the runtime (``docs/semantics.md``, "Rations").

    Attributes:
        policy: policy for input that exceeds the machine's capacity.
        budget: share of rationed probes' CPU time that the next batch may take.
        needed: time of all work without rations, as a share of the available time; above 1 the
            machine is too slow for its input. 0: unknown.
        overloaded: whether the last batch withheld results.
        latency: promised seconds from arrival to results; null: no promise.
        owed: number of batches whose withheld results will be computed later.
    """

    policy: Open[Overload]
    budget: float
    needed: float
    overloaded: bool
    latency: float | None
    owed: int = 0


class RuntimeOut(Document):
    """Progress of the runtime, as last reported to the service.

    Attributes:
        state: last reported state: ``starting``, ``running``, ``idle``, ``stopped`` or ``failed``.
        stale: whether no heartbeat has come for 10 seconds, so ``state`` may be out of date.
        committed: number of batches committed so far, which is the number of the next batch.
        epoch: epoch of the last committed batch; -1: none yet.
        batch_seconds: duration of the last batch, in seconds.
        processing_seconds: total duration of all batches so far, in seconds.
        state_bytes: size of the stored rows, in bytes.
        input_tuples: number of rows read so far, rejected ones included.
        late_tuples: number of tuples rejected as late so far.
        ahead_tuples: number of tuples rejected so far because their event time was too far in the
            future.
        exhausted: whether every recorded source has been read to its end.
        error: error that stopped the runtime; null: none.
        backfill: store whose past is being computed from stored rows -> completed share (0 to 1).
        waiting_tuples: approximate number of rows that have arrived and are unread, of streams that
            the runtime reads itself.
        row_limit: maximum number of rows of these streams in the next batch; null: no limit.
        private_bytes: peak private memory of the last batch, sum over its tasks, in bytes.
        memory_limit: upper limit of ``private_bytes``; null: no limit.
        source_errors: stream that can't be read at present -> the reason.
        unread_pieces: stream -> number of unreadable parts of its input.
        rationing: state of load shedding; null: the runtime has not reported it.
        standby: host of a runtime that is ready to take over; null: there is none.
    """

    state: str
    stale: bool
    committed: int
    epoch: int
    batch_seconds: float
    processing_seconds: float
    state_bytes: int
    input_tuples: int
    late_tuples: int
    ahead_tuples: int
    exhausted: bool
    error: str | None
    backfill: dict[str, float]
    waiting_tuples: int
    row_limit: int | None
    private_bytes: int
    memory_limit: int | None
    source_errors: dict[str, str]
    unread_pieces: dict[str, int]
    rationing: RationingOut | None = None
    standby: str | None = None


class SavingOut(Document):
    """Estimated CPU time saved by the running joint plan, compared with one plan per query.

    Both times are estimated with cost constants fitted to measurements, over the epochs that have
    run this plan in the last ten minutes. A negative share means that the joint plan takes more.

    Attributes:
        since: time at which the first of these epochs was published.
        seconds: seconds since then.
        epochs: number of these epochs.
        cpu_seconds: CPU seconds of the joint plan.
        individual_cpu_seconds: CPU seconds of one plan per query.
        share: saved share of ``individual_cpu_seconds``.
        lowest: least saved share of a single epoch.
        highest: greatest saved share of a single epoch.
    """

    since: Time
    seconds: float
    epochs: int
    cpu_seconds: float
    individual_cpu_seconds: float
    share: float
    lowest: float
    highest: float


class CurrentEpoch(Document):
    """The running epoch, and the published epoch whose rules it uses.

    Attributes:
        running: number of the running epoch; -1: no batch has been committed yet.
        epoch: the published epoch whose rules it uses.
        runtime: progress of the runtime; null: it has not reported yet.
        saving: estimated saving of CPU time; null until it can be estimated.
    """

    running: int
    epoch: EpochOut
    runtime: RuntimeOut | None
    saving: SavingOut | None = None


class PhaseOut(Document):
    """Duration of one phase of a batch.

    Attributes:
        name: name of the phase.
        milliseconds: duration of the phase, in milliseconds.
    """

    name: str
    milliseconds: int


class BatchOut(Document):
    """A committed batch.

    Attributes:
        batch: number of the batch, from 0.
        epoch: number of its epoch.
        ruleset: ruleset of the batch: its epoch, with the number of a revision.
        committed_at: time of its commit.
        milliseconds: its duration in milliseconds, the sum of ``phases``.
        tuples: number of tuples read.
        results: number of results of all queries; for views, of joined rows.
        tasks: number of tasks.
        slowest: number of the task that worked longest, without waiting.
        skew: working time of the slowest task over the mean of all tasks, without waiting; null: no
            task did any work.
        hosts: number of hosts that ran tasks; 1 if tasks share a state directory.
        sent: number of tuples and stored rows sent between hosts.
        sent_bytes: size of these tuples and rows in bytes.
        phases: its phases, without phases of 0 milliseconds: ``begin`` (the driver, before Spark's
            job), the phases of the slowest task (``read``, ``store``, ``wait`` for other tasks,
            ``probe``, ``catch-up``, ``write``, ``backfill``, ``upload``), ``spark`` (rest of the
            job: starting tasks, collecting their reports), ``commit``.
    """

    batch: int
    epoch: int
    ruleset: str
    committed_at: Time
    milliseconds: int
    tuples: int
    results: int
    tasks: int
    slowest: int
    skew: float | None
    hosts: int = 1
    sent: int = 0
    sent_bytes: int = 0
    phases: list[PhaseOut]


class BatchList(Document):
    """The newest batches, oldest first.

    Attributes:
        items: the batches.
    """

    items: list[BatchOut]


#: State of a held plan. An ``approved`` plan is published at the next epoch boundary.
HeldState = Literal["waiting", "approved", "refused"]


class HeldPlanOut(Document):
    """A plan that differs from the running one and waits for an operator's approval.

    Attributes:
        state: ``waiting``; ``approved``: it is published at the next epoch boundary; or
            ``refused``.
        version: ETag of the plan, for If-Match.
        since: time from which on this plan or an earlier one has been waiting.
        proposed_at: time of this plan's last proposal.
        epoch: number of the epoch for which it was last proposed.
        waiting: queries that can't begin before the approval.
        cost_before: cost of the newest published plan, in the unit of the objective; null: it can't
            be estimated.
        cost_after: cost of this plan under the same statistics; null: it can't be estimated.
        note: why the previously approved plan was not published; empty: there was none.
        change: difference from the newest published plan, both priced by the newest statistics.
    """

    state: Open[HeldState]
    version: str
    since: Time
    proposed_at: Time
    epoch: int
    waiting: list[str]
    cost_before: float | None
    cost_after: float | None
    note: str
    change: EpochDiffOut
