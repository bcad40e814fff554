"""Tests of cutover when complete: a query keeps its present run until the new one has caught up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anabranch_contract.plans import ruleset as wire
from anabranch_contract.protocol.activations import (
    Activation,
    Failure,
    PastResults,
    PastStatus,
    Visibility,
)
from anabranch_contract.protocol.progress import Mode, Progress
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service, eventually, serving

LARGE = PAIR + " WHERE o.total > 10"
LARGER = PAIR + " WHERE o.total > 20"
BEGUN = Activation(0, {})
REDIS = {"format": "redis-stream"}


def put(shop: Service, status: int = 200, **body: Any) -> dict[str, Any]:
    given = {"sql": LARGE, "cutover": "when-complete", **body}
    return shop.call("PUT", "/v1/queries/pair", status, given)


def progress(shop: Service, epoch: int, committed: int) -> None:
    shop.progress(Progress("running", committed=committed, epoch=epoch, results_home=""))


def runs(shop: Service) -> list[tuple[str, str]]:
    return [(r["run"], r["status"]) for r in shop.get("/v1/queries/pair/runs")["items"]]


def planned(shop: Service, epoch: int) -> list[str]:
    found = shop.get(f"/v1/epochs/{epoch}")["queries"]
    assert isinstance(found, list)
    return found


def named(shop: Service) -> str:
    """Return the run that the query's name denotes, in the answer and in the list."""
    found = str(shop.get("/v1/queries/pair")["run"])
    assert [q["run"] for q in shop.get("/v1/queries")["items"]] == [found]
    return found


def why(shop: Service) -> str | None:
    found = shop.get("/v1/queries/pair")["replacement"]
    assert found is not None
    return None if found["waits_because"] is None else str(found["waits_because"])


@pytest.fixture
def pair(shop: Service) -> Service:
    """A service in which the query runs in epoch 0."""
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR, "owner": "web"})
    shop.plan(-1)
    shop.activate("pair", BEGUN)
    progress(shop, 0, 1)
    return shop


def waiting(shop: Service, activation: Activation = BEGUN) -> None:
    """Let the new run become active beside the present one, in epoch 1 from batch 4 on."""
    answer = put(shop, owner="web")
    assert (answer["action"], answer["query"]["run"]) == ("replaced", "pair~2")
    shop.plan(0, next_batch=4)
    assert planned(shop, 1) == ["pair", "pair~2"]
    shop.activate("pair~2", replace(activation, activated_batch=4))
    progress(shop, 1, 5)


def caught_up(shop: Service) -> None:
    """Let the leader note that the new run has caught up."""
    key = shop.keys.queries
    eventually(lambda: '"caught_up":true' in str(shop.redis.hget(key, "pair~2")), "it caught up")


def cut_over(shop: Service) -> None:
    """Let the present run end in batch 8, after which the new one is read."""
    caught_up(shop)
    assert why(shop) is None
    shop.plan(1, next_batch=8)
    assert planned(shop, 2) == ["pair~2"]
    assert named(shop) == "pair"
    shop.activate("pair", replace(BEGUN, expired_batch=8))
    progress(shop, 2, 8)
    eventually(lambda: shop.get("/v1/queries/pair")["run"] == "pair~2", "the new run is read")
    assert named(shop) == "pair~2"


def test_the_name_denotes_the_present_run_until_the_new_one_has_caught_up(pair: Service) -> None:
    owed = replace(BEGUN, past=PastResults(PastStatus.PENDING, 3, 1200))
    waiting(pair, owed)
    assert named(pair) == "pair"
    assert why(pair) == "results of the past are being emitted (1,200 stored rows to process)"
    assert runs(pair) == [("pair", "active"), ("pair~2", "active")]
    pair.activate("pair~2", replace(BEGUN, past=PastResults(PastStatus.EMITTED, 9)))
    cut_over(pair)
    assert runs(pair) == [("pair", "expired"), ("pair~2", "active")]
    assert pair.get("/v1/queries/pair")["replacement"] is None
    answer = put(pair, sql=LARGER, owner="web")
    assert answer["query"]["run"] == "pair~3"
    assert named(pair) == "pair~2"


def test_results_to_come_must_not_miss_rows_from_before(pair: Service) -> None:
    since = replace(BEGUN, complete="from", complete_from=60_000_000)
    waiting(pair, since)
    reason = "results before 1970-01-01T00:01:00Z may miss rows: 'customers' has no watermark"
    assert why(pair) == reason
    telemetry = Progress("running").telemetry
    marks = {"customers": 60_000_000, "orders": 60_000_000}
    pair.progress(
        Progress("running", committed=6, epoch=1, telemetry=replace(telemetry, watermarks=marks))
    )
    cut_over(pair)


def test_a_run_that_can_never_catch_up_says_so_and_the_present_one_stays(pair: Service) -> None:
    waiting(pair, replace(BEGUN, complete="never", visible_from={"o": Visibility(4, None)}))
    found = pair.get("/v1/queries/pair")["replacement"]
    assert "complete: never" in found["waits_because"]
    assert "at-once" in found["remedy"]
    pair.plan(1, next_batch=8)
    assert planned(pair, 2) == ["pair", "pair~2"]
    # The same again changes nothing; with cutover at once, the wait is over.
    assert put(pair, owner="web")["action"] == "none"
    assert put(pair, owner="web", cutover="at-once")["action"] == "replaced"
    pair.plan(2, next_batch=12)
    assert planned(pair, 3) == ["pair~2"]


@pytest.mark.parametrize("how", ["failed", "rejected"])
def test_a_new_run_that_fails_leaves_the_present_one(pair: Service, how: str) -> None:
    if how == "rejected":
        put(pair, sql=PAIR.replace("o.order_id", "o.order_id AS x"), owner="web")
        found = pair.redis.hget(pair.keys.queries, "pair~2")
        # The column that it reads is dropped before planning.
        pair.redis.hset(pair.keys.queries, "pair~2", str(found).replace("o.total", "o.gone"))
    waiting(pair) if how == "failed" else pair.plan(0, next_batch=4)
    if how == "failed":
        failure = Failure("division-by-zero", "division by zero", "1 / o.total", 6)
        pair.activate("pair~2", replace(BEGUN, expired_batch=6, failure=failure))
        progress(pair, 1, 7)
        assert why(pair) == "it failed in batch 6: division by zero"
        pair.plan(1, next_batch=8)
        assert planned(pair, 2) == ["pair"]
        # The run numbers continue, and so does the query.
        assert put(pair, owner="web")["query"]["run"] == "pair~3"
    assert named(pair) == "pair"


def test_a_replace_of_the_replace_withdraws_the_run_that_waits(pair: Service) -> None:
    waiting(pair, replace(BEGUN, past=PastResults()))
    answer = put(pair, sql=LARGER, owner="web")
    assert (answer["action"], answer["query"]["run"]) == ("replaced", "pair~3")
    pair.plan(1, next_batch=8)
    assert planned(pair, 2) == ["pair", "pair~3"]
    assert named(pair) == "pair"
    # The body of the present run withdraws the other one.
    answer = put(pair, sql=PAIR, owner="web")
    assert (answer["action"], answer["fields"]) == ("changed", ["sql"])
    pair.plan(2, next_batch=12)
    assert planned(pair, 3) == ["pair"]
    # With cutover at once, both replaced runs end.
    waiting_again = put(pair, sql=LARGE, owner="web")
    assert waiting_again["query"]["run"] == "pair~4"
    answer = put(pair, sql=LARGER, owner="web", cutover="at-once")
    assert answer["query"]["run"] == named(pair) == "pair~5"
    pair.plan(3, next_batch=16)
    assert planned(pair, 4) == ["pair~5"]


@pytest.mark.parametrize("how", ["DELETE", ":pause"])
def test_what_ends_a_query_ends_the_run_that_waits(pair: Service, how: str) -> None:
    waiting(pair, replace(BEGUN, past=PastResults()))
    if how == "DELETE":
        pair.call("DELETE", "/v1/queries/pair", 202)
    else:
        pair.call("POST", "/v1/queries/pair:pause", 202)
    pair.plan(1, next_batch=8)
    assert planned(pair, 2) == []
    if how == ":pause":
        pair.activate("pair", replace(BEGUN, expired_batch=8))
        assert pair.call("POST", "/v1/queries/pair:resume", 202)["run"] == "pair~3"


def test_a_run_that_waits_is_withdrawn_by_its_name(pair: Service) -> None:
    waiting(pair, replace(BEGUN, past=PastResults()))
    pair.call("DELETE", "/v1/queries/pair~2", 202)
    pair.plan(1, next_batch=8)
    assert planned(pair, 2) == ["pair"]


def test_before_its_first_run_has_begun_a_query_is_replaced_at_once(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    assert put(shop)["query"]["run"] == named(shop) == "pair~2"
    shop.plan(-1)
    assert planned(shop, 0) == ["pair~2"]


def test_settings_change_for_both_runs(pair: Service) -> None:
    waiting(pair)
    assert put(pair, priority=3, owner="web")["action"] == "changed"
    pair.call("PATCH", "/v1/queries/pair", 200, {"title": "Pairs"})
    for name in ("pair", "pair~2"):
        found = pair.get(f"/v1/queries/{name}")
        assert (found["priority"], found["title"]) == (3, "Pairs")


def test_a_query_that_is_read_keeps_its_run(pair: Service) -> None:
    waiting(pair, replace(BEGUN, past=PastResults()))
    pair.post("/v1/queries", {"name": "reader", "sql": "SELECT p.order_id FROM pair p"})
    pair.activate("pair~2", BEGUN)
    assert why(pair) == "the present run is read by 'reader'"
    caught_up(pair)
    pair.plan(1, next_batch=8)
    assert planned(pair, 2) == ["pair", "pair~2", "reader"]


def test_a_shared_sink_gets_the_new_results_once_the_present_run_has_ended(shop: Service) -> None:
    sink = {"format": "redis-stream", "options": {"stream": "pairs"}}
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR, "sink": sink})
    shop.plan(-1)
    shop.activate("pair", BEGUN)
    progress(shop, 0, 1)
    put(shop, sink=sink)
    shop.plan(0, next_batch=4)

    def sinks(epoch: int) -> dict[str, str]:
        text = str(shop.redis.get(shop.keys.ruleset(epoch)))
        return {str(one.id): one.sink.format for one in wire.loads(text).queries}

    assert sinks(1) == {"pair": "redis-stream", "pair~2": "count"}
    shop.activate("pair~2", BEGUN)
    progress(shop, 1, 5)
    caught_up(shop)
    shop.plan(1, next_batch=8)
    assert sinks(2) == {"pair~2": "redis-stream"}


def test_a_statement_in_parts_is_refused(settings: ServiceSettings) -> None:
    parts = (
        "SELECT o.order_id, g.n FROM orders o JOIN "
        "(SELECT i.order_id, count(*) AS n FROM items i GROUP BY i.order_id) g "
        "ON g.order_id = o.order_id"
    )
    with serving(settings.changed(mode=Mode.LIVE)) as live:
        for name in ("orders", "items", "customers"):
            columns = {"order_id": "bigint", "customer_id": "bigint", "city": "string"}
            live.post("/v1/streams", {"name": name, "columns": columns, "source": REDIS})
        # Only now: with a runtime, the service would have waited until it has tried the sources.
        live.beat()
        live.post("/v1/queries", {"id": "pair", "sql": PAIR})
        live.plan(-1)
        live.activate("pair", BEGUN)
        progress(live, 0, 1)
        refused = put(live, 422, sql=parts)["errors"][0]
        assert (refused["code"], refused["field"]) == ("cutover-with-parts", "cutover")
