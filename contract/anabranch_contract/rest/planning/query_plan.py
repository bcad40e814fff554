"""Body of ``GET /v1/queries/{name}/plan``: the part of the plan that a query needs."""

from __future__ import annotations

from pydantic import Field

from anabranch_contract.rest.documents import Document
from anabranch_contract.rest.planning.insight import TableRecord, TableShareRecord


class PathStepOut(Document):
    """A step of a query's probe path.

    Attributes:
        label: name of the probed store.
        detail: filters of its rows, or ``all tuples``.
        aliases: aliases of the query that the step adds.
        kept: whether the probed store contains an intermediate result.
        tuples_per_second: rate of the step's output, in tuples per second.
        cpu: CPU seconds per second of the step, for all queries that use it.
        shared: the other registered queries that use it.
        asks: stores in which look-ahead filters before the step look for matches; they drop tuples
            without a match.
    """

    label: str
    detail: str
    aliases: list[str]
    kept: bool
    tuples_per_second: float
    cpu: float
    shared: list[str]
    asks: list[str] = Field(default_factory=list)


class SubstreamValueOut(Document):
    """A value of the key that defines a substream.

    Attributes:
        value: the value as text.
        share: its share of the arriving tuples (0 to 1).
    """

    value: str
    share: float


class SubstreamOut(Document):
    """A substream (tuples with certain key values) of an alias, with its own probe paths.

    Attributes:
        number: its number, as in ``ProbePathOut.substreams``.
        others: whether the substream has all tuples with values that no other substream lists.
        values: key values of the substream, with their shares.
        share: its share of the arriving tuples (0 to 1), as expected at planning.
        cost: cost of its steps, as expected at planning.
        otherwise: expected cost of the same tuples on the first substream's paths.
        same_as: number of the first substream with the same paths.
        aside: whether stores of intermediate results that are probed by the attribute may exclude
            the substream's values.
        nulls: share of arriving tuples with a NULL key if they are in this substream; else 0.
    """

    number: int
    others: bool
    values: list[SubstreamValueOut]
    share: float
    cost: float
    otherwise: float
    same_as: int
    aside: bool = False
    nulls: float = 0.0


class DividedOut(Document):
    """An alias whose tuples are split into substreams.

    Attributes:
        alias: the alias.
        attribute: attribute by whose values the tuples are split.
        substreams: the substreams, in order of their numbers.
    """

    alias: str
    attribute: str
    substreams: list[SubstreamOut]


class ProbePathOut(Document):
    """Probe path of the tuples of an alias: the stores that they probe, in order.

    Attributes:
        alias: alias of the tuples; empty: the query has no alias for them.
        label: name of their relation.
        detail: filter of the relation, or ``all tuples``.
        tuples_per_second: rate of arriving tuples, in tuples per second.
        steps: the steps, in order.
        keeps: intermediate result that the path maintains for the query's probes; null: the path
            ends in results of the query.
        left: whether these results are an outer join's left rows.
        substreams: numbers of the substreams that take the path; empty: all tuples.
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
    """A store on which the query's results depend.

    Attributes:
        store: id of the store.
        label: name of the relation or intermediate result whose rows the store has.
        detail: filters of its rows, or ``all tuples``.
        rows: number of stored rows.
        bytes: size in bytes.
        queries: number of registered queries that depend on the store.
    """

    store: str
    label: str
    detail: str
    rows: int
    bytes: int
    queries: int


class MaintainedTableOut(Document):
    """The maintained table of a query's post-join part.

    Attributes:
        estimated: price of the table as estimated at planning; null: not computed, or the query has
            no view.
        share: this query's part of that price; null: as for ``estimated``.
        rows: number of the query's present rows; of an outer join without a view, of rows written
            so far.
        bytes: size in memory, in bytes; null: not known yet.
        cpu: CPU seconds per second of this query's share.
        cpu_of_table: CPU seconds per second of all queries that share the table.
        shared: the other queries that read the same table or groups.
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

    Steps, stores and tables that several queries need are divided equally among them: ``cpu`` and
    ``state_bytes`` add up to ``cpu_of_plan`` and ``state_of_plan`` over all queries. Rates are of
    the newest periods and include tuples withheld by rations. A row's results are committed after
    about the sum of ``waiting_seconds`` and ``batch_seconds``.

    Attributes:
        epoch: epoch of the running ruleset.
        revision: number of the ruleset's revision; 0: the ruleset with which the epoch began.
        measured: whether a step has been measured; before that, rates are 0.
        paths: probe paths of the query, and of intermediate results that it needs.
        divided: aliases whose tuples are split into substreams.
        results_per_second: results per second; for a view or outer join, joined rows.
        no_results_because: reasons if there were none at all or in the newest periods, as
            sentences: streams without rows or, if all have some, where the rows of each alias end.
        cpu: CPU seconds per second of this query, including its results and its maintained table.
        cpu_of_plan: CPU seconds per second of all queries.
        state_bytes: size of its part of the stores, in bytes.
        state_of_plan: size of all stores, in bytes.
        stores: stores on which the query's results depend, its greatest parts first.
        waiting_tuples: approximate number of rows of its streams that have arrived and are unread;
            null: unknown.
        waiting_seconds: waiting time of the oldest of these rows, in seconds; null: unknown, e.g.
            for sources that Spark reads.
        batch_seconds: duration of the last batch, in seconds.
        table: the maintained table of a query with a view or an outer join; null: another query.
    """

    epoch: int
    revision: int
    measured: bool
    paths: list[ProbePathOut]
    divided: list[DividedOut] = Field(default_factory=list)
    results_per_second: float
    no_results_because: list[str] = Field(default_factory=list)
    cpu: float
    cpu_of_plan: float
    state_bytes: float
    state_of_plan: int
    stores: list[UsedStoreOut]
    waiting_tuples: int | None
    waiting_seconds: float | None
    batch_seconds: float
    table: MaintainedTableOut | None = None
