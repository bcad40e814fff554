"""Tests of the time limit of a registration, and of the latency of other requests meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from anabranch_service.errors import SettingsError
from anabranch_service.settings import ServiceSettings
from tests.service.api.test_process import process
from tests.service.conftest import PAIR, STREAMS
from tests.service.registry.test_sizes import chain
from tests.support.worlds.service import eventually, serving

#: Maximum seconds of an empty request beside registrations; on a busy machine, where all take
#: longer, this share of the registrations' time.
LATENCY, SHARE = 1.0, 0.25


def wide(name: str, characters: int) -> dict[str, Any]:
    """Return a stream whose expressions have about so many characters."""
    terms = ", ".join(str(100_000 + n) for n in range(200))
    expression = f"CASE WHEN value IN ({terms}) THEN 1 ELSE value END"
    count = characters // (len(expression) + 10)
    columns = [f"c{n}" for n in range(count)]
    options = {f"column.{column}": expression for column in columns}
    return {
        "name": name,
        "columns": dict.fromkeys(columns, "bigint"),
        "source": {"format": "rate", "options": options},
    }


def conditions(count: int) -> str:
    """Return a query whose parsing takes a second or so."""
    terms = " AND ".join(f"o.total + {n} < c.customer_id" for n in range(count))
    return f"{PAIR} WHERE {terms}"


@contextmanager
def latency(base: str) -> Iterator[list[float]]:
    """Return the seconds that each of many requests takes meanwhile."""
    taken: list[float] = []
    over = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=base, timeout=60) as http:
            while not over.is_set():
                began = time.monotonic()
                http.get("/healthz")
                taken.append(time.monotonic() - began)
                over.wait(0.01)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield taken
    finally:
        over.set()
        asking.join()


def test_others_are_answered_while_statements_are_read(redis: str, tmp_path: Path) -> None:
    """With a service process as users start it: in the test's process it would share the
    interpreter.
    """
    port_file = tmp_path / "port"
    with process(redis, "latency", port_file):
        eventually(port_file.exists, "it listens")
        base = f"http://127.0.0.1:{port_file.read_text().strip()}"
        with httpx.Client(base_url=base, timeout=60) as http:
            for stream in STREAMS:
                http.post("/v1/streams", json=stream)
            began = time.monotonic()
            with latency(base) as taken:
                assert http.post("/v1/streams", json=wide("w", 190_000)).status_code == 201
                many = {"sql": conditions(2000)}
                assert http.post("/v1/queries:explain", json=many).status_code == 200
                for count in (8, 12, 16):
                    made = http.post("/v1/queries", json={"sql": chain(count)})
                    assert made.status_code == 201
                seconds = time.monotonic() - began
    assert len(taken) > 10
    assert max(taken) < max(LATENCY, SHARE * seconds)


def test_a_registration_that_takes_too_long_leaves_nothing(settings: ServiceSettings) -> None:
    # A fast machine needs four times as much for the slow ones, a small one a tenth.
    with serving(settings) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
    with serving(settings.changed(registration_seconds=0.1)) as service:

        def records() -> set[str | bytes]:
            return set(service.redis.keys(f"{settings.namespace}:*")) - {service.keys.lease}

        kept = records()
        slow = {"id": "slow", "sql": conditions(2500)}
        for path, body in (
            ("/v1/queries", slow),
            ("/v1/streams", wide("slow", 190_000)),
            ("/v1/queries:explain", {"sql": slow["sql"]}),
            ("/v1/plans:dry-run", {"add": [slow]}),
        ):
            problem = service.post(path, body, 503)
            assert problem["code"] == "registration-too-slow"
            assert "--registration-seconds" in problem["remedy"]
        assert service.get("/v1/queries")["items"] == []
        assert [s["name"] for s in service.get("/v1/streams")["items"]] == [
            "customers", "items", "orders",
        ]  # fmt: skip
        assert records() == kept
        # The abandoned registrations end by themselves; then the service accepts new ones.
        eventually(lambda: _registered(service.http), "a small query is understood")


def _registered(http: httpx.Client) -> bool:
    return http.post("/v1/queries", json={"sql": PAIR}).status_code == 201


@pytest.mark.parametrize("seconds", ["0", "-1", "x"])
def test_the_limit_is_positive(seconds: str) -> None:
    with pytest.raises(SettingsError, match="registration_seconds"):
        ServiceSettings.read({"ANABRANCH_REGISTRATION_SECONDS": seconds}, {})
