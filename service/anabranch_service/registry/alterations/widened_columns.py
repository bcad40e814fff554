"""Columns of a stream in use whose type is widened (ADR 0103).

The record keeps its id of registration, so stored rows stay and are read with the new type. A query
continues if its normal form is the same function of the stored rows as before, and its results and
the rows that it keeps have the same types. Otherwise the change is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch_contract import codec
from anabranch_contract.protocol.registered import ColumnRecord, StreamRecord
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamKind
from anabranch_contract.queries.types import FLOATING, key_type, parse_type, widens
from anabranch_planner.normal.widened import retyped
from anabranch_service.errors import Conflict
from anabranch_service.registry.alterations.fixed_columns import (
    check_columns_change,
    column_of,
    type_of,
)
from anabranch_service.registry.alterations.going_on import going_on
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.statements import NormalForms, usable_streams


def with_type(record: StreamRecord, column: str, type: str) -> StreamRecord:
    """Return ``record`` with the wider ``type`` of ``column``; the same record if it has this type.

    Raises:
        NotFound: ``unknown-column``.
        Conflict: ``columns-fixed``: types can't change in streams of this kind or source, or in
            keys; ``not-wider``: the type lacks values of the present one.
        InvalidInput: the type is unknown.
    """
    check_columns_change(record, named=False)
    found = column_of(record, column)
    old, new = parse_type(found.type), type_of(type)
    if old == new:
        return record
    if not widens(old, new):
        raise Conflict(
            "not-wider",
            f"{new} is not a wider type than {old}, the type of column {found.name!r}",
            field="type",
            remedy="give a longer integer, double after float, a decimal with more digits and the "
            "same scale, or timestamp_ntz after date; else register another stream",
        )
    why = ""
    if found.name in record.key and key_type([old]) != key_type([new]):
        why = f"it is in the key of stream {record.name!r}, and keys of these types differ"
    elif found.name in record.latest and not record.key:
        why = f"it is in the key of stream {record.name!r}"
    elif record.kind is StreamKind.CHANGES and old.kind in FLOATING:
        why = f"deletes in stream {record.name!r} repeat their rows, whose digits would differ"
    if why:
        raise Conflict(
            "columns-fixed",
            f"column {found.name!r} can't become {new}: {why}",
            field="column",
            remedy="register a stream with the new type under another name",
        )
    columns = tuple(
        ColumnRecord(name=c.name, type=str(new)) if c is found else c for c in record.columns
    )
    widened = {found.name: str(old), **dict(record.widened)}
    changed = record.model_copy(update={"columns": columns, "widened": tuple(widened.items())})
    changed.to_stream()
    return changed


def with_wider_column(
    stream: str,
    queries: Sequence[QueryRecord],
    before: Mapping[str, StreamRecord],
    after: Mapping[str, StreamRecord],
    forms: NormalForms,
) -> list[QueryRecord]:
    """Return the ``queries`` over ``stream``, described with the wider type of one of its columns.

    Raises:
        Conflict: ``column-in-use``: a query would have other results or types.
    """
    known, wider = usable_streams(before.values()), usable_streams(after.values())
    old, new = known[stream], wider[stream]
    column = next(name for name, kind in new.columns if old.type_of(name) != kind)
    changed, stopped = going_on(
        queries, known, wider, forms, lambda q, form: _retyped(q, form, new)
    )
    if stopped:
        kind = new.type_of(column)
        raise Conflict(
            "column-in-use",
            f"column {column!r} of stream {stream!r} can't become {kind}: its type matters to "
            + stopped,
            field="column",
            remedy=f"replace these queries by statements with CAST({column} AS {kind}) in place "
            "of the column, or remove them and register them again afterwards",
        )
    return changed


def _retyped(query: QueryRecord, form: JoinQuery, stream: Stream) -> QueryRecord:
    """Return the query with the column's new type in the filters of its shared stores."""
    of = {
        member.alias
        for member in form.members
        if form.relation_of(member.label).stream == stream.name
    }
    types = {name: kind for name, kind in stream.columns if dict(stream.widened).get(name)}
    filters = codec.from_json(query.relaxed, dict[str, list[Expr]])
    found = {
        alias: [retyped(one, types) for one in kept] if alias in of else kept
        for alias, kept in filters.items()
    }
    return query.model_copy(update={"relaxed": {a: codec.to_json(k) for a, k in found.items()}})
