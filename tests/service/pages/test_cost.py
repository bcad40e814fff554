"""Tests of a plan's cost on the overview page, and of its parts, or why they are unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from anabranch_contract.packed import pack, unpack
from anabranch_contract.plans.plan import Objective
from anabranch_contract.protocol.progress import Mode, Progress
from anabranch_service.planning import epoch as planning
from anabranch_service.planning.what_if import explanation as what_if
from anabranch_service.registry.records import EpochRecord
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import CHAIN, PAIR, STREAMS
from tests.service.pages.long_names import run
from tests.service.pages.test_dashboard import opened
from tests.service.planning.test_costs import interim, snapshot
from tests.support.worlds.service import Service, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def broken(*_: object, **__: object) -> None:
    raise RuntimeError("no shares today")


def test_costs_that_are_split_later_are_called_so(browser: Browser, shop: Service) -> None:
    """As with many queries, whose epochs are explained after their publication."""
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    key = shop.keys.epoch(0)
    record = EpochRecord.model_validate_json(unpack(str(shop.redis.get(key))))
    changed = record.model_copy(update={"shares": None, "explained": False})
    shop.redis.set(key, pack(changed.model_dump_json()))
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        expect(page.locator("#shares")).to_contain_text("Not split yet.")
        expect(page.locator("#shares-note")).to_contain_text("after publication")
        assert complaints == []


@pytest.mark.e2e
def test_stores_with_long_names_fit_into_their_card(browser: Browser, shop: Service) -> None:
    run(shop)
    shop.plan(0)
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        stores = page.locator("#stores")
        expect(stores.locator("li")).to_have_count(4)
        for width in (1440, 1280, 1000, 390):
            page.set_viewport_size({"width": width, "height": 900})
            assert stores.evaluate("list => list.scrollWidth - list.clientWidth") <= 0, width
    assert not complaints


@pytest.mark.e2e
def test_costs_that_could_not_be_split_have_the_reason(
    browser: Browser, shop: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    with monkeypatch.context() as patch:
        patch.setattr(what_if, "shares", broken)
        shop.plan(-1)
    found = shop.get("/v1/epochs/0")
    assert (found["shares"]["queries"], found["explained"]) == ([], True)
    assert "no shares today" in found["shares"]["note"]
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        expect(page.locator("#shares")).to_contain_text("Not known.")
        expect(page.locator("#shares-note")).to_contain_text("no shares today")
        assert complaints == []


def test_a_plan_without_queries_has_no_cost_to_split(browser: Browser, shop: Service) -> None:
    shop.plan(-1)
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        expect(page.locator("#shares")).to_contain_text("No query is planned.")
        expect(page.locator("#shares-note")).to_have_text("")
        assert complaints == []


@pytest.mark.e2e
def test_rules_that_go_on_unexplained_have_the_reason(
    shop: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    key = shop.keys.epoch(0)
    record = EpochRecord.model_validate_json(unpack(str(shop.redis.get(key))))
    changed = record.model_copy(update={"shares": None, "explained": False})
    shop.redis.set(key, pack(changed.model_dump_json()))
    with monkeypatch.context() as patch:
        patch.setattr(planning, "make_rules", broken)
        shop.plan(0)
    assert "planning failed" in shop.get("/v1/epochs/1")["shares"]["note"]


@pytest.mark.e2e
def test_what_is_saved_is_a_mean_with_its_time_and_range(
    browser: Browser, settings: ServiceSettings
) -> None:
    live = settings.changed(mode=Mode.LIVE, objective=Objective.SECONDS)
    with serving(live) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        for name, sql in {"pair": PAIR, "same": PAIR, "chain": CHAIN}.items():
            service.post("/v1/queries", {"id": name, "sql": sql})
        service.plan(-1)
        for number in (1, 2, 3):
            service.redis.rpush(service.keys.interims, interim(2 * number, number))
        service.plan(0, next_batch=6, snapshot=snapshot())
        service.redis.rpush(service.keys.interims, interim(8, 4))
        service.plan(1, next_batch=8, snapshot=replace(snapshot(), epoch=1))
        begun = Progress("running", 9, 3, epoch_starts={"0": 0, "2": 6, "3": 8}, ruleset_epoch=3)
        service.progress(begun)
        saving = service.get("/v1/epochs/current")["saving"]
        assert (saving["epochs"], saving["share"]) == (2, pytest.approx(0.5, abs=0.4))
        assert saving["lowest"] < saving["share"] < saving["highest"]
        with opened(browser, service, "dashboard/plan") as (page, complaints):
            text = page.locator("#saving")
            share = f"{100 * saving['share']:.1f} %"
            expect(text).to_contain_text(f"{share} less CPU time than standalone plans")
            expect(text).to_contain_text(
                f"({100 * saving['lowest']:.1f} % to {100 * saving['highest']:.1f} % by epoch)"
            )
            expect(text).to_contain_text("estimated over")
            expect(page.locator(".cost-unit")).to_have_text(["CPU seconds per epoch"] * 2)
            units = page.locator("[data-unit=cost]")
            expect(units).to_have_text(["CPU seconds per epoch"] * 3)
            # An epoch other than the running one has its own estimate.
            page.get_by_role("button", name="Show epoch 2").click()
            expect(text).to_contain_text("estimated for this epoch")
            assert complaints == []


def test_each_query_has_its_part_of_maintained_tables(browser: Browser, shop: Service) -> None:
    for name in ("first", "second"):
        sql = f"SELECT j.city, count(*) AS n FROM ({PAIR}) AS j GROUP BY j.city"
        having = " HAVING count(*) > 3" if name == "second" else ""
        shop.post("/v1/queries", {"id": name, "sql": sql + having})
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    (table,) = shop.get("/v1/epochs/0")["tables"]["tables"]
    parts = {one["query"]: one for one in table["queries"]}
    assert set(parts) == {"first", "second"}
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        for name, part in parts.items():
            cell = page.locator("#shares tbody tr", has_text=name).locator("td").last
            title = f"{part['seconds']} s; alone {part['alone_seconds']} s"
            expect(cell).to_have_attribute("title", title)
        cell = page.locator("#shares tbody tr", has_text="pair").locator("td").last
        expect(cell).to_have_text("none")
        expect(page.locator("#shares thead th").last).to_have_text("Tables")
        expect(page.locator(".cost-unit")).to_have_text(["tuples per unit of time"] * 2)
        assert complaints == []
