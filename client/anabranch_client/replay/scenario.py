"""Scenario of a replay: recorded streams, queries with first and last batch, planner settings.

All errors that can be found before a process is started are reported here, one line each with the
field: unknown keys, missing files or files other than Parquet, unsupported column types, missing
columns, malformed durations, queries that begin after the last batch. SQL is checked by the service
(``rehearsal``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import (
    AfterValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from anabranch_client.errors import ClientError, ScenarioError, all_of
from anabranch_client.replay.document import YamlFile, read_yaml
from anabranch_client.rest.types import spark_type
from anabranch_contract.durations import parse_duration
from anabranch_contract.errors import QueryError
from anabranch_contract.plans.plan import Objective, Optimizer
from anabranch_contract.protocol.registered import StreamProperties
from anabranch_contract.rest.documents import Closed
from anabranch_contract.rest.streams import PROPERTIES, ChangesIn, StreamOptions

UNBOUNDED = "unbounded"


@dataclass(frozen=True, slots=True)
class RecordedStream:
    """A stream read from a Parquet file: row ``k`` belongs to batch ``k // rows_per_batch``.

    Attributes:
        columns: (name, Spark's simple type string), from the file's schema.
        options: further arguments of the stream's registration.
        retention: batch -> the retention that is set before this batch.
    """

    name: str
    path: Path
    rows_per_batch: int
    rows: int
    columns: tuple[tuple[str, str], ...]
    options: StreamOptions = field(default_factory=lambda: StreamOptions(lateness=UNBOUNDED))
    retention: Mapping[int, RetentionEntry] = field(default_factory=dict)

    @property
    def batches(self) -> int:
        """Number of batches with rows of the stream."""
        return -(-self.rows // self.rows_per_batch)


@dataclass(frozen=True, slots=True)
class ScenarioQuery:
    """A query, the batch before which it is registered, and the one before which it is deleted."""

    name: str
    sql: str
    window: str | dict[str, str] | None = None
    register_at: int = 0
    expire_at: int | None = None
    past: str | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """Streams, queries and settings to replay.

    Attributes:
        every: batches per epoch.
        revise: number of batches before the runtime waits for a revision; None: never.
        revision_gain: minimum saving of a revision, as a share of the cost; None: the default.
        optimizer: batch -> optimiser that is chosen before this batch; has an entry for 0.
        parallelism: partitions per store.
        intermediate_results: maximum number of intermediate results of a plan; None: no limit.
        objective: the planner's objective; None: the service's default.
    """

    streams: tuple[RecordedStream, ...]
    queries: tuple[ScenarioQuery, ...]
    every: int
    optimizer: Mapping[int, Optimizer]
    parallelism: int
    revise: int | None = None
    revision_gain: float | None = None
    intermediate_results: int | None = None
    objective: Objective | None = None

    @property
    def batches(self) -> int:
        """Number of batches of the longest stream."""
        return max((s.batches for s in self.streams), default=0)

    def begins(self, query: ScenarioQuery) -> int | None:
        """First batch in which a query is active; None if the input ends before."""
        after = query.register_at // self.every + 1
        first = after * self.every if query.register_at else 0
        return first if first < self.batches else None


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file; stream paths are relative to the file's own folder.

    Raises:
        ScenarioError: each error with its field and remedy.
    """
    entries = parse_scenario(read_yaml(path))
    scenario = Scenario(
        streams=_recorded_streams(entries, path.parent.resolve()),
        queries=tuple(
            ScenarioQuery(name, q.sql, q.window, q.register_at, q.expire_at, q.past)
            for name, q in entries.queries.items()
        ),
        every=entries.epochs.every,
        revise=None if entries.revisions is None else entries.revisions.every,
        revision_gain=None if entries.revisions is None else entries.revisions.gain,
        optimizer={0: Optimizer.CLASH} | dict(sorted(entries.optimizer.items())),
        parallelism=entries.parallelism,
        intermediate_results=entries.intermediate_results,
        objective=entries.objective,
    )
    end = scenario.batches
    late = [query for query in scenario.queries if query.register_at >= max(end, 1)]
    if late:
        raise all_of([_beyond(query, end) for query in late])
    return scenario


def _beyond(query: ScenarioQuery, end: int) -> ScenarioError:
    last = f", whose last batch is {end - 1}" if end else ", which is empty"
    return ScenarioError(
        f"{query.register_at} is beyond the end of the input{last}",
        field=f"queries.{query.name}.register_at",
        remedy="register it earlier, or read fewer rows per batch",
    )


# --- the file's format -------------------------------------------------------------------------

_STREAM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_QUERY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


def _duration_text(text: object) -> str:
    if not isinstance(text, str):
        raise ValueError(
            f"{text!r} is not a duration; write '10 minutes' or ISO 8601 such as PT10M"
        )
    try:
        micros = parse_duration(text)
    except QueryError as cause:
        raise ValueError(f"{cause.message}; {cause.remedy}") from None
    if micros < 0:
        raise ValueError(f"{text!r} is negative; give a duration of zero or more")
    return text.strip()


def _lateness(text: str) -> str:
    return UNBOUNDED if text.strip() == UNBOUNDED else _duration_text(text)


def _retain(text: str) -> str:
    return text.strip() if text.strip() in ("all", "none") else _duration_text(text)


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


BatchNumber = Annotated[int, Field(ge=0, strict=True)]
Count = Annotated[int, Field(ge=1, strict=True)]


class RetentionEntry(Closed):
    """Keys of ``streams.<name>.retention`` in a scenario file."""

    ttl: Annotated[str, AfterValidator(_duration_text)] | None = None
    latest: tuple[Annotated[str, AfterValidator(_text)], ...] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> RetentionEntry:
        if not self.model_fields_set:
            raise ValueError("a retention says nothing; give ttl, latest or both")
        return self


class StreamEntry(Closed, StreamProperties):
    """Keys of ``streams.<name>`` in a scenario file."""

    path: Annotated[str, AfterValidator(_text)]
    rows_per_batch: Count
    event_time: str | None = None
    lateness: Annotated[str, AfterValidator(_lateness)] = UNBOUNDED
    idle_timeout: Annotated[str, AfterValidator(_duration_text)] | None = None
    ahead_of_stream: Annotated[str, AfterValidator(_lateness)] | None = None
    retention: dict[BatchNumber, RetentionEntry | None] = Field(default_factory=dict)
    retain: Annotated[str, AfterValidator(_retain)] | None = None
    kind: Literal["stream", "table", "changes", "upsert"] | None = None
    changes: ChangesIn | None = None
    key: list[Annotated[str, AfterValidator(_text)]] | None = None

    @field_validator(*PROPERTIES, mode="before")
    @classmethod
    def _flag(cls, value: object, info: ValidationInfo) -> object:
        kind = cls.model_fields[info.field_name or ""].annotation
        if kind is bool and not isinstance(value, bool):
            raise ValueError("Input should be a valid boolean; write true or false")
        return value

    @field_validator("retention", mode="before")
    @classmethod
    def _retention(cls, value: Any) -> Any:
        if not value:
            return {}
        said_once = isinstance(value, dict) and not any(isinstance(key, int) for key in value)
        return {0: value} if said_once else value

    @model_validator(mode="after")
    def _retention_has_event_time(self) -> StreamEntry:
        if any(self.retention.values()) and self.event_time is None:
            raise ValueError("a retention needs an event time; name its column as event_time")
        return self


class QueryEntry(Closed):
    """Keys of ``queries.<name>`` in a scenario file."""

    sql: Annotated[str, AfterValidator(_text)]
    window: str | dict[str, str] | None = None
    register_at: BatchNumber = 0
    expire_at: BatchNumber | None = None
    past: Literal["none", "stored"] | None = None

    @field_validator("window", mode="before")
    @classmethod
    def _window(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {str(alias): _duration_text(text) for alias, text in value.items()}
        return None if value is None else _duration_text(value)

    @model_validator(mode="after")
    def _in_order(self) -> QueryEntry:
        if self.expire_at is not None and self.expire_at < self.register_at:
            raise ValueError(
                f"expire_at ({self.expire_at}) is before register_at ({self.register_at})"
            )
        return self


class EpochsEntry(Closed):
    """Keys of ``epochs`` in a scenario file."""

    every: Count = 4


class RevisionsEntry(Closed):
    """Keys of ``revisions`` in a scenario file."""

    every: Count
    gain: Annotated[float, Field(ge=0, le=1)] | None = None


#: Word for a limit on intermediate results -> the limit, or None (no limit).
_MOST = {"never": 0, "any": None}


class ScenarioEntries(Closed):
    """Keys of a scenario file; the Parquet files of its streams are read later."""

    streams: Annotated[dict[str, StreamEntry], Field(min_length=1)]
    queries: dict[str, QueryEntry] = Field(default_factory=dict)
    epochs: EpochsEntry = EpochsEntry()
    revisions: RevisionsEntry | None = None
    optimizer: dict[BatchNumber, Optimizer] = Field(default_factory=dict)
    parallelism: Annotated[int, Field(ge=1, le=1024, strict=True)] = 1
    intermediate_results: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] | None = None
    objective: Objective | None = None

    @field_validator("intermediate_results", mode="before")
    @classmethod
    def _most(cls, value: Any) -> Any:
        if isinstance(value, str):
            if value not in _MOST:
                raise ValueError(f"{value!r} is not such a number; write never, any or a number")
            return _MOST[value]
        return value

    @field_validator("optimizer", mode="before")
    @classmethod
    def _optimizer(cls, value: Any) -> Any:
        return {0: value} if isinstance(value, str) else value

    @field_validator("streams", mode="after")
    @classmethod
    def _stream_names(cls, value: dict[str, Any]) -> dict[str, Any]:
        seen: dict[str, str] = {}
        for name in value:
            other = seen.setdefault(name.lower(), name)
            if other != name:
                raise ValueError(f"{other!r} and {name!r} differ in case only; rename one of them")
        return _names(value, _STREAM_NAME, "letters, digits and _, not beginning with a digit")

    @field_validator("queries", mode="after")
    @classmethod
    def _query_names(cls, value: dict[str, Any]) -> dict[str, Any]:
        return _names(value, _QUERY_NAME, "letters, digits, '_', '-' and '.'")


def _names(value: dict[str, Any], pattern: re.Pattern[str], allowed: str) -> dict[str, Any]:
    for name in value:
        if not pattern.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid name; use {allowed}")
    return value


def parse_scenario(file: YamlFile) -> ScenarioEntries:
    """Check a parsed YAML document against the format of scenario files.

    Raises:
        ScenarioError: with all errors, a line each.
    """
    document = file.document
    if not isinstance(document, dict):
        raise ScenarioError(
            "the scenario is not a mapping", remedy="it needs the keys streams and queries"
        )
    try:
        return ScenarioEntries.model_validate(document)
    except ValidationError as cause:
        found = [_explain(error, file) for error in cause.errors()]
        raise all_of(found) from None


_KNOWN: dict[str, tuple[str, type[Closed]]] = {
    "": ("the scenario", ScenarioEntries),
    "streams": ("a stream", StreamEntry),
    "queries": ("a query", QueryEntry),
    "epochs": ("epochs", EpochsEntry),
    "revisions": ("revisions", RevisionsEntry),
    "retention": ("a retention", RetentionEntry),
}


def _explain(first: ErrorDetails, file: YamlFile) -> ScenarioError:
    """A validation error, worded for users."""
    place = [str(part) for part in first["loc"] if part != "[key]"]
    field = ".".join(place)
    line = file.line(place)
    where = "" if line is None else f", line {line}"
    if first["type"] == "extra_forbidden":
        inside = "retention" if "retention" in place[2:-1] else place[0]
        what, model = _KNOWN["" if len(place) == 1 else inside]
        close = get_close_matches(place[-1], model.model_fields, 1)
        meant = f"did you mean {close[0]}? " if close else ""
        return ScenarioError(
            f"unknown key{where}",
            field=field,
            remedy=f"{meant}{what} has {', '.join(model.model_fields)}",
        )
    if first["type"] == "missing":
        return ScenarioError(f"is missing{where}", field=field, remedy="add it")
    message, _, remedy = first["msg"].removeprefix("Value error, ").partition("; ")
    if first["type"] != "value_error":
        message = f"{message}, not {first['input']!r}"
    return ScenarioError(message + where, field=field, remedy=remedy)


# --- the streams' files -----------------------------------------------------------------------


def parquet_columns(path: Path, field: str) -> tuple[tuple[tuple[str, str], ...], int]:
    """The columns (name, Spark's simple type string) and the number of rows of a Parquet file.

    Raises:
        ScenarioError: naming ``field``.
    """
    if not path.is_file():
        raise ScenarioError(
            f"{path} is {'a folder' if path.is_dir() else 'missing'}",
            field=field,
            remedy="name a Parquet file; in a scenario relative to the scenario's folder",
        )
    try:
        with pq.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowException, OSError) as cause:
        raise ScenarioError(
            f"{path} is not a readable Parquet file: {cause}", field=field, remedy="check the file"
        ) from cause
    return _parquet_columns(schema, field), rows


def _recorded_streams(entries: ScenarioEntries, folder: Path) -> tuple[RecordedStream, ...]:
    streams: list[RecordedStream] = []
    wrong: list[ClientError] = []
    for name, entry in entries.streams.items():
        try:
            streams.append(_recorded(name, entry, folder))
        except ScenarioError as error:
            wrong += (error, *error.further)
    if wrong:
        raise all_of(wrong)
    return tuple(streams)


def _recorded(name: str, entry: StreamEntry, folder: Path) -> RecordedStream:
    """The stream of a scenario's ``entry``; its Parquet file's footer gives columns and length."""
    path = (folder / entry.path).resolve()
    columns, rows = parquet_columns(path, f"streams.{name}.path")
    if wrong := [*_event_time(name, entry, dict(columns)), *_latest(name, entry, dict(columns))]:
        raise all_of(wrong)
    return RecordedStream(
        name=name,
        path=path,
        rows_per_batch=entry.rows_per_batch,
        rows=rows,
        columns=columns,
        options=cast("StreamOptions", entry.model_dump(include=set(StreamOptions.__annotations__))),
        retention={b: r or RetentionEntry(ttl=None) for b, r in sorted(entry.retention.items())},
    )


def _parquet_columns(schema: pa.Schema, field: str) -> tuple[tuple[str, str], ...]:
    columns: list[tuple[str, str]] = []
    seen: set[str] = set()
    for column in schema:
        kind = spark_type(column.type)
        if kind is None:
            raise ScenarioError(
                f"column {column.name!r} has type {column.type}, which no stream can have",
                field=field,
                remedy="cast the column, or leave it out of the file",
            )
        if column.name.lower() in seen:
            raise ScenarioError(
                f"column {column.name!r} occurs more than once",
                field=field,
                remedy="names are case-insensitive; rename one of them",
            )
        seen.add(column.name.lower())
        columns.append((column.name, kind))
    if not columns:
        raise ScenarioError("the file has no columns", field=field, remedy="check the file")
    return tuple(columns)


def _event_time(name: str, entry: StreamEntry, types: Mapping[str, str]) -> Iterator[ScenarioError]:
    kind = types.get(entry.event_time or "")
    if entry.event_time is None or (kind or "").startswith("timestamp"):
        return
    yield ScenarioError(
        f"column {entry.event_time!r} " + ("is unknown" if kind is None else f"is a {kind}"),
        field=f"streams.{name}.event_time",
        remedy="name a timestamp column of the file"
        + (f", which has {', '.join(types)}" if kind is None else ""),
    )


def _latest(name: str, entry: StreamEntry, types: Mapping[str, str]) -> Iterator[ScenarioError]:
    known = {column.lower() for column in types}
    for batch, retention in entry.retention.items():
        for column in (retention and retention.latest) or ():
            if column.lower() not in known:
                yield ScenarioError(
                    f"column {column!r} is unknown",
                    field=f"streams.{name}.retention.{batch}.latest",
                    remedy=f"name columns of the file, which has {', '.join(types)}",
                )
