"""Workers that stay: batch after batch on one stage, and a new stage after every failure."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.worlds.resident import STRIKES, TASKS

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def strikes() -> dict[str, dict[str, Any]]:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.worlds.resident"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    return {one["strike"]: one for one in found}


def test_tasks_stay_from_batch_to_batch(strikes: dict[str, dict[str, Any]]) -> None:
    assert list(strikes) == [strike.__name__ for strike in STRIKES]
    for found in strikes.values():
        first, *rest = found["before"]
        assert len(set(first)) == TASKS
        assert all(one == first for one in rest)


@pytest.mark.parametrize("strike", [s.__name__ for s in STRIKES])
def test_a_struck_stage_fails_its_batch_and_the_next_one_starts_anew(
    strikes: dict[str, dict[str, Any]], strike: str
) -> None:
    found = strikes[strike]
    assert found["anew"]
    assert len(set(found["after"])) == TASKS
    if strike == "close":
        assert found["error"] is None
        return
    assert found["error"] == "Py4JJavaError"
    assert "no such thing" in found["text"] or strike != "fail"
