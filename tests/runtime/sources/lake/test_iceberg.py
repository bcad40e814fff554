"""Tests of Iceberg tables as sources: a snapshot in parts of any size, then each later one once."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import DecimalType, DoubleType, FloatType, IntegerType, LongType

from anabranch_contract.protocol.intake import SnapshotProgress
from anabranch_contract.queries.changes import ChangeFormat
from tests.runtime.sources.lake.icebergs import Iceberg, feed
from tests.runtime.sources.lake.tables import CHANGES, UPSERTS, drain, net, read, rows_of


@pytest.mark.parametrize("parts", [(), ("p",)])
@pytest.mark.parametrize("rows", [1, 7, 10_000])
def test_a_snapshot_then_later_ones_are_read_once_whatever_the_size_of_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, parts: tuple[str, ...]
) -> None:
    lake = Iceberg(tmp_path, monkeypatch, parts)
    lake.add(0, 20)
    lake.add(20, 45)
    source = feed(tmp_path)
    assert source.waiting(None).snapshot == SnapshotProgress(45, 0)
    offset, batches = drain(source, None, rows)
    assert max(map(len, batches)) <= rows
    lake.add(45, 50)
    lake.rearrange()
    lake.add(50, 53)
    again, more = drain(feed(tmp_path), offset, rows)
    assert sorted(a for batch in more for a, _, _ in batch) == list(range(45, 53))
    assert net(batches + more, None) == lake.present()
    assert feed(tmp_path).waiting(again).rows == 0


@pytest.mark.parametrize("start", ["earliest", "latest", "0", "snapshot"])
def test_reading_begins_at_a_stated_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    lake = Iceberg(tmp_path, monkeypatch)
    for first in (0, 10, 20):
        lake.add(first, first + 10)
    begin = {"earliest": 0, "latest": 30, "0": 0, "snapshot": 10}[start]
    if start == "snapshot":
        start = str(lake.table.snapshots()[1].snapshot_id)
    source = feed(tmp_path, start=start)
    assert source.waiting(None).rows == 30 - begin
    lake.add(30, 32)
    found = [a for batch in drain(source, None, 3)[1] for a, _, _ in batch]
    assert found == list(range(begin, 32))


def test_a_table_without_snapshots_is_read_from_its_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Iceberg(tmp_path, monkeypatch)
    assert feed(tmp_path).waiting(None).rows == 0
    lake.add(0, 3)
    _, batches = drain(feed(tmp_path), None, 2)
    assert net(batches, None) == lake.present()


def change(lake: Iceberg, chance: random.Random, top: int, changes: bool) -> int:
    """Commit a random operation of another program; return the least unused number."""
    low = chance.randrange(max(top, 1))
    kind = chance.choice(["append", "append", "compact", *(["rewrite"] * 2 * changes)])
    if kind == "append":
        end = top + chance.randrange(1, 9)
        lake.add(top, end)
        return end
    if kind == "compact":
        lake.rearrange()
    elif chance.random() < 0.5:
        lake.delete_rows(low, low + chance.randrange(1, 6))
    elif chance.random() < 0.4:
        lake.table.delete(f"a >= {low} AND a < {low + 5}")
    elif chance.random() < 0.7:
        lake.table.upsert(rows_of(low, top + 3), join_cols=["a"])
        return top + 3
    else:
        lake.table.overwrite(rows_of(top, top + 4))
        return top + 4
    return top


@pytest.mark.parametrize("changes", [None, CHANGES, UPSERTS], ids=["rows", "changes", "upserts"])
@pytest.mark.parametrize("seed", range(3))
def test_random_commits_between_batches_and_restarts_amount_to_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: ChangeFormat | None, seed: int
) -> None:
    chance = random.Random(seed)
    lake = Iceberg(tmp_path, monkeypatch)
    lake.add(0, 12)
    top, offset, batches, planned = 12, None, list[Any](), list[tuple[Any, Any]]()
    lake.delete_rows(2, 4)
    source = feed(tmp_path, changes)
    for _ in range(25):
        step = chance.random()
        if step < 0.4:
            lake.table.refresh()
            top = change(lake, chance, top, changes is not None)
        elif step < 0.5:
            source = feed(tmp_path, changes)
        elif source.waiting(offset).rows:
            end = json.loads(json.dumps(source.advance(offset, chance.randrange(1, 20))))
            planned.append((offset, end))
            batches.append(read(source, offset, end, chance.randrange(1, 4)))
            offset = end
    batches += drain(feed(tmp_path, changes), offset, 5)[1]
    assert net(batches, changes) == lake.present()
    for (start, end), batch in zip(planned, batches, strict=False):
        assert read(feed(tmp_path, changes), start, end) == batch


def test_a_small_snapshot_that_deletes_is_read_in_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Iceberg(tmp_path, monkeypatch)
    lake.add(0, 30)
    source = feed(tmp_path, CHANGES)
    offset, batches = drain(source, None, 7)
    lake.delete_rows(3, 12)
    lake.delete_rows(10, 15)
    lake.table.delete("a < 20")
    for snapshot in lake.table.refresh().snapshots()[1:]:
        assert source.waiting(offset).rows
        end = source.advance(offset, 1)
        batches.append(read(source, offset, end))
        assert net(batches, CHANGES) == lake.present(snapshot.snapshot_id)
        offset = end
    assert source.waiting(offset).rows == 0


def test_columns_follow_their_ids_through_renames_and_additions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Iceberg(tmp_path, monkeypatch)
    lake.table.append(rows_of(0, 3))
    for changes in (("p", "old"), ("a", "p"), ("p", "x"), ("old", "a"), ("x", "p")):
        with lake.table.update_schema() as columns:
            columns.rename_column(*changes)
    with lake.table.update_schema() as columns:
        columns.delete_column("a")
        columns.rename_column("p", "a")
    with lake.table.update_schema() as columns:
        columns.add_column("p", LongType())
    lake.table.append(pa.table({"a": [3, 4], "p": [7, 8]}))
    _, batches = drain(feed(tmp_path), None, 2)
    # The stream's type of ``p`` is string.
    found = {(a, p) for batch in batches for a, p, _ in batch}
    assert found == {(0, None), (1, None), (2, None), (3, "7"), (4, "8")}


@pytest.mark.parametrize(
    ("first", "then", "p", "values"),
    [
        (IntegerType(), LongType(), "bigint", (1, 3_000_000_000)),
        (FloatType(), DoubleType(), "double", (0.5, 0.1)),
        (
            DecimalType(4, 2),
            DecimalType(12, 2),
            "decimal(12,2)",
            (Decimal("1.25"), Decimal("1234567890.12")),
        ),
    ],
)
def test_a_column_that_was_widened_later_is_read_with_its_wider_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Any, then: Any, p: str, values: Any
) -> None:
    lake = Iceberg(tmp_path, monkeypatch)
    with lake.table.update_schema() as columns:
        columns.delete_column("p")
    with lake.table.update_schema() as columns:
        columns.add_column("p", first)
    lake.table.append(pa.table({"a": [0], "p": pa.array(values[:1], schema_to_pyarrow(first))}))
    offset, batches = drain(feed(tmp_path, p=p), None, 2)
    with lake.table.update_schema() as columns:
        columns.update_column("p", then)
    lake.table.append(pa.table({"a": [1], "p": pa.array(values[1:], schema_to_pyarrow(then))}))
    _, more = drain(feed(tmp_path, p=p), offset, 2)
    assert [row for batch in batches + more for row in batch] == [
        (0, values[0], 1),
        (1, values[1], 1),
    ]
    # As after a restart without a state: both kinds of delete files at once.
    assert net(drain(feed(tmp_path / "again", p=p), None, 9)[1], None) == lake.present()
