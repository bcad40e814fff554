"""Tests of previews of statements over pushed rows, without a registered query, and with one."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from playwright.sync_api import expect
from typer.testing import CliRunner

from anabranch_client.cli.app import app
from anabranch_contract.rest.tables import PreviewOut
from tests.support.worlds.processes import LivePipeline, live_pipeline

if TYPE_CHECKING:
    from playwright.sync_api import Browser

JOINED = (
    "SELECT c.visitor, s.page, s.price * 2 AS doubled FROM clicks c JOIN sales s ON s.page = c.page"
)
COLUMNS = {
    "clicks": [("page", "bigint"), ("visitor", "string"), ("ts", "timestamp")],
    "sales": [("page", "bigint"), ("price", "decimal(9,2)"), ("ts", "timestamp")],
}
ARROW = {
    "clicks": pa.schema([("page", pa.int64()), ("visitor", pa.string())]),
    "sales": pa.schema([("page", pa.int64()), ("price", pa.decimal128(9, 2))]),
}
#: Maximum number of rows of a stream that a preview reads.
MOST = 256
PATIENCE = 120_000
Rows = list[dict[str, Any]]


def rows_of(stream: str, chance: random.Random, count: int) -> Rows:
    """Return random rows, some without a page."""
    found: Rows = []
    for _ in range(count):
        page = chance.choice([None, *range(30)])
        value = (
            {"visitor": chance.choice([None, "<b>Ada", "Åsa"])}
            if stream == "clicks"
            else {"price": f"{chance.randint(1, 999)}.25"}
        )
        found.append({"page": page, **value, "ts": f"2026-01-31T10:{chance.randint(10, 59)}:00Z"})
    return found


def joined_by_duckdb(rows: dict[str, Rows]) -> Counter[tuple[str, ...]]:
    """Return the result rows of :data:`JOINED`, by DuckDB over the given rows."""
    with duckdb.connect() as oracle:
        for name, schema in ARROW.items():
            columns = {f.name: pa.array([row[f.name] for row in rows[name]]) for f in schema}
            oracle.register(name, pa.table(columns).cast(schema))
        return plain(oracle.execute(JOINED).fetchall())


def plain(rows: Any) -> Counter[tuple[str, ...]]:
    return Counter(tuple(map(str, row)) for row in rows)


def preview(live: LivePipeline, read: dict[str, int]) -> PreviewOut:
    """Return a preview of :data:`JOINED` after so many rows of the streams have been read."""

    def current() -> bool:
        found = live.client.preview(JOINED, limit=10_000)
        return all((s.rows, s.seen) == (min(read[s.stream], MOST), read[s.stream])
                   for s in found.samples)  # fmt: skip

    live.wait("the latest rows", current)
    return live.client.preview(JOINED, limit=10_000)


def by_command(live: LivePipeline) -> list[list[Any]]:
    done = CliRunner().invoke(
        app, ["query", "preview", JOINED, "--limit", "10000", "--json", "--url", live.pipeline.url]
    )
    assert done.exit_code == 0, done.output
    rows: list[list[Any]] = json.loads(done.stdout)["rows"]
    return rows


@pytest.mark.spark
@pytest.mark.e2e
def test_a_join_of_pushed_streams_is_previewed(browser: Browser, tmp_path: Path) -> None:
    chance = random.Random(23)
    with live_pipeline(tmp_path / "home") as live:
        client = live.client
        for name, columns in COLUMNS.items():
            client.create_stream(
                name,
                columns,
                source={"format": "redis-stream"},
                event_time="ts",
                lateness="1 hour",
            )
        assert preview(live, dict.fromkeys(COLUMNS, 0)).rows == []
        pushed = {name: rows_of(name, chance, 120) for name in COLUMNS}
        for name, rows in pushed.items():
            client.push(name, rows)
        found = preview(live, dict.fromkeys(COLUMNS, 120))
        wanted = joined_by_duckdb(pushed)
        assert (found.columns, found.truncated) == (["visitor", "page", "doubled"], False)
        assert len(wanted) > 100
        assert plain(found.rows) == wanted
        assert plain(by_command(live)) == wanted
        on_the_page(browser, live, sum(wanted.values()))
        # If there are more rows than a preview reads, it joins the rows that it has read.
        for name in COLUMNS:
            client.push(name, rows_of(name, chance, 400))
        found = preview(live, dict.fromkeys(COLUMNS, 520))
        latest = {
            name: [
                dict(zip(ARROW[name].names, row, strict=True))
                for row in client.preview(
                    f"SELECT {', '.join(ARROW[name].names)} FROM {name}", limit=MOST
                ).rows
            ]
            for name in COLUMNS
        }
        assert plain(found.rows) == joined_by_duckdb(latest)
        # A registered query reads the same streams; the preview is the same.
        client.create_query(JOINED, name="bought", window="1 hour")
        live.wait("the query", lambda: client.query("bought").status == "active")
        assert preview(live, dict.fromkeys(COLUMNS, 520)).samples


def on_the_page(browser: Browser, live: LivePipeline, count: int) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 1000}, locale="en-US")
    page.set_default_timeout(PATIENCE)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"{live.pipeline.url}/dashboard/what-if")
    page.get_by_role("textbox", name="Statement").fill(JOINED)
    page.get_by_role("button", name="Preview").click()
    note = page.locator("#now-note")
    expect(note).to_contain_text("all rows of clicks: 120, all rows of sales: 120, by DuckDB")
    expect(page.locator("#now-rows th")).to_have_text(["visitor", "page", "doubled"])
    expect(page.locator("#now-rows tbody tr")).to_have_count(min(count, 100))
    page.close()
    assert complaints == []
