"""Requests of both clients for queries, their plans, and their rows as Arrow tables."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

import httpx

from anabranch_client.errors import UsageError
from anabranch_client.rest.calls import RestCall, given, method, path, unreachable
from anabranch_contract import rest
from anabranch_contract.rest import planning

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch_client.rest.shown import Query
    from anabranch_client.rest.shown_plans import EpochPlan, ShownPlan
    from anabranch_contract.queries.families import Constant
    from anabranch_contract.rest.planning.epochs import EpochDiffOut
    from anabranch_contract.rest.planning.query_plan import QueryPlanOut
    from anabranch_contract.rest.planning.series import HistoryOut
    from anabranch_contract.rest.queries import ViewRowsOut
    from anabranch_contract.rest.tables import PreviewOut, QueryTableOut

#: Last bytes of a complete Arrow IPC stream.
END = b"\xff\xff\xff\xff\0\0\0\0"


def _headers() -> dict[str, str]:
    """Headers of a request for rows; compression would cost more time than it saves."""
    return {"Accept": rest.tables.ARROW, "Accept-Encoding": "identity"}


def _arrow() -> Any:
    """The Arrow library, imported when rows are first read: that takes time, and is rarely done."""
    try:
        import pyarrow
    except ImportError as cause:
        raise UsageError(
            "rows are read by pyarrow, which is not installed",
            field="pyarrow",
            remedy='pip install "anabranch[tables]"',
        ) from cause
    return pyarrow


def read_arrow(content: bytes) -> pa.Table:
    """Read an Arrow IPC stream.

    Raises:
        ValueError: the stream is not complete.
    """
    pa = _arrow()
    if not content.endswith(END):
        raise ValueError("the rows end before the stream's end")
    return pa.ipc.open_stream(content).read_all()


class _Body(io.RawIOBase):
    """The bytes of an answer, as they arrive."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self._rest, self.last = parts, b"", b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest, self.last = part, (self.last + part)[-len(END) :]
        taken, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)


def read_batches(response: httpx.Response) -> Iterator[pa.RecordBatch]:
    """Read an Arrow IPC stream as it arrives.

    Raises:
        ValueError: the stream is not complete.
    """
    pa = _arrow()
    body = _Body(response.iter_bytes())
    with pa.ipc.open_stream(io.BufferedReader(body)) as reader:
        yield from reader
    if body.last != END:
        raise ValueError("the rows end before the stream's end")


class QueryCalls:
    """Methods of both clients that read queries, their rows and their plans."""

    @method
    def query(self: Any, name: str) -> RestCall[Query]:
        """One query, with methods that read its rows."""
        from anabranch_client.rest.shown import Query

        return RestCall("GET", path("queries", name), lambda doc: Query.of_client(self, doc))

    @method
    def query_history(
        self, name: str, *, last: int = 1440, minutes: int = 15
    ) -> RestCall[HistoryOut]:
        """Freshness, results and interruptions of a query in the newest ``last`` minutes, one point
        per ``minutes`` minutes."""
        params = {"query": name, "last": str(last), "minutes": str(minutes)}
        return RestCall("GET", "/v1/history", planning.series.HistoryOut.read, params=params)

    @method
    def rows(self, name: str, limit: int = 100, *, scaled: bool = False) -> RestCall[ViewRowsOut]:
        """The current rows of a query's view, in its order; at most 1000.

        ``scaled``: also estimate counts, sums and averages over all rows, those withheld by load
        shedding included, with errors (``ViewRowsOut.scaled``); or state why that is not possible
        (``unscaled``).
        """
        params = {"limit": str(limit), **({"scaled": "true"} if scaled else {})}
        return RestCall(
            "GET", path("queries", name, "rows"), rest.queries.ViewRowsOut.read, params=params
        )

    @method
    def table(
        self,
        name: str,
        *,
        batch: int | None = None,
        changes: bool = False,
        after: int | None = None,
        limit: int | None = None,
    ) -> RestCall[pa.Table]:
        """The rows of a query's table, as of a batch; the schema's metadata has its number.

        ``changes``: read the results as the sink has them, instead of the table; ``after``: only
        the results of batches after this one.
        """
        words = {"changes": "true"} if changes else {}
        numbers = given(batch=batch, after=after, limit=limit)
        params = words | {name: str(number) for name, number in numbers.items()}
        where = path("queries", name, "table", "rows")
        return RestCall("GET", where, read_arrow, params=params, headers=_headers(), binary=True)

    @method
    def table_columns(self, name: str) -> RestCall[QueryTableOut]:
        """The columns of a query's table, and its newest batch."""
        return RestCall("GET", path("queries", name, "table"), rest.tables.QueryTableOut.read)

    @method
    def sql(
        self, sql: str, *, batch: int | None = None, limit: int = 1_000_000
    ) -> RestCall[pa.Table]:
        """Rows of a SELECT in DuckDB's dialect over tables of queries, all as of one batch."""
        body = given(sql=sql, batch=batch, limit=limit)
        return RestCall(
            "POST", "/v1/queries:sql", read_arrow, body, headers=_headers(), binary=True
        )

    @method
    def preview(
        self, sql: str, *, dialect: str | None = None, limit: int | None = None
    ) -> RestCall[PreviewOut]:
        """Rows of a statement over the latest rows of streams, to try it before registration."""
        body = given(sql=sql, dialect=dialect, limit=limit)
        return RestCall("POST", "/v1/queries:preview", rest.tables.PreviewOut.read, body)

    @method
    def explain(
        self,
        sql: str,
        *,
        dialect: str | None = None,
        window: str | Mapping[str, str] | None = None,
        parameters: Mapping[str, Constant] | None = None,
    ) -> RestCall[ShownPlan]:
        """The join plan of a statement, and its cost as a registered query; changes nothing."""
        from anabranch_client.rest.shown_plans import ShownPlan

        body = given(sql=sql, dialect=dialect, window=window, parameters=parameters)
        return RestCall("POST", "/v1/queries:explain", ShownPlan.read, body)

    @method
    def epoch(self, number: int) -> RestCall[EpochPlan]:
        """One published epoch with its plan."""
        from anabranch_client.rest.shown_plans import EpochPlan

        return RestCall("GET", f"/v1/epochs/{number}", EpochPlan.read)

    @method
    def epoch_diff(self, number: int, since: int | None = None) -> RestCall[EpochDiffOut]:
        """Difference of an epoch's plan from an earlier one's; None: the one published before."""
        params = given(**{"from": since if since is None else str(since)})
        return RestCall(
            "GET", f"/v1/epochs/{number}/diff", planning.epochs.EpochDiffOut.read, params=params
        )

    @method
    def query_plan(self, name: str) -> RestCall[QueryPlanOut]:
        """A query's part of the running plan, and its share of CPU time and state.

        Raises:
            ApiError: the query is not in the plan (``not-in-plan``), or there is no such query.
        """
        return RestCall("GET", path("queries", name, "plan"), planning.query_plan.QueryPlanOut.read)


def table_batches(
    client: Any, name: str, *, batch: int, after: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of :meth:`QueryCalls.table` as they arrive; with ``after``, the query's results.

    Args:
        client: a :class:`~anabranch_client.rest.api.Client`.

    Raises:
        ApiError: the service refused the request, or can't be reached.
        ValueError: the answer is not complete.
    """
    call = QueryCalls.table(client, name, batch=batch, after=after)
    try:
        with closing(client._http.send(call.request(client._http), stream=True)) as response:
            if not response.is_success:
                response.read()
                call.answer(response)
            yield from read_batches(response)
    except (httpx.HTTPError, httpx.InvalidURL) as cause:
        raise unreachable(client.base_url, cause) from cause
