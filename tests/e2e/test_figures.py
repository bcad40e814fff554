"""Test that all figures (counts) equal DuckDB's over the tutorial's streams: tables first, queries
later, restart, replaced query.

Compared are REST, metrics, CLI and console (``figures.Walk``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch_client.processes.children import free_port
from tests.e2e.figures import QUERIES, STORMS, Walk
from tests.support.worlds.up import upped

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(
    params=[
        pytest.param(False, id="dropped"),
        pytest.param(True, id="kept"),
    ]
)
def walk(browser: Browser, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Walk]:
    """A pipeline without streams; the future streams' folders have files already."""
    port, data = free_port(), tmp_path / "data"
    arguments = ("--port", str(port), "--master", "local[2]", "--allow-path", str(data))
    with upped(tmp_path / "up", arguments=arguments) as up:
        walk = Walk(up, f"http://127.0.0.1:{port}", data, browser, kept=request.param)
        walk.put()
        yield walk


def test_figures_of_queries_that_come_later_are_right_through_a_restart(walk: Walk) -> None:
    with walk.up.client() as client:
        walk.register_streams(client)
        walk.settle(client)
        walk.register_queries(client)
        walk.put()
        walk.check(client)
        walk.restart()
        walk.put(spoilt=True)
        walk.check(client)
    assert "BrokenPipeError" not in (walk.up.home / "logs" / "runtime.log").read_text()


def test_figures_are_right_through_replacing_pausing_and_restarts(walk: Walk) -> None:
    with walk.up.client() as client:
        walk.register_streams(client)
        walk.check(client)
        walk.register_queries(client)
        walk.check(client)
        walk.put()
        walk.check(client)
        walk.replace(client, "delays", STORMS)
        walk.ended(client, "delays")
        walk.put(spoilt=True)
        walk.check(client)
        walk.restart()
        walk.check(client)
        client.pause_query("busiest")
        walk.ended(client, "busiest")
        walk.put()
        walk.check(client)
        walk.restart()
        client.resume_query("busiest")
        walk.sql["busiest~2"] = QUERIES["busiest"][0]
        walk.active(client, "busiest")
        walk.put(spoilt=True)
        walk.check(client)
        client.delete_query("named")
        walk.ended(client, "named")
        walk.put()
        walk.check(client)
        walk.restart()
        walk.check(client)
