"""Statements that begin with no query: what they are called, and what to do instead."""

from __future__ import annotations

import pytest

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.dialects import to_spark
from tests.support.cases.refusals import refusal

ONLY_SELECT = "register only its SELECT; the query's sink says where the results go"
APPEND_ONLY = (
    "streams only gain rows: leave rows out with WHERE, or limit how long a stream keeps them"
)


@pytest.mark.parametrize(
    ("sql", "what", "remedy"),
    [
        ("INSERT INTO out SELECT k FROM R", "an INSERT", ONLY_SELECT),
        (
            "INSERT INTO R VALUES (1)",
            "an INSERT",
            "send the rows to the stream's source; a query only reads streams",
        ),
        ("CREATE TABLE t AS SELECT k FROM R", "a CREATE", ONLY_SELECT),
        ("CREATE OR REPLACE VIEW v AS SELECT k FROM R", "a CREATE", ONLY_SELECT),
        (
            "CREATE TABLE t (a INT)",
            "a CREATE",
            "register a stream for a table; for a view register its SELECT as a query",
        ),
        ("update R set k = 1", "an UPDATE", APPEND_ONLY),
        ("DELETE FROM R WHERE k = 1", "a DELETE", APPEND_ONLY),
        ("MERGE INTO R USING S ON R.k = S.k WHEN MATCHED THEN DELETE", "a MERGE", APPEND_ONLY),
        ("DROP TABLE R", "a DROP", "delete the query or the stream by its name, not by SQL"),
        ("EXPLAIN SELECT k FROM R", "an EXPLAIN", "ask for an explanation of the SELECT after it"),
        ("SHOW TABLES", "a SHOW", "streams and queries are listed by name, not by SQL"),
    ],
)
def test_what_is_no_query_says_what_to_do(sql: str, what: str, remedy: str) -> None:
    error = refusal(sql)
    assert (error.code, error.position) == ("unsupported-sql", (1, 1))
    assert error.message == f"{what} statement is not supported"
    assert error.remedy == remedy


def test_an_insert_after_with_is_one_too() -> None:
    error = refusal("WITH c AS (SELECT k FROM R)\nINSERT INTO out SELECT k FROM c")
    assert error.code == "unsupported-sql"
    assert error.message == "an INSERT statement is not supported"
    assert error.remedy == ONLY_SELECT


@pytest.mark.parametrize(
    ("sql", "word", "remedy", "position"),
    [
        ("SELCT k FROM R", "SELCT", "did you mean 'SELECT'?", (1, 1)),
        ("-- a\n  slect k FROM R", "slect", "did you mean 'SELECT'?", (2, 3)),
        ("WIHT c AS (SELECT k FROM R) SELECT k FROM c", "WIHT", "did you mean 'WITH'?", (1, 1)),
        ("hello", "hello", "a query begins with SELECT or WITH", (1, 1)),
    ],
)
def test_another_first_word(sql: str, word: str, remedy: str, position: tuple[int, int]) -> None:
    error = refusal(sql)
    assert (error.code, error.position) == ("malformed-sql", position)
    assert error.message == f"the statement begins with {word!r}"
    assert error.remedy == remedy


@pytest.mark.parametrize(
    ("sql", "message", "remedy"),
    [
        ('INSERT INTO "o" SELECT 1', "an INSERT statement is not supported", ONLY_SELECT),
        ('SELCT "k" FROM "R"', "the statement begins with 'SELCT'", "did you mean 'SELECT'?"),
    ],
)
def test_other_dialects_say_the_same(sql: str, message: str, remedy: str) -> None:
    with pytest.raises(QueryError) as caught:
        to_spark(sql, "postgres")
    error = caught.value
    assert (error.message, error.remedy) == (message, remedy)
    assert (error.field, error.position) == ("sql", (1, 1))
