"""Comments on a plan: who pays for it, how it differs from another one, why it shares and keeps."""

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
        omitted: queries that are left out to bound the answer.
        note: empty, or why something is missing.
    """

    queries: list[ShareRecord]
    omitted: int = 0
    note: str = ""

    @classmethod
    def missing(cls, why: str) -> SharesRecord:
        """No shares, and the reason."""
        return cls(queries=[], note=why)


class TotalsRecord(Closed):
    """Number of entries, and their sums per unit of time."""

    count: int
    tuples: float
    cost: float
    bytes: float | None = None


class StepChangeRecord(Closed):
    """A step; ``tuples`` are sent per unit of time. None: it can't be estimated any more."""

    label: str
    tuples: float | None
    cost: float | None


class StoreChangeRecord(Closed):
    """A store copy; ``tuples`` and ``bytes`` flow into it per unit of time."""

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
    """How a plan differs from a published epoch's, both priced by the same statistics.

    Attributes:
        epoch: the published epoch.
        cost_before: cost of its plan under the new statistics; None if it can't be estimated any
            more. ``cost_after``: the same, if two published epochs are compared.
        totals: of all entries of each kind.
        omitted: number of entries left out to bound the answer.
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
    """A step or store that is paid once for several; ``saved`` is cost x (users - 1)."""

    kind: Open[Literal["step", "store"]]
    label: str
    users: list[str]
    cost: float
    saved: float


class KeptReasonRecord(Closed):
    """An intermediate result; ``saved`` is ``detours`` (probes without it) minus ``upkeep``."""

    mir: str
    label: str
    users: list[str]
    detours: float
    upkeep: float
    saved: float


class ReasonTotalsRecord(Closed):
    """How much is shared and kept in all."""

    shared: int
    saved_by_sharing: float
    kept: int


class ReasonsRecord(Closed):
    """Savings by shared elements and kept intermediate results, greatest first."""

    shared: list[SharedReasonRecord]
    kept: list[KeptReasonRecord]
    totals: ReasonTotalsRecord
    omitted: int
