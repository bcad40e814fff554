"""Tests that no argument of a parsed SQL statement is ignored: each is consumed, or refused by
name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.passes import parse_sql
from anabranch_planner.sql.arguments import CONSUMED, check_arguments, is_set
from anabranch_planner.sql.clauses.window_layers import layer_windows
from anabranch_planner.sql.syntax import JoinDialect, read_tree
from tests.support.cases.sample_streams import sample_streams

STREAMS = {n: replace(s, lateness=0) for n, s in sample_streams().items() if s.event_time}
J = "R JOIN S ON R.k = S.k"
#: Statements that run, in which every consumed argument is set somewhere.
CORPUS = [
    f"SELECT R.k, S.x AS y, R.s FROM {J}",
    "SELECT r.k AS `a b`, q.* FROM R AS r, (SELECT x, k AS j FROM S) AS q (x, m) WHERE r.k = q.m",
    "WITH c AS (SELECT k, x FROM S WHERE x > 3), d (n) AS (SELECT k FROM T) "
    "SELECT R.k, c.x, d.n FROM R JOIN c USING (k) JOIN d ON d.n = R.k",
    "SELECT R.k, S.x FROM (R JOIN S ON R.k = S.k)",
    "SELECT T.x FROM (R CROSS JOIN S), T WHERE R.l = S.l AND R.k = T.k",
    "SELECT k FROM R NATURAL JOIN (SELECT k FROM S) AS q",
    "SELECT R.k FROM R LEFT JOIN S ON R.k = S.k AND S.ts <= R.ts + INTERVAL '1' HOUR",
    "SELECT R.k FROM R LEFT SEMI JOIN S ON R.k = S.k AND S.ts <= R.ts + INTERVAL '1' HOUR",
    "SELECT R.k FROM R LEFT ANTI JOIN S ON R.k = S.k AND S.ts <= R.ts + INTERVAL '1' HOUR",
    f"SELECT DISTINCT R.k, S.x FROM {J}",
    f"SELECT R.k, count(*) AS n, sum(DISTINCT S.x) FILTER (WHERE S.x > 2) AS m FROM {J} "
    "GROUP BY R.k HAVING count(*) > 3 ORDER BY n DESC, R.k NULLS LAST LIMIT 5 OFFSET 2".replace(
        "sum(DISTINCT S.x)", "count(DISTINCT S.x)"
    ),
    f"SELECT R.k, max(S.g) AS g FROM {J} GROUP BY ALL ORDER BY 2 NULLS FIRST LIMIT ALL",
    f"SELECT window.start AS b, count(R.x) AS n FROM {J} GROUP BY window(R.ts, '10 minutes')",
    f"SELECT window(R.ts, '1 hour').end AS e FROM {J} GROUP BY window(R.ts, '1 hour')",
    f"SELECT S.s, sum(R.g) AS g FROM {J} GROUP BY S.s "
    f"HAVING sum(R.g) > (SELECT sum(R.g) FROM {J})",
    f"SELECT R.k, S.x, count(*) AS n FROM {J} "
    "GROUP BY ROLLUP (R.k), CUBE (S.x), GROUPING SETS (R.s)",
    f"SELECT R.k, count(*) AS n FROM {J} GROUP BY R.k WITH ROLLUP",
    f"SELECT R.k, count(*) AS n FROM {J} GROUP BY R.k WITH CUBE",
    f"SELECT R.k, count(*) AS n FROM {J} GROUP BY R.k, S.x GROUPING SETS ((R.k), ())",
    f"SELECT first(R.s) IGNORE NULLS AS f, last(R.s) RESPECT NULLS AS l, "
    f"percentile_cont(0.3) WITHIN GROUP (ORDER BY R.x DESC) AS p FROM {J}",
    f"SELECT string_agg(R.s, '-' ORDER BY S.x DESC NULLS LAST) AS t FROM {J}",
    f"SELECT DISTINCT ON (R.k) R.k, S.x FROM {J} ORDER BY R.k, S.x",
    f"SELECT R.k, rank() OVER w AS n FROM {J} QUALIFY n <= 3 "
    "WINDOW w AS (PARTITION BY R.k ORDER BY S.x)",
    "SELECT R.k, sum(S.x) OVER (PARTITION BY R.k ORDER BY S.x "
    f"ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS s FROM {J}",
    f"SELECT R.k FROM {J} WHERE R.x + 1 < S.x * 2 - 3 OR NOT R.x % 2 = 0 AND S.g / 2 >= -R.g",
    f"SELECT R.k FROM {J} WHERE R.s LIKE 'a%' AND S.s NOT LIKE 'b!_' ESCAPE '!' OR R.s ILIKE 'x'",
    f"SELECT R.k FROM {J} WHERE R.x BETWEEN 1 AND S.x AND S.x IN (1, 2, 3) AND R.s <=> S.s",
    f"SELECT R.k FROM {J} WHERE R.s IS NULL AND (S.x > 3) IS TRUE AND R.x <> 3 AND S.x <= 4",
    f"SELECT CASE R.k WHEN 1 THEN 'a' ELSE r'b' END AS c, if(S.x = 1, true, NULL) AS d FROM {J}",
    f"SELECT CASE WHEN R.k > 1 THEN x'ab' END AS c, CAST(S.p AS DECIMAL(20, 4)) AS d FROM {J}",
    f"SELECT extract(YEAR FROM R.ts) AS y, trim(S.s) AS t, R.s || 'x' 'y' AS u FROM {J}",
    f"SELECT coalesce(R.x, 1) AS c, substring(S.s, 2, 3) AS s, DATE '2020-01-01' AS d FROM {J}",
    f"SELECT R.k FROM {J} WHERE R.ts BETWEEN S.ts - INTERVAL '1:30' HOUR TO MINUTE AND S.ts",
]  # fmt: skip
#: Arguments without influence: the text is the same without them, or they are the spelling of a
#: name.
NEUTRAL = {
    (exp.Identifier, "quoted"),
    (exp.DataType, "nested"),
    (exp.Div, "safe"), (exp.Div, "typed"), (exp.DPipe, "safe"),
    (exp.Join, "kind"), (exp.Window, "over"),
    (exp.Column, "table"), (exp.Table, "alias"), (exp.Subquery, "alias"),
    (exp.Ordered, "desc"), (exp.Ordered, "nulls_first"),
}  # fmt: skip


def parsed(sql: str) -> exp.Expr:
    (tree,) = JoinDialect().parse(sql)
    assert tree is not None
    return tree


def meaning(tree: exp.Expr) -> JoinQuery | str:
    """Return the normal form of a syntax tree, or the code of its refusal."""
    try:
        made = tree.copy()
        layer_windows(made)
        check_arguments(made)
        return parse_sql("q", read_tree(made), STREAMS, {} if "LEFT" in tree.sql() else 10**10)
    except QueryError as refused:
        return refused.code if refused.remedy else "no remedy"


def arguments_of(kind: type[exp.Expr]) -> Iterator[str]:
    yield from (name for name in kind.arg_types if name not in CONSUMED[kind])


OTHERS = [(kind, name) for kind in CONSUMED for name in arguments_of(kind)]


@pytest.mark.parametrize(("kind", "name"), OTHERS, ids=[f"{k.__name__}.{n}" for k, n in OTHERS])
@pytest.mark.parametrize("value", [True, exp.Literal.number(3), [exp.Var(this="x")], "X"])
def test_every_other_argument_that_the_grammar_knows_is_refused(
    kind: type[exp.Expr], name: str, value: Any
) -> None:
    node = kind(**{name: value.copy() if isinstance(value, exp.Expr) else value})
    with pytest.raises(QueryError) as refused:
        check_arguments(exp.Select(expressions=[exp.Paren(this=node)]))
    assert refused.value.code == "unsupported-sql"
    assert refused.value.remedy
    assert "is not supported" in refused.value.message


@given(data=st.data())
def test_other_arguments_are_refused_wherever_they_hang(data: st.DataObject) -> None:
    tree = parsed(data.draw(st.sampled_from(CORPUS)))
    assert isinstance(meaning(tree), JoinQuery)
    nodes = [n for n in tree.walk() if type(n) in CONSUMED and list(arguments_of(type(n)))]
    node = data.draw(st.sampled_from(nodes))
    name = data.draw(st.sampled_from(list(arguments_of(type(node)))))
    if is_set(node.args.get(name)):
        return
    node.set(name, data.draw(st.sampled_from([True, exp.Literal.number(3), exp.Var(this="x")])))
    assert meaning(tree) == "unsupported-sql"


@pytest.mark.parametrize("sql", CORPUS)
def test_the_corpus_runs(sql: str) -> None:
    assert isinstance(meaning(parsed(sql)), JoinQuery), meaning(parsed(sql))


def test_every_consumed_argument_changes_what_is_meant() -> None:
    """Without the argument the statement has another meaning, is refused, or can't be parsed."""
    seen, changing = set(), set()
    for sql in CORPUS:
        before = meaning(parsed(sql))
        for number, node in enumerate(parsed(sql).walk()):
            for name, value in node.args.items():
                if type(node) not in CONSUMED or not is_set(value):
                    continue
                seen.add((type(node), name))
                tree = parsed(sql)
                list(tree.walk())[number].set(name, None)
                try:
                    after: object = meaning(tree)
                except Exception:  # noqa: BLE001 - a node without its operand is not a tree
                    after = None
                if after != before:
                    changing.add((type(node), name))
    assert seen - changing <= NEUTRAL, seen - changing - NEUTRAL


def test_nodes_of_unknown_types_are_refused_wherever_they_stand() -> None:
    """The reader does not look inside them."""
    unknown = {exp.Collate: {"expression": exp.Var(this="x")}, exp.Parameter: {}, exp.Prior: {}}
    for sql in CORPUS:
        before = meaning(parsed(sql))
        count = sum(1 for _ in parsed(sql).walk())
        for kind, arguments in unknown.items():
            for number in range(1, count):
                tree = parsed(sql)
                node = list(tree.walk())[number]
                if isinstance(node, (exp.Identifier, exp.Var, exp.DataType, exp.Distinct)):
                    # These arguments are no expressions, so no expression can replace them.
                    continue
                node.replace(kind(this=node.copy(), **arguments))
                try:
                    after: object = meaning(tree)
                except (AttributeError, AssertionError, KeyError, TypeError):
                    # No text has such a tree: a clause has another type.
                    continue
                assert after != before, (sql, node, kind)


@pytest.mark.parametrize(
    ("clause", "named"),
    [
        ("ORDER BY R.k LIMIT 50 PERCENT", "LIMIT ... PERCENT"),
        ("ORDER BY R.k LIMIT 5 WITH TIES", "LIMIT ... WITH TIES"),
        ("ORDER BY R.k LIMIT 5 PERCENT WITH TIES", "LIMIT ... PERCENT"),
        ("ORDER BY R.k LIMIT 1 BY R.k", "LIMIT ... BY"),
        ("ORDER BY R.k WITH FILL LIMIT 5", "WITH FILL"),
        ("ORDER BY R.k WITH FILL FROM 1 TO 9 STEP 2 LIMIT 5", "WITH FILL"),
        ("ORDER BY R.k FETCH FIRST 5 ROWS WITH TIES", "FETCH FIRST"),
        ("ORDER BY R.k FETCH FIRST 5 PERCENT ROWS WITH TIES", "FETCH FIRST"),
        ("ORDER BY R.k COLLATE nocase LIMIT 5", "COLLATE"),
        ("GROUP BY R.k WITH TOTALS", "TOTALS"),
        ("GROUP BY ROLLUP(R.k, R.k)", "a grouping set that occurs twice"),
        ("QUALIFY R.k > 1", "QUALIFY"),
        ("WINDOW w AS (ORDER BY R.k)", "WINDOW"),
        ("FOR UPDATE", "FOR UPDATE"),
    ],
)
def test_clauses_are_refused_by_name_and_place(clause: str, named: str) -> None:
    for sql in (
        f"SELECT R.k FROM {J}\n{clause}",
        f"SELECT q.k FROM (SELECT R.k FROM {J}\n{clause}) AS q JOIN T ON q.k = T.k",
    ):
        with pytest.raises(QueryError) as refused:
            parse_sql("q", sql, STREAMS)
        assert (refused.value.code, refused.value.field) == ("unsupported-sql", "sql")
        if "q.k" not in sql:
            assert named in refused.value.message
        assert refused.value.position is not None


@pytest.mark.parametrize(
    "sql",
    [
        f"(SELECT R.k FROM {J}) LIMIT 5",
        f"(SELECT R.k FROM {J}) ORDER BY k LIMIT 5",
        f"((SELECT R.k FROM {J}) LIMIT 5)",
        f"SELECT q.k FROM ((SELECT R.k FROM {J}) LIMIT 5) AS q JOIN T ON q.k = T.k",
        f"SELECT S.s, sum(R.g) AS g FROM {J} GROUP BY S.s "
        f"HAVING sum(R.g) > ((SELECT sum(R.g) FROM {J}) LIMIT 1)",
        f"SELECT S.k FROM {J} ORDER BY S.k LIMIT foo",
    ],
)
def test_clauses_after_parentheses_are_not_passed_over(sql: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse_sql("q", sql, STREAMS)
    assert refused.value.remedy


def test_with_before_a_query_in_parentheses_is_its_own() -> None:
    named = "WITH T AS (SELECT k FROM R)"
    inside = parse_sql(
        "q", f"SELECT q.k FROM ({named} SELECT S.k FROM S JOIN T USING (k)) q", STREAMS
    )
    sql = f"SELECT q.k FROM ({named} (SELECT S.k FROM S JOIN T USING (k))) AS q"
    assert parse_sql("q", sql, STREAMS) == inside
