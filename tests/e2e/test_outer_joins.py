"""Test of outer, semi and anti joins over a multi-way join through service, planner
and pipeline.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.scenarios import outer
from tests.support.worlds.replay_check import replay


@pytest.mark.spark
@pytest.mark.slow
def test_they_end_as_the_oracle_says_and_share_their_joins(tmp_path: Path) -> None:
    scenario, tables = outer.write(tmp_path)
    out = tmp_path / "out"
    done = replay(scenario, out)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    outer.check(out, tables)
