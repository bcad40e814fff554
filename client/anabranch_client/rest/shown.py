"""Registered queries with methods that read their rows, and as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from pydantic import PrivateAttr

from anabranch_client.rest.notebook import fields, text
from anabranch_contract.rest.queries import QueryOut

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa

T = TypeVar("T")
S = TypeVar("S")


class RowReader(Protocol):
    """A client that reads tables of queries, blocking or with coroutines."""

    def table(self, name: str, **options: Any) -> Any:
        """The rows of a query's table, or a coroutine of them."""


class Query(QueryOut):
    """A registered query, whose rows can be read.

    A query with a view, or whose results are changes, has the rows of its present table; other
    queries have all of their results as rows. ``batch``, in all methods: read the rows as of the
    end of this batch; None: of the newest batch. With an :class:`AsyncClient` the methods return
    coroutines.
    """

    _client: Any = PrivateAttr(default=None)

    @classmethod
    def of_client(cls, client: RowReader, document: Any) -> Self:
        """Parse the answer ``document`` to a request of ``client``."""
        query = cls.read(document)
        query._client = client
        return query

    def arrow(self, *, batch: int | None = None, limit: int | None = None) -> Any:
        """The rows as a ``pyarrow.Table``; ``limit``: maximum number of rows, in no order."""
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
