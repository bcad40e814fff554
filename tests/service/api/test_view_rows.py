"""Tests of views and outer joins over REST: descriptions, rows, completeness, errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch_contract.protocol.activations import Activation, ViewRows
from anabranch_contract.queries.scaling import PartialMark
from tests.service.conftest import PAIR
from tests.support.worlds.records import put
from tests.support.worlds.service import Service

GROUPS = (
    "SELECT c.city, count(*) AS n FROM customers c JOIN orders o ON o.customer_id = c.customer_id "
    "GROUP BY c.city HAVING count(*) > 1 ORDER BY n DESC LIMIT 3"
)


def test_a_view_says_what_it_is_made_of(shop: Service) -> None:
    answer = shop.post("/v1/queries", {"id": "cities", "sql": GROUPS})
    said = answer["normalised"]
    assert [c["name"] for c in said["output"]] == ["city", "n"]
    view = said["view"]
    assert view["identity"] == ["city"]
    assert view["keys"] == ["c.city"]
    assert view["aggregates"] == ["count(*)"]
    assert view["having"] == "(count(*) > 1)"
    assert view["order"] == ["count(*) DESC"]
    assert view["limit"] == 3
    assert [c["name"] for c in view["changes"]] == [
        "city",
        "n",
        "anabranch_change",
        "anabranch_version",
    ]


#: Completeness fields of a complete version, and of a view without a version.
WHOLE: dict[str, Any] = {
    "completeness": 1.0,
    "batch": None,
    "withheld": 0.0,
    "owed": 0.0,
    "blind": 0,
    "partial": [],
    "whole": [],
    "scaled": None,
    "unscaled": None,
}
ROWS = ('{"city":"Oslo","n":5}', '{"city":null,"n":4}')


def test_the_rows_of_a_view(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "cities", "sql": GROUPS})
    path = "/v1/queries/cities/rows"
    nothing = {"version": None, "total": None, "columns": ["city", "n"], "rows": [], **WHOLE}
    assert shop.get(path) == nothing
    told = ViewRows(7, 3, ("city", "n"), ROWS, 9)
    shop.redis.hset(shop.keys.views, "cities", told.dumps())
    activation = Activation(0, {}, results=30, withheld=6.0, owed=4.0)
    put(shop.redis, shop.keys, "activations", "cities", activation.dumps())
    assert shop.get(f"{path}?limit=1") == {
        "version": 7,
        "total": 3,
        "columns": ["city", "n"],
        "rows": [{"city": "Oslo", "n": 5}],
        **WHOLE,
        "batch": 9,
    }
    answer = shop.get(f"{path}?scaled=true")
    assert (answer["completeness"], answer["batch"], answer["scaled"]) == (1.0, 9, None)
    assert answer["unscaled"]["code"] == "complete"
    shop.redis.delete(shop.keys.activations)
    shop.redis.hset(shop.keys.views, "cities", "{")
    assert shop.get(path) == nothing


def test_a_version_says_what_is_missing_of_it(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "cities", "sql": GROUPS})
    scaled = ('{"n":{"error":1.5,"value":8.25}}', '{"n":{"error":null,"value":6.0}}')
    mark = PartialMark("", "having", "HAVING is decided by the joined rows that were kept")
    told = ViewRows(
        7,
        2,
        ("city", "n"),
        ROWS,
        batch=40,
        withheld=6.5,
        blind=1,
        completeness=0.6,
        partial=(mark,),
        whole=(False, True),
        scaled=scaled,
    )
    shop.redis.hset(shop.keys.views, "cities", told.dumps())
    # Rows withheld after this version do not count for it.
    activation = Activation(0, {}, results=30, withheld=70.0)
    put(shop.redis, shop.keys, "activations", "cities", activation.dumps())
    path = "/v1/queries/cities/rows"
    answer = shop.get(path)
    assert (answer["completeness"], answer["batch"]) == (0.6, 40)
    assert (answer["withheld"], answer["owed"], answer["blind"]) == (6.5, 0.0, 1)
    assert answer["partial"] == [{"column": None, "code": mark.code, "reason": mark.reason}]
    assert answer["whole"] == [False, True]
    assert (answer["scaled"], answer["unscaled"]) == (None, None)
    answer = shop.get(f"{path}?scaled=true&limit=1")
    assert answer["whole"] == [False]
    assert answer["scaled"] == [{"n": {"value": 8.25, "error": 1.5}}]
    owed = replace(told, scaled=(), unscaled=PartialMark("", "owed", "it will come"))
    shop.redis.hset(shop.keys.views, "cities", owed.dumps())
    answer = shop.get(f"{path}?scaled=true")
    assert answer["scaled"] is None
    assert answer["unscaled"] == {"column": None, "code": "owed", "reason": "it will come"}


def test_what_can_not_be_asked_says_what_can(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "cities", "sql": GROUPS})
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    assert shop.get("/v1/queries/nobody/rows", 404)["code"] == "unknown-query"
    assert shop.get("/v1/queries/pair/rows", 409)["code"] == "no-view"
    sink = {"format": "count"}
    problem = shop.post("/v1/queries", {"id": "c", "sql": GROUPS, "sink": sink}, 422)
    assert problem["errors"][0]["field"] == "sink.format"


def test_a_sink_knows_the_columns_of_changes(shop: Service) -> None:
    options = {"anabranch.partitionBy": "anabranch_change"}
    sink = {"format": "json", "path": "/tmp/changes", "options": options}
    assert shop.post("/v1/queries", {"id": "a", "sql": GROUPS, "sink": sink})["sink"]
    options["anabranch.partitionBy"] = "nope"
    shop.post("/v1/queries", {"id": "b", "sql": GROUPS, "sink": {**sink, "path": "/tmp/b"}}, 422)


def test_errors_in_a_view_have_positions(shop: Service) -> None:
    problem = shop.post(
        "/v1/queries", {"sql": GROUPS.replace("c.city,", "c.city, o.order_id,")}, 422
    )
    assert problem["errors"][0]["column"] == 18
    assert "neither grouped by nor aggregated" in problem["detail"]
