"""Tasks exchange messages through files: everybody gets everybody's, in task order."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from anabranch_runtime.errors import PipelineError
from anabranch_runtime.task import rendezvous
from anabranch_runtime.task.rendezvous import Rendezvous


def test_every_round_gives_everybody_all_messages_in_task_order(tmp_path: Path) -> None:
    tasks, rounds = 4, 6

    def work(task: int) -> list[list[str]]:
        rng, exchange = random.Random(task), Rendezvous(tmp_path / "x", task, tasks)
        found = []
        for number in range(rounds):
            time.sleep(rng.random() / 100)
            found.append(exchange(f"{number}/{task}" + "x" * 5000))
        return found

    with ThreadPoolExecutor(tasks) as pool:
        everybody = list(pool.map(work, range(tasks)))

    expected = [[f"{n}/{t}" + "x" * 5000 for t in range(tasks)] for n in range(rounds)]
    assert everybody == [expected] * tasks


def test_a_half_written_message_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "0-1.partial").write_text("ha")
    with ThreadPoolExecutor(1) as pool:
        mine = pool.submit(Rendezvous(tmp_path, 0, 2), "a")
        time.sleep(0.05)
        assert not mine.done()
        assert Rendezvous(tmp_path, 1, 2)("half") == ["a", "half"]
        assert mine.result(10) == ["a", "half"]


def test_one_task_needs_no_files(tmp_path: Path) -> None:
    assert Rendezvous(tmp_path / "x", 0, 1)("alone") == ["alone"]
    assert not (tmp_path / "x").exists()


def test_a_task_that_never_comes_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous, "PATIENCE", 0.05)
    with pytest.raises(PipelineError) as caught:
        Rendezvous(tmp_path, 0, 2)("a")
    assert caught.value.code == "task-missing"
