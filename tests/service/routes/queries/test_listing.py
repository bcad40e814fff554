"""Tests of lists of queries: pages and search."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch_contract.protocol.activations import Activation, Visibility
from tests.service.conftest import CHAIN, PAIR
from tests.support.worlds.service import Service

#: More than two pages of two.
QUERIES: list[dict[str, Any]] = [
    {"id": "late", "sql": f"{PAIR} WHERE o.total > 10", "owner": "web", "tags": ["daily"]},
    {"id": "chain", "sql": CHAIN, "owner": "web", "tags": ["daily", "cost:high"]},
    {"id": "pair", "sql": PAIR, "title": "Überfällig"},
    {"id": "north", "sql": f"{PAIR} WHERE c.city = 'Kiruna'", "owner": "data"},
    {"id": "south", "sql": f"{CHAIN} AND c.city = 'Lund'", "owner": "data", "tags": ["daily"]},
]


def walked(shop: Service, search: str, limit: int = 2) -> list[str]:
    """Return the ids of all pages; only the last page may be short."""
    found: list[str] = []
    cursor = ""
    while True:
        page = shop.get(f"/v1/queries?limit={limit}{search}{cursor}")
        found += [item["id"] for item in page["items"]]
        if page["next_cursor"] is None:
            return found
        assert len(page["items"]) == limit
        cursor = f"&cursor={page['next_cursor']}"


@pytest.fixture
def several(shop: Service) -> Service:
    shop.post("/v1/queries:batch", {"queries": QUERIES}, 200)
    seen = {"o": Visibility(0, None), "c": Visibility(0, None)}
    shop.activate("pair", Activation(1, seen))
    shop.call("DELETE", "/v1/queries/north", 202)
    return shop


@pytest.mark.parametrize(
    ("search", "ids"),
    [
        ("", "late chain pair north south"),
        ("&find=KIRUNA", "north"),
        ("&find=%C3%BCberf", "pair"),
        ("&find=+", "late chain pair north south"),
        ("&find=cost:h", "chain"),
        ("&find=nothing+is+called+so", ""),
        ("&stream=items", "chain south"),
        ("&stream=orders&stream=customers&owner=web", "late chain"),
        ("&stream=nowhere", ""),
        ("&tag=daily", "late chain south"),
        ("&tag=daily&tag=cost:high", "chain"),
        ("&owner=data&find=lund&stream=items&status=pending", "south"),
        ("&status=active", "pair"),
        ("&status=active&status=expired", "pair north"),
        ("&status=pending&owner=web&tag=daily", "late chain"),
    ],
)
def test_pages_have_what_fits(several: Service, search: str, ids: str) -> None:
    assert walked(several, search) == ids.split()
    assert walked(several, search, limit=1) == ids.split()


def test_a_query_that_is_replaced_comes_last_and_once(several: Service) -> None:
    changed = {"sql": f"{PAIR} WHERE o.total > 99"}
    several.call("PUT", "/v1/queries/late", 200, changed)
    assert walked(several, "") == ["chain", "pair", "north", "south", "late"]
    assert walked(several, "&find=%3E+99") == ["late"]
    assert walked(several, "&find=%3E+10") == []


def test_what_changes_while_pages_are_read_moves_no_other_query(several: Service) -> None:
    first = several.get("/v1/queries?limit=2")
    several.post("/v1/queries", {"id": "new", "sql": PAIR})
    several.call("PATCH", "/v1/queries/pair", 200, {"owner": "web"})
    rest = several.get(f"/v1/queries?cursor={first['next_cursor']}")
    assert [item["id"] for item in rest["items"]] == ["pair", "north", "south", "new"]
    assert rest["items"][0]["owner"] == "web"
    past = several.get("/v1/queries?cursor=999999999999999999")
    assert (past["items"], past["next_cursor"]) == ([], None)


@pytest.mark.parametrize("field", ["stream", "tag", "find"])
def test_too_much_is_refused(shop: Service, field: str) -> None:
    search = "&".join([f"{field}=x"] * 33) if field != "find" else f"find={'x' * 201}"
    assert shop.get(f"/v1/queries?{search}", 422)["errors"][0]["field"] == field


def test_a_summary_has_streams_and_no_statements(shop: Service) -> None:
    view = f"SELECT c.city, count(*) AS n {PAIR[PAIR.index('FROM') :]} GROUP BY c.city"
    for name, sql in (("pair", f"{PAIR} WHERE o.total > 1"), ("view", view)):
        shop.post("/v1/queries", {"id": name, "sql": sql, "owner": "web", "tags": ["kpi"]})
    full = shop.get("/v1/queries")["items"]
    brief = shop.get("/v1/queries?detail=summary")["items"]
    kept = ("id", "run", "owner", "tags", "status", "sink", "priority", "results")
    for whole, short in zip(full, brief, strict=True):
        assert (short["sql"], short["query"]) == (None, None)
        assert [short[name] for name in kept] == [whole[name] for name in kept]
        found, wanted = short["normalised"], whole["normalised"]
        assert [a["stream"] for a in found["aliases"]] == [a["stream"] for a in wanted["aliases"]]
        assert bool(found["view"]) == bool(wanted["view"]) == (short["id"] == "view")
        assert not any(found[name] for name in ("classes", "bounds", "output", "notes"))
        assert not any(alias["filter"] for alias in found["aliases"])
    assert len(json.dumps(brief)) < 0.8 * len(json.dumps(full))
