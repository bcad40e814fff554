"""Columns that are dropped from a stream in use (ADR 0103).

The record keeps its id of registration, so stored rows stay; merges leave out the column's values.
No query may read the column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch_contract.protocol.registered import StreamRecord
from anabranch_service.errors import Conflict
from anabranch_service.registry.alterations.fixed_columns import check_columns_change, column_of
from anabranch_service.registry.alterations.going_on import going_on
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.statements import NormalForms, usable_streams


def without_column(record: StreamRecord, column: str) -> StreamRecord:
    """Return ``record`` without ``column``.

    Raises:
        NotFound: ``unknown-column``.
        Conflict: ``columns-fixed``: streams of this kind or source can't lose columns;
            ``column-needed``: it is the event time, in the key, or the last column.
    """
    check_columns_change(record)
    found = column_of(record, column)
    rest = tuple(c for c in record.columns if c is not found)
    changes = record.changes
    needs = {
        "it is its event time": found.name == record.event_time,
        "it is in its key": found.name in (*record.latest, *record.key),
        "a stream has at least one column": len(record.tuple_columns) == 1,
        "a row with NULL in all columns deletes": changes is not None and changes.null_deletes,
    }
    for why in (why for why, needed in needs.items() if needed):
        raise Conflict(
            "column-needed",
            f"column {found.name!r} of stream {record.name!r} can't be dropped: {why}",
            field="column",
            remedy="register a stream without it under another name",
        )
    first = dict(record.widened)
    widened = tuple((name, kind) for name, kind in record.widened if name != found.name)
    dropped = (*record.dropped, (found.name, first.get(found.name, found.type)))
    changed = record.model_copy(update={"columns": rest, "widened": widened, "dropped": dropped})
    changed.to_stream()
    return changed


def without_dropped_column(
    stream: str,
    queries: Sequence[QueryRecord],
    before: Mapping[str, StreamRecord],
    after: Mapping[str, StreamRecord],
    forms: NormalForms,
) -> list[QueryRecord]:
    """Return the ``queries`` over ``stream``, described again, if none reads the dropped column.

    Raises:
        Conflict: ``column-in-use``: a query reads it.
    """
    given = usable_streams(before.values()), usable_streams(after.values()), forms
    changed, stopped = going_on(queries, *given)
    if stopped:
        column, _ = after[stream].dropped[-1]
        raise Conflict(
            "column-in-use",
            f"column {column!r} of stream {stream!r} can't be dropped: it is read by {stopped}",
            field="column",
            remedy="remove these queries, or replace them by statements without the column (SELECT "
            "* reads all columns)",
        )
    return changed
