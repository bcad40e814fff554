"""Tests of ``anabranch function`` against a running service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch_client.cli.app import app
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_service.settings import ServiceSettings
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.service import Service, serving


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    (tmp_path / "prices.py").write_text("def half(x): return x\ndef twice(x): return x\n")
    access = AccessPolicy(functions=(str(tmp_path / "prices.py"),))
    with redis_url() as url, serving(ServiceSettings().changed(redis_url=url, access=access)) as up:
        yield up


def test_functions_are_added_listed_shown_and_removed(service: Service) -> None:
    def run(*words: str, code: int = 0) -> str:
        found = CliRunner().invoke(app, ["function", *words, "--url", address])
        assert found.exit_code == code, found.output
        return found.output

    address = f"http://127.0.0.1:{service.settings.port}"
    added = run("add", "half(x DOUBLE) RETURNS DOUBLE", "--from", "prices", "--kind", "row")
    assert "function half is registered (version " in added
    run("add", "two(x INT) RETURNS INT", "--from", "prices:twice", "--nondeterministic")
    listed = run("list")
    assert "prices:half" in listed
    assert "prices:twice" in listed
    shown = run("show", "two")
    assert "two(x INT) RETURNS INT" in shown
    assert "10 seconds" in shown
    again = ("add", "two(x BIGINT) RETURNS INT", "--from", "prices:twice")
    assert "is registered already" in run(*again, code=1)
    run(*again, "--replace", "--time-limit", "1 minute")
    assert '"time_limit": "1 minute"' in run("show", "two", "--json")
    asked = run("rm", "two", code=2)
    assert "two(x BIGINT) RETURNS INT, from prices:twice" in asked
    assert "--yes" in asked
    run("show", "two")
    assert "function two is deleted" in run("rm", "two", "--yes")
    assert "there is no function 'two'" in run("show", "two", code=1)
