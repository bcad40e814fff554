"""Tests that views over rationed joined rows report completeness and scaled values.

Runs with restarts and failed attempts are compared with sums over lists of rows.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.plans.rations import Ranking
from anabranch_contract.protocol.activations import Activation, LeftOut
from anabranch_runtime.index.ranks import WHOLE, limit, ranks
from anabranch_runtime.views.parts import BATCH, COMPLETENESS
from tests.support.worlds.view_runs import Drawn, ViewRun, draw_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    #: Returns a row's groups.
    Keys = Callable[[dict[str, Any]], list[dict[str, Any]]]

RANKING = Ranking((("n", "bigint"), ("ts", "timestamp")), by_batch=True)
EVERYTHING = "count(*) AS c, count(n) AS cn, sum(n) AS s, avg(n) AS a, CAST(avg(d) AS DOUBLE) AS e"
BY_KEY = f"SELECT k, {EVERYTHING}, max(n) AS m FROM t GROUP BY k"
OF_ALL = f"SELECT {EVERYTHING} FROM t"
WINDOWS = (
    "SELECT window.start AS w, k % 2 AS k, count(*) AS c, count(n) AS cn, sum(n) AS s, avg(n) AS a,"
    " CAST(avg(d) AS DOUBLE) AS e FROM t GROUP BY window(ts, '30 minutes', '15 minutes'), k % 2"
)


@dataclass
class Sampled:
    """A view whose input rows are partly withheld, and a record of the kept rows."""

    run: ViewRun
    rng: Random
    kept: list[dict[str, Any]] = field(default_factory=list)
    withheld: float = 0.0
    shares: list[float] = field(default_factory=list)

    def feed(self, rows: pa.RecordBatch, share: float, *, fail: bool = False) -> None:
        """Run a batch and keep a ``share`` of it; ``fail``: publishing fails at first."""
        run, batch = self.run, self.run.world.state.next_batch
        found = ranks(RANKING, rows.column, rows.num_rows, batch)
        mask = found < limit(share)
        kept = rows.filter(pa.array(mask))
        slots = [(pa.array(found[mask]), pa.array(np.full(mask.sum(), limit(share) / WHOLE)))]
        for row, rank in zip(kept.to_pylist(), found[mask].tolist(), strict=True):
            self.kept.append({**row, "weight": 1 / share, "share": share, "unit": (batch, rank)})
        self.withheld += kept.num_rows * (1 / share - 1)
        if share < 1:
            self.shares.append(share)
        gaps = (LeftOut(share=min(self.shares)),) if self.shares else ()
        results = len(self.kept)
        run.missing = Activation(0, {}, results=results, withheld=self.withheld, left_out=gaps)
        run.refuses = fail
        run.feed(kept, slots=slots if share < 1 else ())
        if fail:
            run.tables.drain()
            run.refuses = False
            run.restart()
        run.tables.drain()

    def check(self, keys: Keys) -> int:
        """Compare the view's figures with sums over lists; return the number of stated errors."""
        published = self.run.published["v"]
        groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self.kept:
            for key in keys(row):
                groups[json.dumps(key)].append(row)
        assert published.batch == self.run.world.state.next_batch - 1
        assert published.completeness == pytest.approx(
            len(self.kept) / (len(self.kept) + self.withheld)
        )
        assert len(published.scaled) == len(published.rows) == len(groups)
        errors = 0
        for text, scaled in zip(published.rows, map(json.loads, published.scaled), strict=True):
            shown = json.loads(text)
            rows = groups[json.dumps({n: shown[n] for n in ("w", "k") if n in shown})]
            units = len({r["unit"] for r in rows if r["share"] < 1})
            for column, (value, variance) in _expected(rows).items():
                if value is None:
                    assert scaled[column] == {"value": None, "error": None}
                    continue
                assert scaled[column]["value"] == pytest.approx(value, abs=1e-5), (text, column)
                if units < 10:
                    assert scaled[column]["error"] is None
                    continue
                errors += 1
                wanted = 1.96 * variance**0.5
                assert scaled[column]["error"] == pytest.approx(wanted, rel=1e-4, abs=1e-6)
        return errors


def _expected(rows: list[dict[str, Any]]) -> dict[str, tuple[float | None, float]]:
    """Return column -> estimate and variance."""

    def total(of: Callable[[dict[str, Any]], float]) -> tuple[float, float]:
        units: dict[Any, float] = defaultdict(float)
        share = {r["unit"]: r["share"] for r in rows}
        for row in rows:
            units[row["unit"]] += of(row) / row["share"]
        return sum(units.values()), sum((1 - share[u]) * t * t for u, t in units.items())

    def average(name: str) -> tuple[float | None, float]:
        valued = [r for r in rows if r[name] is not None]
        count = sum(1 / r["share"] for r in valued)
        if not count:
            return None, 0.0
        mean = sum(float(r[name]) / r["share"] for r in valued) / count

        def residual(row: dict[str, Any]) -> float:
            return 0.0 if row[name] is None else (float(row[name]) - mean) / count

        return mean, total(residual)[1]

    some = any(r["n"] is not None for r in rows)
    return {
        "c": total(lambda _: 1.0),
        "cn": total(lambda r: float(r["n"] is not None)),
        "s": total(lambda r: float(r["n"] or 0)) if some else (None, 0.0),
        "a": average("n"),
        "e": average("d"),
    }


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], ViewRun]]:
    """Return a function that begins a view, which is closed at the end."""
    runs: list[ViewRun] = []

    def begin(sql: str) -> ViewRun:
        runs.append(ViewRun(tmp_path / str(len(runs)), Drawn(sql, ""), rng=Random(len(runs))))
        return runs[-1]

    yield begin
    for run in runs:
        run.tables.close()


def _windows(row: dict[str, Any]) -> list[dict[str, Any]]:
    quarter = 900
    seconds = int(row["ts"].timestamp())
    first = seconds - seconds % quarter
    found = []
    for begin in (first, first - quarter):
        moment = dt.datetime.fromtimestamp(begin, dt.UTC)
        text = moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
        found.append({"w": text, "k": None if row["k"] is None else row["k"] % 2})
    return found


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        (BY_KEY, lambda row: [{"k": row["k"]}]),
        (OF_ALL, lambda _: [{}]),
        (WINDOWS, _windows),
    ],
)
def test_estimates_are_those_of_the_rows_that_were_kept(
    sql: str, keys: Keys, start: Callable[[str], ViewRun]
) -> None:
    rng = Random(1)
    one = Sampled(start(sql), rng)
    errors = 0
    for batch in range(5):
        share = (1.0, 0.5, 0.8, 0.3, 1.0)[batch]
        one.feed(draw_rows(rng, 250, 0), share, fail=batch == 2)
        if batch:
            errors += one.check(keys)
        else:
            assert not one.run.published["v"].scaled
        if batch == 3:
            one.run.restart()
    assert errors >= 20


def test_where_nothing_is_missing_nothing_is_said(start: Callable[[str], ViewRun]) -> None:
    run = start(BY_KEY)
    rng = Random(2)
    run.feed(draw_rows(rng, 50, 0))
    run.tables.drain()
    published = run.published["v"]
    assert (published.batch, published.completeness, published.partial, published.whole) == (
        0,
        1.0,
        (),
        (),
    )
    assert (published.scaled, published.unscaled) == ((), None)
    for path in (run.folder / "results" / "v").glob("*.parquet"):
        assert pq.read_schema(path).metadata.keys() == {b"anabranch_rows"}


def test_files_of_changes_say_how_complete_they_are(start: Callable[[str], ViewRun]) -> None:
    one = Sampled(start(BY_KEY), Random(3))
    one.feed(draw_rows(one.rng, 100, 0), 1.0)
    one.feed(draw_rows(one.rng, 100, 0), 0.5)
    first, second = sorted((one.run.folder / "results" / "v").glob("*.parquet"))
    assert pq.read_schema(second).equals(pq.read_schema(first))
    found = pq.read_schema(second).metadata
    assert found[BATCH.encode()] == b"1"
    assert float(found[COMPLETENESS.encode()]) == one.run.published["v"].completeness < 1


def test_what_is_owed_is_not_scaled(start: Callable[[str], ViewRun]) -> None:
    """Owed rows will be added later, so the present ones are not scaled."""
    run, rng = start(BY_KEY), Random(4)
    run.missing = Activation(0, {}, results=60, owed=60.0)
    run.feed(draw_rows(rng, 60, 0))
    run.tables.drain()
    published = run.published["v"]
    assert published.completeness == 0.5
    assert published.unscaled is not None
    assert published.unscaled.code == "owed"
    assert set(published.whole) == {None}
    assert [m.column for m in published.partial] == ["", "m"]
    run.missing = Activation(0, {}, results=120, caught_up=60)
    run.feed(draw_rows(rng, 60, 0))
    run.tables.drain()
    published = run.published["v"]
    assert (published.completeness, published.partial, published.whole, published.unscaled) == (
        1.0,
        (),
        (),
        None,
    )


def test_what_was_blind_is_not_known(start: Callable[[str], ViewRun]) -> None:
    run, rng = start(BY_KEY), Random(5)
    run.missing = Activation(0, {}, results=60, blind=1, left_out=(LeftOut(),))
    run.feed(draw_rows(rng, 60, 0))
    run.tables.drain()
    published = run.published["v"]
    assert set(published.whole) == {False}
    for row in map(json.loads, published.scaled):
        assert row["c"] == {"value": None, "error": None}


def test_views_without_counts_say_so(start: Callable[[str], ViewRun]) -> None:
    rng = Random(6)
    missing = Activation(0, {}, results=60, withheld=6.0, left_out=(LeftOut(share=0.5),))
    for sql, codes in (
        ("SELECT DISTINCT k FROM t", ["distinct"]),
        ("SELECT n, k FROM t ORDER BY n LIMIT 3", ["limit"]),
        ("SELECT k, max(n) AS m FROM t GROUP BY k ORDER BY m LIMIT 2", ["groups", "limit", "max"]),
    ):
        run = start(sql)
        run.missing = missing
        run.feed(draw_rows(rng, 60, 0))
        run.tables.drain()
        published = run.published["v"]
        assert [m.code for m in published.partial] == codes
        assert published.unscaled is not None
        assert published.unscaled.code == "nothing-to-scale"
        assert not published.scaled
