"""Tests of rows pushed to a stream over REST: checked, all or none, and read by the runtime."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from typing import Any

import pytest
from httpx import Response

from anabranch_client import Client
from anabranch_contract.protocol.intake import InputProgress, StreamIntake
from anabranch_contract.protocol.progress import Progress, Resources
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_runtime.sources.blocks import read_piece
from anabranch_runtime.sources.redis_stream import redis_feed
from anabranch_service.streaming.pushing import MOST_WAITING
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
    """Return rows of the stream ``s``, as the runtime reads them."""
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
    # Counts of a runtime that has ended are out of date.
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


def test_a_repeated_request_appends_its_rows_once(service: Service) -> None:
    add(service)
    rows = [{"k": n, "at": ROW["at"]} for n in range(3)]

    def send(rows: list[dict[str, Any]], key: str | None) -> Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        return service.http.post("/v1/streams/s/rows", json={"rows": rows}, headers=headers)

    answers = [send(rows, "k1") for _ in range(3)]
    assert [(a.status_code, a.json()) for a in answers] == 3 * [(202, {"rows": 3})]
    assert [a.headers.get("Idempotency-Replayed") for a in answers] == [None, "true", "true"]
    reused = send(rows[:2], "k1")
    assert (reused.status_code, reused.json()["code"]) == (409, "idempotency-key-reused")
    assert send(rows[:1], "k2").status_code == 202
    assert send(rows[:1], None).status_code == send(rows[:1], None).status_code == 202
    assert [row["k"] for row in read(service)] == [0, 1, 2, 0, 0, 0]
    # Idempotency keys expire after a day.
    kept = list(service.redis.scan_iter(f"{service.settings.namespace}:idempotency:rows:*"))
    assert {86_000 < int(str(service.redis.ttl(key))) <= 86_400 for key in kept} == {True}
    assert len(kept) == 2
    assert Client(str(service.http.base_url)).push("s", rows, idempotency_key="k1") == 3
    assert len(read(service)) == 6


def test_a_failed_request_does_not_use_up_its_key(service: Service) -> None:
    add(service)
    headers, rows = {"Idempotency-Key": "k"}, {"rows": [{"at": ROW["at"]}]}
    stream = service.keys.stream("s")
    service.redis.set(stream, "no stream")
    problem = service.http.post("/v1/streams/s/rows", json=rows, headers=headers)
    assert problem.json()["code"] == "not-a-redis-stream"
    service.redis.delete(stream)
    bad = service.http.post("/v1/streams/s/rows", json={"rows": [{}]}, headers=headers)
    assert bad.status_code == 422
    assert service.http.post("/v1/streams/s/rows", json=rows, headers=headers).status_code == 202
    assert len(read(service)) == 1


def test_concurrent_requests_with_one_key_append_once(service: Service) -> None:
    add(service)
    headers, rows = {"Idempotency-Key": "k"}, {"rows": [{"at": ROW["at"]}] * 50}
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda _: service.http.post("/v1/streams/s/rows", json=rows, headers=headers),
                range(24),
            )
        )
    assert {answer.status_code for answer in answers} == {202}
    assert len(read(service)) == 50


def test_rows_of_a_stream_that_is_behind_are_refused(service: Service) -> None:
    add(service)
    rows = {"rows": [{"at": ROW["at"]}]}
    service.beat()
    for waiting, status in ((MOST_WAITING, 429), (MOST_WAITING - 1, 202)):
        intake = InputProgress({"s": StreamIntake(waiting)})
        service.progress(Progress("running", input=intake))
        answer = service.http.post("/v1/streams/s/rows", json=rows)
        assert answer.status_code == status
        if status == 429:
            assert answer.headers["Retry-After"] == "5"
            assert answer.json()["code"] == "stream-behind"
    # Without a runtime the number is out of date.
    service.progress(Progress("stopped", input=InputProgress({"s": StreamIntake(MOST_WAITING)})))
    service.redis.delete(service.keys.heartbeat)
    assert service.http.post("/v1/streams/s/rows", json=rows).status_code == 202
    assert len(read(service)) == 2
