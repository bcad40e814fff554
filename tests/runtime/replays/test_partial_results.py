"""Tests that intermediate results that exclude values, and plans with substreams, have the join's
results.

Each epoch has an odd plan, over one key with few frequent values.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from anabranch_contract.plans.ruleset import StoreSpec
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.storage.partial import Partial
from anabranch_runtime.task import inserts, worker
from anabranch_runtime.task.stores import kept_part
from tests.support.oracles.oracle import Oracle, OracleQuery
from tests.support.plain_service import odd_plans
from tests.support.scenarios.file import read_scenario
from tests.support.worlds.local_replay import LocalReplay

ROWS, BATCHES = 120, 12
NAMES = "RSTU"
CONDITIONS = ("r.a = s.a", "s.a = t.a", "t.a = u.a")
COLUMNS = ", ".join(f"{name.lower()}.n AS {name.lower()}n" for name in NAMES)
SQL = f"SELECT {COLUMNS} FROM R r, S s, T t, U u WHERE " + " AND ".join(CONDITIONS)


def write(folder: Path, seed: int) -> Path:
    """Write four streams with one key; each stream has another frequent value."""
    rng = Random(seed)
    streams: dict[str, Any] = {}
    folder.mkdir()
    times = [1_767_225_600_000_000 + i * 1_000_000 for i in range(ROWS)]
    for at, name in enumerate(NAMES):
        keys = [at if rng.random() < 0.15 else rng.randrange(40) for _ in range(ROWS)]
        table = {
            "a": pa.array([None if rng.random() < 0.03 else key for key in keys], pa.int64()),
            "n": pa.array(range(ROWS), pa.int64()),
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
        }
        pq.write_table(pa.table(table), folder / f"{name}.parquet")
        streams[name] = {
            "path": f"{name}.parquet",
            "event_time": "ts",
            "rows_per_batch": ROWS // BATCHES,
        }
    document = {
        "streams": streams,
        "queries": {"q": {"sql": SQL}},
        "epochs": {"every": 2},
        "optimizer": "clash",
        "parallelism": 2,
    }
    path = folder / "SCENARIO.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def check(path: Path, out: Path, url: str, seed: int) -> Counter[str]:
    """Replay with random plans; return counts of kept and excluded combinations."""
    seen = Counter[str]()

    def watched(layout: Layout, spec: StoreSpec, made: Partial) -> Partial:
        found = kept_part(layout, spec, made)
        if spec.kept is not None:
            seen["kept"] += found.length
            seen["left out"] += made.length - found.length
        return found

    with patch.object(inserts, "kept_part", watched), patch.object(worker, "kept_part", watched):
        activation = LocalReplay(path, out, url, planner=odd_plans(seed)).run()["q"]
    scenario = read_scenario(path)
    oracle = Oracle(scenario)
    try:
        members = tuple((name.lower(), name) for name in NAMES)
        columns = tuple((f"{name.lower()}.n", f"{name.lower()}n", True) for name in NAMES)
        query = OracleQuery(members, columns, CONDITIONS)
        found = oracle.compare(query, scenario.queries["q"], activation, out / "results" / "q")
        assert not found.problems, seed
        assert found.got == activation.results > 0
    finally:
        oracle.close()
    return seen


def test_odd_plans_give_the_join(redis: str, tmp_path: Path) -> None:
    seen = Counter[str]()
    for seed in range(2):
        path = write(tmp_path / f"scenario-{seed}", seed)
        seen += check(path, tmp_path / f"out-{seed}", redis, seed)
    assert seen["kept"]
    assert seen["left out"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 84))
def test_more_odd_plans_give_the_join(redis: str, tmp_path: Path, seed: int) -> None:
    check(write(tmp_path / "scenario", seed), tmp_path / "out", redis, seed)
