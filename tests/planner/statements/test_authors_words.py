"""Refusals name what the author wrote, at its place, and remedies run."""

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
    """The error for a statement."""
    with pytest.raises(QueryError) as caught:
        parse_sql("q", to_spark(sql, dialect, STREAMS), STREAMS)
    return caught.value


@pytest.mark.parametrize(
    ("dialect", "item", "named", "column"),
    [
        ("mysql", "date_format(ts, '%Y')", "date_format()", 8),
        ("duckdb", "strftime(ts, '%Y')", "strftime()", 8),
        ("postgres", "date_trunc('day', ts)", "date_trunc()", 8),
        ("tsql", "dateadd(day, 1, ts)", "dateadd()", 8),
        ("postgres", "now()", "now()", 8),
        ("bigquery", "safe_cast(plate AS int64)", "safe_cast()", 18),
        ("postgres", "upper(plate ~ 'a')", "plate ~ 'a'", 14),
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
    assert parse_sql("q", f"SELECT {remedy} AS x FROM gates", STREAMS)


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
