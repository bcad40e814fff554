"""Tests of every page by axe-core's rules: no serious or critical violations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.service.conftest import CHAIN, PAIR
from tests.service.pages.long_names import LONGEST, nothing_is_cut, run
from tests.service.pages.test_dashboard import opened
from tests.support.surroundings.browsers import LOOKS
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = (
    "",
    "dashboard/plan",
    "dashboard/queries",
    "dashboard/measured",
    "dashboard/epochs",
    f"dashboard/query/{LONGEST}",
    "dashboard/batches",
    "dashboard/state",
    "dashboard/streams",
    "dashboard/stream/orders",
    "dashboard/health",
    "dashboard/load",
    "dashboard/settings",
    "dashboard/what-if",
)


def broken(page: Page) -> list[str]:
    """Return the violated rules, with the first element of each."""
    violations: list[Any] = Axe().run(page).response["violations"]
    return [
        f"{v['id']} ({v['impact']}): {v['nodes'][0]['html'][:160]}"
        for v in violations
        if v["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize(
    "pages",
    [
        PAGES[::4],
        pytest.param(PAGES[2::4], marks=pytest.mark.e2e),
        pytest.param(PAGES[1::2], marks=pytest.mark.slow),
    ],
    ids=len,
)
def test_no_page_has_a_serious_finding_in_one_of_two_looks(
    browser: Browser, shop: Service, pages: Sequence[str]
) -> None:
    looks = {path: ((1440, "light"), (390, "dark"))[n % 2] for n, path in enumerate(pages)}
    assert findings(browser, shop, looks) == {path: [] for path in pages}


@pytest.mark.slow
@LOOKS
def test_no_page_has_a_serious_finding(
    browser: Browser, shop: Service, width: int, scheme: Any
) -> None:
    found = findings(browser, shop, dict.fromkeys(PAGES, (width, scheme)))
    assert found == {path: [] for path in PAGES}


def findings(browser: Browser, shop: Service, looks: dict[str, Any]) -> dict[str, list[str]]:
    """Return violated rules by path; ``looks``: window width and colour scheme of each."""
    run(shop)
    shop.plan(0)
    found = {}
    for path, (width, scheme) in looks.items():
        with opened(browser, shop, path) as (page, _):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 900})
            expect(page.locator("#pulse")).to_have_text("live")
            if path.endswith("what-if"):
                page.get_by_role("textbox", name="Statement").fill(CHAIN)
                page.get_by_role("button", name="Explain").click()
                expect(page.locator("#answer")).to_be_visible()
            found[path] = broken(page)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 390])
def test_every_page_bears_a_thousand_queries(browser: Browser, shop: Service, width: int) -> None:
    run(shop)
    for number in range(1000):
        sql = PAIR.replace("SELECT ", f"SELECT {number} AS number, ")
        shop.post("/v1/queries", {"id": f"one_of_a_thousand_queries_{number:04d}", "sql": sql})
    shop.plan(0)
    for path in PAGES:
        with opened(browser, shop, path) as (page, complaints):
            page.set_default_timeout(60_000)
            page.set_viewport_size({"width": width, "height": 900})
            expect(page.locator("#pulse")).to_have_text("live", timeout=60_000)
            if path.endswith("queries"):
                expect(page.locator("#queries tbody tr").first).to_be_visible()
            if path.endswith("what-if"):
                page.get_by_role("textbox", name="Statement").fill(CHAIN)
                page.get_by_role("button", name="Explain").click()
                expect(page.locator("#others tbody tr").first).to_be_visible(timeout=180_000)
            nothing_is_cut(page)
            assert not complaints, path
