"""Tests of the dashboard in a real browser, which connects to the service only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from playwright.sync_api import expect

from anabranch_contract import codec
from anabranch_contract.protocol.activations import Activation, ViewRows, Visibility
from anabranch_contract.protocol.intake import SourceState
from anabranch_contract.protocol.interims import Interim, StepMeasures
from anabranch_contract.protocol.measurements import (
    EdgeStatistics,
    FrequentValues,
    Snapshot,
    StoreStatistics,
    StreamStatistics,
)
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.queries.joins import Label
from anabranch_contract.queries.mirs import MirId
from anabranch_runtime.sinks.tail import Tails
from tests.service.conftest import CHAIN, PAIR
from tests.service.pages.drawn import drawn
from tests.service.planning.replanning.test_reviser import ask, interim, planned
from tests.support.surroundings.browsers import PATIENCE
from tests.support.surroundings.deliveries import sink, staged
from tests.support.worlds.service import Service, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


#: Script that makes a page's clock five times as fast: pauses between requests, and measured
#: durations. Dates are unchanged.
HURRY = """(() => { const wait = window.setTimeout, now = performance.now.bind(performance);
  window.setTimeout = (work, ms, ...rest) => wait(work, ms / 5, ...rest);
  performance.now = () => 5 * now(); })()"""


@contextmanager
def opened(browser: Browser, service: Service, path: str = "") -> Iterator[tuple[Page, list[str]]]:
    """Open a page of the dashboard; return it, and the list of its console errors. It shares
    nothing with earlier ones: each service has another port, and so another origin, whose storage
    is cleared.
    """
    context = browser.contexts[0]
    before = context.pages
    page = context.new_page()
    page.set_viewport_size({"width": 1480, "height": 1000})
    page.set_default_timeout(PATIENCE)
    page.add_init_script(HURRY)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda m: complaints.append(m.text) if m.type == "error" and "404" not in m.text else None,
    )
    own = f"http://127.0.0.1:{service.settings.port}/"
    page.on(
        "request",
        lambda r: None if r.url.startswith(own) else complaints.append(f"foreign: {r.url}"),
    )
    context.new_cdp_session(page).send(
        "Storage.clearDataForOrigin", {"origin": own, "storageTypes": "all"}
    )
    page.goto(own + path)
    try:
        yield page, complaints
    finally:
        for one in context.pages:
            if one not in before:
                one.close()


@pytest.mark.e2e
def test_before_anything_is_registered(browser: Browser, service: Service) -> None:
    with opened(browser, service) as (page, complaints):
        expect(page.get_by_role("status")).to_have_text("live")
        expect(page.locator("#facts")).to_contain_text("not started")
        expect(page.locator("#begin")).to_contain_text("anabranch demo --keep")
        expect(page.locator("#begin").get_by_role("link", name="Streams")).to_be_visible()
        page.get_by_role("button", name="Try it with a sample").click()
        expect(page.locator("#begin")).to_be_hidden()
        assert [s["name"] for s in service.get("/v1/streams")["items"]] == [
            "orders",
            "payments",
            "shipments",
        ]
        page.get_by_role("link", name="Queries", exact=True).click()
        expect(page.locator("#queries")).to_contain_text("sales-by-carrier")
        assert complaints == []


def test_queries_plan_costs_and_history(browser: Browser, shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(0)
    seen = {"o": Visibility(0, None), "c": Visibility(0, None)}
    ended = Activation(0, seen, expired_batch=2)
    shop.activate("pair", Activation(2, seen, earlier=(ended,)))
    shop.progress(
        Progress(
            "running",
            committed=6,
            epoch=1,
            epoch_starts={"0": 0, "1": 4},
            results={"pair": 12345},
            streams={"orders": {"input": 1000, "late": 2}},
        )
    )
    record = shop.get("/v1/epochs/1")
    with opened(browser, shop, "dashboard/queries") as (page, complaints):
        row = page.locator("#queries tbody tr", has_text="pair").first
        expect(row).to_contain_text("active")
        expect(row).to_contain_text("12,345")
        expect(row.get_by_title("before: 0 to 1")).to_have_text("from 2 on")
        assert complaints == []
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        expect(page.get_by_role("heading", name="Epoch 1 · current")).to_be_visible()
        bars = page.get_by_role("list", name="Cost compared").get_by_role("listitem")
        expect(bars).to_have_count(3)
        alone = f"each query standalone: {_js(record)}"
        expect(page.get_by_role("listitem", name=alone)).to_have_count(1)
        expect(page.locator("#saving")).to_have_text("CPU time saved: not known yet")

        shares = page.locator("#shares tbody tr")
        expect(shares).to_have_count(2)
        expect(shares.first).to_contain_text("chain")
        expect(page.get_by_role("heading", name="Changes since epoch 0")).to_be_visible()
        expect(page.locator("#changes-count")).to_contain_text("Stores: 2 new, 0 gone, 2 kept.")
        expect(page.locator("#changes .new").first).to_contain_text("new: store")

        trees = page.locator("#trees svg")
        starts = {o["start"] for q in record["explain"]["queries"] for o in q["orders"]}
        expect(trees).to_have_count(len(starts))
        steps = record["explain"]["steps"]
        assert len({step["id"] for step in steps}) == len(steps)
        expect(page.locator("#trees .store, #trees .mir")).to_have_count(len(steps))
        shared = [s for s in steps if len(s["shared_by"]) > 1]
        assert shared
        expect(page.locator("#trees .edge.shared")).to_have_count(len(shared))
        expect(page.locator("#trees .tag-text").first).to_contain_text(" + ")
        assert all(label for label in drawn(trees, "e => e.ariaLabel"))
        expect(page.locator("#steps tbody tr")).to_have_count(len(steps))
        _assert_no_overlap(page)

        page.get_by_role("button", name="pair", exact=True).click()
        expect(page.locator("#trees .dim").first).to_be_attached()
        page.get_by_role("button", name="pair", exact=True).click()
        page.mouse.move(0, 0)
        expect(page.locator("#trees .dim")).to_have_count(0)

        page.get_by_role("button", name="Show epoch 0").click()
        expect(page.get_by_role("heading", name="Epoch 0", exact=True)).to_be_visible()
        expect(page.locator("#chips button")).to_have_count(1)
        expect(page.locator("#changes-count")).to_have_text("no epoch has been published yet")
        expect(shares).to_have_count(1)
        page.get_by_role("button", name="Follow the current epoch").click()
        expect(page.get_by_role("heading", name="Epoch 1 · current")).to_be_visible()
        assert complaints == []


@pytest.mark.e2e
def test_what_was_measured(browser: Browser, shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    found = Snapshot(
        0,
        4,
        4,
        stores={f"store {n}": StoreStatistics(10 * n, 1024 * n, 1) for n in range(1, 15)},
        edges={"orders>customers": EdgeStatistics(4000, 8, 0.002, 20, 8)},
        measured={
            "orders": StreamStatistics(5000, 3, 0, 10.0, 100.0, (4000, *[0] * 20, 900, 100)),
            "customers": StreamStatistics(100, seconds=10.0),
            "items": StreamStatistics(50, seconds=10.0),
        },
    )
    shop.call(
        "PATCH", "/v1/streams/items", 200, {"retention": {"ttl": "3 hours", "latest": ["part"]}}
    )
    shop.redis.set(shop.keys.statistics(0), codec.dumps(found))
    shop.plan(0, snapshot=found)
    shop.progress(Progress("running", committed=5, epoch=1, epoch_starts={"0": 0, "1": 4}))
    with opened(browser, shop, "dashboard/measured") as (page, complaints):
        rows = page.locator("#measured tbody tr")
        expect(rows).to_have_count(3)
        expect(rows.first).to_contain_text("orders")
        expect(rows.last).to_contain_text("3 hours, latest of part")
        expect(rows.first).to_contain_text("500")
        expect(rows.first).to_contain_text("4.2 s")
        picture = page.get_by_role("img", name="in order: 80.0 %")
        expect(picture).to_have_count(1)
        heights = drawn(picture.locator("span"), "e => e.offsetHeight")
        assert heights[0] > heights[-1] > heights[1]
        expect(page.locator("#sizes li")).to_have_count(12)
        expect(page.locator("#sizes li").first).to_contain_text("store 14")
        expect(page.locator("#measured-note")).to_contain_text("2 smaller stores not shown")
        expect(page.locator("#dearest li")).to_contain_text("4,000 probes · 2.0 ms")
        page.get_by_label("Epoch").select_option("1")
        expect(rows).to_have_count(3)
        expect(page.locator("#measured .delays")).to_have_count(0)
        assert complaints == []


@pytest.mark.e2e
def test_what_went_between_hosts_beside_what_was_predicted(browser: Browser, shop: Service) -> None:
    def ended(epoch: int) -> None:
        edges = {
            "orders>customers": EdgeStatistics(4000, sent=2700, sent_bytes=60_000),
            "customers>orders": EdgeStatistics(100, sent=70, sent_bytes=1_600),
        }
        counts = {"input": 4000, "late": 0, "invalid": 0}
        found = Snapshot(
            epoch,
            4,
            4 * epoch + 4,
            arrivals={"orders": 4000, "customers": 4000},
            streams={"orders": counts, "customers": counts},
            edges=edges,
            on_hosts=3,
            values={name: {"customer_id": hot} for name in ("orders", "customers")},
        )
        shop.redis.set(shop.keys.statistics(epoch), codec.dumps(found))
        shop.plan(epoch, next_batch=found.total_batches, snapshot=found)

    hot = FrequentValues((7,), ("3",), (0.6,), (0.6,), 0.0)
    shop.call("PUT", "/v1/settings", 200, {"parallelism": 8})
    shop.post("/v1/queries", {"sql": PAIR})
    shop.plan(-1)
    ended(0)
    ended(1)
    starts = {"0": 0, "1": 4, "2": 8}
    shop.progress(Progress("running", committed=9, epoch=2, epoch_starts=starts))
    with opened(browser, shop, "dashboard/measured") as (page, complaints):
        page.get_by_label("Epoch").select_option("1")
        expect(page.locator("#sent-title")).to_have_text("Sent between 3 hosts")
        lines = page.locator("#sent li")
        expect(lines).to_have_count(2)
        expect(lines.first).to_contain_text(re.compile(r"58\.6 KiB · [\d.]+ KiB predicted"))
        page.get_by_label("Epoch").select_option("0")
        expect(lines.first).to_contain_text("not predicted")
        page.get_by_label("Epoch").select_option("2")
        expect(page.locator("#exchange")).to_be_hidden()
        assert complaints == []
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        page.get_by_role("button", name="Show epoch 1").click()
        epoch = page.locator("#epoch")
        expect(epoch).to_contain_text("orders.customer_id = 3")
        busiest = re.compile(r"1\.\d\d × the mean; [12]\.\d\d × without spreading")
        expect(epoch).to_contain_text(busiest)
        assert complaints == []


@pytest.mark.e2e
def test_revisions_with_what_they_were_to_save_and_have_saved(
    browser: Browser, shop: Service, tmp_path: Path
) -> None:
    rules = planned(shop)
    starts = {"0": 0, str(rules.epoch): 4}
    shop.progress(Progress("running", committed=6, epoch=rules.epoch, epoch_starts=starts))
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        table = page.locator("#revisions tbody")
        expect(table).to_contain_text("revised where that saves 10.0 % or more")
        assert ask(shop, interim(rules, 6, customers=100, items=0.01)).revision == 1
        expect(table.get_by_role("row")).to_have_count(1)
        (record,) = shop.get(f"/v1/epochs/{rules.epoch}/revisions")["items"]
        row = table.get_by_role("row").first
        expect(row).to_contain_text(f"{rules.epoch}.1")
        expect(row).to_contain_text("another plan costs less")
        predicted = f"predicted: {100 * record['predicted']:.1f} %"
        expect(row.get_by_role("img", name=predicted)).to_be_visible()
        expect(row.get_by_role("img", name="not measured yet")).to_be_visible()

        # 29 more revisions, with long names of streams and increased measured costs.
        key = f"{shop.keys.namespace}:revisions:{rules.epoch}"
        kept = json.loads(str(shop.redis.hget(key, "1")))
        for number in range(2, 31):
            worse: dict[str, object] = {"before": 1.0, "after": 1.5, "gain": -0.5, "periods": 4}
            drift = f"matches of {'customer_addresses_of_last_year, ' * 5}from 1 to 9"
            worse |= {"baseline": "0.7", "predicted": 0.25} if number == 30 else {}
            other = {**kept, "revision": number, "measured": worse, "drifted": [drift]}
            shop.redis.hset(key, str(number), json.dumps(other))
        expect(table.get_by_role("row")).to_have_count(20)
        expect(page.locator("#revisions-note")).to_have_text("the newest 20 of 30")
        first = table.get_by_role("row").first
        expect(first).to_contain_text(f"{rules.epoch}.30")
        expect(first.get_by_role("img", name="measured: -50.0 %")).to_be_visible()
        expect(table.get_by_text("of 0.7, predicted 25.0 %")).to_have_count(1)
        for width in (1480, 700, 380):
            page.set_viewport_size({"width": width, "height": 1000})
            wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.evaluate(wide) <= 0
            shot = tmp_path / f"revisions-{width}.png"
            page.locator("section:has(#revisions-title)").screenshot(path=str(shot))
        assert complaints == []


def test_rules_that_are_not_revised_say_so(browser: Browser, shop: Service) -> None:
    planned(shop)
    shop.http.put("/v1/settings", json={"revision_gain": None}).raise_for_status()
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        expect(page.locator("#revisions tbody")).to_contain_text("are not revised")
        assert complaints == []


@pytest.mark.e2e
def test_the_last_minutes_as_lines(browser: Browser, shop: Service, tmp_path: Path) -> None:
    with opened(browser, shop, "dashboard/measured") as (page, complaints):
        expect(page.locator("#series-note")).to_contain_text("No figures yet")
        step = StepMeasures(
            MirId("customers,orders"),
            (Label("orders"),),
            (Label("customers_" + "x" * 110),),
            EdgeStatistics(400, 600, 0.002, 9000, 600, 100),
        )
        for number, arrived in enumerate((300, 600, 900)):
            # In the second period nothing was probed.
            done = (step,) if number != 1 else ()
            arrivals = {"orders": arrived, **{f"small{n}": n for n in range(9)}}
            interim = Interim(3.0 * number, 3.0, 0, 0, number, 1, arrivals, done)
            shop.redis.rpush(shop.keys.interims, interim.dumps())
        expect(page.locator("#rates li")).to_have_count(8)
        expect(page.locator("#rates li").first).to_contain_text("orders")
        expect(page.locator("#rates li").first).to_contain_text("300 per second")
        note = page.locator("#series-note")
        expect(note).to_have_text("3 periods, 9 s; 2 slower relations not shown")
        expect(page.locator("#ratios li")).to_contain_text("25.0 % · 6 matches each")
        rising = page.get_by_role("img", name="orders: 300 per second").locator("path")
        expect(rising).to_have_attribute("d", "M0.0 17.3h0.1L90.0 8.7L180.0 0.0")
        broken = page.locator("#ratios path")
        expect(broken).to_have_attribute("d", "M0.0 19.5h0.1M180.0 19.5h0.1")
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) <= 0
        page.locator("section:has(#series-title)").screenshot(path=str(tmp_path / "series.png"))
        assert complaints == []


@pytest.mark.e2e
def test_streams_that_are_not_read_are_red_however_long_their_names_are(
    browser: Browser, shop: Service, tmp_path: Path
) -> None:
    name, why = "orders_of_" + "x" * 110, "no such folder: /" + "deep/" * 100
    shop.post("/v1/streams", {"name": name, "columns": {"k": "bigint"}})
    shop.post("/v1/queries", {"id": "q" * 120, "sql": f"SELECT s.k FROM {name} s"})
    shop.beat()
    shop.source(name, SourceState.FAILED, why)
    shop.source("orders", SourceState.READING)
    shop.plan(-1)
    shop.progress(Progress("running", committed=5, epoch=0, epoch_starts={"0": 0}))
    with opened(browser, shop) as (page, complaints):
        expect(page.locator("#facts")).to_contain_text("1 not read")
        expect(page.locator("#unread li")).to_have_count(1)
        expect(page.locator("#unread")).to_contain_text(f"{name} is not read since")
        expect(page.locator("#unread")).to_contain_text(why)
        # Nothing is wider than the page, and nothing is cut off.
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) <= 0
        assert page.locator("#unread").evaluate("x => x.scrollWidth - x.clientWidth") <= 0
        page.screenshot(path=str(tmp_path / "unread.png"), full_page=True)
        assert complaints == []
    with opened(browser, shop, "dashboard/measured") as (page, complaints):
        expect(page.locator("#measured .badge.failed")).to_have_text("failed")
        expect(page.locator("#measured")).to_contain_text("reading, 0 tuples since")
        expect(page.locator("#measured")).to_contain_text("not tried")
        assert page.evaluate(wide) <= 0
        assert complaints == []
    with opened(browser, shop, "dashboard/queries") as (page, complaints):
        expect(page.locator("#queries .badge.failed")).to_have_text("input not read")
        expect(page.locator("#queries .problem")).to_contain_text(why)
        assert page.evaluate(wide) <= 0
        shop.source(name, SourceState.READING)
        expect(page.locator("#queries .badge.failed")).to_have_count(0)
        page.get_by_role("link", name="Overview", exact=True).click()
        expect(page.locator("#facts")).to_contain_text("running")
        expect(page.locator("#unread")).to_be_hidden()
        assert complaints == []


@pytest.mark.e2e
def test_the_page_follows_what_happens(browser: Browser, shop: Service) -> None:
    with opened(browser, shop, "dashboard/plan") as (page, complaints):
        expect(page.get_by_role("status")).to_have_text("live")
        shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
        shop.plan(-1)
        expect(page.locator("#trees svg")).to_have_count(2)
        assert complaints == []


def _js(record: dict[str, float]) -> str:
    """Return the record's individual cost as JavaScript writes it."""
    cost = record["individual_cost"]
    return str(int(cost)) if cost == int(cost) else repr(cost)


def _assert_no_overlap(page: Page) -> None:
    """Assert that no two boxes of a tree overlap."""
    for tree in page.locator("#trees svg").all():
        boxes = drawn(
            tree.locator("rect.box"), "r => [r.x, r.y, r.width, r.height].map(v => v.baseVal.value)"
        )
        for i, (x, y, w, h) in enumerate(boxes):
            for ox, oy, ow, oh in boxes[i + 1 :]:
                apart = x + w <= ox or ox + ow <= x or y + h <= oy or oy + oh <= y
                assert apart, (boxes[i], (ox, oy, ow, oh))


@pytest.mark.e2e
def test_the_rows_of_a_view_are_shown_as_they_change(browser: Browser, shop: Service) -> None:
    sql = PAIR.replace("SELECT o.order_id, c.city", "SELECT c.city, count(*) AS n")
    assert sql != PAIR
    shop.post("/v1/queries", {"id": "cities", "sql": f"{sql} GROUP BY c.city"})

    def tell(version: int, *rows: str) -> None:
        told = ViewRows(version, len(rows), ("city", "n"), rows, version)
        shop.redis.hset(shop.keys.views, "cities", told.dumps())

    tell(3, '{"city":"Oslo","n":2}', '{"city":null,"n":1}')
    with opened(browser, shop, "dashboard/queries") as (page, complaints):
        page.get_by_label("Query whose results are shown").select_option("cities")
        lines = page.locator("#tail tbody tr")
        expect(lines).to_have_text(["Oslo2", "NULL1"])
        expect(page.locator("#tail-note")).to_have_text("2 of 2 rows, version 3")
        tell(4, '{"city":"Oslo","n":7}')
        expect(lines).to_have_text(["Oslo7"])
        assert complaints == []


@pytest.mark.e2e
def test_the_last_results_of_a_query_come_by_themselves(
    browser: Browser, shop: Service, tmp_path: Path
) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.post("/v1/queries", {"id": "number", "sql": PAIR, "sink": {"format": "count"}})
    tails = Tails(shop.settings.redis_url, shop.keys, tmp_path)
    rows = pa.record_batch({"order_id": pa.array(range(30)), "city": ["<b>Oslo</b>"] * 29 + [None]})
    delivery = staged(tmp_path, "pair", sink("parquet"), 0, rows)
    with opened(browser, shop, "dashboard/queries") as (page, complaints):
        choice = page.get_by_label("Query whose results are shown")
        expect(choice.locator("option")).to_have_text(["no query", "pair"])
        choice.select_option("pair")
        eventually(lambda: bool(shop.redis.zcard(shop.keys.listeners)), "the page listens")
        tails.open(0, {"pair": 0})
        tails.feed(0, {"pair": delivery.files}, {"pair": 30})
        lines = page.locator("#tail tbody tr")
        expect(lines).to_have_count(20)
        expect(lines.nth(0)).to_have_text("29NULL")
        expect(lines.nth(1)).to_have_text("28<b>Oslo</b>")
        expect(page.locator("#tail-note")).to_have_text("result 30")
        choice.select_option("")
        expect(lines).to_have_count(0)
        assert complaints == []
    tails.close()
