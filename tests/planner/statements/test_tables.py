"""Statements that read tables: time bounds, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch_contract.errors import QueryError, StreamError
from anabranch_contract.queries.joins import StreamKind
from anabranch_planner.passes import parse_sql
from tests.support.cases.states import MINUTE, R, S, stream

TABLE = replace(stream("T", "b", timed=False), kind=StreamKind.TABLE, retain=None)
PLAIN = stream("P", "b", timed=False)
STREAMS = {"R": R, "S": S, "T": TABLE, "P": PLAIN}
LOOK_UP = "SELECT R.a, T.b FROM R JOIN S ON R.a = S.a JOIN T ON T.b = S.b"
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


@pytest.mark.parametrize(
    ("sql", "window", "code"),
    [
        ("SELECT T.b FROM T", None, "tables-only"),
        ("SELECT x.b FROM T x JOIN T y ON x.b = y.b", None, "tables-only"),
        ("SELECT S.a, T.b FROM S LEFT JOIN T ON T.b = S.b", None, "outer-join-of-table"),
        ("SELECT S.a FROM S LEFT ANTI JOIN T ON T.b = S.b", None, "outer-join-of-table"),
        (
            "SELECT R.a FROM R JOIN T ON T.b = R.a LEFT JOIN S ON S.a = R.a",
            None,
            "outer-join-of-table",
        ),
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
