"""Records that the service keeps in Redis. A text is validated before it is used."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from pydantic import AwareDatetime, Field

from anabranch_contract.plans.plan import (
    Approval,
    Backfilling,
    HotKeyDealing,
    LookingAhead,
    Objective,
    Optimizer,
    Solver,
)
from anabranch_contract.plans.rations import Allocation, Overload
from anabranch_contract.plans.ruleset import digest
from anabranch_contract.rest.documents import Closed
from anabranch_contract.rest.epochs import ChangeCounts, KeptSummary, PublishedEpoch
from anabranch_contract.rest.insight import DiffRecord, ReasonsRecord, SharesRecord
from anabranch_contract.rest.normalised import NormalisedInfo
from anabranch_contract.rest.plans import CpuRecord
from anabranch_contract.rest.queries import Past, ProblemRecord, SinkRecord
from anabranch_contract.rest.revisions import RevisionRecord
from anabranch_contract.rest.slo import Slo
from anabranch_planner.plans.backfill import DEFAULT_HORIZON


class QueryRecord(Closed):
    """A registered query, or a later run of it (``contract.queries.runs``).

    Attributes:
        sequence: order of registration; unique.
        sql, query: exactly one is given: the statement, or the structured document.
        window: a duration for all aliases, or alias -> duration.
        priority: where input has to be rationed; greater is more important.
        slo: its service level objectives.
        removed_at: when it was withdrawn.
        rejected: set when it could not be planned.
        first_epoch, last_epoch: the published epochs it is part of (inclusive).
        title, owner, tags: what people call it, whose it is, and what they find it by.
        paused_at: when it was paused.
        past: whether its results over what is stored already are wanted as well. ``resumed``: it
            goes on where an earlier run was paused, which has given these.
        relaxed: alias -> the filter (expressions) of the store that it shares with queries that
            want more.
        sharing_decided: whether that has been decided (``planning.sharing``).
    """

    id: str
    sequence: int
    created_at: AwareDatetime
    sql: str | None = None
    query: dict[str, Any] | None = None
    window: str | dict[str, str] | None = None
    expires_at: AwareDatetime | None = None
    sink: SinkRecord = SinkRecord()
    priority: int = 0
    slo: Slo = Slo()
    title: str | None = None
    owner: str | None = None
    tags: tuple[str, ...] = ()
    past: Past = "none"
    resumed: bool = False
    normalised: NormalisedInfo
    relaxed: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    sharing_decided: bool = True
    removed_at: AwareDatetime | None = None
    paused_at: AwareDatetime | None = None
    rejected: ProblemRecord | None = None
    first_epoch: int | None = None
    last_epoch: int | None = None

    @property
    def emits_past(self) -> bool:
        """Whether this run emits results over what was stored before it began."""
        return self.past == "stored" and not self.resumed

    def wanted(self, now: datetime) -> bool:
        """Whether the query should be part of an epoch that is planned now."""
        return (
            not self.is_over(now)
            and self.paused_at is None
            and self.rejected is None
            and self.last_epoch is None
        )

    def is_over(self, now: datetime) -> bool:
        """Whether it was withdrawn, or its time is up."""
        return self.removed_at is not None or (
            self.expires_at is not None and now >= self.expires_at
        )


class PlanningRecord(Closed):
    """Settings of planning that may change at run time, from the next epoch on.

    Attributes:
        switching: what a step or store copy that the running epoch does not have is charged,
            as a part of its cost per unit of time; 0 ignores the running epoch. The default, a
            tenth, is about how well figures of the last epoch predict those of the next, so
            smaller gains are not worth a rewired epoch.
        memory: bytes that all store copies together may take in per unit of time; None: any.
        copies: of any one store; None: any number.
        intermediate_results: that a plan keeps, at most; 0: none; None: any number.
        solver: of the joint plan.
        backfill: who decides whether the past of a new intermediate result is computed.
        backfill_horizon: for how long a plan is expected to use it, as multiples of the history
            so far (``plans.backfill``).
        substreams: into how many kinds the tuples of one stream are told apart at most, by the
            values of a key, where each kind has cheaper orders of its own; 1: they are not.
        revision_gain: the share of the running plan's cost that a revision has to save; None: the
            rules of an epoch are not revised. The default is that of ``switching``.
        approval: whether a plan that changes what runs waits for an operator.
        overload: what is done where input outruns the machine; ``allocation``: by what rations
            are the best. ``latency_goal``: seconds that they are to keep.
        capacity: the share of rationed probes' CPU time that is spent; None: as the load allows.
        look_ahead: whether probes ask ahead, where that pays, if later ones can find anything.
        hot_keys: whether, on several hosts, new rows of frequent values are dealt to several of
            them where that pays.
    """

    optimizer: Optimizer
    objective: Objective
    parallelism: int = Field(ge=1, le=1024)
    switching: float = Field(default=0.1, ge=0, le=1000)
    memory: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    copies: int | None = Field(default=None, ge=1, le=1024)
    intermediate_results: int | None = Field(default=None, ge=0, le=1_000_000)
    solver: Solver = Solver.BRANCH
    backfill: Backfilling = Backfilling.AUTO
    backfill_horizon: float = Field(default=DEFAULT_HORIZON, ge=0, le=1e6)
    substreams: int = Field(default=4, ge=1, le=64)
    revision_gain: float | None = Field(default=0.1, ge=0, le=1)
    approval: Approval = Approval.AUTOMATIC
    overload: Overload = Overload.WAIT
    allocation: Allocation = Allocation.FAIR
    latency_goal: float = Field(default=2.0, ge=0.1, le=3600)
    capacity: float | None = Field(default=None, gt=0, le=1)
    look_ahead: LookingAhead = LookingAhead.NEVER
    hot_keys: HotKeyDealing = HotKeyDealing.AUTO


class KeptRevision(RevisionRecord):
    """A revision as it was published.

    Attributes:
        footprint: the plan's steps and stores, for comparison with later plans.
        orders: digest of its orders (``contract.plans.orders``). ``undone``: of those that it took
            back; empty: none.
    """

    footprint: dict[str, Any] | None = None
    orders: str = ""
    undone: str = ""


class Explanation(Closed):
    """What may be worked out about an epoch's plan after its publication; the fields are those of
    its record.
    """

    individual_cost: float | None
    shared_cost: float | None
    cpu: CpuRecord | None
    shares: SharesRecord | None
    diff: DiffRecord | None
    diff_reason: str
    reasons: ReasonsRecord | None

    @classmethod
    def missing(cls, why: str) -> Explanation:
        """That there is none."""
        return cls(
            individual_cost=None,
            shared_cost=None,
            cpu=None,
            shares=SharesRecord.missing(why),
            diff=None,
            diff_reason=why,
            reasons=None,
        )


class PlanDetails(Closed):
    """What is long in an epoch's record, and kept beside it."""

    explain: dict[str, Any]
    footprint: dict[str, Any] | None


class EpochRecord(PublishedEpoch):
    """An epoch as it was published.

    Attributes:
        footprint: the plan's steps and stores, for comparison with later plans; None where it is
            kept apart (:class:`PlanDetails`).
        plan: a digest of them, of the queries and of the parallelism; None before it is made.
    """

    footprint: dict[str, Any] | None = None
    plan: str | None = None

    def with_digest(self) -> EpochRecord:
        """The record, with the digest of its plan."""
        return self.model_copy(update={"plan": self._digest()})

    def details(self) -> PlanDetails:
        """What is long in it."""
        return PlanDetails(explain=self.explain, footprint=self.footprint)

    def without_details(self) -> EpochRecord:
        """The rest."""
        return self.model_copy(update={"explain": {}, "footprint": None})

    def with_details(self, found: PlanDetails) -> EpochRecord:
        """All of it."""
        return self.model_copy(update=dict(found))

    def again(self, epoch: int, now: datetime) -> EpochRecord:
        """The record of a later epoch, for which nothing has changed, without what is long."""
        unchanged = f"nothing has changed since epoch {self.epoch}"
        changes = {
            "epoch": epoch,
            "published_at": now,
            "switching_cost": 0.0,
            "diff": None,
            "diff_reason": unchanged,
            "explained": False,
            "same_as": self.epoch,
        }
        return EpochRecord.model_validate(dict(self.without_details()) | changes)

    def with_explanation(self, found: Explanation) -> EpochRecord:
        """The record with what has been worked out since."""
        return self.model_copy(update={**dict(found), "explained": True})

    def summary(self) -> KeptSummary:
        """What lists show of it."""
        changes = None
        if self.same_as is not None:
            changes = ChangeCounts(steps_added=0, steps_removed=0, stores_built=0, stores_dropped=0)
        elif self.diff is not None:
            totals = self.diff.totals
            changes = ChangeCounts(
                steps_added=totals["added"].count,
                steps_removed=totals["removed"].count,
                stores_built=totals["built"].count,
                stores_dropped=totals["dropped"].count,
            )
        return KeptSummary.of(self, plan=self.plan or self._digest(), changes=changes)

    def _digest(self) -> str | None:
        if self.footprint is None:
            return None
        parts = [self.footprint, sorted(self.queries), self.parallelism]
        return digest(json.dumps(parts, sort_keys=True))[:16]
