"""Tests of names in double quotes: names where only a name may occur, otherwise string literals."""

from __future__ import annotations

import pytest

from anabranch_planner.passes import parse_sql
from tests.support.cases.refusals import refusal
from tests.support.cases.sample_streams import sample_streams


@pytest.mark.parametrize(
    ("sql", "plain"),
    [
        ('SELECT R."k" FROM R', "SELECT R.k FROM R"),
        ('SELECT k FROM R WHERE "R"."k" = 1', "SELECT k FROM R WHERE R.k = 1"),
        ('SELECT "x".k FROM R "x"', "SELECT x.k FROM R x"),
        ('SELECT k AS "the key" FROM "R"', "SELECT k AS `the key` FROM R"),
        ('SELECT "R".* FROM "db"."R"', "SELECT R.* FROM R"),
        (
            'SELECT a.k FROM R a JOIN "S" AS "b" ON a."k" = "b".k',
            "SELECT a.k FROM R a JOIN S AS b ON a.k = b.k",
        ),
        (
            'SELECT a.k FROM "R" a, "S" "b" WHERE a."k" = "b".k',
            "SELECT a.k FROM R a, S b WHERE a.k = b.k",
        ),
        ('SELECT a.k FROM R a JOIN S USING ("k")', "SELECT a.k FROM R a JOIN S USING (k)"),
        (
            'WITH "x" AS (SELECT k FROM "R") SELECT "x"."k" FROM "x" ORDER BY "x"."k"',
            "WITH x AS (SELECT k FROM R) SELECT x.k FROM x ORDER BY x.k",
        ),
    ],
)
def test_names_in_double_quotes_mean_plain_names(sql: str, plain: str) -> None:
    streams = sample_streams()
    assert parse_sql("q", sql, streams) == parse_sql("q", plain, streams)


@pytest.mark.parametrize(
    ("sql", "plain"),
    [
        (
            'SELECT b, "a" AS x FROM t WHERE name = "b"',
            "SELECT b, 'a' AS x FROM t WHERE name = 'b'",
        ),
        (
            'SELECT name IS DISTINCT FROM "x" AS y FROM t WHERE name IN ("p", "q")',
            "SELECT name IS DISTINCT FROM 'x' AS y FROM t WHERE name IN ('p', 'q')",
        ),
        (
            'SELECT trim("x" FROM name) AS a, EXTRACT(YEAR FROM DATE "2020-01-01") AS b FROM t',
            "SELECT trim('x' FROM name) AS a, EXTRACT(YEAR FROM DATE '2020-01-01') AS b FROM t",
        ),
    ],
)
def test_texts_in_double_quotes_stay_texts(sql: str, plain: str) -> None:
    streams = sample_streams()
    assert parse_sql("q", sql, streams) == parse_sql("q", plain, streams)


@pytest.mark.parametrize(
    ("sql", "message", "remedy", "position"),
    [
        (
            'SELECT R."k",\n "s" FROM R',
            """"s" is a text in Spark's SQL, but the statement has names in double quotes, such """
            'as "k"',
            "write 's' for the text, `s` for the column",
            (2, 2),
        ),
        (
            'SELECT k AS "x" FROM t WHERE name = "it\'s `a`"',
            """"it's `a`" is a text in Spark's SQL, but the statement has names in double """
            'quotes, such as "x"',
            r"write 'it\'s `a`' for the text, `it's ``a``` for the column",
            (1, 37),
        ),
    ],
)
def test_texts_beside_names_in_double_quotes_are_refused(
    sql: str, message: str, remedy: str, position: tuple[int, int]
) -> None:
    error = refusal(sql)
    assert (error.code, error.message) == ("ambiguous-quotes", message)
    assert (error.remedy, error.position) == (remedy, position)
