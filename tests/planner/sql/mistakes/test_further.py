"""Tests that all independent errors of a statement are found, with their places."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql, read_sql
from anabranch_planner.sql.mistakes.further import read_whole

_COLUMNS = {"k": "int", "x": "double", "s": "string", "ts": "timestamp"}
STREAMS = {
    name: Stream(
        StreamName(name), tuple((c, parse_type(kind)) for c, kind in _COLUMNS.items()), "ts"
    )
    for name in ("R", "S")
}


def _read(sql: str | None) -> Any:
    return parse_sql("q", read_sql(sql or ""), STREAMS)


def _errors(sql: str) -> list[tuple[str, int, int]]:
    with pytest.raises(QueryError) as found:
        read_whole(sql, _read)
    errors = sorted((found.value, *found.value.others), key=lambda one: one.position or (0, 0))
    return [(one.code, *(one.position or (0, 0))) for one in errors]


@pytest.mark.parametrize(
    ("sql", "errors"),
    [
        (
            "SELECT foo, R.bar, k, baz AS q FROM R WHERE quux = 1 AND k > 1 AND R.y > 2",
            [("unknown-column", 1, at) for at in (8, 13, 23, 45, 68)],
        ),
        (
            "SELECT R.kk, uper(S.s) AS u\nFROM R\nJOIN S ON S.q = R.k\nWHERE R.a > 1 LIMIT 3",
            [
                ("unknown-column", 1, 8),
                ("unknown-function", 1, 14),
                ("unknown-column", 3, 11),
                ("unknown-column", 4, 7),
            ],
        ),
        (
            "SELECT R.kk, sum(R.xx) AS t FROM R GROUP BY R.kk HAVING sum(R.y) > 3",
            [("unknown-column", 1, at) for at in (8, 18, 61)],
        ),
        (
            "SELECT k + s AS a, upper(s, 1) AS b, x > ts AS c FROM R",
            [("type-mismatch", 1, 8), ("bad-arguments", 1, 20), ("type-mismatch", 1, 38)],
        ),
        (
            "SELECT q.a, q.z FROM (SELECT R.foo AS a, R.k FROM R) q WHERE q.a > 3 AND q.nope = 2",
            [("unknown-column", 1, at) for at in (13, 30, 74)],
        ),
        ("SELECT foo FROM R", [("unknown-column", 1, 8)]),
        (
            "SELECT k FROM R WHERE ts BETWEEN a AND ts AND b = 'x' AND CASE WHEN c THEN k END = 1",
            [("unknown-column", 1, at) for at in (34, 47, 69)],
        ),
        ("SELECT k FROM R WHERE a = 1 OR k > 2 AND b = 1", [("unknown-column", 1, 23)]),
    ],
)
def test_errors_of_independent_parts(sql: str, errors: list[tuple[str, int, int]]) -> None:
    assert _errors(sql) == errors


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        # Dependent errors: an item that reads a faulty one, a group without its key, a join without
        # its condition.
        ("SELECT a.f FROM (SELECT f FROM R) a", "unknown-column"),
        ("SELECT kk, x FROM R GROUP BY kk", "unknown-column"),
        ("SELECT k FROM R, S WHERE R.k = S.q", "unknown-column"),
        ("SELECT nope FROM R, T", "unknown-stream"),
        ("SELECT nope nope nope FROM R", "malformed-sql"),
    ],
)
def test_consequences_are_no_errors(sql: str, code: str) -> None:
    assert [one[0] for one in _errors(sql)] == [code]


def test_a_statement_without_errors_is_read_once() -> None:
    given = list[str | None]()

    def read(sql: str | None) -> Any:
        given.append(sql)
        return _read(sql)

    assert read_whole("SELECT k FROM R", read).id == "q"
    assert read_whole(None, lambda sql: sql) is None
    assert given == ["SELECT k FROM R"]


def test_further_errors_cross_processes_and_get_the_field() -> None:
    with pytest.raises(QueryError) as found:
        read_whole("SELECT foo, bar FROM R", _read)
    moved = pickle.loads(pickle.dumps(found.value)).moved(field="queries.1.sql")
    assert [one.field for one in (moved, *moved.others)] == ["queries.1.sql"] * 2


def test_all_unknown_streams_are_named() -> None:
    sql = (
        "WITH c AS (SELECT k FROM Q) SELECT T.foo FROM T JOIN c ON c.k = T.k\n"
        "LEFT JOIN V ON V.k = T.k WHERE T.k IN (SELECT k FROM W) AND EXISTS (SELECT 1 FROM T)"
    )
    places = [(1, 26), (1, 47), (2, 11), (2, 54)]
    assert _errors(sql) == [("unknown-stream", *place) for place in places]


def test_no_more_than_ten_errors() -> None:
    assert len(_errors(f"SELECT {', '.join(f'c{n}' for n in range(30))} FROM R")) == 10
