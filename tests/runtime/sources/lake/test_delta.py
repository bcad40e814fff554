"""Tests of Delta tables that can't be read or followed: the error is named, and earlier versions
are read.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.lake.feed import TableFeed
from tests.runtime.sources.lake.tables import CHANGES, drain, feed, net, present, rows_of, write


def refused(source: TableFeed, offset: Any = None) -> str:
    """Return the code of the error that stops reading."""
    with pytest.raises(SourceError) as caught:
        source.waiting(offset)
    return caught.value.code


def test_a_version_that_is_not_there_yet_can_be_no_start(tmp_path: Path) -> None:
    write(tmp_path, 0, 3)
    assert refused(feed(tmp_path, start="2")) == "no-version"
    assert feed(tmp_path, start="1").waiting(None).rows == 0


def test_updates_stop_a_stream_whose_rows_only_insert_after_what_comes_before(
    tmp_path: Path,
) -> None:
    write(tmp_path, 0, 5)
    source = feed(tmp_path)
    offset, _ = drain(source, None, 10)
    write(tmp_path, 5, 8).update({"p": "'x'"}, predicate="a = 1")
    assert source.waiting(offset).rows == 3
    offset = source.advance(offset, 10)
    assert refused(source, offset) == "rows-removed"
    assert refused(feed(tmp_path, on_delete="skip"), offset) == "rows-removed"


def test_deletes_stop_a_stream_whose_rows_only_insert_or_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, 0, 5, partition_by=["p"])
    offset, _ = drain(feed(tmp_path), None, 10)
    DeltaTable(str(tmp_path / "t")).delete("p IS NULL")
    write(tmp_path, 5, 8)
    assert refused(feed(tmp_path), offset) == "rows-removed"
    _, batches = drain(feed(tmp_path, on_delete="skip"), offset, 10)
    assert [a for batch in batches for a, _, _ in sorted(batch)] == [5, 6, 7]


def test_commits_that_were_removed_before_they_were_read_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, 0, 5)
    offset, _ = drain(feed(tmp_path), None, 10)
    write(tmp_path, 5, 8)
    write(tmp_path, 8, 9).create_checkpoint()
    (tmp_path / "t" / "_delta_log" / f"{1:020d}.json").unlink()
    assert refused(feed(tmp_path), offset) == "versions-removed"


@pytest.mark.parametrize("commits", [1, 2, 5])
def test_another_table_in_its_place_is_an_error(tmp_path: Path, commits: int) -> None:
    for first in (0, 5):
        write(tmp_path, first, first + 5)
    offset, _ = drain(feed(tmp_path), None, 10)
    shutil.rmtree(tmp_path / "t")
    for first in range(commits):
        write(tmp_path, 100 + first, 101 + first)
    # A table with the same number of commits is noticed when it has more.
    if commits == 2:
        assert feed(tmp_path).waiting(offset).rows == 0
        write(tmp_path, 200, 201)
    assert refused(feed(tmp_path), offset) == "table-replaced"


def test_a_column_that_was_added_later_is_null_in_earlier_files(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), rows_of(0, 3).select(["a"]))
    assert refused(feed(tmp_path)) == "missing-column"
    write(tmp_path, 3, 6, schema_mode="merge")
    _, batches = drain(feed(tmp_path), None, 10)
    assert net(batches, None) == present(tmp_path)


def test_tables_that_need_more_of_a_reader_are_refused(tmp_path: Path) -> None:
    assert refused(feed(tmp_path)) == "no-table"
    write(tmp_path, 0, 3)
    offset, _ = drain(feed(tmp_path), None, 10)
    log = tmp_path / "t" / "_delta_log" / f"{1:020d}.json"
    vector = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    add = {"path": "x", "size": 1, "dataChange": True, "deletionVector": vector}
    for action in (
        {"protocol": {"minReaderVersion": 3, "readerFeatures": ["someday"]}},
        {"add": {**add, "partitionValues": {}}},
        {"add": {"path": "file:///elsewhere/x", "size": 1, "dataChange": True}},
        {"add": {"path": "p/%2E./../x", "size": 1, "dataChange": True}},
    ):
        log.write_text(json.dumps(action))
        assert refused(feed(tmp_path), offset) == "unsupported-table"
    log.write_text('{"add": {"path"')
    assert refused(feed(tmp_path), offset) == "unreadable-table"


def test_the_name_of_the_operation_must_be_free(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), pa.table({"a": [1], "p": ["x"], "op": ["y"]}))
    assert refused(feed(tmp_path, CHANGES)) == "operation-taken"
