"""Tests of samples of Delta tables, and of proposals made from them, over tables that ``deltalake``
writes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_service.settings import ServiceSettings
from tests.service.routes.test_source_tests_proposals import propose, registered, types
from tests.support.surroundings.lakes import Lake
from tests.support.worlds.service import Service, serving

ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "city": ["<b>", "x y/%20", "Köln", None],
        "at": pa.array([1, 2, 3, 4], pa.timestamp("us", "UTC")),
        "price": pa.array([None, "1.50", "2.25", "3.00"]).cast(pa.decimal128(10, 2)),
        "tags": pa.array([["a"], None, [], ["b", "c"]], pa.list_(pa.string())),
    }
)


def delta(path: Path) -> dict[str, Any]:
    return {"format": "delta", "path": str(path), "options": {"on_loss": "stop"}}


def written(path: Path, **more: Any) -> Path:
    write_deltalake(str(path), ROWS, **more)
    return path


@pytest.mark.parametrize("parts", [[], ["city"]])
def test_the_newest_version_is_sampled_and_proposed(
    service: Service, tmp_path: Path, parts: list[str]
) -> None:
    table = written(tmp_path / "table", partition_by=parts)
    # Rows of files that are no longer part of the table.
    DeltaTable(str(table)).delete("id = 3")
    write_deltalake(str(table), ROWS.slice(3), mode="append")
    found = propose(service, delta(table))
    assert (found["outcome"], found["invalid"], found["unit"]) == ("read", 0, "files")
    assert types(found) == {
        "id": "bigint", "city": "string", "at": "timestamp", "price": "decimal(10,2)",
        "tags": "array<string>",
    }  # fmt: skip
    kept = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert sorted(row["id"] for row in kept) == [1, 2, 4, 4]

    def comparable(row: dict[str, Any]) -> str:
        price = None if row["price"] is None else str(row["price"])
        return json.dumps([row["id"], row["city"], price, row["tags"]])

    assert sorted(map(comparable, found["rows"])) == sorted(map(comparable, kept))
    assert [one["column"] for one in found["event_times"]] == ["at"]
    made = registered(service, found)
    assert made["source"]["format"] == "delta"


def test_deletes_have_a_column_that_the_table_lacks(service: Service, tmp_path: Path) -> None:
    table = written(tmp_path / "table")
    found = propose(service, delta(table), kind="upsert")
    assert found["registration"]["key"] == ["id"]
    columns = {"id": "int", "price": "decimal(10,2)"}
    body = {"name": "sales", "columns": columns, "source": delta(table), "kind": "changes"}
    found = service.post("/v1/streams:test", body, 200)
    assert (found["outcome"], found["invalid"], found["sampled"]) == ("read", 0, 4)
    body["columns"] = {"id": "int", "gone": "int"}
    found = service.post("/v1/streams:test", body, 200)
    assert found["error"]["code"] == "missing-column"
    assert found["error"]["field"] == "columns.gone"


def test_what_is_no_table_is_said(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = propose(service, delta(tmp_path))
    assert (found["outcome"], found["error"]["code"]) == ("failed", "no-table")
    table = written(tmp_path / "table")
    for file in table.glob("*.parquet"):
        file.write_bytes(b"PAR1 or not")
    found = propose(service, delta(table))
    assert (found["error"]["code"], found["error"]["field"]) == ("unreadable-table", "source.path")
    (table / "_delta_log" / f"{1:020d}.json").write_text("{")
    assert propose(service, delta(table))["outcome"] == "failed"
    monkeypatch.setitem(sys.modules, "deltalake", None)
    found = propose(service, delta(table))
    assert found["outcome"] == "not tested"
    assert "anabranch[lake]" in found["limits"][0]


def test_links_out_of_the_permitted_folder_are_not_followed(
    settings: ServiceSettings, tmp_path: Path
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    linked, secret = written(inside / "linked"), written(outside / "secret")
    (file,) = linked.glob("*.parquet")
    file.rename(outside / file.name)
    file.symlink_to(outside / file.name)
    (inside / "log").mkdir()
    (inside / "log" / "_delta_log").symlink_to(secret / "_delta_log")
    policy = AccessPolicy(paths=(str(inside),), formats=frozenset({"delta"}))
    with serving(settings.changed(access=policy)) as service:
        found = propose(service, delta(linked))
        assert found["rows"] == []
        assert "not permitted" in found["limits"][0]
        found = propose(service, delta(inside / "log"))
        assert found["error"]["code"] == "path-not-permitted"
        propose(service, delta(secret), 422)


def test_an_iceberg_table_is_sampled_and_proposed(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake("iceberg", tmp_path).configured(monkeypatch)
    source = {"format": "iceberg", "options": {"table": "lake.db.table"}}
    found = propose(service, source)
    assert (found["outcome"], found["error"]["code"]) == ("failed", "no-table")
    assert found["error"]["field"] == "source.options.table"
    lake.catalog.create_namespace("db")
    table = lake.catalog.create_table("db.table", schema=ROWS.schema)
    empty = propose(service, source)
    assert (empty["outcome"], types(empty)["price"]) == ("empty", "decimal(10,2)")
    table.append(ROWS)
    table.append(ROWS.slice(2))
    table.delete("id = 3")
    found = propose(service, source)
    assert (found["outcome"], found["invalid"], found["unit"]) == ("read", 0, "files")
    assert types(found) == {
        "id": "bigint", "city": "string", "at": "timestamp", "price": "decimal(10,2)",
        "tags": "array<string>",
    }  # fmt: skip
    kept = lake.read().to_pylist()
    assert sorted(row["id"] for row in kept) == [1, 2, 4, 4]
    assert sorted(row["id"] for row in found["rows"]) == [1, 2, 4, 4]
    shown = {row["id"]: (row["city"], row["price"], row["tags"]) for row in found["rows"]}
    prices = {row["id"]: row["price"] and str(row["price"]) for row in kept}
    assert shown == {row["id"]: (row["city"], prices[row["id"]], row["tags"]) for row in kept}
    made = registered(service, found)
    assert made["source"]["options"]["table"] == "lake.db.table"
    columns = {"id": "bigint", "gone": "int"}
    body = {"name": "sales", "columns": columns, "source": source}
    assert service.post("/v1/streams:test", body, 200)["error"]["code"] == "missing-column"


def test_a_catalog_that_the_service_lacks_is_said(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = {"format": "iceberg", "options": {"table": "nowhere.db.table"}}
    found = propose(service, source)
    assert found["outcome"] == "not tested"
    assert "knows no catalog nowhere" in found["limits"][0]
    monkeypatch.setenv("PYICEBERG_CATALOG__NOWHERE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__NOWHERE__URI", f"sqlite:///{tmp_path}/no/catalog.db")
    found = propose(service, source)
    assert (found["outcome"], found["error"]["code"]) == ("failed", "unreadable-table")
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    found = propose(service, source)
    assert (found["outcome"], "anabranch[lake]" in found["limits"][0]) == ("not tested", True)
