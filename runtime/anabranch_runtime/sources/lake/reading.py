"""Reading of parts of the data files of a Delta or Iceberg table, by tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anabranch_contract.queries.types import parse_type
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.decode import from_text, schema_of, typed
from anabranch_runtime.sources.feed import Piece
from anabranch_runtime.sources.files.reading import parquet_rows
from anabranch_runtime.sources.files.trouble import BROKEN, damaged
from anabranch_runtime.sources.invalid import Decoded
from anabranch_runtime.sources.lake.log import RowsOf
from anabranch_runtime.sources.lake.trouble import SKIP, check_size, local, lost, opened, refused
from anabranch_runtime.sources.permitted import resolve

#: Column with the kind of each row's change in files of changes; operations of a stream.
_KIND = "_change_type"
#: Metadata key of a Parquet column for its id in Iceberg's schema.
_ID = b"PARQUET:field_id"
_OPERATIONS = {"insert": "+i", "update_preimage": "-u", "update_postimage": "+u", "delete": "-d"}
#: Kind of change (the values before an update) that a stream of upserts leaves out.
_OLD = "update_preimage"


def read_table_file(piece: Piece) -> Iterator[Decoded]:
    """Yield the rows of a part of a table's data file, with their operation if the stream has any.
    Columns that the file lacks were added to the table later, and are NULL.

    Raises:
        SourceError: the file was removed, or can't be read.
    """
    where, schema = piece.where, schema_of(piece.columns)
    path, catalog = where["path"], where["catalog"]
    check_size(path, where["size"], catalog)
    if where["real"] and resolve(path) != where["real"]:
        raise SourceError(
            "file-changed",
            f"{path} is, or leads through, a link that may not be read",
            field=path,
            remedy="put back the file",
        )
    try:
        for rows in _file_rows(piece, schema):
            yield typed(rows, schema)
    except MemoryError:
        raise
    except FileNotFoundError as cause:
        raise lost(path) from cause
    except BROKEN as cause:
        if isinstance(cause, OSError) and (cause.errno is not None or local(path) is None):
            raise refused(path, cause) from cause
        raise damaged(path, str(cause), SKIP) from cause


def _file_rows(piece: Piece, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    where, path = piece.where, piece.where["path"]
    with pq.ParquetFile(opened(path, where["catalog"])) as file:
        found, kinds = file.metadata.num_rows, file.schema_arrow
    if found != where["rows"]:
        raise damaged(path, f"it has {found} rows, and its table says {where['rows']}", SKIP)
    changes = where["of"] == RowsOf.CHANGES
    if changes and _KIND not in kinds.names:
        raise damaged(path, f"it has no column {_KIND}", SKIP)
    names = _names(kinds, where["fields"])
    constants = _constants(piece, names)
    wanted = [name for name in schema.names if name in names and name not in constants]
    asked = [names[name] for name in wanted] + ([_KIND] if changes else [])
    first, last = where["first"], where["last"]
    kept = None
    if where["hidden"] or where["only"]:
        kept = _kept(where)
        places = kept.nonzero()[0]
        if not len(places):
            return
        first, last = first + int(places[0]), first + int(places[-1]) + 1
        kept = kept[places[0] :]
    known = {there: name for name, there in names.items()}
    # One column is read even if none is needed, since otherwise the number of rows would be lost.
    source = opened(path, where["catalog"])
    for batch in parquet_rows(source, asked or kinds.names[:1], first, last):
        rows = _without_views(batch)
        rows = rows.rename_columns([known.get(name, name) for name in rows.schema.names])
        if kept is not None:
            rows, kept = rows.filter(pa.array(kept[: len(rows)])), kept[len(rows) :]
        if changes and where["keyed"]:
            rows = rows.filter(pc.not_equal(rows.column(_KIND), _OLD))
        yield _completed(rows, schema, constants, where["operation"])


def _names(kinds: pa.Schema, fields: dict[str, int]) -> dict[str, str]:
    """Return the name that each column has in a data file: by its id, if the file has ids."""
    numbers = {
        int(field.metadata[_ID]): field.name
        for field in kinds
        if fields and field.metadata and _ID in field.metadata
    }
    if not numbers:
        return {name: name for name in kinds.names}
    return {name: numbers[number] for name, number in fields.items() if number in numbers}


def _kept(where: dict[str, Any]) -> NDArray[np.bool_]:
    """Return the mask of rows to read in a part of a data file, by the deleted positions."""
    kept = np.full(where["last"] - where["first"], not where["only"])
    for paths, value in ((where["only"], True), (where["hidden"], False)):
        for path in paths:
            rows_of = [("file_path", "==", where["name"])]
            try:
                source = opened(path, where["catalog"])
                found = pq.read_table(source, columns=["pos"], filters=rows_of)
            except FileNotFoundError as cause:
                raise lost(path) from cause
            places = found["pos"].to_numpy() - where["first"]
            kept[places[(places >= 0) & (places < len(kept))]] = value
    return kept


def _without_views(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return ``rows`` without view types (such as string views), which Arrow can't filter."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    kinds = [(field.name, plain.get(field.type, field.type)) for field in rows.schema]
    return rows.cast(pa.schema(kinds))


def _constants(piece: Piece, names: Collection[str]) -> dict[str, pa.Scalar]:
    """Return the columns with the same value in all rows of a data file: the operation, and
    partition columns that the file lacks."""
    where, found = piece.where, dict[str, Any]()
    for name, kind in piece.columns:
        if name in where["values"] and name not in names:
            text = pa.array([where["values"][name]], pa.string())
            found[name] = from_text(parse_type(kind))(text)[0]
    if where["operation"] is not None and where["of"] != RowsOf.CHANGES:
        found[where["operation"]] = pa.scalar(where["of"])
    return found


def _completed(
    rows: pa.RecordBatch, schema: pa.Schema, constants: dict[str, pa.Scalar], operation: str | None
) -> pa.RecordBatch:
    """Return ``rows`` with all columns of ``schema``; missing ones are constants, or else NULL."""
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
