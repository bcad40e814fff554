"""Take pictures of a running dashboard: ``python scripts/screenshot.py URL FOLDER``.

Those in ``docs/images`` are taken while ``anabranch demo --scale 0.01 --batches 16 --keep`` holds
everything running; the command prints the dashboard's address. ``dashboard.png`` is the first page
down to the first probe trees, ``state.png`` the page of stored state with a store of orders picked.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from playwright.sync_api import expect, sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDTH, HEIGHT = 1360, 1500
#: How far into the probe trees the first picture goes.
TREES = 560


def main(url: str, folder: str) -> None:
    """Open the dashboard's pages at ``url``, wait until they are live, and write what they show."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, locale="en-US")
        page.goto(url)
        expect(page.get_by_role("status")).to_have_text("live")
        expect(page.locator("#trees svg").first).to_be_visible()
        _take(page, "#plan", TREES, Path(folder, "dashboard.png"))
        page.goto(urljoin(url, "/dashboard/state"))
        page.get_by_label("Show").fill("orders")
        page.locator("#list tbody a").first.click()
        page.get_by_label("Show").fill("")
        page.get_by_label("Show").blur()
        expect(page.locator("#charts circle").first).to_be_visible()
        page.evaluate("window.scrollTo(0, 0)")
        _take(page, "#detail", None, Path(folder, "state.png"))
        browser.close()


def _take(page: Page, last: str, height: int | None, target: Path) -> None:
    """Write the page from its top to so far into the element ``last``, or to its end."""
    box = page.locator(last).bounding_box()
    assert box is not None
    bottom = box["y"] + (box["height"] + 20 if height is None else height)
    page.screenshot(
        path=target, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": bottom}
    )


if __name__ == "__main__":
    main(*sys.argv[1:3])
