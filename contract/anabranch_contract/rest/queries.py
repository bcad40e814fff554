"""Bodies of ``/v1/queries`` and of their results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from pydantic import (
    AfterValidator,
    AwareDatetime,
    Field,
    JsonValue,
    field_validator,
)
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

#: The dialect of a statement.
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


#: When a new run of a query takes the place of the present one.
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
    """Destination of results (``docs/sinks.md``)."""

    format: str = Field(
        default="parquet",
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.$-]{0,127}$",
        description="`parquet`, `count`, `redis-stream`, `kafka`, `webhook`, or a format "
        "that Spark writes.",
        examples=["json"],
    )
    options: dict[str, SinkOption] = Field(default_factory=dict, max_length=100)
    path: str | None = Field(default=None, min_length=1, max_length=4096)
    mode: Literal["append"] = "append"
    commit_interval: Annotated[Duration, AfterValidator(_parsed)] | None = Field(
        default=None,
        description="Time for which results of several batches are gathered into one file or "
        "delivery, up to an hour; default: each batch has its own.",
        examples=["10 seconds"],
    )

    def to_sink(self) -> SinkSpec:
        """Return the sink as the planner's :class:`SinkSpec`."""
        # Here: the client reads queries without the checks of all kinds of sinks.
        from anabranch_contract.connectors.sinks import SinkSpec

        options = tuple(sorted(self.options.items()))
        interval = 0 if self.commit_interval is None else parse_duration(self.commit_interval)
        return SinkSpec(self.format, options, self.path, self.mode, interval)


class QueryTerms(Document):
    """Fields common to requests, records and answers of queries: statement or structured query,
    sink, priority, service levels, and texts for display and search.
    """

    sql: str | None = None
    query: dict[str, JsonValue] | None = Field(default=None, description="Query as JSON, not SQL.")
    window: Duration | dict[str, Duration] | None = None
    sink: SinkRecord = SinkRecord()
    priority: int = Field(
        default=0, ge=0, le=1_000_000, description="Priority under load shedding; greatest first."
    )
    slo: Slo = Slo()
    title: Title | None = Field(default=None, description="Display title.")
    owner: Title | None = Field(default=None, description="Owner of the query.")
    tags: Tags = Field(default=[], description="Tags for filters.")
    past: Past = "none"


class QueryOptions(TypedDict, total=False):
    """Keyword arguments for optional fields of :class:`QueryIn`; None stands for the default."""

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
    """Fields common to the registrations of one query and of a family."""

    sql: StatementText | None = None
    dialect: Dialect = "spark"
    ttl: Duration | None = Field(default=None, description="Time until the query expires.")
    expires_at: AwareDatetime | None = Field(default=None, description="Expiry time, ISO 8601.")

    @field_validator("query")
    @classmethod
    def _encodable(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        """Reject text with lone surrogates, which UTF-8 can't encode, and text longer than an SQL
        statement may be.
        """
        try:
            text = json.dumps(value, ensure_ascii=False)
            text.encode()
        except (UnicodeEncodeError, RecursionError):
            raise PydanticCustomError("bad-text", "must be valid Unicode, not too deep") from None
        if len(text) > MAX_TEXT:
            raise PydanticCustomError("too-long", f"must have {MAX_TEXT} characters at most")
        return value


class QueryIn(RegistrationIn):
    """A query to register: exactly one of ``sql`` and ``query``."""

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
    parameters: Parameters | None = Field(
        default=None,
        description="Values of the statement's parameters (`:name`), which take their places.",
        examples=[{"least": 20}],
    )
    cutover: Cutover = "at-once"


class QueryPatch(Closed):
    """Changes of a registered query. ``expires_at: null`` removes its expiry.

    In ``slo`` only the given fields change; ``slo: null`` removes all objectives. ``title: null``
    and ``owner: null`` remove title and owner. ``tags`` replaces all tags.
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
    """First batch, and least event time (null: any), of the tuples of an alias that join."""

    batch: int
    event_time: str | None


class MissedOut(Document):
    """Rows of a stream that a query misses, since they were read before it and are not stored.

    ``rows`` is their number; null: they were stored, but have expired.
    """

    stream: str
    rows: int | None
    message: str
    remedy: str


class ActivationOut(Document):
    """An earlier activation of a query, ended when a stream's ttl changed the query's time bounds.

    It lasted from ``activated_batch`` to the batch before ``expired_batch``, with the time bounds
    ``bounds``. ``results`` is the number of results up to its end, since the query began.
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
    """Why a query was rejected.

    ``line`` and ``column`` are the error's position in the SQL statement, from 1; null: no
    position.
    """

    code: str
    message: str
    field: str = ""
    remedy: str = ""
    line: int | None = None
    column: int | None = None


class PartialOut(Document):
    """A column of a view that is inexact because load shedding withheld joined rows, and why.

    ``column`` null: the set of rows, or all columns.
    """

    column: str | None
    code: str
    reason: str


class ScaledOut(Document):
    """Estimate of a count, sum or average over all joined rows, withheld ones included.

    The true value is within ``error`` of ``value`` with 95 % confidence. Null: unknown.
    """

    value: float | None
    error: float | None


class ViewRowsOut(Document):
    """The current rows of a query with a view (aggregates, DISTINCT or LIMIT after its joins). A
    view without LIMIT is reported only while it has few rows.

    ``completeness`` is the estimated share of joined rows that load shedding did not withhold;
    below 1, sums and counts are too low. ``withheld``, ``owed`` and ``blind``: see RationedOut.
    """

    version: int | None = Field(description="Version of the view; null: not reported yet.")
    total: int | None = Field(description="Number of rows of the view, not only of `rows`.")
    columns: list[str]
    rows: list[dict[str, JsonValue]]
    completeness: float = 1.0
    batch: int | None = Field(
        default=None, description="Last batch whose joined rows are included; null: unknown."
    )
    withheld: float = 0.0
    owed: float = 0.0
    blind: int = 0
    partial: list[PartialOut] = Field(
        default=[],
        description="Columns and clauses that are inexact for lack of joined rows; empty: none.",
    )
    whole: list[bool | None] = Field(
        default=[],
        description="Per row, whether it covers all joined rows of its group; null: unknown. "
        "Empty if no joined row is missing.",
    )
    scaled: list[dict[str, ScaledOut]] | None = Field(
        default=None,
        description="Per row, estimates by column; null: not requested or not available.",
    )
    unscaled: PartialOut | None = Field(
        default=None, description="Why requested estimates (`scaled`) are not available."
    )


class RationedOut(Document):
    """Results that load shedding has withheld from a query (``docs/semantics.md``, "Rations").

    ``withheld`` estimates the results withheld so far, from the emitted ones; ``completeness`` is
    the share emitted. ``shares`` maps each alias with a ration below 1 in the last batch to it: the
    share of the alias's arriving tuples that probed. ``blind`` counts the (alias, batch) pairs with
    ration 0, whose results no estimate includes. ``owed`` estimates the withheld results that will
    be computed later; ``caught_up`` counts those computed. ``floor`` is the required completeness,
    ``floor_needs`` the share of rationed probes' CPU time that the floors of this and of higher
    priorities need; with less, ``floor_broken`` is true. Null: no floor, or no measurements yet.

    An outer join's results, also as input of a view, are pairs (left joins only), and left rows
    once no partner can arrive any more. ``left_withheld`` estimates the left rows among
    ``withheld``; ``undecided`` counts left rows that gave no result because pairs of them may be
    withheld.
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

    ``pending``: they are being emitted. ``emitted``: all are emitted. ``given-up``: some are
    emitted, and the rest is lost, since the stored rows that it needs are gone.
    """

    status: Open[Literal["pending", "emitted", "given-up"]]
    results: int = Field(description="Results emitted so far; included in the query's results.")
    rows: int | None = Field(
        description="Number of stored rows still to be processed; null: not begun yet."
    )


class ReplacementOut(Document):
    """A run that will take the place of the present one when it has caught up."""

    run: str
    status: Open[QueryStatus]
    sql: str | None
    waits_because: str | None = Field(
        description="Why it has not caught up; null: it has, and takes the place with an epoch."
    )
    remedy: str = Field(default="", description="Remedy if it will never catch up.")


class QueryOut(QueryTerms):
    """A registered query: its terms, normal form, status and progress."""

    id: str = Field(description="As `name`.")
    name: str = Field(default="", description="Name of the query.")
    run: str = Field(
        default="",
        description="Name of its newest run, used in plans, metrics and names of folders.",
    )
    replacement: ReplacementOut | None = Field(
        default=None,
        description="The run that takes the place of this one when it has caught up; null: none.",
    )
    status: Open[QueryStatus]
    waits_because: str | None = Field(
        default=None,
        description="Why it is pending: its plan waits for approval, or was refused.",
    )
    sink_problem: str | None = Field(
        description="Why the sink does not accept results at present; null: it does."
    )
    results_at: str | None = Field(
        default=None, description="Location of the results; null: the sink only counts them."
    )
    input_problems: dict[str, str] = Field(
        description="Streams that can't be read at present -> the reason."
    )
    reads: list[str] = Field(default=[], description="Registered queries that it reads by name.")
    read_by: list[str] = Field(default=[], description="Live queries that read it by name.")
    part_of: str | None = Field(
        default=None, description="Query that has it as a subquery; null: registered by itself."
    )
    created_at: Time
    expires_at: Time | None
    normalised: NormalisedInfo
    first_epoch: int | None
    last_epoch: int | None
    activated_batch: int | None
    expired_batch: int | None
    visible_from: dict[str, VisibleFrom] | None
    complete_from: str | None
    complete: str | None
    missed: list[MissedOut] = Field(
        default=[],
        description="Rows read before the query and not stored, which its results miss (while it "
        "is pending: would miss).",
    )
    past_results: PastOut | None = Field(
        default=None, description="Null: the past was not requested, or emission has not begun."
    )
    earlier: list[ActivationOut] = Field(
        description="Its activations before this one, oldest first."
    )
    results: int = Field(
        description="Number of results emitted so far; for a view, of its current rows (if they "
        "are too many to be kept, their last known number)."
    )
    joined_rows: int | None = Field(
        default=None,
        description="For a view or outer join, number of results of the inner joins that it reads.",
    )
    rationed: RationedOut | None = Field(
        default=None,
        description="Results withheld by load shedding; null: none, and no floor is known.",
    )
    problem: ProblemRecord | None
    failure: Failure | None


class QueryList(Document):
    """A page of queries in order of registration; pass ``next_cursor`` as ``cursor``."""

    items: list[QueryOut]
    next_cursor: str | None


class RunOut(Document):
    """One run of a query: from its registration, replacement or resumption to its end."""

    run: str
    status: Open[QueryStatus]
    sql: str | None
    query: dict[str, JsonValue] | None
    created_at: Time
    first_epoch: int | None
    last_epoch: int | None
    activated_batch: int | None
    expired_batch: int | None
    complete_from: str | None
    complete: str | None
    results: int
    results_at: str | None


class RunList(Document):
    """All runs of a query, oldest first."""

    items: list[RunOut]


#: Maximum number of queries in one batch request.
MAX_BATCH = 500

_EXAMPLE = "SELECT f.carrier, w.wind FROM flights f JOIN weather w ON f.origin = w.origin"


class QueryBatchIn(Closed):
    """Queries to register at once, in this order."""

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
    atomic: bool = Field(default=True, description="Register all or none; false: each valid query.")


class QueryBatchItem(Document):
    """Outcome for one query of a batch: one of ``query`` and ``problem`` is null."""

    query: QueryOut | None
    problem: ProblemRecord | None


class QueryBatchOut(Document):
    """Outcome of a batch, in the order of its queries; of a dry run, the expected outcome."""

    items: list[QueryBatchItem]
    registered: int
    refused: int
    dry_run: bool = False


class QueryChange(Document):
    """Outcome of a PUT, or of its dry run: no change, changed settings, a new run, or a new query.

    ``fields`` are the body's fields that differ from the registered ones. A ``replaced`` query
    keeps its present run until the next epoch begins, or with ``cutover: when-complete`` until the
    new run has caught up; ``query`` is its new registration.
    """

    action: Open[Literal["none", "created", "changed", "replaced"]]
    fields: list[str]
    dry_run: bool
    query: QueryOut | None = Field(description="Null in a dry run for an unregistered query.")
    version: str | None = Field(
        default=None, description="The ETag of ``query``, for If-Match; null where there is none."
    )
