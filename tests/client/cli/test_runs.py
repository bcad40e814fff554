"""Tests of replacing, pausing and resuming queries on the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from anabranch_client.cli.app import app
from anabranch_client.rest.api import Client
from tests.client.conftest import JOIN

if TYPE_CHECKING:
    from typer.testing import Result

LARGE = JOIN + "\nWHERE o.total > 10"


def run(*arguments: str, url: str, given: str | None = None) -> Result:
    variables = {"ANABRANCH_URL": url, "COLUMNS": "160"}
    return CliRunner().invoke(app, list(arguments), input=given, env=variables)


def test_a_replacement_is_shown_before_it_is_done(url: str, shop: Client) -> None:
    shop.create_query(JOIN, name="q", priority=3, owner="web")
    shown = run("query", "replace", "q", LARGE, "--dry-run", url=url)
    assert shown.exit_code == 0, shown.output
    assert "q: begin another run of it with the next epoch" in shown.stdout
    assert "+WHERE o.total > 10" in shown.stdout
    assert "the plan's cost per unit of time:" in shown.stdout
    assert shop.query("q").run == "q"
    refused = run("query", "replace", "q", LARGE, url=url)
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    done = run("query", "replace", "q", LARGE, "--yes", url=url)
    assert done.exit_code == 0, done.output
    now = shop.query("q")
    assert (now.run, now.sql, now.priority, now.owner) == ("q~2", LARGE, 3, "web")
    again = run("query", "replace", "q", LARGE, "--yes", url=url)
    assert "q: nothing to do" in again.stdout
    assert shop.query("q").run == "q~2"


def test_a_refused_replacement_shows_its_line(url: str, shop: Client) -> None:
    shop.create_query(JOIN, name="q")
    refused = run("query", "replace", "q", "SELECT o.nothing\nFROM orders o", "--yes", url=url)
    assert refused.exit_code == 1
    assert "error: sql: line 1, column 8" in refused.stderr
    assert "  1 | SELECT o.nothing\n" in refused.stderr


def test_pause_resume_and_the_list_of_runs(url: str, shop: Client) -> None:
    shop.create_query(JOIN, name="q")
    assert "paused" in run("query", "pause", "q", url=url).stdout
    assert "q~2" in run("query", "resume", "q", url=url).stdout
    listed = json.loads(run("query", "runs", "q", "--json", url=url).stdout)
    assert [r["run"] for r in listed["items"]] == ["q", "q~2"]
    table = run("query", "runs", "q", url=url).stdout
    assert "q~2" in table
    assert "pending" in table


def test_title_owner_and_tags(url: str, shop: Client) -> None:
    added = run(
        *("query", "add", JOIN, "--name", "q", "--title", "Orders", "--owner", "web"),
        *("--tag", "a", "--tag", "b"),
        url=url,
    )
    assert "a, b" in added.stdout
    run("query", "set", "q", "--title", "none", "--tag", "none", url=url)
    now = shop.query("q")
    assert (now.title, now.owner, now.tags) == (None, "web", [])
