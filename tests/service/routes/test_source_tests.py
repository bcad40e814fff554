"""Tests of ``POST /v1/streams:test`` over real files, a real Redis and a port without
a listener.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_service.settings import ServiceSettings
from tests.support.surroundings.s3 import BUCKET, s3_server
from tests.support.worlds.service import Service, serving

COLUMNS = {"id": "int", "price": "decimal(6,2)", "name": "string", "at": "timestamp"}


def body(source: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "sales", "columns": COLUMNS, "event_time": "at", "source": source, **more}


def look(service: Service, source: dict[str, Any], rows: int = 20, **more: Any) -> dict[str, Any]:
    found = service.call("POST", f"/v1/streams:test?rows={rows}", 200, body(source, **more))
    assert service.get("/v1/streams")["items"] == []
    return found


def parquet(folder: Path, name: str = "1.parquet", **columns: list[Any]) -> None:
    values = {"id": [1, 2], "price": ["1.50", "2.25"], "name": ["a", None], **columns}
    at = pa.array([1_700_000_000_000_000_000, 1_700_000_060_123_456_789], pa.timestamp("ns"))
    pq.write_table(pa.table({"at": at, **values}), folder / name)


def test_files_that_fit(service: Service, tmp_path: Path) -> None:
    parquet(tmp_path)
    parquet(tmp_path, ".part")
    found = look(service, {"format": "files", "path": str(tmp_path)})
    assert (found["outcome"], found["found"], found["unit"]) == ("read", 1, "files")
    assert found["rows"] == [
        {"id": 1, "price": "1.50", "name": "a", "at": "2023-11-14T22:13:20Z"},
        {"id": 2, "price": "2.25", "name": None, "at": "2023-11-14T22:14:20.123456Z"},
    ]
    assert found["invalid"] == 0
    assert found["misfits"] == []
    assert found["first_event_time"] == "2023-11-14T22:13:20Z"
    assert found["last_event_time"] == "2023-11-14T22:14:20.123456Z"


@pytest.mark.parametrize(
    ("minutes", "disorder", "proposed"),
    [
        ([0, 1], "0 seconds", "10 minutes"),
        ([40, 60, 35, 70], "25 minutes", "1 hour"),
        ([0, 3000, 60], "2 days 1 hour", "1 week"),
        ([30_000, 0], "2 weeks 6 days 20 hours", "6 weeks"),
    ],
)
def test_disorder_of_event_times_and_a_lateness_that_covers_it(
    service: Service, tmp_path: Path, minutes: list[int], disorder: str, proposed: str
) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    lines = [{"id": 1, "at": f"{noon + timedelta(minutes=m)}"} for m in minutes]
    (tmp_path / "1.json").write_text("\n".join(map(json.dumps, lines)))
    source = {"format": "files", "path": str(tmp_path), "options": {"type": "json"}}
    found = look(service, source)
    assert (found["disorder"], found["proposed_lateness"]) == (disorder, proposed)
    timeless = service.call("POST", "/v1/streams:test", 200, {**body(source), "event_time": None})
    assert (timeless["disorder"], timeless["proposed_lateness"]) == (None, None)


def test_values_that_do_not_fit_are_named(service: Service, tmp_path: Path) -> None:
    parquet(tmp_path, id=[3_000_000_000, 2], price=["1.5", "much"])
    found = look(service, {"format": "files", "path": str(tmp_path)})
    assert found["invalid"] == 2
    place = f"{tmp_path}/1.parquet, row"
    assert found["misfits"] == [
        {"row": 0, "column": "id", "value": "3000000000", "expected": "int", "place": f"{place} 1"},
        {"row": 1, "column": "price", "value": "much", "expected": "decimal(6,2)",
         "place": f"{place} 2"},
    ]  # fmt: skip
    assert found["rows"][0]["id"] is None
    assert found["first_event_time"] is None


def test_lines_of_json_are_judged_as_the_runtime_does(service: Service, tmp_path: Path) -> None:
    lines = [
        '{"id": 1, "price": 2, "name": "x", "at": "2026-1-02 03:04:05"}',
        '{"id": "1", "at": "2026-01-02T03:04:05+01:00"}',
        '{"id": true, "name": 7, "at": null}',
        "[1, 2]",
        "{",
    ]
    (tmp_path / "a.json").write_text("\n".join(lines))
    source = {"format": "files", "path": str(tmp_path), "options": {"type": "json"}}
    found = look(service, source)
    assert found["rows"][0] == {"id": 1, "price": "2.00", "name": "x", "at": "2026-01-02T03:04:05Z"}
    wrong = [(m["row"], m["column"]) for m in found["misfits"]]
    assert wrong == [(1, "id"), (2, "id"), (2, "name"), (2, "at"), (3, None), (4, None)]
    assert found["invalid"] == 4


def test_rows_are_bounded(service: Service, tmp_path: Path) -> None:
    many = [json.dumps({"id": n, "at": "2026-01-02 03:04:05"}) for n in range(100_000)]
    (tmp_path / "a.json").write_text("\n".join(many))
    source = {"format": "files", "path": str(tmp_path), "options": {"type": "json"}}
    assert len(look(service, source, rows=7)["rows"]) == 7
    service.call("POST", "/v1/streams:test?rows=201", 422, body(source))


def test_csv_is_read_by_the_names_in_its_header(service: Service, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        'at;more;Name;price;id\n2026-01-02 03:04:05;;"a;b";2.5;1\n2026-01-02;;c;2;x\n'
    )
    options = {"header": "true", "sep": ";"}
    found = look(service, {"format": "csv", "path": str(tmp_path), "options": options})
    assert found["rows"][0]["name"] == "a;b"
    assert [(m["row"], m["column"], m["value"]) for m in found["misfits"]] == [(1, "id", "x")]


def test_a_missing_column_and_a_missing_folder_are_errors(service: Service, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "1.parquet")
    found = look(service, {"format": "files", "path": str(tmp_path)})
    assert found["outcome"] == "failed"
    assert found["error"]["field"] == "columns.price"
    assert "id" in found["error"]["message"]
    found = look(service, {"format": "files", "path": str(tmp_path / "nothing")})
    assert found["error"]["code"] == "missing-path"
    assert found["error"]["field"] == "source.path"
    (tmp_path / "0.parquet").write_text("no Parquet")
    os.utime(tmp_path / "0.parquet", (0, 0))
    found = look(service, {"format": "files", "path": str(tmp_path)})
    assert found["error"]["code"] == "unreadable-file"
    assert "0.parquet" in found["error"]["message"]


def test_what_only_the_runtime_can_do_is_said(service: Service, tmp_path: Path) -> None:
    parquet(tmp_path)
    options = {"column.id": "cast(id as int)"}
    source = {"format": "parquet", "path": str(tmp_path), "options": options}
    found = look(service, source, columns={"id": "int"}, event_time=None)
    assert (found["outcome"], found["found"]) == ("not tested", 1)
    assert "column.id" in found["limits"][0]
    found = look(service, {"format": "rate"}, columns={"timestamp": "timestamp"}, event_time=None)
    assert found["outcome"] == "not tested"
    assert "source.format" in found["limits"][0]


def test_links_that_lead_out_are_passed_over(settings: ServiceSettings, tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        parquet(folder, f"{folder.name}.parquet")
    (inside / "link.parquet").symlink_to(outside / "outside.parquet")
    with serving(replace(settings, access=AccessPolicy(paths=(str(inside),)))) as service:
        found = look(service, {"format": "files", "path": str(inside)})
        assert (found["found"], len(found["rows"])) == (1, 2)
        assert "1 links" in found["limits"][0]
        source = {"format": "files", "path": str(outside)}
        refused = service.call("POST", "/v1/streams:test", 422, body(source))
        assert refused["code"] == "path-not-allowed"


@pytest.mark.parametrize("payload", ["json", "fields", "arrow"])
def test_entries_of_redis_streams(service: Service, payload: str) -> None:
    source = {"format": "redis-stream", "options": {"payload": payload}}
    assert look(service, source)["outcome"] == "empty"
    key = service.keys.stream("sales")
    row: Any = {"id": 1, "price": "1.5", "name": "x", "at": "2026-01-02 03:04:05Z"}
    if payload == "json":
        service.redis.xadd(key, {"data": "\n".join(json.dumps(row) for _ in range(2)), "rows": 2})
    elif payload == "fields":
        for _ in range(2):
            service.redis.xadd(key, row)
    else:
        table = pa.table({name: [value] * 2 for name, value in row.items()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        service.redis.xadd(key, {"arrow": sink.getvalue().to_pybytes()})
    service.redis.xadd(key, {"other": "1"})
    found = look(service, source)
    assert found["found"] == service.redis.xlen(key)
    assert found["places"] == [key]
    assert [r["price"] for r in found["rows"]] == ["1.50", "1.50", None]
    assert found["invalid"] == 1


def test_a_key_of_another_kind_and_a_server_that_is_away(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.redis.set("not-a-stream", "1")
    found = look(service, {"format": "redis-stream", "options": {"keys": "not-a-stream"}})
    assert found["error"]["code"] == "bad-stream"
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"redis://:${{ANABRANCH_SOURCE_AWAY}}@127.0.0.1:{unused.getsockname()[1]}"
        source = {"format": "redis-stream", "options": {"url": url}}
        found = look(service, source)
        assert found["error"]["code"] == "no-secret"
        monkeypatch.setenv("ANABRANCH_SOURCE_AWAY", "hidden-from-all")
        found = look(service, source)
        assert found["error"]["code"] == "no-server"
        assert "hidden-from-all" not in json.dumps(found)
        options = {
            "kafka.bootstrap.servers": f"127.0.0.1:{unused.getsockname()[1]}",
            "subscribe": "sales",
            "payload": "json",
        }
        found = look(service, {"format": "kafka", "options": options})
        assert found["error"]["field"] == "source.options.kafka.bootstrap.servers"
        unused.listen()
        found = look(service, {"format": "kafka", "options": options})
        assert found["outcome"] == "not tested"


def test_object_storage(service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parquet(tmp_path)
    with s3_server() as address:
        for name, value in (
            ("AWS_ENDPOINT_URL", f"http://{address}"),
            ("AWS_ACCESS_KEY_ID", "x"),
            ("AWS_SECRET_ACCESS_KEY", "y"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ):
            monkeypatch.setenv(name, value)
        files = fs.S3FileSystem(endpoint_override=address, scheme="http")
        with files.open_output_stream(f"{BUCKET}/sales/1.parquet") as stream:
            stream.write((tmp_path / "1.parquet").read_bytes())
        found = look(service, {"format": "parquet", "path": f"s3a://{BUCKET}/sales"})
        assert found["outcome"] == "read", found["error"]
        assert len(found["rows"]) == 2
        found = look(service, {"format": "parquet", "path": f"s3a://{BUCKET}/nothing"})
        assert found["error"]["code"] == "missing-path"
