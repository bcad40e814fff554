"""Bodies of ``/v1/epochs``, ``/v1/batches`` and ``/v1/plan/held``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from anabranch_contract.plans.rations import Overload
from anabranch_contract.rest.documents import Closed, Document, Open, Time
from anabranch_contract.rest.planning.insight import DiffRecord, ReasonsRecord, SharesRecord
from anabranch_contract.rest.planning.plans import AheadRecord, CostsRecord, PlanFigures
from anabranch_contract.rest.queries import ProblemRecord


class PublishedEpoch(Closed, PlanFigures):
    """One published epoch: what was decided, on what grounds, at what cost. It never changes, but
    for what is worked out after publication where there are many queries.

    Attributes:
        statistics_epoch: the epoch whose statistics were used; None: nothing was measured yet.
        assumed: relations whose cardinality was unknown, so that the cost model assumed one.
        estimated: relations that were new, so that their share of a sample of their stream was
            taken -> that share.
        ahead: what was forecast of the next period; None: nothing, costs are of all history.
        fallback: empty, or why the plan is not what the chosen optimiser would have given.
        rejected: queries that could not be planned for this epoch.
        switching_cost: what changing to this plan from the epoch before was charged, beside
            ``cost``; ``bound`` and ``gap`` are of both together.
        shares, diff, reasons: who costs what, what changes against the epoch published before,
            and why. ``diff_reason`` says why ``diff`` is None. ``shares`` are None until they are
            worked out, and without queries, with the reason in their note, where that failed.
        explained: whether these and the costs apart (``individual_cost``, ``shared_cost``) are
            worked out.
        same_as: the epoch before whose plan and rules these are, as nothing has changed since;
            None: this plan is its own.
    """

    epoch: int
    published_at: Time
    candidates: int
    variables: int
    constraints: int
    statistics_epoch: int | None
    assumed: list[str]
    estimated: dict[str, float] = Field(default_factory=dict)
    ahead: AheadRecord | None = None
    costs: CostsRecord | None = None
    fallback: str = ""
    rejected: dict[str, ProblemRecord] = Field(default_factory=dict)
    explain: dict[str, Any]
    ruleset_digest: str
    switching_cost: float = 0.0
    shares: SharesRecord | None = None
    diff: DiffRecord | None = None
    diff_reason: str = ""
    reasons: ReasonsRecord | None = None
    explained: bool = True
    same_as: int | None = None


class EpochOut(PublishedEpoch):
    """A published epoch; ``first_batch`` is null until the runtime has started it, and again once
    it has started 1024 others.
    """

    first_batch: int | None


class ChangeCounts(Document):
    """How many steps and stores a plan has that the one before it had not, and the other way."""

    steps_added: int
    steps_removed: int
    stores_built: int
    stores_dropped: int


class KeptSummary(PlanFigures):
    """What is kept of an epoch for lists, beside its record.

    Attributes:
        plan: a digest of the queries, the steps and the stores: equal ones are the same plan.
        changes: against the epoch published before; None: there is nothing to compare with.
    """

    epoch: int
    published_at: Time
    fallback: str
    switching_cost: float
    plan: str | None = None
    changes: ChangeCounts | None = None


class EpochSummary(KeptSummary):
    """A line of the epochs' list.

    ``revisions`` is how often the epoch's rules were revised.
    """

    first_batch: int | None
    revisions: int = 0


class EpochList(Document):
    """A page of epochs, newest first; pass ``next_cursor`` as ``cursor``."""

    items: list[EpochSummary]
    next_cursor: str | None


class EpochDiffOut(Document):
    """How the plan of one published epoch differs from that of another (``diff.epoch``), and why
    it has what it has.

    ``diff`` is null where the steps of one of the two are not known, as ``diff_reason`` says then.
    ``queries_added`` are in the plan of ``epoch`` only, ``queries_removed`` in the other.
    ``settings`` maps what was planned by other settings to both values. ``reasons`` are those of
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
    """How the runtime rations probes.

    ``budget`` is the share of rationed probes' CPU time that the next batch may take. ``needed`` is
    the time that all of the work would take, as a share of the time that there is; above 1 the
    machine is too slow for its input (0: not known). ``overloaded``: the last batch withheld
    something. ``latency``: seconds that are promised. ``owed``: batches of which withheld results
    are still to be made good.
    """

    policy: Open[Overload]
    budget: float
    needed: float
    overloaded: bool
    latency: float | None
    owed: int = 0


class RuntimeOut(Document):
    """How far the runtime is, as far as the service relays it.

    ``state`` is the last that was heard of it; where there is no heartbeat that is ``stale``.
    ``backfill`` maps stores whose past is being computed to the part that is done.
    ``waiting_tuples`` (about) have arrived and were not read yet, of streams that the runtime reads
    itself; of these the next batch brings ``row_limit`` (null: any number). ``private_bytes`` is
    what the last batch's tasks took of memory for themselves, ``memory_limit`` what that should
    stay below (null: any number). ``unread_pieces`` maps streams to how many parts of their input
    could not be read, ``source_errors`` maps streams that can't be read at present to
    the reason.
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


class SavingOut(Document):
    """CPU time of the running plan beside that of a plan of each query alone.

    Both are estimated, by constants that are fitted to measured steps, for every epoch that has
    begun since ``since`` by the same plan, of the last ten minutes at most: ``epochs`` of them,
    ``seconds`` in all. ``share`` is saved of ``individual_cpu_seconds``; ``lowest`` and ``highest``
    are the shares of single epochs. Negative: the plan takes more.
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
    """The epoch that the runtime is in, and the published one whose rules it goes by.

    ``saving`` is null as long as nothing can be estimated.
    """

    running: int
    epoch: EpochOut
    runtime: RuntimeOut | None
    saving: SavingOut | None = None


class PhaseOut(Document):
    """A part of a batch's time."""

    name: str
    milliseconds: int


class BatchOut(Document):
    """A batch that has been committed.

    ``phases`` add up to ``milliseconds``: ``begin`` (before Spark's job), what the ``slowest`` of
    the ``tasks`` did (``read``, ``store``, ``wait`` for other tasks, ``probe``, ``catch-up``,
    ``write``, ``backfill``, ``upload``), ``spark`` (the rest of the job: starting tasks, taking
    their reports), ``commit``. ``skew`` is the work of the slowest task over that of a task on
    average, waiting left out; null where none did anything. ``hosts`` is on how many the tasks were
    that share nothing but an object store (1: they share a state directory); ``sent`` how many
    tuples and stored rows went from one to another, in ``sent_bytes``.
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


#: ``approved`` until the next boundary, at which it is published.
HeldState = Literal["waiting", "approved", "refused"]


class HeldPlanOut(Document):
    """A plan that changes what runs, and waits until somebody approves or refuses it.

    ``since`` is when a plan began to wait, ``proposed_at`` when this one was proposed last, for
    ``epoch``. ``waiting`` names the queries that can't begin before it is approved. ``change`` is
    how it differs from the newest published plan, both priced by the newest statistics.
    """

    state: Open[HeldState]
    version: str = Field(description="Its ETag, for If-Match.")
    since: Time
    proposed_at: Time
    epoch: int
    waiting: list[str]
    cost_before: float | None
    cost_after: float | None
    note: str = Field(description="What became of a plan that was approved before; often empty.")
    change: EpochDiffOut
