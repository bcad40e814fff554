"""Fixtures of client tests: a real service in several states."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
import structlog

from anabranch_client.rest.api import Client
from anabranch_contract.protocol.progress import Mode
from anabranch_service.routes.queries import explain
from anabranch_service.settings import ServiceSettings
from tests.support.surroundings.policy import OPEN
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.service import Service, serving

_NAMESPACES = count()

ORDERS = (("order_id", "bigint"), ("customer_id", "bigint"), ("total", "decimal(12,2)"))
CUSTOMERS = (("customer_id", "bigint"), ("city", "string"))
JOIN = "SELECT o.order_id, c.city FROM orders o JOIN customers c ON o.customer_id = c.customer_id"


@pytest.fixture(scope="session")
def redis() -> Iterator[str]:
    with redis_url() as url:
        yield url


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the plan searches of explanations enough time on a busy machine."""
    monkeypatch.setattr(explain, "SECONDS", 30.0)


@pytest.fixture
def mode() -> Mode:
    return Mode.STEP


@pytest.fixture
def service(redis: str, mode: Mode) -> Iterator[Service]:
    """A service without streams and queries, in this process; its logs must not reach a command's
    captured output.

    It runs in this process, so what it logs would end up in a command's captured output.
    """
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    settings = ServiceSettings().changed(
        redis_url=redis,
        namespace=f"client{next(_NAMESPACES)}",
        mode=mode,
        poll_seconds=0.005,
        access=OPEN,
    )
    with serving(settings) as running:
        yield running
    structlog.reset_defaults()


@pytest.fixture
def url(service: Service) -> str:
    return f"http://127.0.0.1:{service.settings.port}"


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as found:
        yield found


@pytest.fixture
def shop(client: Client) -> Client:
    """A service with two streams that join."""
    client.create_stream("orders", ORDERS)
    client.create_stream("customers", CUSTOMERS)
    return client
