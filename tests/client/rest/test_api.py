"""Tests of the Python client (REST) against the real service."""

from __future__ import annotations

import asyncio
import inspect

import httpx
import pytest

from anabranch_client.errors import ApiError
from anabranch_client.rest.api import AsyncClient, Client, query_body
from anabranch_contract import codec
from anabranch_contract.protocol.measurements import (
    EdgeStatistics,
    Snapshot,
    StoreStatistics,
    StreamSample,
    StreamStatistics,
)
from anabranch_contract.protocol.state_report import StateReport
from tests.client.conftest import CUSTOMERS, JOIN, ORDERS
from tests.support.worlds.processes import wait_until
from tests.support.worlds.service import Service


def test_somebody_leads(client: Client) -> None:
    wait_until("a service leads", lambda: client.leader().leads)
    assert client.leader().is_this


def test_streams_come_and_go(client: Client) -> None:
    made = client.create_stream("orders", ORDERS, lateness="unbounded")
    assert [(c.name, c.type) for c in made.columns] == list(ORDERS)
    assert client.stream("orders") == made
    assert [s.name for s in client.streams()] == ["orders"]
    client.delete_stream("orders")
    assert client.streams() == []


def test_a_source_is_kept_as_it_was_given(client: Client) -> None:
    source = {"format": "recorded", "path": "/data/x.parquet", "rows_per_batch": 7}
    client.create_stream("orders", dict(ORDERS), source=source)
    assert {k: client.stream("orders").source[k] for k in source} == source


def test_queries_come_change_and_go(shop: Client, service: Service) -> None:
    made = shop.create_query(JOIN, name="where", ttl="1 hour", priority=3)
    assert (made.id, made.status) == ("where", "pending")
    assert [(c.name, c.type) for c in made.normalised.output] == [
        ("order_id", "bigint"),
        ("city", "string"),
    ]
    assert made.expires_at is not None
    assert shop.update_query("where", expires_at=None).expires_at is None
    assert shop.query("where").document()["priority"] == 3
    shop.delete_query("where")
    service.plan(-1)
    assert shop.query("where").status == "expired"


def test_all_pages_are_read(shop: Client, service: Service) -> None:
    for epoch in range(-1, 101):
        service.plan(epoch)
    assert [e.epoch for e in shop.epochs()] == list(range(101, -1, -1))
    names = [f"q{n:03}" for n in range(101)]
    for name in names:
        shop.create_query(JOIN, name=name)
    assert [q.id for q in shop.queries()] == names
    assert [q.id for q in shop.queries(find="q0", page=7)] == names[:-1]


def test_epochs_explain_themselves(shop: Client, service: Service) -> None:
    shop.create_query(JOIN, name="where")
    service.plan(-1)
    epoch = shop.epoch(0)
    assert epoch.queries == ["where"]
    assert epoch.cost > 0
    assert [q["id"] for q in epoch.explain["queries"]] == ["where"]
    assert shop.current_epoch().epoch.epoch == 0


def test_a_dry_run_changes_nothing(shop: Client) -> None:
    body = query_body(JOIN, None, "new")
    plan = shop.dry_run([body], optimizer="individual", statistics={"orders": 1000.0})
    assert (plan.queries, plan.optimizer) == (["new"], "individual")
    assert "orders" in plan.text
    assert list(shop.queries()) == []


def test_settings_are_switched_one_by_one(client: Client) -> None:
    before = client.settings()
    after = client.update_settings(optimizer="individual")
    assert after.optimizer == "individual"
    assert (after.parallelism, after.objective) == (before.parallelism, before.objective)


def test_a_refusal_carries_the_problem_details(shop: Client) -> None:
    with pytest.raises(ApiError) as caught:
        shop.create_query("SELECT o.colour FROM orders o", name="bad")
    refusal = caught.value
    assert refusal.status == 422
    assert refusal.code
    assert refusal.problem["status"] == 422
    assert "colour" in str(refusal)
    assert refusal.remedy
    assert list(shop.queries()) == []


def test_a_query_with_a_name_that_is_taken_is_a_conflict(shop: Client) -> None:
    shop.create_query(JOIN, name="q")
    with pytest.raises(ApiError) as caught:
        shop.create_query(JOIN, name="q")
    assert caught.value.status == 409


def test_an_idempotency_key_makes_a_retry_harmless(shop: Client) -> None:
    first = shop.create_query(JOIN, idempotency_key="once")
    assert shop.create_query(JOIN, idempotency_key="once").id == first.id
    assert len(list(shop.queries())) == 1


def test_what_is_unknown_is_a_404(client: Client) -> None:
    for ask in (lambda: client.query("x"), lambda: client.stream("x"), lambda: client.epoch(9)):
        with pytest.raises(ApiError) as caught:
            ask()
        assert caught.value.status == 404


def test_names_are_quoted_in_paths(client: Client) -> None:
    with pytest.raises(ApiError) as caught:
        client.query("a/../b?c")
    assert caught.value.status == 404


def test_no_service_is_said_with_a_remedy() -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(ApiError) as caught:
        client.streams()
    assert (caught.value.status, caught.value.code) == (0, "unreachable")
    assert "anabranch up" in str(caught.value)


def test_an_answer_from_something_else_is_said_to_be_that() -> None:
    call = Client.epoch(Client("http://elsewhere"), 0)
    request = httpx.Request("GET", "http://elsewhere/v1/epochs/0")
    for response in (
        httpx.Response(200, text="<html>", request=request),
        httpx.Response(200, json={"epoch": "none"}, request=request),
        httpx.Response(502, text="bad gateway", request=request),
    ):
        with pytest.raises(ApiError) as caught:
            call.answer(response)
        assert "is this" in caught.value.remedy
        assert "\n" not in str(caught.value)


def test_the_asynchronous_client_does_the_same(url: str) -> None:
    async def tour() -> None:
        async with AsyncClient(url) as client:
            await client.ready()
            await client.create_stream("orders", ORDERS)
            await client.create_stream("customers", CUSTOMERS)
            await client.create_query(JOIN, name="where")
            assert [q.id async for q in client.queries()] == ["where"]
            assert [s.name for s in await client.streams()] == ["customers", "orders"]
            assert (await client.dry_run(drop=["where"])).queries == []
            with pytest.raises(ApiError):
                await client.query("other")

    asyncio.run(tour())


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    def signatures(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert signatures(Client) == signatures(AsyncClient)


def test_statistics_and_samples_are_read(shop: Client, service: Service) -> None:
    measured = Snapshot(
        0,
        2,
        2,
        edges={"orders>customers": EdgeStatistics(10, 8, 0.001, 20, 8)},
        stores={"orders/1": StoreStatistics(10, 2048, 1, {"customer_id": 4.0})},
        measured={"orders": StreamStatistics(10, 1, 0, 5.0, 20.0, (9, 1))},
    )
    service.redis.set(service.keys.statistics(0), codec.dumps(measured))
    found = shop.epoch_statistics(0)
    assert found.streams["orders"].tuples_per_second == 2
    assert found.streams["orders"].delay_us["p50"] == 0
    assert found.stores["orders/1"].keys == {"customer_id": 4.0}
    assert found.edges["orders>customers"].nanoseconds == 1_000_000
    sample = StreamSample(10, 2, {"customer_id": ("bigint", [7, 7])})
    service.redis.hset(service.keys.samples, "orders", sample.dumps())
    column = shop.stream_sample("orders").columns["customer_id"]
    assert [(t.value, t.share) for t in column.top] == [(7, 1.0)]


def test_stored_state_is_read(shop: Client, service: Service) -> None:
    with pytest.raises(ApiError, match="has not reported"):
        shop.state()
    told = StateReport(3, 0, 0, 2048, 1, 3072, 1.5, 2048, 0, 1.0, (), 0)
    service.redis.set(service.keys.state, told.dumps())
    found = shop.state()
    assert (found.next_batch, found.bytes, found.stores) == (3, 2048, ())
