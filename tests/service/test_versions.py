"""Tests of ETag and If-Match: of two clients that change the same resource, the second learns of
the first change.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.service.conftest import PAIR
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    import httpx

#: Path, and two different changes of its resource.
CHANGES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("/v1/streams/orders", {"idle_timeout": "1 minute"}, {"idle_timeout": "2 minutes"}),
    ("/v1/queries/pair", {"priority": 2}, {"priority": 3}),
    ("/v1/settings", {"memory": 1e6}, {"memory": 2e6}),
]


def send(shop: Service, method: str, path: str, tag: str, body: Any = None) -> httpx.Response:
    return shop.http.request(method, path, json=body, headers={"If-Match": tag})


@pytest.fixture
def shop_with_query(shop: Service) -> Service:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    return shop


@pytest.mark.parametrize(("path", "first", "second"), CHANGES)
def test_a_change_of_another_version_is_refused(
    shop_with_query: Service, path: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    shop = shop_with_query
    tag = shop.http.get(path).headers["ETag"]
    assert shop.http.get(path).headers["ETag"] == tag
    changed = send(shop, "PATCH", path, tag, first)
    assert changed.status_code == 200
    newer = changed.headers["ETag"]
    assert newer != tag
    assert newer == shop.http.get(path).headers["ETag"]

    refused = send(shop, "PATCH", path, tag, second)
    assert (refused.status_code, refused.json()["code"]) == (412, "changed-meanwhile")
    assert shop.http.get(path).headers["ETag"] == newer
    assert send(shop, "PATCH", path, f'"other", {newer}', second).status_code == 200
    assert send(shop, "PATCH", path, "*", first).status_code == 200


@pytest.mark.parametrize("path", ["/v1/queries/pair", "/v1/streams/items"])
def test_what_has_changed_is_not_deleted(shop_with_query: Service, path: str) -> None:
    shop = shop_with_query
    assert send(shop, "DELETE", path, '"0123456789abcdef"').status_code == 412
    tag = shop.http.get(path).headers["ETag"]
    assert send(shop, "DELETE", path, tag).status_code in (202, 204)


def test_counts_do_not_change_a_version(shop_with_query: Service) -> None:
    tag = shop_with_query.http.get("/v1/queries/pair").headers["ETag"]
    shop_with_query.plan(-1)
    assert shop_with_query.http.get("/v1/queries/pair").headers["ETag"] == tag


def test_a_registration_says_its_version(shop: Service) -> None:
    made = shop.http.post("/v1/queries", json={"id": "pair", "sql": PAIR})
    assert made.headers["ETag"] == shop.http.get("/v1/queries/pair").headers["ETag"]


def test_of_many_at_once_one_changes_it(shop: Service) -> None:
    tag = shop.http.get("/v1/settings").headers["ETag"]
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(
            lambda n: send(shop, "PATCH", "/v1/settings", tag, {"memory": 1e6 + n}), range(16)
        )
    assert sorted(a.status_code for a in answers) == [200] + [412] * 15
