"""Tests of the page of health in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from anabranch_contract.protocol.intake import SourceState
from tests.service.pages.long_names import nothing_is_cut, run
from tests.service.pages.test_dashboard import opened
from tests.support.surroundings.browsers import LOOKS
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@LOOKS
def test_components_with_what_to_do(
    browser: Browser, shop: Service, width: int, scheme: Any
) -> None:
    run(shop)
    for stream in ("orders", "items", "customers"):
        shop.source(stream, SourceState.READING)
    shop.call("PATCH", "/v1/streams/orders", 200, {"accepted_rejects": 2})
    with opened(browser, shop, "dashboard/health") as (page, complaints):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator("#note")).to_have_text("all 8 are well")
        shop.source("orders", SourceState.FAILED, "no broker answers at kafka:9092")
        first = page.locator("#components tbody tr").first
        expect(first).to_contain_text("no broker answers at kafka:9092")
        expect(first.locator(".badge")).to_have_text("failed")
        expect(page.locator("#note")).to_have_text("1 of 8 need attention")
        nothing_is_cut(page)
        first.get_by_role("link", name="orders").click()
        expect(page.locator("#problems")).to_contain_text("no broker answers")
    assert not complaints
