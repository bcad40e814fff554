"""Tests of the page of one query in a real browser."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pytest
from playwright.sync_api import expect

from anabranch_contract.protocol.activations import (
    Activation,
    PastResults,
    PastStatus,
    Visibility,
)
from anabranch_contract.protocol.ages import bin_of
from anabranch_contract.protocol.intake import SourceState
from anabranch_contract.protocol.progress import Progress
from anabranch_service.registry.publishing.history import HistoryPoint
from tests.service.conftest import PAIR
from tests.service.pages.long_names import LONGEST, QUERIES, VIEW, nothing_is_cut, run
from tests.service.pages.test_accessibility import broken
from tests.service.pages.test_dashboard import opened
from tests.support.surroundings.browsers import LOOKS
from tests.support.worlds.service import Service, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGE = "dashboard/query/"


@LOOKS
def test_what_a_query_does_and_takes(
    browser: Browser, shop: Service, width: int, scheme: Any
) -> None:
    run(shop)
    plan = shop.get(f"/v1/queries/{LONGEST}/plan")
    with opened(browser, shop, PAGE + LONGEST) as (page, complaints):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator("#name")).to_have_text(LONGEST)
        expect(page.locator("#status")).to_have_text("active")
        figures = page.locator("#figures")
        for text in ("active since", "1,234", "from the first result", "about 1.9 s", "never"):
            expect(figures).to_contain_text(text)
        expect(page.locator("#sql")).to_have_text(QUERIES[LONGEST])
        expect(page.locator("#paths > li")).to_have_count(len(plan["paths"]))
        shown = page.locator("#paths").text_content() or ""
        assert "@" not in shown
        assert "[" not in shown
        expect(page.locator("#paths li.shared").first).to_contain_text("shared with")
        expect(page.locator("#stores tbody tr")).to_have_count(len(plan["stores"]))
        expect(page.locator("#sink")).to_contain_text("none wait for it")
        expect(page.locator("#activations tbody tr")).to_have_count(1)
        nothing_is_cut(page)
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the query")).to_be_focused()
    assert not complaints


@LOOKS
def test_reasons_why_there_are_no_results(
    browser: Browser, shop: Service, width: int, scheme: Any
) -> None:
    run(shop)
    nothing = Progress("running", committed=40, epoch=0, ruleset_epoch=0, results={LONGEST: 0})
    read = {"orders": {"input": 9000}, "customers": {"input": 7, "late": 7}}
    shop.progress(replace(nothing, epoch_starts={"0": 0}, streams=read))
    seen = {alias: Visibility(0, None) for alias in ("o", "c", "i")}
    with opened(browser, shop, PAGE + LONGEST) as (page, complaints):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        reasons = page.locator("#no-results > li")
        expect(reasons).to_contain_text(
            [
                "No results at present: all 7 rows of customers were rejected, as late, invalid or"
                " ahead.",
                "No results at present: no row of items has been read.",
            ]
        )
        shop.activate(LONGEST, Activation(0, seen, results=0))
        expect(reasons.last).to_have_text("No results: no row of items has been read.")
        nothing_is_cut(page)
        assert not broken(page)
        run_again = replace(nothing, epoch_starts={"0": 0}, results={LONGEST: 5}, streams=read)
        shop.progress(run_again)
        expect(page.locator("#no-results")).to_be_hidden()
    assert not complaints


def aligned(page: Page) -> list[list[str]]:
    """Find alignment classes of cells by column: integers, texts, decimals, and texts like
    decimals.
    """
    found = page.evaluate(
        """async () => {
          const { showRows } = await import("/dashboard/dom.js");
          const table = document.createElement("table");
          table.append(document.createElement("thead"), document.createElement("tbody"));
          showRows(table, ["n", "name", "paid", "code"],
            [[12, "w3", "12.50", "1.5"], [3, "w4", null, "none"]]);
          return [0, 1, 2, 3].map((i) => [...table.rows].slice(1).map((r) => r.cells[i].className));
        }"""
    )
    return cast("list[list[str]]", found)


@pytest.mark.e2e
def test_the_table_of_a_view_is_shown_with_its_cost(browser: Browser, shop: Service) -> None:
    run(shop)
    with opened(browser, shop, PAGE + VIEW) as (page, complaints):
        figures = page.locator("#figures")
        for text in (
            "1,042 rows, 3.0 MiB",
            "100.0 %",
            "no other query",
            "GROUP BY customers.city",
            "alone",
        ):
            expect(figures).to_contain_text(text)
        nothing_is_cut(page)
        # Texts of several words have separate lines.
        for text in ("GROUP BY customers.city", "alone"):
            line = figures.locator("div", has_text=text)
            widths = line.evaluate("e => [e.clientWidth, e.parentElement.clientWidth]")
            assert widths[0] == widths[1]
        assert aligned(page) == [
            ["number", "number"],
            ["", ""],
            ["number", "number"],
            ["", ""],
        ]
    with opened(browser, shop, f"{PAGE}p99-audit") as (page, complaints):
        expect(page.locator("#name")).to_have_text("p99-audit")
        expect(page.locator("#figures")).not_to_contain_text("its table")
    assert not complaints


@pytest.mark.e2e
def test_a_query_is_reached_from_the_list_and_from_the_map(browser: Browser, shop: Service) -> None:
    run(shop)
    with opened(browser, shop, "dashboard/queries") as (page, complaints):
        page.locator("#queries").get_by_role("link", name="p99-audit").click()
        expect(page.locator("#name")).to_have_text("p99-audit")
        page.get_by_role("link", name="In the joint plan").click()
        expect(page.locator('#map [data-id="query:p99-audit"]')).to_be_visible()
        page.get_by_role("link", name="Open this query").click()
        expect(page.locator("#name")).to_have_text("p99-audit")
        expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    assert not complaints


def test_what_stands_in_the_way_of_results_is_said_first(browser: Browser, shop: Service) -> None:
    run(shop)
    name = "late-shipments-by-customer"
    shop.source("orders", SourceState.FAILED, "no broker answers at kafka:9092")
    progress = Progress.loads(str(shop.redis.get(shop.keys.runtime)))
    shop.progress(replace(progress, sinks={name: "the bucket is gone"}))
    seen = {"o": Visibility(20, None), "c": Visibility(3, None)}
    ended = Activation(3, seen, expired_batch=20, results=7)
    shop.activate(name, Activation(20, seen, results=9, earlier=(ended,)))
    with opened(browser, shop, PAGE + name) as (page, complaints):
        problems = page.locator("#problems li")
        expect(problems).to_have_count(2)
        expect(problems.first).to_contain_text("orders is not read: no broker answers")
        expect(problems.last).to_contain_text("the bucket is gone")
        expect(page.locator("#sink .bad")).to_contain_text("the bucket is gone")
        expect(page.locator("#activations tbody tr")).to_have_count(2)
        expect(page.locator("#activations")).to_contain_text("3 to 19")
    assert not complaints


@pytest.mark.e2e
def test_rows_that_a_query_came_too_late_for_are_said(browser: Browser, shop: Service) -> None:
    run(shop)
    name = "late-shipments-by-customer"
    seen = {"o": Visibility(20, None), "c": Visibility(0, None)}
    late = Activation(20, seen, complete="never", missed={"o": 1234, "c": 0})
    shop.activate(name, late)
    with opened(browser, shop, PAGE + name) as (page, complaints):
        problems = page.locator("#problems li")
        expect(problems).to_have_count(1)
        expect(problems).to_contain_text("1,234 rows of orders were read before the query began")
        expect(problems).to_contain_text("--retain all")
    with opened(browser, shop, "dashboard/queries") as (page, complaints):
        row = page.locator("#queries tr").filter(has_text=name)
        expect(row).to_contain_text("rows missing")
    assert not complaints


@pytest.mark.e2e
def test_expiry_priority_and_needs_are_changed(browser: Browser, shop: Service) -> None:
    run(shop)
    with opened(browser, shop, f"{PAGE}p99-audit") as (page, complaints):
        page.get_by_label("Expires in").fill("2 days")
        page.get_by_label("Never expires").uncheck()
        page.get_by_label("Priority").fill("7")
        page.get_by_label("Latency goal").fill("2 seconds")
        page.get_by_label("Minimum completeness").fill("0.9")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#saved")).to_have_text("Saved.")
        found = shop.get("/v1/queries/p99-audit")
        assert found["expires_at"] is not None
        assert found["priority"] == 7
        assert (found["slo"]["latency"], found["slo"]["completeness"]) == ("2 seconds", 0.9)
        assert not complaints
        page.get_by_label("Latency goal").fill("soon")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#change-refusal")).to_contain_text("'soon' is not a duration")
        expect(page.get_by_label("Latency goal")).to_be_focused()
        expect(page.get_by_label("Latency goal")).to_have_attribute("aria-invalid", "true")
        assert shop.get("/v1/queries/p99-audit")["slo"]["latency"] == "2 seconds"
        page.get_by_label("Latency goal").fill("")
        page.get_by_label("Never expires").check()
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#saved")).to_have_text("Saved.")
        found = shop.get("/v1/queries/p99-audit")
        assert found["expires_at"] is None
        assert found["slo"]["latency"] is None


#: Placeholders that are wider than their inputs.
CUT = """() => [...document.querySelectorAll("#change input[placeholder]")].filter((input) => {
  const [style, pen] = [getComputedStyle(input), document.createElement("canvas").getContext("2d")];
  pen.font = style.font;
  const room = input.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return pen.measureText(input.placeholder).width > room + 1;
}).map((input) => input.placeholder)"""


@pytest.mark.e2e
def test_placeholders_of_the_form_are_whole(browser: Browser, shop: Service) -> None:
    run(shop)
    with opened(browser, shop, PAGE + LONGEST) as (page, _):
        expect(page.locator("#change")).to_be_visible()
        for width in (1440, 1280, 1000, 390):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate(CUT) == [], width


@pytest.mark.e2e
def test_a_form_is_filled_when_it_is_shown(browser: Browser, shop: Service) -> None:
    """A user may be faster than the page's other requests: nothing may be saved as empty."""
    run(shop)
    shop.call("PATCH", "/v1/queries/p99-audit", 200, {"slo": {"latency": "2 seconds"}})
    with opened(browser, shop, "dashboard/queries") as (page, complaints):
        page.route("**/plan", lambda route: None)
        page.goto(page.url.replace("dashboard/queries", f"{PAGE}p99-audit"))
        page.get_by_label("Priority").fill("7")
        page.get_by_role("button", name="Save").click()
        eventually(lambda: shop.get("/v1/queries/p99-audit")["priority"] == 7, "it is saved")
    assert shop.get("/v1/queries/p99-audit")["slo"]["latency"] == "2 seconds"
    assert not complaints


@pytest.mark.e2e
def test_what_somebody_else_has_changed_stays(browser: Browser, shop: Service) -> None:
    run(shop)
    with opened(browser, shop, f"{PAGE}p99-audit") as (page, _):
        page.get_by_label("Priority").fill("7")
        shop.call("PATCH", "/v1/queries/p99-audit", 200, {"owner": "audit"})
        expect(page.locator("#labels")).to_contain_text("audit")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#saved")).to_contain_text("Another user has changed")
        expect(page.locator("#change-refusal")).to_contain_text("no longer the version")
        expect(page.get_by_label("Owner")).to_have_value("audit")
        assert shop.get("/v1/queries/p99-audit")["priority"] != 7
        page.get_by_label("Priority").fill("7")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#saved")).to_have_text("Saved.")
        found = shop.get("/v1/queries/p99-audit")
        assert (found["owner"], found["priority"]) == ("audit", 7)
        # A field without unsaved edits follows changes by others.
        page.locator("#name").click()
        shop.call("PATCH", "/v1/queries/p99-audit", 200, {"priority": 9})
        expect(page.get_by_label("Priority")).to_have_value("9")


def test_a_query_is_deleted_after_a_question(browser: Browser, shop: Service) -> None:
    run(shop)
    with opened(browser, shop, f"{PAGE}big-baskets.2026") as (page, complaints):
        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_role("button", name="Keep it").click()
        assert shop.get("/v1/queries/big-baskets.2026")["status"] == "active"
        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_role("button", name="Delete it").click()
        expect(page.locator("#status")).to_have_text("expiring")
    assert not complaints


@pytest.mark.e2e
def test_a_query_is_paused_and_resumed(browser: Browser, shop: Service) -> None:
    run(shop)
    with opened(browser, shop, f"{PAGE}p99-audit") as (page, complaints):
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("#status")).to_have_text("expiring")
        shop.plan(0)
        progress = Progress.loads(str(shop.redis.get(shop.keys.runtime)))
        shop.progress(replace(progress, epoch=progress.epoch + 1))
        expect(page.locator("#status")).to_have_text("paused", timeout=60_000)
        page.get_by_role("button", name="Resume").click()
        expect(page.locator("#status")).to_have_text("pending")
        expect(page.locator("#runs li")).to_have_count(2)
        expect(page.locator("#runs li").last).to_contain_text("p99-audit~2: pending")
        nothing_is_cut(page)
    assert not complaints


def test_a_query_that_waits_and_one_that_is_not_there(browser: Browser, shop: Service) -> None:
    run(shop)
    shop.post("/v1/queries", {"id": "later", "sql": PAIR})
    with opened(browser, shop, f"{PAGE}later") as (page, complaints):
        expect(page.locator("#status")).to_have_text("pending")
        expect(page.locator("#plan-note")).to_contain_text("active with the next epoch")
        assert not complaints
    with opened(browser, shop, f"{PAGE}nobody") as (page, complaints):
        expect(page.locator("#missing")).to_be_visible()
        expect(page.locator("#found")).to_be_hidden()
        assert not complaints


def test_kinds_of_tuples_are_told_in_words(browser: Browser, service: Service) -> None:
    """Table rows and path labels of a plan with substreams; substreams with equal paths
    are merged.
    """
    with opened(browser, service, "dashboard") as (page, complaints):
        found = page.evaluate(
            """async () => {
              const {divided, whose} = await import("/dashboard/query_page/view.js");
              const one = (number, same_as, values, share, cost, otherwise) => ({
                number, same_as, share, cost, otherwise, others: !values.length, aside: number == 4,
                nulls: number == 0 ? 0.25 : 0,
                values: values.map((value) => ({value, share: 0.1})),
              });
              const plan = {divided: [{alias: "r", attribute: "k", substreams: [
                one(0, 0, [], 0.5, 100, 100),
                one(1, 1, ["7", "8", "9"], 0.2, 10, 30),
                one(2, 0, ["x"], 0.1, 5, 5),
                one(3, 1, ["a"], 0.1, 10, 50),
                one(4, 4, ["b"], 0.1, 10, 20),
              ]}]};
              const path = (alias, substreams) => whose(plan, {alias, substreams});
              return {
                rows: divided(plan).map((row) => [row.alias, row.tuples, row.share, row.saved]),
                paths: [path("r", [1, 3]), path("r", [0, 2]), path("r", []), path("s", [0])],
                none: [divided(null), divided({})],
              };
            }"""
        )
    assert [row[:2] for row in found["rows"]] == [
        ["r", "all others, NULL 25.0 %"],
        ["r", "k = 7, 8, 9 or 1 more"],
        ["r", "k = b (in no intermediate result)"],
    ]
    assert [row[2] for row in found["rows"]] == pytest.approx([0.6, 0.3, 0.1])
    assert [row[3] for row in found["rows"]] == ["–", "75.0 %", "50.0 %"]
    assert found["paths"] == ["k = 7, 8, 9 or 1 more", "all others, NULL 25.0 %", "", ""]
    assert found["none"] == [[], []]
    assert complaints == []


def test_what_came_of_each_activation_is_not_added_up(browser: Browser, service: Service) -> None:
    """Counts continue from one activation to the next; ended ones of views count joined rows."""
    with opened(browser, service, "dashboard") as (page, complaints):
        found = page.evaluate(
            """async () => {
              const {activations, past, counted} = await import("/dashboard/query_page/view.js");
              const one = (first, after, results) => ({
                activated_batch: first, expired_batch: after, results,
                complete: "never", complete_from: null, visible_from: {},
              });
              const earlier = [one(3, 20, 7), one(20, 20, 7), one(20, 31, 1500)];
              const query = (view, now) => ({...now, earlier, normalised: {view, outer: null}});
              const text = (found) => found.map(({batches, results}) => [batches, results]);
              const emitted = {past_results: {status: "emitted", results: 12, rows: 0}};
              return {
                plain: text(activations(query(null, one(31, null, 1509)))),
                view: text(activations(query({}, one(31, 40, 13)))),
                none: activations({...query(null, one(null, null, 0)), earlier: []}),
                past: [null, {}].map((view) => past({...query(view, emitted)})),
                counted: [null, {}].map((view) => counted(query(view, {}))),
              };
            }"""
        )
    assert found["plain"] == [
        ["from 31 on", "9"],
        ["20 to 30", "1,493"],
        ["none", "0"],
        ["3 to 19", "7"],
    ]
    assert found["view"] == [
        ["31 to 39", "13 rows"],
        ["20 to 30", "1,500 joined rows so far"],
        ["none", "7 joined rows so far"],
        ["3 to 19", "7 joined rows so far"],
    ]
    assert found["none"] == []
    assert found["past"] == ["all emitted: 12 results", "all emitted: 12 joined rows"]
    assert found["counted"] == ["results", "joined rows"]
    assert complaints == []


@pytest.mark.e2e
def test_a_replacement_catches_up_is_withdrawn_and_switched(
    browser: Browser, shop: Service
) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR, "owner": "<b>web"})
    shop.plan(-1)
    begun = Activation(0, {})
    shop.activate("pair", begun)
    shop.progress(Progress("running", committed=1, epoch=0, results_home=""))

    def replaced(page: Page, condition: str) -> None:
        page.get_by_role("link", name="Replace").click()
        statement = page.get_by_role("textbox", name="Statement")
        expect(statement).to_have_value(PAIR)
        statement.fill(f"{PAIR} WHERE {condition}")
        page.get_by_role("button", name="Explain").click()
        page.get_by_label("Takes over").select_option("when-complete")
        page.get_by_label("Results over stored rows").select_option("stored")
        page.get_by_role("button", name="Replace").click()
        expect(page.locator("#registered")).to_contain_text("once it has caught up")
        page.keyboard.press("Enter")
        expect(page.locator("#replacement")).to_be_visible()

    def emitting(run: str, rows: int) -> None:
        shop.activate(run, replace(begun, past=PastResults(PastStatus.PENDING, 3, rows)))

    with opened(browser, shop, f"{PAGE}pair") as (page, complaints):
        progress, why = page.get_by_role("progressbar"), page.locator("#catching-up")
        expect(page.locator("#status")).to_have_text("active")
        expect(page.locator("#replacement")).to_be_hidden()
        replaced(page, "c.city <> '<i>'")
        expect(page.locator("#new-run")).to_have_text("pair~2")
        expect(why).to_contain_text("it has not begun")
        shop.plan(0, next_batch=4)
        emitting("pair~2", 1200)
        shop.progress(Progress("running", committed=5, epoch=1, results_home=""))
        expect(why).to_contain_text("1,200 stored rows to process")
        expect(page.locator("#new-figures")).to_contain_text("being emitted: 3 results")
        expect(progress).to_have_js_property("value", 0)
        emitting("pair~2", 300)
        expect(progress).to_have_js_property("value", 900)
        expect(page.locator("#new-sql")).to_contain_text("'<i>'")
        expect(page.locator("#runs li")).to_have_count(2)
        page.set_viewport_size({"width": 390, "height": 900})
        page.emulate_media(color_scheme="dark")
        nothing_is_cut(page)
        assert broken(page) == []
        page.get_by_role("button", name="Withdraw it").click()
        expect(page.locator("#replacement")).to_be_hidden()
        assert shop.get("/v1/queries/pair")["replacement"] is None
        replaced(page, "o.total > 20")
        shop.plan(1, next_batch=8)
        never = replace(begun, complete="never", visible_from={"o": Visibility(8, None)})
        shop.activate("pair~3", never)
        shop.progress(Progress("running", committed=9, epoch=2, results_home=""))
        expect(page.locator("#never")).to_contain_text("at-once")
        expect(progress).to_be_hidden()
        page.get_by_role("button", name="Switch now").click()
        expect(why).to_have_text(
            "The new run takes the place of the present one with the next epoch."
        )
        expect(page.get_by_role("button", name="Switch now")).to_be_hidden()
        shop.plan(2, next_batch=12)
        shop.activate("pair", replace(begun, expired_batch=12))
        shop.progress(Progress("running", committed=12, epoch=3, results_home=""))
        expect(page.locator("#replacement")).to_be_hidden()
        expect(page.locator("#sql")).to_contain_text("o.total > 20")
    found = shop.get("/v1/queries/pair")
    assert (found["run"], found["owner"], found["past"]) == ("pair~3", "<b>web", "stored")
    assert not complaints


@pytest.mark.e2e
@LOOKS
def test_freshness_and_interruptions_of_the_last_hours(
    browser: Browser, shop: Service, width: int, scheme: Any
) -> None:
    run(shop)
    begin = 4_000_000_000 // 60 * 60
    for minute in range(30):
        if minute in (10, 11):
            continue
        works = minute not in (20, 21, 22)
        ages = {"orders": {bin_of(0.5): 50, bin_of(4.0): 3}} if works else {}
        point = HistoryPoint(
            at=begin + 60 * minute,
            batch_seconds=0.3 if works else None,
            rows={},
            results={LONGEST: 2.0} if works else {},
            ages=ages,
            working=works,
        )
        shop.redis.rpush(shop.keys.history, point.model_dump_json())
    with opened(browser, shop, PAGE + LONGEST) as (page, complaints):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator("#freshness-note")).to_contain_text("30 min in points of a minute")
        expect(page.locator("#freshness-note")).to_contain_text("at most 4.1 s")
        expect(page.locator("#freshness svg")).to_have_count(1)
        # Minutes without a record, and without a runtime.
        expect(page.locator("#freshness .interruption")).to_have_count(2)
        expect(page.locator("#hours .interruption")).to_have_count(2)
        found = page.locator("#interruptions li").all_text_contents()
        assert [text.partition(": ")[2] for text in found] == ["no runtime works", "no record"]
        assert [text.partition(": ")[0] for text in found] == [
            f"{_hour(begin + 19 * 60)} to {_hour(begin + 22 * 60)} UTC",
            f"{_hour(begin + 9 * 60)} to {_hour(begin + 11 * 60)} UTC",
        ]
        nothing_is_cut(page)
        assert not broken(page)
    assert not complaints


def _hour(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%H:%M}"
