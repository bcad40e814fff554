"""All-gather of tasks through the driver over TCP, closed to clients without the token."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from anabranch_runtime.errors import PipelineError
from anabranch_runtime.exchange.meeting import CoordinatorAddress, Delegate, Meeting


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    found = Meeting("127.0.0.1")
    yield found
    found.shutdown()


def test_every_round_gives_everybody_all_messages_in_task_order(meeting: Meeting) -> None:
    tasks, rounds = 4, 6

    def work(task: int) -> list[list[str]]:
        rng, delegate = random.Random(task), Delegate(meeting.place, "a", task, tasks)
        found = []
        for number in range(rounds):
            time.sleep(rng.random() / 100)
            found.append(delegate(f"{number}/{task}" + "x" * 5000))
        return found

    with ThreadPoolExecutor(tasks) as pool:
        everybody = list(pool.map(work, range(tasks)))

    expected = [[f"{n}/{t}" + "x" * 5000 for t in range(tasks)] for n in range(rounds)]
    assert everybody == [expected] * tasks


def test_a_task_that_asks_for_its_group_is_told_of_no_other(meeting: Meeting) -> None:
    groups = ["a", "b", "a", ""]

    def work(task: int) -> tuple[list[str], list[str]]:
        delegate = Delegate(meeting.place, "x", task, len(groups))
        return delegate(f"<{task}>", groups[task]), delegate(f"{task}")

    with ThreadPoolExecutor(len(groups)) as pool:
        found = list(pool.map(work, range(len(groups))))

    even, odd, alone = ["<0>", "", "<2>", ""], ["", "<1>", "", ""], ["", "", "", "<3>"]
    assert found == [(one, ["0", "1", "2", "3"]) for one in (even, odd, even, alone)]


def test_who_has_no_token_is_turned_away(meeting: Meeting) -> None:
    stranger = CoordinatorAddress(meeting.place.location, "guessed")
    with pytest.raises(PipelineError, match="not a task of this pipeline") as caught:
        Delegate(stranger, "a", 0, 2)("hello")
    assert caught.value.code == "driver-unreachable"
    assert meeting.signs("a") == 0


def test_nobody_waits_for_an_attempt_that_is_over(meeting: Meeting) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(Delegate(meeting.place, "a", 0, 2), "hello")
        while not meeting.signs("a"):
            time.sleep(0.01)
        meeting.over("a")
        with pytest.raises(PipelineError, match="is over"):
            waiting.result(10)


def test_a_driver_that_has_gone_is_an_error_that_says_where(meeting: Meeting) -> None:
    place = meeting.place
    meeting.shutdown()
    with pytest.raises(PipelineError) as caught:
        Delegate(place, "a", 0, 2)("hello")
    assert place.location in caught.value.message
    assert "spark.driver.host" in caught.value.remedy


def test_the_token_is_not_in_texts(meeting: Meeting) -> None:
    assert meeting.place.token not in repr(meeting.place)


def test_a_task_gives_few_signs(meeting: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    delegate = Delegate(meeting.place, "a", 0, 1)
    for _ in range(1000):
        delegate.sign()
    assert meeting.signs("a") == 0
    monkeypatch.setattr(delegate, "_next", 0.0)
    delegate.sign()
    delegate.sign()
    assert meeting.signs("a") == 1
