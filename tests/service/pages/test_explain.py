"""Tests of the page that explains a statement, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.service.conftest import CHAIN, PAIR
from tests.service.pages.test_dashboard import opened
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_a_statement_is_explained_in_pictures(browser: Browser, shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    with opened(browser, shop, "dashboard/explain") as (page, complaints):
        statement = page.get_by_role("textbox", name="Statement")
        statement.fill(CHAIN)
        page.get_by_role("button", name="Explain").click()
        note = "could run with the registered queries; costs in tuples per unit of time"
        expect(page.locator("#runs-note")).to_have_text(note)
        expect(page.locator("#cost")).to_contain_text("pair")
        expect(page.locator("#orders figure")).to_have_count(3)
        expect(page.locator("#after-note")).to_have_text("1 multi-way join, of 3 inputs")
        expect(page.locator("#after .mir")).to_have_count(1)
        expect(page.locator("#replaced li")).to_have_count(3)
        expect(page.locator("#after .start")).to_have_count(3)
        expect(page.locator("#before .start")).to_have_count(3)
        expect(page.locator("#before")).to_contain_text("inner")
        statement.fill(f"SELECT c.part, count(*) AS n FROM ({CHAIN}) AS c GROUP BY c.part")
        page.get_by_role("button", name="Explain").click()
        expect(page.locator("#cost")).to_contain_text("count(*)")
        expect(page.locator("#cost")).to_contain_text("i.part")
        expect(page.locator("#cost")).to_contain_text("GROUP BY items.part; count(*)")
        expect(page.locator("#cost")).to_contain_text("this query")
        expect(page.locator("#orders figure")).to_have_count(3)
        statement.fill(f"SELECT try_avg(c.part) AS n FROM ({CHAIN}) AS c")
        page.get_by_role("button", name="Explain").click()
        expect(page.locator("#runs-note")).to_have_text("does not run continuously")
        expect(page.locator("#why-not")).to_contain_text("try_avg()")
        expect(page.locator("#after .mir")).to_have_count(1)
        expect(page.locator("#orders figure")).to_have_count(0)
        assert complaints == []
        statement.fill("SELECT o.order_id\nFROM orders o WHERE o.nope > 1")
        page.get_by_role("button", name="Explain").click()
        expect(page.locator("#refusal")).to_contain_text("line 2, column 21: there is no column")
        expect(page.locator("#answer")).to_be_hidden()
        chosen = "e => e.value.slice(e.selectionStart, e.selectionEnd)"
        assert statement.evaluate(chosen) == "o.nope"
        # The browser itself logs error responses; nothing else is logged.
        assert all("422" in text for text in complaints)
