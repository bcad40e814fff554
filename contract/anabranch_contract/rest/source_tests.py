"""The answer of ``POST /v1/streams:test``: whether a source can be read, and fits its columns."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from anabranch_contract.rest.documents import Document, Open, Time
from anabranch_contract.rest.queries import ProblemRecord


class MisfitOut(Document):
    """A value that does not fit. ``row`` counts from 0; without a ``column`` all of the row is
    meant, for example a line that is no object. ``value`` is shortened.
    """

    row: int
    column: str | None
    value: str | None
    expected: str


class SourceTestOut(Document):
    """Test of a source. No input is stored, and none is removed from the source."""

    outcome: Open[Literal["read", "empty", "failed", "not tested"]] = Field(
        description="`read`: rows were looked at; `empty`: it can be read and has none; `failed`: "
        "it can't be read, and `error` says why; `not tested`: the service can't look at all that "
        "there is, and `limits` say why."
    )
    error: ProblemRecord | None = Field(
        default=None,
        description="Why it can't be read, in which field of the registration, and what to do.",
    )
    limits: list[str] = Field(
        default=[], description="Parts of the source that were not read, and the reason."
    )
    unit: Open[Literal["files", "entries"]] | None = None
    found: int | None = Field(
        default=None, description="How many files or entries are there; null: unknown."
    )
    places: list[str] = Field(default=[], description="Files or keys that the rows are from.")
    rows: list[dict[str, JsonValue]] = Field(
        default=[],
        description="The rows as the stream's types have them; null where a value does not fit.",
    )
    invalid: int = Field(default=0, description="How many of these rows do not fit.")
    misfits: list[MisfitOut] = Field(default=[])
    first_event_time: Time | None = None
    last_event_time: Time | None = None
    disorder: str | None = Field(
        default=None,
        description="Longest time by which the event time of one of these rows is less than that "
        "of a row before it, as a duration; null: no event times.",
    )
    proposed_lateness: str | None = Field(
        default=None, description="A lateness that covers this disorder, with some room."
    )
