"""Reading parts of the data files of a table, in tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch_contract.queries.types import parse_type
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.decode import from_text, schema_of, typed
from anabranch_runtime.sources.feed import Piece
from anabranch_runtime.sources.files.reading import parquet_rows
from anabranch_runtime.sources.files.trouble import BROKEN, damaged, refused
from anabranch_runtime.sources.invalid import Decoded
from anabranch_runtime.sources.lake.log import RowsOf
from anabranch_runtime.sources.lake.trouble import SKIP, check_size
from anabranch_runtime.sources.permitted import resolve

#: Column of a file of changes with the kind of each, and the operations of a stream for them.
_KIND = "_change_type"
_OPERATIONS = {"insert": "+i", "update_preimage": "-u", "update_postimage": "+u", "delete": "-d"}
#: Kind of change that upserts do not have.
_OLD = "update_preimage"


def read_table_file(piece: Piece) -> Iterator[Decoded]:
    """Yield the rows of a part of a data file, with their operation if the stream has one. Columns
    that the file lacks were added to the table later, and are NULL.

    Raises:
        SourceError: the file was removed, or can't be read.
    """
    where, schema = piece.where, schema_of(piece.columns)
    path = Path(where["path"])
    check_size(path, where["size"])
    if resolve(str(path)) != where["real"]:
        raise SourceError(
            "file-changed",
            f"{path} is, or leads through, a link that may not be read",
            field=str(path),
            remedy="put back the file",
        )
    changes = where["of"] == RowsOf.CHANGES
    constants = _constants(piece)
    names = [name for name in schema.names if name not in constants]
    try:
        found = pq.read_metadata(path)
        if found.num_rows != where["rows"]:
            said = f"it has {found.num_rows} rows, and its table says {where['rows']}"
            raise damaged(path, said, SKIP)
        there = set(found.schema.to_arrow_schema().names)
        wanted = [name for name in [*names, *([_KIND] if changes else [])] if name in there]
        if changes and _KIND not in there:
            raise damaged(path, f"it has no column {_KIND}", SKIP)
        # Without a column the number of rows is lost: any column will do.
        asked = wanted or sorted(there)[:1]
        for batch in parquet_rows(path, asked, where["first"], where["last"]):
            rows = _without_views(batch)
            if changes and where["keyed"]:
                rows = rows.filter(pc.not_equal(rows.column(_KIND), _OLD))
            yield typed(_completed(rows, schema, constants, where["operation"]), schema)
    except MemoryError:
        raise
    except BROKEN as cause:
        if isinstance(cause, OSError) and cause.errno is not None:
            raise refused(path, cause, SKIP) from cause
        raise damaged(path, str(cause), SKIP) from cause


def _without_views(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return ``rows`` without types of views, which Arrow can't filter."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    kinds = [(field.name, plain.get(field.type, field.type)) for field in rows.schema]
    return rows.cast(pa.schema(kinds))


def _constants(piece: Piece) -> dict[str, pa.Scalar]:
    """Return the columns that have one value in a whole file: partitions, and the operation."""
    where, found = piece.where, dict[str, Any]()
    for name, kind in piece.columns:
        if name in where["values"]:
            text = pa.array([where["values"][name]], pa.string())
            found[name] = from_text(parse_type(kind))(text)[0]
    if where["operation"] is not None and where["of"] != RowsOf.CHANGES:
        found[where["operation"]] = pa.scalar(where["of"])
    return found


def _completed(
    rows: pa.RecordBatch, schema: pa.Schema, constants: dict[str, pa.Scalar], operation: str | None
) -> pa.RecordBatch:
    """Return all columns of ``schema``."""
    arrays = []
    for field in schema:
        if field.name in constants:
            arrays.append(pa.repeat(constants[field.name], rows.num_rows))
        elif field.name == operation:
            arrays.append(_operations(rows.column(_KIND)))
        elif field.name in rows.schema.names:
            arrays.append(rows.column(field.name))
        else:
            arrays.append(pa.nulls(rows.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def _operations(kinds: pa.Array) -> pa.Array:
    coded = kinds.cast(pa.string()).dictionary_encode()
    names = [_OPERATIONS.get(kind, kind) for kind in coded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(coded.indices)
