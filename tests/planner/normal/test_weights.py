"""Tests of queries over streams with inserts and deletes: a result's kind of change,
and refusals.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch_contract.errors import QueryError, StreamError
from anabranch_contract.queries.changes import TUPLE_WEIGHT, ChangeFormat
from anabranch_contract.queries.joins import Label, Stream, StreamKind, StreamName, needed_columns
from anabranch_contract.queries.views import WEIGHT
from anabranch_planner.normal import weights
from anabranch_planner.passes import parse_sql
from tests.support.cases.sample_streams import sample_streams

KNOWN = sample_streams()
R = replace(KNOWN["R"], kind=StreamKind.CHANGES, changes=ChangeFormat(), retain=None)
S = replace(R, name=KNOWN["S"].name)
STREAMS: dict[str, Stream] = {**KNOWN, "R": R, "S": S}
TABLE = replace(KNOWN["plain"], kind=StreamKind.TABLE, retain=None, latest=("k",))
LATEST = replace(KNOWN["T"], name=StreamName("latest"), latest=("k",))


def test_results_say_whether_they_are_inserted_or_deleted() -> None:
    query = parse_sql("q", "SELECT R.x FROM R JOIN S ON R.k = S.k JOIN T ON S.k = T.k", STREAMS)
    *_, last = query.projection
    assert (last.name, str(last.expr.type)) == ("anabranch_change", "string")
    product = "(cast(R.#weight as bigint) * cast(S.#weight as bigint))"
    assert str(last.expr) == f"CASE(({product} < 0), 'delete', 'insert')"
    assert TUPLE_WEIGHT in needed_columns(query, Label("S"))
    assert TUPLE_WEIGHT not in needed_columns(query, Label("T"))
    assert query.shown[-1] == last


def test_append_only_queries_are_as_before() -> None:
    sql = "SELECT T.*, u.name FROM T JOIN t AS u ON T.k = u.b"
    assert parse_sql("q", sql, STREAMS) == parse_sql("q", sql, KNOWN)


def test_star_and_names_do_not_reach_the_hidden_columns() -> None:
    shown = [o.name for o in parse_sql("q", "SELECT * FROM R", STREAMS).projection]
    assert shown == [*(c for c, _ in R.columns), "anabranch_change"]
    with pytest.raises(QueryError, match="there is no column '#weight'"):
        parse_sql("q", "SELECT `#weight` FROM R", STREAMS)


def test_a_query_over_one_retained_stream_reads_its_whole_store() -> None:
    query = parse_sql("q", "SELECT x FROM R WHERE x > 3", STREAMS)
    assert query.relations[0].filter == ()
    assert [str(r) for r in query.residuals] == ["(R.x > 3)"]
    passing = {**STREAMS, "R": replace(R, retain=0)}
    query = parse_sql("q", "SELECT x FROM R WHERE x > 3", passing)
    assert [str(f) for f in query.relations[0].filter] == ["(x > 3)"]


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT R.x, l.v FROM R JOIN latest AS l ON R.k = l.k", "changes-beside-latest"),
        (
            "SELECT R.x FROM R JOIN latest FOR SYSTEM_TIME AS OF PROCTIME() AS l ON R.k = l.k",
            "changes-beside-latest",
        ),
        (
            "SELECT R.x FROM R JOIN plain FOR SYSTEM_TIME AS OF PROCTIME() AS p ON R.k = p.k",
            "unsupported-sql",
        ),
        ("SELECT R.x AS anabranch_change FROM R", "duplicate-name"),
    ],
)
def test_what_is_refused_over_changes(sql: str, code: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse_sql("q", sql, {**STREAMS, "plain": TABLE, "latest": LATEST})
    assert refused.value.code == code
    assert refused.value.remedy


def test_joined_rows_below_a_post_join_part_carry_the_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weights, "check", lambda *_: None)
    query = parse_sql("q", "SELECT R.x, count(*) FROM R JOIN S ON R.k = S.k GROUP BY R.x", STREAMS)
    *_, last = query.projection
    assert (last.name, str(last.expr.type)) == (WEIGHT, "bigint")


@pytest.mark.parametrize(
    "change",
    [
        {"changes": None},
        {"kind": StreamKind.STREAM},
        {"latest": ("k",)},
        {"columns": ((TUPLE_WEIGHT, R.columns[0][1]), *R.columns)},
    ],
)
def test_streams_that_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(StreamError) as refused:
        replace(R, **change)  # type: ignore[arg-type]
    assert refused.value.remedy
