"""Tests of refused statements: code, message, field and remedy."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from anabranch_contract.errors import QueryError
from anabranch_planner.passes import parse_sql, parse_structured
from tests.support.cases.sample_streams import sample_streams, stream

STREAMS = sample_streams()
JOIN = "R JOIN S ON R.k = S.k"


def refusal(sql: str, window: int | dict[str, int] | None = None) -> QueryError:
    with pytest.raises(QueryError) as caught:
        parse_sql("q", sql, STREAMS, window)
    error = caught.value
    assert error.remedy, error
    assert "\n" not in str(error)
    assert pickle.loads(pickle.dumps(error)).message == error.message
    return error


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        (f"SELECT DISTINCT 1 AS one FROM {JOIN} GROUP BY R.k", "DISTINCT of groups"),
        (f"SELECT R.k FROM {JOIN} GROUP BY ROLLUP (R.k, R.k)", "a grouping set that occurs twice"),
        (f"SELECT R.k FROM {JOIN} SORT BY R.k", "SORT BY"),
        (f"SELECT R.k FROM {JOIN} CLUSTER BY R.k", "CLUSTER BY"),
        ("SELECT k FROM R LATERAL VIEW json_tuple(k, k) AS e", "json_tuple() of the name k"),
        ("SELECT R.ts::time AS t FROM R", "the type TIME"),
        ("SELECT CAST(R.ts AS TIMESTAMP(3)) AS t FROM R", "TIMESTAMP(3)"),
        ("SELECT R.ts FROM R WHERE (R.ts, R.ts) OVERLAPS (R.ts, R.ts, R.ts)", "OVERLAPS"),
        ("SELECT x -> 'a' AS v FROM R", "-> without ->>"),
        ("SELECT k FROM R WHERE k > ALL (SELECT k, x FROM S)", "rows of several columns"),
        ("SELECT upper(explode(k)) AS e FROM R", "inside an expression"),
        ("SELECT k FROM R PIVOT (sum(k) FOR x IN (1))", "PIVOT"),
        ("WITH RECURSIVE c AS (SELECT k FROM R) SELECT k FROM c", "WITH RECURSIVE"),
        ("SELECT k FROM R LIMIT 3 UNION ALL SELECT k FROM S", "LIMIT in an operand"),
        ("SELECT k FROM R UNION ALL BY NAME SELECT k FROM S", "BY NAME"),
        ("SELECT k FROM (SELECT k FROM R LIMIT 3) a", "LIMIT"),
        ("SELECT k FROM (SELECT k FROM R UNION SELECT k FROM S) a", "UNION"),
        ("WITH c AS (SELECT DISTINCT k FROM R) SELECT k FROM c", "DISTINCT"),
        ("SELECT R.k FROM R, LATERAL (SELECT k FROM S) b", "in FROM"),
        ("SELECT (SELECT max(k) FROM S) AS top FROM R", "an aggregate in a subquery"),
        ("SELECT R.k FROM R NATURAL LEFT JOIN S", "a NATURAL LEFT JOIN"),
        ("SELECT histogram_numeric(k, 5) AS n FROM R", "histogram_numeric()"),
        ("SELECT try_avg(k) AS n FROM R", "try_avg()"),
        ("SELECT try_sum(k) AS n FROM R", "try_sum()"),
        ("SELECT stddev(k) OVER (ORDER BY k) AS n FROM R", "stddev() OVER"),
        ("SELECT count(DISTINCT k) OVER (PARTITION BY x) AS n FROM R", "count() OVER"),
        ("SELECT a.R.k FROM a.R JOIN b.R ON a.R.k = b.R.k", "b.R beside a.R"),
        ("SELECT * RENAME (k AS l) FROM R", "RENAME"),
        ("SELECT * EXCEPT (k) FROM R WHERE k IN (SELECT k FROM S)", "beside a subquery"),
        ("SELECT k FROM range(10)", "in a statement that reads no stream"),
        (
            "SELECT R.k FROM R JOIN (VALUES (1), (1)) AS v(k) ON v.k = R.k",
            "several rows of equal v.k",
        ),
        ("SELECT R.k FROM R JOIN (VALUES (1)) AS v ON v.k = R.k", "without an equality"),
        ("SELECT R.k FROM R JOIN (VALUES (k)) AS v(k) ON v.k = R.k", "k in VALUES"),
        ("SELECT R.k FROM R JOIN (VALUES (1, 2)) AS v(k) ON v.k = R.k", "different lengths"),
        ("SELECT R.k FROM R JOIN (VALUES (1, 2)) AS v(k, K) ON v.k = R.k", "two columns of one"),
        ("SELECT R.k FROM R JOIN (VALUES (1)) AS r(k) ON r.k = R.k", "two tables named r"),
        ("SELECT R.k FROM R NATURAL JOIN S JOIN (VALUES (1)) AS v(k) ON v.k = R.k", "NATURAL"),
        ("SELECT k FROM R TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT k FROM R WHERE k = ?", "a parameter ?"),
        ("SELECT k FROM R WHERE k = @p", "a parameter @x"),
        ("SELECT k FROM R WHERE k < rand()", "gives another value each time"),
        ("SELECT k FROM R WHERE ts < now() OR ts > now() + INTERVAL 1 DAY", "in a condition"),
        ("SELECT k FROM R WHERE ts < now() - INTERVAL 1 MONTH", "in a condition"),
        ("SELECT t.k FROM (SELECT k, now() AS n FROM R) t WHERE t.n > t.n", "in a condition"),
        ("SELECT R.k FROM R JOIN S ON R.k = S.k AND year(R.ts) < year(now())", "in a condition"),
        ("SELECT k, max(now()) AS n FROM R GROUP BY k", "beside groups"),
        ("SELECT k, current_date AS d FROM R GROUP BY k HAVING count(*) > 1", "beside groups"),
        ("SELECT count(*) AS n FROM R HAVING max(ts) > now()", "beside groups"),
        ("SELECT DISTINCT current_timestamp AS n FROM R", "beside groups, DISTINCT"),
        ("SELECT k, now() AS n FROM R ORDER BY k LIMIT 3", "beside groups, DISTINCT, LIMIT"),
        ("SELECT R.k, now() AS n FROM R LEFT JOIN S ON R.k = S.k", "or an outer join"),
        ("SELECT k FROM R WHERE s ILIKE 'ä'", "ILIKE with the pattern"),
        ("SELECT k FROM R WHERE contains(s, s)", "which is not a literal"),
        ("SELECT right(s, k) AS r FROM R", "which is not a literal"),
        ("SELECT date_part(s, ts) AS p FROM R", "a part that is not a literal"),
        ("SELECT k FROM R WHERE s LIKE s", "pattern is not a literal"),
        ('SELECT k FROM R WHERE s = "a""b"', "doubled quotes"),
        ("INSERT INTO R VALUES (1)", "an INSERT statement"),
        ("DROP TABLE R", "a DROP statement"),
    ],
)
def test_unsupported_sql_is_named(sql: str, part: str) -> None:
    error = refusal(sql)
    assert (error.code, error.field) == ("unsupported-sql", "sql")
    assert part in error.message


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "   ",
        "SELECT",
        "SELECT k",
        "SELECT FROM R",
        "SELECT k FROM",
        "SELEC k FROM R",
        "SELECT k FROM R WHERE",
        "SELECT k FROM R WHERE k = 'a",
        "SELECT k FROM R JOIN S ON R.k = S.k AND",
        "SELECT k FROM R WHERE (k = 1",
        "SELECT k FROM R WHERE k IN ()",
        "hello",
        "-- nothing",
    ],
)
def test_malformed_sql(sql: str) -> None:
    error = refusal(sql)
    assert (error.code, error.field) == ("malformed-sql", "sql")
    assert len(error.message) < 200


def test_a_syntax_error_says_where() -> None:
    error = refusal("SELECT k\nFROM R WHERE k = = 1")
    assert error.position == (2, 18)
    assert "sql: line 2, column 18: syntax error near '='" in str(error)


@pytest.mark.parametrize(
    ("sql", "code", "message", "remedy"),
    [
        ("SELECT k FROM Q", "unknown-stream", "no stream 'Q'", "known: plain, R, S, T, t"),
        ("SELECT k FROM plan", "unknown-stream", "no stream 'plan'", "did you mean 'plain'?"),
        ("SELECT dayy FROM R", "unknown-column", "no column 'dayy'", "did you mean 'day'?"),
        ("SELECT R.q FROM R", "unknown-column", "'q' in stream 'R' (alias 'R')", "known: "),
        ("SELECT Z.k FROM R", "unknown-alias", "no alias 'Z'", "known: R"),
        ("SELECT R.k FROM R r2", "unknown-alias", "no alias 'R'", "'R' is called 'r2' here"),
        (f"SELECT k FROM {JOIN}", "ambiguous-column", "R.k or S.k", "put the alias"),
        ("SELECT R.k FROM R JOIN S ON R.k = T.k JOIN T ON T.k = S.k", "unknown-alias", "'T'", ""),
        ("SELECT R.k FROM R JOIN S USING (nope)", "unknown-column", "'nope'", ""),
        ("SELECT 1 AS a FROM R JOIN R ON 1 = 1", "duplicate-alias", "'R' occurs twice", "AS"),
        ("SELECT 1 AS a FROM R a JOIN S A ON 1 = 1", "duplicate-alias", "'A' occurs", "AS"),
        ("SELECT k, x AS k FROM R", "duplicate-name", "called 'k'", "AS"),
        ("SELECT k FROM R; SELECT k FROM S", "several-statements", "found 2", "by itself"),
        ("SELECT foo(k) AS f FROM R", "unknown-function", "function foo()", "docs/sql.md"),
        ("SELECT lowr(s) AS f FROM R", "unknown-function", "lowr()", "did you mean 'lower'?"),
        ("SELECT lower(s, s) AS f FROM R", "bad-arguments", "takes 1 argument, not 2", ""),
        ("SELECT substring(s) AS f FROM R", "bad-arguments", "takes 2 to 3", ""),
        ("SELECT 1e3 FROM R", "unnamed-output", "1e3 has no name", "with AS"),
        ("SELECT INTERVAL 1 YEAR 2 MONTHS FROM R", "unnamed-output", "has no name", "with AS"),
        (
            "SELECT array(ts - ts) AS i FROM R",
            "unsupported-output",
            "of type array<interval day to second>",
            "cast the intervals inside to STRING",
        ),
        ("SELECT NULL AS n FROM R", "unsupported-output", "of type void", "cast"),
        ("SELECT CAST(k AS ARRAY<INT>) AS v FROM R", "type-mismatch", "to array<int>", "cast"),
        ("SELECT a.b.c FROM R", "unknown-alias", "there is no alias 'a'", "known: R"),
        ("SELECT R.k.c FROM R", "type-mismatch", "R.k is of type", "struct<...>"),
        ("SELECT k FROM R WHERE ts < TIMESTAMP '2020-13-01'", "bad-literal", "2020-13-01", ""),
        ("SELECT k FROM R WHERE s LIKE 'a\\\\b'", "bad-literal", "backslash", ""),
        (
            "SELECT k FROM R WHERE w < 1234567890123456789012345678901234567890",
            "bad-literal",
            "more than 38 digits",
            "",
        ),
        (
            f"SELECT R.k FROM {JOIN} AND R.ts < S.ts + INTERVAL 1 FORTNIGHT",
            "bad-interval",
            "no unit FORTNIGHT",
            "DAY",
        ),
        (f"SELECT R.k FROM {JOIN} AND R.ts < S.ts + INTERVAL 'x' DAY", "bad-interval", "'x'", ""),
        (
            f"SELECT R.k FROM {JOIN} AND R.ts < S.ts AND S.ts < R.ts",
            "unsatisfiable-time-bounds",
            "among R, S",
            "loosen",
        ),
        (
            "SELECT R.k FROM R JOIN S ON R.w = S.w JOIN T ON T.w = S.w JOIN t u"
            " ON u.w = R.w JOIN t v ON CAST(v.b AS DECIMAL(38,0)) = R.w",
            "unsupported-key-types",
            "takes 56 digits, 38 is the limit",
            "cast them",
        ),
    ],
)
def test_names_and_values(sql: str, code: str, message: str, remedy: str) -> None:
    error = refusal(sql)
    assert (error.code, error.field) == (code, "sql")
    assert message in error.message
    assert remedy in error.remedy


@pytest.mark.parametrize(
    ("sql", "code", "message"),
    [
        ("SELECT R.k FROM R JOIN S", "cross-product", "between {R} and {S}"),
        (
            f"SELECT R.k FROM {JOIN} JOIN T WHERE T.k = 5",
            "cross-product",
            "cross product between {R,S} and {T}",
        ),
        ("SELECT R.k FROM R, S WHERE R.k = 5 AND S.k = 5", "cross-product", "{R} and {S}"),
    ],
)
def test_disconnected_joins(sql: str, code: str, message: str) -> None:
    error = refusal(sql)
    assert error.code == code
    assert message in error.message
    assert "add an equality" in error.remedy


@pytest.mark.parametrize(
    ("condition", "types"),
    [
        ("R.s = S.k", ("string", "int")),
        ("R.k = S.s", ("int", "string")),
        ("R.s < S.g", ("string", "double")),
        ("R.day = S.ts", ("date", "timestamp")),
        ("R.ts = S.day", ("timestamp", "date")),
        ("R.day <= S.ts", ("date", "timestamp")),
        ("R.k = S.day", ("int", "date")),
        ("R.s = 5", ("string", "int")),
        ("R.k + R.s = 5", ("int", "string")),
        ("R.day + INTERVAL 1 HOUR = S.day", ("timestamp", "date")),
        ("R.day + (R.ts - S.ts) = S.day", ("timestamp", "date")),
        ("R.k = 'abc'", ("'abc'", "int")),
        ("R.k = '1.5'", ("'1.5'", "int")),
        ("R.day = 'soon'", ("'soon'", "date")),
        ("R.k IN (1, 'x')", ("'x'", "int")),
        ("R.k BETWEEN 1 AND 'x'", ("'x'", "int")),
        ("coalesce(R.s, R.k) = 'a'", ("string", "int")),
        ("CASE WHEN R.k = 1 THEN R.s ELSE R.day END = 'a'", ("string", "date")),
        ("lower(R.k) = 'a'", ("lower()", "int")),
        ("year(R.s) = 1", ("year()", "string")),
        ("R.k", ("R.k", "int")),
        ("R.k AND TRUE", ("R.k", "int")),
        ("NOT R.s", ("R.s", "string")),
        ("-R.s = 'a'", ("R.s", "string")),
        ("R.k LIKE 'a'", ("R.k", "int")),
        ("CAST(R.day AS INT) = 1", ("date", "int")),
        ("R.ts - R.day < 1", ("interval day to second", "int")),
    ],
)
def test_types_that_do_not_fit(condition: str, types: tuple[str, str]) -> None:
    error = refusal(f"SELECT R.k FROM {JOIN} AND {condition}")
    assert (error.code, error.field) == ("type-mismatch", "sql")
    for part in types:
        assert part in error.message


def test_a_mismatch_proposes_the_cast() -> None:
    error = refusal("SELECT R.k FROM R JOIN S ON R.s = S.k")
    assert error.remedy == "make them agree: CAST(R.s AS INT)"


@pytest.mark.parametrize(
    ("window", "code", "field", "part"),
    [
        (-1, "negative-window", "window", "'R' is negative: -1 microsecond"),
        ({"S": -5}, "negative-window", "window.S", "'S' is negative"),
        ({"Z": 5}, "unknown-alias", "window.Z", "names 'Z'"),
        ({"r": 5, "R": 6}, "duplicate-alias", "window.R", "more than once"),
    ],
)
def test_bad_windows(window: int | dict[str, int], code: str, field: str, part: str) -> None:
    error = refusal(f"SELECT R.k FROM {JOIN}", window)
    assert (error.code, error.field) == (code, field)
    assert part in error.message


@pytest.mark.parametrize("window", [5, {"R": 5}, {"plain": 5}])
def test_a_window_needs_event_times(window: int | dict[str, int]) -> None:
    error = refusal("SELECT R.k FROM R JOIN plain ON plain.k = R.k", window)
    assert error.code == "no-event-time"
    assert error.field.startswith("window")
    assert "stream 'plain' (alias 'plain')" in error.message


def test_a_negative_window_by_way_of_sql_is_unsatisfiable_only_if_it_is() -> None:
    sql = f"SELECT R.k FROM {JOIN} AND S.ts >= R.ts + INTERVAL 10 MINUTE"
    assert parse_sql("q", sql, STREAMS, 600_000_000).bounds[0][1] == 600_000_000
    assert refusal(sql, 599_999_999).code == "unsatisfiable-time-bounds"


def test_streams_that_differ_in_case_only_must_be_spelled() -> None:
    streams = {n: stream(n, {"k": "int"}) for n in ("Ab", "aB")}
    assert parse_sql("q", "SELECT k FROM aB", streams).labels == ("aB",)
    with pytest.raises(QueryError, match="may mean 'Ab' or 'aB'"):
        parse_sql("q", "SELECT k FROM AB", streams)


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    deep = "(" * 3000 + "k" + ")" * 3000
    with pytest.raises(QueryError) as caught:
        parse_sql("q", f"SELECT k FROM R WHERE {deep} = 1", STREAMS)
    assert caught.value.code == "malformed-sql"


@pytest.mark.parametrize(
    ("document", "field", "code"),
    [
        ({}, "from", "malformed-query"),
        ({"from": []}, "from", "malformed-query"),
        ({"from": {}}, "from", "malformed-query"),
        ({"from": "R"}, "from", "malformed-query"),
        ({"from": [{"alias": "a"}]}, "from[0].stream", "malformed-query"),
        ({"from": [{"stream": "R", "as": "a"}]}, "from[0].as", "malformed-query"),
        ({"from": {"a": 5}}, "from.a", "malformed-query"),
        ({"from": {"a": "Q"}}, "from.a", "unknown-stream"),
        ({"from": ["R", "Q"]}, "from[1]", "unknown-stream"),
        ({"from": ["R"], "wher": []}, "wher", "malformed-query"),
        ({"from": ["R"], "where": [5]}, "where[0]", "malformed-query"),
        ({"from": ["R"], "where": {"a": 1}}, "where", "malformed-query"),
        ({"from": ["R"], "where": ["k = 1", "k ="]}, "where[1]", "malformed-sql"),
        ({"from": ["R"], "where": ["k = 1) OR (x = 1"]}, "where[0]", "malformed-sql"),
        ({"from": ["R"], "where": ["k = 1 GROUP BY k"]}, "where[0]", "malformed-sql"),
        ({"from": ["R"], "where": ["k = 1, x = 2"]}, "where[0]", "malformed-sql"),
        ({"from": ["R"], "where": ["k = 1; SELECT 2"]}, "where[0]", "malformed-sql"),
        ({"from": ["R"], "where": ["kk = 1"]}, "where[0]", "unknown-column"),
        ({"from": ["R"], "where": ["s = 1"]}, "where[0]", "type-mismatch"),
        ({"from": ["R", "S"], "join": ["R.k = S.q"]}, "join[0]", "unknown-column"),
        ({"from": ["R"], "select": []}, "select", "malformed-query"),
        ({"from": ["R"], "select": [5]}, "select[0]", "malformed-query"),
        ({"from": ["R"], "select": ["k", {"expr": "x", "as": "k"}]}, "select[1]", "duplicate-name"),
        ({"from": ["R"], "select": [{"expr": "*", "as": "a"}]}, "select[0]", "malformed-query"),
        ({"from": ["R"], "select": [{"as": "a"}]}, "select[0].expr", "malformed-query"),
        ({"from": ["R"], "select": [{"expr": "k", "x": 1}]}, "select[0].x", "malformed-query"),
        ({"from": ["R"], "select": [{"expr": "k", "as": ""}]}, "select[0].as", "malformed-query"),
        ({"from": ["R"], "select": ["sum(k)"]}, "select[0]", "misplaced-aggregate"),
        ({"from": ["R", "S"], "select": ["R.k"]}, "from", "cross-product"),
    ],
)
def test_structured_documents_say_which_part(
    document: dict[str, Any], field: str, code: str
) -> None:
    with pytest.raises(QueryError) as caught:
        parse_structured("q", document, STREAMS)
    assert (caught.value.field, caught.value.code) == (field, code)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("sql", "remedy", "column"),
    [
        ("SELECT k + 1 AS m FROM R WHERE m > 3", "write k + 1 in its place", 32),
        ("SELECT k, count(*) AS n FROM R WHERE k = 1 AND n > 3 GROUP BY k", "into HAVING", 48),
        ("SELECT k, rank() OVER (ORDER BY ts) AS n FROM R WHERE n > 3", "into QUALIFY", 55),
        ("SELECT k, sum(k) OVER (ORDER BY ts) AS n FROM R WHERE n > 3", "into QUALIFY", 55),
        ("SELECT * EXCEPT (k, nosuch) FROM R", "known: ", 21),
        ("SELECT * REPLACE (1 AS nosuch) FROM R", "known: ", 24),
        ("SELECT R.k, q.* FROM R", "known: R", 13),
    ],
)
def test_unknown_names_have_place_and_remedy(sql: str, remedy: str, column: int) -> None:
    error = refusal(sql)
    assert error.code in ("unknown-column", "unknown-alias")
    assert error.position == (1, column)
    assert remedy in error.remedy


def test_times_of_groups_have_a_place() -> None:
    sql = "SELECT k, max(ts) AS t FROM R GROUP BY k HAVING max(ts) < now() - INTERVAL '1' HOUR"
    assert refusal(sql).position == (1, 59)
