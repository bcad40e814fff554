"""The answer of ``POST /v1/streams:test``: whether a source can be read, and fits its columns."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from anabranch_contract.rest.documents import Document, Open, Time
from anabranch_contract.rest.queries import ProblemRecord


class MisfitOut(Document):
    """A value in a sample of a source that does not fit its column's type.

    Attributes:
        row: number of the row, from 0.
        column: name of the column; null: the row as a whole is malformed, e.g. a line that is not a
            JSON object.
        value: the value as text, cut off if long; null: NULL.
        expected: values that the column accepts.
        place: file and row, entry or message of the value; null: unknown.
    """

    row: int
    column: str | None
    value: str | None
    expected: str
    place: str | None = None


class EventTimeOut(Document):
    """A timestamp column without null in the checked rows, which could be the event time.

    Attributes:
        column: name of the column.
        disorder: greatest delay of a value behind that of an earlier row, as a duration.
    """

    column: str
    disorder: str


class SourceTestOut(Document):
    """Result of a source test: sample rows, checked against the columns. Nothing is stored.

    Attributes:
        outcome: ``read``: rows were read and checked; ``empty``: the source is readable and has no
            rows; ``failed``: it can't be read (``error``); ``not tested``: the service can't test
            this source (``limits``).
        error: reason why the source can't be read, with the registration's field and a remedy.
        limits: parts of the source that were not read, with the reason.
        unit: unit of ``found``: files, entries or messages; null: the source has none of these.
        found: number of files, entries or messages in the source; null: unknown.
        places: files, keys or partitions from which the rows come.
        sampled: number of rows that were read and checked.
        rows: the rows, converted to the columns' types; null for values that do not fit.
        invalid: number of checked rows that do not fit the columns.
        misfits: the first values that do not fit their columns.
        first_event_time: least event time of the rows that fit; null: none.
        last_event_time: greatest event time of the rows that fit; null: none.
        disorder: greatest delay of a row's event time behind that of an earlier row, as a duration;
            null: no event times.
        proposed_lateness: suggested lateness of the stream: the disorder plus a margin.
        event_times: columns that could be the event time, the likeliest first.
        keys: columns that could be a key: of a table its unique indexes, else columns whose values
            are never null and all different in the checked rows.
        registration: with ``propose``: the completed body of ``POST /v1/streams``; null: the
            columns are not known.
        notes: reasons of the proposal, and columns that it leaves out.
    """

    outcome: Open[Literal["read", "empty", "failed", "not tested"]]
    error: ProblemRecord | None = None
    limits: list[str] = Field(default=[])
    unit: Open[Literal["files", "entries", "messages"]] | None = None
    found: int | None = None
    places: list[str] = Field(default=[])
    sampled: int = 0
    rows: list[dict[str, JsonValue]] = Field(default=[])
    invalid: int = 0
    misfits: list[MisfitOut] = Field(default=[])
    first_event_time: Time | None = None
    last_event_time: Time | None = None
    disorder: str | None = None
    proposed_lateness: str | None = None
    event_times: list[EventTimeOut] = Field(default=[])
    keys: list[list[str]] = Field(default=[])
    registration: dict[str, JsonValue] | None = None
    notes: list[str] = Field(default=[])
