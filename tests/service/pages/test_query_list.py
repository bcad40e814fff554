"""Tests of owners and tags of queries in pages: shown, changed, and searched."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from anabranch_contract.protocol.progress import Progress
from tests.service.conftest import CHAIN, PAIR
from tests.service.pages.long_names import LONGEST, nothing_is_cut, run
from tests.service.pages.test_dashboard import opened
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def labelled(shop: Service) -> None:
    run(shop)
    labels = {
        LONGEST: {"title": "Shipments <b>2026</b>", "owner": "web", "tags": ["daily", "team:web"]},
        "p99-audit": {"owner": "audit", "tags": ["daily"]},
    }
    for name, changes in labels.items():
        shop.call("PATCH", f"/v1/queries/{name}", 200, changes)


@pytest.mark.e2e
def test_queries_are_found_by_owner_tag_and_words(browser: Browser, shop: Service) -> None:
    labelled(shop)
    with opened(browser, shop, "dashboard/queries") as (page, complaints):
        rows = page.locator("#queries tbody tr")
        expect(rows).to_have_count(8)
        expect(page.locator("#queries")).to_contain_text("Shipments <b>2026</b>")
        page.locator("#find-tag").select_option("daily")
        expect(rows).to_have_count(2)
        expect(page.locator("#queries-count")).to_contain_text("2 found")
        page.locator("#queries").get_by_role("button", name="audit", exact=True).click()
        expect(rows).to_have_count(1)
        assert "owner=audit&tag=daily" in page.url
        page.reload()
        expect(rows).to_have_count(1)
        page.locator("#find-owner").select_option("")
        page.locator("#find-tag").select_option("")
        page.get_by_label("Name, title, statement").fill("TEAM:web")
        expect(rows).to_have_count(1)
        page.get_by_label("Name, title, statement").fill("nothing is called so")
        expect(page.locator("#queries")).to_contain_text("No matching query")
        page.get_by_role("button", name="Clear the search").click()
        expect(rows).to_have_count(8)
        expect(page.get_by_label("Name, title, statement")).to_be_focused()
        page.get_by_role("link", name="Plan", exact=True).click()
        page.locator("#map-find").fill("team:web")
        expect(page.locator(f'#map .node[data-id="query:{LONGEST}"]:not(.dim)')).to_have_count(1)
        expect(page.locator("#map .node.query.dim")).to_have_count(7)
    assert not complaints


@pytest.mark.e2e
def test_queries_are_found_by_stream_and_status_page_by_page(
    browser: Browser, shop: Service
) -> None:
    bodies = [{"id": f"q{n:03}", "sql": PAIR if n % 2 else CHAIN} for n in range(230)]
    shop.post("/v1/queries:batch", {"queries": bodies}, 200)
    shop.call("DELETE", "/v1/queries/q227", 202)
    with opened(browser, shop, "dashboard/queries") as (page, complaints):
        rows, count = page.locator("#queries tbody tr"), page.locator("#queries-count")
        expect(count).to_have_text("0 active of 230; 1 to 100 are shown")
        expect(rows).to_have_count(100)
        back, on = (page.get_by_role("button", name=name) for name in ("Previous", "Next"))
        expect(back).to_be_disabled()
        on.click()
        expect(count).to_contain_text("101 to 200 are shown")
        expect(rows.first).to_contain_text("q100")
        expect(rows.first).to_be_in_viewport()
        on.click()
        expect(rows).to_have_count(30)
        expect(on).to_be_disabled()
        back.click()
        expect(rows.first).to_contain_text("q100")
        page.locator("#find-stream").select_option("items")
        expect(count).to_contain_text("more than 100 found; 1 to 100 are shown")
        page.locator("#find-stream").select_option("")
        page.locator("#find-status").select_option("expired")
        expect(rows).to_have_count(1)
        expect(count).to_contain_text("1 found")
        expect(rows).to_contain_text("q227")
        # It never expires, as it has ended.
        expect(rows.locator("td").nth(6)).to_have_text("–")
        expect(on).to_be_hidden()
        assert page.url.endswith("?status=expired")
        page.reload()
        expect(rows).to_contain_text("q227")
        page.set_viewport_size({"width": 390, "height": 900})
        nothing_is_cut(page)
    assert not complaints


def test_a_query_shows_its_labels_and_they_are_changed(browser: Browser, shop: Service) -> None:
    labelled(shop)
    with opened(browser, shop, f"dashboard/query/{LONGEST}") as (page, complaints):
        page.set_viewport_size({"width": 390, "height": 900})
        expect(page.locator("#labels")).to_contain_text("Shipments <b>2026</b>")
        page.get_by_label("Title").fill("")
        page.get_by_label("Owner").fill("shop")
        page.get_by_label("Tags").fill("daily, cost:high")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#saved")).to_have_text("Saved.")
        nothing_is_cut(page)
        assert not complaints
        page.get_by_label("Tags").fill("not~a~tag")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#change-refusal")).to_be_visible()
        page.locator("#labels").get_by_role("link", name="daily").click()
        expect(page.locator("#queries tbody tr")).to_have_count(2)
    found = shop.get(f"/v1/queries/{LONGEST}")
    assert (found["title"], found["owner"], found["tags"]) == (None, "shop", ["daily", "cost:high"])


def test_a_row_stays_while_nothing_about_its_query_changes(browser: Browser, shop: Service) -> None:
    labelled(shop)
    with opened(browser, shop, "dashboard/queries") as (page, complaints):
        row = page.locator("#queries tbody tr").first
        expect(row).to_be_visible()
        row.evaluate("row => { row.dataset.seen = 'yes'; }")
        shop.post("/v1/queries", {"id": "another", "sql": PAIR})
        expect(page.locator("#queries tbody tr")).to_have_count(9)
        expect(page.locator("#queries tbody tr[data-seen]")).to_have_count(1)
    assert not complaints


def test_the_focus_stays_in_a_list_that_is_redrawn(browser: Browser, shop: Service) -> None:
    labelled(shop)
    with opened(browser, shop, "dashboard/queries") as (page, complaints):
        rows = page.locator("#queries tbody tr")
        tag = rows.filter(has_text="p99-audit").get_by_role("button", name="daily")
        tag.focus()
        rows.evaluate_all("rows => rows.forEach(row => { row.dataset.seen = 'yes'; })")
        progress = Progress.loads(str(shop.redis.get(shop.keys.runtime)))
        more = {name: results + 5 for name, results in progress.results.items()}
        shop.progress(replace(progress, results=more))
        seen = page.locator("#queries tbody tr[data-seen]")
        expect(seen.filter(has_text="p99-audit")).to_have_count(0)
        expect(tag).to_be_focused()
    assert not complaints


def test_a_narrow_list_has_all_columns(browser: Browser, shop: Service) -> None:
    labelled(shop)
    with opened(browser, shop, "dashboard/queries") as (page, complaints):
        page.set_viewport_size({"width": 390, "height": 900})
        row = page.locator("#queries tbody tr").filter(has_text=LONGEST)
        expect(row).to_contain_text("first result")
        wide = page.locator(".scroll:has(#queries)").evaluate("e => e.scrollWidth - e.clientWidth")
        assert wide <= 0
        # Pages are in a menu.
        link = page.get_by_role("link", name="Settings")
        expect(link).to_be_hidden()
        page.get_by_role("button", name="Queries").press("Enter")
        expect(link).to_be_visible()
        nothing_is_cut(page)
        link.click()
        expect(page.get_by_role("button", name="Settings")).to_be_visible()
    assert not complaints


def test_families_show_their_constants(browser: Browser, shop: Service) -> None:
    parameters = {f"m{n}": {"least": n, "most": 1000} for n in range(3)}
    sql = f"{PAIR} WHERE o.total > :least AND o.total < :most"
    shop.post("/v1/queries:family", {"id": "large", "sql": sql, "parameters": parameters}, 200)
    shop.post("/v1/queries", {"id": "alone", "sql": CHAIN})
    with opened(browser, shop, "dashboard/queries") as (page, complaints):
        page.get_by_text("Families: queries that differ only in constants").click()
        family = page.locator("#families .family")
        expect(family).to_have_count(1)
        expect(family.locator("summary")).to_contain_text("3 queries: SELECT")
        family.locator("summary").click()
        rows = family.locator("tbody tr")
        expect(rows).to_have_count(3)
        # A constant that is equal in all queries has no column.
        expect(family.locator("th")).to_have_text(["Query", "Status", "Results", "Constant 1"])
        expect(rows.nth(2).locator("td").last).to_have_text("2")
        nothing_is_cut(page)
    assert not complaints
