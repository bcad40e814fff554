"""Tests of statements of the maximum length in REST: answered quickly, with a readable message."""

from __future__ import annotations

import pytest

from anabranch_contract.errors import LONGEST, QueryError
from anabranch_contract.rest.documents import MAX_TEXT
from anabranch_planner.passes import parse_sql
from anabranch_planner.sql.dialects import to_spark
from tests.support.cases.sample_streams import sample_streams

STREAMS = sample_streams()
JOIN = "SELECT R.k FROM R JOIN S ON R.k = S.k WHERE"


def windows(count: int) -> str:
    return ", ".join(f"sum(k) OVER (PARTITION BY k + {n} ORDER BY k) AS w{n}" for n in range(count))


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        (f"SELECT {', '.join(['*'] * 30_000)} FROM R", "too-many-columns"),
        (f"SELECT {', '.join(f'R.k AS c{n}' for n in range(7000))} FROM R", "too-many-columns"),
        (f"SELECT k, {windows(1500)} FROM R", "too-many-windows"),
        (f"SELECT {'a' * 99_000} FROM R", "unknown-column"),
        (f"{JOIN} R.k = '{'a' * 98_000}'", "type-mismatch"),
        (f"{JOIN} R.k = {'9' * 98_000}", "bad-literal"),
        (f"{JOIN} R.ts > R.ts + INTERVAL '{'9' * 90_000}' MONTH", "bad-interval"),
        (f"{JOIN} string(R.k) RLIKE '{'(a|' * 15_000}b{')' * 15_000}'", "bad-literal"),
        (f"{JOIN} {'NOT ' * 20_000}(R.k = 1)", "malformed-sql"),
        (f"SELECT R.k FROM R {'JOIN S ON R.k = S.k ' * 4900}", "too-many-sources"),
    ],
)
def test_a_long_statement_is_refused(sql: str, code: str) -> None:
    assert len(sql) <= MAX_TEXT
    with pytest.raises(QueryError) as caught:
        parse_sql("q", sql, STREAMS, None)
    assert caught.value.code == code
    assert caught.value.remedy
    assert len(caught.value.message) <= LONGEST
    assert len(str(caught.value)) <= 3 * LONGEST


def test_a_long_interval_of_another_dialect_is_refused() -> None:
    with pytest.raises(QueryError, match="has 90000 characters") as caught:
        to_spark(f"SELECT R.ts + INTERVAL '{'9' * 90_000}' MONTH AS c FROM R", "postgres")
    assert (caught.value.code, caught.value.field) == ("bad-interval", "sql")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("R.ts + INTERVAL '1.5 years 2 months'", "bad-interval"),
        ("R.ts + INTERVAL 'Infinity' SECOND", "bad-interval"),
        ("R.ts + INTERVAL 'NaN' DAY", "bad-interval"),
        ("1.5e", "bad-literal"),
    ],
)
def test_numbers_that_are_none_are_refused(text: str, code: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_sql("q", f"SELECT {text} AS c FROM R", STREAMS, None)
    assert caught.value.code == code
    assert caught.value.remedy


@pytest.mark.parametrize(
    "text", ["CAST('1e9999999999' AS DECIMAL(10, 2))", f"CAST('{'9' * 9000}' AS INT)"]
)
def test_casts_of_great_numbers_are_left_to_the_runtime(text: str) -> None:
    (output,) = parse_sql("q", f"SELECT {text} AS c FROM R", STREAMS, None).projection
    assert str(output.expr).lower().startswith("cast(")


def test_names_of_equal_columns_are_counted() -> None:
    names = [
        output.name for output in parse_sql("q", "SELECT *, * FROM R", STREAMS, None).projection
    ]
    columns = [name for name, _ in STREAMS["R"].columns]
    assert names == [*columns, *(f"R_{name}" for name in columns)]
    three = parse_sql("q", "SELECT *, *, *, * FROM R", STREAMS, None).projection
    assert [output.name for output in three][2 * len(columns) :] == [
        f"R_{name}_{n}" for n in (2, 3) for name in columns
    ]
