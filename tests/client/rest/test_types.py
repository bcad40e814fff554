"""Tests of the conversion of Arrow types to Spark's simple type strings, and back."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch_client.rest.types import arrow_type, spark_type
from anabranch_contract.queries.types import parse_type

KNOWN = {
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
    pa.decimal128(38, 10): "decimal(38,10)",
    pa.decimal256(12, 2): "decimal(12,2)",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.dictionary(pa.int32(), pa.string()): "string",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.timestamp("s", tz="UTC"): "timestamp",
    pa.timestamp("ns", tz="Europe/Vienna"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
    pa.binary(): "binary",
    pa.binary(16): "binary",
    pa.list_(pa.int32()): "array<int>",
    pa.large_list(pa.string()): "array<string>",
    pa.struct(
        [("a", pa.int32()), ("b c", pa.list_(pa.date32()))]
    ): "struct<a:int,`b c`:array<date>>",
    pa.map_(pa.string(), pa.float64()): "map<string,double>",
}
UNKNOWN = [
    pa.list_(pa.time64("us")),
    pa.struct([("a`", pa.int32())]),
    pa.struct([]),
    pa.time64("us"),
    pa.duration("s"),
    pa.null(),
    pa.decimal256(50, 2),
    pa.decimal128(5, -2),
]


@pytest.mark.parametrize(("arrow", "spark"), KNOWN.items(), ids=map(str, KNOWN))
def test_every_known_type_is_one_that_the_planner_reads(arrow: pa.DataType, spark: str) -> None:
    assert spark_type(arrow) == spark
    assert str(parse_type(spark)) == spark


@pytest.mark.parametrize("arrow", UNKNOWN, ids=str)
def test_types_that_no_stream_can_have(arrow: pa.DataType) -> None:
    assert spark_type(arrow) is None


@pytest.mark.parametrize("spark", sorted(set(KNOWN.values())))
def test_the_arrow_type_of_a_result_reads_back_as_the_same_type(spark: str) -> None:
    assert spark_type(arrow_type(spark)) == spark
