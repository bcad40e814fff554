"""Names in double quotes: the refusal gives Spark's wording."""

from __future__ import annotations

import pytest

from anabranch_planner.passes import parse_sql
from tests.support.cases.refusals import refusal
from tests.support.cases.sample_streams import sample_streams


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
