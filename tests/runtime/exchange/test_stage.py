"""Tests of orders, rounds and reports over the connections of a stage whose tasks are threads."""

from __future__ import annotations

import errno
import pickle
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from anabranch_runtime.errors import AnabranchRuntimeError, PipelineError, StateError
from anabranch_runtime.exchange import complaints
from anabranch_runtime.exchange import stage as stages
from anabranch_runtime.exchange.complaints import complaint
from anabranch_runtime.exchange.lines import (
    DriverMessage,
    MessageKind,
    TaskLine,
    TaskListener,
    TaskMessage,
    call_driver,
)
from anabranch_runtime.exchange.stage import Stage

TASKS = 3
Work = Callable[[Any, TaskLine], Any]


@dataclass
class Threads:
    """Job of a stage: one thread per task."""

    listener: TaskListener
    work: Work
    cancelled: list[str] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def stage(self) -> Stage:
        """Start a stage."""
        return Stage(self.listener, TASKS, self.run, self.cancelled.append)

    def run(self, stage: str) -> None:
        """Run the tasks to their end; raise the first error."""
        with ThreadPoolExecutor(TASKS) as pool:
            tasks = [pool.submit(self._task, stage, task) for task in range(TASKS)]
        self.errors = [e for one in tasks if (e := one.exception()) is not None]
        for error in self.errors:
            raise error

    def _task(self, stage: str, task: int) -> None:
        hosts = [f"h{n}" for n in range(TASKS)]
        with closing(call_driver(self.listener.address, stage, task, hosts)) as line:
            while (content := line.next_order()) is not None:
                try:
                    line.report(self.work(content, line))
                except AnabranchRuntimeError as error:
                    found = complaint(error, hosts[task], Path("/cache"))
                    assert found is not None
                    line.complain(found)
                    raise


@pytest.fixture
def listener() -> Iterator[TaskListener]:
    found = TaskListener("127.0.0.1")
    yield found
    found.close()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give tasks little time to end."""
    monkeypatch.setattr(stages, "GRACE", 1.0)


def test_every_round_gives_each_task_all_messages_in_task_order(listener: TaskListener) -> None:
    def work(content: str, line: TaskLine) -> list[list[str]]:
        found = []
        for number in range(6):
            time.sleep(random.random() / 100)
            found.append(line(f"{content}/{number}/{line.task}" + "x" * 100_000))
        return found

    stage = Threads(listener, work).stage()
    for batch in range(3):
        expected = [[f"{batch}/{n}/{t}" + "x" * 100_000 for t in range(TASKS)] for n in range(6)]
        assert stage.run(str(batch)) == [expected] * TASKS
    stage.close(cancel=False)
    assert stage.job.exception(timeout=60) is None


def test_a_group_gets_its_own_messages_only(listener: TaskListener) -> None:
    def work(content: str, line: TaskLine) -> tuple[list[str], list[str]]:
        return line(f"<{line.task}>", "aba"[line.task]), line(str(line.task))

    stage = Threads(listener, work).stage()
    even, odd = ["<0>", "", "<2>"], ["", "<1>", ""]
    assert stage.run("x") == [(one, ["0", "1", "2"]) for one in (even, odd, even)]
    stage.close(cancel=False)


def test_messages_of_the_stage_are_sent_once(listener: TaskListener) -> None:
    made: list[int] = []

    def message(task: int) -> str:
        made.append(task)
        return f"from {task}"

    def work(content: str, line: TaskLine) -> tuple[list[str], list[str]]:
        return line.once(lambda: message(line.task)), line(f"{content} {line.task}")

    stage = Threads(listener, work).stage()
    for batch in ("a", "b", "c"):
        hello = [f"from {n}" for n in range(TASKS)]
        assert stage.run(batch) == [(hello, [f"{batch} {n}" for n in range(TASKS)])] * TASKS
    assert sorted(made) == [0, 1, 2]
    stage.close(cancel=False)


def test_an_order_that_arrives_twice_is_carried_out_once(
    listener: TaskListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, int]] = []

    def work(content: str, line: TaskLine) -> list[str]:
        done.append((content, line.task))
        return line(f"{content} {line.task}")

    stage = Threads(listener, work).stage()

    def again(_: object) -> None:
        for order in range(1, stage.orders + 1):
            for line in stage._lines.values():
                line.send_bytes(pickle.dumps(DriverMessage(order, f"batch {order}")))
                line.send_bytes(pickle.dumps(DriverMessage(order - 1, ["late"], 0)))

    monkeypatch.setattr(stages, "reach", again)
    for batch in (1, 2, 3):
        expected = [f"batch {batch} {n}" for n in range(TASKS)]
        assert stage.run(f"batch {batch}") == [expected] * TASKS
    stage.close(cancel=False)
    assert stage.job.exception(timeout=60) is None
    assert sorted(done) == [(f"batch {b}", t) for b in (1, 2, 3) for t in range(TASKS)]


def test_late_messages_of_an_order_count_for_no_other(listener: TaskListener) -> None:
    late = complaint(StateError("disk-full", "no room"), "h", Path("/cache"))

    def work(content: str, line: TaskLine) -> str:
        if content == "b" and line.task == 1:
            of = MessageKind
            for kind, text in ((of.REPORT, "late"), (of.COMPLAINT, late), (of.GATHER, "x")):
                line.line.send_bytes(pickle.dumps(TaskMessage(line._order - 1, kind, text)))
        line(str(line.task))
        return f"{content} {line.task}"

    stage = Threads(listener, work).stage()
    for batch in ("a", "b", "c"):
        assert stage.run(batch) == [f"{batch} {n}" for n in range(TASKS)]
    stage.close(cancel=False)


@pytest.mark.parametrize("doubling", [(1,), range(TASKS)], ids=["one", "all"])
def test_a_message_or_report_that_a_task_sends_twice_counts_once(
    listener: TaskListener, doubling: Collection[int]
) -> None:
    def work(content: str, line: TaskLine) -> list[list[str]]:
        found = []
        for number in range(4):
            message = f"{content}/{number}/{line.task}"
            if line.task in doubling:
                line._send(MessageKind.GATHER, message)
            found.append(line(message))
        if line.task in doubling:
            line.report(found)
        return found

    stage = Threads(listener, work).stage()
    for batch in ("a", "b", "c"):
        expected = [[f"{batch}/{n}/{t}" for t in range(TASKS)] for n in range(4)]
        assert stage.run(batch) == [expected] * TASKS
    stage.close(cancel=False)
    assert stage.job.exception(timeout=60) is None


@pytest.mark.usefixtures("short")
def test_a_task_lost_in_the_middle_of_a_batch_ends_the_stage(listener: TaskListener) -> None:
    def work(content: str, line: TaskLine) -> list[str]:
        if content == "b" and line.task == 2:
            raise ValueError("no such thing")
        return line(content)

    threads = Threads(listener, work)
    stage = threads.stage()
    assert stage.run("a") == [["a"] * TASKS] * TASKS
    with pytest.raises((ValueError, PipelineError)):
        stage.run("b")
    began = time.monotonic()
    stage.close(cancel=True)
    # Tasks that waited for the lost one stop waiting.
    with pytest.raises(PipelineError, match="can't reach the driver"):
        stage.job.result(timeout=60)
    assert time.monotonic() - began < 60
    assert any(isinstance(error, ValueError) for error in threads.errors)
    other = Threads(listener, work).stage()
    assert other.run("c") == [["c"] * TASKS] * TASKS
    other.close(cancel=False)


def test_the_error_of_a_task_counts_more_than_those_that_follow_from_it(
    listener: TaskListener,
) -> None:
    def work(content: str, line: TaskLine) -> None:
        if line.task == 0:
            raise PipelineError("host-unreachable", "h2 has gone")
        if line.task == 1:
            line("never answered")
        time.sleep(0.3)
        raise StateError("disk-full", "no room")

    threads = Threads(listener, work)
    stage = threads.stage()
    with pytest.raises(StateError, match="on h2: no room"):
        stage.run("a")
    stage.close(cancel=True)
    stage.job.exception(timeout=60)


@pytest.mark.usefixtures("short")
def test_an_error_that_may_follow_from_another_is_reported_if_alone(
    listener: TaskListener,
) -> None:
    def work(content: str, line: TaskLine) -> None:
        if line.task == 0:
            raise PipelineError("host-unreachable", "h2 has gone")

    stage = Threads(listener, work).stage()
    with pytest.raises(PipelineError, match="on h0: h2 has gone"):
        stage.run("a")
    stage.close(cancel=True)


def test_a_late_task_of_an_earlier_stage_takes_no_part(listener: TaskListener) -> None:
    stale = call_driver(listener.address, "workers-earlier", 0, ["h"] * TASKS)
    stage = Threads(listener, lambda content, line: (content, line.task)).stage()
    assert stage.run("a") == [("a", n) for n in range(TASKS)]
    assert stale.next_order() is None
    stage.close(cancel=False)


@pytest.mark.usefixtures("short")
def test_a_host_with_another_package_is_named(
    listener: TaskListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(complaints, "own_version", lambda: "99.0")
    stage = Threads(listener, lambda content, line: None).stage()
    with pytest.raises(PipelineError, match=r"on h\d: anabranch .* the driver has 99\.0") as caught:
        stage.run("a")
    assert caught.value.code == "other-package"
    stage.close(cancel=True)


def test_two_drivers_have_tasks_of_their_own(listener: TaskListener) -> None:
    other = TaskListener("127.0.0.1")
    try:
        with pytest.raises(PipelineError, match="can't reach the driver"):
            call_driver(
                type(other.address)("127.0.0.1", other.address.port, listener.address.token),
                "s",
                0,
                ["h"],
            )
        one = Threads(listener, lambda content, line: line(f"one {content}")).stage()
        two = Threads(other, lambda content, line: line(f"two {content}")).stage()
        for batch in ("a", "b"):
            assert one.run(batch) == [[f"one {batch}"] * TASKS] * TASKS
            assert two.run(batch) == [[f"two {batch}"] * TASKS] * TASKS
        one.close(cancel=False)
        assert two.run("c") == [["two c"] * TASKS] * TASKS
        two.close(cancel=False)
    finally:
        other.close()


@pytest.mark.usefixtures("short")
def test_a_job_that_ends_before_its_tasks_call_is_the_error(listener: TaskListener) -> None:
    def failing(stage: str) -> None:
        raise OSError(errno.EIO, "no executor")

    stage = Stage(listener, TASKS, failing, lambda _: None)
    with pytest.raises(OSError, match="no executor"):
        stage.run("a")
    stage.close(cancel=True)


@pytest.mark.usefixtures("short")
def test_tasks_that_do_not_end_are_cancelled(listener: TaskListener) -> None:
    begun, ended = threading.Event(), threading.Event()

    def work(content: str, line: TaskLine) -> None:
        begun.set()
        ended.wait(120)

    stage = Stage(listener, TASKS, Threads(listener, work).run, lambda _: ended.set())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(stage.run, "a")
        assert begun.wait(60)
        stage.close(cancel=False)
        assert ended.is_set()
        assert waiting.exception(60) is not None
