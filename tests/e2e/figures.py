"""Compare every figure (count) that a pipeline of ``anabranch up`` shows with DuckDB's over the
same rows.

Rows come in waves: a wave is a file per stream, read whole before the next wave is written. So the
batch in which each row arrived is known, and with it which rows a query may see (``visible_from``)
and which are late or invalid. The streams are the tutorial's, with a table of reference rows.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import duckdb
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from anabranch_client.cli.app import app
from anabranch_client.render.tables import number
from anabranch_client.rest.api import Client
from anabranch_contract.rest.queries import QueryOut, RunOut, VisibleFrom
from tests.support.worlds.processes import wait_until
from tests.support.worlds.up import Up

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATENESS = timedelta(minutes=10)
WINDOW = timedelta(hours=1)
SCHEMAS = {
    "flights": pa.schema(
        [("carrier", pa.string()), ("origin", pa.string()), ("ts", pa.timestamp("us", "UTC"))]
    ),
    "weather": pa.schema(
        [("origin", pa.string()), ("wind", pa.float64()), ("ts", pa.timestamp("us", "UTC"))]
    ),
    "carriers": pa.schema([("carrier", pa.string()), ("name", pa.string())]),
}
_TYPES = {"string": "string", "double": "double", "timestamp[us, tz=UTC]": "timestamp"}
_JOIN = "flights f JOIN weather w ON f.origin = w.origin"
#: Query -> its SQL, and whether it has a window.
QUERIES = {
    "delays": (f"SELECT f.carrier, w.wind FROM {_JOIN}", True),
    "busiest": (f"SELECT w.origin, count(*) AS n FROM {_JOIN} GROUP BY w.origin", True),
    "named": (
        "SELECT c.name, f.origin FROM flights f JOIN carriers c ON f.carrier = c.carrier",
        False,
    ),
}
STORMS = f"SELECT f.carrier, w.wind FROM {_JOIN} WHERE w.wind > 9"


@dataclass(slots=True)
class Stream:
    """Rows of a stream so far, as tuples; their last values are the batch from which on the row has
    arrived, and whether it counts: neither late nor invalid.
    """

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    late: int = 0
    invalid: int = 0
    newest: datetime | None = None

    def add(self, rows: Iterable[tuple[Any, ...]], batch: int, *, timed: bool) -> None:
        """Add the rows of a wave, which is one batch: none is late by others of it."""
        mark = None if self.newest is None else self.newest - LATENESS
        for row in rows:
            moment = row[-1] if timed else None
            invalid = timed and moment is None
            late = moment is not None and mark is not None and moment < mark
            self.invalid += invalid
            self.late += late
            self.rows.append((*row, batch, not (invalid or late)))
            if moment is not None:
                self.newest = moment if self.newest is None else max(self.newest, moment)


@dataclass(slots=True)
class Walk:
    """A pipeline, its input, and the comparison of all its figures with DuckDB.

    Attributes:
        kept: whether streams are retained and reference rows are a table, so that queries that
            come later miss nothing.
        sql: run of a query -> its statement. ``seen``: run -> what it sees, by alias.
        waves: how many there have been.
    """

    up: Up
    url: str
    folder: Path
    browser: Browser | None = None
    kept: bool = False
    streams: dict[str, Stream] = field(default_factory=lambda: {s: Stream() for s in SCHEMAS})
    sql: dict[str, str] = field(default_factory=dict)
    seen: dict[str, dict[str, VisibleFrom]] = field(default_factory=dict)
    waves: int = 0

    # --- actions ---------------------------------------------------------------------------------

    def put(self, *, spoilt: bool = False) -> None:
        """Write a wave of rows into the streams' folders; ``spoilt``: late and invalid
        ones, too.
        """
        rng, batch = Random(self.waves), self.up.committed()
        start = NOON + timedelta(minutes=15 * self.waves)
        origins = ("HAM", "CDG", "LHR", "ARN")

        def moments(count: int) -> list[datetime]:
            return [start + timedelta(seconds=rng.randrange(480)) for _ in range(count)]

        flights: list[tuple[Any, ...]] = [
            (rng.choice(("LH", "AF", "SK")), rng.choice(origins), at) for at in moments(30)
        ]
        weather: list[tuple[Any, ...]] = [
            (rng.choice(origins), rng.randrange(60, 120) / 10, at) for at in moments(20)
        ]
        if spoilt:
            flights += [("LH", "HAM", NOON - timedelta(minutes=n)) for n in (1, 2, 3)]
            flights += [("AF", "CDG", None)] * 2
            weather.append(("HAM", 9.5, NOON - timedelta(hours=1)))
        wave: dict[str, list[tuple[Any, ...]]] = {}
        # Written first, so that flights of the wave find them.
        if self.waves == 0:
            wave["carriers"] = [("LH", "Lufthansa"), ("AF", "Air France")]
        elif self.waves == 1:
            wave["carriers"] = [("SK", "SAS"), ("LH", "Lufthansa Cargo")]
        wave |= {"flights": flights, "weather": weather}
        for stream, rows in wave.items():
            self._write(stream, rows)
            self.streams[stream].add(rows, batch, timed=stream != "carriers")
        self.waves += 1

    def _write(self, stream: str, rows: list[tuple[Any, ...]]) -> None:
        folder, schema = self.folder / stream, SCHEMAS[stream]
        folder.mkdir(parents=True, exist_ok=True)
        pairs = zip(zip(*rows, strict=True), schema, strict=True)
        columns = [pa.array(values, column.type) for values, column in pairs]
        part = folder / ".part"
        pq.write_table(pa.Table.from_arrays(columns, schema=schema), part)
        os.rename(part, folder / f"{self.waves}.parquet")

    def register_streams(self, client: Client) -> None:
        """Register all streams, whose folders already have files."""
        for name, schema in SCHEMAS.items():
            timed = "ts" in schema.names
            client.create_stream(
                name,
                [(f.name, _TYPES[str(f.type)]) for f in schema],
                source={"format": "files", "path": str(self.folder / name)},
                event_time="ts" if timed else None,
                lateness="10 minutes" if timed else None,
                retain="all" if self.kept and timed else None,
                kind=None if timed or not self.kept else "table",
            )

    def register_queries(self, client: Client) -> None:
        """Register all queries, and wait until they are active."""
        for name, (sql, windowed) in QUERIES.items():
            client.create_query(sql, name=name, window="1 hour" if windowed else None)
            self.sql[name] = sql
        self.active(client, *QUERIES)

    def replace(self, client: Client, name: str, sql: str) -> None:
        """Replace a query's run by another statement, and wait until the new run is active."""
        change = client.put_query(name, {"sql": sql, "window": "1 hour"})
        assert change.query is not None
        self.sql[change.query.run] = sql
        self.active(client, name)

    def active(self, client: Client, *names: str) -> None:
        """Wait until the newest runs of queries are active."""
        for name in names:
            wait_until(f"{name} to be active", lambda n=name: client.query(n).status == "active")  # type: ignore[misc]

    def ended(self, client: Client, run: str) -> None:
        """Wait until a run has ended, so that it does not get the next wave."""

        def over() -> bool:
            runs = {r.run: r for r in client.query_runs(run.partition("~")[0]).items}
            return runs[run].expired_batch is not None

        wait_until(f"{run} to end", over)

    def settle(self, client: Client) -> None:
        """Wait until all rows have been read, and views are up to date."""

        def done() -> bool:
            streams = client.streams()
            read = {s.name: s.input_tuples for s in streams}
            if read != {name: len(s.rows) for name, s in self.streams.items()}:
                return False
            # Sources report waiting tuples when they look for the next batch.
            if any(s.waiting_tuples for s in streams):
                return False
            progress = self.up.progress()
            return progress is not None and not any(progress.telemetry.view_lag.values())

        wait_until("all rows to be read", done)

    def restart(self) -> None:
        """Restart ``up``; check that no figure changes while it starts."""
        before = self._figures()
        assert self.up.stop() == 0
        self.up.start()
        seen: Counter[str] = Counter()

        def running() -> bool:
            try:
                found = self._figures()
            except httpx.TransportError:
                return False
            progress = self.up.progress()
            if progress is None:
                return False
            seen[progress.state] += 1
            assert found == before, f"{progress.state}: {found} instead of {before}"
            return progress.state in ("running", "idle")

        wait_until("the runtime to run again", running)
        self.up.wait("\nready\n")
        assert seen["starting"], f"nobody has looked at the start: {seen}"

    def _figures(self) -> dict[str, Any]:
        """Return the figures of all queries and streams that a restart must not change."""
        queries = httpx.get(f"{self.url}/v1/queries", timeout=60).raise_for_status().json()["items"]
        streams = httpx.get(f"{self.url}/v1/streams", timeout=60).raise_for_status().json()["items"]
        fixed = ("results", "joined_rows", "complete", "visible_from")
        counts = ("input_tuples", "late_tuples", "invalid_tuples", "ahead_tuples")
        metrics = self._metrics("query_results", "query")
        active = [q["run"] for q in queries if q["status"] == "active"]
        return {
            **{q["run"]: [q[name] for name in fixed] for q in queries},
            **{s["name"]: [s[name] for name in counts] for s in streams},
            "metrics": {run: metrics.get(run) for run in active},
        }

    def _metrics(self, family: str, label: str) -> dict[str, float]:
        """Return a family of metrics by one of its labels."""
        text = httpx.get(f"{self.url}/metrics", timeout=60).raise_for_status().text
        pattern = rf'^anabranch_{family}{{{label}="([^"]+)"}} (\S+)$'
        return {name: float(value) for name, value in re.findall(pattern, text, re.MULTILINE)}

    # --- the truth -------------------------------------------------------------------------------

    def expected(self, run: RunOut, visible: dict[str, VisibleFrom]) -> list[tuple[Any, ...]]:
        """Return the expected rows in the sink of a run, by its activation and what it sees."""
        if run.activated_batch is None:
            return []
        aliases = {"f": "flights", "w": "weather", "c": "carriers"}
        engine = duckdb.connect()
        engine.execute("SET TimeZone = 'UTC'")
        sql = self.sql[run.run]
        used = {alias: name for alias, name in aliases.items() if f"{name} {alias}" in sql}
        for alias, name in used.items():
            rows = self._visible(name, run.activated_batch, visible[alias])
            schema = [*SCHEMAS[name], pa.field("batch", pa.int64())]
            columns = list(zip(*rows, strict=True)) or [()] * len(schema)
            arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
            engine.register(name, pa.Table.from_arrays(arrays, schema=pa.schema(schema)))
        looked_up = {"c"} & used.keys() if self.kept else set()
        last = (
            f"greatest({', '.join(f'{alias}.batch' for alias in used if alias not in looked_up)})"
        )
        conditions = [f"{last} >= {run.activated_batch}"]
        conditions += [f"{alias}.batch <= {last}" for alias in looked_up]
        if run.expired_batch is not None:
            conditions.append(f"{last} < {run.expired_batch}")
        if "w" in used:
            most = WINDOW // timedelta(microseconds=1)
            conditions.append(f"abs(epoch_us(f.ts) - epoch_us(w.ts)) <= {most}")
        body, _, grouping = sql.partition(" GROUP BY ")
        body += (" AND " if " WHERE " in body else " WHERE ") + " AND ".join(conditions)
        return engine.execute(body + (f" GROUP BY {grouping}" if grouping else "")).fetchall()

    def _visible(self, name: str, activated: int, seen: VisibleFrom) -> list[tuple[Any, ...]]:
        """Return the rows of a stream that an activation sees, with their batches."""
        since = None if seen.event_time is None else datetime.fromisoformat(seen.event_time)
        found = []
        for *row, batch, counts in self.streams[name].rows:
            old = batch >= seen.batch and (since is None or name == "carriers" or row[-1] >= since)
            if counts and (batch >= activated or old or self.kept):
                found.append((*row, batch))
        return found

    # --- the comparison --------------------------------------------------------------------------

    def check(self, client: Client) -> None:
        """Compare every figure with DuckDB's, in REST API, metrics, CLI and console."""
        self.settle(client)
        queries = {q.id: q for q in client.queries()}
        sinks = {name: self._check_query(client, q) for name, q in queries.items()}
        counts = {name: (len(s.rows), s.late, s.invalid, 0) for name, s in self.streams.items()}
        self._check_rest(client, counts)
        self._check_health(client, queries)
        self._check_cli(queries, sinks, counts)
        if self.browser is not None:
            self._check_console(client, queries, sinks, counts)

    def _check_query(self, client: Client, query: QueryOut) -> int:
        """Check all runs of a query, their figures and rows; return the newest run's number of
        rows.
        """
        if query.visible_from is not None:
            self.seen[query.run] = query.visible_from
        view = query.normalised.view is not None
        for run in client.query_runs(query.id).items:
            rows = self.expected(run, self.seen[run.run]) if run.run in self.seen else []

            def right(name: str = run.run, wanted: int = len(rows)) -> bool:
                runs = {one.run: one.results for one in client.query_runs(query.id).items}
                return runs[name] == wanted

            wait_until(f"{run.run} to have {len(rows)} rows", right)
            # The metrics drop a run some epochs after its end.
            metric = self._metrics("query_results", "query").get(run.run)
            active = run.activated_batch is not None and run.expired_batch is None
            assert metric in ((len(rows),) if active else (len(rows), None)), run.run
            if not view:
                assert Counter(_plain(self._sink(run.run))) == Counter(rows), run.run
            elif run.run == query.run and run.run in self.seen:
                assert Counter(_plain(client.rows(query.id).rows)) == Counter(rows), run.run
        assert (query.complete is None) == (query.activated_batch is None)
        return client.query(query.id).results

    def _sink(self, run: str) -> list[dict[str, Any]]:
        """Return the rows that a run has written to its sink."""
        files = sorted((self.up.home / "results" / run).glob("*.parquet"))
        return [row for file in files for row in pq.read_table(file).to_pylist()]

    def _check_rest(self, client: Client, counts: Mapping[str, tuple[int, ...]]) -> None:
        shown = {
            s.name: (s.input_tuples, s.late_tuples, s.invalid_tuples, s.ahead_tuples)
            for s in client.streams()
        }
        assert shown == counts
        rows = {name: count[0] for name, count in counts.items()}
        assert self._metrics("stream_input_tuples", "stream") == rows
        current = client.current_epoch()
        assert current.runtime is not None
        assert current.runtime.input_tuples == sum(c[0] for c in counts.values())
        assert current.runtime.late_tuples == sum(c[1] for c in counts.values())
        assert current.runtime.waiting_tuples == 0
        shares = current.epoch.shares
        assert shares is not None
        cost = sum(share.shapley for share in shares.queries)
        assert abs(cost - current.epoch.cost) <= 1e-6 * max(current.epoch.cost, 1.0)
        if current.saving is not None:
            one = current.saving
            assert one.share == 1 - one.cpu_seconds / one.individual_cpu_seconds
            assert one.lowest - 1e-9 <= one.share <= one.highest + 1e-9

    def _check_health(self, client: Client, queries: dict[str, QueryOut]) -> None:
        """Check that health reports nothing incomplete as healthy."""
        found = {(one.kind, one.name): one for one in client.health().components}
        for name, stream in self.streams.items():
            part = found["stream", name]
            assert (part.state == "ok") == (not stream.late + stream.invalid), part
            if stream.late:
                assert f"{number(stream.late)} late" in part.message
            if stream.invalid:
                assert f"{number(stream.invalid)} invalid" in part.message
        for name, query in queries.items():
            misses = query.status == "active" and query.complete == "never"
            assert misses == (("completeness", name) in found), name
            if self.kept and query.activated_batch is not None:
                assert query.complete == "always", f"{name} misses rows that were retained"

    def _cli(self, *arguments: str) -> str:
        """Return the output of an anabranch command."""
        found = CliRunner().invoke(app, [*arguments, "--url", self.url])
        assert found.exit_code == 0, found.output
        return found.output

    def _check_cli(
        self,
        queries: dict[str, QueryOut],
        sinks: dict[str, int],
        counts: Mapping[str, tuple[int, ...]],
    ) -> None:
        streams = json.loads(self._cli("stream", "list", "--json"))
        names = ("input_tuples", "late_tuples", "invalid_tuples", "ahead_tuples")
        assert {s["name"]: tuple(s[name] for name in names) for s in streams} == counts
        lines = [line.split() for line in self._cli("stream", "list").splitlines()]
        for name, figures in counts.items():
            (line,) = (one for one in lines if one[:1] == [name])
            assert line[3:7] == [number(figure) for figure in figures], line
        listed = {q["id"]: q for q in json.loads(self._cli("query", "list", "--all", "--json"))}
        assert {name: q["results"] for name, q in listed.items()} == sinks
        assert {n: q["complete"] for n, q in listed.items()} == {
            n: q.complete for n, q in queries.items()
        }
        for name, query in queries.items():
            facts = _facts(self._cli("query", "show", name))
            assert facts["results"] == str(sinks[name]), name
            if query.complete in ("always", "never"):
                assert facts["complete from"] == query.complete, name
            if query.expired_batch is not None:
                assert facts["batches"].endswith(f"to {query.expired_batch - 1:,}"), name
            if query.normalised.view is not None:
                rows = json.loads(self._cli("query", "rows", name, "--json"))["rows"]
                assert len(rows) == sinks[name]

    def _check_console(
        self,
        client: Client,
        queries: dict[str, QueryOut],
        sinks: dict[str, int],
        counts: Mapping[str, tuple[int, ...]],
    ) -> None:
        from playwright.sync_api import expect

        assert self.browser is not None
        page = self.browser.new_page(viewport={"width": 1440, "height": 1000}, locale="en-US")
        page.set_default_timeout(60_000)
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        wait = 60_000
        page.goto(self.url)
        expect(page.locator("#facts")).to_contain_text("rows read", timeout=wait)
        facts = _pairs(page.locator("#facts"))
        assert facts["rows read"] == f"{sum(c[0] for c in counts.values()):,}"
        assert facts["late rows"] == f"{sum(c[1] for c in counts.values()):,}"
        complete = {"always": "first result", "never": "never", None: "–"}
        since: dict[str, str] = {}
        saving = page.locator("#saving").inner_text()
        page.goto(f"{self.url}/dashboard/queries")
        for name, query in queries.items():
            link = page.get_by_role("link", name=name, exact=True)
            cells = page.locator("#queries tbody tr").filter(has=link).locator("td")
            expect(cells.nth(3)).to_have_text(f"{sinks[name]:,}", timeout=wait)
            since[name] = cells.nth(5).inner_text()
            if query.complete in complete:
                assert since[name] == complete[query.complete], name
        parts = [float(text) for text in re.findall(r"(-?[\d.]+) %", saving)]
        if len(parts) == 3:
            assert "estimated over" in saving
            assert parts[1] <= parts[0] <= parts[2] or " more CPU time" in saving
        else:
            assert not queries or len(parts) == 1 or "not known yet" in saving, saving

        page.goto(f"{self.url}/dashboard/load")
        expect(page.locator("#load")).to_contain_text("waiting rows", timeout=wait)
        for name, query in queries.items():
            if query.status == "expired":
                continue
            link = page.get_by_role("link", name=name, exact=True)
            cells = page.locator("#queries tbody tr").filter(has=link).locator("td")
            kept = "–" if query.activated_batch is None else "all"
            expect(cells.nth(2)).to_have_text(kept, timeout=wait)
            assert cells.nth(8).inner_text() == since[name], name
        assert _pairs(page.locator("#load"))["waiting rows"] == "0"

        page.goto(f"{self.url}/dashboard/streams")
        for name, (rows, late, invalid, _) in counts.items():
            link = page.get_by_role("link", name=name, exact=True)
            cells = page.locator("#streams tbody tr").filter(has=link).locator("td")
            expect(cells.nth(2)).to_have_text(f"{rows:,}", timeout=wait)
            assert [cells.nth(n).inner_text() for n in (6, 7)] == [f"{late:,}", f"{invalid:,}"]
        for name, (rows, late, invalid, ahead) in counts.items():
            page.goto(f"{self.url}/dashboard/stream/{name}")
            expect(page.locator("#figures")).to_contain_text("rows", timeout=wait)
            figures = _pairs(page.locator("#figures"))
            assert figures["rows"] == f"{rows:,}"
            assert figures["late"].removesuffix(", kept") == f"{late:,}"
            assert (figures["invalid"], figures["ahead"]) == (f"{invalid:,}", f"{ahead:,}")
        for name, query in queries.items():
            page.goto(f"{self.url}/dashboard/query/{name}")
            expect(page.locator("#figures")).to_contain_text("results", timeout=wait)
            figures = _pairs(page.locator("#figures"))
            assert figures["results"] == f"{sinks[name]:,}", name
            joined = client.query(name).joined_rows
            assert figures.get("joined rows") == (None if joined is None else f"{joined:,}")
            word = "rows" if query.normalised.view is not None else "results"
            assert _pairs(page.locator("#sink"))["holds"] == f"{sinks[name]:,} {word}"
            if query.complete == "never":
                assert figures["complete"].startswith("never")
        page.close()
        assert complaints == []


def _plain(rows: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return rows as tuples of values."""
    return [tuple(row.values()) for row in rows]


def _facts(text: str) -> dict[str, str]:
    """Return names and values from a command's output in two columns."""
    found = (re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in text.splitlines())
    return {pair[0]: pair[1] for pair in found if len(pair) == 2}


def _pairs(facts: Locator) -> dict[str, str]:
    """Return names and values of a description list on a page."""
    found = facts.evaluate(
        "list => [...list.children].map(one => [...one.children].map(c => c.textContent.trim()))"
    )
    return dict(found)
