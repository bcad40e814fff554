"""Explanations of a plan: cost shares of queries, difference from another plan, savings."""

from __future__ import annotations

from math import fsum
from typing import Literal

from anabranch_contract.rest.documents import Closed, Open


class ShareRecord(Closed):
    """Cost shares of one query in a plan, by each method (``docs/what-if.md``), in the unit of the
    objective.

    Attributes:
        query: name of the query's run.
        standalone: cost of the query's own optimum, planned alone; None: unknown.
        marginal: saving if the steps and stores that only this query needs are removed.
        shapley: cost of every step and store, split equally among the queries that need it.
        proportional: the plan's cost split in the ratio of ``standalone``.
        part: the plan's cost if only this query's steps and stores are kept.
    """

    query: str
    standalone: float | None
    marginal: float
    shapley: float
    proportional: float | None
    part: float


class SharesRecord(Closed):
    """The cost shares of a plan's queries; the most expensive (by ``shapley``) first.

    Attributes:
        queries: shares of the queries.
        omitted: number of queries omitted from the answer.
        note: reason why shares are missing; empty: they are not.
    """

    queries: list[ShareRecord]
    omitted: int = 0
    note: str = ""

    @classmethod
    def missing(cls, why: str) -> SharesRecord:
        """Return an answer without shares, with the reason ``why`` as its note."""
        return cls(queries=[], note=why)


class TableShareRecord(Closed):
    """A query's share of a maintained table, and the cost of a table of its own.

    Attributes:
        query: name of the query's run.
        seconds: its share of the table's CPU seconds per unit of time.
        bytes: its share of the table's size in memory.
        alone_seconds: CPU seconds per unit of time of a table of its own.
        alone_bytes: size in memory of a table of its own, in bytes.
    """

    query: str
    seconds: float
    bytes: float
    alone_seconds: float
    alone_bytes: float


class TableRecord(Closed):
    """The estimated cost of a maintained table, which its queries share.

    Attributes:
        grouped: whether joined rows are grouped; else they are ordered, limited or ranked.
        grouping: text of GROUP BY; empty: all rows form one group, or rows are not grouped.
        aggregates: the aggregates that at least one query reads.
        rows_in: number of joined rows per unit of time.
        touched: number of groups that a batch changes, summed over the batches in a unit of time.
        rows: number of stored groups or rows at the end of a unit of time.
        seconds: CPU seconds per unit of time.
        bytes: size in memory, in bytes.
        queries: shares of its queries, by name; they add up to ``seconds`` and ``bytes``.
        apart: reason why its queries do not share another table with the same joined rows and
            grouping; empty: there is no larger such table.
    """

    grouped: bool
    grouping: str
    aggregates: list[str]
    rows_in: float
    touched: float
    rows: float
    seconds: float
    bytes: float
    queries: list[TableShareRecord]
    apart: str = ""

    def share_of(self, query: str) -> TableShareRecord | None:
        """Return the share of ``query`` in the table; None if the query does not read it."""
        return next((one for one in self.queries if one.query == query), None)

    @property
    def text(self) -> str:
        """The table's grouping and aggregates in one line."""
        calls = f"; {', '.join(self.aggregates)}" if self.aggregates else ""
        if not self.grouped:
            return "ordered rows"
        return (f"GROUP BY {self.grouping}" if self.grouping else "one group") + calls


class TablesRecord(Closed):
    """The maintained tables of a plan's queries, the most expensive first.

    Attributes:
        tables: the tables.
        seconds: CPU seconds of all tables per unit of time, which ``cost`` does not include.
        alone_seconds: CPU seconds per unit of time if no queries shared a table.
        bytes: size of all tables in memory, in bytes.
        alone_bytes: size in memory if no queries shared a table, in bytes.
    """

    tables: list[TableRecord]
    seconds: float
    alone_seconds: float
    bytes: float
    alone_bytes: float

    @classmethod
    def summed(cls, tables: list[TableRecord]) -> TablesRecord:
        """Return a record of ``tables`` with their sums."""
        shares = [share for table in tables for share in table.queries]
        return cls(
            tables=tables,
            seconds=fsum(table.seconds for table in tables),
            alone_seconds=fsum(share.alone_seconds for share in shares),
            bytes=fsum(table.bytes for table in tables),
            alone_bytes=fsum(share.alone_bytes for share in shares),
        )

    def of_query(self, query: str) -> TableRecord | None:
        """Return the maintained table of ``query``; None if it has none."""
        return next((one for one in self.tables if one.share_of(query) is not None), None)


class TotalsRecord(Closed):
    """Totals of a list of steps or stores.

    Attributes:
        count: number of the steps or stores.
        tuples: sum of the tuples that they send or store per unit of time.
        cost: sum of their costs per unit of time, in the unit of the objective.
        bytes: sum of the bytes that the stores store per unit of time; null for steps.
    """

    count: int
    tuples: float
    cost: float
    bytes: float | None = None


class StepChangeRecord(Closed):
    """A step of a plan in a comparison of plans.

    Attributes:
        label: the step as text, such as ``from S: S⋈T probes R``.
        tuples: number of tuples that the step sends per unit of time, for a broadcast once per
            partition; null: no estimate.
        cost: its cost per unit of time, in the unit of the objective; null: no estimate.
    """

    label: str
    tuples: float | None
    cost: float | None


class StoreChangeRecord(Closed):
    """A store copy in a comparison of plans.

    Attributes:
        label: the copy as text, such as ``S⋈T[c]``.
        tuples: number of tuples inserted per unit of time; null: no estimate.
        bytes: bytes inserted per unit of time; null: no estimate.
        cost: cost of these inserts, in the unit of the objective; null: no estimate.
    """

    label: str
    tuples: float | None
    bytes: float | None
    cost: float | None


class StepChangesRecord(Closed):
    """Steps of two compared plans.

    Attributes:
        added: steps that only the new plan has, the most expensive first.
        removed: steps that only the old plan has, the most expensive first.
        kept: steps that both plans have, the most expensive first.
    """

    added: list[StepChangeRecord]
    removed: list[StepChangeRecord]
    kept: list[StepChangeRecord]


class StoreChangesRecord(Closed):
    """Store copies of two compared plans.

    Attributes:
        built: copies that only the new plan has, the one with most tuples first.
        dropped: copies that only the old plan has, the one with most tuples first.
        retained: copies that both plans have, the one with most tuples first.
    """

    built: list[StoreChangeRecord]
    dropped: list[StoreChangeRecord]
    retained: list[StoreChangeRecord]


class DiffRecord(Closed):
    """Difference of a plan from a published epoch's plan, both priced by the same statistics.

    Attributes:
        epoch: the published epoch.
        unchanged: whether both plans have the same steps and store copies.
        cost_before: cost of the published epoch's plan under the new statistics, in the unit of the
            objective; None: it can't be estimated.
        cost_after: cost of the other plan under the new statistics; None: it can't be estimated.
        totals: kind of change -> totals of all its entries.
        steps: the plans' steps.
        stores: the plans' store copies.
        omitted: number of entries omitted from the answer.
        notes: remarks for the reader, as sentences.
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
    """A step or store that several queries share.

    Attributes:
        kind: ``step`` or ``store``.
        label: the step or store as text.
        users: the queries that need it.
        cost: its cost per unit of time, in the unit of the objective.
        saved: ``cost`` times the number of users minus one: the saving compared with one such step
            or store per user.
    """

    kind: Open[Literal["step", "store"]]
    label: str
    users: list[str]
    cost: float
    saved: float


class KeptReasonRecord(Closed):
    """A stored intermediate result, and the cost that it saves.

    Attributes:
        mir: id of the intermediate result.
        label: the intermediate result as text.
        users: the queries that need it.
        detours: additional cost of the probes that would replace it, in the unit of the objective.
        upkeep: cost of its inserts, and of steps that only its maintenance needs.
        saved: ``detours`` minus ``upkeep``.
    """

    mir: str
    label: str
    users: list[str]
    detours: float
    upkeep: float
    saved: float


class ReasonTotalsRecord(Closed):
    """Totals of the savings by sharing and by intermediate results.

    Attributes:
        shared: number of shared steps and stores.
        saved_by_sharing: sum of their savings, in the unit of the objective.
        kept: number of stored intermediate results.
    """

    shared: int
    saved_by_sharing: float
    kept: int


class ReasonsRecord(Closed):
    """Savings by shared steps and stores, and by intermediate results; the greatest first.

    Attributes:
        shared: shared steps and stores.
        kept: stored intermediate results.
        totals: totals of all entries, including omitted ones.
        omitted: number of entries omitted from the answer.
    """

    shared: list[SharedReasonRecord]
    kept: list[KeptReasonRecord]
    totals: ReasonTotalsRecord
    omitted: int
