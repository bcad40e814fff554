"""Tests of what the service reports of rows read before a query's registration, where, and until
when.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from anabranch_client.rest.api import Client
from anabranch_contract.protocol.activations import Activation, Visibility
from anabranch_contract.protocol.progress import Mode, Progress
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import PAIR, STREAMS
from tests.support.worlds.service import Service, serving

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


@pytest.fixture
def live(settings: ServiceSettings) -> Iterator[Service]:
    """A service in live mode with the streams of ``shop``."""
    with serving(settings.changed(mode=Mode.LIVE)) as service:
        for stream in STREAMS:
            service.post("/v1/streams?wait=0", stream)
        yield service


COUNTED = (
    "SELECT c.city, t.n FROM customers c JOIN (SELECT customer_id, count(*) AS n FROM orders "
    "GROUP BY customer_id) t ON t.customer_id = c.customer_id"
)


@pytest.mark.parametrize(
    ("past", "retain", "rows"),
    [
        (None, False, [("orders", 12)]),
        (None, True, []),  # the part emits the results of the past
        ("none", False, []),  # the whole statement begins with later rows
    ],
)
def test_rows_that_do_not_count_in_a_part_are_missed(
    live: Service, past: str | None, retain: bool, rows: list[Any]
) -> None:
    if retain:
        live.call("PATCH", "/v1/streams/orders", 200, {"retain": "all"})
    live.progress(replace(READ, streams={"orders": {"input": 12}}, committed=5))
    body = {"id": "counted", "sql": COUNTED} | ({} if past is None else {"past": past})
    if past is None:
        assert said(live.post("/v1/queries:explain", {"sql": COUNTED}, 200)) == rows
    assert said(live.post("/v1/queries", body)) == rows
    assert said(live.get("/v1/queries/counted")) == rows
    begun = Activation(3, {}, before={} if retain else {"orders": 11})
    live.activate("counted.1", begun)
    live.activate("counted", Activation(3, {}))
    found = live.get("/v1/queries/counted")
    missed = [(stream, 11) for stream, _ in rows]
    assert (said(found), found["complete"]) == (missed, "never" if rows else "always")
    assert live.get("/v1/queries")["items"] == [found]
    assert [one["name"] for one in components(live)] == ["counted"] * len(rows)
    assert all("subquery counted.1" in one["message"] for one in found["missed"])


def test_a_part_that_misses_rows_leaves_the_statement_incomplete(live: Service) -> None:
    joined = COUNTED.replace("FROM orders", "FROM orders o JOIN items i ON o.order_id = i.order_id")
    joined = joined.replace("SELECT customer_id", "SELECT o.customer_id").replace(
        "GROUP BY customer_id", "GROUP BY o.customer_id"
    )
    live.progress(replace(READ, committed=5))
    assert said(live.post("/v1/queries", {"id": "joined", "sql": joined})) == [("orders", 9)]
    live.activate("joined.1", NEVER)
    live.activate("joined", Activation(3, {}))
    found = live.get("/v1/queries/joined")
    assert (said(found), found["complete"]) == ([("orders", 9)], "never")
