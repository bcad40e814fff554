"""Missing, superfluous and doubled words of statements: their names, places and remedies."""

from __future__ import annotations

import pytest

from anabranch_contract.errors import QueryError
from anabranch_planner.passes import parse_sql
from anabranch_planner.sql.dialects import to_spark
from tests.support.cases.refusals import refusal
from tests.support.cases.sample_streams import sample_streams

#: Statement -> column of the error in its only line, message, remedy.
MISTAKES = {
    # Brackets.
    "SELECT R.k FROM R JOIN S ON (R.k = S.k WHERE R.x > 1": (
        29,
        "the parenthesis '(' is not closed",
        "close the parenthesis that opens at line 1, column 29, with ')' before 'WHERE'",
    ),
    "SELECT k FROM R WHERE (k > 1 AND (x < 2) ORDER BY k LIMIT 1": (
        23,
        "the parenthesis '(' is not closed",
        "close the parenthesis that opens at line 1, column 23, with ')' before 'ORDER BY'",
    ),
    "WITH q AS (SELECT k FROM R SELECT q.k FROM q": (
        11,
        "the parenthesis '(' is not closed",
        "close the parenthesis that opens at line 1, column 11, with ')' before 'SELECT'",
    ),
    # The parser takes this one.
    "SELECT CAST(k AS BIGINT FROM R": (
        12,
        "the parenthesis '(' is not closed",
        "close the parenthesis that opens at line 1, column 12, with ')' before 'FROM'",
    ),
    "SELECT k FROM R WHERE k IN (1, 2": (
        28,
        "the parenthesis '(' is not closed",
        "close the parenthesis that opens at line 1, column 28",
    ),
    "SELECT split(s, ',')[0 AS a FROM R": (
        21,
        "the bracket '[' is not closed",
        "close the bracket that opens at line 1, column 21, with ']' before 'AS'",
    ),
    "SELECT coalesce(split(s, ',')[0, 'a') AS a FROM R": (
        30,
        "the bracket '[' is not closed",
        "close the bracket that opens at line 1, column 30, with ']' before ')'",
    ),
    "SELECT coalesce(k, 1)) AS a FROM R": (
        22,
        "')' closes no parenthesis",
        "leave it out, or write '(' where it should open",
    ),
    "SELECT k] FROM R": (
        9,
        "']' closes no bracket",
        "leave it out, or write '[' where it should open",
    ),
    # Quotes and comments.
    "SELECT k FROM R WHERE s = 'a": (
        27,
        "an unclosed text",
        "write ' at its end; within the text a quote is doubled: ''",
    ),
    "SELECT k AS `a FROM R": (13, "an unclosed name", "write ` at its end"),
    'SELECT k AS "a FROM R': (13, "an unclosed text", 'write " at its end'),
    "SELECT k /* all FROM R": (10, "an unclosed comment", "write */ at its end"),
    "SELECT k FROM R WHERE s = ‘a’": (
        27,
        "‘a’ has typographic quotes",
        "write 'a' for a text",
    ),
    "SELECT k FROM R WHERE “k” = 1": (
        23,
        "“k” has typographic quotes",
        "write 'k' for a text, or `k` for a name",
    ),
    "SELECT k FROM R # all": (17, "syntax error near '#'", "write -- before a comment"),
    "SELECT k FROM R WHERE k = 1 // all": (
        29,
        "syntax error near '//'",
        "write -- before a comment",
    ),
    # Words in pairs.
    "SELECT CASE WHEN k = 1 THEN 2 FROM R": (
        8,
        "CASE has no END",
        "write END after '2' at line 1, column 29",
    ),
    "SELECT CASE WHEN x = 1 THEN CASE WHEN k = 1 THEN 2 END FROM R": (
        8,
        "CASE has no END",
        "write END after 'END' at line 1, column 52",
    ),
    "SELECT CASE WHEN k = 1 2 END AS a FROM R": (
        13,
        "WHEN has no THEN",
        "write WHEN condition THEN value",
    ),
    "SELECT CASE WHEN k = 1 THEN 2 WHEN k = 2 3 END AS a FROM R": (
        31,
        "WHEN has no THEN",
        "write WHEN condition THEN value",
    ),
    "SELECT k FROM R WHERE k BETWEEN 1": (
        25,
        "BETWEEN has no AND",
        "write BETWEEN least AND greatest",
    ),
    "SELECT k FROM R WHERE x = 1 AND k BETWEEN 1 2": (
        35,
        "BETWEEN has no AND",
        "write BETWEEN least AND greatest",
    ),
    "WITH q AS SELECT k FROM R SELECT q.k FROM q": (
        11,
        "the query 'q' of WITH is not in parentheses",
        "write q AS (SELECT ...)",
    ),
    "WITH q AS (SELECT k FROM R)": (
        27,
        "there is no SELECT after the queries of WITH",
        "write the SELECT that reads them at the end",
    ),
    # Commas.
    "SELECT R.k upper(R.s) FROM R": (
        12,
        "there is no comma between R.k and upper(R.s)",
        "write a comma between the items: R.k, upper(R.s)",
    ),
    "SELECT x, coalesce(k, 1) R.s FROM R": (
        26,
        "there is no comma between coalesce(k, 1) and R.s",
        "write a comma between the items: coalesce(k, 1), R.s",
    ),
    "SELECT coalesce(R.k R.x) FROM R": (
        21,
        "there is no comma between R.k and R.x",
        "write a comma between the items: R.k, R.x",
    ),
    "SELECT k FROM R WHERE k IN (1 2)": (
        31,
        "there is no comma between 1 and 2",
        "write a comma between the items: 1, 2",
    ),
    "SELECT k, FROM R": (
        9,
        "a comma before 'FROM'",
        "leave the comma out, or write another entry after it",
    ),
    "SELECT k FROM R ORDER BY k, LIMIT 1": (
        27,
        "a comma before 'LIMIT'",
        "leave the comma out, or write another entry after it",
    ),
    "WITH q AS (SELECT k FROM R), SELECT q.k FROM q": (
        28,
        "a comma before 'SELECT'",
        "leave the comma out, or write another entry after it",
    ),
    "SELECT k,, x FROM R": (
        10,
        "a comma after ','",
        "leave the comma out, or write another entry before it",
    ),
    "SELECT , k FROM R": (
        8,
        "a comma after 'SELECT'",
        "leave the comma out, or write another entry before it",
    ),
    # Operators.
    "SELECT k FROM R WHERE k = = 1": (
        27,
        "syntax error near '=': it follows '='",
        "write one operator, with a value on either side",
    ),
    "SELECT k FROM R WHERE k =< 1": (
        26,
        "syntax error near '<': it follows '='",
        "write <=",
    ),
    "SELECT k FROM R WHERE k => 1": (
        25,
        "syntax error near '=>'",
        "write >= for greater or equal; => stands between the name and value of an argument",
    ),
    "SELECT k FROM R WHERE = 1": (
        23,
        "there is no value before '='",
        "write one between 'WHERE' and '='",
    ),
    "SELECT k FROM R WHERE k =": (
        25,
        "there is no value after '='",
        "write one, or leave '=' out",
    ),
    "SELECT k FROM R WHERE k = 1 AND OR x = 1": (
        29,
        "there is no condition after 'AND'",
        "write one before 'OR', or leave 'AND' out",
    ),
    "SELECT k FROM R WHERE (k = 1) x = 2": (
        31,
        "there is no operator between ) and x",
        "write AND, OR or another operator between them",
    ),
    "SELECT k FROM R WHERE k IN 1": (
        23,
        "IN has no parentheses around 1",
        "write IN (1)",
    ),
    "SELECT k FROM R WHERE k IN x": (
        23,
        "IN has no parentheses around x",
        "write IN (x), or array_contains(x, k) of an array",
    ),
    # Joins.
    "SELECT R.k FROM R JOIN S R.k = S.k": (
        26,
        "the join has no ON before 'R.k'",
        "write JOIN S ON R.k ...",
    ),
    "SELECT R.k FROM R JOIN S AS b R.k = b.k": (
        31,
        "the join has no ON before 'R.k'",
        "write JOIN S AS b ON R.k ...",
    ),
    "SELECT R.k FROM R JOIN S OM R.k = S.k": (
        26,
        "the join has no ON before 'R.k'",
        "did you mean 'ON' in place of 'OM'?",
    ),
    # The parser takes this one.
    "SELECT R.k FROM R JOIN S ON WHERE R.k = 1": (
        26,
        "there is no condition after 'ON'",
        "write one before 'WHERE', or leave 'ON' out",
    ),
    "SELECT R.k FROM R JOIN ON R.k = S.k": (
        19,
        "there is no stream after 'JOIN'",
        "write one before 'ON', or leave 'JOIN' out",
    ),
    "SELECT R.k FROM R INER JOIN S ON R.k = S.k": (
        34,
        "there is no alias 'R'",
        "stream 'R' is called 'INER' here: did you mean INNER JOIN?",
    ),
    "SELECT k FROM R a S": (
        19,
        "there is no JOIN between a and S",
        "write JOIN S ON ..., or a single alias",
    ),
    # Clauses.
    "SELECT k FROM R WHERE k = 1 WHERE x = 2": (
        29,
        "a second 'WHERE'",
        "write AND between the conditions in place of it",
    ),
    "SELECT k FROM R WHERE k = 1 JOIN S USING (k)": (
        29,
        "'JOIN' stands after 'WHERE'",
        "move it before 'WHERE'",
    ),
    # The parser takes this one.
    "SELECT k, count(*) AS n FROM R ORDER BY k GROUP BY k": (
        43,
        "'GROUP BY' stands after 'ORDER BY'",
        "move it before 'ORDER BY'",
    ),
    "SELECT k FROM R GROUP BY": (
        17,
        "there is no column or expression after 'GROUP BY'",
        "write one, or leave 'GROUP BY' out",
    ),
    "SELECT k FROM R GROUP k": (
        23,
        "syntax error near 'k'",
        "write GROUP BY in place of 'GROUP'",
    ),
    "SELECT k FROM WHERE k = 1": (
        10,
        "there is no stream after 'FROM'",
        "write one before 'WHERE', or leave 'FROM' out",
    ),
    "SELECT k AS FROM R": (
        10,
        "there is no name after 'AS'",
        "write one before 'FROM', or leave 'AS' out",
    ),
    "SELECT R..k FROM R": (
        9,
        "there is no name after '.'",
        "write one before '.', or leave '.' out",
    ),
    "SELECT": (
        1,
        "there is no column or expression after 'SELECT'",
        "write one, or leave 'SELECT' out",
    ),
    "SELECT k FROM R UNION ALL": (
        23,
        "there is no query after 'ALL'",
        "write one, or leave 'ALL' out",
    ),
    # Keywords.
    "SELECT k FROM R WHERE k = 1 ADN x = 2": (
        29,
        "syntax error near 'ADN'",
        "did you mean 'AND' in place of 'ADN'?",
    ),
    "SELECT k FROM R WHERE s LIK 'a%'": (
        25,
        "syntax error near 'LIK'",
        "did you mean 'LIKE' in place of 'LIK'?",
    ),
    "SELECT k, count(*) AS n FROM R GROUPBY k": (
        40,
        "syntax error near 'k'",
        "did you mean 'GROUP BY' in place of 'GROUPBY'?",
    ),
}


@pytest.mark.parametrize("sql", MISTAKES)
def test_a_mistake_has_its_name_place_and_remedy(sql: str) -> None:
    column, message, remedy = MISTAKES[sql]
    error = refusal(sql)
    assert (error.position, error.message, error.remedy) == ((1, column), message, remedy)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT CASE WHEN x BETWEEN 1 AND 2 AND k = 1 THEN 'a' WHEN x = 3 THEN 'b' END AS c FROM R",
        "SELECT k FROM (SELECT k FROM R WHERE x = 1) q WHERE k BETWEEN 1 AND 2 ORDER BY k LIMIT 3",
        "SELECT k FROM R WHERE x = 1 UNION ALL SELECT k FROM S WHERE x = 2",
        "SELECT k, sum(x) FILTER (WHERE x > 1) AS n FROM R WHERE x > 0 GROUP BY k HAVING n > 1",
        "SELECT k, max(x) OVER (PARTITION BY k ORDER BY l ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"
        ") AS n FROM R",
        "SELECT k, split(s, ',')[0] AS a, CASE k WHEN 1 THEN '(' ELSE '[' END AS `(` FROM R",
        "SELECT k, position('a' IN s) AS p FROM R WHERE s IN ('a')",
        "WITH q (SELECT k FROM R) SELECT q.k FROM q",
        "SELECT R.k FROM R JOIN (S JOIN T ON S.k = T.k) ON R.k = S.k WHERE R.x = 1",
    ],
)
def test_statements_without_a_mistake_are_read(sql: str) -> None:
    assert parse_sql("q", sql, sample_streams()).id == "q"


@pytest.mark.parametrize(
    ("sql", "position", "message"),
    [
        ("SELECT a.k FROM r a\nJOIN s b ON (a.k = b.k WHERE b.x = 1", (2, 13), "parenthesis '('"),
        ("SELECT CAST(k AS bigint FROM r", (1, 12), "parenthesis '('"),
        ("SELECT k FROM r WHERE k = 'a", (1, 27), "unclosed text"),
        ("SELECT CASE WHEN k = 1 THEN 2 FROM r", (1, 8), "CASE has no END"),
        ("SELECT r.k r.x FROM r", (1, 12), "no comma between r.k and r.x"),
        ("SELECT k FROM r WHERE k = 1 WHERE x = 2", (1, 29), "a second 'WHERE'"),
    ],
)
@pytest.mark.parametrize("dialect", ["postgres", "snowflake", "duckdb", "mysql", "bigquery"])
def test_mistakes_in_other_dialects_are_named_alike(
    dialect: str, sql: str, position: tuple[int, int], message: str
) -> None:
    with pytest.raises(QueryError) as caught:
        to_spark(sql, dialect)
    assert caught.value.position == position
    assert message in caught.value.message
    assert caught.value.field == "sql"
    assert caught.value.remedy


def test_other_spellings_of_and_beside_between_are_read() -> None:
    sql = "SELECT k FROM r WHERE k BETWEEN 1 AND 2 && x BETWEEN 2 AND 3 && x > 1"
    assert to_spark(sql, "mysql") == sql.replace("&&", "AND")
