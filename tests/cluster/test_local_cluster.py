"""Random scenarios over executors that are processes of their own, each with its own directory.

Spark's ``local-cluster`` is the smallest cluster there is: executors on one machine which share
nothing but the object store, as their caches are below their working directories.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.worlds.replay_check import ROOT

#: Three executors of one slot and a gigabyte.
MASTER = "local-cluster[3,1,1024]"


@pytest.mark.spark
def test_runs_on_three_executors_are_exact(tmp_path: Path) -> None:
    _assert_exact("1000-1002", tmp_path)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["", "--latest", "--past", "--ttl", "--respelled"])
def test_many_runs_on_three_executors_are_exact(kind: str, tmp_path: Path) -> None:
    _assert_exact("1010-1029", tmp_path, *kind.split())


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
