"""Test that no page shows an internal id made by the planner."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from anabranch_contract import codec
from anabranch_contract.protocol.measurements import (
    EdgeStatistics,
    Snapshot,
    StoreStatistics,
    StreamStatistics,
)
from tests.service.pages.drawn import drawn
from tests.service.pages.long_names import LONGEST, QUERIES, run
from tests.service.pages.test_dashboard import opened
from tests.support.scenarios.seeds import mostly_e2e
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = (
    "",
    *(f"dashboard/{name}" for name in ("plan", "queries", "measured", "epochs", "state", "load")),
    f"dashboard/query/{LONGEST}",
)
#: Internal ids such as ``orders[a68a12a5]``, ``part*partsupp@51841d98``, ``orders/2~471411``,
#: ``unpaid+left``.
IDS = re.compile(r"\[[0-9a-f]{8}\]|@[0-9a-f]{6,}|/\d+~[0-9a-f]+|:\w+\]/\d|\w\*\w|\w>\w|\+left")
LEFT = (
    "SELECT o.order_id, r.reason FROM orders o LEFT JOIN refunds r ON r.order_id = o.order_id "
    "AND r.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR WHERE o.total > 5"
)


def shown(page: Page) -> list[str]:
    """Return texts and ARIA labels of the page, drawings included, that contain a planner's id."""
    texts: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("main *")]
          .filter((e) => e.childElementCount === 0 && !e.closest("pre, code, [hidden]"))
          .map((e) => e.textContent)"""
    )
    labels: list[str] = drawn(page.locator("main [aria-label]"), "e => e.ariaLabel")
    return [text for text in (*texts, *labels) if IDS.search(text)]


@pytest.mark.parametrize("pages", mostly_e2e([PAGES[1::2], PAGES[::2]]), ids=len)
def test_no_page_shows_an_id_of_the_planner(
    browser: Browser, shop: Service, pages: Sequence[str]
) -> None:
    refunds: dict[str, Any] = {"name": "refunds", "event_time": "ts"}
    columns = {"order_id": "bigint", "reason": "string", "ts": "timestamp"}
    shop.post("/v1/streams", {**refunds, "columns": columns})
    shop.post("/v1/queries", {"id": "unpaid", "sql": LEFT})
    run(shop)
    report = shop.get("/v1/state")
    stores = [one["store"] for one in report["stores"]]
    assert any("~" in name for name in stores)
    steps = {name: EdgeStatistics(5, 1, 1, 100) for name in stores[:3]}
    found = Snapshot(
        0,
        4,
        4,
        measured={"orders": StreamStatistics(5000, 3, 0, 10.0, 100.0, (4000, *[0] * 20, 1000))},
        stores={name: StoreStatistics(10, 1000, 2) for name in stores},
        edges=steps,
    )
    shop.redis.set(shop.keys.statistics(0), codec.dumps(found))
    shop.plan(0, snapshot=found)
    left = {}
    for path in pages:
        with opened(browser, shop, path) as (page, complaints):
            expect(page.locator("#pulse")).to_have_text("live")
            if path.endswith("measured"):
                expect(page.locator("#rates li").first).to_be_visible()
            if path.endswith("plan"):
                expect(page.locator("#trees svg").first).to_be_visible()
                expect(page.locator("#trees")).to_contain_text("unpaid, left rows")
                expect(page.locator("#trees")).to_contain_text("orders, filtered")
                expect(page.locator("#chips button")).to_have_count(len(QUERIES) + 1)
            left[path] = shown(page)
            assert not complaints
    assert left == {path: [] for path in pages}
