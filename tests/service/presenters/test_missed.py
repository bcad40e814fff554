"""Rows that were read before a query: what the service says of them, where, and until when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anabranch_client.rest.api import Client
from anabranch_contract.protocol.activations import Activation, Visibility
from anabranch_contract.protocol.progress import Progress
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service

READ = Progress("running", streams={"orders": {"input": 12, "unseen": 9}, "items": {"input": 4}})
NEVER = Activation(
    3,
    {"o": Visibility(3, None), "i": Visibility(0, None)},
    complete="never",
    missed={"o": 9, "i": 0},
    retention=((0, None), (None, 0)),
)


def said(found: dict[str, Any]) -> list[tuple[str, int | None]]:
    assert all("--retain all" in one["remedy"] for one in found["missed"])
    return [(one["stream"], one["rows"]) for one in found["missed"]]


def components(service: Service) -> list[dict[str, Any]]:
    found = service.get("/v1/health")["components"]
    return [one for one in found if one["kind"] == "completeness"]


def test_a_query_that_comes_too_late_is_told_at_once(shop: Service) -> None:
    assert said(shop.post("/v1/queries", {"id": "early", "sql": PAIR})) == []
    shop.progress(READ)
    answer = shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    assert said(answer) == [("orders", 9)]
    assert answer["missed"][0]["message"].startswith("9 rows of orders have been read and not")
    assert said(shop.get("/v1/queries/pair")) == [("orders", 9)]
    assert said(shop.post("/v1/queries:explain", {"sql": PAIR}, 200)) == [("orders", 9)]
    alone = {"id": "one", "sql": "SELECT o.order_id FROM orders o"}
    assert said(shop.post("/v1/queries", alone)) == [], "a row by itself is a result"


@pytest.mark.parametrize(
    ("changes", "rows", "yellow", "then"),
    [
        ({}, [("orders", 9)], True, "never come"),
        ({"complete": "from", "complete_from": 0}, [("orders", 9)], False, "1970-01-01"),
        ({"complete": "always", "missed": {}}, [], False, ""),
        ({"expired_batch": 7}, [], False, ""),
        (
            {"visible_from": {"o": Visibility(0, 5), "i": Visibility(0, None)}, "missed": {"o": 0}},
            [("orders", None)],
            True,
            "no longer stored",
        ),
    ],
)
def test_a_query_without_them_is_yellow_unless_it_is_complete_from_a_time(
    shop: Service, changes: dict[str, Any], rows: list[Any], yellow: bool, then: str
) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.progress(replace(READ, committed=5))
    shop.activate("pair", replace(NEVER, **changes))
    found = shop.get("/v1/queries/pair")
    assert said(found) == rows
    assert all(then in one["message"] for one in found["missed"])
    assert said(shop.get("/v1/queries")["items"][0]) == rows
    shown = components(shop)
    assert [(one["name"], one["state"]) for one in shown] == [("pair", "warning")] * yellow
    assert all(one["message"] and one["remedy"] for one in shown)


def test_of_many_queries_some_are_named(shop: Service) -> None:
    shop.progress(replace(READ, committed=5))
    for number in range(23):
        shop.post("/v1/queries", {"id": f"q{number:02}", "sql": PAIR})
        shop.activate(f"q{number:02}", NEVER)
    shown = components(shop)
    assert len(shown) == 21
    assert shown[-1]["message"].startswith("and 3 more")


def test_the_client_reads_them(shop: Service) -> None:
    shop.progress(READ)
    with Client(str(shop.http.base_url)) as client:
        query = client.create_query(PAIR, name="pair")
        assert [(m.stream, m.rows) for m in query.missed] == [("orders", 9)]
