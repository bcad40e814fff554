"""The answer of ``/v1/history``."""

from __future__ import annotations

from pydantic import Field

from anabranch_contract.rest.documents import Document, Time


class HistoryPointOut(Document):
    """What a minute that ended ``at`` has brought."""

    at: Time
    batch_seconds: float | None = Field(
        description="That a batch took on average; null: none was committed."
    )
    rate: float | None = Field(
        description="Rows per second of the stream, or results per second of the query, that was "
        "asked for; null: none was."
    )


class HistoryOut(Document):
    """Points of the last day, oldest first. A minute in which no service led, or another run of the
    runtime began, has none.
    """

    seconds: int = Field(description="Between two points.")
    items: list[HistoryPointOut]
