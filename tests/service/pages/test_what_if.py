"""Tests of the what-if page, from a statement to the registered query, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect

from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Progress
from tests.service.api.test_preview import publish
from tests.service.conftest import CHAIN, PAIR
from tests.service.pages.long_names import LONGEST, QUERIES, nothing_is_cut, run
from tests.service.pages.test_accessibility import broken
from tests.service.pages.test_dashboard import opened
from tests.support.surroundings.browsers import LOOKS
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGE = "dashboard/what-if"
CITIES = CHAIN + "\nWHERE c.city = 'Bordeaux'"


@LOOKS
def test_a_statement_is_priced_registered_and_opened(
    browser: Browser, shop: Service, width: int, scheme: Any
) -> None:
    run(shop)
    name = "items_of_customers_in_bordeaux_and_the_region_around_it_2026"
    with opened(browser, shop, PAGE) as (page, complaints):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        page.get_by_role("textbox", name="Statement").fill(CITIES)
        expect(page.locator("#gutter span")).to_have_count(2)
        page.get_by_role("textbox", name="Statement").press("Control+Enter")
        expect(page.locator("#runs-note")).to_have_text(
            "could run with the registered queries; costs in tuples per unit of time"
        )
        expect(page.locator("#cost")).to_contain_text("adds to the cost")
        others = page.locator("#others tbody tr")
        expect(others).to_have_count(len(QUERIES))
        expect(page.locator("#others")).to_contain_text(LONGEST)
        expect(page.locator("#others-note")).to_contain_text("without load shedding")
        nothing_is_cut(page)
        page.get_by_role("textbox", name="Id", exact=True).fill(name)
        page.locator("#ttl").fill("2 days")
        page.get_by_role("button", name="Register").click()
        link = page.locator("#registered").get_by_role("link", name=name)
        expect(link).to_be_focused()
        found = shop.get(f"/v1/queries/{name}")
        assert found["sql"] == CITIES
        assert found["expires_at"] is not None
        page.keyboard.press("Enter")
        expect(page.locator("#name")).to_have_text(name)
        expect(page.locator("#status")).to_have_text("pending")
    assert not complaints


@pytest.mark.e2e
def test_a_query_is_replaced_from_its_page(browser: Browser, shop: Service) -> None:
    run(shop)
    before = shop.get(f"/v1/queries/{LONGEST}")
    with opened(browser, shop, f"dashboard/query/{LONGEST}") as (page, complaints):
        page.get_by_role("link", name="Replace").click()
        statement = page.get_by_role("textbox", name="Statement")
        expect(statement).to_have_value(before["sql"])
        expect(page.locator("#replacing")).to_contain_text(LONGEST)
        statement.fill(CITIES)
        page.get_by_role("button", name="Explain").click()
        row = page.locator("#others tbody tr", has_text=LONGEST)
        expect(row).to_contain_text("left out")
        nothing_is_cut(page)
        page.get_by_role("button", name="Replace").click()
        expect(page.locator("#registered")).to_contain_text("Replaced")
        page.locator("#registered").get_by_role("link", name=LONGEST).click()
        expect(page.locator("#sql")).to_have_text(CITIES)
        expect(page.locator("#runs li")).to_have_count(2)
    found = shop.get(f"/v1/queries/{LONGEST}")
    assert (found["run"], found["priority"]) == (f"{LONGEST}~2", before["priority"])
    assert not complaints


@pytest.mark.e2e
def test_a_statement_is_read_once_over_present_rows(
    browser: Browser, shop: Service, tmp_path: Path
) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    (tmp_path / "pair").mkdir()
    rows = pa.table({"order_id": [1, 2, 3], "city": ["<b>Kiel</b>", None, "Rome"]})
    pq.write_table(rows, tmp_path / "pair" / f"{0:010d}-00000.parquet")
    shop.activate("pair", Activation(0, {}, results=3))
    home = str(tmp_path)
    shop.progress(Progress("running", committed=4, results={"pair": 3}, results_home=home))
    with opened(browser, shop, PAGE) as (page, complaints):
        page.set_viewport_size({"width": 390, "height": 900})
        page.emulate_media(color_scheme="dark")
        statement = page.get_by_role("textbox", name="Statement")
        statement.fill("SELECT city, [order_id] AS ids FROM pair WHERE order_id < 3 ORDER BY 1")
        page.get_by_role("button", name="Read now").click()
        expect(page.locator("#now-title")).to_be_focused()
        expect(page.locator("#now-note")).to_have_text("as of batch 3, by DuckDB")
        expect(page.locator("#now-rows tbody td")).to_have_text(
            ["<b>Kiel</b>", "[1]", "NULL", "[2]"]
        )
        nothing_is_cut(page)
        assert broken(page) == []
        assert not complaints
        statement.fill("SELECT * FROM orders")
        page.get_by_role("button", name="Read now").click()
        expect(page.locator("#refusal")).to_contain_text("orders")
        expect(page.locator("#now-card")).to_be_hidden()


@pytest.mark.e2e
def test_a_statement_is_previewed_over_latest_rows(browser: Browser, shop: Service) -> None:
    orders = {"order_id": list(range(300)), "customer_id": [7] * 300, "total": [1.5] * 300}
    rows = {
        "orders": pa.RecordBatch.from_pydict(orders),
        "customers": pa.RecordBatch.from_pydict({"customer_id": [7], "city": ["<b>Kiel</b>"]}),
    }
    with opened(browser, shop, PAGE) as (page, complaints):
        page.set_viewport_size({"width": 390, "height": 900})
        page.get_by_role("textbox", name="Statement").fill(f"{PAIR} WHERE o.order_id >= 298")
        page.get_by_role("button", name="Preview").click()
        none = "no rows of customers yet, no rows of orders yet, by DuckDB; none: partners may"
        expect(page.locator("#now-note")).to_contain_text(none)
        publish(shop, rows)
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("#now-note")).to_have_text(
            "all rows of customers: 1, 256 of the latest rows of orders (300 so far), by DuckDB"
        )
        cells = ["299", "<b>Kiel</b>", "298", "<b>Kiel</b>"]
        expect(page.locator("#now-rows tbody td")).to_have_text(cells)
        expect(page.locator("#now-rows th").first).to_have_class("number")
        nothing_is_cut(page)
        assert broken(page) == []
        assert not complaints


#: A statement with | for the caret -> the first completion.
WORDS = {
    "SELECT * FROM or|": "orders",
    "SELECT * FROM orders o JOIN cus|": "customers",
    "SELECT o.| FROM orders o": "order_id",
    "SELECT o.tot| FROM orders o": "total",
    "SELECT tot| FROM orders": "total",
    "SELECT date_tr| FROM orders": "date_trunc(",
    "SELECT row_n| FROM orders": "row_number(",
    "SELECT count| FROM orders": "count(",
    "SELECT * FROM orders o, items i WHERE i.par|": "part",
    "SELECT * FROM orders o WHERE o.total > 1 AN|": "AND",
    "SELECT par| FROM orders JOIN items ON true": "part",
    "SELECT x.| FROM orders o": "",
    "SELECT 'or|": "",
    "SELECT 1 -- or|": "",
    "SELECT 1 /* or|": "",
    "SELECT | FROM orders": "order_id",
}


@pytest.mark.e2e
def test_words_of_a_statement_are_completed(browser: Browser, shop: Service) -> None:
    with opened(browser, shop, PAGE) as (page, complaints):
        statement = page.get_by_role("textbox", name="Statement")
        listed, first = page.locator("#words"), page.locator("#words li").first
        expect(page.locator("#schema")).to_contain_text("customers")
        for text, expected in WORDS.items():
            statement.fill(text.replace("|", ""))
            statement.evaluate("(e, at) => e.setSelectionRange(at, at)", text.index("|"))
            statement.press("Control+ ")
            if expected:
                expect(first.locator("span").first, text).to_have_text(expected)
            else:
                expect(listed, text).to_be_hidden()
        statement.fill("")
        statement.press_sequentially("SELECT o.order_id FROM ord")
        expect(first).to_contain_text("orders")
        statement.press("Tab")
        statement.press_sequentially(" o WHERE o.t")
        statement.press("ArrowDown")
        expect(page.locator("#words [aria-selected=true]")).to_contain_text("total")
        statement.press("Enter")
        expect(statement).to_have_value("SELECT o.order_id FROM orders o WHERE o.total")
        # If nothing is selected, Enter starts a new line, and Escape only closes the list.
        statement.press_sequentially(" > 100 A")
        expect(first).to_be_visible()
        statement.press("Escape")
        expect(listed).to_be_hidden()
        statement.press_sequentially("N")
        statement.press("Enter")
        expect(statement).to_have_value("SELECT o.order_id FROM orders o WHERE o.total > 100 AN\n")
        statement.press("Control+ ")
        expect(page.locator("#words li")).not_to_have_count(0)
        first.click()
        expect(listed).to_be_hidden()
        expect(statement).to_be_focused()
        nothing_is_cut(page)
    assert not complaints


@pytest.mark.e2e
def test_errors_are_shown_where_they_are(browser: Browser, shop: Service) -> None:
    run(shop)
    with opened(browser, shop, PAGE) as (page, complaints):
        statement = page.get_by_role("textbox", name="Statement")
        statement.fill("SELECT o.order_id\nFROM orders o\nWHERE o.nope > 1")
        page.get_by_role("button", name="Explain").click()
        expect(page.locator("#refusal")).to_contain_text("there is no column")
        expect(page.locator("#gutter .bad")).to_have_text("3")
        expect(statement).to_be_focused()
        chosen = "e => e.value.slice(e.selectionStart, e.selectionEnd)"
        assert statement.evaluate(chosen) == "o.nope"
        expect(page.locator("#answer")).to_be_hidden()
        # A change removes the error mark.
        statement.press("End")
        statement.press("Space")
        expect(page.locator("#gutter .bad")).to_have_count(0)
        statement.fill("SELCT 1")
        page.get_by_role("button", name="Explain").click()
        expect(page.locator("#refusal")).to_contain_text("SELECT")
        statement.fill(PAIR)
        page.get_by_role("textbox", name="Window").fill("soon")
        page.get_by_role("button", name="Explain").click()
        expect(page.locator("#refusal")).to_contain_text("'soon'")
        expect(page.get_by_role("textbox", name="Window")).to_have_attribute("aria-invalid", "true")
        page.get_by_role("textbox", name="Window").fill("")
        page.get_by_role("button", name="Explain").click()
        expect(page.locator("#runs-note")).to_contain_text("could run")
        page.get_by_role("textbox", name="Id", exact=True).fill(LONGEST)
        page.get_by_role("button", name="Register").click()
        expect(page.locator("#register-refusal")).to_contain_text("is registered already")
        expect(page.get_by_role("textbox", name="Id", exact=True)).to_be_focused()
    assert all("422" in text or "409" in text for text in complaints)


@pytest.mark.e2e
def test_names_of_streams_are_put_at_the_caret(browser: Browser, shop: Service) -> None:
    with opened(browser, shop, PAGE) as (page, complaints):
        page.get_by_role("textbox", name="Statement").fill("SELECT * FROM ")
        page.locator("#schema").get_by_role("button", name="orders", exact=True).click()
        expect(page.get_by_role("textbox", name="Statement")).to_have_value("SELECT * FROM orders")
        expect(page.get_by_role("textbox", name="Statement")).to_be_focused()
        expect(page.locator("#schema")).to_contain_text("timestamp, event time")
    assert not complaints


@pytest.mark.e2e
def test_without_some_queries_and_with_other_rates(browser: Browser, shop: Service) -> None:
    run(shop)
    with opened(browser, shop, PAGE) as (page, complaints):
        page.get_by_role("textbox", name="Statement").fill(PAIR)
        page.get_by_text("Assume other queries or rates").click()
        page.get_by_label(LONGEST).check()
        page.locator("#rates").get_by_label("orders").fill("5000")
        page.get_by_role("button", name="Explain").click()
        row = page.locator("#others tbody tr", has_text=LONGEST)
        expect(row).to_contain_text("left out")
    assert not complaints


#: Two plans with the shares of some queries each, as summaries have them.
COMPARED = """async () => {
  const { effects } = await import("/dashboard/what_if/view.js");
  const of = ([query, shapley]) => ({ query, shapley });
  const plan = (omitted, shares) => ({
    shares: { omitted, queries: Object.entries(shares).map(of) },
  });
  const many = Object.fromEntries(Array.from({ length: 50 }, (_, n) => [`q${n}`, 1]));
  const [base, planned] = [
    plan(7, { ...many, a: 4, dropped: 3, last: 0.5 }),
    plan(8, { ...many, a: 5, q1: 1.0000001, draft: 2 }),
  ];
  const all = effects(plan(0, { a: 4, gone: 1 }), plan(0, { a: 4 }), "draft", []);
  return [effects(base, planned, "draft", ["dropped"]), all];
}"""


def test_only_shares_that_both_plans_have_are_compared(browser: Browser, service: Service) -> None:
    with opened(browser, service, PAGE) as (page, complaints):
        some, all_of_them = page.evaluate(COMPARED)
        # ``last`` may be among the costliest queries of the first plan only.
        assert [one["query"] for one in some["rows"]] == ["dropped", "a"]
        assert (some["known"], some["changed"], some["all"]) == (52, 2, False)
        assert [one["query"] for one in all_of_them["rows"]] == ["gone", "a"]
        assert (all_of_them["changed"], all_of_them["all"]) == (1, True)
    assert not complaints


@pytest.mark.e2e
def test_a_query_of_many_is_found_to_be_left_out(browser: Browser, shop: Service) -> None:
    bodies = [{"id": f"query_{n:03}", "sql": PAIR} for n in range(64)]
    shop.post("/v1/queries:batch", {"queries": bodies}, 200)
    with opened(browser, shop, PAGE) as (page, complaints):
        boxes = page.locator("#drop input")
        expect(boxes).to_have_count(0)
        page.get_by_text("Assume other queries or rates").click()
        expect(boxes).to_have_count(30)
        expect(page.locator("#drop")).to_contain_text("and 34 more")
        page.get_by_label("Find a query to leave out").fill("_063")
        expect(boxes).to_have_count(1)
        page.get_by_label("query_063").check()
        page.get_by_label("Find a query to leave out").fill("_00")
        expect(boxes).to_have_count(11)
        expect(page.get_by_label("query_063")).to_be_checked()
        nothing_is_cut(page)
        page.get_by_role("textbox", name="Statement").fill(CITIES)
        with page.expect_request(
            lambda request: request.url.endswith("dry-run") and "add" in (request.post_data or "")
        ) as asked:
            page.get_by_role("button", name="Explain").click()
        assert json.loads(asked.value.post_data or "")["drop"] == ["query_063"]
        page.get_by_label("query_063").uncheck()
        expect(page.locator("#answer")).to_be_visible()
    assert not complaints
