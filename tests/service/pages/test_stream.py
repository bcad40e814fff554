"""Tests of the page of one stream in a real browser."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from anabranch_contract import codec
from anabranch_contract.protocol.intake import (
    InputProgress,
    SnapshotProgress,
    SourceState,
    StreamIntake,
    Unread,
    UnreadPiece,
)
from anabranch_contract.protocol.measurements import Snapshot, StreamSample, StreamStatistics
from anabranch_contract.protocol.progress import Mode, Progress
from anabranch_contract.protocol.table_progress import TableProgress
from anabranch_service.registry.publishing.history import HistoryPoint
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import PAIR
from tests.service.pages.long_names import LONGEST, QUERIES, nothing_is_cut, run
from tests.service.pages.test_dashboard import opened
from tests.support.surroundings.browsers import LOOKS
from tests.support.worlds.service import Service, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGE = "dashboard/stream/"


def measured(shop: Service) -> None:
    """A service with eight queries, a sample of orders, and an epoch's statistics."""
    run(shop)
    statistics = StreamStatistics(5000, 3, 0, 10.0, 100.0, (4000, *[0] * 20, 900, 100))
    found = Snapshot(0, 4, 4, measured={"orders": statistics})
    shop.redis.set(shop.keys.statistics(0), codec.dumps(found))
    shop.plan(0, snapshot=found)
    columns: dict[str, tuple[str, list[Any]]] = {
        "order_id": ("bigint", list(range(8))),
        "customer_id": ("bigint", [7, 7, 7, 7, 1, 2, 3, None]),
        "total": ("double", ["1.5"] * 8),
        "ts": ("timestamp", [1_790_000_000_000_000] * 8),
    }
    shop.redis.hset(shop.keys.samples, "orders", StreamSample(9000, 8, columns).dumps())


@pytest.mark.e2e
def test_what_is_kept_is_said(browser: Browser, shop: Service) -> None:
    columns = {"code": "string", "at": "timestamp"}
    table = {"name": "airlines", "columns": columns, "kind": "table", "key": ["code"]}
    shop.post("/v1/streams", table)
    kept = {"name": "kept", "columns": columns, "event_time": "at", "retain": "2 days"}
    shop.post("/v1/streams", kept)
    with opened(browser, shop, f"{PAGE}airlines") as (page, complaints):
        for text in ("table for look-ups", "code", "the last row of each key"):
            expect(page.locator("#figures")).to_contain_text(text)
        assert not complaints
    with opened(browser, shop, f"{PAGE}kept") as (page, complaints):
        expect(page.locator("#figures")).to_contain_text("rows of the last 2 days")
        assert not complaints


@pytest.mark.e2e
def test_of_many_readers_a_dozen_are_named(browser: Browser, shop: Service) -> None:
    bodies = [{"id": f"pair_{n:02d}", "sql": PAIR} for n in range(14)]
    shop.post("/v1/queries:batch", {"queries": bodies}, 200)
    with opened(browser, shop, f"{PAGE}orders") as (page, complaints):
        expect(page.locator("#queries li")).to_have_count(13)
        more = page.locator("#queries li").last.get_by_role("link")
        expect(more).to_have_text("and 2 more")
        more.click()
        expect(page.locator("#queries tbody tr")).to_have_count(14)
    assert not complaints


@pytest.mark.e2e
def test_a_table_is_read_again(browser: Browser, settings: ServiceSettings) -> None:
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        source = {"format": "files", "path": "/data/airlines", "options": {"type": "csv"}}
        table = {"name": "airlines", "columns": {"code": "string"}, "kind": "table"}
        service.post("/v1/streams", {**table, "source": source})
        service.post("/v1/streams", {**table, "name": "plain", "kind": "stream", "source": source})
        rows = {"airlines": TableProgress(1, read_at=1e9, rows=1234)}
        service.progress(Progress("running", input=InputProgress(tables=rows)))
        with opened(browser, service, f"{PAGE}airlines") as (page, complaints):
            figures = page.locator("#figures")
            expect(figures).to_contain_text("1,234")
            expect(figures).to_contain_text("1, complete since")
            page.get_by_role("button", name="Read again").click()
            expect(figures).to_contain_text("version 2 is being read")
            assert not complaints
        with opened(browser, service, f"{PAGE}plain") as (page, complaints):
            expect(page.locator("#figures")).to_contain_text("as queries require")
            expect(page.get_by_role("button", name="Read again")).to_be_hidden()
            assert not complaints


@LOOKS
def test_what_a_stream_brings(browser: Browser, shop: Service, width: int, scheme: Any) -> None:
    measured(shop)
    shop.source("orders", SourceState.READING)
    with opened(browser, shop, f"{PAGE}orders") as (page, complaints):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator("#status")).to_have_text("reading")
        for text in ("9,000", "120, for 1.5 s", "2", "as queries require"):
            expect(page.locator("#figures")).to_contain_text(text)
        expect(page.locator("#queries li")).to_have_count(len(QUERIES))
        expect(page.locator("#columns tbody tr")).to_have_count(4)
        expect(page.locator("#columns")).to_contain_text("7 (50.0 %)")
        expect(page.locator("#columns")).to_contain_text("12.5 %")
        expect(page.locator("#columns")).to_contain_text("2026-09-21")
        expect(page.locator("#delays")).to_contain_text("in order")
        nothing_is_cut(page)
        page.locator("#queries").get_by_role("link", name=LONGEST).click()
        expect(page.locator("#name")).to_have_text(LONGEST)
    assert not complaints


@pytest.mark.e2e
def test_a_source_that_fails_is_red_and_says_why(browser: Browser, shop: Service) -> None:
    measured(shop)
    shop.source("orders", SourceState.FAILED, "no broker answers at kafka:9092")
    piece = UnreadPiece("/data/<b>1</b>.csv", "rows", 3, 5, 2, None, "bad-row", "not a number", 7)
    progress = Progress.loads(str(shop.redis.get(shop.keys.runtime)))
    intake = {"orders": StreamIntake(120, 1.5, unread=Unread(1, 0, (piece,)))}
    shop.progress(replace(progress, input=InputProgress(intake)))
    with opened(browser, shop) as (page, complaints):
        page.locator("#unread").get_by_role("link", name="orders").click()
        expect(page.locator("#problems")).to_contain_text("no broker answers at kafka:9092")
        expect(page.locator("#problems")).to_contain_text("Retrying")
        expect(page.locator("#status")).to_have_text("failed")
        expect(page.locator("#unread-list")).to_contain_text("/data/<b>1</b>.csv, rows 3 to 5")
    assert not complaints


def test_the_progress_of_a_snapshot_is_shown(browser: Browser, shop: Service) -> None:
    measured(shop)
    progress = Progress.loads(str(shop.redis.get(shop.keys.runtime)))
    intake = {"orders": StreamIntake(120, 1.5, snapshot=SnapshotProgress(9000, 4500))}
    shop.progress(replace(progress, input=InputProgress(intake)))
    with opened(browser, shop, f"{PAGE}orders") as (page, complaints):
        expect(page.locator("#figures")).to_contain_text("4,500 of 9,000 rows read")
    assert not complaints


@pytest.mark.e2e
def test_rows_per_second_are_counted_while_the_page_is_open(
    browser: Browser, shop: Service
) -> None:
    measured(shop)
    with opened(browser, shop, f"{PAGE}orders") as (page, complaints):
        expect(page.locator("#figures")).to_contain_text("counting")
        progress = Progress.loads(str(shop.redis.get(shop.keys.runtime)))
        counts = {"orders": {"input": 9500, "late": 2}}
        shop.progress(replace(progress, streams=counts))
        expect(page.locator("#rate-note")).to_contain_text("a second since")
        expect(page.locator("#figures")).to_contain_text("9,500")
        expect(page.locator("#figures")).not_to_contain_text("counting")
    assert not complaints


@pytest.mark.e2e
def test_a_stream_is_changed_and_what_is_refused_is_said(browser: Browser, shop: Service) -> None:
    measured(shop)
    with opened(browser, shop, f"{PAGE}orders") as (page, complaints):
        page.get_by_label("Description").fill("what people have bought")
        page.get_by_label("Idle timeout").fill("10 minutes")
        page.get_by_label("Keep late rows").check()
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#saved")).to_have_text("Saved.")
        found = shop.get("/v1/streams/orders")
        assert found["description"] == "what people have bought"
        assert found["idle_timeout"] == "10 minutes"
        assert found["keep_late"] is True
        expect(page.locator("#description")).to_have_text("what people have bought")
        assert not complaints
        # A ttl of orders needs event times in joined streams; customers have none.
        page.get_by_label("Kept for").fill("7 days")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#change-refusal")).to_contain_text("declares none")
        page.get_by_label("Kept for").fill("")
        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_role("button", name="Delete it").click()
        expect(page.locator("#delete-refusal")).to_contain_text("late-shipments-by-customer")
        page.get_by_label("Idle timeout").fill("soon")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#change-refusal")).to_contain_text("'soon'")
        expect(page.get_by_label("Idle timeout")).to_be_focused()


@pytest.mark.e2e
def test_the_watermark_what_waits_for_it_and_the_last_hours(
    browser: Browser, shop: Service
) -> None:
    measured(shop)
    shop.call("PATCH", "/v1/streams/customers", 200, {"description": "all"})
    body = {"name": "refunds", "columns": {"order_id": "bigint", "ts": "timestamp"}}
    shop.post("/v1/streams", {**body, "event_time": "ts"})
    sql = "SELECT o.order_id FROM orders o JOIN refunds r ON o.order_id = r.order_id"
    shop.post("/v1/queries", {"id": "refunds_of_orders", "sql": sql})
    progress = Progress.loads(str(shop.redis.get(shop.keys.runtime)))
    hour = 3_600_000_000
    marks = {"orders": 500_000 * hour, "refunds": 500_001 * hour}
    telemetry = replace(progress.telemetry, watermarks=marks)
    shop.progress(replace(progress, telemetry=telemetry))
    for minute, rate in enumerate((10.0, 20.0, 15.0)):
        point = HistoryPoint(
            at=4_000_000_000 + 60 * minute, batch_seconds=0.5, rows={"orders": rate}, results={}
        )
        shop.redis.rpush(shop.keys.history, point.model_dump_json())
    with opened(browser, shop, f"{PAGE}orders") as (page, complaints):
        expect(page.locator("#time")).to_contain_text("2027-01-15 08:00:00 UTC")
        expect(page.locator("#time")).to_contain_text("refunds_of_orders: their slowest stream")
        expect(page.locator("#time")).not_to_contain_text("p99-audit")
        expect(page.locator("#hours-note")).to_contain_text("3 min in points of a minute")
        expect(page.locator("#hours-note")).to_contain_text("at most 20 a second")
        page.goto(page.url.replace("orders", "refunds"))
        expect(page.locator("#time")).to_contain_text("no query")
        page.goto(page.url.replace("stream/refunds", "batches"))
        expect(page.locator("#hours-note")).to_contain_text("at most 500 ms")
        page.goto(page.url.replace("batches", "query/p99-audit"))
        expect(page.locator("#hours-note")).to_contain_text("at most 0/s")
    assert not complaints
    assert shop.get("/v1/streams/orders")["watermark"] == "2027-01-15T08:00:00Z"


def test_a_stream_that_is_not_there(browser: Browser, shop: Service) -> None:
    with opened(browser, shop, f"{PAGE}nothing") as (page, complaints):
        expect(page.locator("#missing")).to_be_visible()
    assert not complaints
