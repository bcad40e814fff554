"""Tests of ``anabranch apply``: declared queries are registered, changed, deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from anabranch_client.cli.app import app
from anabranch_client.rest.api import Client
from tests.client.conftest import JOIN

if TYPE_CHECKING:
    from typer.testing import Result

DECLARED = f"""\
owner: web
tags: [shop]
queries:
  pairs:
    sql: |
      {JOIN}
    priority: 2
  large:
    sql: {JOIN} WHERE o.total > 10
    ttl: 2 days
    tags: [shop, large]
"""


def run(*arguments: str, url: str) -> Result:
    variables = {"ANABRANCH_URL": url, "COLUMNS": "160"}
    return CliRunner().invoke(app, ["apply", *arguments], env=variables)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "queries.yaml"
    path.write_text(DECLARED)
    return path


def registered(shop: Client) -> dict[str, str]:
    return {q.id: q.run for q in shop.queries() if q.status in ("pending", "active")}


def test_what_is_declared_becomes_so_once(url: str, shop: Client, file: Path) -> None:
    dry = run("-f", str(file), "--dry-run", url=url)
    assert dry.exit_code == 0, dry.output
    assert dry.stdout.splitlines()[-1] == "2 would be created, 0 as declared"
    assert registered(shop) == {}
    done = run("-f", str(file), "--yes", url=url)
    assert done.stdout.splitlines()[-1] == "2 created, 0 as declared"
    pairs = shop.query("pairs")
    assert (pairs.owner, pairs.tags, pairs.priority) == ("web", ["shop"], 2)
    assert shop.query("large").tags == ["shop", "large"]
    again = run("-f", str(file), url=url)
    assert (again.exit_code, again.stdout) == (0, "2 as declared\n")


def test_what_differs_is_changed_or_replaced(url: str, shop: Client, file: Path) -> None:
    run("-f", str(file), "--yes", url=url)
    changed = DECLARED.replace("priority: 2", "priority: 3").replace("> 10", "> 20")
    file.write_text(changed)
    shown = run("-f", str(file), "--dry-run", url=url)
    assert "-2" in shown.stdout
    assert "> 20" in shown.stdout
    done = json.loads(run("-f", str(file), "--json", url=url).stdout)
    assert done == {"dry_run": False, "actions": {"pairs": "changed", "large": "replaced"}}
    assert registered(shop) == {"pairs": "pairs", "large": "large~2"}


def test_pruning_withdraws_what_the_owner_does_not_declare(
    url: str, shop: Client, file: Path
) -> None:
    shop.create_query(JOIN, name="old", owner="web")
    shop.create_query(JOIN, name="other", owner="data")
    done = run("-f", str(file), "--prune", "--yes", url=url)
    assert done.stdout.splitlines()[-1] == "2 created, 1 withdrawn, 0 as declared"
    assert set(registered(shop)) == {"other", "pairs", "large"}
    file.write_text(DECLARED.replace("owner: web\n", ""))
    refused = run("-f", str(file), "--prune", "--yes", url=url)
    assert (refused.exit_code, "declare an owner" in refused.stderr) == (2, True)


def test_nothing_is_done_where_something_is_refused(url: str, shop: Client, file: Path) -> None:
    file.write_text(
        DECLARED.replace("o.total > 10", "o.totl > 10").replace("priority: 2", "pri: 2")
    )
    refused = run("-f", str(file), "--yes", url=url)
    assert refused.exit_code == 1
    first, second, *excerpt = refused.stderr.splitlines()
    assert f"{file}, line 7: queries.pairs.pri" in first
    assert f"{file}, line 9: queries.large.sql" in second
    assert "did you mean" in second
    assert excerpt[-1].strip().endswith("^")
    assert registered(shop) == {}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("queries: []", "declares no queries"),
        ("queries: {}\nquerys: {}", "line 2: querys"),
        ("queries:\n  q: SELECT 1", "line 2: queries.q"),
        ("queries:\n  q: {}\n  q: {}", "line 3"),
    ],
)
def test_a_file_of_another_shape_is_refused_by_its_line(
    text: str, line: str, url: str, file: Path
) -> None:
    file.write_text(text)
    refused = run("-f", str(file), "--yes", url=url)
    assert refused.exit_code == 2
    assert line in refused.stderr


def test_a_family_is_applied_and_listed(url: str, shop: Client, tmp_path: Path) -> None:
    (tmp_path / "limits.csv").write_text("name,least\na,1\nb,25\n")
    file = tmp_path / "queries.yaml"
    file.write_text(
        f"queries:\n  large:\n    sql: {JOIN} WHERE o.total > :least\n    parameters: limits.csv\n"
    )
    assert run("-f", str(file), "--yes", url=url).exit_code == 0
    assert set(registered(shop)) == {"large-a", "large-b"}
    (tmp_path / "limits.csv").write_text("name,least\na,1\nb,30\nc,4\n")
    again = run("-f", str(file), "--yes", url=url)
    assert again.stdout.splitlines()[-1] == "1 created, 1 replaced, 1 as declared"
    variables = {"ANABRANCH_URL": url, "COLUMNS": "160"}
    listed = CliRunner().invoke(app, ["query", "families"], env=variables)
    (family,) = shop.families().items
    assert [family.id, "3", "large-a"] in [x.split()[:3] for x in listed.stdout.splitlines()]
    shown = CliRunner().invoke(app, ["query", "families", family.id], env=variables)
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert {(x[0], x[-1]) for x in lines if x and x[0].startswith("large")} == {
        ("large-a", "1"),
        ("large-b", "30"),
        ("large-c", "4"),
    }
