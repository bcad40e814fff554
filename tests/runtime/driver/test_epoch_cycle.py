"""Tests of the cycle of epochs, when they begin and end: one step per event."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.protocol.progress import Boundary, Mode
from anabranch_runtime.driver.epoch_cycle import (
    IDLE_EPOCHS,
    Committed,
    Cycle,
    EnterIdle,
    Event,
    Instruction,
    Quiet,
    ReportEnd,
    ReportStart,
    Started,
    step,
)
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.state.manifest import State

LIVE = DriverSettings(Path("state"), Path("results"), epoch_batches=4, epoch_seconds=5.0)
REPLAY = DriverSettings(Path("state"), Path("results"), epoch_batches=4, mode=Mode.STEP)
EMPTY = State()
#: State two batches into epoch 1, by ruleset 1.
WITHIN = State(next_batch=6, epoch=1, ruleset=RulesetId(1), epoch_starts=((0, 0), (1, 4)))


@pytest.mark.parametrize(
    ("cycle", "state", "event", "epoch", "todo"),
    [
        pytest.param(Cycle(0, 0), EMPTY, Started(None), 0, [ReportStart()], id="first start"),
        pytest.param(
            Cycle(1, 0), WITHIN, Started(Boundary(0, 4)), 1, [], id="start within an epoch"
        ),
        pytest.param(
            Cycle(1, 0), WITHIN, Started(Boundary(3, 16)), 4, [], id="start after a roll back"
        ),
        pytest.param(
            Cycle(0, 0),
            EMPTY,
            Quiet(None, None, 0, 9.96),
            0,
            [],
            id="nothing is planned yet",
        ),
        pytest.param(
            Cycle(0, 8),
            EMPTY,
            Quiet(0, 0, 0, 9.96),
            0,
            [EnterIdle(0)],
            id="an epoch begins without a batch",
        ),
        pytest.param(
            Cycle(0, 0, digest=8, fresh=True),
            EMPTY,
            Quiet(0, 0, 8, 9.96),
            1,
            [EnterIdle(0), ReportEnd(0)],
            id="it begins and ends",
        ),
        pytest.param(
            Cycle(1, 9), WITHIN, Quiet(1, 1, 8, 9.96), 1, [], id="a change, and maybe others"
        ),
        pytest.param(
            Cycle(1, 9, digest=8, fresh=True, changed=9.8),
            WITHIN,
            Quiet(1, 1, 8, 9.96),
            2,
            [ReportEnd(1)],
            id="a change ends an epoch",
        ),
        pytest.param(
            Cycle(1, 9, digest=8, awaited=2),
            WITHIN,
            Quiet(1, 1, 8, 9.96),
            1,
            [],
            id="it is being planned",
        ),
        pytest.param(
            Cycle(1, 9, digest=8, awaited=2),
            WITHIN,
            Quiet(1, 2, 8, 0.0),
            2,
            [ReportEnd(1)],
            id="it is planned",
        ),
        pytest.param(Cycle(1, 8), WITHIN, Quiet(2, 2, 0, 9.96), 1, [], id="a ruleset waits"),
        pytest.param(
            Cycle(1, 0), WITHIN, Quiet(2, 2, 0, 9.96), 2, [ReportEnd(1)], id="a ruleset has waited"
        ),
        pytest.param(Cycle(1, 0), WITHIN, Quiet(1, 1, 0, 9.96), 1, [], id="nothing has changed"),
        pytest.param(
            Cycle(1, 10 - IDLE_EPOCHS * 5.0),
            WITHIN,
            Quiet(1, 1, 0, 9.96),
            2,
            [ReportEnd(1)],
            id="nothing has changed for long",
        ),
        pytest.param(Cycle(1, 0), WITHIN, Committed(failed=False), 1, [], id="batches are left"),
        pytest.param(
            Cycle(1, 0, reported=2), WITHIN, Committed(failed=False), 3, [], id="reported before"
        ),
    ],
)
def test_live(
    cycle: Cycle, state: State, event: Event, epoch: int, todo: list[Instruction]
) -> None:
    after, found = step(cycle, state, event, LIVE, now=10.0)
    assert (after.epoch, found) == (epoch, todo)
    assert after.since == (cycle.since if after.epoch == cycle.epoch else 10.0) or isinstance(
        event, Started
    )


def test_the_last_batch_of_an_epoch_ends_it() -> None:
    full = State(next_batch=8, epoch=1, ruleset=RulesetId(1), epoch_starts=((0, 0), (1, 4)))
    for settings in (LIVE, REPLAY):
        after, todo = step(Cycle(1, 0), full, Committed(failed=False), settings, now=1.0)
        assert (after, todo) == (Cycle(2, 1.0, reported=1), [ReportEnd(1)])
        # Killed before the report: the start reports the boundary.
        again, todo = step(Cycle(1, 0), full, Started(Boundary(0, 4)), settings, now=1.0)
        assert (again, todo) == (after, [ReportEnd(1)])


def test_a_failed_query_ends_two_epochs_early() -> None:
    cycle, _ = step(Cycle(1, 0), WITHIN, Committed(failed=True), LIVE, now=0.0)
    ended = []
    for now in (5.0, 10.0, 15.0):
        state = State(6, cycle.epoch, RulesetId(1), ((0, 0), (cycle.epoch, 6)))
        cycle, todo = step(cycle, state, Quiet(1, 1, 0, 0.0), LIVE, now)
        ended += todo
    assert ended == [ReportEnd(1), ReportEnd(2)]


def test_changes_that_follow_each_other_end_epochs_at_intervals() -> None:
    """The first change ends the epoch at once, further ones after twice the seconds of planning, at
    most 5 s.
    """
    often = _ends_at(changes=0.5, planning=0.1, seconds=20.0)
    assert often[0] == pytest.approx(0.05)
    assert all(0.4 <= later - one <= 0.6 for one, later in pairwise(often))
    slow = _ends_at(changes=0.5, planning=1.0, seconds=20.0)
    assert slow[0] == pytest.approx(0.05)
    assert all(2.0 <= later - one <= 2.7 for one, later in pairwise(slow))
    rare = _ends_at(changes=0.5, planning=4.0, seconds=20.0)
    assert rare == pytest.approx([0.05, 5.05, 10.05, 15.05])


def _ends_at(changes: float, planning: float, seconds: float) -> list[float]:
    """Return the times at which an epoch ends because of a change, checked every 0.05 s.

    Args:
        changes: seconds between two changes. ``planning``: seconds that a plan takes.
    """
    cycle, found, reported = Cycle(1, 0.0, digest=0), [], 0.0
    for tick in range(round(seconds / 0.05)):
        now = tick * 0.05
        state = State(6, cycle.epoch, RulesetId(1), ((0, 0), (cycle.epoch, 6)))
        digest = 1 + int(now / changes + 1e-9)
        coming = cycle.epoch + (now - reported >= planning)
        seen = Quiet(1, coming, digest, now - now % changes)
        cycle, todo = step(cycle, state, seen, LIVE, now)
        if todo:
            reported = now
            if cycle.ended == now:
                found.append(now)
    return found
