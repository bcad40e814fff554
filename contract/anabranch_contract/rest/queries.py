"""Bodies of ``/v1/queries`` and of their results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from pydantic import (
    AfterValidator,
    AwareDatetime,
    Field,
    JsonValue,
    field_validator,
)
from pydantic_core import PydanticCustomError

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.protocol.activations import Failure
from anabranch_contract.rest.documents import (
    MAX_TEXT,
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

#: The dialect of a statement.
Dialect = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9_]{1,40}$",
        description="The statement's dialect, by sqlglot's name; it is translated to Spark's.",
        examples=["postgres"],
    ),
]


SinkOption = Annotated[str, Field(max_length=10_000)]

#: Title and tags of a query.
Title = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(printable)]
Tag = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:/=-]{0,63}$", examples=["team:web"])]
Tags = Annotated[list[Tag], Field(max_length=32), AfterValidator(distinct)]


#: Whether results that could have been had before a query was registered are emitted as well.
Past = Annotated[
    Literal["none", "stored"],
    Field(
        description="`stored`: its results over tuples stored before it begins are emitted as "
        "well, while it runs. `none`: a result's last member arrives after it began.",
        examples=["stored"],
    ),
]


class SinkRecord(Closed):
    """Destination of results (``docs/sinks.md``)."""

    format: str = Field(
        default="parquet",
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.$-]{0,127}$",
        description="`parquet`, `count`, `redis-stream`, or a format that Spark can write.",
        examples=["json"],
    )
    options: dict[str, SinkOption] = Field(default_factory=dict, max_length=100)
    path: str | None = Field(default=None, min_length=1, max_length=4096)
    mode: Literal["append"] = "append"

    def to_sink(self) -> SinkSpec:
        """The planner's view of it."""
        options = tuple(sorted(self.options.items()))
        return SinkSpec(self.format, options, self.path, self.mode)


class QueryTerms(Document):
    """The terms of a query common to requests, records and answers: statement or structured query,
    sink, importance, and what people find it by.
    """

    sql: str | None = None
    query: dict[str, JsonValue] | None = Field(default=None, description="A structured query.")
    window: Duration | dict[str, Duration] | None = None
    sink: SinkRecord = SinkRecord()
    priority: int = Field(
        default=0, ge=0, le=1_000_000, description="Under load shedding; greater is more important."
    )
    slo: Slo = Slo()
    title: Title | None = Field(default=None, description="Display title.")
    owner: Title | None = Field(default=None, description="Owner of the query.")
    tags: Tags = Field(default=[], description="Tags for filters.")
    past: Past = "none"


class QueryOptions(TypedDict, total=False):
    """Optional fields of :class:`QueryIn` as arguments; None: the service's default."""

    dialect: str | None
    ttl: str | None
    expires_at: str | None
    priority: int | None
    slo: Mapping[str, Any] | None
    title: str | None
    owner: str | None
    tags: Sequence[str] | None
    past: str | None


class QueryIn(Closed, QueryTerms):
    """A query to register: exactly one of ``sql`` and ``query``."""

    model_config = examples(
        {
            "id": "delays",
            "sql": "SELECT f.carrier, w.wind FROM flights f JOIN weather w ON f.origin = w.origin",
            "window": {"f": "1 hour", "w": "30 minutes"},
            "ttl": "2 days",
        },
        {
            "id": "windy",
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

    id: QueryName | None = None
    sql: StatementText | None = None
    dialect: Dialect = "spark"
    ttl: Duration | None = Field(default=None, description="Time to live.")
    expires_at: AwareDatetime | None = Field(default=None, description="Expiry time, ISO 8601.")

    @field_validator("query")
    @classmethod
    def _encodable(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        """Reject lone surrogates, which JSON can spell but no store can hold, and texts longer than
        SQL may be.
        """
        try:
            text = json.dumps(value, ensure_ascii=False)
            text.encode()
        except (UnicodeEncodeError, RecursionError):
            raise PydanticCustomError("bad-text", "must be valid Unicode, not too deep") from None
        if len(text) > MAX_TEXT:
            raise PydanticCustomError("too-long", f"must have {MAX_TEXT} characters at most")
        return value


class QueryPatch(Closed):
    """Changes of a registered query. ``expires_at: null`` lets it live for ever.

    Of ``slo`` the fields that are given are changed; null: the query needs nothing any more.
    ``title: null`` and ``owner: null`` take these away; ``tags`` are given as a whole.
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
    """The first batch, and least event time, of an alias's visible tuples; null: any event time."""

    batch: int
    event_time: str | None


class MissedOut(Document):
    """Rows of a stream that were read before a query and not stored for it.

    ``rows`` counts them; null: they were stored, and dropped after their time.
    """

    stream: str
    rows: int | None
    message: str
    remedy: str


class ActivationOut(Document):
    """An activation that has ended because a stream's ttl changed the query's time bounds.

    It was active from ``activated_batch`` up to the batch before ``expired_batch``, by ``bounds``;
    ``results`` are those up to its end, of earlier ones too.
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

    ``line`` and ``column`` refer to the statement of an explanation or of a batch, from 1; null: no
    position.
    """

    code: str
    message: str
    field: str = ""
    remedy: str = ""
    line: int | None = None
    column: int | None = None


class PartialOut(Document):
    """Something of a view that holds for a part of its joined rows only, and why.

    ``column`` is null where it is about which rows there are, or about all of them.
    """

    column: str | None
    code: str
    reason: str


class ScaledOut(Document):
    """A count, a sum or an average over all joined rows, estimated from the kept ones.

    The true value is within ``error`` of ``value`` with 95 % confidence. Null: unknown.
    """

    value: float | None
    error: float | None


class ViewRowsOut(Document):
    """The rows of a view. A view without LIMIT is reported as long as it is small.

    ``completeness`` is the estimated share of its joined rows that overload has not withheld, as of
    this version: below 1, sums and counts cover only a part. ``withheld``, ``owed`` and ``blind``
    are as in ``rationed`` of the query, as of this version.
    """

    version: int | None = Field(description="Null: it has not been reported yet.")
    total: int | None = Field(description="Number of all rows, reported or not.")
    columns: list[str]
    rows: list[dict[str, JsonValue]]
    completeness: float = 1.0
    batch: int | None = Field(
        default=None, description="The last batch whose joined rows are in it; null: not known."
    )
    withheld: float = 0.0
    owed: float = 0.0
    blind: int = 0
    partial: list[PartialOut] = Field(
        default=[],
        description="Rows and columns covering only a part; empty if nothing is missing.",
    )
    whole: list[bool | None] = Field(
        default=[],
        description="Of each row whether no joined row of its group is missing; null: not known. "
        "Empty where none is missing of any.",
    )
    scaled: list[dict[str, ScaledOut]] | None = Field(
        default=None,
        description="Per row its scaled columns; null: not requested or not available.",
    )
    unscaled: PartialOut | None = Field(
        default=None, description="Why there are no requested scaled columns."
    )


class RationedOut(Document):
    """Results that overload has withheld from a query (``docs/semantics.md``, "Rations").

    ``withheld`` estimates the results withheld so far, from the kept ones; ``completeness`` is the
    share kept. ``blind`` counts how often an alias had ration 0 in a batch; the estimate excludes
    these. ``shares`` has, for the last batch, the rations below 1 by alias: the share of its tuples
    that may arrive last. ``owed`` estimates the results still to be made good (they count as not
    kept); ``caught_up`` counts the results made good. ``floor`` is the required completeness,
    ``floor_needs`` the share of rationed probes' CPU time needed to keep all floors of its priority
    and of higher ones; with a smaller budget ``floor_broken`` is true. Null: no floor is set, or
    nothing has been measured yet.

    Results of an outer join, also below a view, are pairs (of a left join only) and left rows after
    their deadlines. ``left_withheld`` estimates how many of ``withheld`` are left rows.
    ``undecided`` counts left rows without a result, since pairs of them may have been withheld.
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
        description="Stored rows that are still to be looked at; null: not begun yet."
    )


class QueryOut(QueryTerms):
    """A query, its meaning, and its progress."""

    id: str
    run: str = Field(
        default="",
        description="The name of its newest run, by which plans, metrics and folders call it.",
    )
    status: Open[QueryStatus]
    waits_because: str | None = Field(
        default=None,
        description="Why it is pending, where an operator has to approve its plan, or refused it.",
    )
    sink_problem: str | None = Field(
        description="Why results wait for the sink; null while it takes them."
    )
    results_at: str | None = Field(
        default=None, description="Where its results are; null: they are counted only."
    )
    input_problems: dict[str, str] = Field(
        description="Streams that can't be read at present -> the reason."
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
        description="Rows read before it that it does not see: before its activation, the rows "
        "that it would miss; then the rows without which it is incomplete.",
    )
    past_results: PastOut | None = Field(
        default=None, description="Null: the past was not requested, or emission has not begun."
    )
    earlier: list[ActivationOut] = Field(
        description="Its activations before this one, oldest first."
    )
    results: int = Field(
        description="Rows in its sink: results emitted so far; for a view its current rows (if "
        "these have become too many to be kept, their last known number)."
    )
    joined_rows: int | None = Field(
        default=None,
        description="Rows that its joins have found, of a view or an outer join.",
    )
    rationed: RationedOut | None = Field(
        default=None,
        description="Null while nothing has been withheld of it, and no floor of it is known.",
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


#: Queries of one batch.
MAX_BATCH = 500

_EXAMPLE = "SELECT f.carrier, w.wind FROM flights f JOIN weather w ON f.origin = w.origin"


class QueryBatchIn(Closed):
    """Queries to register at once, in this order."""

    model_config = examples(
        {
            "queries": [
                {"id": "delays", "sql": _EXAMPLE},
                {"id": "windy", "sql": f"{_EXAMPLE} WHERE w.wind > 10"},
            ],
            "atomic": False,
        }
    )

    queries: Annotated[list[QueryIn], Field(min_length=1, max_length=MAX_BATCH)]
    atomic: bool = Field(default=True, description="All of them or none. False: each that can be.")


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
    keeps its present run until the next epoch begins; ``query`` is its new registration.
    """

    action: Open[Literal["none", "created", "changed", "replaced"]]
    fields: list[str]
    dry_run: bool
    query: QueryOut | None = Field(description="Null in a dry run of a query that is not there.")
    version: str | None = Field(
        default=None, description="The ETag of ``query``, for If-Match; null where there is none."
    )
