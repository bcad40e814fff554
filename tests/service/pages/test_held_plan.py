"""Tests of a plan that waits for approval: every page says so, and the page of epochs shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.service.conftest import CHAIN
from tests.service.pages.long_names import LONGEST, nothing_is_cut, run
from tests.service.pages.test_accessibility import PAGES, broken
from tests.service.pages.test_dashboard import opened
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.browsers import LOOKS
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NEW = "parts-of-the-same-moment"
SAME_TIME = "SELECT o.order_id, i.part FROM orders o JOIN items i ON i.ts = o.ts"


def held(shop: Service) -> None:
    """A service with a waiting plan, which has one more query, without shared steps."""
    run(shop)
    shop.call("PATCH", "/v1/settings", 200, {"approval": "manual"})
    shop.post("/v1/queries", {"id": NEW, "sql": SAME_TIME})
    shop.plan(0)


@LOOKS
def test_a_plan_is_approved(browser: Browser, shop: Service, width: int, scheme: Any) -> None:
    held(shop)
    with opened(browser, shop, "dashboard/epochs#held") as (page, complaints):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator("#waiting")).to_have_text("A plan waits for approval")
        section = page.locator("#held")
        expect(section.get_by_role("heading")).to_have_text("A plan waits for approval")
        expect(page.locator("#held-figures")).to_contain_text(NEW)
        expect(section.locator("details").first).to_contain_text("New s")
        nothing_is_cut(page)
        assert broken(page) == []
        page.get_by_role("button", name="Approve").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#held-title")).to_have_text("A plan has been approved")
        expect(page.locator("#held-title")).to_be_focused()
        expect(page.locator("#held-said")).to_contain_text("next epoch boundary")
        expect(page.get_by_role("button", name="Approve")).to_be_hidden()
        assert broken(page) == []
        assert not complaints
    assert shop.get("/v1/plan/held")["state"] == "approved"


@pytest.mark.e2e
def test_what_was_seen_is_what_is_refused(browser: Browser, shop: Service) -> None:
    held(shop)
    with opened(browser, shop, "dashboard/epochs") as (page, _):
        expect(page.locator("#held-figures")).to_contain_text(NEW)
        shop.post("/v1/queries", {"id": "another", "sql": CHAIN + " WHERE i.part > 5"})
        shop.plan(1)
        page.get_by_role("button", name="Refuse").click()
        expect(page.locator("#held-refusal")).to_contain_text("no longer the version")
        expect(page.locator("#held-figures")).to_contain_text("another")
        page.get_by_role("button", name="Refuse").click()
        expect(page.locator("#held-title")).to_have_text("A plan was refused")
    shop.get("/v1/plan/held", 404)


@pytest.mark.e2e
@pytest.mark.parametrize("pages", mostly_slow([PAGES[::4], PAGES]), ids=len)
def test_every_page_says_that_a_plan_waits(
    browser: Browser, shop: Service, pages: Sequence[str]
) -> None:
    held(shop)
    for path in pages:
        with opened(browser, shop, path) as (page, complaints):
            page.set_viewport_size({"width": 390, "height": 900})
            link = page.get_by_role("link", name="A plan waits for approval")
            expect(link).to_be_visible()
            nothing_is_cut(page)
            assert not complaints, path
    with opened(browser, shop, f"dashboard/query/{LONGEST}") as (page, _):
        page.get_by_role("link", name="A plan waits for approval").click()
        expect(page.locator("#held")).to_be_visible()
