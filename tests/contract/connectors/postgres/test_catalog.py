"""Tests of the column types for PostgreSQL types, by names and modifiers of its catalog."""

from __future__ import annotations

import pytest

from anabranch_contract.connectors.postgres.catalog import check_columns, column_type
from anabranch_contract.errors import StreamError
from anabranch_contract.queries.types import parse_type


@pytest.mark.parametrize(
    ("type", "modifier", "wanted", "others", "refused"),
    [
        ("int4", -1, "int", ["bigint", "string"], ["smallint", "double"]),
        ("int2", -1, "smallint", ["int", "bigint"], ["tinyint"]),
        ("int8", -1, "bigint", [], ["int"]),
        ("float4", -1, "float", ["double"], ["int"]),
        ("float8", -1, "double", [], ["float"]),
        ("numeric", (10 << 16 | 2) + 4, "decimal(10,2)", ["decimal(12,4)"], ["decimal(12,1)"]),
        ("numeric", -1, "decimal(38,10)", ["decimal(5,1)"], ["double"]),
        ("numeric", (50 << 16 | 2) + 4, "decimal(38,10)", ["string"], ["decimal(38,2)"]),
        ("timestamp", 6, "timestamp_ntz", ["string"], ["timestamp"]),
        ("timestamptz", -1, "timestamp", [], ["timestamp_ntz"]),
        ("bool", -1, "boolean", [], ["int"]),
        ("bytea", -1, "binary", ["string"], []),
        ("date", -1, "date", [], ["timestamp"]),
        ("jsonb", -1, "string", [], ["int", "array<int>"]),
    ],
)
def test_types_of_columns(
    type: str, modifier: int, wanted: str, others: list[str], refused: list[str]
) -> None:
    found = {"c": (type, modifier)}
    assert column_type(type, modifier) == wanted
    for kind in others if modifier > 1 << 21 else [wanted, *others]:
        check_columns([("c", parse_type(kind))], found)
    for kind in refused:
        with pytest.raises(StreamError) as error:
            check_columns([("c", parse_type(kind))], found)
        assert error.value.field == "columns.c"
        assert wanted in (error.value.remedy or "")
