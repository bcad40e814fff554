"""Every pass of planning against golden texts; ``make golden`` renews them."""

from __future__ import annotations

import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import ConversionRequest, convert_statement, parse_sql, read_sql
from tests.planner.golden_passes import HERE, written


def test_passes_read_as_recorded() -> None:
    found = dict(written())
    recorded = {p.name: p.read_text("utf-8") for p in (HERE / "passes").iterdir()}
    assert found.keys() == recorded.keys()
    for name, text in found.items():
        assert text == recorded[name], f"{name} differs: run 'make golden' and review the diff"


KINDS = {"k": parse_type("int"), "x": parse_type("int")}


def tables(*names: str) -> dict[str, Stream]:
    return {n: Stream(StreamName(n), tuple(KINDS.items())) for n in names}


def request(sql: str, streams: dict[str, Stream]) -> ConversionRequest:
    columns = {n: {c: str(kind) for c, kind in s.columns} for n, s in streams.items()}
    return ConversionRequest(sql, columns, planned=read_sql(sql), streams=streams)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.x FROM a JOIN b USING (k) JOIN c USING (k)",
        "SELECT q.K FROM (SELECT a.k FROM a, b WHERE a.k = b.k AND b.x > 3) q, b WHERE b.k = q.k",
        "SELECT a.x FROM a AS b JOIN b AS a ON a.k = b.k AND a.x < b.x",
        "WITH q AS (SELECT * FROM a) SELECT 1 AS one FROM q JOIN q AS p ON p.k = q.k",
        "SELECT a.k, count(*) AS n FROM a, b WHERE a.k = b.k GROUP BY a.k",
    ],
)
def test_what_is_converted_is_what_is_planned(sql: str) -> None:
    convert_statement(request(sql, tables("a", "b", "c")))


def test_a_conversion_that_is_not_what_is_planned_is_refused() -> None:
    # sqlglot takes names that differ in case only for one.
    streams = tables("a", "T") | {"t": Stream(StreamName("t"), tuple(KINDS.items())[:1])}
    sql = "SELECT a.x FROM a JOIN T ON a.k = T.k"
    assert parse_sql("q", sql, streams).labels == ("a", "T")
    with pytest.raises(QueryError) as caught:
        convert_statement(request(sql, streams))
    assert caught.value.code == "unfaithful-conversion"
