from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch_contract.protocol.intake import (
    RECORDED,
    InputProgress,
    StreamIntake,
    Unread,
    UnreadPiece,
)
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.protocol.registered import StreamProperties
from tests.service.conftest import PAIR, STREAMS
from tests.support.worlds.service import Service

PLAIN = {"name": "events", "columns": {"id": "BIGINT", "at": "timestamp", "kind": "varchar"}}


def test_a_stream_is_registered_with_normalised_types(service: Service) -> None:
    response = service.http.post("/v1/streams", json=PLAIN)
    assert response.status_code == 201
    assert response.headers["location"] == "/v1/streams/events"
    answer = response.json()
    assert [(c["name"], c["type"]) for c in answer["columns"]] == [
        ("id", "bigint"),
        ("at", "timestamp"),
        ("kind", "string"),
    ]
    assert answer["event_time"] is None
    assert service.get("/v1/streams/events") == answer
    assert service.get("/v1/streams")["items"] == [answer]


@pytest.mark.parametrize(
    ("given", "answered"),
    [(None, "10 minutes"), ("PT1H", "1 hour"), ("unbounded", "unbounded"), ("0 seconds",) * 2],
)
def test_lateness_of_a_stream_with_event_time(
    service: Service, given: str | None, answered: str
) -> None:
    body = {**PLAIN, "event_time": "at"} | ({} if given is None else {"lateness": given})
    assert service.post("/v1/streams", body)["lateness"] == answered


def test_silence_and_late_tuples_can_be_dealt_with_otherwise_at_any_time(service: Service) -> None:
    body = {**PLAIN, "event_time": "at", "idle_timeout": "PT90S", "keep_late": True}
    first = service.post("/v1/streams", body)
    assert (first["idle_timeout"], first["keep_late"]) == ("1 minute 30 seconds", True)
    assert service.post("/v1/streams", body, 200) == first
    path = "/v1/streams/events"
    changed = service.call("PATCH", path, 200, {"idle_timeout": None})
    assert (changed["idle_timeout"], changed["keep_late"]) == (None, True)
    changed = service.call("PATCH", path, 200, {"idle_timeout": "5 minutes", "keep_late": False})
    assert (changed["idle_timeout"], changed["keep_late"]) == ("5 minutes", False)
    assert service.call("PATCH", path, 200, {}) == changed == service.get(path)
    assert service.call("PATCH", path, 422, {"lateness": "1 hour"})["errors"]
    assert service.call("PATCH", "/v1/streams/none", 404, {})["code"] == "unknown-stream"


def test_a_stream_says_what_it_retains_and_may_say_otherwise(service: Service) -> None:
    body = {**PLAIN, "event_time": "at", "retain": "PT48H"}
    first = service.post("/v1/streams", body)
    assert first["retain"] == "2 days"
    assert service.post("/v1/streams", body, 200) == first
    assert service.post("/v1/streams", {**body, "retain": "all"}, 409)["code"]
    path = "/v1/streams/events"
    for given in ("all", "none", "2 hours"):
        assert service.call("PATCH", path, 200, {"retain": given})["retain"] == given
        assert service.call("PATCH", path, 200, {"keep_late": True})["retain"] == given
    for wrong in ("0 seconds", "some", "-1 day"):
        refused = service.call("PATCH", path, 422, {"retain": wrong})
        assert refused["errors"][0]["field"] == "retain", refused
    timeless = {**PLAIN, "name": "timeless"}
    refused = service.post("/v1/streams", {**timeless, "retain": "1 day"}, 422)
    assert refused["code"] == "retain-without-event-time"
    assert service.post("/v1/streams", {**timeless, "retain": "all"})["retain"] == "all"


def test_streams_are_listed_page_by_page(shop: Service) -> None:
    names, path = [], "/v1/streams?limit=2"
    while path:
        page = shop.get(path)
        names.append([stream["name"] for stream in page["items"]])
        cursor = page["next_cursor"]
        path = f"/v1/streams?limit=2&cursor={cursor}" if cursor else ""
    assert names == [["customers", "items"], ["orders"]]
    everything = shop.get("/v1/streams")
    assert (len(everything["items"]), everything["next_cursor"]) == (3, None)
    shop.get("/v1/streams?cursor=not%20one", 422)


def test_a_description_is_kept_for_people(service: Service) -> None:
    first = service.post("/v1/streams", {**PLAIN, "description": "Clicks of the shop, größer"})
    assert first["description"] == "Clicks of the shop, größer"
    changed = service.call("PATCH", "/v1/streams/events", 200, {"description": ""})
    assert changed == {**first, "description": ""} == service.get("/v1/streams/events")
    for bad in ("x" * 1001, "two\nlines", "\x1b[2J"):
        problem = service.call("PATCH", "/v1/streams/events", 422, {"description": bad})
        assert problem["errors"][0]["field"] == "description"


def test_a_site_is_where_executors_read_it(service: Service) -> None:
    made = service.post("/v1/streams", {**PLAIN, "site": "paris-2.example"})
    assert (made["site"], made["at_site"]) == ("paris-2.example", None)
    service.progress(Progress("running", input=InputProgress(sites=("oslo", "rome"))))
    assert service.get("/v1/streams/events")["at_site"] is False
    changed = service.call("PATCH", "/v1/streams/events", 200, {"site": "rome"})
    assert (changed["site"], changed["at_site"]) == ("rome", True)
    gone = service.call("PATCH", "/v1/streams/events", 200, {"site": ""})
    assert (gone["site"], gone["at_site"]) == ("", None)
    for bad in ("x" * 254, "two words", "a/b", "é"):
        problem = service.call("PATCH", "/v1/streams/events", 422, {"site": bad})
        assert problem["errors"][0]["field"] == "site"
    # Another site makes another definition.
    service.post("/v1/streams", {**PLAIN, "site": "oslo"}, 409)


@pytest.mark.parametrize("name", sorted(StreamProperties.model_fields))
def test_a_property_of_null_is_not_changed(service: Service, name: str) -> None:
    default = StreamProperties.model_fields[name].default
    given = (not default) if isinstance(default, bool) else "paris"
    before = service.post("/v1/streams", {**STREAMS[0], name: given})
    assert before[name] == given
    answer = service.http.patch(f"/v1/streams/{before['name']}", json={name: None})
    assert (answer.status_code, answer.json()[name]) == (200, given)


def test_what_has_no_meaning_is_not_patched_in(service: Service) -> None:
    plain = service.post("/v1/streams", PLAIN)
    assert (plain["idle_timeout"], plain["keep_late"]) == (None, True)
    for change in ({"idle_timeout": "1 minute"}, {"ahead_of_clock": "1 day"}):
        problem = service.call("PATCH", "/v1/streams/events", 422, change)
        assert problem["errors"][0]["field"] in change
    assert service.get("/v1/streams/events") == plain


def test_the_ruleset_tells_workers_of_time_outs_and_kept_tuples(service: Service) -> None:
    body = {**PLAIN, "event_time": "at", "idle_timeout": "PT90S", "keep_late": True}
    service.post("/v1/streams", body)
    service.plan(-1)
    (spec,) = json.loads(str(service.redis.get(service.keys.ruleset(0))))["streams"]
    assert (spec["idle_timeout"], spec["keep_late"]) == (90_000_000, True)


def test_event_times_are_bounded_where_a_watermark_can_be_poisoned(service: Service) -> None:
    def bounds(answer: dict[str, Any]) -> tuple[str, str]:
        return answer["ahead_of_clock"], answer["ahead_of_stream"]

    def post(name: str, **body: Any) -> dict[str, Any]:
        return service.post("/v1/streams", {**PLAIN, "name": name, **body})

    assert bounds(post("plain")) == ("unbounded", "unbounded")
    assert bounds(post("never", event_time="at", lateness="unbounded")) == (
        "unbounded",
        "unbounded",
    )
    asked = {"lateness": "unbounded", "ahead_of_stream": "PT2H"}
    assert bounds(post("asked", event_time="at", **asked)) == ("unbounded", "2 hours")
    off = {"ahead_of_stream": "unbounded"}
    assert bounds(post("off", event_time="at", **off)) == ("1 day", "unbounded")
    made = post("events", event_time="at")
    assert made["ahead_of_clock"] == "1 day"
    path = "/v1/streams/events"
    service.plan(-1)
    (spec,) = (
        s
        for s in json.loads(str(service.redis.get(service.keys.ruleset(0))))["streams"]
        if s["name"] == "events"
    )
    day = 86_400_000_000
    assert (spec["ahead_of_clock"], spec["ahead_of_stream"]) == (day, 366 * day)
    change = {"ahead_of_stream": "unbounded", "ahead_of_clock": "1 hour"}
    assert bounds(service.call("PATCH", path, 200, change)) == ("1 hour", "unbounded")
    assert bounds(service.call("PATCH", path, 200, {"ahead_of_clock": None})) == (
        "1 hour",
        "unbounded",
    )
    problem = service.call("PATCH", "/v1/streams/plain", 422, {"ahead_of_stream": "1 day"})
    assert problem["errors"][0]["field"] == "ahead_of_stream"


def test_the_same_definition_again_changes_nothing(service: Service) -> None:
    first = service.post("/v1/streams", {**PLAIN, "event_time": "at"})
    spelled = {
        "name": "events",
        "columns": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": "TIMESTAMP"},
            {"name": "kind", "type": "string"},
        ],
        "event_time": "at",
        "lateness": "PT600S",
    }
    assert service.post("/v1/streams", spelled, 200) == first


def test_another_definition_under_a_name_is_refused(service: Service) -> None:
    service.post("/v1/streams", PLAIN)
    problem = service.post("/v1/streams", {**PLAIN, "columns": {"id": "int"}}, 409)
    assert problem["code"] == "duplicate-stream"
    assert [e["field"] for e in problem["errors"]] == ["name"]
    assert len(service.get("/v1/streams/events")["columns"]) == 3


def test_names_that_differ_by_case_only_are_refused(service: Service) -> None:
    service.post("/v1/streams", PLAIN)
    assert "case only" in service.post("/v1/streams", {**PLAIN, "name": "Events"}, 409)["detail"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "no spaces"}, "name"),
        ({"columns": {}}, "columns"),
        ({"columns": {"id": "bigint", "ID": "int"}}, "columns"),
        ({"columns": {"id": "uuid"}}, "columns.id"),
        ({"columns": {"id": "decimal(50,2)"}}, "columns.id"),
        ({"event_time": "nothing"}, "event_time"),
        ({"event_time": "kind"}, "event_time"),
        ({"lateness": "10 minutes"}, "lateness"),
        ({"event_time": "at", "lateness": "soon"}, "lateness"),
        ({"event_time": "at", "lateness": "-5 minutes"}, "lateness"),
        ({"idle_timeout": "1 minute"}, "idle_timeout"),
        ({"event_time": "at", "lateness": "unbounded", "idle_timeout": "PT1M"}, "idle_timeout"),
        ({"event_time": "at", "idle_timeout": "0 seconds"}, "idle_timeout"),
        ({"event_time": "at", "idle_timeout": "a while"}, "idle_timeout"),
        ({"ahead_of_clock": "1 day"}, "ahead_of_clock"),
        ({"ahead_of_stream": "1 day"}, "ahead_of_stream"),
        ({"event_time": "at", "ahead_of_stream": "0 seconds"}, "ahead_of_stream"),
        ({"event_time": "at", "ahead_of_clock": "a while"}, "ahead_of_clock"),
        ({"retention": {"ttl": "7 days"}}, "retention.ttl"),
        ({"event_time": "at", "retention": {"ttl": "-7 days"}}, "retention.ttl"),
        ({"event_time": "at", "retention": {"ttl": "a week"}}, "retention.ttl"),
        ({"event_time": "at", "retention": {"ttl": "1 month"}}, "retention.ttl"),
        ({"event_time": "at", "retention": {"ttl": 7}}, "retention.ttl"),
        ({"event_time": "at", "retention": {"latest": ["where"]}}, "retention.latest"),
        ({"event_time": "at", "retention": {}}, "retention"),
        ({"event_time": "at", "retention": "7 days"}, "retention"),
        ({"event_time": "at", "retention": {"ttl": "7 days", "rows": 5}}, "retention.rows"),
        ({"source": {"format": "recorded", "rows_per_batch": 0}}, "source.rows_per_batch"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_definition_that_cannot_be_used(
    untouched: Service, change: dict[str, Any], field: str
) -> None:
    problem = untouched.post("/v1/streams", PLAIN | change, 422)
    assert any(e["field"].startswith(field) for e in problem["errors"]), problem
    assert problem["remedy"]
    assert untouched.get("/v1/streams")["items"] == []


def test_counts_of_the_runtime_are_shown(shop: Service) -> None:
    counts = {"orders": {"input": 10, "late": 2, "invalid": 1}}
    shop.progress(Progress("running", committed=1, epoch=0, streams=counts))
    answer = shop.get("/v1/streams/orders")
    assert (answer["input_tuples"], answer["late_tuples"], answer["invalid_tuples"]) == (10, 2, 1)
    shop.progress(Progress("running", streams={"orders": {**counts["orders"], "ahead": 4}}))
    assert shop.get("/v1/streams/orders")["ahead_tuples"] == 4
    text = shop.http.get("/metrics").text
    assert 'anabranch_stream_aside_tuples{reason="ahead",stream="orders"} 4.0' in text
    assert shop.get("/v1/streams/items")["input_tuples"] is None


def test_a_stream_without_users_can_be_deleted(shop: Service) -> None:
    assert shop.call("DELETE", "/v1/streams/items", 204) == {}
    assert shop.get("/v1/streams/items", 404)["code"] == "unknown-stream"
    assert shop.call("DELETE", "/v1/streams/items", 404)["code"] == "unknown-stream"
    assert len(shop.get("/v1/streams")["items"]) == len(STREAMS) - 1


def test_a_stream_that_a_live_query_reads_stays_until_it_has_expired(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    problem = shop.call("DELETE", "/v1/streams/orders", 409)
    assert problem["code"] == "stream-in-use"
    assert "pair" in problem["detail"]
    shop.call("DELETE", "/v1/queries/pair", 202)
    assert shop.call("DELETE", "/v1/streams/orders", 409)["code"] == "stream-in-use"
    shop.plan(0)
    shop.progress(Progress("running", committed=8, epoch=1))
    shop.call("DELETE", "/v1/streams/orders", 204)
    assert shop.get("/v1/queries/pair")["status"] == "expired"


def test_a_stream_of_a_withdrawn_query_can_be_deleted_where_no_runtime_could_end_it(
    shop: Service,
) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    shop.progress(Progress("failed", committed=3, epoch=0))
    assert shop.call("DELETE", "/v1/streams/orders", 409)["code"] == "stream-in-use"
    shop.call("DELETE", "/v1/queries/pair", 202)
    assert shop.call("DELETE", "/v1/streams/orders", 409)["code"] == "stream-in-use"
    shop.redis.delete(shop.keys.heartbeat)
    shop.call("DELETE", "/v1/streams/orders", 204)
    assert shop.get("/v1/queries/pair")["status"] == "expiring"
    # Planning continues without both.
    shop.plan(0)
    assert shop.get("/v1/epochs/1")["queries"] == []


def test_what_happens_to_bad_files_is_said_of_files_only(shop: Service) -> None:
    source = {"format": "files", "path": "/in", "options": {"on_bad_file": "skip"}}
    columns = [{"name": "k", "type": "int"}]
    made = shop.post("/v1/streams", {"name": "f", "columns": columns, "source": source})
    assert made["source"]["options"] == {"on_bad_file": "skip"}
    changed = shop.http.patch("/v1/streams/f", json={"on_bad_file": "stop"})
    assert changed.json()["source"]["options"] == {"on_bad_file": "stop"}
    for body in ({"on_loss": "skip"}, {"on_bad_file": "sometimes"}):
        assert shop.http.patch("/v1/streams/f", json=body).status_code == 422
    problem = shop.http.patch("/v1/streams/orders", json={"on_bad_file": "skip"})
    assert problem.status_code == 422
    assert problem.json()["code"] == "no-such-policy"


def test_what_happens_to_changed_files_is_said_of_directories_that_the_runtime_reads(
    shop: Service,
) -> None:
    columns = [{"name": "k", "type": "int"}]
    for name, source in (
        ("f", {"format": "files", "path": "/in", "options": {"type": "csv", "sep": ";"}}),
        ("c", {"format": "csv", "path": "/in", "options": {"header": "true"}}),
    ):
        made = shop.post("/v1/streams", {"name": name, "columns": columns, "source": source})
        assert made["source"] == {**source, "rows_per_batch": None, "then": None}
        changed = shop.http.patch(f"/v1/streams/{name}", json={"on_changed_file": "read"})
        assert changed.json()["source"]["options"]["on_changed_file"] == "read"
        assert (
            shop.http.patch(f"/v1/streams/{name}", json={"on_changed_file": "no"}).status_code
            == 422
        )
    # Spark reads this one.
    dated = {"format": "csv", "path": "/in", "options": {"dateFormat": "dd.MM.yyyy"}}
    shop.post("/v1/streams", {"name": "d", "columns": columns, "source": dated})
    problem = shop.http.patch("/v1/streams/d", json={"on_changed_file": "read"})
    assert problem.json()["code"] == "no-such-policy"
    dated["options"] = {"dateFormat": "dd.MM.yyyy", "on_changed_file": "read"}
    refused = shop.http.post("/v1/streams", json={"name": "e", "columns": columns, "source": dated})
    assert "option dateFormat" in refused.json()["detail"]


def test_what_could_not_be_read_is_shown(shop: Service) -> None:
    piece = UnreadPiece("/in/a", "rows", 5, None, None, None, "missing-file", "it is gone", 7)
    entries = UnreadPiece("k", "entries", "1-0", "9-0", None, 3, "entries-lost", "3 are gone", 8)
    unread = Unread().and_also([piece, entries])
    assert (unread.pieces, unread.lost) == (2, 4)
    intake = {"orders": StreamIntake(error="held", lost=unread.lost, unread=unread)}
    progress = Progress("running", committed=9, epoch=0, input=InputProgress(intake))
    assert Progress.loads(progress.dumps()) == progress
    shop.progress(progress)
    found = shop.get("/v1/streams/orders")
    assert (found["source_error"], found["lost_entries"]) == ("held", 4)
    assert found["unread"]["pieces"] == 2
    assert [p["reason"] for p in found["unread"]["last"]] == ["it is gone", "3 are gone"]
    assert shop.get("/v1/streams/items")["unread"] is None
    more = unread.and_also([piece] * 100)
    assert (more.pieces, len(more.last)) == (102, RECORDED)


def test_parts_of_a_file_that_follow_each_other_are_one_record() -> None:
    def part(first: int, last: int | None, rows: int | None = 5, **other: str) -> UnreadPiece:
        known = {"source": "/in/a", "unit": "rows", "code": "damaged-file", **other}
        return UnreadPiece(
            first=first, last=last, rows=rows, entries=None, reason="", batch=first, **known
        )

    unread = Unread().and_also([part(0, 5), part(5, 10)]).and_also([part(10, 15)])
    assert (unread.pieces, unread.lost, unread.last) == (1, 1, (part(0, 15, 15),))
    to_the_end = unread.and_also([part(15, None, None)])
    assert to_the_end.last == (part(0, None, None),)
    apart = [part(20, 25), part(15, 20, code="missing-file"), part(15, 20, source="/in/b")]
    assert unread.and_also(apart).pieces == 4
    assert to_the_end.and_also(apart).pieces == 4
