"""Tests of the page of load (overload, rations) in a real browser."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from anabranch_contract.packed import unpack
from anabranch_contract.plans.rations import Overload, Ranking, Ration
from anabranch_contract.plans.ruleset import RulesetId, loads
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.intake import InputProgress, StreamIntake
from anabranch_contract.protocol.progress import Progress, Rationing
from anabranch_contract.queries.joins import QueryId
from tests.service.conftest import PAIR
from tests.service.pages.drawn import drawn
from tests.service.pages.test_dashboard import opened
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LONG = "orders-of-the-last-quarter-with-all-their-items-and-customers-"
CELLS = "row => [...row.cells].map(cell => cell.innerText)"


def test_before_anything_runs_the_page_says_so(browser: Browser, shop: Service) -> None:
    with opened(browser, shop, "dashboard/load") as (page, complaints):
        expect(page.get_by_role("status").first).to_have_text("live")
        expect(page.locator("#load-note")).to_have_text("not known yet")
        expect(page.locator("#queries")).to_contain_text("No query is registered.")
        expect(page.locator("#policy")).to_contain_text("wait")
        assert not complaints


def test_what_overload_leaves_is_no_completeness(browser: Browser, shop: Service) -> None:
    for name in ("always", "late", "never", "pending", "rationed"):
        shop.post("/v1/queries", {"id": name, "sql": PAIR})
    shop.plan(-1)
    shop.progress(Progress("running", 9, 0, ruleset_epoch=0))
    shop.activate("always", Activation(0, {}, results=3))
    moment = datetime(2026, 11, 24, 7, 22, 56, tzinfo=UTC)
    since = round(moment.timestamp() * 1e6)
    shop.activate("late", Activation(2, {}, complete="from", complete_from=since))
    shop.activate("never", Activation(2, {}, complete="never"))
    shop.activate("rationed", Activation(0, {}, results=99_999, withheld=1.0))
    with opened(browser, shop, "dashboard/load") as (page, complaints):
        expect(page.locator("#queries tbody tr")).to_have_count(5)
        shown = {
            cells[0]: (cells[2], cells[8])
            for cells in drawn(page.locator("#queries tbody tr"), CELLS)
        }
        assert shown == {
            # Nearly all is not shown as all.
            "rationed": ("> 99.9 %", "first result"),
            "always": ("all", "first result"),
            "late": ("all", "2026-11-24 07:22:56"),
            "never": ("all", "never"),
            "pending": ("–", "–"),
        }
        assert next(iter(shown)) == "rationed"
        heads = drawn(page.locator("#queries thead th"), "e => e.innerText")
        assert (heads[2], heads[8]) == ("Kept", "Complete from")
        # The list of queries shows the same words.
        page.goto(page.url.replace("/dashboard/load", "/dashboard/queries"))
        for name, (_, complete) in shown.items():
            link = page.get_by_role("link", name=name, exact=True)
            row = page.locator("#queries tbody tr").filter(has=link)
            expect(row.locator("td").nth(5)).to_have_text(complete)
        assert not complaints


@pytest.mark.e2e
def test_what_overload_keeps_from_queries(browser: Browser, shop: Service) -> None:
    names = [f"{LONG}{n:03d}" for n in range(120)]
    for name in names:
        shop.post("/v1/queries", {"id": name, "sql": PAIR, "slo": {"completeness": 0.9}})
    shop.plan(-1)
    shop.call("PUT", "/v1/settings", 200, {"overload": "ration-with-catch-up", "capacity": 0.5})
    rules = loads(unpack(str(shop.redis.get(shop.keys.ruleset(RulesetId(0))))))
    spec = next(q for q in rules.queries if q.id == names[7])
    label = {alias: label for alias, label, _ in spec.members}
    ranking = Ranking((("order_id", "bigint"),), by_batch=True)
    rationing = Rationing(
        Overload.CATCH_UP,
        0.5,
        1.7,
        overloaded=True,
        latency=2.0,
        rations=(Ration(QueryId(names[7]), label["o"], 0.25, ranking),),
        owed=3,
    )
    intake = {"orders": StreamIntake(4321, 1.5)}
    progress = Progress(
        "running", 9, 0, ruleset_epoch=0, input=InputProgress(intake, 4000), rationing=rationing
    )
    shop.progress(progress)
    shop.beat()
    shop.activate(names[7], Activation(0, {}, results=30, withheld=6.0, owed=4.0, caught_up=12))

    shop.activate(names[99], Activation(0, {}, results=30, blind=2))

    with opened(browser, shop, "dashboard/load") as (page, complaints):
        expect(page.locator("#load-note")).to_have_text("overloaded: probes are rationed")
        for text in ("170.0 %", "50 %", "4,321"):
            expect(page.locator("#load")).to_contain_text(text)
        expect(page.locator("#policy")).to_contain_text("ration-with-catch-up")
        levers = page.locator("#levers li")
        expect(levers).to_have_count(4)
        expect(levers.nth(2)).to_contain_text("in force")
        expect(levers.nth(3)).to_contain_text("about 321 rows")
        # Without a row limit no rows wait, and a replay has no latency target.
        calm = replace(rationing, needed=0.5, overloaded=False, latency=None, rations=())
        shop.progress(replace(progress, input=InputProgress(intake), rationing=calm))
        for lever in range(4):
            expect(levers.nth(lever)).to_contain_text("not in force", timeout=60_000)
        expect(page.locator("#load-note")).to_contain_text("3 batches are still to be computed")
        shop.progress(progress)
        expect(levers.nth(3)).to_contain_text("about 321 rows")

        # The least complete query is first, whatever its name.
        first = page.locator("#queries tbody tr").first
        expect(first.get_by_role("link")).to_have_text(names[7])
        for text in ("75.0 %", "90 %", "o 25 %", "12"):
            expect(first).to_contain_text(text)
        # Next are queries whose loss can't be estimated.
        second = page.locator("#queries tbody tr").nth(1)
        expect(second.get_by_role("link")).to_have_text(names[99])
        expect(second).to_contain_text("below 100.0 %")
        expect(page.locator("#queries tbody tr")).to_have_count(100)
        expect(page.locator("#queries-note")).to_have_text("120; the first 100 are shown")
        page.get_by_label("Show").fill("customers-11")
        expect(page.locator("#queries tbody tr")).to_have_count(10)
        page.get_by_label("Show").fill("nothing")
        expect(page.locator("#queries")).to_contain_text("No matching query.")

        # Nothing is wider than a small window.
        page.set_viewport_size({"width": 420, "height": 800})
        wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        assert page.evaluate(wide)
        assert not complaints
