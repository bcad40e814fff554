"""Conversion between Arrow types and Spark's simple type strings, for Parquet files.

>>> import pyarrow as pa
>>> spark_type(pa.uint32()), spark_type(pa.decimal128(12, 2)), spark_type(pa.timestamp("ms"))
('bigint', 'decimal(12,2)', 'timestamp_ntz')
"""

from __future__ import annotations

import pyarrow as pa

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
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
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
    return None


def arrow_type(spark: str) -> pa.DataType:
    """Arrow type of a result column of Spark's type ``spark``.

    Used only for the empty result of a query that never became active, which the runtime does not
    write.
    """
    kinds = {
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "void": pa.null(),
    }
    if spark.startswith("decimal("):
        precision, scale = spark[len("decimal(") : -1].split(",")
        return pa.decimal128(int(precision), int(scale))
    return kinds[spark]
