"""Tests of binding statements with aggregates, DISTINCT or LIMIT: a join, a view over its rows,
refusals.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch_contract import codec
from anabranch_contract.errors import QueryError
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_contract.queries.views import RANK, View
from anabranch_planner.passes import parse_sql

COLUMNS = {"k": "bigint", "v": "decimal(12,2)", "n": "int", "ts": "timestamp", "d": "date"}
STREAMS = {
    name: Stream(
        StreamName(name),
        (*((c, parse_type(t)) for c, t in COLUMNS.items()), (f"s_{name}", parse_type("string"))),
        "ts",
    )
    for name in ("a", "b")
}
FROM = "FROM a JOIN b ON a.k = b.k"


def parsed(sql: str) -> tuple[JoinQuery, View]:
    query = parse_sql("q", sql, STREAMS)
    assert query.view is not None
    assert codec.loads(codec.dumps(query.view), View) == query.view
    return query, query.view


def below(query: JoinQuery) -> list[str]:
    return [str(o.expr) for o in query.projection]


def shown(view: View) -> dict[str, tuple[str, str]]:
    return {o.name: (str(o.expr), str(o.expr.type)) for o in view.projection}


def test_order_by_alone_has_no_effect_on_joined_rows() -> None:
    made = parse_sql("q", "SELECT n, k AS m FROM a ORDER BY m DESC, 1", STREAMS)
    assert made.unsorted
    assert replace(made, unsorted=False) == parse_sql("q", "SELECT n, k AS m FROM a", STREAMS)


def refused(sql: str) -> QueryError:
    with pytest.raises(QueryError) as found:
        parse_sql("q", sql, STREAMS)
    assert found.value.remedy, found.value
    return found.value


def test_arguments_are_computed_below_and_only_they() -> None:
    query, view = parsed(
        f"SELECT a.n, sum(a.v * (1 - b.v)) / count(*) AS m, max(b.d) AS d {FROM} "
        "GROUP BY a.n HAVING sum(a.v * (1 - b.v)) > 3"
    )
    assert below(query) == ["a.n", "(a.v * (1 - b.v))", "b.d"]
    assert [(a.function.value, a.column) for a in view.aggregates] == [
        ("sum", "a1"),
        ("count", None),
        ("max", "a2"),
    ]
    assert shown(view)["d"] == ("g3", "date")
    assert str(view.having) == "(g1 > 3.0000)"
    assert view.identity == ("n",)


def test_what_is_equal_is_one_aggregate_and_one_column() -> None:
    query, view = parsed(
        f"SELECT sum(A.V) AS x, SUM(a.v) + 1 AS y, avg(a.v) AS z, count(k2) AS c "
        f"FROM (SELECT a.v, b.k AS k2 {FROM}) AS a"
    )
    assert below(query) == ["a.a.v", "a.b.k"] or len(query.projection) == 2
    assert [a.function.value for a in view.aggregates] == ["sum", "avg", "count"]


@pytest.mark.parametrize(
    ("call", "type_"),
    [
        ("count(*)", "bigint"),
        ("count(DISTINCT a.n)", "bigint"),
        ("sum(a.n)", "bigint"),
        ("sum(a.v)", "decimal(22,2)"),
        ("avg(a.v)", "decimal(16,6)"),
        ("avg(a.n)", "double"),
        ("mean(a.k)", "double"),
        ("min(a.s_a)", "string"),
        ("max(a.ts)", "timestamp"),
        ("stddev(a.n)", "double"),
        ("var_pop(a.v)", "double"),
        ("bool_or(a.n > 3)", "boolean"),
        ("count_if(a.n > 3)", "bigint"),
        ("sum(CAST(a.n AS FLOAT))", "double"),
    ],
)
def test_types_of_aggregates_are_sparks(call: str, type_: str) -> None:
    _, view = parsed(f"SELECT {call} AS x {FROM}")
    assert shown(view)["x"][1] == type_


@pytest.mark.parametrize(
    "clause",
    ["GROUP BY a.n", "GROUP BY n2", "GROUP BY 1", "GROUP BY ALL", "group by (a.n)"],
)
def test_ways_to_say_what_is_grouped_by(clause: str) -> None:
    _, view = parsed(f"SELECT a.n AS n2, count(*) AS c {FROM} {clause} ORDER BY c DESC, 1 LIMIT 3")
    assert [name for name, _ in view.keys] == ["k1"]
    assert [(str(s.expr), s.descending, s.nulls_first) for s in view.order] == [
        ("g1", True, False),
        ("k1", False, True),
    ]
    assert view.limit == 3


def test_an_alias_hides_a_column_in_order_by_but_not_in_group_by() -> None:
    query, view = parsed(f"SELECT a.n % 2 AS k, count(*) AS c {FROM} GROUP BY a.n % 2 ORDER BY k")
    assert below(query)[0] == "(a.n % 2)"
    assert [str(s.expr) for s in view.order] == ["k1"]
    assert refused("SELECT n AS k, count(*) AS c FROM a GROUP BY k").code == "not-grouped"


def test_expressions_over_keys() -> None:
    query, view = parsed(
        f"SELECT upper(lower(a.s_a)) AS u, year(a.d) + 1 AS y, count(*) AS c {FROM} "
        "GROUP BY lower(s_a), year(a.d)"
    )
    assert below(query) == ["lower(a.s_a)", "year(a.d)"]
    assert shown(view)["u"][0] == "upper(k1)"
    assert view.identity == ("anabranch_k1", "anabranch_k2")


@pytest.mark.parametrize("place", [0, 1])
def test_windows(place: int) -> None:
    keys = ["a.n"]
    keys.insert(place, "window(a.ts, '10 minutes', '5 minutes')")
    query, view = parsed(
        f"SELECT window.start, window.end AS until, a.n, count(*) AS c {FROM} "
        f"GROUP BY {', '.join(keys)}"
    )
    assert view.window is not None
    assert (view.window.length, view.window.slide) == (600_000_000, 300_000_000)
    assert "a.ts" in below(query)
    assert shown(view)["start"] == ("window_start", "timestamp")
    assert view.identity == ("n", "start", "until")


def test_distinct_is_a_group_of_all_columns() -> None:
    query, view = parsed(f"SELECT DISTINCT a.n, b.s_b AS t {FROM}")
    assert below(query) == ["a.n", "b.s_b"]
    assert view.identity == ("n", "t")
    assert not view.aggregates


def test_joined_rows_are_ranked() -> None:
    query, view = parsed(f"SELECT a.n, a.v {FROM} ORDER BY b.v DESC, n LIMIT 5 OFFSET 2")
    assert below(query) == ["a.n", "a.v", "b.v"]
    assert not view.grouped
    assert view.identity == (RANK,)
    assert (view.limit, view.offset) == (5, 2)


def test_rows_are_counted_though_no_column_is_read() -> None:
    query, _ = parsed(f"SELECT count(*) {FROM}")
    assert below(query) == ["1"]


def test_filters_of_aggregates() -> None:
    query, _ = parsed(f"SELECT sum(a.v) FILTER (WHERE b.n > 1) AS x, "
        f"count(*) FILTER (WHERE b.n > 1)"
                      f" AS c {FROM}")  # fmt: skip
    assert below(query) == ["CASE((b.n > 1), a.v)", "CASE((b.n > 1), 1)"]


def test_the_join_is_the_same_as_without_the_view() -> None:
    plain = parse_sql("q", f"SELECT a.v {FROM} WHERE a.n > 1", STREAMS)
    query, _ = parsed(f"SELECT a.v, count(*) AS c {FROM} WHERE a.n > 1 GROUP BY a.v")
    assert (query.members, query.relations, query.classes, query.bounds) == (
        plain.members,
        plain.relations,
        plain.classes,
        plain.bounds,
    )


def test_a_query_over_the_same_join_is_a_total_of_the_groups() -> None:
    inner = "(SELECT sum(y.v) / 100 FROM b AS x JOIN a AS y ON x.k = y.k)"
    query, view = parsed(f"SELECT a.n, sum(a.v) AS s {FROM} GROUP BY a.n HAVING sum(a.v) > {inner}")
    assert below(query) == ["a.n", "a.v"]
    assert [(t.aggregate, t.function.value) for t in view.totals] == [("g1", "sum")]
    assert "t1" in str(view.having)
    assert view.whole
    named = f"WITH c AS (SELECT a.n, a.v {FROM}) SELECT n, sum(v) AS s FROM c GROUP BY n " \
        "HAVING sum(v) > (SELECT sum(v) / 100 FROM c)"  # fmt: skip
    assert parsed(named)[1] == view


@pytest.mark.parametrize(
    "inner",
    [
        "SELECT sum(v) FROM a",
        f"SELECT sum(a.v) {FROM} WHERE a.n > 1",
        f"SELECT avg(a.v) {FROM}",
        f"SELECT a.v {FROM}",
        f"SELECT sum(a.v) {FROM} GROUP BY a.n",
        f"SELECT sum(a.v), count(*) {FROM}",
    ],
)
def test_other_queries_as_values_are_refused(inner: str) -> None:
    error = refused(f"SELECT a.n {FROM} GROUP BY a.n HAVING sum(a.v) > ({inner})")
    assert error.code == "unsupported-sql"


@pytest.mark.parametrize(
    ("sql", "code", "position"),
    [
        ("SELECT a.v, count(*) AS c FROM a GROUP BY n", "not-grouped", (1, 10)),
        ("SELECT n,\n  v + 1 AS w, count(*) AS c FROM a GROUP BY n", "not-grouped", (2, 3)),
        ("SELECT n, sum(count(*)) AS c FROM a GROUP BY n", "misplaced-aggregate", (1, 11)),
        ("SELECT n FROM a GROUP BY n, count(*)", "misplaced-aggregate", (1, 29)),
        ("SELECT n FROM a WHERE count(*) > 1 GROUP BY n", "misplaced-aggregate", (1, 23)),
        ("SELECT n FROM a GROUP BY n HAVING n + 1", "type-mismatch", (1, 35)),
        ("SELECT n FROM a GROUP BY n HAVING zz > 1", "unknown-column", (1, 35)),
        ("SELECT sum(s_a) AS x FROM a", "type-mismatch", (1, 8)),
        ("SELECT sum(DISTINCT CAST(n AS DOUBLE)) AS x FROM a", "unsupported-sql", (1, 8)),
        ("SELECT collect_list(n, k) AS x FROM a", "bad-arguments", (1, 8)),
        ("SELECT try_avg(n) AS x FROM a", "unsupported-sql", (1, 8)),
        ("SELECT count(n, k) AS x FROM a", "bad-arguments", (1, 8)),
        ("SELECT n FROM a ORDER BY m", "unknown-column", (1, 26)),
        ("SELECT n, count(*) AS c FROM a GROUP BY n ORDER BY c LIMIT n", "bad-literal", (1, 60)),
        ("SELECT n, count(*) AS c FROM a GROUP BY 3", "bad-ordinal", None),
        ("SELECT n, count(*) AS N FROM a GROUP BY n", "duplicate-name", None),
        ("SELECT count(*) AS c FROM a GROUP BY window(n, '1 hour')", "type-mismatch", (1, 38)),
        ("SELECT count(*) AS c FROM a GROUP BY window(ts, n)", "bad-window", (1, 38)),
        ("SELECT count(*) AS c FROM a GROUP BY window(ts, '0 hours')", "bad-window", (1, 38)),
        ("SELECT window.at AS c FROM a GROUP BY window(ts, '1 hour')", "unknown-column", (1, 8)),
        ("SELECT window.start FROM a GROUP BY n", "not-grouped", (1, 8)),
        ("SELECT n, sum(v) OVER (PARTITION BY n) AS x FROM a GROUP BY n", "unsupported-sql", None),
        ("SELECT x FROM (SELECT sum(n) AS x FROM a GROUP BY k) AS q", "unsupported-sql", (1, 51)),
        ("SELECT DISTINCT k % 2 AS p FROM a GROUP BY k", "unsupported-sql", (1, 17)),
    ],
)  # fmt: skip
def test_what_is_refused_says_where(sql: str, code: str, position: tuple[int, int] | None) -> None:
    error = refused(sql)
    assert error.code == code
    assert error.field == "sql"
    if position is not None:
        assert error.position == position


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            f"SELECT count(*) AS c {FROM} GROUP BY a.s_a LIKE b.s_b",
            "a.s_a LIKE b.s_b is not supported: its pattern is not a literal",
        ),
        (
            f"SELECT count(*) AS c {FROM} HAVING count(*) LIKE 'x'",
            "LIKE is applied to COUNT(*), which is of type bigint",
        ),
        (
            f"SELECT a.k {FROM} GROUP BY a.k HAVING sum(b.v) + a.s_a = 1",
            "a.s_a is neither grouped by nor aggregated",
        ),
        (
            f"SELECT a.s_a {FROM} GROUP BY a.s_a HAVING a.s_a + sum(b.v) > DATE '2024-01-01'",
            "a.s_a + SUM(b.v) has operands of types string and decimal(22,2)",
        ),
    ],
)
def test_messages_are_in_the_words_of_the_statement(sql: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_sql("q", sql, STREAMS)
    assert caught.value.message == message
