"""Queries and their rows, as Arrow, pandas and Polars tables; plans as notebooks show them."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Iterator, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import httpx
from pydantic import PrivateAttr

from anabranch_client.errors import UsageError
from anabranch_client.rest.calls import RestCall, given, method, path
from anabranch_client.rest.notebook import fields, grid, text
from anabranch_contract.queries.families import Constant
from anabranch_contract.rest.planning.epochs import EpochDiffOut, EpochOut
from anabranch_contract.rest.planning.plans import ExplainOut
from anabranch_contract.rest.planning.query_plan import QueryPlanOut
from anabranch_contract.rest.queries import QueryOut, ViewRowsOut
from anabranch_contract.rest.tables import ARROW, QueryTableOut

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa

T = TypeVar("T")
S = TypeVar("S")

#: Headers of a request for rows; compression would cost more time than it saves.
HEADERS = {"Accept": ARROW, "Accept-Encoding": "identity"}
#: Last bytes of an Arrow IPC stream; a stream without them is not complete.
END = b"\xff\xff\xff\xff\0\0\0\0"


class RowReader(Protocol):
    """A client, blocking or not."""

    def table(self, name: str, **options: Any) -> Any:
        """The rows of a query's table, or a coroutine of them."""


def _arrow() -> Any:
    """Arrow, imported by the first rows: it takes time, and most uses of the client read none."""
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
        ValueError: it is not complete.
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
        ValueError: it is not complete.
    """
    pa = _arrow()
    body = _Body(response.iter_bytes())
    with pa.ipc.open_stream(io.BufferedReader(body)) as reader:
        yield from reader
    if body.last != END:
        raise ValueError("the rows end before the stream's end")


class Query(QueryOut):
    """A registered query, whose rows can be read.

    The rows of a view or of a query with changes are its present table; other queries have all
    results.
    ``batch``, in all methods: the rows as of the end of this batch; None: of the newest. With an
    :class:`AsyncClient` the methods return coroutines.
    """

    _client: Any = PrivateAttr(default=None)

    @classmethod
    def of_client(cls, client: RowReader, document: Any) -> Self:
        """Read an answer to ``client``."""
        query = cls.read(document)
        query._client = client
        return query

    def arrow(self, *, batch: int | None = None, limit: int | None = None) -> Any:
        """The rows as a ``pyarrow.Table``; ``limit``: at most so many, in no order."""
        return self._rows(lambda rows: rows, batch=batch, limit=limit)

    def df(self, *, batch: int | None = None, limit: int | None = None) -> pandas.DataFrame | Any:
        """The rows as a ``pandas.DataFrame``."""
        return self._rows(lambda rows: rows.to_pandas(), batch=batch, limit=limit)

    def polars(self, *, batch: int | None = None, limit: int | None = None) -> Any:
        """The rows as a ``polars.DataFrame``; Polars has to be installed."""
        import polars  # type: ignore[import-not-found, unused-ignore]

        return self._rows(polars.from_arrow, batch=batch, limit=limit)

    def _rows(self, convert: Callable[[pa.Table], T], **options: Any) -> T | Awaitable[T]:
        found = self._client.table(self.run or self.id, **options)
        return _later(found, convert) if isawaitable(found) else convert(found)

    def _repr_html_(self) -> str:
        shown = {name: getattr(self, name) for name in _OF_QUERY}
        columns = ", ".join(f"{c.name} {c.type}" for c in self.normalised.output)
        return f"{fields(shown | {'columns': columns})}{text(self.sql or '')}"


_OF_QUERY = (
    *("id", "run", "status", "results", "complete", "sink_problem", "input_problems"),
    *("results_at", "created_at", "owner", "tags"),
)


async def _later(found: Awaitable[S], convert: Callable[[S], T]) -> T:
    return convert(await found)


class ShownPlan(ExplainOut):
    """The plans of a statement."""

    def _repr_html_(self) -> str:
        refused = None if self.refused is None else self.refused.message
        shown = {"added cost": self.added_cost, "shares with": self.shared_with, "refused": refused}
        stores = [
            {name: value for name, value in store.items() if not isinstance(value, (dict, list))}
            for store in self.stores
        ]
        parts = [fields(shown), "<b>Binary joins</b>", text(self.before.text)]
        parts += ["<b>Multi-way joins</b>", text(self.after.text)]
        parts += ["<b>Stores</b>", grid(stores)] if stores else []
        return "".join(parts)


class EpochPlan(EpochOut):
    """A published epoch with its plan."""

    def _repr_html_(self) -> str:
        return fields({name: getattr(self, name) for name in type(self).model_fields})


class QueryCalls:
    """Methods of both clients that read queries, their rows and their plans."""

    @method
    def query(self: Any, name: str) -> RestCall[Query]:
        """One query, with methods that read its rows."""
        return RestCall("GET", path("queries", name), lambda doc: Query.of_client(self, doc))

    @method
    def rows(self, name: str, limit: int = 100, *, scaled: bool = False) -> RestCall[ViewRowsOut]:
        """The current rows of a query's view, in its order; at most 1000.

        ``scaled``: also estimate counts, sums and averages as without withheld rows, with errors
        (``ViewRowsOut.scaled``), or give the reason why not (``unscaled``).
        """
        params = {"limit": str(limit), **({"scaled": "true"} if scaled else {})}
        return RestCall("GET", path("queries", name, "rows"), ViewRowsOut.read, params=params)

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
        """The rows of a query's table, as of a batch; the metadata of the table's schema names it.

        ``changes``: the results as the sink has them, instead of the table; ``after``: only those
        of the batches after this one.
        """
        words = {"changes": "true"} if changes else {}
        numbers = given(batch=batch, after=after, limit=limit)
        params = words | {name: str(number) for name, number in numbers.items()}
        where = path("queries", name, "table", "rows")
        return RestCall("GET", where, read_arrow, params=params, headers=HEADERS, binary=True)

    @method
    def table_columns(self, name: str) -> RestCall[QueryTableOut]:
        """The columns of a query's table, and its newest batch."""
        return RestCall("GET", path("queries", name, "table"), QueryTableOut.read)

    @method
    def sql(
        self, sql: str, *, batch: int | None = None, limit: int = 1_000_000
    ) -> RestCall[pa.Table]:
        """Rows of a SELECT over tables of queries, in DuckDB's dialect, all as of one batch."""
        body = given(sql=sql, batch=batch, limit=limit)
        return RestCall("POST", "/v1/queries:sql", read_arrow, body, headers=HEADERS, binary=True)

    @method
    def explain(
        self,
        sql: str,
        *,
        dialect: str | None = None,
        window: str | Mapping[str, str] | None = None,
        parameters: Mapping[str, Constant] | None = None,
    ) -> RestCall[ShownPlan]:
        """The join plan of a statement, and its cost as a registered query; stores nothing."""
        body = given(sql=sql, dialect=dialect, window=window, parameters=parameters)
        return RestCall("POST", "/v1/queries:explain", ShownPlan.read, body)

    @method
    def epoch(self, number: int) -> RestCall[EpochPlan]:
        """One published epoch with its plan."""
        return RestCall("GET", f"/v1/epochs/{number}", EpochPlan.read)

    @method
    def epoch_diff(self, number: int, since: int | None = None) -> RestCall[EpochDiffOut]:
        """Difference of an epoch's plan from an earlier one's; None: the one published before."""
        params = given(**{"from": since if since is None else str(since)})
        return RestCall("GET", f"/v1/epochs/{number}/diff", EpochDiffOut.read, params=params)

    @method
    def query_plan(self, name: str) -> RestCall[QueryPlanOut]:
        """A query's part of the running plan, and its share of CPU time and state.

        Raises:
            ApiError: it is not in the plan (``not-in-plan``), or there is no such query.
        """
        return RestCall("GET", path("queries", name, "plan"), QueryPlanOut.read)
