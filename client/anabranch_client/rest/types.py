"""Conversion between Arrow types and Spark's simple type strings, for Parquet files.

>>> import pyarrow as pa
>>> spark_type(pa.uint32()), spark_type(pa.decimal128(12, 2)), spark_type(pa.timestamp("ms"))
('bigint', 'decimal(12,2)', 'timestamp_ntz')
"""

from __future__ import annotations

import pyarrow as pa

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.types import INTERVALS, DataType, TypeKind, parse_type

#: Unsigned integers become the next wider type, as in Spark's Parquet reader.
_PLAIN: dict[pa.DataType, str] = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20,0)",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.duration("us"): "interval day to second",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
}

_SIMPLE: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "variant": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def spark_type(arrow: pa.DataType) -> str | None:
    """Spark's simple type string for ``arrow``; None if no stream's column can have this type."""
    plain = _PLAIN.get(arrow)
    if plain is not None:
        return plain
    if pa.types.is_timestamp(arrow):
        return "timestamp_ntz" if arrow.tz is None else "timestamp"
    if pa.types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_fixed_size_binary(arrow):
        return "binary"
    if pa.types.is_dictionary(arrow):
        return spark_type(arrow.value_type)
    if pa.types.is_nested(arrow) and arrow.num_fields and not pa.types.is_union(arrow):
        return _nested_type(arrow)
    return None


def _nested_type(arrow: pa.DataType) -> str | None:
    if pa.types.is_struct(arrow):
        inner = [(f"`{f.name}`:", spark_type(f.type)) for f in arrow]
    elif pa.types.is_map(arrow):
        inner = [("", spark_type(arrow.key_type)), ("", spark_type(arrow.item_type))]
    else:
        inner = [("", spark_type(arrow.value_type))]
    kind = "struct" if pa.types.is_struct(arrow) else "map" if pa.types.is_map(arrow) else "array"
    if any(of is None for _, of in inner):
        return None
    try:
        return str(parse_type(f"{kind}<{','.join(f'{name}{of}' for name, of in inner)}>"))
    except PlannerError:
        # The text is the name of a field, or the type is nested too deeply.
        return None


def arrow_type(spark: str) -> pa.DataType:
    """Arrow type of a column of Spark's type ``spark`` in results that the client reads.

    Used only for the empty result of a query that never became active, which the runtime does not
    write.
    """
    return _plain_arrow_type(parse_type(spark)) if spark != "void" else pa.null()


def _plain_arrow_type(kind: DataType) -> pa.DataType:
    if kind.kind in INTERVALS:
        return pa.int32() if kind.kind is TypeKind.MONTHS else pa.duration("us")
    if kind.kind is TypeKind.DECIMAL:
        return pa.decimal128(kind.precision, kind.scale)
    inner = [(name, _plain_arrow_type(of)) for name, of in kind.fields]
    if kind.kind is TypeKind.STRUCT:
        return pa.struct(inner)
    if kind.kind is TypeKind.MAP:
        return pa.map_(inner[0][1], inner[1][1])
    return pa.list_(inner[0][1]) if kind.kind is TypeKind.ARRAY else _SIMPLE[kind]
