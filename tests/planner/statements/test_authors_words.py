"""Tests that refusals use the author's own words, at their place, and that remedies run."""

from __future__ import annotations

import pytest

from anabranch_contract.errors import QueryError
from anabranch_planner.passes import parse_sql
from anabranch_planner.sql.dialects import to_spark
from tests.support.cases.sample_streams import stream

STREAMS = {
    "gates": stream(
        "gates",
        {"id": "bigint", "plate": "string", "lane": "int", "ts": "timestamp", "payload": "string",
         "marks": "array<string>"},
    ),
}  # fmt: skip


def refusal(sql: str, dialect: str = "spark") -> QueryError:
    """Return the error for a statement."""
    with pytest.raises(QueryError) as caught:
        parse_sql("q", to_spark(sql, dialect, STREAMS), STREAMS)
    return caught.value


@pytest.mark.parametrize(
    ("dialect", "item", "named", "column"),
    [
        ("mysql", "date_format(ts, '%Y')", "date_format()", 8),
        ("duckdb", "strftime(ts, '%Y')", "strftime()", 8),
        ("clickhouse", "date_trunc('day', ts)", "date_trunc()", 8),
        ("tsql", "eomonth(ts)", "eomonth()", 8),
        ("mysql", "now()", "now()", 8),
        ("bigquery", "safe_cast(plate AS int64)", "safe_cast()", 18),
        ("postgres", "upper(plate ~ '[[:alpha:]]')", "the pattern '[[:alpha:]]'", 14),
        ("postgres", "initcap(plate)", "initcap()", 8),
        ("postgres", "lane & 3", "lane & 3", 8),
        ("postgres", "payload -> 'a'", "payload -> 'a'", 8),
        ("postgres", "payload::jsonb -> 'a' ->> 'b'", "payload::jsonb -> 'a' ->> 'b'", 8),
        ("postgres", "(payload -> 'a') ->> 'b'", "(payload -> 'a') ->> 'b'", 9),
        ("duckdb", "marks[1]", "marks[1]", 8),
        ("postgres", "to_char(ts, 'FMDay')", "the element FMDay in to_char()", 8),
    ],
)
def test_functions_and_operators_of_other_dialects(
    dialect: str, item: str, named: str, column: int
) -> None:
    error = refusal(f"SELECT {item} AS x FROM gates", dialect)
    assert error.message == f"{named} (read as {dialect}) is not supported"
    assert error.position == (1, column)


@pytest.mark.parametrize(
    ("item", "remedy"),
    [
        ("payload::jsonb -> 'a' ->> 'b'", "get_json_object(payload, '$.a.b')"),
        ("(payload -> 'a') -> 1", "get_json_object(payload, '$.a[1]')"),
        ("avg(lane)::numeric(10,2)", "CAST(AVG(lane) AS DECIMAL(10, 2))"),
        ("avg(lane::float8)::numeric(10,2)", "CAST(AVG(CAST(lane AS DOUBLE)) AS DECIMAL(10, 2))"),
    ],
)
def test_remedies_in_sparks_dialect_run(item: str, remedy: str) -> None:
    error = refusal(f"SELECT {item} AS x FROM gates", "postgres")
    assert error.remedy == f"write the statement in Spark's dialect: {remedy}"
    assert parse_sql("q", f"SELECT {remedy} AS x FROM gates", STREAMS).labels == ("gates",)


def test_decimals_of_doubles_have_the_true_reason() -> None:
    error = refusal("SELECT avg(lane::float8)::numeric(10,2) AS x FROM gates", "postgres")
    assert "of a double, whose digits are rounded otherwise" in error.message


@pytest.mark.parametrize("count", ["lane", "DISTINCT lane"])
def test_means_are_shown_with_the_authors_columns(count: str) -> None:
    error = refusal(f"SELECT avg({count}) AS x FROM gates", "postgres")
    shown = f"avg({count.replace('lane', 'CAST(lane AS DOUBLE)')})"
    assert error.remedy == f"write {shown}"
    if "DISTINCT" not in count:
        assert to_spark(f"SELECT {shown} AS x FROM gates", "postgres", STREAMS)


@pytest.mark.parametrize(
    "item",
    [
        "convert_timezone('{}', ts)",
        "convert_timezone('{}', 'UTC', ts)",
        "from_utc_timestamp(ts, '{}')",
        "ts AT TIME ZONE '{}'",
        "make_timestamp(2024, 1, 1, 0, 0, 0, '{}')",
    ],
)
def test_unknown_zones_have_the_nearest_one(item: str) -> None:
    error = refusal(f"SELECT {item.format('Europe/Amsterdm')} AS x FROM gates")
    assert (error.code, error.message) == ("bad-literal", "there is no time zone 'Europe/Amsterdm'")
    assert "did you mean 'Europe/Amsterdam'?" in str(error.remedy)
    assert error.position == (1, 8)


@pytest.mark.parametrize(
    ("zone", "near"),
    [
        ("Europe/Rotterdam", "Europe/Amsterdam"),
        ("europe/berlin", "Europe/Berlin"),
        ("US/Chicago", "America/Chicago"),
        ("Mars/Base", "a region such as 'Europe/Berlin'"),
    ],
)
def test_zones_are_compared_by_their_cities(zone: str, near: str) -> None:
    error = refusal(f"SELECT ts AT TIME ZONE '{zone}' AS x FROM gates", "postgres")
    assert near in str(error.remedy)
    assert error.position == (1, 24)


@pytest.mark.parametrize(
    ("sql", "named", "column", "remedy"),
    [
        ("SELECT TOP 10 id FROM gates", "SELECT TOP", 1, "ORDER BY x LIMIT 10"),
        ("SELECT id FROM gates MODEL DIMENSION BY (id) RULES (lane[1] = 1)", "MODEL", 22, "CASE"),
        ("SELECT id FROM gates OPTION (MAXDOP 1)", "OPTION", 22, "leave it out"),
        ("SELECT id FROM gates USE INDEX (x)", "USE INDEX", 22, "leave it out"),
        ("SELECT id FROM gates WITH (NOLOCK)", "a hint after a table", 16, "leave it out"),
        ("SELECT id FROM gates WITH UR", "WITH UR", 22, "leave it out"),
        ("SELECT id FROM gates FORMAT JSON", "FORMAT", 22, "sink"),
        ("SELECT id FROM gates EMIT CHANGES", "EMIT CHANGES", 22, "leave it out"),
        ("SELECT id FROM gates WINDOW TUMBLING (SIZE 1 HOUR)", "WINDOW TUMBLING", 22, "window(ts"),
        ("SELECT a.id FROM gates a JOIN gates b WITHIN 1 HOUR ON a.id = b.id", "JOIN ... WITHIN",
         39, "BETWEEN a.ts"),
        ("SELECT id FROM gates TIMESTAMP BY ts", "TIMESTAMP BY", 22, "registration"),
        ("SELECT id FROM gates SAMPLE BY 1h", "SAMPLE BY", 22, "GROUP BY window(ts"),
        ("SELECT id FROM gates LATEST ON ts PARTITION BY id", "LATEST ON", 22, "QUALIFY"),
        ("SELECT id FROM gates WHERE ts > {ts '2024-01-01 00:00:00'}", "a timestamp in braces", 33,
         "TIMESTAMP '...'"),
        ("SELECT id FROM [gates]", "a name in brackets", 16, "backticks"),
        ("SELECT id FROM gates WHERE id = %s", "a parameter %s", 33, ":x"),
        ("SELECT id FROM gates WHERE id ^= 3", "^=", 31, "<>"),
        ("SELECT ts + 2 HOURS AS t FROM gates", "a length of time 2 HOURS", 13,
         "INTERVAL '2' HOUR"),
        ("SELECT id := 3 AS x FROM gates", ":=", 8, "AS"),
        ("SELECT id FROM gates WHERE plate SIMILAR TO 'a'", "SIMILAR TO", 28, "RLIKE"),
        ("SELECT CAST(plate AS DATE FORMAT 'YYYY') AS x FROM gates", "CAST ... FORMAT", 13,
         "to_date"),
    ],
)  # fmt: skip
def test_constructs_of_other_systems_are_named(
    sql: str, named: str, column: int, remedy: str
) -> None:
    error = refusal(sql)
    assert error.code == "unsupported-sql"
    assert error.message == f"{named} is not supported"
    assert error.position == (1, column)
    assert remedy in str(error.remedy)


def test_patterns_of_rows_are_shown_as_joins() -> None:
    error = refusal(
        "SELECT T.id FROM gates MATCH_RECOGNIZE (PARTITION BY plate ORDER BY ts "
        "MEASURES A.ts AS s PATTERN (A C+) DEFINE C AS C.lane > 3) AS T"
    )
    assert error.message == "MATCH_RECOGNIZE is not supported"
    assert error.position == (1, 24)
    shown = str(error.remedy).partition("FROM ")[2].removesuffix(" WHERE ...")
    assert shown == (
        "gates AS A JOIN gates AS C ON C.plate = A.plate AND C.ts > A.ts "
        "AND C.ts <= A.ts + INTERVAL '1' HOUR"
    )
    assert parse_sql("q", f"SELECT A.id FROM {shown}", STREAMS).bounds


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM gates WHERE (id % lane)) = 3",
        "SELECT plate AS format FROM gates )",
        "SELECT id AS model, lane FROM gates WHERE )",
        "SELECT id FROM gates WHERE plate = 'TOP 10' )",
    ],
)
def test_other_mistakes_are_syntax_errors(sql: str) -> None:
    assert refusal(sql).code == "malformed-sql"


@pytest.mark.parametrize(
    ("join", "wanted"),
    [
        ("LEFT JOIN LATERAL ({}) last ON TRUE", "LEFT JOIN ({}) AS last ON last.plate = g.plate"),
        ("CROSS JOIN LATERAL ({}) last", "JOIN ({}) AS last ON last.plate = g.plate"),
        (", LATERAL ({}) last", "JOIN ({}) AS last ON last.plate = g.plate"),
    ],
)
def test_first_rows_of_a_lateral_subquery_are_shown_as_a_join(join: str, wanted: str) -> None:
    lateral = (
        "SELECT m.lane, m.ts FROM gates m WHERE m.plate = g.plate AND m.lane > 2 "
        "ORDER BY m.ts DESC LIMIT 1"
    )
    error = refusal(f"SELECT g.id, last.lane FROM gates g {join.format(lateral)}")
    shown = wanted.format(
        "SELECT m.plate, m.lane, m.ts FROM gates AS m WHERE m.lane > 2 QUALIFY row_number() OVER "
        "(PARTITION BY m.plate ORDER BY m.ts DESC) <= 1"
    )
    assert error.remedy == f"write {shown}"


@pytest.mark.parametrize(
    "inside",
    [
        "SELECT m.lane, m.ts FROM gates m WHERE m.ts > g.ts ORDER BY m.ts LIMIT 1",
        "SELECT m.lane, m.ts FROM gates m WHERE plate = g.plate ORDER BY m.ts LIMIT 1",
        "SELECT m.lane, m.ts FROM gates m WHERE m.plate = g.plate LIMIT 1",
        "SELECT m.lane AS plate, m.ts FROM gates m WHERE m.plate = g.plate ORDER BY m.ts LIMIT 1",
        "SELECT m.lane, 1 AS o FROM gates m WHERE m.plate = g.plate GROUP BY m.lane ORDER BY 1 "
        "LIMIT 1",
        "SELECT 1 AS a, 2 AS b ORDER BY 1 LIMIT 1",
    ],
)
def test_other_lateral_subqueries_have_a_general_remedy(inside: str) -> None:
    error = refusal(f"SELECT g.id FROM gates g CROSS JOIN LATERAL ({inside}) last")
    assert "first rows of each key" in str(error.remedy)


@pytest.mark.parametrize(
    ("call", "remedy"),
    [("age(ts, ts)", "ts - ts"), ("age(ts)", "now() - ts"), ("age()", "now() - ts")],
)
def test_ages_are_differences(call: str, remedy: str) -> None:
    assert refusal(f"SELECT {call} AS x FROM gates").remedy == f"write {remedy}"
