"""Take a picture of a running dashboard: ``python scripts/screenshot.py URL FILE.png``.

The picture in ``docs/images`` is taken while ``anabranch demo --scale 0.01 --batches 16 --keep``
holds everything running; the command prints the dashboard's address.
"""

from __future__ import annotations

import shutil
import sys

from playwright.sync_api import expect, sync_playwright

WIDTH, HEIGHT = 1360, 1500


def main(url: str, target: str) -> None:
    """Open the dashboard at ``url``, wait until it is live, and write what it shows."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, locale="en-US")
        page.goto(url)
        expect(page.get_by_role("status")).to_have_text("live")
        expect(page.locator("#trees svg").first).to_be_visible()
        page.screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:3])
