"""Conversion between Spark's column types and Arrow types.

>>> from anabranch_contract.queries.types import parse_type
>>> str(arrow_type(parse_type("decimal(12,2)")))
'decimal128(12, 2)'
>>> str(spark_type(pa.timestamp("ns", "Europe/Oslo")))
'timestamp'
>>> str(spark_type(arrow_type(parse_type("map<string,array<struct<a:int>>>"))))
'map<string,array<struct<a:int>>>'
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from anabranch_contract.queries.expressions import Output
from anabranch_contract.queries.types import (
    FIELD_TYPE,
    INTERVALS,
    DataType,
    TypeKind,
    array_of,
    parse_type,
    struct_of,
    whole_interval,
)
from anabranch_runtime.errors import ArrowTypeError

_TO_ARROW: dict[TypeKind, pa.DataType] = {
    TypeKind.TINYINT: pa.int8(),
    TypeKind.SMALLINT: pa.int16(),
    TypeKind.INT: pa.int32(),
    TypeKind.BIGINT: pa.int64(),
    TypeKind.FLOAT: pa.float32(),
    TypeKind.DOUBLE: pa.float64(),
    TypeKind.STRING: pa.string(),
    TypeKind.BOOLEAN: pa.bool_(),
    TypeKind.DATE: pa.date32(),
    TypeKind.TIMESTAMP: pa.timestamp("us", "UTC"),
    TypeKind.TIMESTAMP_NTZ: pa.timestamp("us"),
    TypeKind.BINARY: pa.binary(),
    TypeKind.INTERVAL: pa.duration("us"),
    # Months as plain integers, since Arrow has no arithmetic for its type of months.
    TypeKind.MONTHS: pa.int32(),
    TypeKind.NULL: pa.null(),
    # A VARIANT is stored as canonical JSON.
    TypeKind.VARIANT: pa.string(),
}
#: Arrow type -> Spark type; unsigned integers become the next wider signed type, as in Spark.
_FROM_ARROW: dict[pa.DataType, DataType] = {
    pa.int8(): DataType(TypeKind.TINYINT),
    pa.int16(): DataType(TypeKind.SMALLINT),
    pa.int32(): DataType(TypeKind.INT),
    pa.int64(): DataType(TypeKind.BIGINT),
    pa.uint8(): DataType(TypeKind.SMALLINT),
    pa.uint16(): DataType(TypeKind.INT),
    pa.uint32(): DataType(TypeKind.BIGINT),
    pa.uint64(): DataType(TypeKind.DECIMAL, 20, 0),
    pa.float32(): DataType(TypeKind.FLOAT),
    pa.float64(): DataType(TypeKind.DOUBLE),
    pa.string(): DataType(TypeKind.STRING),
    pa.large_string(): DataType(TypeKind.STRING),
    pa.string_view(): DataType(TypeKind.STRING),
    pa.bool_(): DataType(TypeKind.BOOLEAN),
    pa.duration("us"): whole_interval(TypeKind.INTERVAL),
    pa.date32(): DataType(TypeKind.DATE),
    pa.date64(): DataType(TypeKind.DATE),
    pa.binary(): DataType(TypeKind.BINARY),
    pa.large_binary(): DataType(TypeKind.BINARY),
    pa.binary_view(): DataType(TypeKind.BINARY),
}


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type for values of ``kind``."""
    if kind.kind is TypeKind.DECIMAL:
        return pa.decimal128(kind.precision, kind.scale)
    if kind.kind is TypeKind.ARRAY:
        return pa.list_(arrow_type(kind.element))
    if kind.kind is TypeKind.STRUCT:
        return pa.struct([(name, arrow_type(of)) for name, of in kind.fields])
    if kind.kind is TypeKind.MAP:
        return pa.map_(*(arrow_type(of) for _, of in kind.fields))
    return _TO_ARROW[kind.kind]


#: Metadata key of Spark's schema in Parquet files; names of the interval types in that schema.
_NOTE = b"org.apache.spark.sql.parquet.row.metadata"
_JSON_NAMES = {
    TypeKind.TINYINT: "byte",
    TypeKind.SMALLINT: "short",
    TypeKind.INT: "integer",
    TypeKind.BIGINT: "long",
}


def typed_field(name: str, kind: DataType) -> pa.Field:
    """Return a column's Arrow field; intervals, which Arrow can't express, as its metadata."""
    metadata = {FIELD_TYPE: kind.encode()} if kind.kind in INTERVALS else None
    return pa.field(name, arrow_type(kind), metadata=metadata)


def interval_type(metadata: Mapping[bytes, bytes] | None) -> DataType | None:
    """Return the type that :func:`typed_field` wrote into metadata; None if no interval type."""
    found = (metadata or {}).get(FIELD_TYPE)
    return None if found is None else parse_type(found.decode())


def field_type(field: pa.Field) -> DataType:
    """Return the Spark type of an Arrow field's values.

    Raises:
        ArrowTypeError: as :func:`spark_type`.
    """
    return interval_type(field.metadata) or spark_type(field.type)


def noted(schema: pa.Schema) -> pa.Schema:
    """Return the Arrow ``schema`` with Spark's own schema added as metadata. From it Spark
    recognizes intervals in Parquet files; without it, Spark would read integers."""
    if not any(interval_type(field.metadata) for field in schema):
        return schema
    fields = [(field.name, field_type(field)) for field in schema]
    note = json.dumps(_spark_struct(fields)).encode()
    return schema.with_metadata({**(schema.metadata or {}), _NOTE: note})


def _spark_struct(fields: Iterable[tuple[str, DataType]]) -> dict[str, Any]:
    described = [
        {"name": name, "type": _spark_json(kind), "nullable": True, "metadata": {}}
        for name, kind in fields
    ]
    return {"type": "struct", "fields": described}


def _spark_json(kind: DataType) -> Any:
    if kind.kind is TypeKind.STRUCT:
        return _spark_struct(kind.fields)
    if kind.kind is TypeKind.ARRAY:
        inner = _spark_json(kind.element)
        return {"type": "array", "elementType": inner, "containsNull": True}
    if kind.kind is TypeKind.MAP:
        key, value = (_spark_json(of) for _, of in kind.fields)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    return _JSON_NAMES.get(kind.kind, str(kind))


def schema_of(outputs: Iterable[Output]) -> pa.Schema:
    """Return the Arrow schema of the output columns of a projection."""
    return pa.schema([typed_field(o.name, o.expr.type) for o in outputs])


def spark_type(kind: pa.DataType) -> DataType:
    """Return the type that Spark gives to columns of ``kind``; nanoseconds become microseconds.

    Raises:
        ArrowTypeError: Spark has no such column type, or the query language doesn't support it.
    """
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return DataType(TypeKind.TIMESTAMP if kind.tz else TypeKind.TIMESTAMP_NTZ)
    if pa.types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return DataType(TypeKind.DECIMAL, kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return DataType(TypeKind.BINARY)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return array_of(spark_type(kind.value_type))
    if pa.types.is_struct(kind) and kind.num_fields:
        return struct_of((field.name, spark_type(field.type)) for field in kind)
    if pa.types.is_map(kind):
        fields = (("key", spark_type(kind.key_type)), ("value", spark_type(kind.item_type)))
        return DataType(TypeKind.MAP, fields=fields)
    found = _FROM_ARROW.get(kind)
    if found is None:
        raise ArrowTypeError(
            "unsupported-arrow-type",
            f"Arrow type {kind} has no counterpart among the column types",
            remedy="cast the column to a number, string, boolean, date, timestamp or binary",
        )
    return found
