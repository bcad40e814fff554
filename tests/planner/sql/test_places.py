"""Misspelt words of SQL: which was meant."""

from __future__ import annotations

import pytest

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.dialects import to_spark
from tests.support.cases.refusals import refusal


@pytest.mark.parametrize(
    ("sql", "near", "meant", "written", "position"),
    [
        ("SELECT k FORM R", "R", "FROM", "FORM", (1, 15)),
        ("SELECT k\nFROM R WEHRE k = 1", "k", "WHERE", "WEHRE", (2, 14)),
        ("SELECT R.k FROM R JION S ON R.k = S.k", "S", "JOIN", "JION", (1, 24)),
        ("SELECT R.k FROM R LEFT JION S USING (k)", "LEFT", "JOIN", "JION", (1, 19)),
        ("SELECT count(*) AS n FROM R gruop BY k", "BY", "GROUP", "gruop", (1, 35)),
    ],
)
def test_the_word_that_was_meant(
    sql: str, near: str, meant: str, written: str, position: tuple[int, int]
) -> None:
    error = refusal(sql)
    assert (error.code, error.position) == ("malformed-sql", position)
    assert error.message == f"syntax error near {near!r}"
    assert error.remedy == f"did you mean {meant!r} in place of {written!r}?"


def test_where_no_word_is_like_it_the_place_is_all() -> None:
    error = refusal("SELECT k FROM R WHERE k = = 1")
    assert error.remedy == "check the statement near that place"


def test_other_dialects_say_the_same() -> None:
    with pytest.raises(QueryError) as caught:
        to_spark('SELECT "k" FORM "R" x', "postgres")
    assert caught.value.remedy == "did you mean 'FROM' in place of 'FORM'?"
