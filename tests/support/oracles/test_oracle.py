"""Tests of the oracle of replays, with scenarios small enough to compute results by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.protocol.activations import Activation, Visibility
from tests.support.oracles.oracle import Comparison, Oracle, OracleQuery, StreamCounts, from_spark
from tests.support.scenarios.file import QueryEntry, Scenario, StreamEntry
from tests.support.worlds.replay_check import filtered

MINUTE = 60_000_000
ALL = Activation(0, {})
NONE = QueryEntry("", None, 0, None)


def minutes(*values: float | None) -> pa.Array:
    start = datetime(1970, 1, 1, tzinfo=UTC)
    times = [None if v is None else start + timedelta(minutes=v) for v in values]
    return pa.array(times, pa.timestamp("us", tz="UTC"))


def make(folder: Path, *, per_batch: int = 1, lateness: int | None = None, **tables: Any) -> Oracle:
    """Return an oracle over ``tables``; a column ``ts`` is the event time."""
    streams = {}
    for name, columns in tables.items():
        path = folder / f"{name}.parquet"
        pq.write_table(pa.table(columns), path)
        streams[name] = StreamEntry(path, "ts" if "ts" in columns else None, lateness, per_batch)
    return Oracle(Scenario(streams, {}, 2))


def pair(*where: str, select: str = "a.id, b.id") -> OracleQuery:
    items = tuple((text.strip(), None, False) for text in select.split(","))
    return OracleQuery((("a", "s"), ("b", "t")), items, where or ("a.k = b.k",))


def ids(oracle: Oracle, query: OracleQuery, **how: Any) -> list[tuple[object, ...]]:
    entry, activation = how.get("entry", NONE), how.get("activation", ALL)
    return sorted(oracle.rows(query, entry, activation), key=repr)


@pytest.fixture
def five(tmp_path: Path) -> Oracle:
    """An oracle with s at minutes 0 10 2 - 11, t at minutes 0..4, one row a batch, all of
    one key.
    """
    return make(
        tmp_path,
        lateness=5 * MINUTE,
        s={"id": range(5), "k": [1] * 5, "ts": minutes(0, 10, 2, None, 11)},
        t={"id": range(5), "k": [1] * 5, "ts": minutes(0, 1, 2, 3, 4)},
    )


def test_late_and_invalid_rows_are_counted_and_join_with_nothing(five: Oracle) -> None:
    # The watermark before row 2 is 10 - 5: minute 2 is late. Row 3 has no event time.
    assert five.counts("s") == StreamCounts(rows=5, late=1, invalid=1)
    assert five.counts("t") == StreamCounts(rows=5, late=0, invalid=0)
    assert {a for a, _ in ids(five, pair())} == {0, 1, 4}
    assert five.batches() == 5


def test_a_late_row_still_moves_the_watermark_and_its_own_batch_does_not_count(
    tmp_path: Path,
) -> None:
    oracle = make(
        tmp_path,
        per_batch=2,
        lateness=0,
        s={"id": range(6), "ts": minutes(9, 1, 10, 5, 9.5, 10)},
    )
    # Row 1 is in the batch with the greatest time so far; rows 3 and 4 come after it.
    query = OracleQuery((("a", "s"),), (("a.id", "id", True),), ())
    assert oracle.counts("s") == StreamCounts(rows=6, late=2, invalid=0)
    assert ids(oracle, query) == [(0,), (1,), (2,), (5,)]


def test_a_result_belongs_to_the_batch_of_its_last_member(five: Oracle) -> None:
    span = Activation(1, {}, expired_batch=4)
    found = ids(five, pair(), activation=span)
    assert found == [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]


def test_visible_from_hides_what_came_before_it(five: Oracle) -> None:
    # Before the activation in batch 3, rows of t are visible from batch 1 and minute 2 on.
    span = Activation(3, {"a": Visibility(0, None), "b": Visibility(1, 2 * MINUTE)})
    assert ids(five, pair(), activation=span) == [
        (0, 3),
        (0, 4),
        (1, 3),
        (1, 4),
        (4, 2),
        (4, 3),
        (4, 4),
    ]


def test_a_window_bounds_what_comes_after_its_alias(five: Oracle) -> None:
    both = QueryEntry("", 2 * MINUTE, 0, None)
    assert ids(five, pair(), entry=both) == [(0, 0), (0, 1), (0, 2)]
    # t is at most 2 minutes after s; s may be any time after t.
    one = QueryEntry("", {"a": 2 * MINUTE}, 0, None)
    assert len(ids(five, pair(), entry=one)) == 3 + 5 + 5
    condition = pair("a.k = b.k", "a.ts BETWEEN b.ts - INTERVAL '1' MINUTE AND b.ts")
    assert ids(five, condition) == [(0, 0), (0, 1)]


def test_keys_compare_as_sql_says(tmp_path: Path) -> None:
    nan = float("nan")
    oracle = make(
        tmp_path,
        s={"id": range(4), "k": pa.array([1, 2, None, 3], pa.int8()), "x": [nan, -0.0, None, 1.5]},
        t={
            "id": range(4),
            "k": pa.array([Decimal("2.00"), Decimal("1.50"), None, Decimal("3.00")]),
            "x": pa.array([0.0, nan, None, 2.5], pa.float32()),
        },
    )
    assert ids(oracle, pair()) == [(1, 0), (3, 3)]
    assert ids(oracle, pair("a.x = b.x")) == [(0, 1), (1, 0)]


def _compare(oracle: Oracle, folder: Path, table: pa.Table) -> Comparison:
    results = folder / "results"
    results.mkdir(exist_ok=True)
    pq.write_table(table, results / "part-0.parquet")
    query = OracleQuery(
        (("a", "s"), ("b", "s")), (("a.x", "x", True), ("b.k", "k", True)), ("a.k = b.k",)
    )
    return oracle.compare(query, NONE, ALL, results)


def test_comparison_is_of_multisets_and_says_what_differs(tmp_path: Path) -> None:
    nan = float("nan")
    oracle = make(tmp_path, s={"k": pa.array([1, 1, 2], pa.int32()), "x": [nan, None, -0.0]})
    k = pa.array([2, 1, 1, 1, 1], pa.int32())
    right = pa.table({"x": [0.0, nan, nan, None, None], "k": k})
    assert _compare(oracle, tmp_path, right) == Comparison(5, 5, ())
    (lost,) = _compare(oracle, tmp_path, right.slice(0, 4)).problems
    assert lost == "1 missing, such as (None, 1)"
    (doubled,) = _compare(oracle, tmp_path, pa.concat_tables([right, right.slice(1, 1)])).problems
    assert doubled == "1 extra, such as (nan, 1)"
    (kind,) = _compare(oracle, tmp_path, right.set_column(1, "k", k.cast(pa.int64()))).problems
    assert kind == "column k is of type BIGINT, not INTEGER"
    named = right.rename_columns(["y", "k"])
    assert _compare(oracle, tmp_path, named).problems == ("column a.x is named y, not x",)


def test_an_empty_result_must_be_there(tmp_path: Path) -> None:
    oracle = make(tmp_path, s={"k": [1], "x": [1.0]})
    query = OracleQuery((("a", "s"),), (("a.x", "x", True),), ())
    missing = oracle.compare(query, NONE, None, tmp_path / "none")
    assert missing.problems == (f"no Parquet file in {tmp_path / 'none'}",)
    (tmp_path / "empty").mkdir()
    pq.write_table(pa.table({"x": pa.array([], pa.float64())}), tmp_path / "empty" / "a.parquet")
    assert oracle.compare(query, NONE, None, tmp_path / "empty") == Comparison(0, 0, ())


def test_spark_sql_is_taken_apart() -> None:
    columns = {"s": ["id", "k"], "t": ["id", "k"]}
    query = from_spark(
        "SELECT a.*, b.id AS other, upper(b.k) FROM s a JOIN t b ON a.k = b.k WHERE a.id > 1",
        columns,
    )
    assert query.members == (("a", "s"), ("b", "t"))
    assert [name for _, name, _ in query.select] == ["id", "k", "other", None]
    assert query.where == ("a.k = b.k", "a.id > 1")
    using = from_spark("SELECT k FROM s JOIN t USING (k)", columns)
    assert using.where == ("s.k = t.k",)
    assert using.select == (("s.k", "k", True),)


def test_filtered_aliases_are_found() -> None:
    assert filtered(pair("a.k = b.k", "a.v < b.v")) == frozenset()
    assert filtered(pair("a.k = b.k", "b.v > 1")) == {"b"}
    assert filtered(pair("a.k = b.k", "a.m = b.k")) == {"a"}
