"""Tests of printed dry runs, on the command line and in Python: assumptions, shared steps and
changes.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from anabranch_client.cli.app import app
from anabranch_client.errors import UsageError
from anabranch_client.render.dry_run import (
    assumptions,
    diff_tables,
    dry_run_detail,
    effects_table,
    reasons_table,
    shares_table,
)
from anabranch_client.rest.api import Client
from anabranch_contract.rest.planning.insight import DiffRecord, ReasonsRecord, SharesRecord
from anabranch_contract.rest.planning.plans import DryRunOut, EffectsOut
from tests.client.conftest import JOIN
from tests.support.worlds.service import Service

EQUALITY = "orders.customer_id = customers.customer_id"


def text(content: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=140)
    console.print(content)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def dry_run(url: str, *arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["plan", "dry-run", *arguments, "--url", url, "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert isinstance(document, dict)
    return document


def test_queries_are_added_by_text_name_and_file(url: str, shop: Client, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text(JOIN)
    plan = dry_run(url, JOIN, "--name", "a", "--add", JOIN, "--add", f"b={JOIN}",
                   "--add", f"c=@{tmp_path / 'q.sql'}")  # fmt: skip
    assert plan["queries"] == ["a", "dry-run-1", "b", "c"]
    shares = {s["query"]: s for s in plan["shares"]["queries"]}
    assert set(shares) == set(plan["queries"])
    assert sum(s["shapley"] for s in shares.values()) == pytest.approx(plan["cost"])
    assert list(shop.queries()) == []


def test_a_ttl_is_assumed(url: str, shop: Client) -> None:
    shop.create_stream("visits", [("k", "bigint"), ("at", "timestamp")], event_time="at")
    late = "SELECT a.k FROM visits a JOIN visits b ON a.k = b.k AND b.at > a.at + INTERVAL 2 DAYS"
    shop.create_query(late, name="late")
    assert dry_run(url, "--ttl", "visits=3 days")["queries"] == ["late"]
    assert list(dry_run(url, "--ttl", "visits=1 day")["rejected"]) == ["late"]
    assert shop.dry_run(retention={"visits": {"ttl": "1 day"}}).queries == []
    shop.update_stream("visits", retention={"ttl": "5 days"})
    assert dry_run(url, "--ttl", "visits=none")["queries"] == ["late"]


@pytest.mark.parametrize(
    ("ttl", "words"),
    [("orders", "is not a ttl"), ("orders=soon", "soon"), ("none=1 day", "'none'")],
)
def test_a_ttl_that_cannot_be_assumed(url: str, shop: Client, ttl: str, words: str) -> None:
    result = CliRunner().invoke(app, ["plan", "dry-run", JOIN, "--ttl", ttl, "--url", url])
    assert result.exit_code != 0
    assert words in result.output


def test_what_is_assumed_reaches_the_planner(url: str, shop: Client) -> None:
    plain = dry_run(url, JOIN)
    assumed = dry_run(url, JOIN, "--assume", "orders=500", "--assume", "orders.customer_id=5",
                      "--assume", f"{EQUALITY}: 0.5", "--width", "orders=1000",
                      "--deadline", "0.5", "--solver", "highs",
                      "--formulation", "tight")  # fmt: skip
    assert assumed["cost"] != plain["cost"]
    assert (assumed["deadline"], assumed["solver"]) == (0.5, "highs")
    assert "orders" not in assumed["assumed"]
    assert shop.dry_run(
        [{"sql": JOIN}],
        statistics={"orders": 500},
        distinct={"orders.customer_id": 5},
        selectivity={EQUALITY: 0.5},
    ).cost == pytest.approx(assumed["cost"])


def test_the_difference_to_the_running_plan(url: str, shop: Client, service: Service) -> None:
    shop.create_query(JOIN, name="where")
    service.plan(-1)
    plan = shop.dry_run(drop=["where"], detail="summary")
    assert plan.diff is not None
    assert (plan.diff.epoch, plan.diff.unchanged, plan.diff.cost_after) == (0, False, 0)
    assert {c.label for c in plan.diff.stores.dropped} == {
        "orders[customer_id]", "customers[customer_id]"
    }  # fmt: skip
    result = CliRunner().invoke(app, ["plan", "dry-run", "--drop", "where", "--url", url])
    assert result.exit_code == 0, result.output
    assert "against epoch 0" in result.stdout
    assert "store orders[customer_id]" in result.stdout
    epoch = shop.epoch(0)
    assert epoch.shares is not None
    assert [s.query for s in epoch.shares.queries] == ["where"]
    assert "no epoch" in epoch.diff_reason


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--assume", "orders"), "is not a figure"),
        (("--assume", "=5"), "is not a figure"),
        (("--assume", "a.b = c.d: often"), "is not a figure"),
        (("--width", "orders=wide"), "relation=number"),
        (("--add", "q="), "is not a query"),
        (("--add", "q=@no-such.sql"), "cannot read no-such.sql"),
    ],
)
def test_what_cannot_be_used_is_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(app, ["plan", "dry-run", *arguments])
    assert result.exit_code == 2, result.output
    assert words in result.stderr


def test_a_refused_assumption_names_its_field(url: str, shop: Client) -> None:
    result = CliRunner().invoke(
        app, ["plan", "dry-run", JOIN, "--assume", "orders.nothing=5", "--url", url]
    )
    assert result.exit_code == 1
    assert "orders.nothing" in result.stderr
    assert list(shop.queries()) == []


def test_assumptions_are_told_apart() -> None:
    found = assumptions(["R[ab12]=1e3", "R.a,b=2", "R.a=S.a: .5", "S = 7"])
    assert found.cardinalities == {"R[ab12]": 1000.0, "S": 7.0}
    assert found.distincts == {"R.a,b": 2.0}
    assert found.selectivities == {"R.a=S.a": 0.5}
    with pytest.raises(UsageError):
        assumptions(["R.a=S.a"])


def test_shares_as_a_table() -> None:
    one = {"query": "[bold]q[/bold]", "standalone": None, "marginal": 1.0, "shapley": 1500.0,
           "proportional": None, "part": 2500.0}  # fmt: skip
    shares = SharesRecord.read({"queries": [one], "omitted": 3, "note": "gone wrong"})
    shown = text(shares_table(shares))
    for words in ("[bold]q[/bold]", "1,500", "–", "3 more queries", "gone wrong"):
        assert words in shown
    many = SharesRecord.read({"queries": [one] * 40})
    assert "10 more queries" in text(shares_table(many))


def test_a_difference_as_a_table() -> None:
    change = {"label": "S⋈T[b]", "tuples": 12.0, "cost": 12.0}
    diff = DiffRecord.read(
        {
            "epoch": 4,
            "unchanged": False,
            "cost_before": None,
            "cost_after": 50.0,
            "totals": {"added": {"count": 3}, "built": {"count": 1}},
            "steps": {"added": [change], "removed": [], "kept": []},
            "stores": {"built": [{**change, "bytes": 2048.0}], "dropped": [], "retained": []},
            "notes": ["100 bytes per tuple assumed"],
        }
    )
    shown = text(diff_tables(diff))
    for words in ("epoch 4", "cost – before, 50 after", "3 added", "store S⋈T[b]", "2.0 KiB",
                  "2 more changes", "note: 100 bytes"):  # fmt: skip
        assert words in shown
    same = diff.model_copy(update={"unchanged": True})
    assert "nothing changes" in text(diff_tables(same))


def test_reasons_as_a_table() -> None:
    users = [f"q{n}" for n in range(6)]
    reasons = ReasonsRecord.read(
        {
            "shared": [{"kind": "step", "label": "from S", "users": users, "cost": 2, "saved": 10}],
            "kept": [{"label": "S⋈T", "users": users[:2], "detours": 9, "upkeep": 1, "saved": 8}],
            "omitted": 7,
        }
    )
    shown = text(reasons_table(reasons))
    for words in ("keep S⋈T (upkeep 1)", "q0, q1", "and 2 more", "10", "7 more"):
        assert words in shown
    assert "nothing is shared" in text(reasons_table(ReasonsRecord.read({"shared": []})))


def test_effects_under_overload_as_a_table() -> None:
    one = {"query": "late-orders-by-city", "before": 0.5, "after": 0.25, "floor": 0.4}
    new = {"query": "new", "before": None, "after": 0.25, "floor": None, "floor_broken": False}
    effects = EffectsOut.read(
        {
            "budget": 0.5,
            "budget_after": 0.3,
            "queries": [{**one, "floor_broken": True}, new],
            "omitted": 3,
        }
    )
    shown = text(effects_table(effects))
    for words in ("late-orders-by-city", "50.00%", "25.00%", "40.00%", "30.00%", "broken", "–"):
        assert words in shown
    assert "3 more queries" in shown


def test_an_answer_of_an_older_service_is_shown_all_the_same() -> None:
    plan = DryRunOut.read({"optimizer": "clash", "cost": 12.0, "queries": ["a"]})
    shown = text(dry_run_detail(plan))
    assert "12" in shown
    assert "shares" not in shown
