"""Tests of Delta tables as sources: a snapshot in parts of any size, then each commit once, losses
reported.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from anabranch_contract.protocol.intake import SnapshotProgress
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.loads import Load
from tests.runtime.sources.lake.tables import (
    CHANGES,
    FEED,
    UPSERTS,
    drain,
    feed,
    net,
    present,
    read,
    rows_of,
    write,
)


@pytest.mark.parametrize("parts", [[], ["p"]])
@pytest.mark.parametrize("rows", [1, 7, 10_000])
def test_a_snapshot_then_commits_are_read_once_whatever_the_size_of_batches(
    tmp_path: Path, rows: int, parts: list[str]
) -> None:
    write(tmp_path, 0, 20, partition_by=parts)
    write(tmp_path, 20, 45)
    source = feed(tmp_path)
    offset, batches = drain(source, None, rows)
    assert max(map(len, batches)) <= rows
    write(tmp_path, 45, 50).optimize.compact()
    write(tmp_path, 50, 53)
    again, more = drain(feed(tmp_path), offset, rows)
    assert sorted(a for batch in more for a, _, _ in batch) == list(range(45, 53))
    assert net(batches + more, None) == present(tmp_path)
    assert feed(tmp_path).waiting(again).rows == 0


def test_the_load_of_the_snapshot_ends_with_it_and_its_progress_is_known(tmp_path: Path) -> None:
    write(tmp_path, 0, 20)
    source = feed(tmp_path)
    found = source.waiting(None)
    write(tmp_path, 20, 25)
    assert (found.rows, found.snapshot) == (20, SnapshotProgress(20, 0))
    middle = source.advance(None, 5)
    assert source.waiting(middle).rows == 20
    assert source.waiting(middle).snapshot == SnapshotProgress(20, 5)
    first = source.load_end(middle, Load("s"))
    assert len(read(source, None, first)) == 20
    assert source.waiting(first).snapshot is None
    assert len(read(source, first, source.load_end(first, Load("s", 1)))) == 5


@pytest.mark.parametrize(("start", "expected"), [("latest", 13), ("2", 17), ("0", 0), ("1", 10)])
def test_reading_begins_at_a_stated_version(tmp_path: Path, start: str, expected: int) -> None:
    for first in (0, 10, 17):
        write(tmp_path, first, {0: 10, 10: 17, 17: 20}[first])
    source = feed(tmp_path, start=start)
    waits = source.waiting(None).rows
    write(tmp_path, 20, 22)
    found = [a for batch in drain(source, None, 3)[1] for a, _, _ in batch]
    if start == "latest":
        assert (waits, found) == (0, [20, 21])
    else:
        assert found == list(range(expected, 22))


def change(table: DeltaTable, chance: random.Random, top: int, changes: bool) -> int:
    """Commit a random operation of another program; return the least unused number."""
    low = chance.randrange(max(top, 1))
    kind = chance.choice(["append", "append", "compact", "checkpoint", *(["rewrite"] * changes)])
    if kind == "append":
        end = top + chance.randrange(1, 9)
        write_deltalake(table, rows_of(top, end), mode="append")
        return end
    if kind == "compact":
        table.optimize.compact()
    elif kind == "checkpoint":
        table.create_checkpoint()
    elif chance.random() < 0.4:
        table.delete(f"a >= {low} AND a < {low + 5}")
    elif chance.random() < 0.5:
        table.update({"p": "concat(coalesce(p, ''), '!')"}, predicate=f"a % 7 = {low % 7}")
    elif chance.random() < 0.7:
        merged = rows_of(low, top + 3)
        merger = table.merge(merged, "s.a = t.a", source_alias="s", target_alias="t")
        merger = merger.when_matched_delete(predicate="t.a % 5 = 0")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()
        return top + 3
    else:
        write_deltalake(table, rows_of(top, top + 4), mode="overwrite")
        return top + 4
    return top


@pytest.mark.parametrize("properties", [{}, FEED], ids=["rewrites", "change-feed"])
@pytest.mark.parametrize("changes", [None, CHANGES, UPSERTS], ids=["rows", "changes", "upserts"])
@pytest.mark.parametrize("seed", range(4))
def test_random_commits_between_batches_and_restarts_amount_to_the_table(
    tmp_path: Path, changes: ChangeFormat | None, properties: dict[str, str], seed: int
) -> None:
    chance = random.Random(seed)
    parts = chance.choice([[], ["p"]])
    table = write(tmp_path, 0, 12, partition_by=parts, configuration=properties)
    top, offset, batches, planned = 12, None, list[Any](), list[tuple[Any, Any]]()
    source = feed(tmp_path, changes)
    for _ in range(30):
        step = chance.random()
        if step < 0.4:
            table.update_incremental()
            top = change(table, chance, top, changes is not None)
        elif step < 0.5:
            source = feed(tmp_path, changes)
        elif source.waiting(offset).rows:
            end = json.loads(json.dumps(source.advance(offset, chance.randrange(1, 20))))
            planned.append((offset, end))
            batches.append(read(source, offset, end, chance.randrange(1, 4)))
            offset = end
    batches += drain(feed(tmp_path, changes), offset, 5)[1]
    assert net(batches, changes) == present(tmp_path)
    for (start, end), batch in zip(planned, batches, strict=False):
        assert read(feed(tmp_path, changes), start, end) == batch


@pytest.mark.parametrize("properties", [{}, FEED])
def test_a_small_commit_that_deletes_is_read_in_one_batch(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    table = write(tmp_path, 0, 30, configuration=properties)
    source = feed(tmp_path, CHANGES)
    offset, batches = drain(source, None, 7)
    table.update({"p": "'new'"}, predicate="a < 10")
    write(tmp_path, 30, 33)
    for version in (1, 2):
        assert source.waiting(offset).rows
        end = source.advance(offset, 1)
        batches.append(read(source, offset, end))
        assert net(batches, CHANGES) == present(tmp_path, version)
        offset = end


def test_files_that_vacuum_removed_before_they_were_read_are_an_error(tmp_path: Path) -> None:
    table = write(tmp_path, 0, 5)
    source = feed(tmp_path)
    assert source.waiting(None).rows == 5
    write(tmp_path, 5, 8)
    table = DeltaTable(str(tmp_path / "t"))
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(SourceError, match="VACUUM") as caught:
        read(source, None, source.advance(None, 10))
    assert caught.value.code == "missing-file"
    with pytest.raises(SourceError, match="VACUUM"):
        source.look(None)


def test_a_file_with_other_rows_than_its_table_says_is_damaged(tmp_path: Path) -> None:
    table = write(tmp_path, 0, 5)
    source = feed(tmp_path)
    source.waiting(None)
    log = next((tmp_path / "state" / "files").iterdir())
    log.write_text(log.read_text().replace(", 5, ", ", 4, "))
    again = feed(tmp_path)
    with pytest.raises(SourceError) as caught:
        read(again, None, again.advance(None, 10))
    assert caught.value.code == "damaged-file"
    with open(table.file_uris()[0], "ab") as file:
        file.write(b"x")
    with pytest.raises(SourceError) as caught:
        read(source, None, source.advance(None, 10))
    assert caught.value.code == "file-changed"
