"""Tests that unreadable sources are shown in every status; registrations wait for the runtime's
trial.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from anabranch_contract.protocol.intake import (
    InputProgress,
    SourceState,
    SourceStatus,
    StreamIntake,
)
from anabranch_contract.protocol.progress import Mode, Progress
from anabranch_service.registry.source_status import summary
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service, serving


def test_a_long_reason_ends_with_a_word_and_says_where_the_rest_is() -> None:
    short = "it is gone"
    assert summary({"a": short}) == f"1 stream is not read: a ({short})"
    told = summary({"a": "number " * 100})
    assert told.endswith("number ... GET /v1/streams has all of it)")


@pytest.fixture
def live(service: Service) -> Iterator[Service]:
    with serving(replace(service.settings, mode=Mode.LIVE, namespace="live")) as found:
        yield found


def test_a_source_that_cannot_be_read_turns_everything_red(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.beat()
    status = shop.get("/v1/streams/orders")["source_status"]
    nothing: dict[str, object] = {"error": None, "since": None, "behind_bytes": None}
    nothing["new_columns"] = []
    assert status == {"state": "not tried", **nothing}
    for name in ("orders", "items"):
        shop.source(name, SourceState.READING)
    shop.source("customers", SourceState.FAILED, "no such folder")
    intake = {"orders": StreamIntake(321, 1.5, lost=4)}
    shop.progress(Progress("running", input=InputProgress(intake)))
    counted = ("waiting_tuples", "waiting_seconds", "lost_entries")
    assert [shop.get("/v1/streams/orders")[name] for name in counted] == [321, 1.5, 4]
    read, failed = (shop.get(f"/v1/streams/{name}") for name in ("orders", "customers"))
    assert (read["source_status"]["state"], read["source_error"]) == ("reading", None)
    assert read["source_status"]["since"] is not None
    assert (failed["source_status"]["state"], failed["source_error"]) == (
        "failed",
        "no such folder",
    )
    problems = {"customers": "no such folder"}
    assert shop.get("/v1/queries/pair")["input_problems"] == problems
    assert shop.get("/v1/queries")["items"][0]["input_problems"] == problems
    shop.plan(-1)
    assert shop.get("/v1/epochs/current")["runtime"]["source_errors"] == problems
    detail = shop.get("/readyz", 503)["detail"]
    assert detail == "sources: 1 stream is not read: customers (no such folder)"
    metrics = shop.http.get("/metrics").text
    assert 'anabranch_stream_unreadable{stream="customers"} 1.0' in metrics
    assert 'anabranch_stream_unreadable{stream="orders"} 0.0' in metrics
    # Without a runtime nothing is read, and its last report is history.
    shop.redis.delete(shop.keys.heartbeat)
    assert shop.get("/v1/streams/orders")["source_status"]["state"] == "stopped"
    stopped = shop.get("/v1/streams/customers")["source_status"]
    assert (stopped["state"], stopped["error"]) == ("stopped", "no such folder")
    assert [shop.get("/v1/streams/orders")[name] for name in counted] == [None, None, 4]
    assert shop.get("/v1/queries/pair")["input_problems"] == {}


def test_a_stream_that_is_held_before_a_bad_file_turns_everything_red(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.beat()
    for name in ("orders", "items", "customers"):
        shop.source(name, SourceState.READING)
    reason = "/in/1.parquet can't be read"
    shop.progress(
        Progress("running", input=InputProgress({"customers": StreamIntake(error=reason)}))
    )
    held = shop.get("/v1/streams/customers")
    assert held["source_status"]["state"] == "failed"
    assert held["source_error"] == held["source_status"]["error"] == reason
    assert shop.get("/v1/queries/pair")["input_problems"] == {"customers": reason}
    assert reason in shop.get("/readyz", 503)["detail"]
    shop.progress(Progress("running", input=InputProgress({"customers": StreamIntake(waiting=3)})))
    assert shop.get("/v1/streams/customers")["source_status"]["state"] == "reading"
    assert shop.get("/readyz")["status"] == "ready"


def test_what_is_said_of_another_registration_does_not_count(shop: Service) -> None:
    shop.beat()
    status = SourceStatus("of another", SourceState.FAILED, "gone", 1.0)
    shop.redis.hset(shop.keys.sources, "orders", status.dumps())
    assert shop.get("/v1/streams/orders")["source_status"]["state"] == "not tried"
    shop.redis.hset(shop.keys.sources, "orders", "no document")
    assert shop.get("/v1/streams/orders")["source_status"]["state"] == "not tried"


def test_a_registration_waits_until_a_runtime_has_tried_the_source(live: Service) -> None:
    def post(name: str, query: str = "") -> tuple[str, float]:
        started = time.monotonic()
        answer = live.post(f"/v1/streams{query}", {"name": name, "columns": {"k": "bigint"}})
        return answer["source_status"]["state"], time.monotonic() - started

    # No runtime is running, or it reports nothing about the source.
    state, seconds = post("a", "?wait=30")
    assert (state, seconds < 30) == ("not tried", True)
    live.beat()
    state, seconds = post("b", "?wait=0.4")
    assert (state, seconds >= 0.4) == ("not tried", True)
    state, _ = post("c", "?wait=0")
    assert state == "not tried"

    def runtime() -> None:
        while not live.redis.hexists(live.keys.streams, "d"):
            time.sleep(0.01)
        time.sleep(0.3)
        live.source("d", SourceState.FAILED, "no such connector")

    thread = threading.Thread(target=runtime)
    thread.start()
    state, seconds = post("d", "?wait=30")
    thread.join()
    assert (state, 0.3 <= seconds < 30) == ("failed", True)
    live.call("POST", "/v1/streams?wait=31", 422, {"name": "e", "columns": {"k": "bigint"}})


@pytest.mark.parametrize(
    ("source", "field"),
    [
        ({"format": "parquet"}, "source.path"),
        ({"format": "json", "options": {"maxFilesPerTrigger": "1"}}, "source.path"),
        ({"format": "text", "options": {"payload": "json"}}, "source.path"),
        (
            {"format": "kafka", "options": {"subscribe": "t", "payload": "json"}},
            "source.options.kafka.bootstrap.servers",
        ),
        (
            {"format": "kafka", "options": {"kafka.bootstrap.servers": "b:1", "payload": "json"}},
            "source.options.subscribe",
        ),
    ],
)
def test_a_source_that_lacks_what_its_format_needs_is_refused(
    service: Service, source: dict[str, object], field: str
) -> None:
    body = {"name": "s", "columns": {"k": "bigint"}, "source": source}
    problem = service.call("POST", "/v1/streams", 422, body)
    assert problem["errors"][0]["field"] == field
    assert problem["remedy"]
