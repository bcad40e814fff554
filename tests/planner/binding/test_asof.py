"""Tests of binding ASOF joins and versions as of a time: spellings, conditions, plans; refusals
with remedies.
"""

from __future__ import annotations

import pytest

from anabranch_contract import codec
from anabranch_contract.errors import QueryError
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamKind, StreamName
from anabranch_contract.queries.outer_joins import JoinKind, NearestSide, OuterJoin
from anabranch_contract.queries.types import parse_type
from anabranch_planner.logical.nodes import to_text
from anabranch_planner.logical.plan import logical_plan
from anabranch_planner.passes import parse_sql
from anabranch_planner.sql.dialects import to_spark

COLUMNS = tuple((c, parse_type(t)) for c, t in (("k", "int"), ("v", "int"), ("ts", "timestamp")))
STREAMS = {n: Stream(StreamName(n), COLUMNS, "ts", lateness=0) for n in ("a", "b", "c")}
STREAMS["newest"] = Stream(StreamName("newest"), COLUMNS, "ts", lateness=0, latest=("k",))
STREAMS["rows"] = Stream(StreamName("rows"), COLUMNS, kind=StreamKind.TABLE, retain=None)
STREAMS["timeless"] = Stream(StreamName("timeless"), COLUMNS)
STREAMS["changed"] = Stream(
    StreamName("changed"),
    COLUMNS,
    "ts",
    kind=StreamKind.CHANGES,
    changes=ChangeFormat(operation=None),
)


def parsed(sql: str, dialect: str = "spark") -> JoinQuery:
    return parse_sql("q", to_spark(sql, dialect, STREAMS), STREAMS)


def asof(sql: str, dialect: str = "spark") -> tuple[JoinQuery, OuterJoin]:
    query = parsed(sql, dialect)
    outer = query.outer
    assert outer is not None
    assert outer.nearest is not None
    assert outer.kept
    assert codec.loads(codec.dumps(outer), OuterJoin) == outer
    return query, outer


def conditions(sql: str, dialect: str = "spark") -> list[str]:
    """Return the bound conditions over the streams' columns."""
    query, outer = asof(sql, dialect)
    below = {o.name: str(o.expr) for part in query.planned for o in part.projection}
    found = []
    for text in map(str, outer.conditions):
        for name, expr in sorted(below.items(), reverse=True):
            text = text.replace(name, expr)
        found.append(text)
    return found


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("spark", "SELECT a.v, b.v AS w FROM a ASOF JOIN b ON a.k = b.k AND b.ts <= a.ts"),
        ("duckdb", "SELECT a.v, b.v AS w FROM a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts"),
        ("duckdb", "SELECT a.v, b.v AS w FROM a ASOF JOIN b USING (k, ts)"),
        ("clickhouse", "SELECT a.v, b.v AS w FROM a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts"),
        (
            "spark",
            "SELECT a.v, b.v AS w FROM a ASOF JOIN b MATCH_CONDITION (b.ts <= a.ts) USING (k)",
        ),
        ("spark", "SELECT a.v, b.v AS w FROM a JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k"),
    ],
)
def test_spellings(dialect: str, sql: str) -> None:
    assert conditions(sql, dialect) == ["(a.k = b.k)", "(a.ts >= b.ts)"]
    query, outer = asof(sql, dialect)
    assert outer.kind is JoinKind.INNER
    assert [m.alias for m in query.members] == ["b"]
    assert query.left is not None
    assert [m.alias for m in query.left.members] == ["a"]


def test_snowflake_keeps_all_left_rows() -> None:
    _, outer = asof(
        "SELECT a.v, b.v AS w FROM a ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k",
        "snowflake",
    )
    assert outer.kind is JoinKind.LEFT


def test_limits_and_filters() -> None:
    sql = (
        "SELECT a.v FROM a ASOF LEFT JOIN b ON a.k = b.k AND b.v > 3 AND a.v < 9 "
        "AND b.ts BETWEEN a.ts - INTERVAL '5' MINUTE AND a.ts"
    )
    query, outer = asof(sql)
    assert outer.nearest is not None
    assert len(outer.nearest.within) == 2
    assert [str(f) for f in query.relations[0].filter] == ["(v > 3)"]
    assert outer.nearest.side is NearestSide.GE


def test_left_rows_may_be_a_join_and_right_rows_too() -> None:
    query, _ = asof(
        "SELECT c.v FROM a JOIN c ON c.k = a.k "
        "ASOF JOIN (SELECT b.k, b.ts, b2.v FROM b JOIN b b2 ON b2.k = b.k) x "
        "ON x.k = a.k AND x.ts < a.ts"
    )
    assert query.left is not None
    assert sorted(m.alias for m in query.left.members) == ["a", "c"]
    assert sorted(m.alias for m in query.members) == ["x.b", "x.b2"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.v FROM a JOIN newest FOR SYSTEM_TIME AS OF a.ts AS n ON n.k = a.k",
        "SELECT a.v FROM a JOIN newest FOR SYSTEM_TIME AS OF PROCTIME() AS n ON n.k = a.k",
        "SELECT a.v FROM a JOIN rows FOR SYSTEM_TIME AS OF CURRENT_TIMESTAMP AS n ON n.k = a.k",
        "SELECT a.v FROM a ASOF JOIN newest n ON n.k = a.k AND n.ts <= a.ts",
    ],
)
def test_the_only_version_is_joined_plainly(sql: str) -> None:
    query = parsed(sql)
    assert query.outer is None
    assert [m.alias for m in query.members] == ["a", "n"]


def test_a_table_looked_up_as_of_now_keeps_left_rows() -> None:
    outer = parsed(
        "SELECT a.v, n.v AS w FROM a LEFT JOIN rows FOR SYSTEM_TIME AS OF a.ts AS n ON n.k = a.k"
    ).outer
    assert outer is not None
    assert (outer.kind, outer.kept, outer.nearest) == (JoinKind.LEFT, False, None)


def test_logical_plan() -> None:
    query, _ = asof("SELECT a.v, b.v AS w FROM a ASOF LEFT JOIN b ON a.k = b.k AND b.ts < a.ts")
    lines = to_text(logical_plan(query, STREAMS))
    assert "Join asof left a.k = b.k AND a.ts > b.ts" in lines


@pytest.mark.parametrize(
    ("join", "message", "remedy"),
    [
        ("ASOF JOIN b ON a.k = b.k", "with 0 comparisons of times", "MATCH_CONDITION"),
        ("ASOF JOIN b ON a.ts >= b.ts", "without an equality", "compare a key"),
        ("ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts AND a.v < b.v", "2 comparisons", "MATCH"),
        (
            "ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts AND a.v + b.v > 3",
            "the condition",
            "write it in WHERE",
        ),
        (
            "ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k AND b.v <= a.v",
            "the condition",
            "how far the nearest row is",
        ),
        ("ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts ASOF JOIN c ON a.k = c.k AND a.ts >= c.ts",
         "beside another", "register the first one"),
        ("ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts LEFT JOIN c ON a.k = c.k",
         "beside another", "register the first one"),
        ("ASOF JOIN rows r ON a.k = r.k AND a.ts >= r.ts", "no history", "write JOIN"),
        ("ASOF JOIN newest n ON a.v = n.v AND a.ts >= n.ts", "does not compare the key k",
         "compare it by ="),
        ("JOIN b FOR SYSTEM_TIME AS OF PROCTIME() ON a.k = b.k", "keeps all versions",
         "write a time of the left row"),
        ("JOIN b FOR SYSTEM_TIME AS OF a.v ON a.k = b.k", "is no", "event-time column"),
        ("JOIN changed FOR SYSTEM_TIME AS OF a.ts AS c ON a.k = c.k", "are replaced",
         "a version from its event time"),
        ("JOIN timeless FOR SYSTEM_TIME AS OF a.ts AS t ON a.k = t.k", "declares none",
         "declare event_time"),
        ("JOIN b VERSION AS OF 3 ON a.k = b.k", "VERSION AS OF 3", "FOR SYSTEM_TIME AS OF"),
        ("ASOF JOIN b MATCH_CONDITION (a.ts = b.ts) ON a.k = b.k", "syntax error",
         "check"),
    ],
)  # fmt: skip
def test_refusals(join: str, message: str, remedy: str) -> None:
    with pytest.raises(QueryError) as caught:
        parsed(f"SELECT a.v FROM a {join}")
    assert message in caught.value.message
    assert remedy in (caught.value.remedy or "")
    assert caught.value.position is not None
