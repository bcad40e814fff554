"""Body of ``GET /v1/queries/{name}/plan``: the part of the plan that a query needs."""

from __future__ import annotations

from pydantic import Field

from anabranch_contract.rest.documents import Document
from anabranch_contract.rest.planning.insight import TableRecord, TableShareRecord


class PathStepOut(Document):
    """A step of a probe path.

    ``label`` and ``detail`` name the probed store, ``aliases`` the query's aliases that it adds.
    ``asks`` names the look-ahead filters before it, which drop tuples without a match there.
    ``tuples_per_second`` is the rate of its output, ``cpu`` its CPU seconds per second for all
    queries that use it, ``shared`` the other registered ones among these.
    """

    label: str
    detail: str
    aliases: list[str]
    kept: bool = Field(description="Whether the probed store has an intermediate result.")
    tuples_per_second: float
    cpu: float
    shared: list[str]
    asks: list[str] = Field(default_factory=list)


class SubstreamValueOut(Document):
    """A value of a key, as text, and its share of the arriving tuples."""

    value: str
    share: float


class SubstreamOut(Document):
    """A substream (tuples with certain key values) of an alias, with its own probe paths.

    ``number`` is as in ``ProbePathOut.substreams``. ``share`` (of the arriving tuples) and ``cost``
    are as expected at planning; ``otherwise`` is the cost of the same tuples on the first
    substream's paths. ``same_as``: the first substream with the same paths. ``aside``: whether
    stores of intermediate results that are probed by the attribute may exclude the substream's
    values. ``nulls``: share of arriving tuples with NULL, if they are in this substream.
    """

    number: int
    others: bool = Field(description="All tuples with values that no other substream lists.")
    values: list[SubstreamValueOut]
    share: float
    cost: float
    otherwise: float
    same_as: int
    aside: bool = False
    nulls: float = 0.0


class DividedOut(Document):
    """An alias whose tuples are split into substreams by the values of ``attribute``."""

    alias: str
    attribute: str
    substreams: list[SubstreamOut]


class ProbePathOut(Document):
    """Probe path of the tuples of ``alias``: the stores that they probe, in order.

    ``substreams`` are the numbers of the substreams that take the path; empty: all tuples.

    ``keeps`` names the intermediate result that the path maintains for the query's probes; null:
    the path ends in results of the query. ``left``: whether these are an outer join's left rows.
    """

    alias: str
    label: str
    detail: str
    tuples_per_second: float
    steps: list[PathStepOut]
    keeps: str | None
    left: bool = False
    substreams: list[int] = Field(default_factory=list)


class UsedStoreOut(Document):
    """A store that the query's results depend on; ``queries``: number of queries that read it."""

    store: str
    label: str
    detail: str
    rows: int
    bytes: int
    queries: int


class MaintainedTableOut(Document):
    """The maintained table of a query's post-join part.

    ``estimated`` is its price at planning, ``share`` this query's part of it; null: not computed,
    or the query has no view. All else is measured: ``rows`` of the query, ``bytes`` in memory
    (null: not known yet), ``cpu`` (CPU seconds per second of this query's share) and
    ``cpu_of_table`` (of all queries that share it), and ``shared``, the other queries that read the
    same table or groups.
    """

    estimated: TableRecord | None
    share: TableShareRecord | None
    rows: int
    bytes: int | None
    cpu: float
    cpu_of_table: float
    shared: list[str]


class QueryPlanOut(Document):
    """The running plan of one query, and its share of the resources.

    Steps, stores and tables that several queries need count for each in equal parts: ``cpu`` (CPU
    seconds per second, including its results and its maintained table) and ``state_bytes`` add up
    to the totals over all queries, ``cpu_of_plan`` and ``state_of_plan``. Rates are of the newest
    periods and include tuples withheld by rations; before the first measurement (``measured``) they
    are 0.

    ``waiting_seconds`` is the time that the oldest row of its streams has waited to be read (null:
    unknown, e.g. for sources that Spark reads), ``batch_seconds`` the duration of the last batch. A
    row's results are committed after about the sum of both.
    """

    epoch: int
    revision: int
    measured: bool
    paths: list[ProbePathOut]
    divided: list[DividedOut] = Field(default_factory=list)
    results_per_second: float = Field(description="For a view or outer join: of joined rows.")
    cpu: float
    cpu_of_plan: float
    state_bytes: float
    state_of_plan: int
    stores: list[UsedStoreOut]
    waiting_tuples: int | None
    waiting_seconds: float | None
    batch_seconds: float
    table: MaintainedTableOut | None = Field(
        default=None, description="Of a query with a view or an outer join."
    )
