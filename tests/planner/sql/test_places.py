"""Tests of misspelt SQL keywords: which word was meant, and its place."""

from __future__ import annotations

import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql
from anabranch_planner.sql.dialects import reader_of, spoken_of, to_spark
from anabranch_planner.sql.places import corresponding, place_of
from anabranch_planner.sql.syntax import SparkDialect
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
    error = refusal("SELECT k FROM R WHERE k @ 1")
    assert error.remedy == "check the statement near that place"


@pytest.mark.parametrize(
    ("sql", "remedy"),
    [
        ("SELECT R.k R.x FROM R", "write a comma between the items: R.k, R.x"),
        ("SELECT k,\n  upper(s) R.x FROM R", "write a comma between the items: upper(s), R.x"),
        (
            "SELECT R.k FROM R JOIN S\n  ON (R.k = S.k",
            "close the parenthesis that opens at line 2, column 6",
        ),
        (
            "SELECT k FROM R WHERE s = 'a",
            "write ' at its end; within the text a quote is doubled: ''",
        ),
        ("SELECT k FROM R /* all", "write */ at its end"),
    ],
)
def test_what_is_missing_is_named(sql: str, remedy: str) -> None:
    error = refusal(sql)
    assert (error.code, error.remedy) == ("malformed-sql", remedy)


def test_words_of_a_translation_are_found_in_the_statement() -> None:
    written = 'SELECT "o".id AS i,\n  o.nope FROM orders "o" WHERE o.id > 1'
    tokens = reader_of("postgres").tokenize(written)
    spark = SparkDialect().tokenize(to_spark(written, "postgres"))
    places = {token.text: place_of(token) for token in spark}
    assert corresponding(places["nope"], spark, tokens) == (2, 5)
    assert corresponding(places["orders"], spark, tokens) == (2, 15)
    # The translation has another AS, and a comma is no word.
    assert corresponding(places["AS"], spark, tokens) is None
    assert corresponding(places[","], spark, tokens) is None


@pytest.mark.parametrize(
    ("sql", "position"),
    [
        ("SELECT o.id::text AS i,\n  o.nope AS n FROM orders o", (2, 3)),
        ("SELECT o.id::text AS i,\n  o.id || o.n + o.s AS n FROM orders o", (2, 11)),
        ("SELECT id::text AS i\nFROM orders o JOIN itms i USING (id)", (2, 20)),
    ],
)
def test_errors_after_a_translation_have_places_of_the_statement(
    sql: str, position: tuple[int, int]
) -> None:
    streams = {
        "orders": Stream(
            StreamName("orders"),
            tuple((n, parse_type(k)) for n, k in (("id", "int"), ("n", "int"), ("s", "string"))),
        )
    }
    text = to_spark(sql.replace("nope", "id"), "postgres", streams).replace("id AS n", "nope AS n")
    with pytest.raises(QueryError) as caught, spoken_of(text, "postgres", sql):
        parse_sql("q", text, streams)
    assert caught.value.position == position
    assert "Spark" not in caught.value.message


def test_other_dialects_say_the_same() -> None:
    with pytest.raises(QueryError) as caught:
        to_spark('SELECT "k" FORM "R" x', "postgres")
    assert caught.value.remedy == "did you mean 'FROM' in place of 'FORM'?"
