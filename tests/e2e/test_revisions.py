"""Test of a replay whose ruleset is revised within an epoch, through all real processes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.support.scenarios.file import read_report
from tests.support.worlds.replay_check import replay_and_check

ROWS, BATCHES, SWAP = 120, 12, 6
CHAIN = "SELECT o.n AS o, c.n AS c, i.n AS i FROM c JOIN o ON o.ck = c.ck JOIN i ON i.ok = o.ok"


def scenario(folder: Path, *, every: int | None) -> Path:
    """Write a scenario: up to batch ``SWAP`` an order has at most one customer and all items, then
    the reverse.
    """
    rng = random.Random(7)
    keys: dict[str, list[int]] = {name: [] for name in ("c.ck", "o.ck", "o.ok", "i.ok")}
    for row in range(ROWS * BATCHES):
        # A key unique in its stream, a random one of all these keys, and a common key.
        unique, drawn, common = 1000 + row, 1000 + rng.randrange(ROWS * BATCHES), 0
        swapped = row // ROWS >= SWAP
        keys["c.ck"].append(common if swapped else unique)
        keys["o.ck"].append(common if swapped else drawn)
        keys["o.ok"].append(drawn if swapped else common)
        keys["i.ok"].append(unique if swapped else common)
    number = pa.array(range(ROWS * BATCHES), pa.int64())
    tables = {
        "c": {"ck": keys["c.ck"], "n": number},
        "o": {"ck": keys["o.ck"], "ok": keys["o.ok"], "n": number},
        "i": {"ok": keys["i.ok"], "n": number},
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    document: dict[str, Any] = {
        "streams": {
            name: {"path": f"{name}.parquet", "rows_per_batch": ROWS} for name in sorted(tables)
        },
        "queries": {"chain": {"sql": CHAIN}},
        "epochs": {"every": SWAP},
        # If costs were seconds, plans for so few rows would keep no intermediate results.
        "objective": "tuples",
        "parallelism": 2,
    }
    if every is not None:
        document["revisions"] = {"every": every}
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def revisions(out: Path) -> list[dict[str, Any]]:
    return [r for epoch in read_report(out)["epochs"] for r in epoch["revisions"]]


@pytest.mark.spark
@pytest.mark.slow
def test_a_revised_replay_is_exact_and_repeats(tmp_path: Path) -> None:
    path = scenario(tmp_path, every=2)
    for name in ("one", "two"):
        verdict, _ = replay_and_check(path, tmp_path / name)
        assert not verdict.problems, str(verdict)
    first, second = revisions(tmp_path / "one"), revisions(tmp_path / "two")
    assert json.dumps(first) == json.dumps(second)
    assert first, "what an order finds has swapped"
    assert all(r["next_batch"] % 2 == 0 and r["predicted"] >= 0.1 for r in first)
