"""Tests of the page of the REST API in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.service.pages.test_dashboard import opened
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_operations_are_shown_and_tried_out_without_any_other_server(
    browser: Browser, shop: Service
) -> None:
    with opened(browser, shop, "docs") as (page, complaints):
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.reload()
        whoami = page.locator("[id*=whoami]").first
        expect(whoami).to_be_visible()
        whoami.get_by_role("button").first.click()
        page.get_by_role("button", name="Try it out").click()
        page.get_by_role("button", name="Execute").click()
        expect(
            page.locator(".live-responses-table .response .response-col_status").first
        ).to_contain_text("200")
        assert {url.split("/")[2] for url in asked if url.startswith("http")} == {
            page.url.split("/")[2]
        }
        assert not complaints
