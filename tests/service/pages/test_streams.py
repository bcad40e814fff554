"""The page of all streams in a real browser: what they are, a test of a source, a registration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect

from tests.service.pages.long_names import nothing_is_cut
from tests.service.pages.test_dashboard import opened
from tests.service.pages.test_stream import measured
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGE = "dashboard/streams"


@pytest.mark.parametrize("width", mostly_slow([390, 1440]))
def test_a_source_is_tested_and_then_registered(
    browser: Browser, shop: Service, tmp_path: Path, width: int
) -> None:
    pq.write_table(pa.table({"id": [1, 3_000_000_000], "city": ["<b>x</b>", None]}), tmp_path / "1")
    with opened(browser, shop, PAGE) as (page, complaints):
        page.set_viewport_size({"width": width, "height": 900})
        page.get_by_label("Name", exact=True).fill("visits_of_customers_by_city_2026")
        page.get_by_label("Format of the source").fill("files")
        page.get_by_label("Path").fill(str(tmp_path))
        page.get_by_label("Columns").fill("id int\ncity: string")
        page.get_by_role("button", name="Test").click()
        expect(page.locator("#found")).to_contain_text("readable")
        expect(page.locator("#sampled-rows tbody tr")).to_have_count(2)
        expect(page.locator("#sampled-rows")).to_contain_text("<b>x</b>")
        expect(page.locator("#misfits")).to_have_text("Row 2: id is “3000000000”, not int.")
        expect(page.locator(".misfit")).to_have_text("does not fit")
        expect(page.locator("#tested-title")).to_be_focused()
        assert len(shop.get("/v1/streams")["items"]) == 3
        nothing_is_cut(page)
        page.get_by_label("Columns").fill("id bigint\ncity string")
        page.get_by_role("button", name="Test").click()
        expect(page.locator("#misfits li")).to_have_count(0)
        page.get_by_role("button", name="Register").click()
        expect(page.locator("#done")).to_contain_text("is registered")
        expect(page.locator("#streams tbody tr")).to_have_count(4)
        page.locator("#done").get_by_role("link").click()
        expect(page.locator("#name")).to_have_text("visits_of_customers_by_city_2026")
    assert not complaints
    made = shop.get("/v1/streams/visits_of_customers_by_city_2026")
    assert made["source"]["path"] == str(tmp_path)


def test_a_registration_is_pasted_and_what_is_wrong_is_said(
    browser: Browser, shop: Service
) -> None:
    body: dict[str, Any] = {
        "name": "visits",
        "columns": {"id": "bigint", "at": "timestamp"},
        "event_time": "at",
        "retention": {"ttl": "7 days"},
        "source": {"format": "redis-stream", "options": {"payload": "fields"}},
    }
    with opened(browser, shop, PAGE) as (page, complaints):
        page.get_by_text("Paste a registration").click()
        page.get_by_label("A registration as JSON").fill("{")
        page.get_by_role("button", name="Fill in").click()
        expect(page.locator("#json-refusal")).to_contain_text("can't be read")
        page.get_by_label("A registration as JSON").fill(json.dumps(body))
        page.get_by_role("button", name="Fill in").click()
        expect(page.get_by_label("Columns")).to_have_value("id bigint\nat timestamp")
        expect(page.locator("#more")).to_contain_text("retention")
        shop.redis.xadd(shop.keys.stream("visits"), {"id": "1", "at": "2026-01-02 03:04:05"})
        page.get_by_role("button", name="Test").click()
        expect(page.locator("#found")).to_contain_text("2026-01-02 03:04:05")
        assert not complaints
        page.get_by_label("Event time").fill("when")
        page.get_by_role("button", name="Test").click()
        expect(page.locator("#refusal")).to_contain_text("'when'")
        page.get_by_label("Event time").fill("at")
        page.get_by_label("Options").fill("payload=fields\nurl=redis://elsewhere:6379")
        page.get_by_label("Columns").fill("id")
        page.get_by_role("button", name="Test").click()
        expect(page.locator("#refusal")).to_contain_text("is not a column")
        page.get_by_label("Columns").fill("id bigint\nat timestamp")
        page.get_by_label("Options").fill("payload=fields")
        page.get_by_role("button", name="Register").click()
        expect(page.locator("#done")).to_contain_text("visits is registered")
    assert shop.get("/v1/streams/visits")["retention"]["ttl"] == "1 week"


def test_all_streams_in_a_list(browser: Browser, shop: Service) -> None:
    measured(shop)
    with opened(browser, shop, PAGE) as (page, complaints):
        expect(page.locator("#streams tbody tr")).to_have_count(3)
        expect(page.locator("#streams")).to_contain_text("9,000")
        page.locator("#streams").get_by_role("link", name="orders").click()
        expect(page.locator("#name")).to_have_text("orders")
    assert not complaints
