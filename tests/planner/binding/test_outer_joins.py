"""Outer, semi and anti joins: binding as two inner joins and a deadline; refusals."""

from __future__ import annotations

import pytest

from anabranch_contract import codec
from anabranch_contract.errors import QueryError
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.outer_joins import JoinKind, OuterJoin
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql

COLUMNS = tuple((c, parse_type(t)) for c, t in (("k", "int"), ("v", "int"), ("ts", "timestamp")))
STREAMS = {n: Stream(StreamName(n), COLUMNS, "ts", lateness=0) for n in ("a", "b", "c")}
STREAMS["late"] = Stream(StreamName("late"), COLUMNS, "ts")
STREAMS["timeless"] = Stream(StreamName("timeless"), COLUMNS)
HOUR = 3_600_000_000
SOON = "c.ts <= a.ts + INTERVAL '1' HOUR"


def parsed(sql: str, window: int | dict[str, int] | None = None) -> tuple[JoinQuery, OuterJoin]:
    query = parse_sql("q", sql, STREAMS, window)
    assert query.outer is not None
    assert codec.loads(codec.dumps(query.outer), OuterJoin) == query.outer
    return query, query.outer


def below(query: JoinQuery | None) -> dict[str, str]:
    assert query is not None
    return {o.name: str(o.expr) for o in query.projection}


def test_two_joins_are_planned() -> None:
    query, made = parsed(
        f"SELECT a.v, c.v AS w FROM a JOIN b USING (k) LEFT JOIN c ON c.k = b.k AND {SOON}"
    )
    assert query.planned == (query, query.left)
    assert query.left is not None
    assert query.left.id == "q+left"
    assert {m.alias for m in query.members} == {"a", "b", "c"}
    assert {m.alias for m in query.left.members} == {"a", "b"}
    assert below(query) == {"l1": "a.v", "l2": "b.k", "l3": "a.ts", "r1": "c.v"}
    assert below(query.left) == {"l1": "a.v", "l2": "b.k", "l3": "a.ts"}
    assert made.times == (("l3", HOUR),)
    assert [(o.name, str(o.expr)) for o in query.shown] == [("v", "l1"), ("w", "r1")]


@pytest.mark.parametrize("words", ["LEFT SEMI JOIN", "SEMI JOIN", "left semi join"])
def test_a_semi_join_shows_left_columns_only(words: str) -> None:
    query, made = parsed(f"SELECT * FROM a {words} c ON c.k = a.k AND {SOON}")
    assert made.kind is JoinKind.SEMI
    assert [o.name for o in query.shown] == ["k", "v", "ts"]
    with pytest.raises(QueryError, match=r"no alias 'c'|no column"):
        parsed(f"SELECT c.v FROM a {words} c ON c.k = a.k AND {SOON}")


def test_a_right_join_is_a_mirrored_left_join() -> None:
    left = parsed(f"SELECT a.v, c.v AS w FROM a LEFT JOIN c ON c.k = a.k AND {SOON}")
    assert parsed(f"SELECT a.v, c.v AS w FROM c RIGHT JOIN a ON c.k = a.k AND {SOON}") == left


def test_conditions_on_one_side_stay_there() -> None:
    query, _ = parsed(
        f"SELECT a.v FROM a LEFT ANTI JOIN c ON c.k = a.k AND {SOON} AND c.v > 1 AND a.v > 2 "
        "WHERE a.k > 3"
    )
    assert query.left is not None
    (left,) = query.left.relations
    assert [str(f) for f in left.filter] == ["(k > 3)"]
    pairs = {r.stream: [str(f) for f in r.filter] for r in query.relations}
    assert pairs == {"a": ["(k > 3)", "(v > 2)"], "c": ["(v > 1)"]}


def test_windows_are_deadlines_too() -> None:
    _, made = parsed("SELECT a.v FROM a JOIN b USING (k) LEFT ANTI JOIN c USING (k)", HOUR)
    assert {micros for _, micros in made.times} == {HOUR}
    _, made = parsed("SELECT a.v FROM a LEFT ANTI JOIN c USING (k)", {"a": HOUR, "c": 0})
    assert made.times == ((made.left[-1][0], HOUR),)


def test_the_partner_may_be_a_query_over_one_stream() -> None:
    query, _ = parsed(
        "SELECT a.v, x.w FROM a LEFT JOIN (SELECT k, v + 1 AS w, ts FROM c WHERE v > 0) AS x "
        "ON x.k = a.k AND x.ts <= a.ts + INTERVAL '1' HOUR"
    )
    assert below(query)["r1"] == "c[" + query.relations[1].id.removeprefix("c[") + ".v"


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT a.v FROM a LEFT JOIN c USING (k)", "no-deadline"),
        ("SELECT a.v FROM a LEFT JOIN c ON c.k = a.k AND c.ts >= a.ts", "no-deadline"),
        (f"SELECT a.v FROM a LEFT JOIN late c ON c.k = a.k AND {SOON}", "no-deadline"),
        ("SELECT a.v FROM a LEFT JOIN timeless c USING (k)", "no-deadline"),
        (f"SELECT a.v FROM a LEFT JOIN c ON {SOON}", "no-equi-join"),
        (f"SELECT a.v FROM a LEFT JOIN c ON c.k = a.k AND {SOON} JOIN b USING (k)",
         "unsupported-sql"),
        (f"SELECT a.v FROM a RIGHT JOIN c ON c.k = a.k AND {SOON}", "no-deadline"),
        (f"SELECT a.v FROM a JOIN b USING (k) RIGHT JOIN c ON c.k = a.k AND {SOON}",
         "unsupported-sql"),
        (f"SELECT a.v FROM a FULL JOIN c ON c.k = a.k AND {SOON}", "unsupported-sql"),
        (f"SELECT a.k FROM a LEFT JOIN c ON c.k = a.k AND {SOON} GROUP BY a.k "
         "HAVING count(*) > (SELECT count(*) FROM a)", "unsupported-sql"),
        (f"SELECT a.v, c.v FROM a LEFT JOIN c ON c.k = a.k AND {SOON}", "duplicate-name"),
        (f"SELECT a.v FROM a LEFT JOIN c ON c.k = a.k AND {SOON} WHERE c.v > 1", "unsupported-sql"),
        ("SELECT x.v FROM (SELECT a.v FROM a LEFT JOIN c USING (k)) AS x", "unsupported-sql"),
        (f"SELECT a.v FROM a LEFT JOIN (b JOIN c USING (k)) ON c.k = a.k AND {SOON}",
         "unsupported-sql"),
    ],
)  # fmt: skip
def test_what_is_refused(sql: str, code: str) -> None:
    with pytest.raises(QueryError) as found:
        parse_sql("q", sql, STREAMS)
    assert found.value.code == code
    assert found.value.remedy


def test_a_view_is_over_the_rows_of_the_join() -> None:
    query, made = parsed(
        f"SELECT a.k % 2 AS g, count(c.v) AS n FROM a LEFT JOIN c ON c.k = a.k AND {SOON} "
        "GROUP BY a.k % 2 HAVING sum(a.v + c.v) > 3"
    )
    assert query.view is not None
    assert [o.name for o in query.shown] == ["g", "n"]
    assert [str(o.expr) for o in made.projection] == ["(l1 % 2)", "r1", "(l2 + r1)"]
    assert [o.name for o in made.projection] == ["k1", "a1", "a2"]
    assert query.left is not None
    assert query.left.view is None


LEFT = f"SELECT a.v FROM a\nLEFT JOIN c AS x ON x.k = a.k AND {SOON.replace('c.', 'x.')}"
ANTI = f"LEFT ANTI JOIN c AS x ON x.k = a.k AND {SOON.replace('c.', 'x.')}"


@pytest.mark.parametrize(
    ("sql", "what", "remedy", "column"),
    [
        (
            f"{LEFT} WHERE x.k IS NULL",
            "x.k IS NULL in WHERE after a LEFT JOIN of x",
            f"write {ANTI} in place of the LEFT JOIN and leave x.k IS NULL out",
            74,
        ),
        (
            f"{LEFT} WHERE a.v > 1 AND x.v IS NULL",
            "x.v IS NULL in WHERE after a LEFT JOIN of x",
            f"write {ANTI} in place of the LEFT JOIN and leave x.v IS NULL out; rows "
            "whose partner has NULL in v are not in it",
            86,
        ),
        (
            f"{LEFT.replace('a.v', 'a.v, x.v')} WHERE x.k IS NULL".replace(", x.v", ", x.v AS w"),
            "x.k IS NULL in WHERE after a LEFT JOIN of x",
            f"write {ANTI} in place of the LEFT JOIN and leave x.k IS NULL out, and select no "
            "columns of x",
            74,
        ),
        (
            f"{LEFT} WHERE x.v > 1",
            "x.v > 1 in WHERE after a LEFT JOIN of x",
            "move it to the ON of the LEFT JOIN, or write JOIN in its place if rows without x are "
            "not wanted",
            74,
        ),
        (
            f"{LEFT.replace('LEFT JOIN', 'LEFT ANTI JOIN')} WHERE x.v > 1",
            "x.v > 1 in WHERE after a LEFT ANTI JOIN of x",
            "move it to the ON of the LEFT ANTI JOIN",
            79,
        ),
    ],
)
def test_where_can_not_read_the_right_side(sql: str, what: str, remedy: str, column: int) -> None:
    with pytest.raises(QueryError) as found:
        parse_sql("q", sql, STREAMS)
    error = found.value
    assert (error.code, error.field, error.position) == ("unsupported-sql", "sql", (2, column))
    assert error.message == f"{what} is not supported"
    assert error.remedy == remedy


def test_a_column_that_only_the_right_side_has_is_one_of_it() -> None:
    more = (*COLUMNS, ("only", parse_type("int")))
    streams = {**STREAMS, "c": Stream(StreamName("c"), more, "ts", lateness=0)}
    sql = "SELECT a.v FROM a LEFT JOIN c USING (k) WHERE only IS NULL"
    with pytest.raises(QueryError) as found:
        parse_sql("q", sql, streams, HOUR)
    assert found.value.remedy == (
        "write LEFT ANTI JOIN c USING (k) in place of the LEFT JOIN and leave only IS NULL out; "
        "rows whose partner has NULL in only are not in it"
    )


def test_the_proposed_anti_join_runs() -> None:
    _, outer = parsed(f"SELECT a.v FROM a\n{ANTI}")
    assert outer.kind is JoinKind.ANTI
