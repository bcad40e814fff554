"""Tests of the demo's oracle: it finds missing and surplus results, and knows which tuples each
query sees.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_client.replay.demo import demo_scenario
from anabranch_client.replay.oracle import Active, Comparison, compare
from anabranch_client.replay.player import schedule
from anabranch_client.replay.scenario import RecordedStream
from anabranch_client.replay.tpch import QUERIES, TABLES, DemoQuery, generate

PAIRS = DemoQuery("pairs", "a_id, b_id, price", "a JOIN b ON a_key = b_key", ("a", "b"))


def row(a: int, b: int) -> dict[str, object]:
    return {"a_id": a, "b_id": b, "price": Decimal(b)}


@pytest.fixture
def streams(tmp_path: Path) -> tuple[RecordedStream, ...]:
    """Two recorded streams of four rows, one per batch, which all join with each other."""
    tables = {
        "a": pa.table({"a_id": [0, 1, 2, 3], "a_key": [1] * 4}),
        "b": pa.table({
            "b_id": [0, 1, 2, 3],
            "b_key": [1] * 4,
            "price": pa.array([Decimal(n) for n in range(4)], pa.decimal128(9, 2)),
        }),
    }  # fmt: skip
    found = []
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
        found.append(RecordedStream(name, tmp_path / f"{name}.parquet", 1, 4, ()))
    return tuple(found)


def check(
    streams: tuple[RecordedStream, ...],
    folder: Path,
    active: Active | None,
    rows: list[dict[str, object]],
) -> Comparison:
    schema = pa.schema([("a_id", pa.int64()), ("b_id", pa.int64()), ("price", pa.decimal128(9, 2))])
    target = folder / "results" / "pairs"
    target.mkdir(parents=True)
    half = len(rows) // 2
    for part, some in enumerate((rows[:half], rows[half:])):
        pq.write_table(pa.Table.from_pylist(some, schema), target / f"{part}.parquet")
    return compare(streams, [(PAIRS, active)], folder / "results")["pairs"]


def test_everything_from_batch_0(streams: tuple[RecordedStream, ...], tmp_path: Path) -> None:
    rows = [row(a, b) for a in range(4) for b in range(4)]
    found = check(streams, tmp_path, Active(0, None, {"a": 0, "b": 0}), rows)
    assert found == Comparison(16, 16, 0, 0)
    assert found.match


def test_the_last_member_decides_and_members_have_to_be_visible(
    streams: tuple[RecordedStream, ...], tmp_path: Path
) -> None:
    """Query active in batches [2, 3); all of a is visible from batch 1 on, b only since the
    activation.
    """
    rows = [row(1, 2), row(2, 2)]
    assert check(streams, tmp_path, Active(2, 3, {"a": 1, "b": 2}), rows).match


def test_differences_are_counted_with_multiplicity(
    streams: tuple[RecordedStream, ...], tmp_path: Path
) -> None:
    rows = [row(0, 0), row(0, 0), row(0, 9)]
    found = check(streams, tmp_path, Active(0, 1, {}), rows)
    assert (found.results, found.expected, found.missing, found.surplus) == (3, 1, 0, 2)
    assert not found.match


def test_a_query_that_never_was_active_has_no_results(
    streams: tuple[RecordedStream, ...], tmp_path: Path
) -> None:
    assert check(streams, tmp_path, None, []).match


def test_the_tables_are_shuffled_complete_and_the_same_every_time(tmp_path: Path) -> None:
    first = generate(tmp_path / "1", 0.001, 15)
    second = generate(tmp_path / "2", 0.001, 15)
    assert [s.name for s in first] == list(TABLES)
    for one, other in zip(first, second, strict=True):
        table = pq.read_table(one.path)
        assert table.equals(pq.read_table(other.path))
        assert table.column_names == list(TABLES[one.name])
        assert one.batches <= 15
        keys = table[0].to_pylist()
        assert keys != sorted(keys)
    lineitem = next(s for s in first if s.name == "lineitem")
    assert lineitem.batches == 15
    assert dict(lineitem.columns)["l_quantity"].startswith("decimal(")
    assert dict(lineitem.columns)["l_shipdate"] == "date"


def test_every_demo_query_has_results_and_full_projections(tmp_path: Path) -> None:
    streams = generate(tmp_path, 0.001, 15)
    for query in QUERIES:
        (tmp_path / "results" / query.name).mkdir(parents=True)
        columns = [name.strip() for name in query.select.split(",")]
        assert len(set(columns)) == len(columns)
        empty = pa.table({name: pa.nulls(0) for name in columns})
        pq.write_table(empty, tmp_path / "results" / query.name / "0.parquet")
    active = Active(0, None, {})
    found = compare(streams, [(q, active) for q in QUERIES], tmp_path / "results")
    assert all(c.expected > 100 and c.missing == c.expected for c in found.values())


def test_the_demo_has_arrivals_a_departure_and_at_least_four_epochs(tmp_path: Path) -> None:
    stream = RecordedStream("region", tmp_path, 1, 20, ())
    scenario = demo_scenario((stream,), 20)
    assert scenario.batches // scenario.every >= 4
    calls = schedule(scenario)
    assert [q.name for q in calls[0].register] == ["q1", "q2", "q4"]
    assert [q.name for q in calls[6].register] == ["q3", "q5"]
    assert [q.name for q in calls[13].expire] == ["q1"]
