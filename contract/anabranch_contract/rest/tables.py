"""Bodies of ``/v1/queries/{name}/table``, ``/v1/queries:sql`` and ``/v1/queries:preview``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from anabranch_contract.rest.documents import (
    Closed,
    Document,
    Open,
    StatementText,
    examples,
)
from anabranch_contract.rest.normalised import OutputInfo
from anabranch_contract.rest.queries import Dialect

#: Media type of rows as an Arrow IPC stream.
ARROW = "application/vnd.apache.arrow.stream"
#: Keys of the metadata of its schema: the batch of the rows, and the query's run.
BATCH, RUN = b"anabranch_batch", b"anabranch_run"


class QueryTableOut(Document):
    """The table of a query: its kind, its columns and its newest batch.

    ``results``: rows stay, and the table has all of them. ``changes``: results insert and delete
    equal rows, and the table has those left. ``view``: the table has the view's rows.
    """

    run: str = Field(description="Run of the query that the table is of.")
    kind: Open[Literal["results", "changes", "view"]]
    batch: int = Field(description="Newest batch whose results are all there; -1: none.")
    ended: bool = Field(description="Whether the run has ended, so no further results will come.")
    columns: list[OutputInfo]
    changes: list[OutputInfo] = Field(description="Columns of the results as the sink has them.")


class SqlIn(Closed):
    """A statement over tables of queries."""

    model_config = examples(
        {"sql": 'SELECT carrier, count(*) AS n FROM "delays" GROUP BY carrier', "limit": 100}
    )

    sql: StatementText = Field(
        description="One SELECT of DuckDB's, whose tables are queries by name."
    )
    batch: int | None = Field(
        default=None, ge=-1, description="Tables are read as of this batch; null: the newest."
    )
    limit: int = Field(default=1000, ge=1, le=1_000_000, description="Rows to return.")


class SqlOut(Document):
    """Rows of a statement over tables, all as of one batch."""

    batch: int
    columns: list[str]
    rows: list[list[JsonValue]]
    truncated: bool = Field(description="Whether there are rows beyond `limit`.")


class PreviewIn(Closed):
    """A statement over streams, to be read once over their latest rows."""

    model_config = examples(
        {"sql": "SELECT f.carrier, w.wind FROM flights f JOIN weather w ON f.origin = w.origin"}
    )

    sql: StatementText = Field(
        description="One SELECT, as for a query, whose tables are streams and queries by name."
    )
    dialect: Dialect = "spark"
    limit: int = Field(default=100, ge=1, le=10_000, description="Rows to return.")


class SampledOut(Document):
    """The rows of a stream that a preview has read."""

    stream: str
    rows: int = Field(description="Number of its latest rows that were read.")
    seen: int | None = Field(description="Number of all its rows so far; null: unknown.")


class PreviewOut(Document):
    """Rows of a statement over the latest rows of streams."""

    columns: list[str]
    rows: list[list[JsonValue]]
    truncated: bool = Field(description="Whether there are rows beyond `limit`.")
    samples: list[SampledOut] = Field(description="The streams that were read.")
