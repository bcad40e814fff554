"""Tests of statements that read tables: time bounds and refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch_contract.errors import QueryError, StreamError
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_contract.queries.joins import StreamKind
from anabranch_planner.passes import parse_sql
from tests.support.cases.states import MINUTE, R, S, stream

TABLE = replace(stream("T", "b", timed=False), kind=StreamKind.TABLE, retain=None)
PLAIN = stream("P", "b", timed=False)
STREAMS = {"R": R, "S": S, "T": TABLE, "P": PLAIN}
LOOK_UP = "SELECT R.a, T.b FROM R JOIN S ON R.a = S.a JOIN T ON T.b = S.b"
NAMED = "SELECT S.a, T.b AS tb FROM S LEFT JOIN T ON T.b = S.b"
PLAIN_JOIN = LOOK_UP.replace("T.b", "P.b").replace("JOIN T", "JOIN P")


@pytest.mark.parametrize("window", [9 * MINUTE, {"R": 9 * MINUTE, "S": 9 * MINUTE}])
def test_a_window_bounds_streams_among_themselves(window: int | dict[str, int]) -> None:
    found = parse_sql("q", LOOK_UP, STREAMS, window)
    assert [m.alias for m in found.members] == ["R", "S", "T"]
    wide = 9 * MINUTE
    assert found.bounds == ((0, wide, None), (wide, 0, None), (None, None, 0))


def test_a_ttl_stands_beside_a_table() -> None:
    streams = {**STREAMS, "R": replace(R, ttl=MINUTE)}
    found = parse_sql("q", LOOK_UP, streams)
    assert found.bounds == ((0, MINUTE, None), (None, 0, None), (None, None, 0))
    with pytest.raises(QueryError, match="declares none"):
        parse_sql("q", PLAIN_JOIN, streams)


def parts(sql: str) -> dict[str, list[str]]:
    """Return the members of the joins of a query."""
    return {q.id: [m.alias for m in q.members] for q in parse_sql("q", sql, STREAMS).planned}


def test_look_ups_are_pairs_and_left_rows() -> None:
    assert parts(NAMED) == {"q": ["S", "T"], "q+left": ["S"]}
    found = parse_sql("q", NAMED, STREAMS)
    assert found.outer is not None
    assert found.outer.times == ()
    assert [(one.kind, one.partner, one.parent) for one in found.outer.look_ups] == [
        ("left", "T", 0)
    ]
    chain = f"{NAMED} LEFT SEMI JOIN T t2 ON t2.b = S.a LEFT JOIN T t3 ON t3.b = T.b"
    assert parts(chain) == {
        "q": ["S", "T"],
        "q+left": ["S"],
        "q+2": ["S", "t2"],
        "q+3": ["S", "T", "t3"],
    }
    outer = parse_sql("q", chain, STREAMS).outer
    assert outer is not None
    assert [(one.kind, one.parent) for one in outer.look_ups] == [
        ("left", 0),
        ("semi", 0),
        ("left", 1),
    ]


def test_pairs_use_the_relations_of_left_rows() -> None:
    """By another relation, pairs could see other tuples of the stream than left rows do."""
    on = "SELECT S.a FROM S LEFT JOIN T ON T.b = S.b AND S.a > 3 AND T.b > 1 WHERE S.b < 9"
    found = parse_sql("q", on, STREAMS)
    assert found.left is not None
    filters = {m.alias: found.relation_of(m.label).filter for m in found.members}
    assert filters["S"] == found.left.relation_of(found.left.members[0].label).filter
    assert [str(r) for r in found.residuals] == [f"({found.members[0].label}.a > 3)"]
    assert found.left.residuals == ()


def test_where_may_read_tables() -> None:
    found = parse_sql("q", f"{NAMED} WHERE T.b IS NULL AND S.a > 3", STREAMS)
    assert found.outer is not None
    assert found.left is not None
    assert [str(e) for e in found.outer.where] == ["(r1 IS NULL)"]
    assert [len(r.filter) for r in found.left.relations] == [1]


EXISTS = "(SELECT 1 FROM T x WHERE x.b = S.b AND x.b > S.a)"


@pytest.mark.parametrize(
    ("where", "joins", "rest"),
    [
        (f"EXISTS {EXISTS}", "LEFT SEMI JOIN T x ON x.b = S.b AND x.b > S.a", ""),
        (f"NOT EXISTS {EXISTS}", "LEFT ANTI JOIN T x ON x.b = S.b AND x.b > S.a", ""),
        (
            f"S.a > 1 AND NOT (EXISTS {EXISTS}) AND S.b < 9"
            " AND EXISTS (SELECT * FROM t y WHERE S.a = y.b)",
            "LEFT ANTI JOIN T x ON x.b = S.b AND x.b > S.a LEFT SEMI JOIN T y ON y.b = S.a",
            " WHERE S.a > 1 AND S.b < 9",
        ),
    ],
)
def test_exists_is_a_semi_join(where: str, joins: str, rest: str) -> None:
    found = parse_sql("q", f"SELECT S.a FROM S WHERE {where}", STREAMS)
    assert found == parse_sql("q", f"SELECT S.a FROM S {joins}{rest}", STREAMS)


@pytest.mark.parametrize(
    "where",
    [
        "S.a > 1 OR EXISTS (SELECT 1 FROM T WHERE T.b = S.b)",
        "EXISTS (SELECT 1 FROM T)",
    ],
)
def test_exists_with_a_part_is_refused_where_no_parts_are(where: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_sql("q", f"SELECT S.a FROM S WHERE {where}", STREAMS)
    assert caught.value.code == "unsupported-sql"
    assert caught.value.position is not None


@pytest.mark.parametrize(
    ("where", "same"),
    [
        ("EXISTS (SELECT count(*) FROM T WHERE T.b = S.b)", "TRUE"),
        (
            "EXISTS (SELECT 1 FROM T WHERE T.b = S.b LIMIT 1)",
            "EXISTS (SELECT * FROM T WHERE T.b = S.b)",
        ),
        (
            "S.b IN (SELECT T.b FROM T JOIN T u ON u.b = T.b)",
            "EXISTS (SELECT 1 FROM T JOIN T u ON u.b = T.b WHERE T.b = S.b)",
        ),
    ],
)
def test_equal_meanings_have_equal_forms(where: str, same: str) -> None:
    made, other = (parse_sql("q", f"SELECT S.a FROM S WHERE {w}", STREAMS) for w in (where, same))
    assert made == other


def test_a_query_of_with_hides_a_table() -> None:
    given = "WITH T AS (SELECT a AS b FROM R) SELECT S.a FROM S WHERE "
    made = parse_sql("q", f"{given}S.b IN (SELECT b FROM T)", STREAMS)
    assert {m.relation for m in made.members} == {"R", "S"}


def test_a_right_join_is_a_mirrored_left_join() -> None:
    mirrored = "SELECT S.a, T.b AS tb FROM T RIGHT JOIN S ON T.b = S.b"
    assert parse_sql("q", mirrored, STREAMS) == parse_sql("q", NAMED, STREAMS)
    shown = parse_sql("q", "SELECT * FROM T AS t(x) RIGHT JOIN S ON x = S.b", STREAMS).shown
    assert [o.name for o in shown] == ["x", "a", "b", "ts"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT T.b FROM T",
        "SELECT x.b FROM T x JOIN T y ON x.b = y.b",
        "SELECT T.b FROM T LEFT JOIN S ON T.b = S.b",
        "SELECT T.b FROM S RIGHT JOIN T ON T.b = S.b",
        "SELECT S.a FROM S LEFT JOIN R ON R.a = S.a LEFT JOIN T ON T.b = R.a",
        "SELECT S.a FROM S FULL JOIN T ON T.b = S.b",
        "SELECT T.b FROM T UNION ALL SELECT S.b FROM S",
        "SELECT S.a, U.x FROM S JOIN T ON T.b = S.b JOIN U ON U.x = S.a",
    ],
)
def test_tables_are_followed_where_they_cannot_be_looked_up(sql: str) -> None:
    changes, plain = ChangeFormat(None, key=("x",)), stream("U", "x", timed=False)
    upserts = replace(plain, kind=StreamKind.UPSERT, retain=None, changes=changes)
    streams = {**STREAMS, "U": upserts}
    keyed = {**streams, "T": replace(TABLE, latest=("b",))}
    for found in (parse_sql("q", sql, streams), parse_sql("q", sql, keyed)):
        assert not any(one.looked_up for one in found.planned)
    # A row of a table with a key may be replaced, so its results may be deleted.
    assert {stream for _, stream in found.deleting(keyed)} in ({"T"}, {"T", "U"})


@pytest.mark.parametrize(
    ("sql", "window", "code"),
    [
        ("SELECT S.a FROM S LEFT ANTI JOIN T ON T.b = S.b WHERE T.b = 1", None, "unsupported-sql"),
        (f"{NAMED} WHERE b = 1", None, "ambiguous-column"),
        ("SELECT S.a FROM S LEFT JOIN T ON T.b > S.b", None, "no-equi-join"),
        (f"{NAMED} LEFT JOIN T t2 ON t2.b = S.b AND t2.b > T.b", None, "unsupported-sql"),
        (
            f"{NAMED} LEFT JOIN T t2 ON t2.b = S.a LEFT JOIN T t3 ON t3.b = T.b AND t3.b = t2.b",
            None,
            "unsupported-sql",
        ),
        (NAMED, {"S": MINUTE, "T": MINUTE}, "window-of-table"),
        (NAMED, {"S": MINUTE, "X": MINUTE}, "unknown-alias"),
        (LOOK_UP, {"T": MINUTE}, "window-of-table"),
        (PLAIN_JOIN, MINUTE, "no-event-time"),
    ],
)
def test_what_is_refused(sql: str, window: dict[str, int] | None, code: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_sql("q", sql, STREAMS, window)
    assert caught.value.code == code
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("properties", "field"),
    [
        ({"event_time": "ts"}, "event_time"),
        ({"retain": 0}, "retain"),
        ({"latest": ("nowhere",)}, "key"),
        ({"latest": ("b", "b")}, "key"),
        ({"idle_timeout": MINUTE}, "idle_timeout"),
    ],
)
def test_tables_that_cannot_be(properties: dict[str, object], field: str) -> None:
    timed = replace(TABLE, columns=R.columns + TABLE.columns)
    with pytest.raises(StreamError) as caught:
        replace(timed, **properties)  # type: ignore[arg-type]
    assert caught.value.field == field
    assert caught.value.remedy
