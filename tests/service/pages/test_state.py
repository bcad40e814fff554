"""Tests of the page of stored state in a real browser, over a running pipeline."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from anabranch_contract.protocol.reads import Reads
from anabranch_contract.protocol.state_report import IndexReport, StoreParts
from anabranch_runtime.driver.reporting import state_publisher as state_teller
from tests.service.conftest import CHAIN, PAIR
from tests.service.pages.drawn import drawn
from tests.service.pages.long_names import LONGEST, nothing_is_cut, run
from tests.service.pages.test_dashboard import opened
from tests.service.routes.test_state import report, store
from tests.support.worlds.service import Service
from tests.support.worlds.small_pipeline import run_batches, small_pipeline

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def numbers(page: Page, column: int) -> list[str]:
    """Return the texts of a column of the table of stores."""
    return drawn(page.locator(f"#list tbody tr td:nth-child({column})"), "e => e.innerText")


def test_a_pipeline_s_stores_their_segments_and_readers(
    browser: Browser, shop: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_teller, "INTERVAL", 0.0)
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    pipeline = small_pipeline(shop, tmp_path, fanout=3)
    with opened(browser, shop, "dashboard/state") as (page, complaints):
        expect(page.get_by_role("status").first).to_have_text("live")
        expect(page.locator("#list")).to_contain_text("Nothing is stored yet.")
        run_batches(pipeline, 11)
        told = shop.get("/v1/state")
        expect(page.locator("#totals-note")).to_have_text("before batch 11")
        stores = {s["store"]: s for s in told["stores"]}
        rows = page.locator("#list tbody tr")
        expect(rows).to_have_count(len(stores))
        for name, one in stores.items():
            row = rows.filter(has=page.locator(f'a[title="{name}"]'))
            expect(row).to_contain_text(f"{one['rows']:,}")
            reads = one["reads"]
            assert reads["probes"] > 0
            expect(row).to_contain_text(f"{reads['probes']:,}")
            expect(row).to_contain_text(f"{100 * reads['hit_rate']:.1f} %")
            for query in one["queries"]:
                expect(row.get_by_role("link", name=query, exact=True)).to_be_visible()
        probes = sum(s["reads"]["probes"] for s in stores.values())
        expect(page.locator("#asked")).to_contain_text(f"{probes:,}")

        # Sorting, by mouse and by keyboard.
        largest = sorted(stores.values(), key=lambda s: (-s["bytes"], s["store"]))
        links = page.locator("#list tbody a[title]")
        ids = drawn(links, "a => a.title")
        assert ids == [s["store"] for s in largest]
        head = page.get_by_role("columnheader", name="Rows")
        head.get_by_role("button").click()
        expect(head).to_have_attribute("aria-sort", "descending")
        assert numbers(page, 3) == [f"{s:,}" for s in sorted(_of(stores, "rows"), reverse=True)]
        page.keyboard.press("Enter")
        expect(head).to_have_attribute("aria-sort", "ascending")
        assert numbers(page, 3) == [f"{s:,}" for s in sorted(_of(stores, "rows"))]

        # Filtering by a stream, and by a name that does not exist.
        page.get_by_label("Show").fill("ITEMS")
        expect(rows).to_have_count(sum("items" in s["streams"] for s in stores.values()))
        page.get_by_label("Show").fill("no such thing")
        expect(page.locator("#list")).to_contain_text("No matching store.")
        page.get_by_label("Show").fill("")

        # One store.
        name = next(n for n, s in stores.items() if s["mir"] == "orders")
        detail = shop.get(f"/v1/state/stores/{name}")
        assert len({p["level"] for p in detail["parts"]}) > 1
        page.locator(f'a[title="{name}"]').first.focus()
        page.keyboard.press("Enter")
        card = page.locator("#detail")
        expect(card).to_be_visible()
        expect(page.locator(f'a[title="{name}"]').first).to_be_focused()
        bars = page.locator("#segments rect")
        expect(bars).to_have_count(len(detail["parts"]))
        _assert_as_high_as_they_are_large(page, detail["parts"])
        partitions = {p["partition"] for p in detail["parts"]}
        picture = f"{len(detail['parts'])} segments, {len(partitions)} partitions, along "
        expect(page.get_by_role("img", name=picture + "batches")).to_be_visible()
        page.get_by_label("Axis of the segments").select_option("time")
        expect(page.get_by_role("img", name=picture + "event time")).to_be_visible()
        expect(bars).to_have_count(len(detail["parts"]))
        expect(page.locator("#segments")).to_contain_text("2025-06-15 15:")
        expect(page.locator("#facts")).to_contain_text(f"{detail['write_amplification']:.2f}")
        expect(page.locator("#parts tbody tr")).to_have_count(len(detail["parts"]))
        page.set_viewport_size({"width": 390, "height": 900})
        page.locator("#facts dd").first.evaluate("dd => { dd.append(dd.textContent); }")
        nothing_is_cut(page)
        page.set_viewport_size({"width": 1480, "height": 1000})

        # The epochs shown last.
        rate = detail["history"][-1]["reads"]["hit_rate"]
        epochs = [e["epoch"] for e in detail["history"]]
        assert epochs == [0, 1, 2]
        chart = page.get_by_role("img", name=f"Hit rate, epochs 0–2: last {100 * rate:.1f} %")
        expect(chart.locator("circle")).to_have_count(3)

        # Its indexes and readers, with a link to the query's plan.
        for index in detail["indexes"]:
            line = page.locator("#indexes tbody tr", has_text=index["key"])
            expect(line).to_contain_text(f"{index['life']['probes']:,}")
        readers = page.locator("#readers tbody tr")
        expect(readers).to_have_count(len(detail["readers"]))
        for at, reader in enumerate(detail["readers"]):
            line = readers.nth(at)
            # Named by streams, not by the edge's id.
            expect(line).to_contain_text(reader["edge"].partition(">")[0])
            expect(line).to_contain_text("→")
            expect(line).to_contain_text(f"{reader['statistics']['probes']:,}")
        page.get_by_role("button", name="Rows").focus()
        card.get_by_role("link", name="chain", exact=True).first.click()
        expect(page.get_by_role("button", name="chain", exact=True)).to_have_attribute(
            "aria-pressed", "true"
        )
        page.get_by_role("link", name="Stored state", exact=True).click()
        page.locator(f'#list a[href="#store={quote(name, safe="")}"]').click()
        expect(page.locator("#detail")).to_be_visible()
        page.get_by_role("link", name="Close").click()
        expect(card).to_be_hidden()
        assert complaints == []


def test_the_list_fits_a_window_of_1280_pixels(browser: Browser, shop: Service) -> None:
    run(shop)
    with opened(browser, shop, "dashboard/state") as (page, complaints):
        page.set_viewport_size({"width": 1280, "height": 900})
        expect(page.locator("#list tbody")).to_contain_text(LONGEST)
        box = page.locator(".scroll:has(> #list)")
        assert box.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
        page.set_viewport_size({"width": 390, "height": 900})
        assert box.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
        nothing_is_cut(page)
        heights = drawn(page.locator("#list tbody tr"), "row => row.offsetHeight")
        assert max(heights) < 200, "names are folded after some words, not after each"
    assert not complaints


def test_a_store_that_is_not_there(browser: Browser, shop: Service) -> None:
    with opened(browser, shop, "dashboard/state#store=gone/1") as (page, complaints):
        expect(page.locator("#missing")).to_contain_text("The store does not exist")
        shop.redis.set(shop.keys.state, report(store("gone/1", 20)).dumps())
        expect(page.locator("#facts")).to_contain_text("total > 5")
        expect(page.locator("#segments-note")).to_contain_text("has not reported its state yet")
        shop.redis.hset(
            shop.keys.state_parts, "gone/1", StoreParts("gone/1", 10, (), 0, (), 0).dumps()
        )
        expect(page.locator("#segments-note")).to_contain_text("No segments.")
        expect(page.locator("#readers")).to_contain_text("No readers at present.")
        assert complaints == []


def test_thousands_of_stores_stay_usable(browser: Browser, shop: Service) -> None:
    """Of 2,000 stores a hundred are shown; the others can be filtered."""
    one = replace(store("s", 20), indexes=(IndexReport("k:int", 20, 100, 0, Reads(9, 3, 3)),))
    stores = [replace(one, store=f"store {n}", rows=n, bytes=n) for n in range(2000)]
    shop.redis.set(shop.keys.state, report(*stores).dumps())
    with opened(browser, shop, "dashboard/state") as (page, complaints):
        rows = page.locator("#list tbody tr")
        expect(rows).to_have_count(100)
        expect(page.locator("#stores-note")).to_have_text("2000; the first 100 are shown")
        expect(rows.first).to_contain_text("store 1999")
        page.get_by_label("Show").fill("123 store")
        expect(rows).to_have_count(12)
        expect(page.locator("#stores-note")).to_have_text("12 of 2000")
        took = page.evaluate(
            """async () => {
              const view = await import("/dashboard/state/view.js");
              const state = await (await fetch("/v1/state")).json();
              const took = [];
              for (let turn = 0; turn < 10; turn += 1) {
                const started = performance.now();
                for (const by of ["rows", "store", "hits"]) {
                  view.list(state, {by, descending: true, filter: "s"});
                }
                took.push(performance.now() - started);
              }
              return took;
            }"""
        )
        # The minimum, without pauses of a busy machine.
        assert min(took) < 1000
        assert complaints == []


def test_shapes_of_segments_and_lines(browser: Browser, shop: Service) -> None:
    """Positions of segments and lines, as ``state/view.js`` computes them."""
    with opened(browser, shop, "dashboard/state") as (page, complaints):
        found = page.evaluate(
            """async () => {
              const {picture, line} = await import("/dashboard/state/view.js");
              const part = (partition, level, bytes, batches, event_time = null) =>
                ({partition, level, rows: 1, bytes, batches, event_time});
              const size = {width: 100, left: 0, height: 106};
              const parts = [
                part(0, 7, 400, [0, 4]),
                part(0, 0, 100, [5, 9], [0, 50]),
                part(3, 1, 200, [0, 9], [50, 100]),
              ];
              const many = Array.from({length: 40}, (_, n) => part(n, 0, 1, [n, n]));
              const epoch = (epoch, value) => ({epoch, value});
              const drawn = (epochs) => line(epochs, (e) => e.value, {width: 30, height: 8});
              return {
                batches: picture(parts, "batches", size),
                time: picture(parts, "time", size),
                many: picture(many, "batches", size),
                none: [picture([], "batches", size), picture(many, "time", size)],
                line: drawn([epoch(0, 1), epoch(1, null), epoch(2, 4), epoch(3, 2)]),
                point: drawn([epoch(7, 0)]),
                nothing: drawn([epoch(0, null)]),
              };
            }"""
        )
        upper, lower = found["batches"]["lines"]
        assert [(b["x"], b["height"], b["level"]) for b in upper["bars"]] == [
            (0, 47, 4),
            (50, 11.75, 0),
        ]
        assert [b["width"] for b in upper["bars"]] == [49, 49]
        assert (lower["partition"], lower["bars"][0]["width"]) == (3, 99)
        assert lower["bottom"] - lower["bars"][0]["y"] == 23.5
        time = found["time"]
        assert time["undated"] == 1
        assert [b["x"] for one in time["lines"] for b in one["bars"]] == [0, 50]
        assert (len(found["many"]["lines"]), found["many"]["omitted"]) == (32, 8)
        assert found["none"] == [None, None]
        assert found["line"]["path"] == "M0.0 6.0M20.0 0.0L30.0 4.0"
        assert (found["line"]["last"], found["line"]["least"], found["line"]["greatest"]) == (
            2,
            1,
            4,
        )
        assert found["point"]["path"] == "M15.0 8.0"
        assert found["nothing"] is None
        assert complaints == []


def _of(stores: dict[str, dict[str, int]], field: str) -> list[int]:
    return [s[field] for s in stores.values()]


def _assert_as_high_as_they_are_large(page: Page, parts: list[dict[str, int]]) -> None:
    bars = drawn(
        page.locator("#segments rect"),
        "e => [e.height.baseVal.value, e.textContent, e.getAttribute('class')]",
    )
    most = max(p["bytes"] for p in parts)
    tallest = max(height for height, _, _ in bars)
    expected = sorted(round(max(tallest * p["bytes"] / most, 2), 3) for p in parts)
    assert sorted(round(height, 3) for height, _, _ in bars) == expected
    for _, text, level in bars:
        assert re.search(rf"level {level.removeprefix('level-')}, ", text)
