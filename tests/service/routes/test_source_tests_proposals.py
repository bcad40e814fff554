"""Tests of ``POST /v1/streams:test?propose=true``: a registration accepts the proposal.

Over real files, a real Redis and PostgreSQL.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_service.settings import ServiceSettings
from scripts.postgres import Server
from tests.support.surroundings.postgres import run
from tests.support.worlds.service import Service, serving


def propose(
    service: Service, source: dict[str, Any], status: int = 200, **more: Any
) -> dict[str, Any]:
    body = {"name": "sales", "columns": {}, "source": source, **more}
    found = service.call("POST", "/v1/streams:test?propose=true", status, body)
    assert service.get("/v1/streams")["items"] == []
    return found


def types(found: dict[str, Any]) -> dict[str, str]:
    return {c["name"]: c["type"] for c in found["registration"]["columns"]}


def registered(service: Service, found: dict[str, Any]) -> dict[str, Any]:
    """Register a proposal, and check that the stream equals it."""
    asked = found["registration"]
    made = service.post("/v1/streams", asked)
    columns = [c for c in made["columns"] if c["name"] != (made["changes"] or {}).get("operation")]
    assert columns == asked["columns"]
    for name in ("event_time", "key"):
        assert made[name] == asked.get(name)
    assert made["source"]["options"] == asked["source"]["options"]
    again = service.post("/v1/streams:test", asked, 200)
    assert again["outcome"] == "read"
    assert again["rows"] == found["rows"]
    return made


def folder(path: Path, options: dict[str, str] | None = None) -> dict[str, Any]:
    return {"format": "files", "path": str(path), "options": options or {}}


def test_csv_with_a_header_and_strange_types(service: Service, tmp_path: Path) -> None:
    (tmp_path / "a b.csv").write_text(
        "Kunden Nr;größe;plz;seit;am;offen;leer;wert;日付\n"
        '1;1.5;01067;2026-01-02 03:04:05;2026-01-02;true;;12345678901234567890;"a;b"\n'
        '2;2e3;80331;2026-01-02 03:05:05;2026-01-03;False;;2;""\n'
    )
    found = propose(service, folder(tmp_path))
    assert types(found) == {
        "Kunden Nr": "bigint", "größe": "double", "plz": "string", "seit": "timestamp",
        "am": "date", "offen": "boolean", "leer": "string", "wert": "decimal(38,0)",
        "日付": "string",
    }  # fmt: skip
    asked = found["registration"]
    assert asked["source"]["options"] == {"type": "csv", "sep": ";"}
    assert (asked["event_time"], asked["lateness"]) == ("seit", "10 minutes")
    assert found["keys"][0] == ["Kunden Nr"]
    assert found["rows"][0]["wert"] == "12345678901234567890"
    assert "'leer' is NULL in all sample rows" in found["notes"][0]
    registered(service, found)


def test_a_word_among_numbers_is_named_with_its_place(service: Service, tmp_path: Path) -> None:
    lines = ["id", *map(str, range(30)), "n/a"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    found = propose(service, folder(tmp_path))
    assert types(found) == {"id": "string"}
    assert (
        f"30 of 31 values are of type bigint, but not 'n/a' ({tmp_path}/a.csv, row 31)"
        in (found["notes"][0])
    )
    found = propose(service, folder(tmp_path), columns={"id": "int"})
    assert (found["sampled"], found["invalid"], len(found["rows"])) == (31, 1, 20)
    assert found["misfits"] == [
        {"row": 30, "column": "id", "value": "n/a", "expected": "int",
         "place": f"{tmp_path}/a.csv, row 31"}
    ]  # fmt: skip


def test_nested_json_with_lines_that_are_none(service: Service, tmp_path: Path) -> None:
    rows = [
        {"id": 1, "who": {"my name": "ä", "tags": ["x"]}, "at": "2026-01-01T00:00:00Z", "n": 1},
        {"id": "two", "who": {"age": 2}, "at": "2026-01-01T01:00:30+01:00", "n": 2.5, "ID": 1},
        {"id": 3, "who": None, "at": "2026-01-01T00:01:00Z", "n": None, "bad\u0000": 1, "e": {}},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join([*map(json.dumps, rows), "{"]))
    found = propose(service, folder(tmp_path))
    assert types(found) == {
        "id": "bigint", "at": "timestamp", "n": "double",
        "who": "struct<`my name`:string,tags:array<string>,age:bigint>",
    }  # fmt: skip
    assert found["invalid"] == 2
    assert [(m["column"], m["value"], m["place"][-5:]) for m in found["misfits"]] == [
        ("id", "two", "row 2"), (None, "{", "row 4"),
    ]  # fmt: skip
    left = [note.split(" is left out")[0] for note in found["notes"]]
    assert left[:3] == ["column 'ID'", "column 'bad\\x00'", "column 'e'"]
    assert found["registration"]["event_time"] == "at"
    registered(service, found)


def test_typed_files_have_the_columns_that_all_have(service: Service, tmp_path: Path) -> None:
    at = pa.array([1, 2], pa.timestamp("ms", "UTC"))
    first = {"a": pa.array([1, 2], pa.uint8()), "at": at, "time": pa.array([1, 2], pa.time32("s"))}
    pq.write_table(pa.table({**first, "only": [1, 2]}), tmp_path / "1.parquet")
    later = pa.array([3, 4], pa.timestamp("ms", "UTC"))
    pq.write_table(pa.table({**first, "at": later}), tmp_path / "2.parquet")
    os.utime(tmp_path / "1.parquet", (0, 0))
    found = propose(service, folder(tmp_path))
    assert types(found) == {"a": "smallint", "at": "timestamp"}
    assert found["registration"]["source"]["options"] == {"type": "parquet"}
    assert found["notes"] == [
        "column 'only' is left out: not all parts have it",
        "column 'time' is left out: no column can hold its type",
    ]
    registered(service, found)


def test_arrow_files(service: Service, tmp_path: Path) -> None:
    table = pa.table({"m": pa.array([{"k": 1}], pa.map_(pa.string(), pa.int32()))})
    with pa.ipc.new_file(tmp_path / "a", table.schema) as writer:
        writer.write_table(table)
    found = propose(service, folder(tmp_path))
    assert types(found) == {"m": "map<string,int>"}
    registered(service, found)


def test_times_without_order_are_no_event_time(service: Service, tmp_path: Path) -> None:
    lines = [{"born": f"19{year}-01-01 00:00:00", "no": 1} for year in (90, 50, 70)]
    (tmp_path / "a.json").write_text("\n".join(map(json.dumps, lines)))
    found = propose(service, folder(tmp_path))
    assert "event_time" not in found["registration"]
    assert [one["column"] for one in found["event_times"]] == ["born"]
    assert "'born' goes back by" in found["notes"][0]
    found = propose(service, folder(tmp_path), event_time="born", lateness="1 hour")
    assert found["registration"]["event_time"] == "born"
    assert found["registration"]["lateness"] == "1 hour"
    found = propose(service, folder(tmp_path), kind="upsert", key=["no"])
    assert (found["registration"]["key"], "event_time" in found["registration"]) == (["no"], False)


def test_empty_folders_and_other_contents(service: Service, tmp_path: Path) -> None:
    found = propose(service, folder(tmp_path))
    assert (found["outcome"], found["registration"]) == ("empty", None)
    assert "declare them" in found["notes"][0]
    found = propose(service, folder(tmp_path), columns={"id": "int"})
    assert found["outcome"] == "empty"
    for content, code in ((b"ORC..", "other-type"), (b'[{"a": 1}]', "other-type"),
                          (b"\0\1\2\3", "unreadable-file"), (b"PK\3\4", "unreadable-file"),
                          (b"PAR1 or not", "unreadable-file")):  # fmt: skip
        (tmp_path / "a").write_bytes(content)
        assert propose(service, folder(tmp_path))["error"]["code"] == code, content
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "0.json").write_text("{}")
    found = propose(service, folder(tmp_path))
    assert (found["outcome"], found["error"]["code"]) == ("failed", "lake-table")


def test_what_a_registration_refuses_is_not_read(
    settings: ServiceSettings, tmp_path: Path, redis: str
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret.csv").write_text("password\nhidden\n")
    (inside / "link.csv").symlink_to(tmp_path / "secret.csv")
    with serving(replace(settings, access=AccessPolicy(paths=(str(inside),)))) as service:
        for source, code in (
            (folder(tmp_path), "path-not-allowed"),
            (folder(inside / ".."), "path-not-allowed"),
            ({"format": "kafka", "options": {"brokers": "other:9", "topics": "t"}},
             "host-not-allowed"),
            ({"format": "redis-stream", "options": {"keys": f"{settings.namespace}:streams"}},
             "reserved-key"),
        ):  # fmt: skip
            refused = propose(service, source, 422)
            asked = {"name": "sales", "columns": {"a": "int"}, "source": source}
            assert refused["code"] == service.call("POST", "/v1/streams", 422, asked)["code"]
            assert refused["code"] == code, refused
        found = propose(service, folder(inside))
        assert (found["outcome"], found["registration"]) == ("empty", None)
        assert "hidden" not in json.dumps(found)


@pytest.mark.parametrize("payload", ["json", "fields", "arrow"])
def test_entries_of_redis_streams(service: Service, payload: str) -> None:
    key, row = service.keys.stream("sales"), {"id": 1, "at": "2026-01-02 03:04:05"}
    if payload == "json":
        service.redis.xadd(key, {"data": json.dumps(row)})
    elif payload == "fields":
        service.redis.xadd(key, row)  # type: ignore[arg-type]
    else:
        service.redis.xadd(key, {"arrow": arrow(pa.table({n: [v] for n, v in row.items()}))})
    found = propose(service, {"format": "redis-stream"})
    assert types(found) == {"id": "bigint", "at": "string" if payload == "arrow" else "timestamp"}
    assert found["registration"]["source"]["options"] == {"payload": payload}
    registered(service, found)


def arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def propose_again(service: Service, source: dict[str, Any]) -> dict[str, Any]:
    body = {"name": "other", "columns": {}, "source": source}
    return service.call("POST", "/v1/streams:test?propose=true", 200, body)


def test_tables(service: Service, postgres: Server) -> None:
    run(
        postgres,
        "CREATE TABLE proposed (id int PRIMARY KEY, op int, at timestamptz, n numeric(8,2))",
        "INSERT INTO proposed VALUES (1, 2, '2026-01-01 00:00+00', 3.5)",
        "CREATE TABLE keyless (a int, t text)",
    )
    options = {"url": postgres.url, "table": "proposed"}
    found = propose(service, {"format": "postgres", "options": options})
    asked = found["registration"]
    assert types(found) == {"id": "int", "op": "int", "at": "timestamp", "n": "decimal(8,2)"}
    assert (asked["kind"], asked["key"], found["keys"]) == ("upsert", ["id"], [["id"]])
    assert asked["changes"]["operation"] == "op_"
    registered(service, found)
    options["table"] = "keyless"
    found = propose_again(service, {"format": "postgres", "options": options})
    assert found["error"]["code"] == "incomplete-changes"
    assert "REPLICA IDENTITY FULL" in found["error"]["remedy"]
    run(postgres, "ALTER TABLE keyless REPLICA IDENTITY FULL")
    found = propose_again(service, {"format": "postgres", "options": options})
    assert (found["outcome"], found["registration"]["kind"]) == ("empty", "changes")
    options["url"] = "postgresql://a@127.0.0.1:1/x"
    found = propose_again(service, {"format": "postgres", "options": options})
    assert found["error"]["code"] == "no-database"
