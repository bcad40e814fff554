"""Tests of the console with a live pipeline: a sample in one click, and from a statement to its
results.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.support.worlds.processes import live_pipeline

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SAMPLE = ("large-orders-paid", "paid-and-sent", "sales-by-carrier")
NEW = "orders_of_more_than_300_that_were_sent_by_bike_2026"
STATEMENT = (
    "SELECT o.order_id, o.customer FROM orders o JOIN shipments s ON o.order_id = s.order_id "
    "WHERE o.total > 300 AND s.carrier = 'bike'"
)
PATIENCE = 120_000


@pytest.mark.spark
@pytest.mark.slow
def test_a_sample_in_one_click_and_a_statement_to_its_results(
    browser: Browser, tmp_path: Path
) -> None:
    with live_pipeline(tmp_path / "home", epoch_batches=1000, epoch_seconds=2.0) as live:
        page = browser.new_page(viewport={"width": 1440, "height": 1000}, locale="en-US")
        page.set_default_timeout(PATIENCE)
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(live.pipeline.url)
        page.get_by_role("button", name="Try it with a sample").click()
        expect(page.locator("#begin")).to_be_hidden(timeout=PATIENCE)
        page.goto(f"{live.pipeline.url}/dashboard/queries")
        for name in SAMPLE:
            expect(page.locator("#queries")).to_contain_text(name, timeout=PATIENCE)
            live.wait(f"results of {name}", lambda n=name: live.client.query(n).results > 0)  # type: ignore[misc]
        view = live.client.query(SAMPLE[2])
        assert (view.results, view.owner, view.tags) == (2, "sample", ["sample"])

        page.goto(f"{live.pipeline.url}/dashboard/what-if")
        page.get_by_role("textbox", name="Statement").fill(STATEMENT)
        page.get_by_role("textbox", name="Window").fill("5 minutes")
        page.get_by_role("button", name="Explain").click()
        expect(page.locator("#answer")).to_be_visible(timeout=PATIENCE)
        page.get_by_role("textbox", name="Id", exact=True).fill(NEW)
        page.get_by_role("button", name="Register").click()
        page.locator("#registered").get_by_role("link", name=NEW).click()
        expect(page.locator("#figures")).to_contain_text("active since", timeout=PATIENCE)
        expect(page.locator("#tail")).to_contain_text("order_id", timeout=PATIENCE)
        live.wait("its results", lambda: live.client.query(NEW).results > 0)
        page.close()
        assert complaints == []
