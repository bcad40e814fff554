"""Tests of random scenarios over executors in separate processes, each with its own directory.

Spark's ``local-cluster`` is the smallest cluster there is: executors on one machine which share
nothing but the object store, as their caches are below their working directories.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from tests.e2e.test_sources import Streams, some
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.processes import live_pipeline
from tests.support.worlds.replay_check import ROOT

#: Three executors with one slot and one gigabyte each.
MASTER = "local-cluster[3,1,1024]"


@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.parametrize("seeds", mostly_slow(["1000", "1001-1002"]))
def test_runs_on_three_executors_are_exact(seeds: str, tmp_path: Path) -> None:
    _assert_exact(seeds, tmp_path)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["", "--latest", "--past", "--ttl", "--respelled"])
def test_many_runs_on_three_executors_are_exact(kind: str, tmp_path: Path) -> None:
    _assert_exact("1010-1029", tmp_path, *kind.split())


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("executors", [1, 2])
def test_sources_that_spark_reads_get_slots_beside_batches(executors: int, tmp_path: Path) -> None:
    chance, sql = random.Random(4), "SELECT p.v AS pv, r.v AS rv FROM p JOIN r ON p.k = r.k"
    # Without an object store, the executors share the state directory.
    with live_pipeline(tmp_path, master=f"local-cluster[{executors},1,1024]") as live:
        streams = Streams(live, tmp_path, redis.Redis.from_url(live.pipeline.redis_url))
        streams.add("q", "redis-stream")
        streams.activate("all", "SELECT q.k, q.v FROM q")
        streams.entries("q", some(chance, 40, 30), "json")
        # The stage of the first batches takes all slots.
        streams.wait_for_input()
        streams.add("r", "redis-stream")
        (tmp_path / "p").mkdir()
        streams.add("p", "parquet", str(tmp_path / "p"))
        streams.activate("pr", sql)
        for _ in range(3):
            streams.file("p", some(chance, 40, 30), "parquet")
            streams.entries("r", some(chance, 40, 30), "json")
            streams.wait_for_input()
        live.pipeline.finish_runtime()
        assert streams.check("all", "SELECT q.k, q.v FROM q") == 40
        assert streams.check("pr", sql) > 100


def _assert_exact(seeds: str, folder: Path, *options: str) -> None:
    command = [sys.executable, "-m", "tests.support.scenarios.run", "--engine", "spark", "--json"]
    done = subprocess.run(
        [*command, "--master", MASTER, "--objects", "--seeds", seeds, "--keep", folder, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stderr[-4000:]
    assert lines[-1].get("failed") == [], [x for x in lines if x.get("problems")]
    assert sum(x["results"] for x in lines[:-1]) > 0
    assert all("machine lost" in x["covered"] for x in lines[:-1])
