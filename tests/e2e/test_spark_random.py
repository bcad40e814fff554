"""Test of random scenarios with random plans on Spark: real sources, tasks,
checkpoints, restarts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.scenarios.seeds import SPARK, parts
from tests.support.worlds.replay_check import ROOT

#: Maximum seconds for 20 scenarios and a start of Spark, on a busy machine.
PATIENCE = 3600


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(SPARK, 20), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_runs_in_one_spark_session_are_exact(seeds: Sequence[int], tmp_path: Path) -> None:
    assert_exact(seeds, tmp_path)


@pytest.mark.spark
@pytest.mark.slow
def test_runs_over_lost_machines_are_exact(tmp_path: Path) -> None:
    assert_exact(range(1000, 1010), tmp_path, "--objects")


def assert_exact(seeds: Sequence[int], tmp_path: Path, *options: str) -> None:
    command = [sys.executable, "-m", "tests.support.scenarios.run", "--engine", "spark", "--json"]
    done = subprocess.run(
        [*command, "--seeds", f"{seeds[0]}-{seeds[-1]}", "--keep", str(tmp_path), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stderr[-4000:]
    assert lines[-1].get("failed") == [], [x for x in lines if x.get("problems")]
    assert [x["seed"] for x in lines[:-1]] == list(seeds)
    assert sum(x["results"] for x in lines[:-1]) > 0
