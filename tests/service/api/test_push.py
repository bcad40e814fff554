"""Rows pushed to a stream: checked, all or nothing, and what the runtime reads of them."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest

from anabranch_contract.protocol.intake import InputProgress, StreamIntake
from anabranch_contract.protocol.progress import Progress, Resources
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_runtime.sources.blocks import read_piece
from anabranch_runtime.sources.redis_stream import redis_feed
from tests.support.worlds.service import Service

COLUMNS = {
    "k": "bigint",
    "small": "tinyint",
    "price": "decimal(10,2)",
    "x": "double",
    "note": "string",
    "ok": "boolean",
    "day": "date",
    "raw": "binary",
    "at": "timestamp",
}
ROW: dict[str, Any] = {
    "k": 2**40,
    "small": -128,
    "price": "12.5",
    "x": 1.5,
    "note": 'two\nlines, "quoted" and ü',
    "ok": True,
    "day": "2024-05-01",
    "raw": "AQI=",
    "at": "2024-05-01T12:00:00+02:00",
}


def add(service: Service, **source: Any) -> None:
    given = {"format": "redis-stream", **source}
    service.post(
        "/v1/streams", {"name": "s", "columns": COLUMNS, "event_time": "at", "source": given}
    )


def read(service: Service) -> list[dict[str, Any]]:
    """Rows of the stream ``s``, as the runtime reads them."""
    text = str(service.redis.hget(service.keys.streams, "s"))
    record = StreamRecord.model_validate_json(text)
    feed = redis_feed(record, service.settings.redis_url, service.keys.stream("s"))
    found = []
    for piece in feed.pieces(None, feed.advance(None, 10**6), 1):
        for rows, invalid in read_piece(piece):
            assert not invalid
            found += rows.to_pylist()
    return found


@pytest.mark.parametrize("payload", ["json", "fields"])
def test_rows_arrive_as_they_were_sent(service: Service, payload: str) -> None:
    add(service, options={"payload": payload})
    row = {**ROW, "raw": None} if payload == "fields" else ROW
    assert service.post("/v1/streams/s/rows", {"rows": [row, {"at": ROW["at"]}]}, 202) == {
        "rows": 2
    }
    service.post("/v1/streams/s/rows", {"rows": [{"at": "2024-05-01T00:00:00"}]}, 202)
    first, second, third = read(service)
    assert first["k"] == 2**40
    assert first["small"] == -128
    assert str(first["price"]) == "12.50"
    assert (first["x"], first["note"], first["ok"]) == (1.5, ROW["note"], True)
    assert first["day"].isoformat() == "2024-05-01"
    assert first["raw"] == (None if payload == "fields" else b"\x01\x02")
    assert first["at"].isoformat() == "2024-05-01T10:00:00+00:00"
    assert {v for name, v in second.items() if name != "at"} == {None}
    assert third["at"].isoformat() == "2024-05-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"k": "1"}, "rows.1.k"),
        ({"k": 1.5}, "rows.1.k"),
        ({"k": True}, "rows.1.k"),
        ({"k": 2**63}, "rows.1.k"),
        ({"small": 128}, "rows.1.small"),
        ({"price": "1.234"}, "rows.1.price"),
        ({"note": 7}, "rows.1.note"),
        ({"ok": "yes"}, "rows.1.ok"),
        ({"day": "yesterday"}, "rows.1.day"),
        ({"raw": "no base64"}, "rows.1.raw"),
        ({"at": None}, "rows.1.at"),
        ({"colour": "red"}, "rows.1.colour"),
    ],
)
def test_one_bad_row_and_nothing_is_written(
    service: Service, bad: dict[str, Any], field: str
) -> None:
    add(service)
    problem = service.post("/v1/streams/s/rows", {"rows": [ROW, {**ROW, **bad}, ROW]}, 422)
    assert problem["code"] == "invalid-request"
    assert [e["field"] for e in problem["errors"]] == [field]
    assert read(service) == []


def test_only_streams_that_the_service_can_write_take_rows(service: Service) -> None:
    assert service.post("/v1/streams/s/rows", {"rows": [ROW]}, 404)["code"] == "unknown-stream"
    for number, source in enumerate(
        (
            {"format": "parquet", "path": "/data"},
            {"format": "redis-stream", "options": {"url": "redis://elsewhere:6379/0"}},
            {"format": "redis-stream", "options": {"payload": "arrow"}},
        )
    ):
        name = f"s{number}"
        service.post("/v1/streams", {"name": name, "columns": COLUMNS, "source": source})
        problem = service.post(f"/v1/streams/{name}/rows", {"rows": [{"k": 1}]}, 409)
        assert problem["code"] == "not-pushable"


def test_sources_that_mean_nothing_are_refused(service: Service) -> None:
    for source, field in (
        ({"format": "redis-stream", "options": {"payload": "xml"}}, "source.options.payload"),
        ({"format": "files"}, "source.path"),
        ({"format": "files", "path": "/x", "options": {"type": "xml"}}, "source.options.type"),
    ):
        problem = service.post(
            "/v1/streams", {"name": "s", "columns": COLUMNS, "source": source}, 422
        )
        assert [e["field"] for e in problem["errors"]] == [field]
        assert problem["remedy"]
    add(service)
    changed = service.http.patch("/v1/streams/s", json={"on_loss": "skip"})
    assert changed.json()["source"]["options"] == {"on_loss": "skip"}
    service.post(
        "/v1/streams",
        {"name": "other", "columns": COLUMNS, "source": {"format": "files", "path": "/x"}},
    )
    assert service.http.patch("/v1/streams/other", json={"on_loss": "skip"}).status_code == 422


def test_how_sources_stand_is_shown(service: Service) -> None:
    add(service)
    progress = Progress(
        "running",
        input=InputProgress({"s": StreamIntake(70, 1.5, 2, "it is gone")}, 900),
        resources=Resources(private_bytes=200, memory_limit=300),
    )
    service.progress(progress)
    # Counts of a runtime that lives no more are out of date.
    assert service.get("/v1/streams/s")["waiting_tuples"] is None
    service.beat()
    assert Progress.loads(progress.dumps()) == progress
    shown = service.get("/v1/streams/s")
    assert (shown["waiting_tuples"], shown["waiting_seconds"]) == (70, 1.5)
    assert (shown["lost_entries"], shown["source_error"]) == (2, "it is gone")
    text = service.http.get("/metrics").text
    assert 'anabranch_stream_waiting_tuples{stream="s"} 70.0' in text
    assert "anabranch_batch_row_limit 900.0" in text
    assert "anabranch_batch_private_bytes 200.0" in text
    assert "anabranch_batch_memory_limit_bytes 300.0" in text


def test_nested_rows_arrive_as_they_were_sent(service: Service) -> None:
    longer = "struct<" + ",".join(f"a_long_name_{n}:string" for n in range(20)) + ">"
    kinds = {
        "at": "timestamp",
        "t": longer,
        "s": "struct<n:tinyint,d:date>",
        "l": "array<struct<k:bigint>>",
        "m": "map<string,array<int>>",
        "v": "variant",
    }
    source = {"format": "redis-stream"}
    service.post(
        "/v1/streams", {"name": "s", "columns": kinds, "event_time": "at", "source": source}
    )
    at = "2024-05-01T12:00:00Z"
    rows = [
        {
            "at": at,
            "s": {"n": 1, "d": "2024-05-01"},
            "l": [{"k": 2**40}, None, {}],
            "m": {"x": [1, None], "": None},
            "v": {"z": [1.5, None], "a": "é"},
        },
        {"at": at, "s": {"n": None}, "l": []},
        {"at": at},
    ]
    service.post("/v1/streams/s/rows", {"rows": rows}, 202)
    first, second, third = read(service)
    assert first["s"] == {"n": 1, "d": date(2024, 5, 1)}
    assert first["l"] == [{"k": 2**40}, None, {"k": None}]
    assert (first["v"], second["v"]) == ('{"a":"é","z":[1.5,null]}', None)
    assert first["m"] == [("x", [1, None]), ("", None)]
    assert (second["s"], second["l"]) == ({"n": None, "d": None}, [])
    assert (third["s"], third["l"]) == (None, None)
    for wrong in ({"s": {"n": 300}}, {"s": {"m": 1}}, {"l": [1]}, {"l": {"k": 1}}, {"m": {"x": 1}}):
        problem = service.post("/v1/streams/s/rows", {"rows": [{"at": at, **wrong}]}, 422)
        assert problem["errors"][0]["field"].startswith(f"rows.0.{next(iter(wrong))}")


def test_intervals_are_sent_as_texts(service: Service) -> None:
    kinds = {"at": "timestamp", "i": "interval day to second", "y": "interval month"}
    source = {"format": "redis-stream"}
    service.post(
        "/v1/streams", {"name": "s", "columns": kinds, "event_time": "at", "source": source}
    )
    at = "2024-05-01T12:00:00Z"
    rows = [
        {"at": at, "i": "1 02:03:04.5", "y": "INTERVAL '14' MONTH"},
        {"at": at, "i": "INTERVAL '-0 00:00:01' DAY TO SECOND"},
    ]
    service.post("/v1/streams/s/rows", {"rows": rows}, 202)
    first, second = read(service)
    assert (first["i"], first["y"]) == (timedelta(days=1, seconds=7384.5), 14)
    assert (second["i"], second["y"]) == (timedelta(seconds=-1), None)
    for wrong in ({"i": "1 day"}, {"y": "99999999999"}, {"y": 14}):
        problem = service.post("/v1/streams/s/rows", {"rows": [{"at": at, **wrong}]}, 422)
        assert problem["errors"][0]["field"].startswith(f"rows.0.{next(iter(wrong))}")


def test_nested_columns_need_a_source_of_values(service: Service) -> None:
    body = {"name": "s", "columns": {"l": "array<int>"}}
    source = {"format": "csv", "path": "/in"}
    problem = service.post("/v1/streams", {**body, "source": source}, 422)
    assert (problem["code"], problem["errors"][0]["field"]) == ("unsupported-type", "columns.l")
    assert "split()" in problem["remedy"]
