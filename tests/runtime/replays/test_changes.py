"""Tests of streams with inserts and deletes: the sum of all results is the join of the net inputs,
after every batch.

``python -m tests.support.scenarios.run --engine local --changes`` runs as many scenarios as one
likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from anabranch_runtime.inspection import describe
from tests.support.oracles.oracle import SIGNED
from tests.support.scenarios.changes import generate_with_changes, generate_with_upserts
from tests.support.scenarios.run import assert_exact
from tests.support.scenarios.seeds import (
    CHANGES_FEW,
    CHANGES_HOSTS,
    CHANGES_MANY,
    UPSERTS_FEW,
    UPSERTS_HOSTS,
    UPSERTS_MANY,
    parts,
)
from tests.support.worlds.local_replay import LocalReplay

#: Features that the scenarios must cover.
WANTED = {
    "MIR",
    "invalid tuples",
    "late tuples",
    "one tuple in two aliases",
    "past emitted",
    "restart",
    "result of the past",
    "revision taken",
}


@pytest.mark.e2e
def test_changes_are_exact(redis: str, tmp_path: Path) -> None:
    assert_exact(
        CHANGES_FEW, tmp_path, redis, generate_with_changes, WANTED, past=True, revised=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(CHANGES_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_changes_are_exact(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    wanted = {*WANTED, "backfill done"}
    assert_exact(seeds, tmp_path, redis, generate_with_changes, wanted, past=True, revised=True)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(CHANGES_HOSTS, 25), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_changes_on_several_hosts_are_exact(
    seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    assert_exact(seeds, tmp_path, redis, generate_with_changes, (), past=True, hosts=True)


@pytest.mark.e2e
def test_upserts_are_exact(redis: str, tmp_path: Path) -> None:
    assert_exact(UPSERTS_FEW, tmp_path, redis, generate_with_upserts, {"restart"}, past=True)


def test_upserts_on_several_hosts_are_exact(redis: str, tmp_path: Path) -> None:
    assert_exact(UPSERTS_HOSTS, tmp_path, redis, generate_with_upserts, (), past=True, hosts=True)


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [False, True])
@pytest.mark.parametrize("seeds", parts(UPSERTS_MANY, 25), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_upserts_are_exact(
    seeds: Sequence[int], hosts: bool, redis: str, tmp_path: Path
) -> None:
    assert_exact(
        seeds,
        tmp_path,
        redis,
        generate_with_upserts,
        {"MIR", "restart", "result of the past"},
        past=True,
        revised=not hosts,
        hosts=hosts,
    )


UPSERT = {"kind": "upsert", "key": ["k"], "changes": {"operation": None}, "retain": "all"}
LOOKED_UP = "SELECT o.id, p.v FROM orders o JOIN prices p ON o.k = p.k"
FOLLOWING = "SELECT o.id, p.v FROM prices p LEFT JOIN orders o ON o.k = p.k"


@pytest.mark.parametrize(
    ("form", "sql"),
    [
        pytest.param({"kind": "table", "key": ["k"]}, FOLLOWING, marks=pytest.mark.e2e),
        pytest.param(UPSERT, LOOKED_UP, marks=pytest.mark.slow),
        pytest.param({"kind": "table", "key": ["k"]}, LOOKED_UP, marks=pytest.mark.slow),
    ],
    ids=["followed", "upserts", "looked-up"],
)
def test_stored_rows_do_not_grow_with_updates(
    form: dict[str, Any], sql: str, redis: str, tmp_path: Path
) -> None:
    """A store has a few times as many rows as keys, however often each is updated."""
    rng, keys, rows = np.random.default_rng(5), 20, 3_000
    drawn = {"k": rng.integers(0, keys, rows), "v": rng.integers(0, 9, rows)}
    pq.write_table(pa.table(drawn), tmp_path / "prices.parquet")
    orders = {"k": np.arange(50) % keys, "id": np.arange(50)}
    pq.write_table(pa.table(orders), tmp_path / "orders.parquet")
    document = {
        "streams": {
            "prices": {"path": "prices.parquet", "rows_per_batch": 60, **form},
            "orders": {"path": "orders.parquet", "rows_per_batch": 1},
        },
        "queries": {"q": {"sql": sql}},
        "epochs": {"every": 50},
    }
    (tmp_path / "SCENARIO.yaml").write_text(yaml.safe_dump(document))
    LocalReplay(tmp_path / "SCENARIO.yaml", tmp_path / "out", redis, tasks=1).run()
    stored = {s["store"]: s["rows"] for s in describe(tmp_path / "out" / "state")["stores"]}
    most = max(n for name, n in stored.items() if name.startswith("prices"))
    assert keys <= most < 30 * keys, stored
    if (form["kind"], sql) == ("table", LOOKED_UP):
        return  # each order keeps the price of its arrival
    last = dict(zip(drawn["k"].tolist(), drawn["v"].tolist(), strict=True))
    rows_now = duckdb.execute(
        f"SELECT id, v, {SIGNED} AS n FROM '{tmp_path}/out/results/q/*.parquet'"
        " GROUP BY ALL HAVING n <> 0 ORDER BY ALL"
    ).fetchall()
    assert rows_now == [(n, last[n % keys], 1) for n in range(50)]
