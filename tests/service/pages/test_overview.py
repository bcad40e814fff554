"""Tests of the overview page: five figures on at most two screens, whatever the number
of queries.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from anabranch_contract.protocol.intake import InputProgress, SourceState, StreamIntake
from anabranch_contract.protocol.progress import Progress, Resources
from anabranch_service.registry.publishing.history import HistoryPoint
from tests.service.conftest import PAIR
from tests.service.pages.long_names import LONGEST, nothing_is_cut, run
from tests.service.pages.test_dashboard import opened
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: Height of a screen in pixels, and maximum number of screens of the overview.
SCREEN, MOST = 900, 2


def several(shop: Service, many: int) -> None:
    run(shop)
    bodies = [
        {"id": f"paid_orders_by_city_{n:04d}", "sql": PAIR.replace("SELECT ", f"SELECT {n} AS n, ")}
        for n in range(many)
    ]
    for first in range(0, many, 100):
        shop.post("/v1/queries:batch", {"queries": bodies[first : first + 100]}, 200)
    shop.plan(0)


@pytest.mark.e2e
@pytest.mark.parametrize("many", mostly_slow([100, 0, 1000]))
def test_five_figures_on_two_screens(browser: Browser, shop: Service, many: int) -> None:
    several(shop, many)
    with opened(browser, shop) as (page, complaints):
        page.set_default_timeout(60_000)
        page.set_viewport_size({"width": 1440, "height": SCREEN})
        expect(page.locator("#pulse")).to_have_text("live", timeout=60_000)
        expect(page.locator("main section.card:visible h2")).to_have_text(
            ["Health", "Freshness", "Throughput", "Cost and saving", "Changes"]
        )
        expect(page.locator("#changed li").first).to_contain_text("Epoch")
        assert page.evaluate("document.documentElement.scrollHeight") <= MOST * SCREEN
        nothing_is_cut(page)
        # The state is beside the links to pages, and figures are below both.
        brand, pulse, facts = (
            page.locator(name).evaluate("e => [e.getBoundingClientRect().top, e.clientHeight]")
            for name in (".top .brand", "#pulse", ".top .facts")
        )
        assert pulse[0] < sum(brand)
        assert sum(pulse) <= facts[0]
        page.set_viewport_size({"width": 390, "height": SCREEN})
        nothing_is_cut(page)
    assert not complaints


def test_freshness_is_the_longest_wait_and_a_batch(browser: Browser, shop: Service) -> None:
    run(shop)
    progress = Progress.loads(str(shop.redis.get(shop.keys.runtime)))
    intake = {"orders": StreamIntake(120, 7.5), "items": StreamIntake(0, 0.0)}
    changed = replace(progress, resources=Resources(batch_seconds=0.5), input=InputProgress(intake))
    shop.progress(changed)
    shop.source("orders", SourceState.FAILED, "no broker answers at kafka:9092")
    with opened(browser, shop) as (page, complaints):
        expect(page.locator("#fresh")).to_have_text("Results come about 8 s after their rows")
        expect(page.locator("#fresh-why")).to_have_text(
            "the oldest unread row, of orders, has waited 7.5 s; a batch takes 500 ms"
        )
        expect(page.locator("#health")).to_contain_text("need attention")
        expect(page.locator("#alerts")).to_contain_text("no broker answers")
        page.locator("#alerts").get_by_role("link", name="orders").click()
        expect(page).to_have_url(f"http://127.0.0.1:{shop.settings.port}/dashboard/stream/orders")
    assert not complaints


@pytest.mark.e2e
def test_interruptions_are_in_the_colour_of_lines(browser: Browser, shop: Service) -> None:
    run(shop)
    for minute in (0, 1, 5, 6):
        begin = 4_000_000_000 // 60 * 60
        point = HistoryPoint(at=begin + 60 * minute, batch_seconds=0.3, rows={}, results={})
        shop.redis.rpush(shop.keys.history, point.model_dump_json())
    with opened(browser, shop) as (page, complaints):
        mark = page.locator("#batch-times .interruption")
        page.emulate_media(color_scheme="light")
        expect(mark).to_have_css("fill", "rgb(221, 227, 230)")
        page.emulate_media(color_scheme="dark")
        expect(mark).to_have_css("fill", "rgb(42, 55, 62)")
    assert not complaints


@pytest.mark.e2e
def test_all_fits_a_window_that_becomes_narrower(browser: Browser, shop: Service) -> None:
    """Also with charts, components that need attention, and changes of the plan."""
    several(shop, 3)
    shop.call("DELETE", f"/v1/queries/{LONGEST}", 202)
    shop.plan(1)
    for minute in range(60):
        point = HistoryPoint(
            at=4_000_000_000 // 60 * 60 + 60 * minute,
            batch_seconds=0.3,
            rows={"orders": 900 + minute},
            results={},
        )
        shop.redis.rpush(shop.keys.history, point.model_dump_json())
    with opened(browser, shop) as (page, complaints):
        for chart in ("#batch-times svg", "#rows svg"):
            expect(page.locator(chart)).to_be_visible()
        expect(page.locator("#changed > li")).to_have_count(3)
        page.set_viewport_size({"width": 390, "height": SCREEN})
        nothing_is_cut(page)
        assert page.evaluate("document.documentElement.scrollHeight") <= MOST * SCREEN
    assert not complaints


@pytest.mark.e2e
def test_what_needs_attention_fits_two_narrow_screens(browser: Browser, shop: Service) -> None:
    several(shop, 3)
    for minute in range(60):
        at = 4_000_000_000 // 60 * 60 + 60 * minute
        point = HistoryPoint(at=at, batch_seconds=0.3, rows={"orders": 900 + minute}, results={})
        shop.redis.rpush(shop.keys.history, point.model_dump_json())
    why = "no such folder: /data/orders/of/the/last/quarter, or this process may not read it"
    for stream in ("orders", "items"):
        shop.source(stream, SourceState.FAILED, why)
    progress = Progress.loads(str(shop.redis.get(shop.keys.runtime)))
    refused = {LONGEST: "the bucket s3://results-of-the-shop is gone: 404 NoSuchBucket"}
    shop.progress(replace(progress, sinks=refused, input=replace(progress.input, row_limit=4000)))
    with opened(browser, shop) as (page, complaints):
        page.set_viewport_size({"width": 390, "height": 844})
        expect(page.locator("#alerts > li")).to_have_count(4)
        expect(page.locator("#unread li")).to_have_count(2)
        expect(page.locator("#facts")).to_contain_text("2 not read")
        expect(page.locator("#rows svg")).to_be_visible()
        expect(page.locator("#changed > li").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollHeight") <= MOST * 844
        nothing_is_cut(page)
    assert not complaints


def test_money_is_saved_cpu_time_by_its_price(browser: Browser, service: Service) -> None:
    """Half of 36 CPU seconds in 100 s: 0.18 CPU hours per hour, 129.6 in thirty days."""
    with opened(browser, service) as (page, complaints):
        expect(page.locator("#pulse")).to_have_text("live")
        texts = page.evaluate(
            """async () => {
              const { moneyText } = await import("/dashboard/overview/view.js");
              const saving = { seconds: 100, epochs: 3, share: 0.5, lowest: 0.25, highest: 0.75,
                individual_cpu_seconds: 36, cpu_seconds: 18 };
              return [moneyText(saving, 1), moneyText({ ...saving, share: -0.5, epochs: 1 }, 0.01),
                moneyText(saving, 0), moneyText(null, 1)];
            }"""
        )
        assert texts == [
            "At this load the joint plan saves 130 (65 to 194 by epoch) in a month of 30 days, "
            "50.0 % of 259.",
            "At this load the joint plan costs 1.3 in a month of 30 days, 50.0 % of 2.59.",
            "",
            "",
        ]
        page.get_by_label("Price of a CPU hour").fill("0.05")
        page.reload()
        expect(page.get_by_label("Price of a CPU hour")).to_have_value("0.05")
    assert not complaints


@pytest.mark.e2e
def test_earlier_addresses_lead_to_plan_and_list(browser: Browser, shop: Service) -> None:
    run(shop)
    with opened(browser, shop, f"#query={LONGEST}") as (page, complaints):
        expect(page.locator(f'#map [data-id="query:{LONGEST}"]')).to_be_visible()
        assert page.url.endswith(f"/dashboard/plan#query={LONGEST}")
    with opened(browser, shop, "?status=active") as (page, _):
        expect(page.locator("#queries tbody tr").first).to_be_visible()
        assert page.url.endswith("/dashboard/queries?status=active")
    assert not complaints


@pytest.mark.e2e
def test_probe_trees_of_many_queries_are_those_of_one(browser: Browser, shop: Service) -> None:
    several(shop, 40)
    progress = Progress.loads(str(shop.redis.get(shop.keys.runtime)))
    starts = {"0": 0, "1": 40}
    shop.progress(replace(progress, committed=41, epoch=1, ruleset_epoch=1, epoch_starts=starts))
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        choice = page.get_by_label("Query whose probe trees are shown")
        expect(choice.locator("option")).to_have_count(48)
        name = "paid_orders_by_city_0007"
        choice.select_option(name)
        expect(page).to_have_url(page.url.partition("#")[0] + f"#query={name}")
        explained = shop.get("/v1/epochs/1")["explain"]["queries"]
        (orders,) = (one["orders"] for one in explained if one["id"] == name)
        expect(page.locator("#trees svg")).to_have_count(len({o["start"] for o in orders}))
        expect(page.locator("#chips button")).to_have_count(0)
        expect(page.locator("#stores")).to_contain_text(re.compile(r"probed by .* and \d+ more"))
    assert not complaints
