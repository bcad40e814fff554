"""Explanations of a plan: cost shares of queries, difference from another plan, savings."""

from __future__ import annotations

from typing import Literal

from anabranch_contract.rest.documents import Closed, Open


class ShareRecord(Closed):
    """Cost shares of one query in a plan, by each method (``docs/what-if.md``).

    Attributes:
        standalone: cost of its own optimum, planned alone; None: unknown.
        marginal: saving if the elements that only this query needs are removed.
        shapley: every step's and store's cost split equally among the queries that need it.
        proportional: the plan's cost split in the ratio of ``standalone``.
        part: the plan's cost for this query alone.
    """

    query: str
    standalone: float | None
    marginal: float
    shapley: float
    proportional: float | None
    part: float


class SharesRecord(Closed):
    """The cost shares of a plan's queries, dearest (``shapley``) first.

    Attributes:
        omitted: number of queries left out of the answer.
        note: empty, or why shares are missing.
    """

    queries: list[ShareRecord]
    omitted: int = 0
    note: str = ""

    @classmethod
    def missing(cls, why: str) -> SharesRecord:
        """Return shares without queries, with the reason as their note."""
        return cls(queries=[], note=why)


class TotalsRecord(Closed):
    """Totals of a list of steps or stores: their number, and sums per unit of time."""

    count: int
    tuples: float
    cost: float
    bytes: float | None = None


class StepChangeRecord(Closed):
    """A step of a plan; ``tuples`` sent and cost per unit of time, or None (no estimate now)."""

    label: str
    tuples: float | None
    cost: float | None


class StoreChangeRecord(Closed):
    """A store copy; ``tuples`` and ``bytes`` inserted, and cost, per unit of time."""

    label: str
    tuples: float | None
    bytes: float | None
    cost: float | None


class StepChangesRecord(Closed):
    """Steps that only the new plan has, only the old one, and both."""

    added: list[StepChangeRecord]
    removed: list[StepChangeRecord]
    kept: list[StepChangeRecord]


class StoreChangesRecord(Closed):
    """Store copies that only the new plan has, only the old one, and both."""

    built: list[StoreChangeRecord]
    dropped: list[StoreChangeRecord]
    retained: list[StoreChangeRecord]


class DiffRecord(Closed):
    """Difference of a plan from a published epoch's, both priced by the same statistics.

    Attributes:
        epoch: the published epoch.
        cost_before: cost of its plan under the new statistics; None: it can't be estimated.
            ``cost_after``: cost of the other plan, if that is a published epoch's, too.
        totals: kind of change -> totals of all its entries.
        omitted: number of entries left out of the answer.
    """

    epoch: int
    unchanged: bool
    cost_before: float | None
    cost_after: float | None
    totals: dict[str, TotalsRecord]
    steps: StepChangesRecord
    stores: StoreChangesRecord
    omitted: int
    notes: list[str]


class SharedReasonRecord(Closed):
    """A step or store shared by several queries; ``saved`` is ``cost`` x (number of users - 1)."""

    kind: Open[Literal["step", "store"]]
    label: str
    users: list[str]
    cost: float
    saved: float


class KeptReasonRecord(Closed):
    """A stored intermediate result; ``saved``: ``detours`` (cost without it) minus ``upkeep``."""

    mir: str
    label: str
    users: list[str]
    detours: float
    upkeep: float
    saved: float


class ReasonTotalsRecord(Closed):
    """Number of shared elements and their saving; number of stored intermediate results."""

    shared: int
    saved_by_sharing: float
    kept: int


class ReasonsRecord(Closed):
    """Savings by shared steps and stores, and by intermediate results; greatest first."""

    shared: list[SharedReasonRecord]
    kept: list[KeptReasonRecord]
    totals: ReasonTotalsRecord
    omitted: int
