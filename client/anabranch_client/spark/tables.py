"""Delta and Iceberg tables in Spark's catalogs as streams for queries; the runtime reads them.

Spark is used only once, to look up a table's format, location and columns; no row passes through
it. The session only executes SQL, so it may be one of Spark Connect, even of an older Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from anabranch_client.errors import UsageError
from anabranch_client.rest.api import Client
from anabranch_client.spark.source import default_client
from anabranch_client.spark.streams import registered
from anabranch_contract.connectors.lake.options import DELTA, LAKE, TABLE
from anabranch_contract.rest.streams import StreamOut

#: Row of DESCRIBE TABLE EXTENDED above the table's details.
_DETAILS = "# Detailed Table Information"
#: Name of Spark's own catalog, which refers to a different catalog in each deployment.
_SESSION_CATALOG = "spark_catalog"


def table(
    spark: SparkSession,
    table: str,
    *,
    name: str | None = None,
    client: Client | None = None,
    columns: Sequence[str] | None = None,
    catalog: str | None = None,
    path: str | None = None,
    source: Mapping[str, str] | None = None,
    **options: Any,
) -> StreamOut:
    """Register a table of Spark's catalogs as a stream, unless it exists, and return the stream.

    Args:
        table: the table's name in Spark's SQL.
        name: name of the stream; default: the last part of ``table``.
        client: client of the service; default: with the environment's address and token.
        columns: names of the stream's columns; default: all columns of the table.
        catalog: name of an Iceberg table's catalog in the runtime's configuration; default: its
            name in Spark.
        path: path of a Delta table, as the runtime sees it; default: its location in Spark.
        source: further options of the source: ``start``, ``on_loss``, ``on_delete``.
        options: as for :meth:`Client.create_stream`: ``event_time``, ``lateness``, ``kind``, ...

    Raises:
        ApiError: the service refused the stream.
        UsageError: Spark has no such table, the table is a view or has another format, the runtime
            can't reach it by these arguments, or there is a stream of this name with another source
            or other columns.
    """
    try:
        found = {field.name: field.dataType.simpleString() for field in spark.table(table).schema}
        # The query before has shown that ``table`` is a name, not other SQL.
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
    except AnalysisException as cause:
        raise UsageError(
            f"Spark describes no table {table!r}: {str(cause).strip().splitlines()[0]}",
            field="table",
            remedy="name one as in Spark's SQL: catalog.database.table",
        ) from cause
    given = located(
        table, [(row[0], row[1]) for row in rows], catalog=catalog, path=path, options=source or {}
    )
    for column in columns or ():
        if column not in found:
            raise UsageError(
                f"{table!r} has no column {column!r}",
                field="columns",
                remedy=f"it has {', '.join(found)}",
            )
    kinds = [(column, found[column]) for column in columns or found]
    stream = table.rpartition(".")[2].strip("`") if name is None else name
    return registered(client or default_client(), stream, kinds, given, options)


def located(
    table: str,
    described: Sequence[tuple[str, str]],
    *,
    catalog: str | None,
    path: str | None,
    options: Mapping[str, str],
) -> dict[str, Any]:
    """The source of a stream for a table, from the rows (name, value) of DESCRIBE TABLE EXTENDED.

    Raises:
        UsageError: as :func:`table`.

    >>> rows = [(_DETAILS, ""), ("Provider", "delta"), ("Location", "file:/lake/orders")]
    >>> located("orders", rows, catalog=None, path=None, options={"start": "latest"})
    {'format': 'delta', 'path': '/lake/orders', 'options': {'start': 'latest'}}
    """
    names = [name for name, _ in described]
    details = dict(described[names.index(_DETAILS) :] if _DETAILS in names else ())
    if not details or "VIEW" in details.get("Type", ""):
        raise UsageError(
            f"{table!r} is a view, whose rows come by no commits",
            field="table",
            remedy="name its tables, and register its statement as a query over their streams",
        )
    format = details.get("Provider", "of another kind").lower()
    if format not in LAKE:
        raise UsageError(
            f"{table!r} is a table of the format {format}, not {' or '.join(LAKE)}",
            field="table",
            remedy="register files by Client.create_stream, or push rows by stream()",
        )
    unused = ("catalog", catalog) if format == DELTA else ("path", path)
    if unused[1] is not None:
        raise UsageError(
            f"{table!r} is a table of the format {format}", field=unused[0], remedy="leave it out"
        )
    if format == DELTA:
        return {"format": format, "path": path or _folder(table, details), "options": {**options}}
    return {"format": format, "options": {TABLE: _name(table, details, catalog), **options}}


def _folder(table: str, details: Mapping[str, str]) -> str:
    location = re.sub(r"^file:/+", "/", details.get("Location", ""))
    if not location.startswith("/"):
        raise UsageError(
            f"{table!r} is at {location or 'a place that Spark does not name'!r}, and the runtime "
            "reads Delta tables in folders",
            field="path",
            remedy="give the folder at which the runtime's machines have it mounted",
        )
    return location


def _name(table: str, details: Mapping[str, str], catalog: str | None) -> str:
    """The table's name in the runtime's configuration; Spark 4.2 and later list its parts."""
    if "Table" in details:
        namespace = details.get("Namespace") or details["Database"]
        full = f"{details['Catalog']}.{namespace}.{details['Table']}"
    else:
        full = details["Name"].replace("`", "")
    own, _, rest = full.partition(".")
    if catalog is None and own == _SESSION_CATALOG:
        raise UsageError(
            f"{table!r} is in Spark's session catalog, which the runtime knows by another name",
            field="catalog",
            remedy="name the catalog of the runtime's configuration that has it",
        )
    return f"{catalog or own}.{rest}"
