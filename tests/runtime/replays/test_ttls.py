"""Tests of streams' ttls that are set, shortened, extended and removed while queries run, against
the oracle.

``python -m tests.support.scenarios.run --engine local --ttl`` runs as many scenarios as one likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from anabranch_runtime.inspection import describe
from tests.support.oracles.oracle import from_spark
from tests.support.scenarios.file import read_scenario
from tests.support.scenarios.run import assert_exact
from tests.support.scenarios.seeds import TTL_FEW, TTL_MANY, parts
from tests.support.scenarios.ttls import generate_with_ttls
from tests.support.worlds.local_replay import LocalReplay

#: Features that the scenarios must cover.
WANTED = {
    "activated anew, looser",
    "activated anew, tighter",
    "activated anew, less in sight",
    "results by several activations",
    "expired",
    "restart",
    "MIR",
}
BATCHES, ROWS, MINUTES = 30, 20, 10


def test_runs_with_ttls_are_exact(redis: str, tmp_path: Path) -> None:
    assert_exact(TTL_FEW, tmp_path, redis, generate_with_ttls, WANTED)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(TTL_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_runs_with_ttls_are_exact(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    assert_exact(seeds, tmp_path, redis, generate_with_ttls, WANTED)


def written(folder: Path, retention: Any) -> Path:
    """Write a scenario with one query without a window; ten minutes of event time per batch."""
    rng = np.random.default_rng(5)
    batches = np.repeat(np.arange(BATCHES), ROWS)
    moments = (batches * MINUTES + rng.integers(0, MINUTES, len(batches))) * 60_000_000
    for name in ("r", "s"):
        keys = pa.array(rng.integers(0, 5, len(batches)), pa.int64())
        times = pa.array(moments, pa.timestamp("us", tz="UTC"))
        pq.write_table(pa.table({"k": keys, "ts": times}), folder / f"{name}.parquet")
    stream = {"event_time": "ts", "lateness": "5 minutes", "rows_per_batch": ROWS}
    document = {
        "streams": {
            n: {**stream, "path": f"{n}.parquet", "retention": retention} for n in ("r", "s")
        },
        "queries": {"q": {"sql": "SELECT r.ts, s.ts AS other FROM r JOIN s ON r.k = s.k"}},
        "epochs": {"every": 2},
    }
    path = folder / "SCENARIO.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def stored(out: Path) -> int:
    """Return the number of rows in the newest state."""
    return sum(s["rows"] for s in describe(out / "state")["stores"])


@pytest.mark.e2e
def test_state_without_windows_is_bounded_by_ttls(redis: str, tmp_path: Path) -> None:
    (tmp_path / "free").mkdir()
    (tmp_path / "bound").mkdir()
    kept = []
    for name, retention in (("free", None), ("bound", {"ttl": "30 minutes"})):
        path = written(tmp_path / name, retention)
        LocalReplay(path, tmp_path / name / "out", redis).run()
        kept.append(stored(tmp_path / name / "out"))
    assert kept[0] == 2 * BATCHES * ROWS
    # Half an hour, the lateness, and the rest of the oldest and newest batches' segments.
    assert kept[1] <= 2 * ROWS * (30 + 5 + 2 * MINUTES) // MINUTES


def test_each_activation_is_exact(redis: str, tmp_path: Path) -> None:
    changes = {4: {"ttl": "20 minutes"}, 12: {"ttl": "2 hours"}, 13: {"ttl": "2 hours"}, 20: None}
    path = written(tmp_path, changes)
    replay = LocalReplay(path, tmp_path / "out", redis)
    last = replay.run()["q"]

    lives = (*last.earlier, last)
    assert [(a.activated_batch, a.expired_batch) for a in lives] == [
        (0, 6),
        (6, 14),
        (14, 22),
        (22, None),
    ]
    hour = 3_600_000_000
    assert [a.retention for a in lives] == [
        ((0, width), (width, 0)) for width in (None, hour // 3, 2 * hour, None)
    ]
    assert [a.complete for a in lives] == ["always", "always", "from", "never"]
    dropped = lives[2].visible_from["r"].event_time
    assert dropped is not None
    # When it was dropped, the greatest event time was at least so much later.
    assert dropped <= (14 * MINUTES - 20 - 5) * 60_000_000
    oracle = replay.oracle()
    try:
        query = from_spark(read_scenario(path).queries["q"].sql, oracle.columns())
        entry = read_scenario(path).queries["q"]
        found = oracle.compare(query, entry, last, tmp_path / "out" / "results" / "q")
        assert not found.problems
        each = [len(oracle.rows(query, entry, replace(a, earlier=()))) for a in lives]
        assert list(accumulate(each)) == [a.results for a in lives]
        assert found.got == last.results
        assert all(each)
    finally:
        oracle.close()
