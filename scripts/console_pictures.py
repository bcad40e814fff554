"""Take pictures of all pages of a running console: ``console_pictures.py URL FOLDER QUERY STREAM``.

Each page at 1440 and 390 pixels, light and dark, as ``PAGE-WIDTH-SCHEME.png``. Those in
``docs/images`` are of a replay of TPC-H with queries of names as long as people's
(``anabranch replay SCENARIO.yaml --dashboard`` prints the address).
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, urljoin

from playwright.sync_api import expect, sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

#: Width -> the greatest height of a picture.
SIZES = {1440: 1500, 390: 2000}
SCHEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
#: Milliseconds until everything is drawn that is asked for more than once.
SETTLED = 2500
STATEMENT = """SELECT s_name, o_orderkey, o_orderdate, l_extendedprice
FROM supplier
  JOIN lineitem ON l_suppkey = s_suppkey
  JOIN orders ON o_orderkey = l_orderkey
WHERE l_shipmode = 'TRUCK'"""


def main(url: str, folder: str, query: str, stream: str) -> None:
    """Open every page and write what it shows."""
    pages = {
        "plan": "/",
        "query": f"/dashboard/query/{quote(query)}",
        "stream": f"/dashboard/stream/{quote(stream)}",
        **{name: f"/dashboard/{name}" for name in ("epochs", "batches", "what-if", "streams")},
        **{name: f"/dashboard/{name}" for name in ("health", "settings")},
    }
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, path in pages.items():
            for width in SIZES:
                for scheme in SCHEMES:
                    target = Path(folder, f"{name}-{width}-{scheme}.png")
                    _take(browser, urljoin(url, path), width, scheme, target, stream)
        browser.close()


def _take(
    browser: Browser,
    url: str,
    width: int,
    scheme: Literal["light", "dark"],
    target: Path,
    stream: str,
) -> None:
    page = browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme=scheme, locale="en-US"
    )
    page.goto(url)
    expect(page.locator("#pulse")).to_have_text("live")
    if url.endswith("what-if"):
        _explain(page)
    if url.endswith("streams"):
        _test(page, urljoin(url, f"/v1/streams/{quote(stream)}"))
    page.wait_for_timeout(SETTLED)
    height = min(page.evaluate("document.documentElement.scrollHeight"), SIZES[width])
    page.screenshot(
        path=target, full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height}
    )
    page.close()


def _explain(page: Page) -> None:
    page.get_by_role("textbox", name="Statement").fill(STATEMENT)
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("#answer")).to_be_visible()
    page.evaluate("window.scrollTo(0, 0)")


def _test(page: Page, address: str) -> None:
    """Test the source of a stream that is there, under another name."""
    found = page.request.get(address).json()
    source = {name: value for name, value in found["source"].items() if value is not None}
    body = {"name": f"{found['name']}_of_2026", "columns": found["columns"], "source": source}
    page.get_by_text("Paste a registration").click()
    page.get_by_label("A registration as JSON").fill(json.dumps(body))
    page.get_by_role("button", name="Fill in").click()
    page.get_by_role("button", name="Test").click()
    expect(page.locator("#sampled-rows tbody tr").first).to_be_visible()
    page.evaluate("window.scrollTo(0, 0)")


if __name__ == "__main__":
    main(*sys.argv[1:5])
