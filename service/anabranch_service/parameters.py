"""Parameters that several routes have."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from anabranch_contract.rest.documents import QueryName

StreamPath = Annotated[str, Path(description="Name of the stream.")]
ColumnPath = Annotated[str, Path(description="Name of the column.")]
RunPath = Annotated[
    str, Path(description="Name of a query (for its newest run), or name of a run.")
]
QueryPath = Annotated[QueryName, Path(description="Name of the query.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries on the page.")]
#: Query parameter: ``next_cursor`` of the previous page of queries.
QueryCursor = Annotated[
    str | None, Query(pattern=r"^[0-9]{1,18}$", description="`next_cursor` of the page before.")
]
