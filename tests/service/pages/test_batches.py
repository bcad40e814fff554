"""Tests of the page of batches in a real browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from anabranch_contract.protocol.batches import BATCHES_KEPT, BatchReport
from anabranch_contract.protocol.profile import CpuGroup, CpuReport, CpuUse
from tests.service.pages.long_names import nothing_is_cut, run
from tests.service.pages.test_dashboard import opened
from tests.support.surroundings.browsers import LOOKS
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGE = "dashboard/batches"


def batch(number: int, *, slow: int = 0) -> BatchReport:
    """Return a report of a batch of some 400 ms, in epochs of forty batches."""
    phases = {"read": 60, "store": 40, "wait": 20, "probe": 120 + 3 * (number % 17) + slow}
    job = 40 + sum(phases.values())
    return BatchReport(
        batch=number,
        epoch=number // 40,
        ruleset_epoch=number // 40,
        revision=int(number % 40 >= 20),
        until=1_790_000_000.0 + number,
        tuples=1000 + number,
        results=17 * number,
        begin=12,
        job=job,
        commit=55,
        tasks=4,
        slowest=number % 4,
        phases=phases,
        work=200 + slow,
        mean_work=160,
    )


def keep(shop: Service, *batches: BatchReport) -> None:
    """Write batch reports to Redis, as the runtime does."""
    shop.redis.rpush(shop.keys.batches, *(one.dumps() for one in batches))


@LOOKS
def test_the_newest_batches_are_stacked_by_phase(
    browser: Browser, shop: Service, width: int, scheme: Any
) -> None:
    run(shop)
    numbers = range(100, 100 + BATCHES_KEPT)
    keep(shop, *(batch(n, slow=700 if n == 222 else 0) for n in numbers))
    with opened(browser, shop, PAGE) as (page, complaints):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator("#note")).to_have_text("batches 100 to 299")
        phases = 7
        expect(page.locator("#chart rect")).to_have_count(phases * BATCHES_KEPT)
        # Epochs begin with batches 120, 160, 200, 240, 280; revisions with 100, 140 and so on.
        expect(page.locator("#chart .mark:not(.revised)")).to_have_count(5)
        expect(page.locator("#chart .mark.revised")).to_have_count(4)
        expect(page.locator("#chart")).to_contain_text("#4")
        expect(page.locator("#legend")).to_contain_text("probing")
        first = page.locator("#list tbody tr").first
        expect(first).to_contain_text("299")
        page.get_by_label("Sort by").select_option("slowest first")
        expect(first).to_contain_text("222")
        expect(first).to_contain_text("probe,")
        page.get_by_label("Sort by").select_option("greatest skew first")
        expect(first).to_contain_text("5.63")
        nothing_is_cut(page)
    assert not complaints


def report(seconds: float) -> CpuReport:
    """Return the runtime's CPU counters ``seconds`` after its start, with one busy core."""
    uses = (
        CpuUse(CpuGroup.SPARK, "JVM", (), 0.4 * seconds),
        CpuUse(CpuGroup.PROBE, "orders>items", ("p", "q"), 0.3 * seconds),
        CpuUse(CpuGroup.SINK, "q", ("q",), 0.2 * seconds),
        CpuUse(CpuGroup.INSERT, "", (), 0.06 * seconds),
        CpuUse(CpuGroup.UNATTRIBUTED, "driver", (), 0.04 * seconds),
    )
    return CpuReport("r", 1_790_000_000.0 + seconds, uses)


@pytest.mark.e2e
@LOOKS
def test_cpu_time_is_stacked_by_group_and_listed_by_use_and_query(
    browser: Browser, shop: Service, width: int, scheme: Any
) -> None:
    shop.redis.set(shop.keys.profile, report(10.0).dumps())
    with opened(browser, shop, PAGE) as (page, complaints):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator("#cpu-note")).to_contain_text("Measuring")
        shop.redis.set(shop.keys.profile, report(40.0).dumps())
        expect(page.locator("#cpu-note")).to_contain_text("in 30 s", timeout=60_000)
        # Service and Redis have used CPU time, too.
        expect(page.locator("#cpu rect")).to_have_count(7)
        picture = page.get_by_role("img", name="CPU time by group: insert")
        expect(picture).to_have_count(1)
        for text in ("probe: probing, 9.00 s", "not attributed, 1.20 s"):
            expect(page.locator("#cpu-legend")).to_contain_text(text)
        rows = page.locator("#cpu-list tbody tr")
        for text in ("spark: JVM", "probe: orders → items", "insert: writing packs"):
            expect(rows.filter(has_text=text)).to_have_count(1)
        page.locator("#cpu-by").select_option("query")
        # Half of the step, and the results.
        expect(rows.filter(has=page.get_by_text("q", exact=True))).to_contain_text("10.50 s")
        expect(rows.filter(has=page.get_by_text("p", exact=True))).to_contain_text("4.50 s")
        nothing_is_cut(page)
    assert not complaints


@pytest.mark.e2e
def test_a_new_batch_is_shown(browser: Browser, shop: Service) -> None:
    with opened(browser, shop, PAGE) as (page, complaints):
        expect(page.locator("#note")).to_contain_text("No batch has been committed yet")
        keep(shop, batch(0), batch(0), batch(1))
        expect(page.locator("#note")).to_have_text("batches 0 to 1")
        expect(page.locator("#list tbody tr")).to_have_count(2)
    assert not complaints


def test_a_column_has_one_unit_and_equal_names_one_row(browser: Browser, shop: Service) -> None:
    keep(shop, batch(1), batch(2, slow=900))
    with opened(browser, shop, PAGE) as (page, complaints):
        times = page.locator("#list td[data-label=Time]")
        expect(times).to_have_text([re.compile(r"^1\.\d+ s$"), re.compile(r"^0\.\d+ s$")])
        rows = page.evaluate(
            """async () => {
              const { byUse } = await import("/dashboard/batches/uses.js");
              const use = (name, seconds) => ({ group: "probe", name, seconds, queries: [] });
              const uses = [use("a[1]", 1), use("a[2]", 2), use("b", 0.5), use("", 0.25)];
              return byUse(uses, (name) => name[0]);
            }"""
        )
        assert rows == [
            {"text": "probe: a", "seconds": 3},
            {"text": "probe: b", "seconds": 0.5},
            {"text": "probe: passing tuples on", "seconds": 0.25},
        ]
        sizes = page.evaluate(
            """async () => {
              const { bytesLike } = await import("/dashboard/dom.js");
              const counts = [3 * 2 ** 20, 2 ** 19, 100, 0];
              return [counts.map(bytesLike(counts)), [5, 0].map(bytesLike([5, 0]))];
            }"""
        )
        assert sizes == [["3.0 MiB", "0.5 MiB", "< 0.1 MiB", "0 B"], ["5 B", "0 B"]]
    assert not complaints
