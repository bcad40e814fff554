"""Columns that are added to a stream in use (ADR 0093).

The record keeps its id of registration, so stored rows stay; for these the column has its default.
Registered queries keep the columns of their registration: a statement whose meaning the new column
would change (``SELECT *``, or a name without alias that becomes ambiguous) is read without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from anabranch_contract.connectors.file_sources import check_nested
from anabranch_contract.errors import PlannerError
from anabranch_contract.protocol.registered import ColumnRecord, StreamRecord
from anabranch_contract.queries.joins import StreamKind
from anabranch_contract.queries.text_values import reader_of
from anabranch_contract.queries.types import DataType
from anabranch_contract.rest.streams import AddedColumnIn
from anabranch_service.errors import Conflict, InvalidInput
from anabranch_service.registry.alterations.fixed_columns import check_columns_change, type_of
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.sizes import check_columns
from anabranch_service.registry.statements import NormalForms, usable_streams
from anabranch_service.settings import ServiceSettings


def with_column(
    record: StreamRecord, column: AddedColumnIn, settings: ServiceSettings
) -> StreamRecord:
    """Return ``record`` with ``column`` as its last one.

    Raises:
        Conflict: ``columns-fixed``: streams of this kind or source can't get columns;
            ``duplicate-column``: there is such a column; ``dropped-column``: there was one.
        InvalidInput: the type or the default is invalid.
    """
    check_columns_change(record, adding=True)
    kind = type_of(column.type)
    if record.kind is StreamKind.CHANGES and column.default is not None:
        raise InvalidInput(
            "bad-default",
            f"stream {record.name!r} is of kind changes, whose deletes repeat their rows: rows "
            "without the column have NULL",
            field="default",
            remedy="leave the default out, and write coalesce() in queries",
        )
    if column.name.lower() in {c.name.lower() for c in record.columns}:
        raise Conflict(
            "duplicate-column",
            f"stream {record.name!r} has a column {column.name!r}",
            field="name",
            remedy="names are case-insensitive; choose another name",
        )
    if column.name.lower() in {name.lower() for name, _ in record.dropped}:
        raise Conflict(
            "dropped-column",
            f"stream {record.name!r} had a column {column.name!r}, whose values are stored",
            field="name",
            remedy="choose another name",
        )
    check_columns(len(record.columns) + 1, settings)
    changed = record.model_copy(
        update={
            "columns": (*record.columns, ColumnRecord(name=column.name, type=str(kind))),
            "added": (*record.added, (column.name, _default(column, kind))),
        }
    )
    source = record.source
    check_nested(changed.tuple_columns, source.format, source.path, source.options)
    changed.to_stream()
    return changed


def without_new_columns(
    stream: str,
    queries: Sequence[QueryRecord],
    before: Mapping[str, StreamRecord],
    after: Mapping[str, StreamRecord],
    forms: NormalForms,
) -> list[QueryRecord]:
    """Return the ``queries`` whose meaning a new column of ``stream`` would change, restricted to
    the columns of their registration."""
    known, wider = usable_streams(before.values()), usable_streams(after.values())
    columns = tuple(c.name for c in before[stream].columns)
    changed = []
    for query in queries:
        try:
            form = forms.of(query, known)
        except PlannerError:
            continue  # it can't be planned as it is
        kept = query.model_copy(update={"columns": {stream: columns, **query.columns}})
        try:
            same = NormalForms().of(query, wider) == form
        except PlannerError:
            same = False
        if not same:
            changed.append(kept)
    return changed


def columns_of(run: QueryRecord, queries: Iterable[QueryRecord]) -> dict[str, tuple[str, ...]]:
    """Map each stream to the columns that both a run and its parts may read of it."""
    found: dict[str, tuple[str, ...]] = {}
    for query in queries:
        if run.id in (query.id, query.part_of):
            for stream, columns in query.columns.items():
                found[stream] = min(columns, found.get(stream, columns), key=len)
    return found


def _default(column: AddedColumnIn, kind: DataType) -> str | None:
    """Return the default, checked to be a value of ``kind``; None stands for NULL."""
    if column.default is None:
        return None
    try:
        value = reader_of(kind)(column.default)
    except (KeyError, ValueError, OverflowError):
        value = None
    if value is None:
        raise InvalidInput(
            "bad-default",
            f"{column.default!r} is not a value of type {kind}",
            field="default",
            remedy="give a value as text, as in a CSV file, or leave the default out for NULL",
        )
    return column.default
