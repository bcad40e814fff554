"""Tests of replacing, pausing and resuming queries, and of reused ids."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest

from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Progress
from tests.service.conftest import CHAIN, PAIR
from tests.support.worlds.records import remove
from tests.support.worlds.service import Service

LARGE = PAIR + " WHERE o.total > 10"


def put(shop: Service, name: str, status: int = 200, **body: Any) -> dict[str, Any]:
    return shop.call("PUT", f"/v1/queries/{name}", status, body)


def active(shop: Service, run: str, epoch: int, batch: int = 0) -> None:
    """Report that the runtime has begun ``epoch``, with ``run``."""
    shop.activate(run, Activation(batch, {}, results=7))
    shop.progress(Progress("running", committed=batch + 1, epoch=epoch, results_home="/out"))


def runs(shop: Service, name: str) -> list[tuple[str, str]]:
    return [(r["run"], r["status"]) for r in shop.get(f"/v1/queries/{name}/runs")["items"]]


def test_a_replaced_query_goes_on_until_its_next_run_takes_its_place(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR, "owner": "web"})
    shop.plan(-1)
    active(shop, "pair", 0)
    answer = put(shop, "pair", sql=LARGE, owner="web")
    assert (answer["action"], answer["fields"]) == ("replaced", ["sql"])
    assert (answer["query"]["id"], answer["query"]["run"]) == ("pair", "pair~2")
    assert (answer["query"]["status"], answer["query"]["sql"]) == ("pending", LARGE)
    assert runs(shop, "pair") == [("pair", "active"), ("pair~2", "pending")]
    assert [q["run"] for q in shop.get("/v1/queries")["items"]] == ["pair~2"]
    shop.plan(0, next_batch=4)
    assert shop.get("/v1/epochs/1")["queries"] == ["pair~2"]
    assert runs(shop, "pair") == [("pair", "expiring"), ("pair~2", "pending")]
    active(shop, "pair~2", 1, batch=4)
    assert runs(shop, "pair") == [("pair", "expired"), ("pair~2", "active")]
    now = shop.get("/v1/queries/pair")
    assert (now["results"], now["results_at"]) == (7, "/out/pair~2")
    assert shop.get("/v1/queries/pair~1")["results_at"] == "/out/pair"
    assert shop.get("/v1/queries/pair~2") == now


def test_putting_the_same_again_changes_nothing(shop: Service) -> None:
    body: dict[str, Any] = {"sql": PAIR, "ttl": "1 day", "tags": ["a"], "priority": 2}
    first = put(shop, "pair", **body)
    assert (first["action"], first["query"]["run"]) == ("created", "pair")
    again = put(shop, "pair", **body)
    assert (again["action"], again["fields"]) == ("none", [])
    assert again["query"] == first["query"]
    changed = put(shop, "pair", **{**body, "priority": 3, "title": "Orders with cities"})
    assert (changed["action"], changed["fields"]) == ("changed", ["priority", "title"])
    assert (changed["query"]["run"], changed["query"]["title"]) == ("pair", "Orders with cities")
    assert changed["query"]["expires_at"] == first["query"]["expires_at"]


def test_a_dry_run_checks_everything_and_stores_nothing(shop: Service) -> None:
    created = shop.call("PUT", "/v1/queries/pair?dry_run=true", 200, {"sql": PAIR})
    assert (created["action"], created["query"]) == ("created", None)
    shop.get("/v1/queries/pair", 404)
    put(shop, "pair", sql=PAIR)
    answer = shop.call("PUT", "/v1/queries/pair?dry_run=true", 200, {"sql": LARGE})
    assert (answer["action"], answer["fields"]) == ("replaced", ["sql"])
    assert answer["query"]["sql"] == PAIR
    assert runs(shop, "pair") == [("pair", "pending")]
    refused = shop.call("PUT", "/v1/queries/pair?dry_run=true", 422, {"sql": "SELECT o.x FROM o"})
    assert refused["errors"][0]["field"] == "sql"


def test_a_run_that_cannot_be_planned_leaves_its_place_to_the_one_before(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    active(shop, "pair", 0)
    put(shop, "pair", sql=CHAIN)
    # Only another writer can do this: the API refuses to delete a stream in use.
    remove(shop.redis, shop.keys, "streams", "items")
    shop.plan(0)
    record = shop.get("/v1/epochs/1")
    assert (record["queries"], list(record["rejected"])) == (["pair"], ["pair~2"])
    assert runs(shop, "pair") == [("pair", "active"), ("pair~2", "rejected")]
    put(shop, "pair", sql=LARGE)
    shop.plan(1)
    assert shop.get("/v1/epochs/2")["queries"] == ["pair~3"]


def test_a_paused_query_keeps_its_registration_and_its_streams(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR, "priority": 4, "tags": ["x"]})
    shop.plan(-1)
    active(shop, "pair", 0)
    assert shop.call("POST", "/v1/queries/pair:pause", 202)["status"] == "expiring"
    shop.plan(0)
    active(shop, "pair", 1)
    assert shop.get("/v1/epochs/1")["queries"] == []
    assert shop.get("/v1/queries/pair")["status"] == "paused"
    assert shop.call("POST", "/v1/queries/pair:pause", 202)["status"] == "paused"
    assert shop.call("PATCH", "/v1/queries/pair", 200, {"priority": 5})["priority"] == 5
    refused = shop.call("DELETE", "/v1/streams/orders", 409)
    assert "pair" in refused["errors"][0]["message"]
    assert put(shop, "pair", 409, sql=LARGE)["errors"][0]["code"] == "query-paused"
    resumed = shop.call("POST", "/v1/queries/pair:resume", 202)
    assert (resumed["run"], resumed["status"]) == ("pair~2", "pending")
    assert (resumed["priority"], resumed["tags"]) == (5, ["x"])
    assert shop.call("POST", "/v1/queries/pair:resume", 202)["run"] == "pair~2"
    shop.plan(1)
    active(shop, "pair~2", 2)
    assert shop.get("/v1/epochs/2")["queries"] == ["pair~2"]
    assert runs(shop, "pair") == [("pair", "expired"), ("pair~2", "active")]
    shop.call("DELETE", "/v1/queries/pair", 202)
    shop.plan(2)
    shop.progress(Progress("running", committed=9, epoch=3))
    shop.call("DELETE", "/v1/streams/orders", 204)


@pytest.mark.parametrize("how", ["DELETE", "pause"])
def test_what_ends_a_query_ends_the_run_that_would_be_replaced(shop: Service, how: str) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    active(shop, "pair", 0)
    put(shop, "pair", sql=LARGE)
    if how == "DELETE":
        shop.call("DELETE", "/v1/queries/pair", 202)
    else:
        shop.call("POST", "/v1/queries/pair:pause", 202)
    shop.plan(0)
    assert shop.get("/v1/epochs/1")["queries"] == []


def test_an_id_is_free_again_when_its_query_has_ended(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    active(shop, "pair", 0)
    refused = shop.post("/v1/queries", {"id": "pair", "sql": LARGE}, 409)
    assert refused["errors"][0]["code"] == "duplicate-query"
    shop.call("DELETE", "/v1/queries/pair", 202)
    shop.post("/v1/queries", {"id": "pair", "sql": LARGE}, 409)
    shop.plan(0)
    active(shop, "pair", 1)
    answer = shop.post("/v1/queries", {"id": "pair", "sql": LARGE})
    assert (answer["id"], answer["run"], answer["sql"]) == ("pair", "pair~2", LARGE)
    assert shop.http.get("/v1/queries/pair").json()["run"] == "pair~2"
    shop.plan(1)
    assert shop.get("/v1/epochs/2")["queries"] == ["pair~2"]


def at_once(*requests: Callable[[], httpx.Response]) -> list[int]:
    """Return the statuses of the answers to simultaneous requests."""
    with ThreadPoolExecutor(len(requests)) as pool:
        return [sent.result().status_code for sent in [pool.submit(one) for one in requests]]


@pytest.mark.parametrize("matched", [True, False])
def test_of_many_who_replace_at_once_one_does(shop: Service, matched: bool) -> None:
    for round_ in range(5):
        name = f"pair{round_}"
        shop.post("/v1/queries", {"id": name, "sql": PAIR})
        version = shop.http.get(f"/v1/queries/{name}").headers["etag"]
        headers = {"If-Match": version} if matched else {}

        def replace(number: int, at: str = name, headers: dict[str, str] = headers) -> Any:
            body = {"sql": f"{PAIR} WHERE o.total > {number}"}
            return shop.http.put(f"/v1/queries/{at}", json=body, headers=headers)

        found = at_once(*(partial(replace, n) for n in range(6)))
        replaced = found.count(200)
        assert set(found) <= ({200, 412} if matched else {200, 409})
        assert replaced == 1 if matched else replaced >= 1
        expected = [name, *(f"{name}~{n + 2}" for n in range(replaced))]
        assert [run for run, _ in runs(shop, name)] == expected


def test_of_changes_to_one_version_one_is_made(shop: Service) -> None:
    """Settings made by a PATCH are not lost to a replacement that has not seen them."""
    for round_ in range(8):
        at = f"/v1/queries/pair{round_}"
        shop.post("/v1/queries", {"id": f"pair{round_}", "sql": PAIR})
        headers = {"If-Match": shop.http.get(at).headers["etag"]}
        found = at_once(
            partial(shop.http.put, at, json={"sql": LARGE}, headers=headers),
            partial(shop.http.patch, at, json={"priority": 3}, headers=headers),
            partial(shop.http.post, f"{at}:pause", headers=headers),
        )
        assert sorted(found)[0] in (200, 202)
        assert sorted(found)[1:] == [412, 412]


def test_a_query_that_many_resume_has_one_more_run(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    for runs_so_far in range(1, 5):
        shop.call("POST", "/v1/queries/pair:pause", 202)
        resume = partial(shop.http.post, "/v1/queries/pair:resume")
        assert 202 in (found := at_once(*[resume] * 6))
        assert set(found) <= {202, 409}
        assert len(runs(shop, "pair")) == runs_so_far + 1


def test_an_ended_query_is_registered_again_by_its_version(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    before = shop.http.get("/v1/queries/pair").headers["etag"]
    shop.call("DELETE", "/v1/queries/pair", 202)
    body, at = {"sql": LARGE}, "/v1/queries/pair"
    assert shop.http.put(at, json=body, headers={"If-Match": before}).status_code == 412
    after = shop.http.get(at).headers["etag"]
    assert shop.http.put(at, json=body, headers={"If-Match": after}).status_code == 200


def test_a_sink_is_shared_where_the_columns_are_the_same(shop: Service) -> None:
    sink = {"format": "redis-stream", "options": {"stream": "found"}}
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR, "sink": sink})
    other = PAIR.replace("o.order_id", "o.total")
    refused = put(shop, "pair", 409, sql=other, sink=sink)["errors"][0]
    assert (refused["code"], refused["field"]) == ("sink-columns-differ", "sink")
    view = (
        "SELECT c.city, count(*) AS n FROM orders o JOIN customers c ON o.customer_id = "
        "c.customer_id GROUP BY c.city"
    )
    refused = put(shop, "pair", 409, sql=view, sink=sink)["errors"][0]
    assert (refused["code"], refused["field"]) == ("sink-in-use", "sink")
    assert put(shop, "pair", sql=view)["action"] == "replaced"
    assert put(shop, "pair", sql=LARGE, sink=sink)["query"]["results_at"] == "Redis Stream found"
    refused = shop.post("/v1/queries", {"id": "b", "sql": PAIR, "sink": sink}, 409)["errors"][0]
    assert "'pair' writes to" in refused["message"]


def test_queries_are_found_by_owner_and_tags(shop: Service) -> None:
    for name, owner, tags in (("a", "web", ["x", "y"]), ("b", "web", ["x"]), ("c", None, [])):
        shop.post("/v1/queries", {"id": name, "sql": PAIR, "owner": owner, "tags": tags})

    def found(filters: str) -> list[str]:
        return [q["id"] for q in shop.get(f"/v1/queries?{filters}")["items"]]

    assert found("owner=web") == ["a", "b"]
    assert found("tag=x&tag=y") == ["a"]
    assert found("tag=z") == []
    shop.call("PATCH", "/v1/queries/c", 200, {"owner": "web", "tags": ["z"], "title": "C"})
    assert found("tag=z&owner=web") == ["c"]
    shop.call("PATCH", "/v1/queries/c", 200, {"owner": None})
    assert found("owner=web") == ["a", "b"]
    assert shop.get("/v1/queries/c")["title"] == "C"
    shop.call("PATCH", "/v1/queries/c", 422, {"tags": ["z", "z"]})


def test_a_dry_run_of_a_plan_drops_a_query_by_its_id(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    active(shop, "pair", 0)
    put(shop, "pair", sql=LARGE)
    body = {"drop": ["pair"], "add": [{"id": "pair", "sql": CHAIN}]}
    assert shop.call("POST", "/v1/plans:dry-run", 200, body)["queries"] == ["pair"]


def test_what_has_ended_is_neither_paused_nor_resumed(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.call("DELETE", "/v1/queries/pair", 202)
    for verb in ("pause", "resume"):
        refused = shop.call("POST", f"/v1/queries/pair:{verb}", 409)
        assert refused["errors"][0]["code"] == "query-ended"
        shop.call("POST", f"/v1/queries/none:{verb}", 404)
    shop.get("/v1/queries/none/runs", 404)
