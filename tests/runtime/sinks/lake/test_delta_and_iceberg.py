"""Tests of lake tables (Delta, Iceberg) as sinks: each batch once, whatever is repeated, concurrent
or removed.
"""

from __future__ import annotations

import importlib
import sys
import threading
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from anabranch_runtime.errors import SinkError
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.lake import iceberg
from anabranch_runtime.sources.lake.library import catalog_of
from tests.support.surroundings.catalogs import TOKEN, rest_catalog
from tests.support.surroundings.deliveries import staged
from tests.support.surroundings.lakes import FORMATS, Lake
from tests.support.surroundings.s3 import BUCKET, s3_server

TYPED = pa.record_batch(
    {
        "id": pa.array([1, 2], pa.int64()),
        "small": pa.array([3, None], pa.int8()),
        "price": pa.array([Decimal("1.50"), Decimal("-2.25")], pa.decimal128(12, 2)),
        "wide": pa.array([Decimal("9" * 36 + ".99"), None], pa.decimal128(38, 2)),
        "name": ["a,b", None],
        "day": pa.array([date(2026, 1, 31), None], pa.date32()),
        "ts": pa.array([datetime(2026, 1, 31, 12, 0, 0, 7, UTC), None], pa.timestamp("us", "UTC")),
        "plain": pa.array([1_769_860_800_000_007, None], pa.timestamp("us")),
        "bytes": pa.array([b"\x00\xff", None], pa.binary()),
        "ok": [True, None],
        "f": pa.array([1.5, float("inf")], pa.float32()),
        "list": pa.array([[1, None], None], pa.list_(pa.int16())),
        "struct": pa.array([{"a": 1, "b": [{"c": "x"}]}, None]),
        "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
)


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(values, pa.int64()), "s": [str(v) for v in values]})


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return Lake(request.param, tmp_path / "lake").configured(monkeypatch)


def values(lake: Lake) -> list[int]:
    return sorted(lake.read()["x"].to_pylist())


def module(lake: Lake) -> Any:
    return importlib.import_module(f"anabranch_runtime.sinks.lake.{lake.form}")


def test_a_batch_that_comes_again_adds_nothing(lake: Lake, tmp_path: Path) -> None:
    to = lake.sink()
    for _ in range(2):
        lake.commit(staged(tmp_path, "q", to, 0, rows(1, 2), rows(3)))
    lake.commit(staged(tmp_path, "q", to, 5, rows(4, 4)))
    for batch, part in ((0, rows(3, 2, 1)), (5, rows(4, 4))):
        lake.commit(staged(tmp_path, "q", to, batch, part))
    assert values(lake) == [1, 2, 3, 4, 4]
    # Other queries have separate batch numbers.
    lake.commit(staged(tmp_path, "p", to, 0, rows(10)), "other")
    assert values(lake) == [1, 2, 3, 4, 4, 10]


def overtaken(
    lake: Lake, patch: pytest.MonkeyPatch, delivery: Delivery, *by: pa.RecordBatch | Delivery
) -> None:
    """Commit ``delivery``; when it has read the table, others commit ``by`` first."""
    room, waiting = module(lake), list(by)
    opened = room._opened

    def overtaking(*given: Any) -> Any:
        table = opened(*given)
        patch.setattr(room, "_opened", opened)
        while waiting:
            one = waiting.pop(0)
            if isinstance(one, Delivery):
                lake.commit(one)
            else:
                lake.add(one)
        return table

    patch.setattr(room, "_opened", overtaking)
    lake.commit(delivery)
    assert not waiting


def test_a_process_that_was_given_up_commits_nothing_twice(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = lake.sink()
    # The first commit creates the table.
    for batch in range(3):
        one = staged(tmp_path, "q", to, batch, rows(2 * batch, 2 * batch + 1))
        again = staged(tmp_path / "again", "q", to, batch, rows(2 * batch + 1), rows(2 * batch))
        overtaken(lake, monkeypatch, again, one)
        assert values(lake) == list(range(2 * batch + 2))


def test_commits_of_others_in_between_are_kept(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = lake.sink()
    lake.commit(staged(tmp_path, "q", to, 0, rows(1)))
    one, again = (staged(tmp_path / n, "q", to, 1, rows(2)) for n in ("one", "again"))
    overtaken(lake, monkeypatch, again, rows(100), one)
    overtaken(lake, monkeypatch, staged(tmp_path, "q", to, 2, rows(3)), rows(101), rows(102))
    assert values(lake) == [1, 2, 3, 100, 101, 102]


def test_processes_that_create_the_table_together_commit_once(lake: Lake, tmp_path: Path) -> None:
    start, done = threading.Barrier(4), list[int]()

    def run(number: int) -> None:
        start.wait()
        for batch, part in enumerate((rows(1, 2), rows(3))):
            one = staged(tmp_path / str(number), "q", lake.sink(), batch, part)
            # The catalog's own tables are created by one process: others park their results, and
            # retry.
            for _ in range(20):
                with suppress(Exception):
                    lake.commit(one)
                    done.append(batch)
                    break

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0] * 4 + [1] * 4
    assert values(lake) == [1, 2, 3]


def test_all_types_of_results_come_back(lake: Lake, tmp_path: Path) -> None:
    lake.commit(staged(tmp_path, "q", lake.sink(), 0, TYPED))
    found = sorted(lake.read().to_pylist(), key=lambda row: row["id"])
    assert found == TYPED.to_pylist()
    if lake.form == "delta":
        assert pa.schema(DeltaTable(lake.path).schema().to_arrow()).field("small").type == pa.int8()


def test_new_columns_are_added_and_missing_ones_are_null(lake: Lake, tmp_path: Path) -> None:
    to = lake.sink()
    lake.commit(staged(tmp_path, "q", to, 0, rows(1)))
    wider = pa.record_batch({"n": pa.array([[7]], pa.list_(pa.int32())), "x": pa.array([2])})
    for _ in range(2):
        lake.commit(staged(tmp_path, "q~2", to, 1, wider), "w~2")
    lake.commit(staged(tmp_path, "q", to, 2, rows(3)))
    assert sorted(lake.read().to_pylist(), key=lambda row: row["x"]) == [
        {"x": 1, "s": "1", "n": None},
        {"x": 2, "s": None, "n": [7]},
        {"x": 3, "s": "3", "n": None},
    ]


@pytest.mark.parametrize(
    ("column", "values", "text"),
    [
        ("x", pa.array([1.5]), "the table's column is x bigint, the query's x double"),
        ("x", pa.array([1], pa.int32()), "the table's column is x bigint, the query's x int"),
        ("s", pa.array([1]), "the table's column is s string, the query's s bigint"),
        ("X", pa.array([1]), "the table's column is x bigint, the query's X bigint"),
    ],
)
def test_columns_of_other_types_are_refused(
    lake: Lake, tmp_path: Path, column: str, values: pa.Array, text: str
) -> None:
    lake.commit(staged(tmp_path, "q", lake.sink(), 0, rows(1)))
    other = pa.record_batch({"new": ["n"], column: values})
    with pytest.raises(SinkError, match=text) as caught:
        lake.commit(staged(tmp_path, "p", lake.sink(), 0, other), "p")
    assert (caught.value.code, bool(caught.value.remedy)) == ("table-differs", True)
    assert lake.read().column_names == ["x", "s"]


def test_partitions_batch_column_and_size_of_files(lake: Lake, tmp_path: Path) -> None:
    many = pa.record_batch(
        {
            "Part": pa.array([n % 2 for n in range(60_000)], pa.int16()),
            "x": pa.array(range(60_000), pa.int64()),
            "s": [f"{n * 7919 % 1_000_003:040d}" for n in range(60_000)],
        }
    )
    to = lake.sink(
        anabranch__partitionBy="Part",
        anabranch__batchColumn="origin",
        targetFileSize="100000",
        compression="zstd",
    )
    lake.commit(staged(tmp_path, "q", to, 7, many))
    found = lake.read()
    assert set(found["origin"].to_pylist()) == {"q/0000000007"}
    assert sorted(found["x"].to_pylist()) == list(range(60_000))
    assert lake.files() >= 4
    paths = [str(path) for path in lake.folder.rglob("*.parquet")]
    assert all("/Part=0/" in path or "/Part=1/" in path for path in paths)
    lake.commit(staged(tmp_path, "q", lake.sink(), 8, many.slice(0, 10)))
    assert len(lake.read()) == 60_010

    other = lake.sink(anabranch__partitionBy="x")
    with pytest.raises(SinkError, match="partitioned by part"):
        lake.commit(staged(tmp_path, "q", other, 9, many))


def test_a_table_that_was_removed_begins_again(lake: Lake, tmp_path: Path) -> None:
    lake.commit(staged(tmp_path, "q", lake.sink(), 0, rows(1)))
    lake.remove()
    for _ in range(2):
        lake.commit(staged(tmp_path, "q", lake.sink(), 1, rows(2)))
    assert values(lake) == [2]


def test_tables_are_read_by_duckdb(
    lake: Lake, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    to = lake.sink(anabranch__partitionBy="s")
    for batch in range(3):
        for _ in range(2):
            lake.commit(staged(tmp_path, "q", to, batch, rows(batch, batch + 10)))
    cache = tmp_path_factory.getbasetemp().parent / "duckdb-lake"
    expected = [[x, str(x)] for x in (0, 1, 2, 10, 11, 12)]
    assert lake.by_duckdb(cache, "x") == expected


@pytest.mark.parametrize("form", FORMATS)
def test_an_installation_without_the_libraries_says_what_to_install(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(form, tmp_path)
    for name in ("deltalake", "pyiceberg.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SinkError, match=r"install anabranch\[lake\]") as caught:
        lake.commit(staged(tmp_path, "q", lake.sink(), 0, rows(1)))
    assert caught.value.code == "no-library"


def test_the_past_of_a_delta_table_may_go(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path / "lake")
    for batch in range(4):
        lake.commit(staged(tmp_path, "q", lake.sink(), batch, rows(batch)))
    table = DeltaTable(lake.path)
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    table.create_checkpoint()
    for path in sorted(Path(lake.path, "_delta_log").glob("*.json"))[:-1]:
        path.unlink()
    for batch in (3, 2, 4):
        lake.commit(staged(tmp_path, "q", lake.sink(), batch, rows(batch)))
    assert values(lake) == list(range(5))


def test_old_snapshots_expire_and_batches_stay_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(iceberg._PROPERTIES, iceberg.SNAPSHOTS, "3")
    lake = Lake("iceberg", tmp_path / "lake").configured(monkeypatch)
    for batch in range(20):
        lake.commit(staged(tmp_path, "q", lake.sink(), batch, rows(batch)))
        table = lake.catalog.load_table("db.table")
        if batch == 1:
            table.manage_snapshots().create_tag(table.snapshots()[-1].snapshot_id, "kept").commit()
        assert len(table.snapshots()) <= 7
        lake.commit(staged(tmp_path, "q", lake.sink(), max(batch - 1, 0), rows(batch - 1)))
    assert values(lake) == list(range(20))
    assert table.scan().use_ref("kept").to_arrow()["x"].to_pylist() == [1, 0]
    metadata = list((tmp_path / "lake/warehouse/db/table/metadata").glob("*.metadata.json"))
    assert len(metadata) <= 22


def test_a_catalog_that_is_not_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake("iceberg", tmp_path / "lake").configured(monkeypatch)
    monkeypatch.delenv("PYICEBERG_CATALOG__LAKE__URI")
    monkeypatch.delenv("PYICEBERG_CATALOG__LAKE__TYPE")
    monkeypatch.delenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE")
    with pytest.raises(SinkError, match="no catalog lake") as caught:
        lake.commit(staged(tmp_path, "q", lake.sink(), 0, rows(1)))
    assert caught.value.code == "no-catalog"


def test_object_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as address:
        endpoint = f"http://{address}"
        settings = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }
        for name, text in settings.items():
            monkeypatch.setenv(name, text)
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": f"s3://{BUCKET}/warehouse",
            "s3__endpoint": endpoint,
        }
        for name, text in catalog.items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", text)
        catalog_of.cache_clear()
        for form in FORMATS:
            lake = Lake(form, tmp_path / "lake")
            monkeypatch.setattr(Lake, "path", f"s3://{BUCKET}/table")
            for batch in range(3):
                for _ in range(2):
                    lake.commit(staged(tmp_path, "q", lake.sink(), batch, rows(batch)))
            again = staged(tmp_path, "q", lake.sink(), 3, rows(3))
            overtaken(lake, monkeypatch, again, staged(tmp_path, "q", lake.sink(), 3, rows(3)))
            assert values(lake) == [0, 1, 2, 3]


def test_tables_of_a_rest_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake("iceberg", tmp_path / "lake").configured(monkeypatch)
    behind = lake.catalog
    with rest_catalog(behind) as address:
        for name in ("TYPE", "WAREHOUSE"):
            monkeypatch.delenv(f"PYICEBERG_CATALOG__LAKE__{name}")
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", address)
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TOKEN", TOKEN)
        to = lake.sink(anabranch__partitionBy="s")
        for batch in range(4):
            one = staged(tmp_path, "q", to, batch, rows(batch))
            again = staged(tmp_path / "again", "q", to, batch, rows(batch))
            others = [rows(100 + batch)] if batch else []
            overtaken(lake, monkeypatch, again, *others, one)
            lake.commit(one)
        assert values(lake) == [0, 1, 2, 3, 101, 102, 103]
