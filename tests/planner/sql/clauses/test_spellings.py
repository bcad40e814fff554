"""Tests of other systems' spellings of Spark's SQL."""

from __future__ import annotations

import pytest

from anabranch_planner.passes import parse_sql
from tests.support.cases.refusals import refusal
from tests.support.cases.sample_streams import sample_streams


@pytest.mark.parametrize(
    ("spoken", "plain"),
    [
        ("s ->> 'a'", "get_json_object(s, '$.a')"),
        ("s -> 'a' -> 0 ->> 'b c'", "get_json_object(s, '$.a[0][''b c'']')"),
        ("s ->> '$.a[1]'", "get_json_object(s, '$.a[1]')"),
        ("coalesce(s -> 'a' ->> 'b', 'x')", "coalesce(get_json_object(s, '$.a.b'), 'x')"),
        ("k = ANY(array(k, 2))", "array_contains(array(k, 2), k)"),
        ("k <> ALL(array(k, 2))", "forall(array(k, 2), anabranch_item -> k <> anabranch_item)"),
        ("k < ANY(array(k, 2))", "exists(array(k, 2), anabranch_item -> k < anabranch_item)"),
        ("s ~ '^a'", "s RLIKE '^a'"),
        ("s !~ '^a' AND NOT s ~ 'b'", "NOT s RLIKE '^a' AND NOT s RLIKE 'b'"),
        ("~ ~k", "~(~k)"),
        ("FLOOR(ts TO HOUR)", "date_trunc('HOUR', ts)"),
        ("floor(x)", "floor(x)"),
        ("ts + make_interval(days => 2, hours => k)", "ts + make_interval(0, 0, 0, 2, k, 0, 0)"),
        ("ts + make_interval(0, 3)", "ts + make_ym_interval(0, 3)"),
        ("sequence(1, k, 2)", "sequence(1, k, 2)"),
    ],
)
def test_expressions(spoken: str, plain: str) -> None:
    streams = sample_streams()
    found = parse_sql("q", f"SELECT {spoken} AS v FROM R", streams)
    assert found == parse_sql("q", f"SELECT {plain} AS v FROM R", streams)


@pytest.mark.parametrize(
    ("spoken", "plain"),
    [
        (
            "SELECT k, percentile(x, array(0.5, 0.9)) AS p FROM R GROUP BY k",
            "SELECT k, CASE WHEN count(x) > 0 THEN array(percentile(x, 0.5), percentile(x, 0.9)) "
            "END AS p FROM R GROUP BY k",
        ),
        (
            "SELECT json_tuple(s, 'a', 'b') AS (x, y), k FROM R",
            "SELECT get_json_object(s, '$.a') AS x, get_json_object(s, '$.b') AS y, k FROM R",
        ),
        (
            "SELECT string_agg(DISTINCT s, ',' ORDER BY s) AS a FROM R",
            "SELECT listagg(DISTINCT s, ',') WITHIN GROUP (ORDER BY s) AS a FROM R",
        ),
        (
            "SELECT listagg(s, ',') WITHIN GROUP (ORDER BY k, s) AS a FROM R",
            "SELECT listagg(s, ',') WITHIN GROUP (ORDER BY k) AS a FROM R",
        ),
        (
            "SELECT k, sum(x) FILTER (WHERE k > 1) OVER (PARTITION BY s ORDER BY k) AS t FROM R",
            "SELECT k, sum(CASE WHEN k > 1 THEN x END) OVER (PARTITION BY s ORDER BY k) AS t "
            "FROM R",
        ),
        (
            "SELECT ts AT TIME ZONE 'Asia/Tokyo' AS t FROM R",
            "SELECT convert_timezone('Asia/Tokyo', ts) AS t FROM R",
        ),
        (
            "SELECT to_varchar(ts, 'yyyy-MM') AS t FROM R",
            "SELECT date_format(ts, 'yyyy-MM') AS t FROM R",
        ),
        (
            "SELECT k, n FROM R CROSS JOIN generate_series(1, 3) AS g(n)",
            "SELECT k, n FROM R CROSS JOIN LATERAL explode(sequence(1, 3)) AS g(n)",
        ),
        (
            "SELECT k, n FROM R, range(3) AS g(n)",
            "SELECT k, n FROM R CROSS JOIN LATERAL explode(sequence(0, 3 - 1)) AS g(n)",
        ),
    ],
)
def test_statements(spoken: str, plain: str) -> None:
    streams = sample_streams()
    assert parse_sql("q", spoken, streams) == parse_sql("q", plain, streams)


@pytest.mark.parametrize(
    ("sql", "remedy"),
    [
        ("SELECT ts::time AS t FROM R", "write date_format(ts, 'HH:mm:ss') for its text"),
        ("SELECT CAST(s AS UUID) AS u FROM R", "write CAST(s AS STRING)"),
        ("SELECT s -> 'a' AS u FROM R", "write get_json_object(s, '$.a') for its text"),
        ("SELECT CAST(ts AS TIMESTAMP(0)) AS t FROM R", "write date_trunc('SECOND', ts)"),
        (
            "SELECT to_char(ts, 'YYYY-MM-DD HH24:MI') AS t FROM R",
            "write to_char(R.ts, 'yyyy-MM-dd HH:mm'), a pattern as of date_format",
        ),
        (
            "SELECT CAST(ts AS DATE) AT TIME ZONE 'Asia/Tokyo' AS t FROM R",
            "write CAST(cast(R.ts as date) AS TIMESTAMP_NTZ) for a local time, "
            "CAST(cast(R.ts as date) AS TIMESTAMP) for a moment",
        ),
        ("SELECT percentile(x, array(0.5)) FROM R", "write PERCENTILE(x, ARRAY(0.5)) AS name"),
    ],
)
def test_remedies_run(sql: str, remedy: str) -> None:
    assert refusal(sql).remedy == remedy


def test_casts_to_intervals_are_read() -> None:
    sql = "SELECT CAST(s AS INTERVAL DAY TO SECOND) AS i FROM R"
    assert parse_sql("q", sql, sample_streams()).id == "q"
