"""Conversion between column types of streams and Arrow types."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.types import (
    DataType,
    TypeKind,
    array_of,
    map_of,
    parse_type,
    struct_of,
    whole_interval,
)

_ARROW: Mapping[TypeKind, pa.DataType] = {
    TypeKind.TINYINT: pa.int8(),
    TypeKind.SMALLINT: pa.int16(),
    TypeKind.INT: pa.int32(),
    TypeKind.BIGINT: pa.int64(),
    TypeKind.FLOAT: pa.float32(),
    TypeKind.DOUBLE: pa.float64(),
    TypeKind.STRING: pa.string(),
    TypeKind.BOOLEAN: pa.bool_(),
    TypeKind.DATE: pa.date32(),
    TypeKind.INTERVAL: pa.int64(),
    TypeKind.MONTHS: pa.int32(),
    TypeKind.TIMESTAMP: pa.timestamp("us", "UTC"),
    TypeKind.TIMESTAMP_NTZ: pa.timestamp("us"),
    TypeKind.BINARY: pa.binary(),
}
_COLUMNS: Mapping[pa.DataType, DataType] = {
    **{_ARROW[kind]: DataType(kind) for kind in _ARROW if "interval" not in kind},
    pa.uint8(): DataType(TypeKind.SMALLINT),
    pa.uint16(): DataType(TypeKind.INT),
    pa.uint32(): DataType(TypeKind.BIGINT),
    pa.uint64(): DataType(TypeKind.DECIMAL, 20, 0),
    pa.large_string(): DataType(TypeKind.STRING),
    pa.string_view(): DataType(TypeKind.STRING),
    pa.large_binary(): DataType(TypeKind.BINARY),
    pa.binary_view(): DataType(TypeKind.BINARY),
    pa.date64(): DataType(TypeKind.DATE),
    pa.duration("us"): whole_interval(TypeKind.INTERVAL),
}


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of values of ``kind``; variants are JSON texts, as in result files."""
    if kind.kind is TypeKind.VARIANT:
        return pa.string()
    if kind.kind is TypeKind.DECIMAL:
        return pa.decimal128(kind.precision, kind.scale)
    inner = [(name, arrow_type(of)) for name, of in kind.fields]
    if kind.kind is TypeKind.STRUCT:
        return pa.struct(inner)
    if kind.kind is TypeKind.MAP:
        return pa.map_(inner[0][1], inner[1][1])
    if kind.kind is TypeKind.ARRAY:
        return pa.list_(inner[0][1])
    return _ARROW[kind.kind]


def column_type(kind: pa.DataType) -> DataType | None:
    """Return the narrowest column type for values of ``kind``; None: no column can hold them.

    >>> column_type(pa.timestamp("ns", "UTC")), column_type(pa.time32("s"))
    ('timestamp', None)
    """
    try:
        return parse_type(_column_of(kind))
    except (KeyError, PlannerError):
        # No column has this type, a field has an invalid name, or the type is nested too deeply.
        return None


def _column_of(kind: pa.DataType) -> DataType:
    if pa.types.is_dictionary(kind):
        return _column_of(kind.value_type)
    if pa.types.is_timestamp(kind):
        return DataType(TypeKind.TIMESTAMP if kind.tz else TypeKind.TIMESTAMP_NTZ)
    if pa.types.is_decimal(kind):
        return DataType(TypeKind.DECIMAL, kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return DataType(TypeKind.BINARY)
    if pa.types.is_struct(kind):
        return struct_of((field.name, _column_of(field.type)) for field in kind)
    if pa.types.is_map(kind):
        return map_of(_column_of(kind.key_type), _column_of(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return array_of(_column_of(kind.value_type))
    return _COLUMNS[kind]
