"""Tests of webhook requests made from deliveries: limits, order, ids, envelopes."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch_contract.connectors.webhook.options import WebhookOptions, webhook_options
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.webhook.requests import WebhookRequest, requests_of
from tests.support.surroundings.deliveries import sink, staged


def options(**given: str) -> WebhookOptions:
    return webhook_options({"url": "https://h.example/x", "secret": "s", **given})


def delivery(folder: Path, *parts: dict[str, list[Any]], first: int | None = 0) -> Delivery:
    found = staged(folder, "q", sink("webhook"), 3, *map(pa.record_batch, parts))
    return replace(found, first=first)


def made(one: Delivery, by: WebhookOptions, first: int = 0) -> list[WebhookRequest]:
    return list(requests_of(one, by, "ns/state", first))


def rows(requests: list[WebhookRequest]) -> list[Any]:
    return [row for one in requests for row in json.loads(one.body)["rows"]]


@pytest.mark.parametrize("seed", range(20))
def test_requests_keep_limits_and_lose_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    texts = ["ü" * chance.randrange(0, 40) for _ in range(chance.randrange(1, 200))]
    by = options(rows=str(chance.randrange(1, 30)), bytes=str(chance.randrange(1, 300)))
    one = delivery(tmp_path, {"x": texts[:9]}, {"x": texts[9:]})
    found = made(one, by)
    assert rows(found) == [{"x": text} for text in texts]
    for request in found:
        inside = json.loads(request.body)["rows"]
        size = len(request.body.partition(b'"rows": [')[2]) - 2
        assert len(inside) == 1 or (len(inside) <= by.rows and size <= by.size)
    assert [request.part for request in found] == list(range(len(found)))
    assert len({request.ident for request in found}) == len(found)
    # Another attempt makes the same requests, from any part on.
    at = chance.randrange(len(found))
    assert made(one, by, at) == found[at:]


def test_requests_are_as_full_as_limits_permit(tmp_path: Path) -> None:
    # A row is {"x":1}, 7 bytes, with a comma before the second and third.
    one = delivery(tmp_path, {"x": [1, 2, 3, 4, 5, 6, 7]})
    assert [len(rows([r])) for r in made(one, options(bytes="23"))] == [3, 3, 1]
    assert [len(rows([r])) for r in made(one, options(bytes="22"))] == [2, 2, 2, 1]
    assert [len(rows([r])) for r in made(one, options(rows="5"))] == [5, 2]


def test_ids_name_pipeline_query_batch_and_part(tmp_path: Path) -> None:
    one = delivery(tmp_path, {"x": [1]})
    variants = [one, replace(one, query="q~2"), replace(one, batch=4)]
    found = [next(requests_of(v, options(), "ns/state")).ident for v in variants]
    found.append(next(requests_of(one, options(), "ns/other")).ident)
    assert len(set(found)) == 4
    assert all(ident.startswith("msg_") and "." not in ident for ident in found)


def test_rows_of_versions_are_in_one_order(tmp_path: Path) -> None:
    there = delivery(tmp_path / "a", {"x": [3, 1]}, {"x": [2]}, first=None)
    again = delivery(tmp_path / "b", {"x": [2, 3]}, {"x": [1]}, first=None)
    assert made(there, options(rows="2")) == made(again, options(rows="2"))


def test_changes_may_be_envelopes(tmp_path: Path) -> None:
    changes: dict[str, list[Any]] = {
        "k": [1, 1, 2, 3, 3, 4],
        "x": ["old", "new", "gone", "here", "here", "more"],
        "anabranch_change": ["delete", "insert", "delete", "insert", "delete", "insert"],
    }
    found = rows(made(delivery(tmp_path, changes), options(payload="debezium", key="k")))
    assert Counter(map(json.dumps, found)) == Counter(
        map(
            json.dumps,
            [
                {"before": {"k": 1, "x": "old"}, "after": {"k": 1, "x": "new"}, "op": "u"},
                {"before": {"k": 2, "x": "gone"}, "after": None, "op": "d"},
                {"before": None, "after": {"k": 4, "x": "more"}, "op": "c"},
            ],
        )
    )
