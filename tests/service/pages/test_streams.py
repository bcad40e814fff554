"""Tests of the page of all streams in a real browser: the list, a source test, a registration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect

from scripts.postgres import Server
from tests.service.pages.long_names import nothing_is_cut
from tests.service.pages.test_accessibility import broken
from tests.service.pages.test_dashboard import opened
from tests.service.pages.test_stream import measured
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.postgres import run
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

PAGE = "dashboard/streams"


NAMED = "visits_of_customers_by_city_2026"
#: Positions of name, type, event time and key in a row of the table of columns.
NAME, TYPE, TIME, KEY = range(4)


def cell(page: Page, row: int, place: int) -> Locator:
    return page.locator("#columns tbody tr").nth(row).locator("input").nth(place)


@pytest.mark.parametrize("width", mostly_slow([390, 1440]))
def test_a_folder_is_sampled_corrected_and_registered(
    browser: Browser, shop: Service, tmp_path: Path, width: int
) -> None:
    at = pa.array([60_000_000, 0], pa.timestamp("us", "UTC"))
    folder = tmp_path / "visits of customers by city 2026"
    folder.mkdir()
    rows = {"id": [1, 3_000_000_000], "city": ["<b>x</b>", None], "<i>at": at}
    pq.write_table(pa.table(rows), folder / "1")
    with opened(browser, shop, PAGE) as (page, complaints):
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator("#columns-card")).to_be_hidden()
        page.get_by_label("Path").fill(str(folder / "missing"))
        page.get_by_role("button", name="Read a sample").click()
        expect(page.locator("#source-refusal")).to_contain_text("create the path on the machine")
        expect(page.get_by_label("Path")).to_have_attribute("aria-invalid", "true")
        expect(page.get_by_label("Path")).to_be_focused()
        page.get_by_label("Path").fill(str(folder))
        page.get_by_label("Name", exact=True).fill("")
        page.keyboard.press("Enter")
        expect(page.locator("#found")).to_contain_text("readable")
        expect(page.locator("#found")).to_contain_text("could be the key")
        expect(page.locator("#sampled-rows tbody tr")).to_have_count(2)
        expect(page.locator("#sampled-rows")).to_contain_text("<b>x</b>")
        expect(page.locator("#sampled-rows")).to_contain_text("<i>at")
        expect(page.locator("#tested-title")).to_be_focused()
        expect(page.get_by_label("Name", exact=True)).to_have_value(NAMED)
        expect(page.locator("#columns tbody tr")).to_have_count(3)
        nothing_is_cut(page)
        cell(page, 0, TYPE).fill("int")
        page.get_by_role("button", name="Check").click()
        misfit = f"Row 2: id is “3000000000”, not int ({folder}/1, row 2)."
        expect(page.locator("#misfits")).to_have_text(misfit)
        expect(page.locator(".misfit")).to_have_text("does not fit")
        cell(page, 0, TYPE).fill("integral")
        page.get_by_role("button", name="Register").click()
        expect(page.locator("#refusal")).to_contain_text("integral")
        expect(cell(page, 0, TYPE)).to_be_focused()
        cell(page, 0, TYPE).fill("bigint")
        page.get_by_label("Rows are").select_option("table")
        expect(cell(page, 0, KEY)).to_be_checked()
        page.get_by_label("Rows are").select_option("stream")
        cell(page, 0, KEY).uncheck()
        cell(page, 2, TIME).check()
        page.locator("#columns tbody tr").nth(1).get_by_role("button").click()
        assert len(shop.get("/v1/streams")["items"]) == 3
        page.get_by_role("button", name="Check").click()
        expect(page.locator("#misfits li")).to_have_count(0)
        nothing_is_cut(page)
        assert broken(page) == []
        page.get_by_role("button", name="Register").click()
        expect(page.locator("#done")).to_contain_text("is registered")
        expect(page.locator("#done").get_by_role("link")).to_be_focused()
        expect(page.locator("#streams tbody tr")).to_have_count(4)
        page.keyboard.press("Enter")
        expect(page.locator("#name")).to_have_text(NAMED)
    made = shop.get(f"/v1/streams/{NAMED}")
    assert made["source"]["path"] == str(folder)
    assert made["event_time"] == "<i>at"
    assert [(c["name"], c["type"]) for c in made["columns"]] == [
        ("id", "bigint"), ("<i>at", "timestamp"),
    ]  # fmt: skip
    # To the browser, a refused request is an error.
    assert all("422" in text for text in complaints)


@pytest.mark.e2e
def test_columns_are_declared_for_rows_by_http(browser: Browser, shop: Service) -> None:
    with opened(browser, shop, PAGE) as (page, complaints):
        page.get_by_label("Kind of source").select_option("http")
        expect(page.get_by_role("button", name="Read a sample")).to_be_hidden()
        expect(page.locator("#declared")).to_contain_text("POST /v1/streams/NAME/rows")
        page.get_by_label("Name", exact=True).fill("visits")
        page.keyboard.press("Enter")
        page.keyboard.type("id")
        page.keyboard.press("Tab")
        page.keyboard.type("bigint")
        page.get_by_role("button", name="Add a column").click()
        page.keyboard.type("left out")
        page.locator("#columns tbody tr").nth(1).get_by_role("button").click()
        page.get_by_label("Rows are").select_option("upsert")
        cell(page, 0, KEY).check()
        page.get_by_role("button", name="Register").click()
        expect(page.locator("#done")).to_contain_text("visits is registered")
    assert not complaints
    shop.call("POST", "/v1/streams/visits/rows", 202, {"rows": [{"id": 7}]})
    made = shop.get("/v1/streams/visits")
    assert (made["kind"], made["key"], made["source"]["format"]) == (
        "upsert", ["id"], "redis-stream",
    )  # fmt: skip


@pytest.mark.e2e
def test_a_table_of_a_database_and_a_topic(
    browser: Browser, shop: Service, postgres: Server
) -> None:
    run(postgres, "CREATE TABLE sold (id bigint PRIMARY KEY, city text)")
    run(postgres, "ALTER TABLE sold REPLICA IDENTITY FULL")
    run(postgres, "INSERT INTO sold VALUES (1, '<b>Kiel</b>')")
    with opened(browser, shop, PAGE) as (page, complaints):
        page.get_by_label("Kind of source").select_option("kafka")
        page.get_by_role("textbox", name="Topic").fill("orders")
        page.get_by_label("Brokers").fill("127.0.0.1:1")
        page.get_by_role("button", name="Read a sample").click()
        expect(page.locator("#source-refusal")).to_contain_text("127.0.0.1:1")
        page.get_by_label("Kind of source").select_option("postgres")
        page.get_by_role("textbox", name="Table").fill("sold")
        page.get_by_label("Address").fill(postgres.url)
        page.get_by_label("Name", exact=True).fill("")
        page.get_by_role("button", name="Read a sample").click()
        expect(page.locator("#sampled-rows")).to_contain_text("<b>Kiel</b>")
        expect(page.get_by_label("Rows are")).to_have_value("upsert")
        expect(cell(page, 0, KEY)).to_be_checked()
        page.get_by_role("button", name="Register").click()
        expect(page.locator("#done")).to_contain_text("sold is registered")
    assert not complaints
    assert shop.get("/v1/streams/sold")["key"] == ["id"]


@pytest.mark.e2e
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
        expect(page.locator("#columns tbody tr")).to_have_count(2)
        expect(cell(page, 1, TIME)).to_be_checked()
        expect(page.locator("#more")).to_contain_text("retention")
        shop.redis.xadd(shop.keys.stream("visits"), {"id": "1", "at": "2026-01-02 03:04:05"})
        page.get_by_role("button", name="Check").click()
        expect(page.locator("#found")).to_contain_text("2026-01-02 03:04:05")
        assert not complaints
        cell(page, 0, TIME).check()
        expect(cell(page, 1, TIME)).not_to_be_checked()
        page.get_by_role("button", name="Check").click()
        expect(page.locator("#refusal")).to_contain_text("'id'")
        expect(cell(page, 0, TIME)).to_be_focused()
        cell(page, 1, TIME).check()
        page.get_by_label("Options").fill("payload=fields\nurl")
        page.get_by_role("button", name="Check").click()
        expect(page.locator("#refusal")).to_contain_text("is not an option")
        page.get_by_label("Options").fill("payload=fields")
        page.get_by_role("button", name="Register").click()
        expect(page.locator("#done")).to_contain_text("visits is registered")
    assert shop.get("/v1/streams/visits")["retention"]["ttl"] == "1 week"


#: The registration that the form sends after it was filled with one.
SENT = """async (body) => {
  const view = await import("/dashboard/streams/view.js");
  const { kind, values, options, name, lateness, stream, columns } = view.formOf(body);
  const texts = kind.fields.map(({ at }) => [at, String(values[at] ?? "")]);
  const source = view.sourceOf(kind, Object.fromEntries(texts), options, body);
  return [kind.label, view.bodyOf({ name, lateness, kind: stream }, columns, source, body)];
}"""
REGISTERED: dict[str, dict[str, Any]] = {
    "Kafka topic": {
        "event_time": "at",
        "lateness": "1 hour",
        "source": {
            "format": "kafka",
            "options": {"topics": "a,b", "brokers": "b:9092", "start": '{"a": {"0": 1}}'},
        },
    },
    "PostgreSQL table": {
        "kind": "upsert",
        "key": ["id", "<b>"],
        "changes": {"operation": "op_"},
        "source": {"format": "postgres", "options": {"table": "s.t", "url": "postgresql://h/d"}},
    },
    "Iceberg table": {
        "retention": {"ttl": "7 days"},
        "source": {
            "format": "iceberg",
            "options": {"table": "lake.shop.orders"},
            "then": {"format": "kafka", "options": {"topics": "orders", "brokers": "b:9092"}},
        },
    },
    "Recorded Parquet files": {
        "source": {"format": "recorded", "path": "/d/<b>", "rows_per_batch": 7, "options": {}}
    },
    "Redis Stream": {
        "source": {"format": "redis-stream", "rows_per_batch": 5, "options": {"payload": "arrow"}}
    },
    "Another source of Spark": {
        "source": {"format": "csv", "path": "s3://b/c", "options": {"sep": "="}}
    },
}
#: Location of a source -> the proposed name of its stream.
PLACES = {"/data/my orders/": "my_orders", "public.2026": "s_2026", "s3://b/c-d": "c_d", "//": ""}


def test_the_form_loses_nothing_of_a_registration(browser: Browser, shop: Service) -> None:
    columns = [{"name": n, "type": t} for n, t in (("id", "bigint"), ("<b>", "map<int,string>"))]
    columns.append({"name": "at", "type": "timestamp"})
    with opened(browser, shop, PAGE) as (page, _):
        for label, given in REGISTERED.items():
            body = {"name": "visits", "columns": columns, **given}
            assert page.evaluate(SENT, body) == [label, body]
        for place, name in PLACES.items():
            found = "async (p) => (await import('/dashboard/streams/view.js')).nameOf(p)"
            assert page.evaluate(found, place) == name


def test_all_streams_in_a_list(browser: Browser, shop: Service) -> None:
    measured(shop)
    with opened(browser, shop, PAGE) as (page, complaints):
        expect(page.locator("#streams tbody tr")).to_have_count(3)
        expect(page.locator("#streams")).to_contain_text("9,000")
        page.locator("#streams").get_by_role("link", name="orders").click()
        expect(page.locator("#name")).to_have_text("orders")
    assert not complaints
