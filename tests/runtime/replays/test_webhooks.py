"""Tests of a driver with a webhook as sink, in random runs: kills at any step, batches repeated
after a rollback, zombies that continue posting, and a receiver with all faults. By ids, the
receiver has each result once.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from anabranch_contract.connectors.sinks import SinkKind, SinkSpec
from anabranch_runtime.driver import driver as drivers
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.errors import SinkError
from anabranch_runtime.faults import Point
from anabranch_runtime.sinks import publisher as publishing
from anabranch_runtime.sinks.webhook import receiver as connecting
from tests.support.cases.states import RS
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.deliveries import sink
from tests.support.surroundings.receiver import SECRET, Fault, Received, Webhook, receiving
from tests.support.worlds.driven import Killed, die, driver, expected, job, publish, results

#: Steps at which the driver is killed: of a batch, of a group, and of a delivery.
STEPS = (
    *(Point.CHOSEN, Point.STAGED, Point.PUBLISHED, Point.COMMITTED),
    *(Point.GROUPING, Point.GROUPED, Point.DELIVERED),
)
#: Batches of a run, and its minimum number of faults.
BATCHES, FAULTS = 30, 60


class Run:
    """Successive lives of a driver over one state; deliveries of former lives continue, as by
    zombies.
    """

    def __init__(self, url: str, home: Path, hook: Webhook, chance: random.Random) -> None:
        self.url, self.home, self.hook, self.chance = url, home, hook, chance
        self.done = Counter[str]()
        #: Number of batches that have been begun.
        self.begun = 0
        #: Next batch after the last rollback: earlier manifests may be damaged.
        self.whole = 0
        self.driver = self.start()

    def start(self) -> Driver:
        self.driver = driver(self.url, self.home, every=100)
        return self.driver

    def run(self) -> None:
        batch = self.driver.state.next_batch
        self.begun = max(self.begun, batch + 1)
        self.driver.run(job(batch))

    def kill(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Kill the driver, or the worker with it, in the next batch, if it reaches that step."""
        at = self.chance.choice((*STEPS, None))

        def reach(point: Point) -> None:
            if point is at:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(drivers, "reach", reach)
            patch.setattr(publishing, "reach", reach)
            with suppress(Killed):
                if at is None:
                    self.driver.run(die(job(self.driver.state.next_batch)))
                else:
                    self.run()
                    self.driver.publisher.retry()
                    return
            self.done[f"kill at {at}"] += 1
        self.start()

    def roll_back(self) -> None:
        """Damage the newest manifests, so that their batches are repeated."""
        manifests = sorted((self.home / "state" / "manifest").iterdir())
        for path in manifests[-self.chance.randrange(1, 3) :]:
            path.write_bytes(b"{}")
        self.whole = self.start().state.next_batch
        self.done["roll back"] += 1

    def away(self) -> None:
        """Make the receiver refuse connections for some batches."""
        self.hook.stop()
        for _ in range(self.chance.randrange(1, 4)):
            self.run()
        self.hook.start()
        self.done["away"] += 1

    def finish(self) -> None:
        while self.driver.state.next_batch < max(self.begun, BATCHES):
            self.run()
        deadline = time.monotonic() + 60
        while len(self.hook.rows()) < len(expected(self.driver.state.next_batch)):
            self.driver.publisher.retry(now=True)
            assert time.monotonic() < deadline, self.driver.publisher.problems()


def spec(hook: Webhook, **options: str) -> SinkSpec:
    given = {"url": hook.url, "secret": "${ANABRANCH_SINK_HOOK}", "timeout": "1", **options}
    found = sink("webhook", **given)
    assert found.kind is SinkKind.WEBHOOK
    return found


@pytest.mark.parametrize("seed", mostly_slow(range(24)))
def test_a_receiver_has_each_result_once_whatever_happens(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setenv("ANABRANCH_SINK_HOOK", SECRET)
    monkeypatch.setattr(publishing, "pause_after", lambda *_: 0.0)
    monkeypatch.setattr(connecting, "REFUSED", 0.0)
    chance = random.Random(seed)

    def fault(_: Received) -> Fault:
        weights = (4, 1, 1, 2, 1, 2, 0.1, 0.5)
        return random.choices(list(Fault), weights)[0] if faulty else Fault.NONE

    with receiving() as hook:
        faulty, hook.fault = True, fault
        publish(url, 0, {"q": RS}, {"q": spec(hook, rows="7", bytes="60")})
        run = Run(url, tmp_path, hook, chance)
        while run.driver.state.next_batch < BATCHES or faults(run) < FAULTS:
            step = chance.choice(("go", "go", "kill", "kill", "kill", "back", "away"))
            if step == "kill":
                run.kill(monkeypatch)
            elif step == "back" and run.driver.state.next_batch > run.whole + 3:
                run.roll_back()
            elif step == "away":
                run.away()
            else:
                run.run()
            if chance.random() < 0.3:
                run.driver.publisher.retry(now=True)
        faulty = False
        run.finish()
        batches = run.driver.state.next_batch
        assert sorted(row["b"] for row in hook.rows()) == expected(batches)
        # Requests also arrive in order.
        parts = [(body["batch"], body["part"]) for body in map(json.loads, hook.ledger.values())]
        assert parts == sorted(parts)
        # Late requests of a zombie change nothing.
        time.sleep(0.2)
        assert len(hook.rows()) == len(expected(batches))
    assert len(hook.seen) > len(hook.ledger)
    assert {"roll back", "away"} < set(run.done), run.done


def faults(run: Run) -> int:
    """Return the number of kills, rollbacks and failed requests so far."""
    return sum(run.done.values()) + sum(fault is not Fault.NONE for fault in run.hook.faults)


def test_a_slow_receiver_holds_up_no_batch_and_gets_all_batches_at_once(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_SINK_HOOK", SECRET)
    with receiving() as hook:
        hook.fault, hook.delay = lambda _: Fault.SLOW, 50.0
        publish(url, 0, {"q": RS, "p": RS}, {"q": spec(hook, timeout="60")})
        one = driver(url, tmp_path, every=100)
        one.run(job(0))
        began = time.monotonic()
        for batch in range(1, 20):
            one.run(job(batch))
        assert time.monotonic() - began < hook.delay
        assert results(tmp_path, "p") == expected(20)
        # A slow response is no failure; waiting results are gathered meanwhile.
        assert (one.publisher.problems(), one.publisher.parked()) == ({}, {"q": 1})
        hook.fault = lambda _: Fault.NONE
        hook.hurry.set()
        one.publisher.finish()
        assert sorted(row["b"] for row in hook.rows()) == expected(20)
        assert len(hook.seen) == 2


def test_a_refusal_is_shown_with_its_remedy_and_loses_nothing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_SINK_HOOK", SECRET)
    with receiving() as hook:
        hook.fault = lambda _: Fault.REFUSED
        publish(url, 0, {"q": RS}, {"q": spec(hook)})
        one = driver(url, tmp_path, every=100)
        for batch in range(4):
            one.run(job(batch))
        with pytest.raises(SinkError, match=r"refuses the results with status 401 .*correct the"):
            one.publisher.finish()
        assert one.publisher.problems()["q"].startswith("4 batches wait: SinkPaused: sink.options")
        assert SECRET not in str(one.publisher.problems())
        # It is not retried at once, but when the runtime starts.
        count = len(hook.seen)
        one.publisher.retry()
        hook.fault = lambda _: Fault.NONE
        assert len(hook.seen) == count
        driver(url, tmp_path, every=100).publisher.finish()
        assert sorted(row["b"] for row in hook.rows()) == expected(4)
