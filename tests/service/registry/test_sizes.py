"""Tests of limits of registrations: larger ones are refused at once, and delay no other request."""

from __future__ import annotations

import json
import time

import pytest

from anabranch_service.settings import ServiceSettings
from tests.service.conftest import PAIR, STREAMS
from tests.support.worlds.records import put
from tests.support.worlds.service import Service, serving


def chain(count: int) -> str:
    joins = (f"JOIN orders t{i} ON t{i}.order_id = t{i - 1}.order_id" for i in range(1, count))
    return f"SELECT t0.total FROM orders t0 {' '.join(joins)}"


@pytest.mark.parametrize("count", [17, 99])
def test_a_join_of_too_many_aliases_is_refused_at_once(shop: Service, count: int) -> None:
    sql = chain(count)
    nested = f"SELECT a.total FROM ({sql}) a JOIN orders b ON a.total = b.total"
    began = time.process_time()
    structured = {
        "from": [{"stream": "orders", "alias": f"t{i}"} for i in range(count)],
        "join": [f"t{i}.order_id = t{i - 1}.order_id" for i in range(1, count)],
    }
    for body in ({"sql": sql}, {"sql": nested}, {"query": structured}):
        problem = shop.post("/v1/queries", body, 422)
        assert (problem["code"], "--max-aliases" in problem["remedy"]) == ("too-many-aliases", True)
        refused = shop.post("/v1/plans:dry-run", {"add": [body]}, 422)
        assert refused["code"] == "too-many-aliases"
    assert shop.post("/v1/queries:explain", {"sql": sql}, 422)["code"] == "too-many-aliases"
    # Planning each of them would take more: one with 99 aliases took 11 to 20 s.
    assert time.process_time() - began < 5


def test_an_older_query_of_many_aliases_slows_no_registration(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "small", "sql": PAIR})
    kept = json.loads(str(shop.redis.hget(shop.keys.queries, "small")))
    aliases = kept["normalised"]["aliases"] * 50
    kept |= {"id": "large", "sql": chain(99), "normalised": {**kept["normalised"]}}
    kept["normalised"]["aliases"] = aliases[:99]
    put(shop.redis, shop.keys, "queries", "large", json.dumps(kept))
    began = time.process_time()
    shop.post("/v1/queries", {"sql": f"{PAIR} WHERE o.order_id > 1"})
    assert time.process_time() - began < 5


def test_columns_streams_and_queries_are_counted(settings: ServiceSettings) -> None:
    limits = settings.changed(max_columns=5, max_streams=3, max_queries=2)
    with serving(limits) as service:
        wide = {f"c{i}": "int" for i in range(6)}
        problem = service.post("/v1/streams", {"name": "wide", "columns": wide}, 422)
        assert (problem["code"], problem["errors"][0]["field"]) == ("too-many-columns", "columns")
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        more = {"name": "more", "columns": {"a": "int"}}
        assert service.post("/v1/streams", more, 409)["code"] == "too-many-streams"
        # The same stream again does not count twice.
        service.post("/v1/streams", STREAMS[0], 200)
        for name in "ab":
            service.post("/v1/queries", {"id": name, "sql": PAIR})
        assert service.post("/v1/queries", {"sql": PAIR}, 409)["code"] == "too-many-queries"
        service.call("DELETE", "/v1/queries/a", 202)
        service.post("/v1/queries", {"sql": PAIR})


def test_columns_of_results_are_counted_at_once(shop: Service) -> None:
    listed = ", ".join(f"o.total c{n}" for n in range(5000))
    structured = {
        "from": {"o": "orders", "c": "customers"},
        "join": ["o.customer_id = c.customer_id"],
        "select": ["o.total"] * 5000,
    }
    wide = {"name": "wide", "columns": {f"c{n}": "int" for n in range(5000)}}
    began = time.process_time()
    problem = shop.post("/v1/streams", wide, 422)
    assert (problem["code"], problem["errors"][0]["field"]) == ("too-many-columns", "columns")
    for body, field in (
        ({"sql": PAIR.replace("o.order_id, c.city", listed)}, "sql"),
        ({"query": structured}, "query.select"),
    ):
        problem = shop.post("/v1/queries", body, 422)
        assert (problem["code"], problem["errors"][0]["field"]) == ("too-many-columns", field)
    assert time.process_time() - began < 5


def test_stars_count_as_the_columns_that_they_stand_for(settings: ServiceSettings) -> None:
    with serving(settings.changed(max_columns=5)) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        star = PAIR.replace("o.order_id, c.city", "o.*, c.city, c.customer_id AS same")
        problem = service.post("/v1/queries", {"sql": star}, 422)
        assert (problem["code"], "6 columns" in problem["detail"]) == ("too-many-columns", True)
        service.post("/v1/queries", {"sql": star.replace(", c.city", "")})


def test_a_structured_query_is_no_longer_than_sql_may_be(shop: Service) -> None:
    structured = {
        "from": {"o": "orders", "c": "customers"},
        "join": ["o.customer_id = c.customer_id"],
        "where": [f"o.total > {n}" for n in range(10_000)],
        "select": ["o.total"],
    }
    problem = shop.post("/v1/queries", {"query": structured}, 422)
    assert (problem["code"], problem["errors"][0]["field"]) == ("invalid-request", "query")


def test_all_options_of_a_source_together_are_bounded(shop: Service) -> None:
    """Each option is short enough, and all of them together would take minutes to parse."""
    columns = [f"c{n}" for n in range(100)]
    expression = "CASE WHEN " + "value + value + " * 200 + "1 > 0 THEN 1 END"
    options = {f"column.{column}": expression for column in columns}
    body = {
        "name": "long",
        "columns": dict.fromkeys(columns, "int"),
        "source": {"format": "rate", "options": options},
    }
    problem = shop.post("/v1/streams", body, 422)
    assert (problem["code"], problem["errors"][0]["field"]) == ("too-large", "source.options")
