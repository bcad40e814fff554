"""Stream records: written to Redis by the service, read by the runtime."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, TypedDict

from pydantic import AfterValidator, Field

from anabranch_contract.queries.changes import ChangeFormat
from anabranch_contract.queries.joins import Stream, StreamKind
from anabranch_contract.queries.types import DataType, parse_type
from anabranch_contract.rest.documents import Closed, ColumnName, Document, printable

#: A description for people; no program reads it.
Description = Annotated[str, Field(max_length=1000), AfterValidator(printable)]
#: The name of a site of executors, or of one machine; empty: none.
Site = Annotated[str, Field(max_length=253, pattern=r"^[A-Za-z0-9._-]*$", examples=["paris"])]


#: Maximum number of characters of a type's text.
MOST_TYPE = 65_536


class ColumnRecord(Closed):
    """One column of a stream.

    Attributes:
        name: name of the column.
        type: its type as Spark's simple type string, such as ``bigint``; normalised in answers.
    """

    name: ColumnName
    type: Annotated[str, Field(min_length=1, max_length=MOST_TYPE, examples=["bigint"])]


class SourceRecord(Closed):
    """The source of a stream's tuples.

    Attributes:
        format: kind of the source, such as ``redis-stream``, ``kafka`` or ``parquet``.
        path: path of files or of a table; None: the source has none. Secrets are masked in answers.
        options: option -> its value. Secrets are masked in answers.
        rows_per_batch: number of rows of a recording that a batch reads; None: no recording.
        then: source of format ``kafka`` that follows this one, which then reads files or a table of
            a lake; its option ``start`` states where it begins. None: no source follows.
    """

    format: Annotated[str, Field(min_length=1, max_length=64)] = "recorded"
    path: Annotated[str, Field(max_length=4096)] | None = None
    options: dict[str, str] = Field(default_factory=dict)
    rows_per_batch: Annotated[int, Field(ge=1, le=2**31)] | None = None
    then: SourceRecord | None = None


class StreamProperties(Document):
    """The properties of a stream common to requests, records, answers and scenarios.

    Attributes:
        description: description for people.
        keep_late: whether to keep rejected tuples (late, invalid, too far in the future) in files.
        site: site, or host name, at which the stream's tuples arrive and whose executors read it.
            Empty, or without executors there: any executor reads it.
    """

    description: Description = ""
    keep_late: bool = True
    site: Site = ""


class PropertyOptions(TypedDict, total=False):
    """Keyword arguments for fields of :class:`StreamProperties`; None means the field's default."""

    description: str | None
    keep_late: bool | None
    site: str | None


class StreamRecord(Closed, StreamProperties):
    """A registered stream; ``lateness`` is in microseconds (None: unbounded).

    Attributes:
        idle_timeout: microseconds without tuples after which the watermark follows the other
            streams' watermarks; None: never.
        ttl: window in microseconds on the stream's tuples in every query; None: no window.
        latest: key columns: only the latest tuple of each key takes part in joins; empty: all do.
        ahead_of_clock, ahead_of_stream: microseconds by which an event time may exceed the clock
            (in live mode), and the stream's earlier event times; None: any number.
        retain: microseconds behind the watermark for which all tuples stay stored; None: for ever;
            0: only as long as queries need them.
        kind: events, table or changes. A table's ``latest`` is its key, and its ``retain`` is None.
        changes: form in which rows of a stream of changes state inserts and deletes; its operation
            column is one of ``columns``. None: rows only insert.
        registration: id that distinguishes the stream from a deleted one with equal definition.
        reading: how Spark reads the source (``contract.connectors.spark_source``); None where the
            runtime reads it itself.
        accepted_rejects: number of rejected tuples that an operator has acknowledged.
        version: version of a table: 1, plus 1 for each requested re-read.
        added, widened, dropped: columns that were changed, as in ``Stream``.
    """

    name: str
    columns: tuple[ColumnRecord, ...]
    event_time: str | None = None
    lateness: int | None = None
    idle_timeout: int | None = None
    ttl: int | None = None
    latest: tuple[str, ...] = ()
    ahead_of_clock: int | None = None
    ahead_of_stream: int | None = None
    retain: int | None = 0
    kind: StreamKind = StreamKind.STREAM
    changes: ChangeFormat | None = None
    source: SourceRecord = SourceRecord()
    registration: str = ""
    reading: dict[str, Any] | None = None
    accepted_rejects: int = 0
    version: int = 1
    added: tuple[tuple[str, str | None], ...] = ()
    widened: tuple[tuple[str, str], ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()

    def same_definition(self, other: StreamRecord) -> bool:
        """Whether both records define the same stream, apart from the registration id."""
        names = (
            *("registration", "reading", "accepted_rejects", "version"),
            *("added", "widened", "dropped"),
        )
        same = {name: getattr(other, name) for name in names}
        return self.model_copy(update=same) == other

    def to_stream(self) -> Stream:
        """Return the stream in the planner's form.

        Raises:
            PlannerError: the definition can't be used.
        """
        given = {f.name: getattr(self, f.name) for f in fields(Stream)}
        typed = {
            name: tuple((column, parse_type(kind)) for column, kind in given[name])
            for name in ("widened", "dropped")
        }
        return Stream(**{**given, "columns": self.tuple_columns, **typed})

    @property
    def key(self) -> tuple[str, ...]:
        """Key columns of a table or of a stream of upserts; empty: it has no key."""
        if self.kind is StreamKind.TABLE:
            return self.latest
        return () if self.changes is None else self.changes.key

    @property
    def envelope(self) -> tuple[str, bool] | None:
        """For rows in envelopes (such as Debezium's): the operation column, and whether rows
        replace others by key. None if rows have the stream's columns as fields."""
        form = self.changes
        if form is None or form.envelope is None or form.operation is None:
            return None
        return form.operation, bool(form.key)

    @property
    def tuple_columns(self) -> tuple[tuple[str, DataType], ...]:
        """(name, type) of the columns of a tuple, which has no operation column."""
        operation = None if self.changes is None else self.changes.operation
        return tuple((c.name, parse_type(c.type)) for c in self.columns if c.name != operation)
