"""Tests of Iceberg tables that can't be read or followed: the error is named, and earlier versions
are read.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.lake.feed import TableFeed, lake_table
from anabranch_runtime.sources.lake.library import catalog_of, files_of
from tests.runtime.sources.lake.icebergs import Iceberg, feed
from tests.runtime.sources.lake.tables import CHANGES, drain, net, read, rows_of
from tests.support.surroundings.s3 import BUCKET, s3_server


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iceberg:
    """An Iceberg table of five rows."""
    made = Iceberg(tmp_path, monkeypatch)
    made.add(0, 5)
    return made


def refused(source: TableFeed, offset: Any = None) -> str:
    """Return the code of the error that stops reading."""
    with pytest.raises(SourceError) as caught:
        source.waiting(offset)
    assert caught.value.remedy
    return caught.value.code


def test_deletes_stop_a_stream_whose_rows_only_insert_or_are_left_out(lake: Iceberg) -> None:
    offset, _ = drain(feed(lake.home), None, 10)
    lake.add(5, 7)
    lake.delete_rows(1, 3)
    lake.add(7, 9)
    source = feed(lake.home)
    assert source.waiting(offset).rows == 2
    assert refused(source, source.advance(offset, 10)) == "rows-removed"
    _, batches = drain(feed(lake.home, on_delete="skip"), offset, 10)
    assert sorted(a for batch in batches for a, _, _ in batch) == [5, 6, 7, 8]


def test_updates_stop_a_stream_whose_rows_only_insert(lake: Iceberg) -> None:
    offset, _ = drain(feed(lake.home), None, 10)
    lake.table.delete("a = 1")
    assert refused(feed(lake.home, on_delete="skip"), offset) == "rows-removed"


@pytest.mark.parametrize("dropped", [1, 2])
def test_snapshots_that_expired_before_they_were_read_are_an_error(
    lake: Iceberg, dropped: int
) -> None:
    offset, _ = drain(feed(lake.home), None, 10)
    for first in (5, 10, 15):
        lake.add(first, first + 5)
    gone = [one.snapshot_id for one in lake.table.refresh().snapshots()[:dropped]]
    lake.table.maintenance.expire_snapshots().by_ids(gone).commit()
    if dropped == 2:
        assert refused(feed(lake.home), offset) == "versions-removed"
        return
    # The snapshot that was read is not needed any more.
    assert len([row for batch in drain(feed(lake.home), offset, 10)[1] for row in batch]) == 15


def test_a_rewrite_after_an_expired_snapshot_is_an_error(lake: Iceberg) -> None:
    offset, _ = drain(feed(lake.home, CHANGES), None, 10)
    lake.delete_rows(0, 2)
    read_one = lake.table.refresh().snapshots()[0].snapshot_id
    lake.table.maintenance.expire_snapshots().by_ids([read_one]).commit()
    assert refused(feed(lake.home, CHANGES), offset) == "versions-removed"


def test_another_table_or_an_earlier_snapshot_in_its_place_is_an_error(lake: Iceberg) -> None:
    lake.add(5, 8)
    offset, _ = drain(feed(lake.home), None, 10)
    first = lake.table.refresh().snapshots()[0].snapshot_id
    lake.table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert refused(feed(lake.home), offset) == "table-replaced"
    lake.add(8, 10)
    assert refused(feed(lake.home), offset) == "table-replaced"
    lake.drop()
    assert refused(feed(lake.home), offset) == "no-table"
    lake.create()
    lake.add(0, 8)
    assert refused(feed(lake.home), offset) == "table-replaced"


def test_files_that_were_removed_before_they_were_read_are_an_error(lake: Iceberg) -> None:
    source = feed(lake.home)
    assert source.waiting(None).rows == 5
    (task,) = lake.table.scan().plan_files()
    file = Path(task.file.file_path.removeprefix("file://"))
    content = file.read_bytes()
    file.write_bytes(content + b"x")
    with pytest.raises(SourceError) as caught:
        read(source, None, source.advance(None, 10))
    assert caught.value.code == "file-changed"
    file.unlink()
    for action in (lambda: source.look(None), lambda: read(source, None, source.advance(None, 9))):
        with pytest.raises(SourceError) as caught:
            action()
        assert caught.value.code == "missing-file"


def test_files_of_deletes_that_are_gone_are_an_error(lake: Iceberg) -> None:
    lake.delete_rows(0, 2)
    source = feed(lake.home)
    offset = source.advance(None, source.waiting(None).rows)
    assert [a for a, _, _ in read(source, None, offset)] == [2, 3, 4]
    (gone,) = lake.home.glob("deletes-*")
    gone.unlink()
    with pytest.raises(SourceError, match=gone.name) as caught:
        read(source, None, offset)
    assert caught.value.code == "missing-file"


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ({"content": DataFileContent.EQUALITY_DELETES, "equality_ids": [1]}, "equality deletes"),
        ({"file_format": FileFormat.PUFFIN}, "deletion vectors"),
    ],
)
def test_tables_that_need_more_of_a_reader_are_refused(
    lake: Iceberg, kind: dict[str, Any], what: str
) -> None:
    offset, _ = drain(feed(lake.home, CHANGES), None, 10)
    lake.delete_rows(0, 2, **kind)
    for at in (offset, None):
        with pytest.raises(SourceError, match=what) as caught:
            feed(lake.home, CHANGES).waiting(at)
        assert caught.value.code == "unsupported-table"
        shutil.rmtree(lake.home / "state")


def test_columns_that_are_missing_or_taken_are_an_error(lake: Iceberg) -> None:
    with lake.table.update_schema() as columns:
        columns.rename_column("p", "op")
    assert refused(feed(lake.home)) == "missing-column"
    with lake.table.update_schema() as columns:
        columns.rename_column("op", "p")
    with lake.table.update_schema() as columns:
        columns.union_by_name(rows_of(0, 0).rename_columns(["a", "op"]).schema)
    assert refused(feed(lake.home, CHANGES)) == "operation-taken"


def test_catalogs_and_starts_that_do_not_exist_are_an_error(
    lake: Iceberg, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refused(feed(lake.home, start="17")) == "no-version"
    assert refused(feed(lake.home, table="nowhere.db.t")) == "no-catalog"
    with pytest.raises(SourceError):
        lake_table(feed(lake.home, table="nowhere.db.t").record).look()
    lake_table(feed(lake.home).record).look()
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "sqlite:////nowhere/catalog.db")
    catalog_of.cache_clear()
    assert refused(feed(lake.home)) == "unreadable-table"


def test_values_of_partitions_that_files_lack_come_from_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Iceberg(tmp_path, monkeypatch, ("p",))
    place = tmp_path / "old.parquet"
    pq.write_table(rows_of(0, 4).select(["a"]), place)
    with lake.table.transaction() as change, change.update_snapshot().fast_append() as writer:
        writer.append_data_file(
            DataFile.from_args(
                _table_format_version=2,
                content=DataFileContent.DATA,
                file_path=f"file://{place}",
                file_format=FileFormat.PARQUET,
                partition=Record("p 0/ü"),
                record_count=4,
                file_size_in_bytes=place.stat().st_size,
            )
        )
    _, batches = drain(feed(tmp_path), None, 3)
    assert [row[:2] for batch in batches for row in batch] == [(a, "p 0/ü") for a in range(4)]


def test_tables_in_an_object_store_are_read_by_the_settings_of_their_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server() as address:
        settings = {
            "S3__ENDPOINT": f"http://{address}",
            "S3__ACCESS_KEY_ID": "key",
            "S3__SECRET_ACCESS_KEY": "secret",
            "S3__REGION": "us-east-1",
            "WAREHOUSE": f"s3://{BUCKET}/lake",
        }
        monkeypatch.setattr(
            "tests.support.surroundings.lakes.Lake.catalog_settings",
            lambda lake: {
                "type": "sql",
                "uri": f"sqlite:///{lake.folder}/catalog.db",
                **settings,
            },
        )
        files_of.cache_clear()
        lake = Iceberg(tmp_path, monkeypatch)
        lake.add(0, 20)
        source = feed(tmp_path)
        offset, batches = drain(source, None, 7)
        lake.add(20, 23)
        source.look(offset)
        offset, more = drain(source, offset, 7)
        assert net(batches + more, None) == lake.present()
        lake.add(23, 30)
        assert source.waiting(offset).rows == 7
        lake.table.io.delete(next(iter(lake.table.refresh().scan().plan_files())).file.file_path)
        after = source.advance(offset, 10)
    with pytest.raises(SourceError) as caught:
        read(source, offset, after)
    assert caught.value.code == "unreadable-file"
