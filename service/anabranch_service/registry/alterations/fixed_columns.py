"""Streams whose columns can't change, by their kind or source."""

from __future__ import annotations

from anabranch_contract.connectors.file_sources import is_own, own_files
from anabranch_contract.connectors.kafka_sources import is_own_topic
from anabranch_contract.connectors.lake.options import LAKE
from anabranch_contract.connectors.postgres.options import POSTGRES
from anabranch_contract.connectors.sources import REDIS_STREAM
from anabranch_contract.errors import PlannerError
from anabranch_contract.protocol.registered import ColumnRecord, StreamRecord
from anabranch_contract.queries.joins import StreamKind
from anabranch_contract.queries.types import DataType, parse_type
from anabranch_service.errors import Conflict, InvalidInput, NotFound
from anabranch_service.registry.derived import is_query


def check_columns_change(record: StreamRecord, *, named: bool = True, adding: bool = False) -> None:
    """Check that the columns of a stream can change.

    Args:
        named: whether the change requires a source that names its columns (CSV with a header).
        adding: whether the stream is to get another column.

    Raises:
        Conflict: ``columns-fixed``.
    """
    source = record.source
    if is_query(record):
        raise _fixed(record, f"it is the query {record.name!r}", "name")
    if adding and source.format == POSTGRES and record.kind is StreamKind.CHANGES:
        why = "its table has no key, and deletes of earlier rows may have values of a new column"
        raise _fixed(record, why, "kind")
    files = own_files(source.format, source.path, source.options)
    if named and files is not None and files.dialect and not files.dialect.header:
        raise _fixed(record, "its CSV files name no columns", "source.format")
    if not (
        source.format in (REDIS_STREAM, POSTGRES)
        or (not adding and source.format in LAKE)
        or is_own_topic(source.format, source.options)
        or is_own(source.format, source.path, source.options)
    ):
        why = f"a source of format {source.format} is read with the columns of its registration"
        raise _fixed(record, why, "source.format")


def column_of(record: StreamRecord, name: str) -> ColumnRecord:
    """Return the column of a stream's tuples with this name, ignoring case.

    Raises:
        NotFound: ``unknown-column``.
    """
    known = {column for column, _ in record.tuple_columns}
    columns = [column for column in record.columns if column.name in known]
    for column in columns:
        if column.name.lower() == name.lower():
            return column
    raise NotFound(
        "unknown-column",
        f"stream {record.name!r} has no column {name!r}",
        field="column",
        remedy=f"it has {', '.join(column.name for column in columns)}",
    )


def type_of(text: str) -> DataType:
    """Parse the column type in a request.

    Raises:
        InvalidInput: ``unknown-type``.
    """
    try:
        return parse_type(text)
    except PlannerError as cause:
        raise InvalidInput(cause.code, cause.message, field="type", remedy=cause.remedy) from None


def _fixed(record: StreamRecord, why: str, field: str) -> Conflict:
    return Conflict(
        "columns-fixed",
        f"the columns of stream {record.name!r} can't change: {why}",
        field=field,
        remedy="register a stream with the new columns under another name",
    )
