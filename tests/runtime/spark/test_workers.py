"""Tests of workers that stay between batches: all batches in one Spark stage, and a new stage after
every failure.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from anabranch_contract.plans.ruleset import RulesetId
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.exchange.lines import TaskListener, call_driver
from anabranch_runtime.exchange.stage import Stage
from anabranch_runtime.spark import workers as module
from anabranch_runtime.spark.workers import Workers
from anabranch_runtime.state.measures import Bounds, KeyBound
from anabranch_runtime.task.context import BatchContext, context_of
from tests.support.worlds.resident import STRIKES, TASKS


@pytest.fixture(
    scope="module",
    params=[
        f"local[{TASKS}]",
        pytest.param(f"local-cluster[{TASKS},1,1024]", marks=pytest.mark.slow),
    ],
)
def strikes(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.worlds.resident", request.param],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    return {one["strike"]: one for one in found}


@pytest.mark.spark
def test_tasks_stay_from_batch_to_batch(strikes: dict[str, dict[str, Any]]) -> None:
    assert list(strikes) == [strike.__name__ for strike in STRIKES]
    for found in strikes.values():
        first, *rest = found["before"]
        assert len(set(first)) == TASKS
        assert all(one == first for one in rest)


@pytest.mark.spark
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


@dataclass
class Slots:
    """Slots of a cluster whose tasks are threads, and the numbers of tasks of its stages so far."""

    count: int = 3
    failing: bool = False
    stages: list[int] = field(default_factory=list)


@pytest.fixture
def slots() -> Slots:
    return Slots()


@pytest.fixture
def workers(slots: Slots, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    """Workers in threads, which check the slots before every batch."""
    listener = TaskListener("127.0.0.1")

    def follow(stage: str, task: int, tasks: int) -> None:
        with closing(call_driver(listener.address, stage, task, ["h"] * tasks)) as line:
            context = None
            while (order := line.next_order()) is not None:
                context = context_of(context, order)
                line.report((context, task, line.tasks))

    def run(_: Workers, tasks: int, places: object, stage: str) -> None:
        slots.stages.append(tasks)
        if slots.failing:
            raise OSError("no Python there")
        with ThreadPoolExecutor(tasks) as pool:
            for task in range(tasks):
                pool.submit(follow, stage, task, tasks)

    monkeypatch.setattr(module, "LOOK", 0.0)
    monkeypatch.setattr(module, "slots_now", lambda _: slots.count)
    monkeypatch.setattr(Workers, "_run", run)
    monkeypatch.setattr(Workers, "_cancel", lambda *_: None)
    found = Workers(cast("Any", None), listener, lambda: (slots.count, None))
    yield found
    found.close()
    listener.close()


def _run(workers: Workers, batch: int, bounds: Bounds = Bounds()) -> int:  # noqa: B008 - frozen
    """Run a batch; return the number of its tasks."""
    context = BatchContext(batch, 0, RulesetId(0), "", "", "", "", "", bounds=bounds)
    reports = cast("list[Any]", workers.run(context))
    tasks = len(reports)
    assert reports == [(context, task, tasks) for task in range(tasks)]
    return tasks


def test_the_stage_stays_as_long_as_the_slots_stay(workers: Workers, slots: Slots) -> None:
    for batch in range(5):
        workers.start(idle=batch % 2 == 0)
        assert _run(workers, batch) == 3
    assert slots.stages == [3]


def test_a_stage_gets_of_each_context_what_has_changed(
    workers: Workers, slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    run = Stage.run

    def measured(self: Stage, content: object) -> list[Any]:
        sent.append(len(pickle.dumps(content)))
        return run(self, content)

    monkeypatch.setattr(Stage, "run", measured)
    keys = {f"r{n}": {"k": KeyBound(n, f"{n:02000}")} for n in range(100)}
    for batch, count in enumerate((3, 3, 3, 2, 2)):
        slots.count = count
        keys = keys | {f"r{batch}": {"k": KeyBound(batch, "y" * 2000)}}
        _run(workers, batch, Bounds(keys=keys))
    whole, changed = 150_000, 3000
    assert [size > whole for size in sent] == [True, False, False, True, False]
    assert max(size for size in sent if size < whole) < changed


def test_another_stage_begins_when_executors_come_or_go(workers: Workers, slots: Slots) -> None:
    for batch, count in enumerate((3, 5, 5, 2)):
        slots.count = count
        assert _run(workers, batch) == count
    slots.count = 4
    workers.start(idle=True)
    assert _run(workers, 9) == 4
    assert slots.stages == [3, 5, 2, 4]


def test_a_stage_leaves_slots_to_other_jobs(workers: Workers, slots: Slots) -> None:
    slots.count = 17
    assert _run(workers, 0) == 17
    # An ingest query starts: it waits for a slot, and no batch runs before it has had one.
    workers.shared = True
    workers.start(idle=True)
    assert _run(workers, 1) == 14
    slots.count = 2
    assert _run(workers, 2) == 1
    assert workers._stage is not None
    workers.shared = False
    assert _run(workers, 3) == 2


def test_the_only_slot_is_held_for_batches_only(workers: Workers, slots: Slots) -> None:
    slots.count = 1
    assert _run(workers, 0) == 1
    workers.shared = True
    workers.start(idle=True)
    assert workers._stage is None
    for batch in (1, 2):
        assert _run(workers, batch) == 1
        assert workers._stage is None
        workers.start(idle=True)
    assert slots.stages == [1, 1, 1]


def test_without_executors_an_idle_pipeline_waits_for_none(workers: Workers, slots: Slots) -> None:
    workers.start(idle=True)
    assert not slots.stages
    assert _run(workers, 0) == 3
    assert workers._stage is not None
    workers._stage.close(cancel=False)
    slots.count = 0
    workers.start(idle=True)
    assert slots.stages == [3]


def test_a_stage_lost_between_batches_is_replaced_before_the_next(
    workers: Workers, slots: Slots
) -> None:
    assert _run(workers, 0) == 3
    assert workers._stage is not None
    for line in workers._stage._lines.values():
        line.close()
    workers._stage.job.result(timeout=60)
    workers.start(idle=True)
    assert _run(workers, 1) == 3
    assert slots.stages == [3, 3]


def test_a_stage_that_can_not_start_fails_its_batch_only(workers: Workers, slots: Slots) -> None:
    slots.failing = True
    workers.start()
    assert workers._stage is not None
    workers._stage.job.exception(timeout=60)
    for _ in range(3):
        workers.start(idle=True)
    # The first batch reports the error.
    assert slots.stages == [3]
    with pytest.raises(OSError, match="no Python there"):
        _run(workers, 0)
    slots.failing = False
    assert _run(workers, 0) == 3


def test_a_batch_waits_for_executors(workers: Workers) -> None:
    def none() -> Any:
        raise PipelineError("no-executors", "Spark has had no executor")

    workers.slots = none
    with pytest.raises(PipelineError, match="no executor"):
        _run(workers, 0)
