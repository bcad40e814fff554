"""Body of ``GET /v1/queries/{name}/plan``: the part of the plan that a query needs."""

from __future__ import annotations

from pydantic import Field

from anabranch_contract.rest.documents import Document


class PathStepOut(Document):
    """A step of a probe path.

    ``label`` and ``detail`` name the probed store, ``aliases`` the query's aliases that it adds.
    ``asks`` names the look-ahead filters before it: a tuple without a match there is dropped.
    ``tuples_per_second`` leave the step. ``cpu`` is CPU seconds per second for all its users,
    ``shared`` the other registered queries among them.
    """

    label: str
    detail: str
    aliases: list[str]
    kept: bool = Field(description="An intermediate result is probed, not a stream.")
    tuples_per_second: float
    cpu: float
    shared: list[str]
    asks: list[str] = Field(default_factory=list)


class SubstreamValueOut(Document):
    """A value of a key, as text, and its share of the arriving tuples."""

    value: str
    share: float


class SubstreamOut(Document):
    """A substream of an alias, with paths of its own.

    ``number`` is as in ``ProbePathOut.substreams``. ``share`` of the arriving tuples and ``cost``
    are the expectations at planning; ``otherwise`` is the cost of the same tuples by the first
    substream's paths. ``same_as``: the first substream with the same paths. ``aside``: intermediate
    results that are probed by the attribute may exclude its values. ``nulls``: the share of
    arriving tuples without a value, if this substream has them.
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
    """Probe order of a tuple that arrives last: the stores that it probes, in order.

    ``substreams`` are the numbers of the substreams that take it; empty: all tuples.

    ``keeps`` names the intermediate result that the path maintains, which the query probes; it is
    null of a path that ends in the query's own results. ``left``: it produces the left rows of an
    outer join.
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
    """A store that the query's results depend on, with its readers (``queries``)."""

    store: str
    label: str
    detail: str
    rows: int
    bytes: int
    queries: int


class QueryPlanOut(Document):
    """The running plan of one query, and its share of the resources.

    Steps and stores that several queries need count for each in equal parts: ``cpu`` (CPU seconds
    per second, including its results) and ``state_bytes`` add up to the totals over all queries,
    ``cpu_of_plan`` and ``state_of_plan``. Rates are of the newest periods and include tuples
    withheld by rations; until ``measured`` they are 0.

    ``waiting_seconds`` is how long the oldest row of its streams has waited to be read (null:
    unknown, e.g. for sources that Spark reads), ``batch_seconds`` how long the last batch took. A
    row's results are committed after about the sum of both.
    """

    epoch: int
    revision: int
    measured: bool
    paths: list[ProbePathOut]
    divided: list[DividedOut] = Field(default_factory=list)
    results_per_second: float = Field(description="Of a view or outer join: joined rows.")
    cpu: float
    cpu_of_plan: float
    state_bytes: float
    state_of_plan: int
    stores: list[UsedStoreOut]
    waiting_tuples: int | None
    waiting_seconds: float | None
    batch_seconds: float
