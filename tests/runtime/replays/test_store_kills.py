"""Tests of a pipeline over an object store killed at every step, with or without its machine:
results are exact.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_runtime.faults import Point
from tests.support.cases.states import RS
from tests.support.surroundings.fault_points import OF_ALL, OF_GROUPS, OF_STORE
from tests.support.surroundings.store_kills import TOTAL, log
from tests.support.worlds.driven import expected, publish, results

#: Points that this pipeline reaches: it waits for no ruleset, and has no Spark stage.
_REACHED = (OF_ALL | OF_STORE | OF_GROUPS) - {Point.WAITING, Point.SENDING}
POINTS = tuple(point for point in Point if point in _REACHED)
#: Maximum seconds until a step is reached.
PATIENCE = 120.0


def start(url: str, folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "ANABRANCH_FAULTS": str(folder / "faults")}
    command = [sys.executable, "-m", "tests.support.surroundings.store_kills", url, str(folder)]
    with (folder / "log").open("ab") as sink:
        return subprocess.Popen(command, env=environment, stdout=sink, stderr=sink)


def strike(url: str, folder: Path, points: Sequence[Point], *, lost: bool) -> None:
    """Kill the pipeline once at each of ``points``, and run it to its end."""
    publish(url, 0, {"q": RS, "grouped": RS}, {"grouped": SinkSpec(commit_interval=1)})
    faults = folder / "faults"
    faults.mkdir()
    for point in points:
        (faults / point).touch()
        process = start(url, folder)
        held, deadline = faults / f"{point}.held", time.monotonic() + PATIENCE
        while not (held.exists() and held.read_text()):
            assert process.poll() is None, (point, (folder / "log").read_text()[-2000:])
            assert time.monotonic() < deadline, f"{point} is not reached"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        held.unlink()
        if lost:
            shutil.rmtree(folder / "state")
    found = log(url, folder)
    last = found.start()
    found.run(last)
    last.publisher.finish()
    assert results(folder) == expected(TOTAL) == results(folder, "grouped")


def test_killed_while_the_store_is_ahead_of_the_machine(url: str, tmp_path: Path) -> None:
    strike(url, tmp_path, (Point.COMMITTING,), lost=False)


@pytest.mark.e2e
def test_lost_with_packs_uploaded_and_nothing_reported(url: str, tmp_path: Path) -> None:
    strike(url, tmp_path, (Point.UPLOADED,), lost=True)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [False, True])
def test_killed_at_every_step(url: str, tmp_path: Path, lost: bool) -> None:
    strike(url, tmp_path, POINTS, lost=lost)
