"""Test that after a restart of Redis no request fails because of the broken connections."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from anabranch_service.settings import ServiceSettings
from tests.service.conftest import PAIR, STREAMS
from tests.support.surroundings.redis import StoppableRedis
from tests.support.worlds.service import eventually, serving


def test_every_request_is_served_once_redis_is_back(settings: ServiceSettings) -> None:
    redis = StoppableRedis()
    try:
        with (
            serving(replace(settings, redis_url=redis.url)) as service,
            ThreadPoolExecutor(8) as pool,
        ):

            def register(number: int) -> int:
                body = {"id": f"q{number}", "sql": PAIR}
                return int(service.http.post("/v1/queries", json=body).status_code)

            for stream in STREAMS:
                service.post("/v1/streams", stream)
            # Many at the same time, so that the pool has many connections.
            assert set(pool.map(register, range(8))) == {201}
            service.beat()
            redis.kill()
            eventually(lambda: service.http.get("/readyz").status_code == 503, "the loop notices")
            redis.start()
            eventually(lambda: service.http.get("/readyz").status_code == 200, "the loop recovers")

            assert set(pool.map(register, range(8, 16))) == {201}
    finally:
        redis.close()
