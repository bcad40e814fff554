"""Records of queries, epochs and revisions in Redis, validated whenever they are read."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from pydantic import AwareDatetime, Field, JsonValue

from anabranch_contract.connectors.user_functions import UserFunction
from anabranch_contract.plans.ruleset import digest
from anabranch_contract.queries.runs import query_of
from anabranch_contract.rest.documents import Closed
from anabranch_contract.rest.normalised import NormalisedInfo
from anabranch_contract.rest.planning.epochs import ChangeCounts, KeptSummary, PublishedEpoch
from anabranch_contract.rest.planning.insight import (
    DiffRecord,
    ReasonsRecord,
    SharesRecord,
    TablesRecord,
)
from anabranch_contract.rest.planning.plans import CpuRecord
from anabranch_contract.rest.planning.revisions import RevisionRecord
from anabranch_contract.rest.queries import ProblemRecord, QueryTerms


def name_key(query: str) -> str:
    """Return the key of a query's runs in the registry's index; names in other case share it."""
    return f"name {query.lower()}"


def reader_key(query: str) -> str:
    """Return the key, in the registry's index, of the runs that read a query."""
    return f"reads {query}"


def part_key(query: str) -> str:
    """Return the key, in the registry's index, of the runs of a query that is a subquery."""
    return f"part {query}"


#: Key, in the registry's index, of the runs that wait for a cutover.
WAITS = "waits"


class InlinedQuery(Closed):
    """The statement of a query that is inserted as a subquery into the statement of its reader."""

    sql: str | None
    query: dict[str, JsonValue] | None
    inlined: dict[str, InlinedQuery] = Field(default_factory=dict)


class QueryRecord(Closed, QueryTerms):
    """A registered query, or a later run of it (``contract.queries.runs``).

    Attributes:
        sequence: order of registration; unique.
        removed_at: time of withdrawal; None: not withdrawn. ``paused_at``: time of the pause.
        rejected: why the planner rejected it; None: not rejected.
        first_epoch, last_epoch: first and last published epoch that includes it.
        resumed: whether it continues a paused run, which has already emitted results over past
            tuples.
        relaxed: alias -> the weaker filter (expressions) of a store shared with other queries.
        reads: the registered queries that it reads by name.
        inlined: name in FROM -> the query that is inserted there as a subquery.
        functions: users' functions that it calls, by name, as of its registration.
        part_of: the run whose statement has this query as a subquery; empty: none.
        part: number of the subquery among the parts of the statement, from 1.
        columns: stream -> the columns that it may read, if later columns would change its meaning
            (``registry.alterations.added_columns``).
        replaces: the run whose place it takes, or took, when it has caught up; empty: none.
        caught_up: whether it has caught up. ``read_from``: first batch for which the query's name
            means this run; None: not yet.
        shares_sink: whether it writes to the sink of the run that it replaces, after that run's
            end.
        sharing_decided: whether ``relaxed`` is final (``planning.sharing``).
    """

    id: str
    sequence: int
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    resumed: bool = False
    normalised: NormalisedInfo
    relaxed: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    sharing_decided: bool = True
    reads: tuple[str, ...] = ()
    inlined: dict[str, InlinedQuery] = Field(default_factory=dict)
    functions: dict[str, str] = Field(default_factory=dict)
    part_of: str = ""
    part: int = 0
    columns: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    replaces: str = ""
    caught_up: bool = False
    read_from: int | None = None
    shares_sink: bool = False
    removed_at: AwareDatetime | None = None
    paused_at: AwareDatetime | None = None
    rejected: ProblemRecord | None = None
    first_epoch: int | None = None
    last_epoch: int | None = None

    @property
    def keys(self) -> list[str]:
        """The keys that the registry's index has for it."""
        query = query_of(self.id)
        kinds = ([part_key(query)] if self.part_of else []) + ([WAITS] if self.waits else [])
        return [name_key(query), *map(reader_key, self.reads), *kinds]

    @property
    def called(self) -> dict[str, UserFunction]:
        """Users' functions that the query calls, by name."""
        return {name: UserFunction.loads(text) for name, text in self.functions.items()}

    @property
    def emits_past(self) -> bool:
        """Whether this run emits results over tuples stored before it began."""
        return self.past == "stored" and not self.resumed

    @property
    def waits(self) -> bool:
        """Whether the query's name still denotes the run that it replaces."""
        return bool(self.replaces) and self.read_from is None

    def wanted(self, now: datetime) -> bool:
        """Whether the query should be part of an epoch that is planned now."""
        return (
            not self.is_over(now)
            and self.paused_at is None
            and self.rejected is None
            and self.last_epoch is None
        )

    def is_over(self, now: datetime) -> bool:
        """Whether the query was withdrawn or has expired."""
        return self.removed_at is not None or (
            self.expires_at is not None and now >= self.expires_at
        )


class KeptRevision(RevisionRecord):
    """A revision as it was published.

    Attributes:
        footprint: the plan's steps and stores, for comparison with later plans.
        orders: digest of its probe orders (``contract.plans.steps``). ``replaced``: the same of
            the ruleset ``baseline``.
        undone: digest of the probe orders that it reverts; empty: none.
    """

    footprint: dict[str, Any] | None = None
    orders: str = ""
    replaced: str = ""
    undone: str = ""


class Explanation(Closed):
    """Explanation of an epoch's plan, possibly computed after its publication. Its fields are also
    fields of :class:`EpochRecord`."""

    individual_cost: float | None = None
    shared_cost: float | None = None
    cpu: CpuRecord | None = None
    shares: SharesRecord | None = None
    diff: DiffRecord | None = None
    diff_reason: str = ""
    reasons: ReasonsRecord | None = None
    tables: TablesRecord | None = None

    @classmethod
    def missing(cls, why: str) -> Explanation:
        """Return an empty explanation, with the reason ``why`` it is missing."""
        return cls(shares=SharesRecord.missing(why), diff_reason=why)


class PlanDetails(Closed):
    """Details of an epoch: its plan and decisions, too long for its record's own Redis key."""

    explain: dict[str, Any]
    decisions: dict[str, Any] | None


class EpochRecord(PublishedEpoch):
    """An epoch as it was published.

    Attributes:
        decisions: the plan in the planner's form (``planner.plans.decisions``), from which later
            plans start; None in a record without details (:class:`PlanDetails`).
        plan: digest of the plan's steps and stores, its queries and the parallelism.
    """

    decisions: dict[str, Any] | None = None
    plan: str | None = None

    def with_digest(self) -> EpochRecord:
        """Return a copy of the record with the digest of its plan."""
        return self.model_copy(update={"plan": self._digest()})

    def details(self) -> PlanDetails:
        """Return the plan and decisions of the record."""
        return PlanDetails(explain=self.explain, decisions=self.decisions)

    def without_details(self) -> EpochRecord:
        """Return a copy of the record without plan and decisions."""
        return self.model_copy(update={"explain": {}, "decisions": None})

    def with_details(self, found: PlanDetails) -> EpochRecord:
        """Return a copy of the record with the plan and decisions in ``found``."""
        return self.model_copy(update=dict(found))

    def again(self, epoch: int, now: datetime) -> EpochRecord:
        """Record of a later epoch with the same plan, without plan and decisions."""
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
        """Return a copy of the record with the explanation ``found``."""
        return self.model_copy(update={**dict(found), "explained": True})

    def summary(self) -> KeptSummary:
        """Return the record's entry in lists of epochs."""
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
        if self.decisions is None:
            return None
        parts = [self.decisions["footprint"], sorted(self.queries), self.parallelism]
        return digest(json.dumps(parts, sort_keys=True))[:16]
