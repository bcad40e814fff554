"""Statements of other engines: the refusal gives Spark's wording, which runs."""

from __future__ import annotations

import pytest

from anabranch_planner.passes import parse_sql
from tests.support.cases.refusals import refusal
from tests.support.cases.sample_streams import sample_streams

COUNT = "SELECT count(*) AS n FROM R\nGROUP BY "


@pytest.mark.parametrize(
    ("call", "name", "remedy"),
    [
        (
            "TUMBLE(R.ts, INTERVAL '10' MINUTE)",
            "TUMBLE",
            "write window(R.ts, INTERVAL '10' MINUTE)",
        ),
        (
            "hop(ts,  INTERVAL '5' MINUTE, INTERVAL '10' MINUTE)",
            "hop",
            "write window(ts, INTERVAL '10' MINUTE, INTERVAL '5' MINUTE)",
        ),
        (
            "session_window(R.ts, '5 minutes')",
            "session_window",
            "windows have a fixed length here: write GROUP BY window(R.ts, '5 minutes')",
        ),
        (
            "SESSION(ts, INTERVAL '5' MINUTE)",
            "SESSION",
            "windows have a fixed length here: write GROUP BY window(ts, INTERVAL '5' MINUTE)",
        ),
        ("TUMBLE(ts)", "TUMBLE", "write window(ts, '10 minutes')"),
        ("HOP(ts)", "HOP", "write window(ts, '10 minutes', '5 minutes')"),
    ],
)
def test_windows_that_are_grouped_by(call: str, name: str, remedy: str) -> None:
    error = refusal(COUNT + call)
    assert (error.code, error.position) == ("unsupported-sql", (2, 10))
    assert error.message == f"{name}() is not supported"
    assert error.remedy == remedy
    window = remedy[remedy.index("window(") :]
    assert parse_sql("q", COUNT + window, sample_streams()).view is not None


@pytest.mark.parametrize(
    ("call", "name", "remedy"),
    [
        (
            "TUMBLE(TABLE R, DESCRIPTOR(ts), INTERVAL '10' MINUTES)",
            "TUMBLE",
            "write FROM R, and GROUP BY window(ts, INTERVAL '10' MINUTES)",
        ),
        (
            "HOP(TABLE R, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)",
            "HOP",
            "write FROM R, and GROUP BY window(ts, INTERVAL '10' MINUTES, INTERVAL '5' MINUTES)",
        ),
        (
            "HOP(DATA => TABLE R, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '10' MINUTES, "
            "SLIDE => INTERVAL '5' MINUTES)",
            "HOP",
            "write FROM R, and GROUP BY window(ts, INTERVAL '10' MINUTES, INTERVAL '5' MINUTES)",
        ),
        (
            "CUMULATE(TABLE R, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)",
            "CUMULATE",
            "windows do not grow here: write GROUP BY window(ts, INTERVAL '10' MINUTES)",
        ),
    ],
)
def test_windows_as_table_functions(call: str, name: str, remedy: str) -> None:
    error = refusal(f"SELECT window_start, count(*) AS n\nFROM TABLE({call}) GROUP BY window_start")
    assert (error.code, error.position) == ("unsupported-sql", (2, 12))
    assert error.message == f"{name}() is not supported"
    assert error.remedy == remedy


def test_the_edges_of_a_window() -> None:
    call = "TUMBLE{}(R.ts, INTERVAL '10' MINUTE)"
    error = refusal(
        f"SELECT {call.format('_START')} AS s, count(*) AS n FROM R GROUP BY {call.format('')}"
    )
    assert (error.code, error.position) == ("unsupported-sql", (1, 8))
    assert error.message == "TUMBLE_START() is not supported"
    assert error.remedy == "write window.start, and GROUP BY window(R.ts, INTERVAL '10' MINUTE)"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT hop.k FROM R AS hop",
        "SELECT hop.a FROM (SELECT k FROM R) hop(a)",
        "SELECT hop.a FROM (SELECT k FROM R) AS hop(a)",
        "WITH r1 AS (SELECT k FROM R), hop(a) AS (SELECT k FROM R) SELECT a FROM hop",
        "SELECT k AS session FROM R",
    ],
)
def test_names_are_no_windows(sql: str) -> None:
    assert parse_sql("q", sql, sample_streams()).projection


@pytest.mark.parametrize(
    ("sql", "quoted", "name", "position"),
    [
        ('SELECT R."k" FROM R', '"k"', "R.`k`", (1, 10)),
        ('SELECT k\nFROM R WHERE "R"."k" = 1', '"R"', "`R`.`k`", (2, 14)),
        ('SELECT "R".k FROM R', '"R"', "`R`.k", (1, 8)),
        ('SELECT k FROM "R"', '"R"', "`R`", (1, 15)),
        ('SELECT R.k FROM R JOIN "S" ON R.k = S.k', '"S"', "`S`", (1, 24)),
        ('SELECT R."a`b" FROM R', '"a`b"', "R.`a``b`", (1, 10)),
    ],
)
def test_names_in_double_quotes(
    sql: str, quoted: str, name: str, position: tuple[int, int]
) -> None:
    error = refusal(sql)
    assert (error.code, error.position) == ("malformed-sql", position)
    assert error.message == (
        f"{quoted} is a text, not a name: Spark's SQL has texts in double quotes"
    )
    assert error.remedy == f"write {name}, or give the dialect of the statement, such as postgres"


def test_texts_in_double_quotes_stay_texts() -> None:
    query = parse_sql("q", 'SELECT k, "a" AS x FROM R WHERE s = "b"', sample_streams())
    assert [o.name for o in query.projection] == ["k", "x"]
