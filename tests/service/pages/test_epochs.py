"""Tests of the page of epochs in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from anabranch_contract.protocol.progress import Progress
from tests.service.conftest import CHAIN, PAIR
from tests.service.pages.long_names import LONGEST, nothing_is_cut, run
from tests.service.pages.test_dashboard import opened
from tests.support.surroundings.browsers import LOOKS
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

PAGE = "dashboard/epochs"


def history(shop: Service) -> None:
    """Publish epoch 0 with eight queries, 1 to 6 the same, 7 without one, 8 and 9 with another."""
    run(shop)
    for epoch in range(6):
        shop.plan(epoch)
    shop.call("DELETE", f"/v1/queries/{LONGEST}", 202)
    shop.plan(6)
    shop.post("/v1/queries", {"id": "paid-orders-by-city", "sql": PAIR + " WHERE o.total < 9"})
    shop.plan(7)
    shop.plan(8)
    starts = {str(epoch): 10 * epoch for epoch in range(10)}
    shop.progress(Progress("running", committed=95, epoch=9, ruleset_epoch=9, epoch_starts=starts))


@LOOKS
def test_epochs_with_the_same_plan_are_one_entry(
    browser: Browser, shop: Service, width: int, scheme: Any
) -> None:
    history(shop)
    with opened(browser, shop, PAGE) as (page, complaints):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        entries = page.locator("#timeline > li")
        expect(entries.last).to_contain_text("Epochs 0–6, one plan")
        expect(entries.last).to_contain_text("published 7 times")
        expect(entries).to_have_count(3)
        expect(entries.nth(1)).to_contain_text(f"gone: {LONGEST}")
        expect(entries.first).to_contain_text("Epochs 8–9, one plan")
        expect(entries.first).to_contain_text("new: paid-orders-by-city")
        expect(entries.first).to_contain_text("runs")
        expect(page.locator("#timeline-note")).to_have_text("3 plans in 10 epochs")
        # The newest change is shown at once.
        expect(page.locator("#figures")).to_contain_text("paid-orders-by-city")
        nothing_is_cut(page)
    assert not complaints


@pytest.mark.e2e
def test_any_two_epochs_are_compared_by_their_address(browser: Browser, shop: Service) -> None:
    history(shop)
    with opened(browser, shop, f"{PAGE}?from=3&to=9") as (page, complaints):
        figures = page.locator("#figures")
        expect(figures).to_contain_text(LONGEST)
        expect(figures).to_contain_text("paid-orders-by-city")
        found = shop.get("/v1/epochs/9/diff?from=3")
        removed = len(found["diff"]["steps"]["removed"])
        gone = page.locator("details", has_text="Removed steps")
        expect(gone.locator("li")).to_have_count(removed)
        lists = page.locator("#lists").text_content() or ""
        assert "[" not in lists
        assert "from orders: customers ⋈ orders probes items" in lists
        expect(page.locator("#why tbody")).to_contain_text("shared: paid once")
        page.get_by_label("from").fill("1")
        page.get_by_label("to", exact=True).fill("2")
        page.get_by_role("button", name="Compare").click()
        expect(page.locator("#diff-note")).to_have_text("The same steps and stores.")
        assert page.url.endswith("?from=1&to=2")
        page.go_back()
        expect(figures).to_contain_text("paid-orders-by-city")
        page.locator("#timeline a", has_text="Epoch 7").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_label("from")).to_have_value("6")
        expect(page.locator("#diff-title")).to_be_focused()
        assert not complaints
        page.get_by_label("to", exact=True).fill("4711")
        page.get_by_role("button", name="Compare").click()
        expect(page.locator("#refusal")).to_contain_text("epoch 4711 has not been published")
        # The page polls after a while, and keeps text that a user types meanwhile.
        with page.expect_response("**/v1/epochs/4711/diff*") as answer:
            page.get_by_label("to", exact=True).fill("5")
        answer.value.finished()
        expect(page.get_by_label("to", exact=True)).to_have_value("5")


@pytest.mark.e2e
def test_a_late_difference_does_not_replace_a_later_one(browser: Browser, shop: Service) -> None:
    history(shop)
    with opened(browser, shop, PAGE) as (page, complaints):
        late: list[Route] = []
        # The page fills in the newest epoch when it opens.
        expect(page.get_by_label("to", exact=True)).not_to_have_value("")
        page.route("**/v1/epochs/9/diff?from=2", lambda route: late.append(route))
        with page.expect_response("**/v1/epochs/2/diff?from=1"):
            for first, second in (("2", "9"), ("1", "2")):
                page.get_by_label("from").fill(first)
                page.get_by_label("to", exact=True).fill(second)
                page.get_by_role("button", name="Compare").click()
        expect(page.locator("#diff-note")).to_have_text("The same steps and stores.")
        with page.expect_response("**/v1/epochs/9/diff?from=2") as answer:
            late[0].continue_()
        answer.value.finished()
        page.evaluate("new Promise((done) => setTimeout(done))")
        expect(page.get_by_label("from")).to_have_value("1")
        expect(page.locator("#diff-note")).to_have_text("The same steps and stores.")
    assert not complaints


def test_before_the_first_epoch_the_page_says_so(browser: Browser, service: Service) -> None:
    with opened(browser, service, PAGE) as (page, complaints):
        expect(page.locator("#timeline")).to_contain_text("No epoch published yet")
    assert not complaints


@pytest.mark.e2e
def test_older_epochs_are_asked_for(browser: Browser, shop: Service) -> None:
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    for epoch in range(-1, 205):
        shop.boundary(epoch)
    shop.answered()
    with opened(browser, shop, PAGE) as (page, complaints):
        expect(page.locator("#timeline > li")).to_have_count(1)
        expect(page.locator("#timeline-note")).to_contain_text("older ones not shown")
        page.get_by_role("button", name="Older epochs").click()
        expect(page.locator("#timeline")).to_contain_text("Epochs 0–205, one plan")
    assert not complaints
