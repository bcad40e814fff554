"""The answer of ``POST /v1/streams:test``: whether a source can be read, and fits its columns."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from anabranch_contract.rest.documents import Document, Open, Time
from anabranch_contract.rest.queries import ProblemRecord


class MisfitOut(Document):
    """A value (truncated) that does not fit its column's type. ``row`` counts from 0; ``column``
    null: the row as a whole is malformed, e.g. a line that is not a JSON object.
    """

    row: int
    column: str | None
    value: str | None
    expected: str
    place: str | None = Field(
        default=None, description="File and row, entry or message of the value; null: unknown."
    )


class EventTimeOut(Document):
    """A timestamp column that is never null in the checked rows, and the disorder of its values."""

    column: str
    disorder: str


class SourceTestOut(Document):
    """Result of a source test: sample rows, checked against the columns. Nothing is stored."""

    outcome: Open[Literal["read", "empty", "failed", "not tested"]] = Field(
        description="`read`: rows were read and checked; `empty`: the source is readable and has "
        "no rows; `failed`: it can't be read (`error`); `not tested`: the service can't test this "
        "source (`limits`)."
    )
    error: ProblemRecord | None = Field(
        default=None,
        description="Why the source can't be read, with the registration's field and a remedy.",
    )
    limits: list[str] = Field(
        default=[], description="Parts of the source that were not read, and the reason."
    )
    unit: Open[Literal["files", "entries", "messages"]] | None = None
    found: int | None = Field(
        default=None,
        description="Number of files, entries or messages in the source; null: unknown.",
    )
    places: list[str] = Field(
        default=[], description="Files, keys or partitions that the rows are from."
    )
    sampled: int = Field(default=0, description="Number of rows that were read and checked.")
    rows: list[dict[str, JsonValue]] = Field(
        default=[],
        description="The rows, converted to the columns' types; null for values that do not fit.",
    )
    invalid: int = Field(default=0, description="Number of the checked rows that do not fit.")
    misfits: list[MisfitOut] = Field(default=[])
    first_event_time: Time | None = None
    last_event_time: Time | None = None
    disorder: str | None = Field(
        default=None,
        description="Greatest delay of a row's event time behind that of an earlier row, as a "
        "duration; null: no event times.",
    )
    proposed_lateness: str | None = Field(
        default=None, description="Suggested lateness of the stream: the disorder plus a margin."
    )
    event_times: list[EventTimeOut] = Field(
        default=[], description="Columns that could be the event time, the likeliest first."
    )
    keys: list[list[str]] = Field(
        default=[],
        description="Columns that could be a key: of a table its unique indexes, else columns "
        "whose values are never null and all different in the checked rows.",
    )
    registration: dict[str, JsonValue] | None = Field(
        default=None,
        description="With `propose`: the completed body of `POST /v1/streams`; null: the columns "
        "are not known.",
    )
    notes: list[str] = Field(
        default=[], description="Reasons of the proposal, and columns that it leaves out."
    )
