"""Every page by the rules of axe-core: none is broken that it calls serious or critical."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.service.conftest import CHAIN
from tests.service.pages.long_names import LONGEST, run
from tests.service.pages.test_dashboard import browser, opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.support.worlds.service import Service

__all__ = ["browser"]

PAGES = (
    "",
    "dashboard/epochs",
    f"dashboard/query/{LONGEST}",
    "dashboard/batches",
    "dashboard/state",
    "dashboard/stream/orders",
    "dashboard/health",
    "dashboard/load",
    "dashboard/settings",
    "dashboard/what-if",
)


def broken(page: Page) -> list[str]:
    """The rules that are broken, with the first element of each."""
    violations: list[Any] = Axe().run(page).response["violations"]
    return [
        f"{v['id']} ({v['impact']}): {v['nodes'][0]['html'][:160]}"
        for v in violations
        if v["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_no_page_has_a_serious_finding(
    browser: Browser, shop: Service, width: int, scheme: Any
) -> None:
    run(shop)
    shop.plan(0)
    found = {}
    for path in PAGES:
        with opened(browser, shop, path) as (page, _):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 900})
            expect(page.locator("#pulse")).to_have_text("live")
            if path.endswith("what-if"):
                page.get_by_role("textbox", name="Statement").fill(CHAIN)
                page.get_by_role("button", name="Explain").click()
                expect(page.locator("#answer")).to_be_visible()
            found[path] = broken(page)
    assert found == {path: [] for path in PAGES}
