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
        rejected: queries that could not be planned for this epoch.
        shares: the queries' cost shares; None: not computed yet. If that failed, they are empty,
            with the reason in ``note``. ``diff``: difference from the epoch published before.
        explained: whether shares, difference, reasons and standalone costs are computed.
        same_as: the earlier epoch with the same plan and rules, if nothing has changed since; None:
            the plan is new.
    """

    epoch: int
    published_at: Time
    ruleset_digest: str
    explained: bool = True
    same_as: int | None = None


class EpochOut(PublishedEpoch):
    """A published epoch. ``first_batch`` is null before the runtime starts the epoch, and again
    after 1024 later epochs.
    """

    first_batch: int | None


class ChangeCounts(Document):
    """Numbers of steps and stores that a plan adds to, and removes from, the previous plan."""

    steps_added: int
    steps_removed: int
    stores_built: int
    stores_dropped: int


class KeptSummary(PlanFigures):
    """Summary of an epoch for lists, stored besides its record.

    Attributes:
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
    """An entry of the list of epochs.

    ``revisions`` is the number of revisions of the epoch's ruleset.
    """

    first_batch: int | None
    revisions: int = 0


class EpochList(Document):
    """A page of epochs, newest first; pass ``next_cursor`` as ``cursor``."""

    items: list[EpochSummary]
    next_cursor: str | None


class EpochDiffOut(Document):
    """Difference between the plans of one published epoch and of another (``diff.epoch``), with
    reasons.

    ``diff`` is null if the steps of one of the two are unknown; ``diff_reason`` says why.
    ``queries_added`` are in the plan of ``epoch`` only, ``queries_removed`` in the other.
    ``settings`` maps each setting with different values to both values. ``reasons`` belong to
    ``epoch``, as of its publication.
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

    ``budget`` is the share of rationed probes' CPU time that the next batch may take. ``needed`` is
    the time of all work without rations, as a share of the available time; above 1 the machine is
    too slow for its input (0: unknown). ``overloaded``: the last batch withheld results.
    ``latency``: promised seconds from arrival to results. ``owed``: number of batches whose
    withheld results will be computed later.
    """

    policy: Open[Overload]
    budget: float
    needed: float
    overloaded: bool
    latency: float | None
    owed: int = 0


class RuntimeOut(Document):
    """Progress of the runtime, as reported to the service.

    ``state`` is the last reported one; without a heartbeat it is ``stale``. ``standby`` is the host
    of a runtime that is ready to take over (null: none is). ``backfill`` maps
    stores being filled from stored rows to the completed share. ``waiting_tuples`` (approximate)
    have arrived but are unread, for streams that the runtime reads itself; the next batch reads
    ``row_limit`` of them (null: no limit). ``private_bytes`` is the private memory of the last
    batch's tasks, ``memory_limit`` its upper limit (null: no limit). ``unread_pieces`` maps streams
    to the number of unreadable parts of their input, ``source_errors`` maps streams that can't be
    read at present to the reason.
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
    run this plan since ``since`` (at most ten minutes ago): ``epochs`` epochs, ``seconds`` in all.
    ``share`` is the saved share of ``individual_cpu_seconds``; ``lowest`` and ``highest`` are the
    extremes over single epochs. Negative: the joint plan takes more.
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

    ``saving`` is null until it can be estimated.
    """

    running: int
    epoch: EpochOut
    runtime: RuntimeOut | None
    saving: SavingOut | None = None


class PhaseOut(Document):
    """Duration of one phase of a batch."""

    name: str
    milliseconds: int


class BatchOut(Document):
    """A committed batch.

    ``phases`` add up to ``milliseconds``: ``begin`` (the driver, before Spark's job), the phases of
    the ``slowest`` of the ``tasks`` (``read``, ``store``, ``wait`` for other tasks, ``probe``,
    ``catch-up``, ``write``, ``backfill``, ``upload``), ``spark`` (rest of the job: starting tasks,
    collecting their reports), ``commit``. ``skew``: work of the slowest task over the tasks' mean,
    without waiting; null: no task did any work. ``hosts``: number of hosts that ran tasks; 1 if
    tasks share a state directory. ``sent``, ``sent_bytes``: number and bytes of tuples and stored
    rows sent between hosts.
    """

    batch: int
    epoch: int
    ruleset: str = Field(description="Epoch of the ruleset, with the number of its revision.")
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
    """The newest batches, oldest first."""

    items: list[BatchOut]


#: State of a held plan. An ``approved`` plan is published at the next epoch boundary.
HeldState = Literal["waiting", "approved", "refused"]


class HeldPlanOut(Document):
    """A plan that differs from the running one and waits for an operator's approval.

    ``since``: time at which a plan began to wait; ``proposed_at``: time of this plan's last
    proposal, for ``epoch``. ``waiting``: queries that can't begin before the approval. ``change``:
    difference from the newest published plan, both priced by the newest statistics.
    """

    state: Open[HeldState]
    version: str = Field(description="Its ETag, for If-Match.")
    since: Time
    proposed_at: Time
    epoch: int
    waiting: list[str]
    cost_before: float | None
    cost_after: float | None
    note: str = Field(description="Outcome of the previously approved plan; often empty.")
    change: EpochDiffOut
