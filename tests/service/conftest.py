"""Fixtures: a real service over a real Redis, empty for every test, or shared by tests that change
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from anabranch_contract.plans.plan import Objective
from anabranch_contract.protocol.progress import Mode
from anabranch_service.routes.queries import explain
from anabranch_service.settings import ServiceSettings
from tests.support.surroundings.policy import OPEN
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.service import Service, serving

_NAMESPACES = count()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the plan searches of explanations enough time on a busy machine."""
    monkeypatch.setattr(explain, "SECONDS", 30.0)


@pytest.fixture(scope="session")
def redis() -> Iterator[str]:
    with redis_url() as url:
        yield url


@pytest.fixture
def settings(redis: str) -> ServiceSettings:
    return _settings(redis)


def _settings(redis: str) -> ServiceSettings:
    return ServiceSettings().changed(
        redis_url=redis,
        namespace=f"test{next(_NAMESPACES)}",
        mode=Mode.STEP,
        # Costs in tuples, which can be counted by hand.
        objective=Objective.TUPLES,
        parallelism=2,
        poll_seconds=0.005,
        access=OPEN,
    )


@pytest.fixture
def service(settings: ServiceSettings) -> Iterator[Service]:
    with serving(settings) as running:
        yield running


@pytest.fixture
def shop(service: Service) -> Service:
    """A service with three streams that join in a chain: customers, orders, items; its runtime,
    simulated by the tests, is alive.
    """
    return _stocked(service)


@pytest.fixture(scope="module")
def untouched(redis: str) -> Iterator[Service]:
    """A service for all tests of a module that change nothing in it."""
    with serving(_settings(redis)) as running:
        yield running


@pytest.fixture(scope="module")
def untouched_shop(redis: str) -> Iterator[Service]:
    """A service like :func:`untouched` with the streams of :func:`shop`."""
    with serving(_settings(redis)) as running:
        yield _stocked(running)


def _stocked(service: Service) -> Service:
    service.beat()
    for stream in STREAMS:
        service.post("/v1/streams", stream)
    return service


STREAMS: list[dict[str, object]] = [
    {
        "name": "customers",
        "columns": [{"name": "customer_id", "type": "bigint"}, {"name": "city", "type": "string"}],
    },
    {
        "name": "orders",
        "columns": {
            "order_id": "bigint",
            "customer_id": "bigint",
            "total": "double",
            "ts": "timestamp",
        },
        "event_time": "ts",
    },
    {
        "name": "items",
        "columns": {
            "order_id": "bigint",
            "part": "int",
            "quantity": "int",
            "ts": "timestamp",
        },
        "event_time": "ts",
        "lateness": "unbounded",
        "source": {"format": "recorded", "path": "/data/items.parquet", "rows_per_batch": 100},
    },
]

PAIR = "SELECT o.order_id, c.city FROM orders o JOIN customers c ON o.customer_id = c.customer_id"
CHAIN = (
    "SELECT c.city, i.part FROM customers c JOIN orders o ON o.customer_id = c.customer_id "
    "JOIN items i ON i.order_id = o.order_id"
)
