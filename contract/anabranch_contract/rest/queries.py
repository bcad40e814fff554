"""Bodies of ``/v1/queries`` and of their results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from pydantic import AfterValidator, AwareDatetime, Field, JsonValue, field_validator
from pydantic_core import PydanticCustomError

from anabranch_contract.durations import parse_duration
from anabranch_contract.errors import PlannerError
from anabranch_contract.protocol.activations import Failure
from anabranch_contract.rest.documents import (
    MAX_TEXT,
    NAME_KEYS,
    Closed,
    Document,
    Duration,
    Open,
    QueryName,
    StatementText,
    Time,
    distinct,
    examples,
    printable,
)
from anabranch_contract.rest.normalised import BoundInfo, NormalisedInfo
from anabranch_contract.rest.slo import Slo

if TYPE_CHECKING:
    from anabranch_contract.connectors.sinks import SinkSpec

#: The SQL dialect of a statement.
Dialect = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9_]{1,40}$",
        description="SQL dialect of the statement, as sqlglot names it; translated to Spark SQL.",
        examples=["postgres"],
    ),
]


SinkOption = Annotated[str, Field(max_length=10_000)]

#: Title and tags of a query.
Title = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(printable)]
Tag = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:/=-]{0,63}$", examples=["team:web"])]
Tags = Annotated[list[Tag], Field(max_length=32), AfterValidator(distinct)]


#: Whether a query also emits results over tuples that were stored before its activation.
Past = Annotated[
    Literal["none", "stored"],
    Field(
        description="`stored`: also emit results whose tuples were all stored before the query "
        "began. `none`: the last tuple of each result arrived after it began.",
        examples=["stored"],
    ),
]


#: Time at which a new run of a query replaces the present one.
Cutover = Annotated[
    Literal["at-once", "when-complete"],
    Field(
        description="`at-once`: a new run takes the place of the present one with the next epoch. "
        "`when-complete`: the present run goes on, and is read under the query's name, until the "
        "new run has caught up.",
        examples=["when-complete"],
    ),
]


#: A value for a parameter of a statement.
ConstantIn = Annotated[
    bool
    | int
    | Annotated[float, Field(allow_inf_nan=False)]
    | Annotated[str, Field(max_length=10_000)]
    | None,
    Field(description="A number, text, boolean, or null.", examples=[100]),
]
Parameters = Annotated[dict[str, ConstantIn], Field(max_length=1000)]


def _parsed(text: str) -> str:
    try:
        parse_duration(text)
    except PlannerError as error:
        raise PydanticCustomError(error.code, f"{error.message}; {error.remedy}") from None
    return text


class SinkRecord(Closed):
    """Destination of results (``docs/sinks.md``).

    Attributes:
        format: ``parquet``, ``count``, ``redis-stream``, ``kafka``, ``webhook``, or a Spark format.
        options: option of the format -> its value. Secrets are masked in answers.
        path: folder or table of the results; null: the default of the format.
        mode: writing mode: results are appended.
        commit_interval: time for which results of several batches are gathered into one file or
            delivery, up to an hour; default: each batch has its own.
    """

    format: str = Field(
        default="parquet", pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.$-]{0,127}$", examples=["json"]
    )
    options: dict[str, SinkOption] = Field(default_factory=dict, max_length=100)
    path: str | None = Field(default=None, min_length=1, max_length=4096)
    mode: Literal["append"] = "append"
    commit_interval: Annotated[Duration, AfterValidator(_parsed)] | None = Field(
        default=None, examples=["10 seconds"]
    )

    def to_sink(self) -> SinkSpec:
        """Return the sink as the planner's :class:`SinkSpec`."""
        # Imported only here, because the client reads queries without checks of sinks.
        from anabranch_contract.connectors.sinks import SinkSpec

        options = tuple(sorted(self.options.items()))
        interval = 0 if self.commit_interval is None else parse_duration(self.commit_interval)
        return SinkSpec(self.format, options, self.path, self.mode, interval)


class QueryTerms(Document):
    """Fields that requests, records and answers of queries share: statement or structured query,
    sink, priority, service levels, and texts for display and search.

    Attributes:
        sql: SQL statement; null: the query is in ``query``.
        query: the query as JSON, not SQL; null: it is in ``sql``.
        window: window of all aliases, or alias -> its window: an alias's tuples join only tuples
            whose event time is at most this much later; null: no window.
        sink: destination of the results.
        priority: priority under load shedding; a greater number comes first.
        slo: service level objectives.
        title: display title.
        owner: owner of the query.
        tags: tags for filters.
    """

    sql: str | None = None
    query: dict[str, JsonValue] | None = None
    window: Duration | dict[str, Duration] | None = None
    sink: SinkRecord = SinkRecord()
    priority: int = Field(default=0, ge=0, le=1_000_000)
    slo: Slo = Slo()
    title: Title | None = None
    owner: Title | None = None
    tags: Tags = Field(default=[])
    past: Past = "none"


class QueryOptions(TypedDict, total=False):
    """Keyword arguments for optional fields of :class:`QueryIn`; None means the default."""

    dialect: str | None
    ttl: str | None
    expires_at: str | None
    priority: int | None
    slo: Mapping[str, Any] | None
    title: str | None
    owner: str | None
    tags: Sequence[str] | None
    past: str | None


class RegistrationIn(Closed, QueryTerms):
    """Fields that registrations of one query and of a family share.

    Attributes:
        ttl: time until the query expires.
        expires_at: expiry time, ISO 8601.
    """

    sql: StatementText | None = None
    dialect: Dialect = "spark"
    ttl: Duration | None = None
    expires_at: AwareDatetime | None = None

    @field_validator("query")
    @classmethod
    def _encodable(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        """Reject a structured query with lone surrogates, which UTF-8 lacks, or too long a text."""
        try:
            text = json.dumps(value, ensure_ascii=False)
            text.encode()
        except (UnicodeEncodeError, RecursionError):
            raise PydanticCustomError("bad-text", "must be valid Unicode, not too deep") from None
        if len(text) > MAX_TEXT:
            raise PydanticCustomError("too-long", f"must have {MAX_TEXT} characters at most")
        return value


class QueryIn(RegistrationIn):
    """A query to register: exactly one of ``sql`` and ``query``.

    Attributes:
        name: name of the query; default: ``q-`` and 12 hexadecimal digits.
        parameters: values of the statement's parameters (``:name``), inserted in their places.
    """

    model_config = examples(
        {
            "name": "delays",
            "sql": "SELECT f.carrier, w.wind FROM flights f JOIN weather w ON f.origin = w.origin",
            "window": {"f": "1 hour", "w": "30 minutes"},
            "ttl": "2 days",
        },
        {
            "name": "windy",
            "query": {
                "from": {"f": "flights", "w": "weather"},
                "join": ["f.origin = w.origin"],
                "where": ["w.wind > 10"],
                "select": ["f.carrier"],
            },
            "window": "1 hour",
            "owner": "web",
            "tags": ["team:web"],
        },
    )

    name: QueryName | None = Field(default=None, validation_alias=NAME_KEYS)
    parameters: Parameters | None = Field(default=None, examples=[{"least": 20}])
    cutover: Cutover = "at-once"


class QueryPatch(Closed):
    """Changes of a registered query. ``expires_at: null`` removes its expiry.

    In ``slo`` only the given fields change; ``slo: null`` removes all objectives. ``title: null``
    and ``owner: null`` remove title and owner. ``tags`` replaces all tags.

    Attributes:
        ttl: time from now until the query expires.
        expires_at: expiry time, ISO 8601.
        priority: priority under load shedding; a greater number comes first.
        slo: service level objectives.
        title: display title.
        owner: owner of the query.
        tags: tags for filters.
    """

    model_config = examples({"ttl": "1 hour", "priority": 3}, {"slo": {"latency": "2 seconds"}})

    ttl: Duration | None = None
    expires_at: AwareDatetime | None = None
    priority: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    slo: Slo | None = None
    title: Title | None = None
    owner: Title | None = None
    tags: Tags | None = None


class VisibleFrom(Document):
    """The first tuples of an alias that take part in the query's joins.

    Attributes:
        batch: the first batch whose tuples join.
        event_time: the least event time of tuples that join; null: any.
    """

    batch: int
    event_time: str | None


class MissedOut(Document):
    """Rows of a stream that a query misses, since they were read before it and are not stored.

    Attributes:
        stream: name of the stream.
        rows: number of the rows; null: they were stored, but have expired.
        message: sentence about the missed rows and their effect.
        remedy: steps by which a query gets the rows.
    """

    stream: str
    rows: int | None
    message: str
    remedy: str


class ActivationOut(Document):
    """An earlier activation of a query, ended when a stream's ttl changed the query's time bounds.

    Attributes:
        activated_batch: its first batch.
        expired_batch: the first batch after the activation.
        bounds: the query's time bounds during the activation.
        visible_from: alias -> its first tuples that joined.
        complete_from: event time from which results miss no tuple of the past; null: ``complete``
            is ``always`` or ``never``.
        complete: event times whose results miss no tuple of the past: ``always`` (all), ``from``
            (from ``complete_from`` on) or ``never``.
        results: number of results since the query began, up to the activation's end.
    """

    activated_batch: int
    expired_batch: int
    bounds: list[BoundInfo]
    visible_from: dict[str, VisibleFrom]
    complete_from: str | None
    complete: str
    results: int


QueryStatus = Literal["pending", "active", "paused", "expiring", "expired", "rejected", "failed"]


class ProblemRecord(Closed):
    """The error for which a query was rejected.

    Attributes:
        code: code of the error (``docs/errors.md``).
        message: the fault, as a sentence.
        field: field of the request with the fault; empty: none in particular.
        remedy: remedy for the fault; empty: unknown.
        line: line of the error in the SQL statement, from 1; null: no position.
        column: column of the error in that line, from 1; null: no position.
    """

    code: str
    message: str
    field: str = ""
    remedy: str = ""
    line: int | None = None
    column: int | None = None


class PartialOut(Document):
    """A column of a view that is inexact because load shedding withheld joined rows.

    Attributes:
        column: name of the column; null: the set of rows, or all columns.
        code: code of the reason.
        reason: sentence about why the column is inexact.
    """

    column: str | None
    code: str
    reason: str


class ScaledOut(Document):
    """Estimate of a count, sum or average over all joined rows, withheld ones included.

    Attributes:
        value: the estimate; null: unknown.
        error: half width of the 95 % confidence interval around ``value``; null: unknown.
    """

    value: float | None
    error: float | None


class ViewRowsOut(Document):
    """The current rows of a query with a view (aggregates, DISTINCT or LIMIT after its joins). A
    view without LIMIT is reported only while it has few rows.

    Attributes:
        version: version of the view; null: not reported yet.
        total: number of rows of the view, not only of ``rows``.
        columns: names of the columns, in order.
        rows: the rows, each as column -> value.
        completeness: estimated share of joined rows that load shedding did not withhold; if it is
            below 1, sums and counts are too low.
        batch: last batch whose joined rows are included; null: unknown.
        withheld: estimated number of joined rows withheld by load shedding.
        owed: estimated number of withheld joined rows that will be computed later.
        blind: number of (alias, batch) pairs with ration 0, whose joined rows no estimate includes.
        partial: columns and clauses that are inexact for lack of joined rows; empty: none.
        whole: per row, whether it covers all joined rows of its group; null: unknown. Empty if no
            joined row is missing.
        scaled: per row, estimates by column; null: not requested or not available.
        unscaled: reason why requested estimates (``scaled``) are not available.
    """

    version: int | None
    total: int | None
    columns: list[str]
    rows: list[dict[str, JsonValue]]
    completeness: float = 1.0
    batch: int | None = None
    withheld: float = 0.0
    owed: float = 0.0
    blind: int = 0
    partial: list[PartialOut] = Field(default=[])
    whole: list[bool | None] = Field(default=[])
    scaled: list[dict[str, ScaledOut]] | None = None
    unscaled: PartialOut | None = None


class RationedOut(Document):
    """Results that load shedding has withheld from a query (``docs/semantics.md``, "Rations").

    The results of an outer join, or the joined rows of a view over it, are pairs (of left joins
    only), and left rows for which no partner can arrive any more.

    Attributes:
        withheld: number of results withheld so far, estimated from the emitted ones.
        completeness: estimated share of results that were emitted.
        blind: number of (alias, batch) pairs with ration 0, whose results no estimate includes.
        shares: alias with a ration below 1 in the last batch -> share of its arriving tuples that
            probed.
        owed: estimated number of withheld results that will be computed later.
        caught_up: number of results that were withheld and have been computed since.
        floor: required completeness; null: none.
        floor_needs: share of rationed probes' CPU time that the floors of this and of higher
            priorities need; null: no floor, or no measurements yet.
        floor_broken: whether less CPU time than ``floor_needs`` is available.
        left_withheld: estimated number of an outer join's left rows among ``withheld``.
        undecided: number of left rows without a result because their pairs may be withheld.
    """

    withheld: float
    completeness: float
    blind: int
    shares: dict[str, float]
    owed: float = 0.0
    caught_up: int = 0
    floor: float | None = None
    floor_needs: float | None = None
    floor_broken: bool = False
    left_withheld: float = 0.0
    undecided: int = 0


class PastOut(Document):
    """Progress of a query's results over tuples stored before it began.

    Attributes:
        status: ``pending``: the results are being emitted. ``emitted``: all are emitted.
            ``given-up``: some are emitted, and the rest is lost, because stored rows that it needs
            are gone.
        results: number of such results emitted so far; included in the query's results.
        rows: number of stored rows still to be processed; null: not begun yet.
    """

    status: Open[Literal["pending", "emitted", "given-up"]]
    results: int
    rows: int | None


class ReplacementOut(Document):
    """A run of a query that will replace the present one when it has caught up.

    Attributes:
        run: name of the run.
        status: status of the run.
        sql: its SQL statement; null: it has none.
        waits_because: reason why the run has not caught up; null: it has, and replaces the present
            run when the next epoch begins.
        remedy: remedy if the run will never catch up; else empty.
    """

    run: str
    status: Open[QueryStatus]
    sql: str | None
    waits_because: str | None
    remedy: str = ""


class RunOfQuery(Document):
    """Beginning, end and results of a query's run.

    Attributes:
        created_at: time of its registration, replacement or resumption.
        first_epoch: first published epoch that includes it; null: none yet.
        last_epoch: last published epoch that includes it, once it has ended; null: it has not.
        activated_batch: first batch whose arrivals can complete a result; null: not active yet.
        expired_batch: first batch whose arrivals complete no result any more; null: not ended.
        complete_from: event time from which results miss no tuple of the past; null: ``complete``
            is not ``from``.
        complete: event times whose results miss no tuple of the past: ``always`` (all), ``from``
            (from ``complete_from`` on) or ``never``; null: not active yet.
        results: number of results emitted so far; for a view, of its current rows (if they are too
            many to be kept, their last known number).
    """

    created_at: Time
    first_epoch: int | None
    last_epoch: int | None
    activated_batch: int | None
    expired_batch: int | None
    complete_from: str | None
    complete: str | None
    results: int


class QueryOut(RunOfQuery, QueryTerms):
    """A registered query: its terms, normal form, status and progress.

    Attributes:
        id: same as ``name``.
        name: name of the query.
        run: name of its newest run, used in plans, metrics and names of folders.
        replacement: the run that replaces this one when it has caught up; null: none.
        status: status of the query.
        waits_because: reason why the query is pending, if its plan waits for approval or was
            refused; else null.
        sink_problem: reason why the sink does not accept results at present; null: it does.
        results_at: location of the results; null: the sink only counts them.
        input_problems: streams that can't be read at present -> the reason.
        reads: registered queries that it reads by name.
        read_by: live queries that read it by name.
        part_of: query that contains it as a subquery; null: it is registered by itself.
        expires_at: time of its expiry; null: it does not expire.
        normalised: its normal form.
        visible_from: alias -> its first tuples that join; null: not active yet.
        missed: rows read before the query and not stored, which its results miss (while it is
            pending: would miss).
        past_results: progress of results over rows stored before it; null: the past was not
            requested, or emission has not begun.
        earlier: its activations before this one, oldest first.
        joined_rows: for a view or outer join, number of results of the inner joins that it reads.
        rationed: results withheld by load shedding; null: none, and no floor is known.
        problem: error for which the query was rejected; null: it was not.
        failure: failure at run time; null: none.
    """

    id: str
    name: str = ""
    run: str = ""
    replacement: ReplacementOut | None = None
    status: Open[QueryStatus]
    waits_because: str | None = None
    sink_problem: str | None
    results_at: str | None = None
    input_problems: dict[str, str]
    reads: list[str] = Field(default=[])
    read_by: list[str] = Field(default=[])
    part_of: str | None = None
    expires_at: Time | None
    normalised: NormalisedInfo
    visible_from: dict[str, VisibleFrom] | None
    missed: list[MissedOut] = Field(default=[])
    past_results: PastOut | None = None
    earlier: list[ActivationOut]
    joined_rows: int | None = None
    rationed: RationedOut | None = None
    problem: ProblemRecord | None
    failure: Failure | None


class QueryList(Document):
    """A page of queries in order of registration; pass ``next_cursor`` as ``cursor``.

    Attributes:
        items: the queries of the page.
        next_cursor: ``cursor`` of the next page; null: this is the last page.
    """

    items: list[QueryOut]
    next_cursor: str | None


class RunOut(RunOfQuery):
    """One run of a query: from its registration, replacement or resumption to its end.

    Attributes:
        run: name of the run.
        status: status of the run.
        sql: its SQL statement; null: the query is in ``query``.
        query: the query as JSON; null: it is in ``sql``.
        results_at: location of the results; null: the sink only counts them.
    """

    run: str
    status: Open[QueryStatus]
    sql: str | None
    query: dict[str, JsonValue] | None
    results_at: str | None


class RunList(Document):
    """All runs of a query, oldest first.

    Attributes:
        items: the runs.
    """

    items: list[RunOut]


#: Maximum number of queries in one batch request.
MAX_BATCH = 500

_EXAMPLE = "SELECT f.carrier, w.wind FROM flights f JOIN weather w ON f.origin = w.origin"


class QueryBatchIn(Closed):
    """Queries to register at once, in this order.

    Attributes:
        queries: the queries.
        atomic: whether all queries are registered or none; false: each valid query is registered.
    """

    model_config = examples(
        {
            "queries": [
                {"name": "delays", "sql": _EXAMPLE},
                {"name": "windy", "sql": f"{_EXAMPLE} WHERE w.wind > 10"},
            ],
            "atomic": False,
        }
    )

    queries: Annotated[list[QueryIn], Field(min_length=1, max_length=MAX_BATCH)]
    atomic: bool = True


class QueryBatchItem(Document):
    """Outcome for one query of a batch.

    Attributes:
        query: the registered query; null: it was refused.
        problem: error for which the query was refused; null: it was not.
    """

    query: QueryOut | None
    problem: ProblemRecord | None


class QueryBatchOut(Document):
    """Outcome of a batch, in the order of its queries; of a dry run, the expected outcome.

    Attributes:
        items: outcome of each query.
        registered: number of registered queries.
        refused: number of refused queries.
        dry_run: whether nothing was stored.
    """

    items: list[QueryBatchItem]
    registered: int
    refused: int
    dry_run: bool = False


class QueryChange(Document):
    """Outcome of the PUT of a query, or of its dry run.

    A ``replaced`` query keeps its present run until the next epoch begins, or with ``cutover:
    when-complete`` until the new run has caught up.

    Attributes:
        action: outcome: no change, a new query, changed settings, or a new run that replaces one.
        fields: fields of the body whose values differ from the registered ones.
        dry_run: whether nothing was stored.
        query: the query's new registration; null in a dry run for an unregistered query.
        version: the query's ETag, for If-Match; null where there is none.
    """

    action: Open[Literal["none", "created", "changed", "replaced"]]
    fields: list[str]
    dry_run: bool
    query: QueryOut | None
    version: str | None = None
