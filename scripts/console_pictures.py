"""Take the pictures of the console in docs/: ``console_pictures.py URL FOLDER [QUERY STREAM]``.

A picture is ``PAGE-WIDTH-SCHEME.png``, in the width and colour scheme that pages of the docs show.
Pictures in ``docs/images`` come from a replay of TPC-H whose queries have names of realistic length
(``anabranch replay SCENARIO.yaml --dashboard`` prints the URL). Without QUERY and STREAM nothing
may be registered (``anabranch up``): then the pictures show the first page, the sample of a source
that it offers, and a plan that waits for approval.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote, urljoin

from playwright.sync_api import expect, sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

#: Width and greatest height of a picture, in pixels.
WIDTH, HEIGHT = 1440, 1500
SCHEME: Final[Literal["light"]] = "light"
#: Milliseconds to wait for page contents that take several requests.
SETTLED = 5000
#: Milliseconds to wait for the publication of a plan, and for some measurements of the running
#: plan.
PLANNED, MEASURED = 180_000, 60_000
WAITING = {
    "id": "large_payments_and_their_shipments_of_2026",
    "sql": "SELECT p.order_id, p.amount, s.carrier FROM payments p"
    " JOIN shipments s ON s.order_id = p.order_id WHERE p.amount > 400",
    "window": "1 hour",
}
STATEMENT = """SELECT s_name, o_orderkey, o_orderdate, l_extendedprice
FROM supplier
  JOIN lineitem ON l_suppkey = s_suppkey
  JOIN orders ON o_orderkey = l_orderkey
WHERE l_shipmode = 'TRUCK'"""


def main(url: str, folder: str, query: str = "", stream: str = "") -> None:
    """Open every page of the console and save its picture."""
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        if query:
            _all_pages(browser, url, folder, query, stream)
        else:
            _beginning(browser, url, folder)
        browser.close()


def _all_pages(browser: Browser, url: str, folder: str, query: str, stream: str) -> None:
    pages = {
        "overview": "/",
        "query": f"/dashboard/query/{quote(query)}",
        "stream": f"/dashboard/stream/{quote(stream)}",
        **{name: f"/dashboard/{name}" for name in ("plan", "queries", "measured")},
        **{name: f"/dashboard/{name}" for name in ("epochs", "batches", "what-if", "streams")},
        **{name: f"/dashboard/{name}" for name in ("state", "health", "settings")},
    }
    for name, path in pages.items():
        _take(browser, urljoin(url, path), folder, name, stream)


def _beginning(browser: Browser, url: str, folder: str) -> None:
    """Take the pictures of a new user's pages, and of the first plan that waits for approval."""
    _take(browser, url, folder, "first")
    page = browser.new_page(locale="en-US")
    page.goto(url)
    page.get_by_role("button", name="Try it with a sample").click()
    expect(page.locator("#begin")).to_be_hidden(timeout=PLANNED)
    page.goto(urljoin(url, "/dashboard/queries"))
    expect(page.locator("#queries .badge.active")).to_have_count(3, timeout=PLANNED)
    page.wait_for_timeout(MEASURED)
    _take(browser, url, folder, "sample")
    page.request.patch(urljoin(url, "/v1/settings"), data={"approval": "manual"})
    created = page.request.post(urljoin(url, "/v1/queries"), data=WAITING)
    assert created.ok, created.text()
    expect(page.get_by_role("link", name="A plan waits")).to_be_visible(timeout=PLANNED)
    _take(browser, urljoin(url, "/dashboard/epochs#held"), folder, "held")
    page.close()


def _take(browser: Browser, url: str, folder: str, name: str, stream: str = "") -> None:
    page = browser.new_page(
        viewport={"width": WIDTH, "height": 900}, color_scheme=SCHEME, locale="en-US"
    )
    page.goto(url)
    expect(page.locator("#pulse")).to_have_text("live")
    if url.endswith("what-if"):
        _explain(page)
    if url.endswith("streams"):
        _sample(page, urljoin(url, f"/v1/streams/{quote(stream)}"))
    if url.endswith("state"):
        _pick(page, stream)
    page.wait_for_timeout(SETTLED)
    height = min(page.evaluate("document.documentElement.scrollHeight"), HEIGHT)
    page.screenshot(
        path=Path(folder, f"{name}-{WIDTH}-{SCHEME}.png"),
        full_page=True,
        clip={"x": 0, "y": 0, "width": WIDTH, "height": height},
    )
    page.close()


def _explain(page: Page) -> None:
    page.get_by_role("textbox", name="Statement").fill(STATEMENT)
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("#answer")).to_be_visible()
    page.evaluate("window.scrollTo(0, 0)")


def _sample(page: Page, address: str) -> None:
    """Read a sample from the source of a registered stream, under another name."""
    found = page.request.get(address).json()
    source = {name: value for name, value in found["source"].items() if value is not None}
    body = {"name": f"{found['name']}_of_2026", "columns": found["columns"], "source": source}
    page.get_by_text("Paste a registration").click()
    page.get_by_label("A registration as JSON").fill(json.dumps(body))
    page.get_by_role("button", name="Fill in").click()
    page.get_by_role("button", name="Read a sample").click()
    expect(page.locator("#sampled-rows tbody tr").first).to_be_visible()
    page.evaluate("window.scrollTo(0, 0)")


def _pick(page: Page, stream: str) -> None:
    """Open a store of the stream on the page."""
    page.get_by_label("Show").fill(stream)
    page.locator("#list tbody a").first.click()
    page.get_by_label("Show").fill("")
    page.get_by_label("Show").blur()
    expect(page.locator("#detail")).to_be_visible()
    page.evaluate("window.scrollTo(0, 0)")


if __name__ == "__main__":
    main(*sys.argv[1:5])
