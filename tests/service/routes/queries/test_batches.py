"""Tests of registering many queries with one request: all or none, or each that is valid."""

from __future__ import annotations

import threading
from typing import Any

from tests.service.conftest import CHAIN, PAIR
from tests.support.worlds.service import Service


def batch(shop: Service, *queries: dict[str, Any], status: int = 200, **more: Any) -> Any:
    return shop.post("/v1/queries:batch", {"queries": list(queries), **more}, status)


def registered(shop: Service) -> list[str]:
    return [query["id"] for query in shop.get("/v1/queries?limit=1000")["items"]]


def test_all_are_registered_in_their_order(shop: Service) -> None:
    answer = batch(
        shop, {"id": "b", "sql": PAIR}, {"sql": PAIR, "tags": ["x"]}, {"id": "a", "sql": CHAIN}
    )
    assert (answer["registered"], answer["refused"]) == (3, 0)
    ids = [item["query"]["id"] for item in answer["items"]]
    assert ids == registered(shop)
    assert (ids[0], ids[2], answer["items"][1]["query"]["tags"]) == ("b", "a", ["x"])
    shop.plan(-1)
    assert shop.get("/v1/epochs/0")["queries"] == ids


def test_all_errors_of_a_statement(shop: Service) -> None:
    sql = PAIR.replace("SELECT ", "SELECT o.nope, ", 1) + " WHERE o.neither > 1 AND o.also = 2"
    for path, body in (("/v1/queries", {"sql": sql}), ("/v1/queries:explain", {"sql": sql})):
        refused = shop.post(path, body, 422)
        assert [e["code"] for e in refused["errors"]] == ["unknown-column"] * 3
        assert {e["field"] for e in refused["errors"]} == {"sql"}
        assert all(e["remedy"] and e["line"] and e["column"] for e in refused["errors"])
        first = refused["errors"][0]
        assert (refused["code"], refused["remedy"]) == (first["code"], first["remedy"])
        assert refused["detail"].endswith(first["message"])
    refused = batch(shop, {"sql": PAIR}, {"sql": sql}, status=422)
    assert [e["field"] for e in refused["errors"]] == ["queries.1.sql"] * 3
    single = shop.post("/v1/queries", {"sql": f"{PAIR} WHERE o.nope > 1"}, 422)
    assert [sorted(e) for e in single["errors"]] == [["code", "column", "field", "line", "message"]]


def test_one_bad_statement_among_many(shop: Service) -> None:
    many = [{"id": f"q{number}", "sql": PAIR} for number in range(100)]
    many[37] = {"id": "bad", "sql": f"{PAIR} WHERE o.nope > 1"}
    many[60] = {"id": "q5", "sql": PAIR}
    many[61] = {"id": "apart", "sql": PAIR, "past": "stored", "ttl": "soon"}
    refused = batch(shop, *many, status=422)
    assert [(e["field"], e["code"]) for e in refused["errors"]] == [
        ("queries.37.sql", "unknown-column"),
        ("queries.60.name", "duplicate-query"),
        ("queries.61.ttl", "bad-duration"),
    ]
    assert refused["errors"][0]["line"] == 1
    assert all(error["remedy"] for error in refused["errors"])
    assert "(and 2 more)" in refused["detail"]
    assert registered(shop) == []
    answer = batch(shop, *many, atomic=False)
    assert (answer["registered"], answer["refused"]) == (97, 3)
    problems = {n: i["problem"] for n, i in enumerate(answer["items"]) if i["problem"]}
    assert {n: p["field"] for n, p in problems.items()} == {37: "sql", 60: "name", 61: "ttl"}
    assert len(registered(shop)) == 97
    again = batch(shop, {"id": "q1", "sql": PAIR}, status=422)
    assert again["errors"][0]["field"] == "queries.0.name"


def test_two_of_a_batch_do_not_share_a_sink(shop: Service) -> None:
    sink = {"format": "redis-stream", "options": {"stream": "found"}}
    both = {"id": "one", "sql": PAIR, "sink": sink}, {"id": "two", "sql": PAIR, "sink": sink}
    refused = batch(shop, *both, status=422)
    assert (refused["errors"][0]["field"], refused["code"]) == ("queries.1.sink", "sink-in-use")
    answer = batch(shop, *both, atomic=False)
    assert (answer["registered"], answer["items"][1]["problem"]["code"]) == (1, "sink-in-use")


def test_a_dry_run_checks_all_and_stores_nothing(shop: Service) -> None:
    def tried(*queries: dict[str, Any], status: int = 200, **more: Any) -> Any:
        body = {"queries": list(queries), **more}
        return shop.post("/v1/queries:batch?dry_run=true", body, status)

    good, bad = {"id": "a", "sql": PAIR}, {"id": "b", "sql": "SELECT"}
    answer = tried(good, {"sql": CHAIN})
    assert (answer["dry_run"], answer["registered"]) == (True, 2)
    assert answer["items"][0]["query"]["normalised"]["output"]
    assert tried(good, bad, status=422)["errors"][0]["field"] == "queries.1.sql"
    each = tried(good, bad, good, atomic=False)
    assert (each["registered"], each["refused"]) == (1, 2)
    assert [item["problem"] and item["problem"]["field"] for item in each["items"]] == [
        None, "sql", "name"
    ]  # fmt: skip
    assert registered(shop) == []


def test_of_batches_at_once_each_is_whole(shop: Service) -> None:
    """Two batches with a common id: one of them is registered, completely."""
    codes: list[int] = []

    def send(name: str) -> None:
        queries = [{"id": f"{name}{n}", "sql": PAIR} for n in range(5)]
        body = {"queries": [*queries, {"id": "common", "sql": PAIR}]}
        codes.append(shop.http.post("/v1/queries:batch", json=body).status_code)

    threads = [threading.Thread(target=send, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes)[0] == 200
    assert codes.count(200) == 1
    found = registered(shop)
    assert len(found) == 6
    assert len({name[0] for name in found if name != "common"}) == 1
