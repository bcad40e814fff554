"""Tests of the map of the joint plan, in a real browser, with long realistic names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from anabranch_contract.packed import unpack
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import RulesetId
from tests.service.conftest import CHAIN, PAIR
from tests.service.pages.test_dashboard import opened
from tests.service.planning.test_rations import period
from tests.support.surroundings.browsers import LOOKS
from tests.support.worlds.service import Service, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

QUERIES = {
    "late-shipments-by-customer": PAIR,
    "unpaid_orders_over_a_thousand_euros": PAIR + " WHERE o.total > 1000",
    "items-of-customers-in-Berlin": CHAIN + " WHERE c.city = 'Berlin'",
    "items-of-customers-in-Saint-Remy-en-Bouzemont-Saint-Genest-et-Isson": CHAIN
    + " WHERE c.city = 'Saint-Remy-en-Bouzemont-Saint-Genest-et-Isson'",
    "everything": CHAIN,
    "big-baskets.2024": CHAIN + " WHERE o.total > 500",
    "p99-audit": PAIR + " WHERE c.city LIKE 'A%' AND o.total BETWEEN 10 AND 20",
    "q8": PAIR,
}


def fill(shop: Service, queries: dict[str, str]) -> None:
    """Register queries, plan, and report measurements."""
    plan(shop, queries)
    measure(shop)


def plan(shop: Service, queries: dict[str, str]) -> None:
    """Register queries, and plan them."""
    for name, sql in queries.items():
        shop.post("/v1/queries", {"id": name, "sql": sql})
    shop.plan(-1)


def measure(shop: Service) -> None:
    """Report a period in which every step took some time."""
    text = shop.redis.get(shop.keys.ruleset(RulesetId(0)))
    rules = rulesets.loads(unpack(str(text)))
    shop.redis.rpush(shop.keys.interims, period(rules).dumps())


def boxes(page: Page) -> list[dict[str, Any]]:
    """Return the screen rectangles of the nodes and of the texts in them."""
    found = page.evaluate(
        """() => {
          const of = (shape) => {
            const { left, top, right, bottom } = shape.getBoundingClientRect();
            return [left, top, right, bottom];
          };
          return [...document.querySelectorAll("#map .node")].map((node) => ({
            id: node.dataset.id,
            box: of(node.querySelector("rect")),
            texts: [...node.querySelectorAll("text")].map(of),
          }));
        }"""
    )
    assert isinstance(found, list)
    return found


def crosses(a: list[float], b: list[float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


@LOOKS
def test_no_node_covers_another_and_every_name_is_whole(
    browser: Browser, shop: Service, width: int, scheme: Any
) -> None:
    fill(shop, QUERIES)
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator("#map .node.query")).to_have_count(len(QUERIES))
        found = boxes(page)
        for at, one in enumerate(found):
            assert not any(crosses(one["box"], other["box"]) for other in found[:at]), one["id"]
            for text in one["texts"]:
                assert one["box"][0] <= text[0], one["id"]
                assert text[2] <= one["box"][2], one["id"]
                assert one["box"][1] <= text[1] <= text[3] <= one["box"][3] + 1, one["id"]
        shown = page.locator("#map").text_content() or ""
        for name in QUERIES:
            assert name in "".join(shown.split("\n")), name
        assert "[" not in shown
        assert "@" not in shown
        across = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert across <= 0
        expect(page.locator("#map-note")).to_contain_text("8 queries")
        expect(page.locator("#map-note")).to_contain_text("% of it from")
    assert not complaints


@pytest.mark.e2e
def test_a_query_is_followed_to_its_path_and_back(browser: Browser, shop: Service) -> None:
    fill(shop, QUERIES)
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        nodes = page.locator("#map .node")
        page.locator('#map [data-id="query:q8"]').click()
        expect(page).to_have_url(f"{page.url.partition('#')[0]}#query=q8")
        plan = shop.get("/v1/plan?query=q8")
        lit = page.locator("#map .node:not(.dim)")
        expect(lit).to_have_count(len(plan["nodes"]))
        page.get_by_role("button", name="All queries").click()
        expect(page.locator("#map .node.dim")).to_have_count(0)

        page.get_by_label("Find a query, owner, tag or stream").fill("Berlin")
        expect(page.locator("#map .node.query:not(.dim)")).to_have_count(1)
        page.get_by_label("Find a query, owner, tag or stream").fill("")
        stream = page.locator('#map [data-id="stream:items"]')
        stream.focus()
        readers = [name for name, sql in QUERIES.items() if sql.startswith(CHAIN)]
        expect(page.locator("#map .node.query:not(.dim)")).to_have_count(len(readers))
        page.locator('#map [data-id="query:everything"]').focus()
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{page.url.partition('#')[0]}#query=everything")
        assert nodes.count() > len(QUERIES)
    assert not complaints


def outside(page: Page) -> list[str]:
    """Return the nodes that are not completely inside the picture's frame."""
    page.evaluate("document.querySelector('#map').scrollIntoView()")
    left, top, right, bottom = page.evaluate(
        """() => {
          const frame = document.querySelector("#map");
          const { left, top, right, bottom } = frame.getBoundingClientRect();
          return [left, top, right, bottom];
        }"""
    )
    return [
        one["id"]
        for one in boxes(page)
        if not (left <= one["box"][0] and one["box"][2] <= right)
        or not (top <= one["box"][1] and one["box"][3] <= bottom)
    ]


@pytest.mark.e2e
def test_the_map_is_whole_when_figures_come_and_queries_change(
    browser: Browser, shop: Service
) -> None:
    few = dict(list(QUERIES.items())[:3])
    plan(shop, few)
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        note, part = page.locator("#map-note"), page.locator("#map-part")
        expect(note).to_contain_text("No measurements yet")
        assert outside(page) == []
        # Every box becomes higher by a line.
        measure(shop)
        expect(note).to_contain_text("3 queries")
        assert outside(page) == []
        expect(part).to_be_hidden()

        # A picture that a user has moved stays, with a note that it shows only a part.
        page.get_by_role("button", name="Larger").click()
        page.get_by_role("button", name="Larger").click()
        expect(part).to_be_visible()
        assert outside(page) != []
        view = page.locator("#map svg").get_attribute("viewBox")
        # Two more answers: the first one is drawn before the second request.
        for _ in range(2):
            measure(shop)
            with page.expect_response(lambda answer: answer.url.endswith("/v1/plan")):
                pass
        assert page.locator("#map svg").get_attribute("viewBox") == view
        page.get_by_role("button", name="Fit").click()
        expect(part).to_be_hidden()
        assert outside(page) == []

        page.set_viewport_size({"width": 390, "height": 900})
        expect(part).to_be_visible()
        assert outside(page) != []
    assert not complaints


@pytest.mark.e2e
def test_the_map_is_zoomed_and_fits_again(browser: Browser, shop: Service) -> None:
    fill(shop, QUERIES)
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        svg = page.locator("#map svg")
        whole = svg.get_attribute("viewBox")
        page.get_by_role("button", name="Larger").click()
        expect(svg).not_to_have_attribute("viewBox", whole or "")
        page.get_by_role("button", name="Fit").click()
        expect(svg).to_have_attribute("viewBox", whole or "")
    assert not complaints


def inside(page: Page, node: str) -> None:
    """Assert that the picture shows the middle of a node, after it has moved there."""
    shown = """(id) => {
        const of = (shape) => shape.getBoundingClientRect();
        const box = document.querySelector(`#map [data-id="${id}"] rect`);
        if (!box) return false;
        const [outer, inner] = [of(document.querySelector("#map")), of(box)];
        const [x, y] = [(inner.left + inner.right) / 2, (inner.top + inner.bottom) / 2];
        return outer.left < x && x < outer.right && outer.top < y && y < outer.bottom;
    }"""
    eventually(lambda: bool(page.evaluate(shown, node)), f"{node} is in view")


@pytest.mark.e2e
def test_search_link_and_keyboard_move_to_their_node(browser: Browser, shop: Service) -> None:
    plan(shop, {f"big-{n:02d}": f"{CHAIN} WHERE o.total > {n}" for n in range(30)})
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        page.set_viewport_size({"width": 390, "height": 700})
        expect(page.locator("#map-part")).to_be_visible()
        search, hits = (
            page.get_by_label("Find a query, owner, tag or stream"),
            page.locator("#map-hits"),
        )
        search.fill("big-2")
        expect(hits).to_have_text("1 of 10")
        seen = []
        for at in range(1, 11):
            expect(hits).to_have_text(f"{at} of 10")
            seen.append(page.locator("#map .node.hit").get_attribute("data-id") or "")
            inside(page, seen[-1])
            search.press("Enter")
        assert sorted(seen) == [f"query:big-{n}" for n in range(20, 30)]
        expect(hits).to_have_text("1 of 10")
        search.press("Shift+Enter")
        expect(hits).to_have_text("10 of 10")
        search.fill("nobody")
        expect(hits).to_have_text("no match")
        search.fill("")
        expect(hits).to_have_text("")

        page.locator('#map [data-id="query:big-29"]').focus()
        inside(page, "query:big-29")
        page.get_by_role("button", name="Fit").click()
        expect(page.locator("#map-part")).to_be_hidden()
        assert outside(page) == []

        # A link to a query shows it, with the streams of its path.
        page.goto(f"{page.url.partition('#')[0]}#query=big-28")
        page.reload()
        inside(page, "query:big-28")
        inside(page, "stream:items")
    assert not complaints


@pytest.mark.e2e
def test_many_queries_are_a_group_from_which_one_is_chosen(browser: Browser, shop: Service) -> None:
    many = {f"city-{n:03d}": f"{PAIR} WHERE o.total > {n}" for n in range(10)}
    alike = {f"alike-{n:03d}": PAIR.replace("SELECT ", f"SELECT {n} AS n, ") for n in range(70)}
    fill(shop, {**many, **alike})
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        group = page.locator("#map .node.group").first
        expect(group).to_contain_text("queries")
        group.click()
        page.locator("#map-members a", has_text="alike-007").click()
        expect(page.locator('#map [data-id="query:alike-007"]')).to_be_visible()
        expect(page.locator("#map .node.group")).to_have_count(0)
    assert not complaints


OWNERS = ("web", "logistics")


def combined(shop: Service, many: int) -> None:
    """Register queries of two or three streams with different filters, and plan them."""
    for number in range(many):
        sql = CHAIN if number % 3 else PAIR
        sql = f"{sql} WHERE o.total > {number % 5} AND c.city = '{number % 4}'"
        shop.post(
            "/v1/queries",
            {"id": f"query-{number:03d}", "sql": sql, "owner": OWNERS[number % 2]},
        )
    shop.plan(-1)
    # Pages request the record of an epoch again once it has been explained.
    eventually(lambda: shop.get("/v1/epochs/0?detail=summary")["explained"], "the explanation")
    measure(shop)


@pytest.mark.parametrize("width", [1440, 390])
def test_a_map_of_many_queries_opens_whole_and_leads_to_each(
    browser: Browser, shop: Service, width: int
) -> None:
    combined(shop, 64)
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator("#map .node.group").first).to_contain_text("queries")
        assert page.locator("#map .node.query").count() < 30
        found = boxes(page)
        for at, one in enumerate(found):
            assert not any(crosses(one["box"], other["box"]) for other in found[:at]), one["id"]
        if width == 1440:
            expect(page.locator("#map-part")).to_be_hidden()
            assert outside(page) == []
        page.get_by_role("button", name="Fit").click()
        assert outside(page) == []

        # An owner's queries are listed, since the map has no node for them.
        search = page.get_by_label("Find a query, owner, tag or stream")
        search.fill("logistics")
        listed = page.locator("#map-members a")
        expect(listed).to_have_count(32)
        search.fill("query-041")
        expect(listed).to_have_text(["query-041"])
        inside(page, page.locator("#map .node.hit").get_attribute("data-id") or "")
        search.press("Enter")
        expect(page).to_have_url(f"{page.url.partition('#')[0]}#query=query-041")
        inside(page, "query:query-041")
        expect(page.locator("#map .node.query")).to_have_count(1)
        expect(page.locator("#map .node.group")).to_have_count(0)
        expect(page.locator("#trees-query")).to_have_value("query-041")
        page.get_by_role("button", name="All queries").click()
        expect(page.locator("#map .node.group").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert not complaints


@pytest.mark.e2e
def test_the_plan_of_many_queries_is_requested_in_parts(browser: Browser, shop: Service) -> None:
    combined(shop, 40)
    asked: list[str] = []
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        page.on("request", lambda request: asked.append(request.url.partition("/v1/")[2]))
        page.reload()
        expect(page.locator("#trees svg").first).to_be_visible()
        expect(page.locator("#stores li").first).to_contain_text("probed by")
        first = [path for path in asked if path.startswith(("queries", "state", "epochs/0?"))]
        assert first == ["epochs/0?detail=summary&query=query-000"]
        page.locator("#trees-query").select_option("query-001")
        expect(page.locator("#trees")).to_contain_text("query-001")
        expect(page.locator("#trees")).to_contain_text("items")
        with page.expect_request("**/v1/queries?*"):
            page.get_by_label("Find a query, owner, tag or stream").focus()
        expect(page.locator("#map-hits")).to_be_empty()
        # Filters are named in full where they are in the answer.
        expect(page.locator("#stores")).to_contain_text("where")
        text = page.locator("main").text_content() or ""
        assert not re.search(r"\[[0-9a-f]{8}\]", text)
    assert not complaints


def test_before_there_is_a_plan_the_map_says_what_to_do(browser: Browser, service: Service) -> None:
    with opened(browser, service, "dashboard/plan") as (page, complaints):
        expect(page.locator("#map-note")).to_contain_text("register streams and a query")
    assert not complaints
