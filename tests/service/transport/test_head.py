"""Tests that HEAD is answered like GET, without a body."""

from __future__ import annotations

import pytest

from tests.service.conftest import PAIR
from tests.support.worlds.service import Service


@pytest.mark.parametrize(
    "path", ["/healthz", "/v1/streams", "/v1/streams/orders", "/v1/settings", "/", "/openapi.json"]
)
def test_head_has_the_headers_of_get(shop: Service, path: str) -> None:
    whole, head = (shop.http.request(method, path) for method in ("GET", "HEAD"))
    assert head.status_code == whole.status_code == 200
    assert head.content == b""
    same = ("content-type", "content-length", "etag")
    assert [head.headers.get(h) for h in same] == [whole.headers.get(h) for h in same]
    # The connection can be reused: no part of a body was sent.
    assert shop.http.get("/healthz").json() == {"status": "ok"}


def test_what_is_not_there_is_not_there_for_head(shop: Service) -> None:
    answer = shop.http.head("/v1/streams/nobody")
    assert (answer.status_code, answer.content) == (404, b"")


def test_results_that_are_followed_have_no_head(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    answer = shop.http.head("/v1/queries/pair/results")
    assert answer.status_code == 405
    assert "HEAD" not in answer.headers["Allow"]


def test_requests_are_counted_by_their_route(shop: Service) -> None:
    shop.http.head("/v1/streams/orders")
    counted = shop.http.get("/metrics").text
    assert 'method="HEAD",route="/v1/streams/{name}",status="200"' in counted
