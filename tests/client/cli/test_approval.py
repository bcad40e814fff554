"""Tests of the plan that waits for approval, on the command line: shown, approved, refused."""

from __future__ import annotations

import json

import pytest

from anabranch_client.errors import ApiError
from anabranch_client.rest.api import Client
from tests.client.cli.test_runs import run
from tests.client.conftest import JOIN
from tests.support.worlds.service import Service


def test_a_plan_is_shown_and_approved(url: str, shop: Client, service: Service) -> None:
    none = run("plan", "held", url=url)
    assert none.exit_code == 1
    assert "no plan waits for approval" in none.stderr
    assert run("settings", "set", "--approval", "manual", url=url).exit_code == 0
    shop.create_query(JOIN, name="q")
    service.plan(-1)
    shown = run("plan", "held", url=url)
    assert shown.exit_code == 0, shown.output
    for text in ("waits: anabranch plan approve", "queries that wait  q", "+q", "store orders"):
        assert text in shown.stdout
    assert "pending: its plan waits for approval" in run("query", "show", "q", url=url).stdout
    document = json.loads(run("plan", "held", "--json", url=url).stdout)
    assert (document["state"], document["waiting"]) == ("waiting", ["q"])

    unasked = run("plan", "approve", url=url)
    assert unasked.exit_code == 2
    assert "--yes" in unasked.stderr
    assert shop.held_plan().state == "waiting"
    done = run("plan", "approve", "--yes", url=url)
    assert done.exit_code == 0, done.output
    assert "approved: published at the next epoch boundary" in done.stdout
    late = run("plan", "refuse", "--yes", url=url)
    assert late.exit_code == 1
    assert "has been approved" in late.stderr
    service.plan(0)
    assert shop.epoch(1).queries == ["q"]


def test_a_plan_is_refused(url: str, shop: Client, service: Service) -> None:
    shop.update_settings(approval="manual")
    shop.create_query(JOIN, name="q")
    service.plan(-1)
    seen = shop.held_plan()
    answer = json.loads(run("plan", "refuse", "--json", url=url).stdout)
    assert answer["state"] == "refused"
    assert shop.query("q").waits_because == "its plan was refused"
    with pytest.raises(ApiError, match="no plan waits"):
        shop.approve_plan(seen.version)
