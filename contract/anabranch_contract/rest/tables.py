"""Bodies of ``/v1/queries/{name}/table``, ``/v1/queries:sql`` and ``/v1/queries:preview``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from anabranch_contract.rest.documents import Closed, Document, Open, StatementText, examples
from anabranch_contract.rest.normalised import OutputInfo
from anabranch_contract.rest.queries import Dialect

#: Media type of rows as an Arrow IPC stream.
ARROW = "application/vnd.apache.arrow.stream"
#: Keys in the metadata of such a stream's schema: batch of the rows, and the query's run.
BATCH, RUN = b"anabranch_batch", b"anabranch_run"


class QueryTableOut(Document):
    """The table of a query: its kind, its columns and its newest batch.

    Attributes:
        run: run of the query whose results the table has.
        kind: ``results``: rows stay, and the table has all of them. ``changes``: results insert and
            delete equal rows, and the table has the remaining ones. ``view``: the table has the
            rows of the query's view.
        batch: newest batch whose results the table has completely; -1: none.
        ended: whether the run has ended, so no further results will come.
        columns: columns of the table.
        changes: columns of the results as they are written to the sink.
    """

    run: str
    kind: Open[Literal["results", "changes", "view"]]
    batch: int
    ended: bool
    columns: list[OutputInfo]
    changes: list[OutputInfo]


class SqlIn(Closed):
    """A statement over the results of queries, which it reads as tables.

    Attributes:
        sql: one SELECT in DuckDB's dialect, whose tables are queries, by name.
        batch: batch up to which the tables include results; null: the newest.
        limit: maximum number of rows to return.
    """

    model_config = examples(
        {"sql": 'SELECT carrier, count(*) AS n FROM "delays" GROUP BY carrier', "limit": 100}
    )

    sql: StatementText
    batch: int | None = Field(default=None, ge=-1)
    limit: int = Field(default=1000, ge=1, le=1_000_000)


class SqlOut(Document):
    """Rows of a statement over the results of queries.

    Attributes:
        batch: newest batch whose results the tables include; -1: none.
        columns: names of the columns, in order.
        rows: the rows, each with its values in the order of ``columns``.
        truncated: whether rows beyond ``limit`` were left out.
    """

    batch: int
    columns: list[str]
    rows: list[list[JsonValue]]
    truncated: bool


class PreviewIn(Closed):
    """A statement over streams, to be executed once over their latest rows.

    Attributes:
        sql: one SELECT, as for a query, whose tables are streams and queries by name.
        limit: maximum number of rows to return.
    """

    model_config = examples(
        {"sql": "SELECT f.carrier, w.wind FROM flights f JOIN weather w ON f.origin = w.origin"}
    )

    sql: StatementText
    dialect: Dialect = "spark"
    limit: int = Field(default=100, ge=1, le=10_000)


class SampledOut(Document):
    """The rows of a stream that a preview has read.

    Attributes:
        stream: name of the stream.
        rows: number of its latest rows that were read.
        seen: number of all its rows so far; null: unknown.
    """

    stream: str
    rows: int
    seen: int | None


class PreviewOut(Document):
    """Rows of a statement over the latest rows of streams.

    Attributes:
        columns: names of the columns, in order.
        rows: the rows, each with its values in the order of ``columns``.
        truncated: whether rows beyond ``limit`` were left out.
        samples: the streams that were read, with their numbers of rows.
    """

    columns: list[str]
    rows: list[list[JsonValue]]
    truncated: bool
    samples: list[SampledOut]
