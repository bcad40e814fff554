"""Test of pages from a statement to the difference of two epochs, with eight queries and with a
thousand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.service.conftest import CHAIN, PAIR
from tests.service.pages.long_names import LONGEST, nothing_is_cut, run
from tests.service.pages.test_dashboard import opened
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NEW = "deliveries_to_customers_in_the_north_with_their_items_2026"
PATIENCE = 120_000
#: Maximum milliseconds for which a loaded page may block the browser at a time. Twice the target
#: (50), as these tests share their processors with others.
BUSY = 100
#: An element of the list of queries, and its text when the list is loaded.
LISTED = "#queries", LONGEST
WATCH = """() => { window.busy = [];
  new PerformanceObserver((seen) => window.busy.push(...seen.getEntries().map((e) => e.duration)))
    .observe({ type: "longtask" }); }"""


def thousand(shop: Service, many: int) -> None:
    run(shop)
    for number in range(many):
        sql = PAIR.replace("SELECT ", f"SELECT {number} AS number, ")
        shop.post("/v1/queries", {"id": f"one_of_a_thousand_queries_{number:04d}", "sql": sql})
    shop.plan(0)


def register(page: Page) -> None:
    page.get_by_role("textbox", name="Statement").fill(CHAIN + " WHERE c.city = 'Kiruna'")
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("#answer")).to_be_visible(timeout=PATIENCE)
    page.get_by_role("textbox", name="Id", exact=True).fill(NEW)
    page.get_by_role("button", name="Register").click()
    link = page.locator("#registered").get_by_role("link", name=NEW)
    expect(link).to_be_visible(timeout=PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("many", [0, 1000])
def test_from_a_statement_to_the_difference_of_epochs(
    browser: Browser, shop: Service, many: int
) -> None:
    thousand(shop, many)
    with opened(browser, shop, "dashboard/what-if") as (page, complaints):
        page.set_default_timeout(PATIENCE)
        register(page)
        shop.plan(1)
        page.goto(page.url.replace("what-if", "queries"))
        expect(page.locator("#pulse")).to_have_text("live", timeout=PATIENCE)
        page.get_by_label("Name, title, statement").fill("north_with")
        expect(page.locator("#queries tbody tr")).to_have_count(1)
        page.locator("#queries").get_by_role("link", name=NEW).click()
        page.get_by_role("link", name="Replace").click()
        statement = page.get_by_role("textbox", name="Statement")
        expect(statement).to_have_value(CHAIN + " WHERE c.city = 'Kiruna'", timeout=PATIENCE)
        statement.fill(CHAIN + " WHERE c.city = 'Luleå'")
        page.get_by_role("button", name="Explain").click()
        expect(page.locator("#answer")).to_be_visible(timeout=PATIENCE)
        page.get_by_role("button", name="Replace").click()
        expect(page.locator("#registered")).to_contain_text(NEW, timeout=PATIENCE)
        shop.plan(2)
        numbers = [one["epoch"] for one in shop.get("/v1/epochs")["items"]]
        own = f"http://127.0.0.1:{shop.settings.port}"
        page.goto(f"{own}/dashboard/epochs?from={min(numbers)}&to={max(numbers)}")
        expect(page.locator("main")).to_contain_text(NEW, timeout=PATIENCE)
        nothing_is_cut(page)
    assert not complaints


@pytest.mark.slow
def test_overview_and_list_are_never_busy_for_long(browser: Browser, shop: Service) -> None:
    thousand(shop, 1000)
    found: dict[str, list[float]] = {}
    for path, part, text in (("", "#health", "need attention"), ("dashboard/queries", *LISTED)):
        with opened(browser, shop, path) as (page, complaints):
            page.set_default_timeout(PATIENCE)
            expect(page.locator("#pulse")).to_have_text("live", timeout=PATIENCE)
            expect(page.locator(part)).to_contain_text(text, timeout=PATIENCE)
            page.wait_for_timeout(2000)
            page.evaluate(WATCH)
            page.wait_for_timeout(15_000)
            found[path] = [time for time in page.evaluate("window.busy") if time > BUSY]
        assert not complaints
    assert not any(found.values()), found
