"""Tests of other dialects' UNNEST, translated to Spark."""

from __future__ import annotations

import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql
from anabranch_planner.sql.dialects import to_spark

_COLUMNS = {"id": "int", "tags": "array<string>", "items": "array<struct<sku:string,qty:int>>"}
STREAMS = {
    "o": Stream(StreamName("o"), tuple((n, parse_type(kind)) for n, kind in _COLUMNS.items()))
}


@pytest.mark.parametrize(
    ("dialect", "clauses", "wanted"),
    [
        ("trino", "x FROM o CROSS JOIN UNNEST(o.tags) AS t(x)", "explode(o.tags)"),
        ("presto", "x FROM o CROSS JOIN UNNEST(o.tags) AS t(x)", "explode(o.tags)"),
        ("duckdb", "x FROM o, unnest(o.tags) AS t(x)", "explode(o.tags)"),
        ("duckdb", "x FROM o, unnest(o.items) AS t(x)", "explode(o.items)"),
        ("duckdb", "unnest(tags) AS x FROM o", "explode(o.tags)"),
        ("bigquery", "x FROM o, UNNEST(o.tags) AS x", "explode(o.tags)"),
        ("bigquery", "x FROM o LEFT JOIN UNNEST(o.tags) AS x ON TRUE", "explode_outer(o.tags)"),
    ],
)
def test_translations(dialect: str, clauses: str, wanted: str) -> None:
    spark = to_spark(f"SELECT o.id, {clauses}", dialect, STREAMS)
    found = parse_sql("q", spark, STREAMS)
    assert [str(one) for one in found.expansions] == [f"#1 = {wanted}"]
    assert [o.name for o in found.projection] == ["id", "x"]


@pytest.mark.parametrize(
    ("dialect", "clauses", "message", "remedy"),
    [
        ("trino", "x, n FROM o CROSS JOIN UNNEST(o.tags) WITH ORDINALITY AS t(x, n)",
         "UNNEST here", "LATERAL VIEW posexplode(x) t AS place, item"),
        ("trino", "sku FROM o CROSS JOIN UNNEST(o.items) AS t(sku, qty)",
         "whose fields become columns", "LATERAL VIEW inline(x) t AS a, b"),
        ("trino", "sku FROM o CROSS JOIN UNNEST(o.items) AS t(sku)",
         "whose fields become columns", "LATERAL VIEW inline(x) t AS a, b"),
        ("duckdb", "1 AS one FROM o, unnest(o.tags)", "without the name", "write AS t(item)"),
        ("postgres", "x FROM o, unnest(o.tags) AS t(x)", "UNNEST here", "LATERAL VIEW"),
    ],
)  # fmt: skip
def test_refusals(dialect: str, clauses: str, message: str, remedy: str) -> None:
    with pytest.raises(QueryError) as refused:
        to_spark(f"SELECT o.id, {clauses}", dialect, STREAMS)
    assert message in refused.value.message
    assert remedy in refused.value.remedy
