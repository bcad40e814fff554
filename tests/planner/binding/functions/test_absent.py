"""Tests of functions that queries may not call: each refusal has a remedy with the statement's
arguments.
"""

from __future__ import annotations

import pytest

from tests.support.cases.refusals import refusal


@pytest.mark.parametrize(
    ("sql", "remedy"),
    [
        ("SELECT truncate(g, 2) AS a FROM R", "write CAST(g * 100 AS BIGINT) / 100"),
        ("SELECT truncate(R.g) AS a FROM R", "write CAST(R.g AS BIGINT)"),
        (
            "SELECT make_interval(1, 2, 3, 4, 5) AS i FROM R",
            "write make_ym_interval(1, 2) + make_dt_interval(7 * 3 + 4, 5)",
        ),
        (
            "SELECT uuid() AS u FROM R",
            "compute it from the row, so that it is the same each time: md5(concat_ws('-', x)) "
            "for an id, with the columns of its key as x",
        ),
        (
            "SELECT k FROM R WHERE rand() < 0.1",
            "compute it from the row, so that it is the same each time: pmod(hash(x), 100) for a "
            "number, with the columns of its key as x",
        ),
        (
            "SELECT R.k, t.total FROM R, LATERAL (SELECT sum(x) AS total FROM S WHERE S.k = R.k) t",
            "write (SELECT SUM(x) FROM S WHERE S.k = R.k) AS total in the SELECT list",
        ),
    ],
)
def test_remedies_have_the_arguments_of_the_statement(sql: str, remedy: str) -> None:
    error = refusal(sql)
    assert (error.code, error.remedy) == ("unsupported-sql", remedy)
