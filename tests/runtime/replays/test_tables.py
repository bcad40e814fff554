"""Tests of tables joined with streams: which rows tuples find, and when.

``python -m tests.support.scenarios.run --engine local --tables`` runs as many scenarios as one
likes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from anabranch_runtime.index.latest import ranked
from anabranch_runtime.inspection import describe
from tests.support.scenarios.changes import generate_with_followed
from tests.support.scenarios.run import assert_exact
from tests.support.scenarios.seeds import (
    FOLLOWED_FEW,
    FOLLOWED_HOSTS,
    FOLLOWED_MANY,
    TABLES_FEW,
    TABLES_MANY,
    few,
    parts,
)
from tests.support.scenarios.tables import generate_with_tables
from tests.support.worlds.local_replay import LocalReplay

#: Features that the scenarios must cover.
WANTED = {
    "looks up and is not stored",
    "keeps the latest",
    "merge leaves out what is not the latest",
    "restart",
    "MIR",
}


def test_look_ups_are_exact(redis: str, tmp_path: Path) -> None:
    assert_exact(TABLES_FEW, tmp_path, redis, generate_with_tables, WANTED)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(TABLES_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_look_ups_are_exact(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    assert_exact(seeds, tmp_path, redis, generate_with_tables, WANTED)


@pytest.mark.parametrize("seeds", few(FOLLOWED_FEW, 19, 49), ids=str)
def test_followed_tables_are_exact(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    wanted = {"MIR", "restart", "result of the past", "revision taken"}
    make = generate_with_followed
    assert_exact(seeds, tmp_path, redis, make, wanted, past=True, revised=True)


@pytest.mark.e2e
@pytest.mark.parametrize("seeds", few(FOLLOWED_HOSTS, 20), ids=str)
def test_followed_tables_on_several_hosts_are_exact(
    seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    assert_exact(seeds, tmp_path, redis, generate_with_followed, (), past=True, hosts=True)


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [False, True])
@pytest.mark.parametrize("seeds", parts(FOLLOWED_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_followed_tables_are_exact(
    seeds: Sequence[int], hosts: bool, redis: str, tmp_path: Path
) -> None:
    make = generate_with_followed
    assert_exact(seeds, tmp_path, redis, make, (), past=True, revised=not hosts, hosts=hosts)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1))
def test_rows_are_ranked_by_batch_and_position(rows: list[tuple[int, int]]) -> None:
    batches, positions = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    places = sorted(set(rows))
    assert ranked(batches, positions).tolist() == [places.index(row) for row in rows]


# --- by hand -----------------------------------------------------------------------------------


def run(
    redis: str,
    folder: Path,
    tables: Mapping[str, Mapping[str, list[int | None]]],
    queries: Mapping[str, Any],
    streams: Mapping[str, Mapping[str, Any]],
    *,
    tasks: int = 2,
) -> Path:
    """Run a scenario over streams and tables of numbers; return its output folder."""
    folder.mkdir(exist_ok=True)
    for name, columns in tables.items():
        plain = {c: pa.array(values, pa.int64()) for c, values in columns.items() if c != "ts"}
        if "ts" in columns:
            moments = [m if m is None else m * 60_000_000 for m in columns["ts"]]
            plain["ts"] = pa.array(moments, pa.timestamp("us", tz="UTC"))
        pq.write_table(pa.table(plain), folder / f"{name}.parquet")
    document = {
        "streams": {
            name: {"path": f"{name}.parquet", "rows_per_batch": 1, **entry}
            for name, entry in streams.items()
        },
        "queries": queries,
        "epochs": {"every": 2},
    }
    path = folder / "SCENARIO.yaml"
    path.write_text(yaml.safe_dump(document))
    LocalReplay(path, folder / "out", redis, tasks=tasks).run()
    return folder / "out"


def results(out: Path, query: str = "q") -> list[tuple[Any, ...]]:
    """Return the results of a query, in order of batches."""
    files = sorted(str(f) for f in (out / "results" / query).glob("*.parquet"))
    found = duckdb.execute(f"SELECT * FROM read_parquet({files}, filename = true)").fetchall()
    return [row[:-1] for row in sorted(found, key=lambda r: (r[-1], *map(str, r[:-1])))]


LOOK_UP = {"sql": "SELECT o.v AS o, p.v AS p FROM orders o JOIN prices p ON p.k = o.k"}


def test_an_order_meets_the_price_of_its_batch(redis: str, tmp_path: Path) -> None:
    """A batch has an order, and two prices: the second of a key replaces the first."""
    prices: dict[str, list[int | None]] = {
        "k": [1, 1, 2, 1, None, None, 1, 2],
        "v": [10, 11, 20, 12, 90, 91, 13, 21],
    }
    orders: dict[str, list[int | None]] = {"k": [1, 1, 2, 2, 1], "v": [1, 2, 3, 4, 5]}
    for tasks in (1, 3):
        out = run(
            redis,
            tmp_path / str(tasks),
            {"prices": prices, "orders": orders},
            {"q": LOOK_UP, "late": {**LOOK_UP, "register_at": 1}},
            {"prices": {"kind": "table", "key": ["k"], "rows_per_batch": 2}, "orders": {}},
            tasks=tasks,
        )
        assert results(out) == [(1, 11), (2, 12), (3, 20), (4, 21), (5, 13)]
        assert results(out, "late") == [(3, 20), (4, 21), (5, 13)]


def test_without_a_key_all_rows_are_there_and_none_completes_a_result(
    redis: str, tmp_path: Path
) -> None:
    out = run(
        redis,
        tmp_path / "world",
        {
            "prices": {"k": [1, 1, 1], "v": [10, 11, 12]},
            "orders": {"k": [1, 2, 1], "v": [1, 2, 3]},
        },
        {"q": LOOK_UP},
        {"prices": {"kind": "table"}, "orders": {}},
    )
    assert results(out) == [(1, 10), (3, 10), (3, 11), (3, 12)]
    stores = {s["store"]: s["rows"] for s in describe(out / "state")["stores"]}
    assert [name.partition("/")[0].partition("[")[0] for name in stores] == ["prices"], stores
    assert set(stores.values()) == {3}


@pytest.mark.e2e
def test_streams_are_bounded_among_themselves(redis: str, tmp_path: Path) -> None:
    """Two streams in a window of two minutes, and a table: the streams' rows expire."""
    count = 60
    times: list[int | None] = list(range(count))
    ones: list[int | None] = [1] * count
    timed = {"event_time": "ts", "lateness": "0 seconds"}
    sql = (
        "SELECT r.v, s.v AS w, p.v AS p FROM r JOIN s ON r.k = s.k JOIN prices p ON p.k = s.k"
        " WHERE p.v > 0"
    )
    out = run(
        redis,
        tmp_path / "world",
        {
            "r": {"k": ones, "v": times, "ts": times},
            "s": {"k": ones, "v": times, "ts": times},
            "prices": {"k": ones, "v": times},
        },
        {"q": {"sql": sql, "window": "2 minutes"}},
        {"r": timed, "s": timed, "prices": {"kind": "table", "key": ["k"]}},
    )
    near = [(i, j) for i in range(count) for j in range(count) if abs(i - j) <= 2]
    expected = sorted((i, j, max(i, j)) for i, j in near if max(i, j) > 0)
    assert sorted(results(out)) == expected
    for store in describe(out / "state")["stores"]:
        if not store["store"].startswith("prices"):
            assert store["rows"] < 30, store
