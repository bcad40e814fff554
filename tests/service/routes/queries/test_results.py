"""Tests of a query's results as server-sent events, written as the runtime does, read by the
client.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from anabranch_client.cli.app import app
from anabranch_client.errors import ApiError
from anabranch_client.rest.api import AsyncClient, Client
from anabranch_client.rest.tail import TailEvent
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Progress
from anabranch_runtime.sinks import tail as runtime_tail
from anabranch_runtime.sinks.delivery import WrittenVersion
from anabranch_runtime.sinks.parquet import ParquetSink, version_file
from anabranch_runtime.sinks.tail import Tails
from anabranch_service.streaming import tail as service_tail
from tests.service.conftest import PAIR
from tests.support.surroundings.deliveries import sink, staged
from tests.support.worlds.service import Service, eventually


@dataclass
class Feeder:
    """The runtime's side: publishes batches and feeds the tails."""

    service: Service
    results: Path
    next_batch: int = 0
    totals: dict[str, int] = field(default_factory=lambda: {"q": 0})
    written: dict[str, tuple[int, int]] = field(default_factory=dict)
    published: bool = True

    def __post_init__(self) -> None:
        self.tails = Tails(self.service.settings.redis_url, self.service.keys, self.results)

    def batch(self, *values: int, fed: bool = True) -> None:
        """Commit a batch with these results."""
        rows = pa.record_batch({"x": pa.array(values, pa.int64())})
        located: dict[str, tuple[Path, ...]] = {}
        if values:
            made = staged(self.results / ".staging", "q", sink("parquet"), self.next_batch, rows)
            located = ParquetSink(self.results, self.next_batch).publish(
                self.next_batch, [("q", 0, made.files[0])]
            )
        self.totals["q"] += len(values)
        if fed:
            self.tails.feed(self.next_batch, located, self.totals)
        self.next_batch += 1

    def tick(self) -> None:
        """Open requested tails, as the driver does between batches."""
        self.tails.open(self.next_batch, self.totals, self.written)

    def version(self, number: int, *values: int) -> None:
        """Write a version of a view or an outer join, as the thread of views does."""
        total = self.written.get("q", (0, 0))[1] + len(values)
        rows = pa.table({"x": pa.array(values, pa.int64())})
        (self.results / "q").mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, version_file(self.results / "q", number))
        self.tails.feed_versions([WrittenVersion("q", number, rows, total)])
        self.written["q"] = number, total


@pytest.fixture
def feeder(shop: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Feeder]:
    # A tail drops rows that Redis does not accept in time.
    monkeypatch.setattr(runtime_tail, "PATIENCE", 30.0)
    shop.post("/v1/queries", {"id": "q", "sql": PAIR})
    found = Feeder(shop, tmp_path / "results")
    yield found
    found.tails.close()


class Reader(threading.Thread):
    """A client that follows the query in a separate thread."""

    def __init__(self, feeder: Feeder, **how: Any) -> None:
        super().__init__(daemon=True)
        self.url = str(feeder.service.http.base_url)
        self.how = how
        self.events: list[TailEvent] = []
        self.start()
        eventually(lambda: bool(self.listened(feeder)), "somebody listens")

    def listened(self, feeder: Feeder) -> int:
        return int(feeder.service.redis.zcard(feeder.service.keys.listeners))

    def run(self) -> None:
        with Client(self.url) as client:
            for event in client.tail("q", **self.how):
                self.events.append(event)

    def wait(self, kind: str, count: int = 1) -> None:
        eventually(
            lambda: sum(e.kind == kind for e in list(self.events)) >= count, f"{count} {kind}"
        )

    def told(self) -> list[Any]:
        """Return rows by their value, other events by kind and content."""
        return [
            e.row["x"] if e.kind == "row" else (e.kind, *e.detail.values()) for e in self.events
        ]


def test_new_results_come_as_they_are_committed(feeder: Feeder) -> None:
    feeder.batch(1, 2)
    reader = Reader(feeder, limit=3)
    feeder.tick()
    reader.wait("live")
    feeder.batch(3)
    feeder.batch()
    feeder.batch(4, 5)
    reader.join(120)
    assert reader.told() == [("live", 2), 3, 4, 5, ("end", "limit")]
    assert [e.id for e in reader.events] == ["0:1", "1:2", "3:3", "3:4", ""]


@pytest.mark.parametrize("start", [True, False])
def test_versions_of_views_and_outer_joins_are_followed(feeder: Feeder, start: bool) -> None:
    feeder.totals.clear()
    feeder.version(1, 1, 2)
    feeder.version(4, 3)
    reader = Reader(feeder, from_start=start, limit=5 if start else 2)
    feeder.tick()
    reader.wait("live")
    feeder.tick()
    feeder.version(5, 4)
    feeder.tick()
    feeder.version(7, 5)
    reader.join(120)
    before = [1, 2, 3] if start else []
    assert reader.told() == [*before, ("live", 3), 4, 5, ("end", "limit")]
    assert [e.id for e in reader.events if e.kind == "row"][-2:] == ["5:3", "7:4"]


def test_from_the_start_means_from_what_is_at_hand(
    feeder: Feeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_tail, "OPEN_ROWS", 4)
    feeder.batch(1, 2, 3)
    feeder.batch(4, 5)
    reader = Reader(feeder, from_start=True, limit=5)
    # Nothing arrived between two batches, so the tail begins with a batch.
    feeder.batch(6)
    reader.wait("live")
    feeder.batch(7)
    reader.join(120)
    assert reader.told() == [("gap", 2), 3, 4, 5, 6, ("live", 6), 7, ("end", "limit")]


def test_what_is_left_out_is_said(feeder: Feeder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_tail, "BATCH_ROWS", 2)
    reader = Reader(feeder, limit=4)
    feeder.tick()
    reader.wait("live")
    feeder.batch(1)
    feeder.batch(2, 3, 4, 5)
    feeder.batch(6, fed=False)
    feeder.batch(7)
    reader.join(120)
    assert reader.told() == [("live", 0), 1, ("gap", 2), 4, 5, ("gap", 1), 7, ("end", "limit")]


def test_large_rows_and_many_rows_go_in_several_entries(
    feeder: Feeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_tail, "ENTRY_ROWS", 3)
    monkeypatch.setattr(runtime_tail, "ENTRY_BYTES", 22)
    reader = Reader(feeder, limit=8)
    feeder.tick()
    reader.wait("live")
    feeder.batch(*range(7), 10**20 // 10**2, 8)
    reader.join(120)
    assert reader.told() == [("live", 0), *range(7), ("gap", 1), 8, ("end", "limit")]


def test_a_reader_goes_on_after_the_last_event_it_has(feeder: Feeder) -> None:
    first = Reader(feeder, limit=2)
    feeder.tick()
    first.wait("live")
    feeder.batch(1, 2, 3)
    first.join(120)
    feeder.batch(4)
    told = _events(feeder, {"Last-Event-ID": first.events[-2].id}, limit=2)
    assert [(e["id"], e["data"]) for e in told if e["event"] == "row"] == [
        ("0:2", '{"x":3}'),
        ("1:3", '{"x":4}'),
    ]
    assert told[-1] == {"event": "end", "data": '{"reason": "limit"}'}


def test_a_pipeline_that_begins_anew_is_noticed(
    feeder: Feeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_tail, "RENEW", 0.05)
    for value in range(5):
        feeder.batch(value)
    reader = Reader(feeder, limit=2)
    feeder.tick()
    reader.wait("live")
    again = Feeder(feeder.service, feeder.results.parent / "new")
    again.batch(70)
    again.batch(71)
    again.tick()
    reader.join(120)
    assert reader.told()[:2] == [("live", 5), ("gap", None)]
    assert reader.told()[-3:] == [70, 71, ("end", "limit")]
    again.tails.close()


def test_a_query_that_has_ended_ends_its_tail(
    feeder: Feeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_tail, "RENEW", 0.05)
    feeder.batch(1)
    reader = Reader(feeder, from_start=True)
    feeder.tick()
    reader.wait("live")
    feeder.service.activate("q", Activation(0, {}, expired_batch=1, results=1))
    reader.join(120)
    assert reader.told() == [1, ("live", 1), ("end", "expired")]


def test_silence_is_filled_with_comments(feeder: Feeder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_tail, "HEARTBEAT", 0.1)
    monkeypatch.setattr(service_tail, "BLOCK", 50)
    seen = b""
    with feeder.service.http.stream("GET", "/v1/queries/q/results") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for part in response.iter_bytes():
            seen += part
            if seen.count(b": nothing new\n\n") == 2:
                break


def test_a_redis_that_fails_costs_the_tail_rows_and_nothing_else(
    feeder: Feeder, tmp_path: Path
) -> None:
    tails = Tails("redis://127.0.0.1:1", feeder.service.keys, tmp_path)
    started = time.monotonic()
    for batch in range(3):
        tails.feed(batch, {}, {"q": 1})
        tails.open(batch, {"q": 1})
    assert time.monotonic() - started < 20
    tails.close()


def test_nothing_is_fed_while_nobody_listens(feeder: Feeder) -> None:
    feeder.batch(1)
    feeder.tick()
    assert not feeder.service.redis.exists(feeder.service.keys.tail("q"))


def test_what_has_no_tail(feeder: Feeder, monkeypatch: pytest.MonkeyPatch) -> None:
    service = feeder.service
    assert service.get("/v1/queries/none/results", 404)["code"] == "unknown-query"
    service.post("/v1/queries", {"id": "n", "sql": PAIR, "sink": {"format": "count"}})
    refused = service.get("/v1/queries/n/results", 409)
    assert (refused["code"], bool(refused["remedy"])) == ("sink-without-rows", True)
    for wrong in ("from=then", "limit=0"):
        assert service.get(f"/v1/queries/q/results?{wrong}", 422)["errors"]
    bad = service.http.get("/v1/queries/q/results", headers={"Last-Event-ID": "x"})
    assert bad.status_code == 422
    with Client(str(service.http.base_url)) as client, pytest.raises(ApiError) as caught:
        list(client.tail("none"))
    assert caught.value.code == "unknown-query"
    monkeypatch.setattr(service_tail, "MOST_TAILS", 0)
    assert service.get("/v1/queries/q/results", 503)["code"] == "too-many-tails"
    with Client("http://127.0.0.1:1") as nobody, pytest.raises(ApiError):
        list(nobody.tail("q"))


def test_the_asynchronous_client_and_the_command_line_follow_too(feeder: Feeder) -> None:
    url = str(feeder.service.http.base_url)
    feeder.batch(1, 2)
    reader = Reader(feeder, from_start=True, limit=2)
    feeder.tick()
    reader.join(120)

    async def rows() -> list[int]:
        async with AsyncClient(url) as client:
            found = client.tail("q", from_start=True, limit=2)
            return [event.row["x"] async for event in found if event.kind == "row"]

    assert asyncio.run(rows()) == [1, 2]
    arguments = ["query", "tail", "q", "--from-start", "--limit", "2", "--url", url]
    plain = CliRunner().invoke(app, arguments)
    assert (plain.exit_code, plain.stdout) == (0, "x\n1\n2\n"), plain.output
    lines = CliRunner().invoke(app, [*arguments, "--json"]).stdout.splitlines()
    assert [json.loads(line) for line in lines] == [{"x": 1}, {"x": 2}]


def test_a_client_comes_back_when_the_connection_is_lost(
    feeder: Feeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[str | None] = []
    send = httpx.Client.send

    def breaking(self: httpx.Client, request: httpx.Request, **how: Any) -> httpx.Response:
        response = send(self, request, **how)
        if how.get("stream") and len(broken) < 2:
            broken.append(request.headers.get("Last-Event-ID"))
            whole = response.iter_bytes

            def cut(*_: Any) -> Iterator[bytes]:
                for part in whole():
                    yield part
                    if b"event: row" in part:
                        raise httpx.ReadError("cut")

            monkeypatch.setattr(response, "iter_bytes", cut)
        return response

    monkeypatch.setattr("anabranch_client.rest.tail.PAUSE", 0.01)
    monkeypatch.setattr(httpx.Client, "send", breaking)
    reader = Reader(feeder, limit=3)
    feeder.tick()
    reader.wait("live")
    for value in (1, 2, 3):
        feeder.batch(value)
        reader.wait("row", value)
    reader.join(120)
    assert [x for x in reader.told() if isinstance(x, int)] == [1, 2, 3]
    assert broken == [None, "0:0"]


def test_a_sink_that_fails_is_seen_in_the_query(feeder: Feeder) -> None:
    service = feeder.service
    assert service.get("/v1/queries/q")["sink_problem"] is None
    service.progress(Progress("running", sinks={"q": "2 batches wait: down"}))
    assert service.get("/v1/queries/q")["sink_problem"] == "2 batches wait: down"


def _events(feeder: Feeder, headers: dict[str, str], limit: int) -> list[dict[str, str]]:
    response = feeder.service.http.get(
        "/v1/queries/q/results", params={"limit": limit}, headers=headers
    )
    blocks = response.text.split("\n\n")
    return [
        dict(line.split(": ", 1) for line in block.split("\n"))
        for block in blocks
        if "event:" in block
    ]
