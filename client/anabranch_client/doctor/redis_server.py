"""Check of the Redis server that a pipeline would use: embedded or external."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from anabranch_client.doctor.findings import Finding, Verdict
from anabranch_client.errors import ProcessError
from anabranch_client.processes.environment import REDIS_URL_VARIABLE
from anabranch_client.processes.redis_server import start_redis
from anabranch_contract.connectors.addresses import masked

_CHECK = "Redis"
#: The first release that counts all entries added to a stream, by which sources detect a loss.
_LEAST = 7
_SECONDS = 5.0


def check_redis(url: str | None) -> Finding:
    """Check that the server at ``url`` answers; if None, that the embedded server starts."""
    return _check_embedded() if url is None else _check_given(url)


def _check_embedded() -> Finding:
    with tempfile.TemporaryDirectory(prefix="anabranch-doctor-") as folder:
        home = Path(folder)
        try:
            server, url = start_redis(home / "redis", home / "redis.log", durable=False)
        except ProcessError as error:
            return Finding(_CHECK, Verdict.FAIL, f"embedded: {error.message}", error.remedy)
        try:
            name, version, _ = _asked(url)
        except redis.RedisError as error:
            remedy = f"set {REDIS_URL_VARIABLE} to a server of your own"
            return Finding(_CHECK, Verdict.FAIL, f"embedded: {masked(str(error))}", remedy)
        finally:
            server.stop()
    facts = {"embedded": True, "server": name, "version": version}
    return Finding(_CHECK, Verdict.OK, f"embedded {name} {version} starts", facts=facts)


def _check_given(url: str) -> Finding:
    where = masked(url)
    try:
        name, version, info = _asked(url)
    except (redis.RedisError, ValueError) as error:
        said = f"{where} does not answer: {masked(str(error))}"
        remedy = f"correct {REDIS_URL_VARIABLE}, or unset it for an embedded server"
        return Finding(_CHECK, Verdict.FAIL, said, remedy, {"embedded": False, "url": where})
    facts = {"embedded": False, "url": where, "server": name, "version": version}
    said = f"{name} {version} at {where}"
    if int(str(info["redis_version"]).partition(".")[0]) < _LEAST:
        remedy = f"use Redis {_LEAST} or Valkey; Redis Streams can't be read from this one"
        return Finding(_CHECK, Verdict.WARN, f"{said} is old", remedy, facts)
    if not info.get("aof_enabled"):
        remedy = "run it with appendonly yes, or its restart loses the pipeline"
        return Finding(_CHECK, Verdict.WARN, f"{said} keeps no append-only file", remedy, facts)
    return Finding(_CHECK, Verdict.OK, said, facts=facts)


def _asked(url: str) -> tuple[str, str, dict[str, Any]]:
    """The server's name and version, and the fields of its answer to INFO."""
    with redis.Redis.from_url(
        url, socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS, retry=Retry(NoBackoff(), 0)
    ) as client:
        server: Any = client.info("server")
        info: dict[str, Any] = {**server, **cast("Any", client.info("persistence"))}
    own = info.get("valkey_version")
    return ("Valkey", str(own), info) if own else ("Redis", str(info["redis_version"]), info)
