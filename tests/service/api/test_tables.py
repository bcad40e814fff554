"""Tests of tables (reference data) over REST."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.protocol.intake import InputProgress, SourceState
from anabranch_contract.protocol.progress import Mode, Progress
from anabranch_contract.protocol.table_progress import TableProgress
from anabranch_service.settings import ServiceSettings
from tests.support.worlds.service import Service, serving

AIRLINES = {"name": "airlines", "columns": {"code": "string", "since": "timestamp"}}
TABLE = {**AIRLINES, "kind": "table", "key": ["code"]}
LOOK_UP = "SELECT o.order_id, c.since FROM orders o JOIN airlines c ON c.code = o.city"


def test_a_table_is_registered_and_shown(service: Service) -> None:
    made = service.post("/v1/streams", TABLE)
    assert (made["kind"], made["key"], made["retain"]) == ("table", ["code"], "all")
    assert (made["retention"], made["event_time"]) == (None, None)
    assert service.post("/v1/streams", TABLE, 200) == made
    assert service.post("/v1/streams", {**TABLE, "key": None}, 409)["code"] == "duplicate-stream"
    plain = service.post("/v1/streams", {**AIRLINES, "name": "other"})
    assert (plain["kind"], plain["key"], plain["retain"]) == ("stream", None, "none")
    changed = service.call("PATCH", "/v1/streams/airlines", 200, {"description": "by IATA code"})
    assert changed["key"] == ["code"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"event_time": "since"}, "event_time"),
        ({"retention": {"latest": ["code"]}}, "retention"),
        ({"retain": "none"}, "retain"),
        ({"key": ["nowhere"]}, "key"),
        ({"kind": "stream"}, "key"),
        ({"lateness": "1 hour"}, "lateness"),
        ({"idle_timeout": "1 hour"}, "idle_timeout"),
    ],
)
def test_tables_that_are_refused(service: Service, change: dict[str, Any], field: str) -> None:
    refused = service.post("/v1/streams", {**TABLE, **change}, 422)
    assert [e["field"] for e in refused["errors"]] == [field]
    assert refused["remedy"]


@pytest.mark.parametrize(
    "change", [{"retain": "none"}, {"retention": {"ttl": "1 day"}}, {"retention": None}]
)
def test_what_a_table_keeps_does_not_change(service: Service, change: dict[str, Any]) -> None:
    service.post("/v1/streams", TABLE)
    assert service.call("PATCH", "/v1/streams/airlines", 422, change)["code"] == "table-property"


def test_a_query_says_that_it_looks_up(shop: Service) -> None:
    shop.post("/v1/streams", TABLE)
    sql = (
        "SELECT o.order_id, c.since FROM orders o JOIN items i ON i.order_id = o.order_id"
        " JOIN customers x ON x.customer_id = o.customer_id JOIN airlines c ON c.code = x.city"
    )
    bounded = "SELECT o.order_id, c.since FROM orders o JOIN items i ON i.order_id = o.order_id"
    bounded += " JOIN airlines c ON c.code = CAST(i.part AS string)"
    notes = shop.post("/v1/queries", {"id": "q", "sql": sql})["normalised"]["notes"]
    assert any("c is looked up" in note and "the last of each code" in note for note in notes)
    found = shop.post("/v1/queries", {"id": "w", "sql": bounded, "window": "1 hour"})
    assert found["normalised"]["unbounded"] == []
    past = {"id": "p", "sql": bounded, "past": "stored"}
    assert shop.post("/v1/queries", past, 422)["code"] == "past-not-stored"
    shop.boundary(-1)
    shop.answered()
    text = shop.redis.get(shop.keys.ruleset(0))
    assert text is not None
    (rule,) = rulesets.loads(text).latest_rules
    assert (rule.stream, rule.key) == ("airlines", (("code", "string"),))


@pytest.fixture
def live(settings: ServiceSettings) -> Iterator[Service]:
    with serving(replace(settings, mode=Mode.LIVE)) as running:
        yield running


FILES = {"format": "files", "path": "/data/airlines", "options": {"type": "csv"}}


def test_a_table_is_read_again(live: Service) -> None:
    made = live.post("/v1/streams", {**TABLE, "source": FILES})
    assert made["table"] == {"version": 1, "looked_up": None, "read_at": None, "rows": None}
    live.progress(
        Progress(
            "running",
            input=InputProgress(tables={"airlines": TableProgress(1, 0, 1e9, 7)}),
            committed=3,
        )
    )
    again = live.call("POST", "/v1/streams/airlines:reread", 202)
    read_at = "2001-09-09T01:46:40Z"
    assert again["table"] == {"version": 2, "looked_up": 1, "read_at": read_at, "rows": 7}
    record = json.loads(live.redis.hget(live.keys.streams, "airlines") or "")
    assert (record["version"], record["registration"] != "") == (2, True)
    assert live.call("POST", "/v1/streams/airlines:reread", 202)["table"]["version"] == 3
    assert live.post("/v1/streams", {**TABLE, "source": FILES}, 200)["table"]["version"] == 3
    assert live.call("POST", "/v1/streams/nothing:reread", 404)["code"] == "unknown-stream"


def test_a_table_is_read_again_by_those_who_know_it(live: Service) -> None:
    live.post("/v1/streams", {**TABLE, "source": FILES})
    tag = live.http.get("/v1/streams/airlines").headers["ETag"]
    known = {"If-Match": tag}
    assert live.http.post("/v1/streams/airlines:reread", headers=known).status_code == 202
    assert live.http.post("/v1/streams/airlines:reread", headers=known).status_code == 412


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"kind": "stream", "key": None}, "no-table"),
        ({"source": {"format": "redis-stream", "options": {"start": "latest"}}}, "no-reread"),
        (
            {"source": {"format": "rate"}, "columns": {"value": "bigint"}, "key": ["value"]},
            "no-reread",
        ),
        (
            {"source": {"format": "recorded", "path": "/data/a", "rows_per_batch": 1}},
            "no-reread",
        ),
    ],
)
def test_what_can_not_be_read_again(live: Service, change: dict[str, Any], code: str) -> None:
    live.post("/v1/streams", {**TABLE, "source": FILES, **change})
    refused = live.call("POST", "/v1/streams/airlines:reread", 409)
    assert refused["code"] == code
    assert refused["remedy"]


def test_health_says_which_version_stays(live: Service) -> None:
    live.post("/v1/streams", {**TABLE, "source": FILES})
    live.call("POST", "/v1/streams/airlines:reread", 202)
    live.progress(Progress("running", input=InputProgress(tables={"airlines": TableProgress(1)})))
    live.beat()
    live.source("airlines", SourceState.FAILED, "no such folder")
    found = live.get("/v1/health")["components"]
    (stream,) = (c for c in found if c["kind"] == "stream")
    assert "no such folder; queries look up version 1" in stream["message"]
    assert "anabranch stream reread airlines" in stream["remedy"]


FOLLOWING = {"id": "codes", "sql": "SELECT since, count(*) AS n FROM airlines GROUP BY since"}


def test_a_followed_table_is_not_read_again(live: Service) -> None:
    live.post("/v1/streams", {**TABLE, "source": FILES})
    made = live.post("/v1/queries", FOLLOWING)
    assert made["past"] == "stored"
    notes = made["normalised"]["notes"]
    assert any("the rows of table airlines are followed" in note for note in notes)
    refused = live.call("POST", "/v1/streams/airlines:reread", 409)
    assert (refused["code"], "codes" in refused["detail"]) == ("table-followed", True)
    live.call("DELETE", "/v1/queries/codes", 202)
    assert live.get("/v1/streams/airlines")["table"]["version"] == 1
    assert live.call("POST", "/v1/streams/airlines:reread", 202)["table"]["version"] == 2


def test_a_table_is_not_followed_while_it_is_read_again(live: Service) -> None:
    live.post("/v1/streams", {**TABLE, "source": FILES})
    live.call("POST", "/v1/streams/airlines:reread", 202)
    for version in (None, 1):
        tables = {} if version is None else {"airlines": TableProgress(version, 2)}
        live.progress(Progress("running", input=InputProgress(tables=tables)))
        refused = live.post("/v1/queries", FOLLOWING, 409)
        assert refused["code"] == "table-read-again"
        assert "version 2" in refused["remedy"]
    live.progress(Progress("running", input=InputProgress(tables={"airlines": TableProgress(2)})))
    live.post("/v1/queries", FOLLOWING)
