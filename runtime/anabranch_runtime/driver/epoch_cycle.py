"""Beginning and end of epochs: a pure step from events to instructions for the driver.

In step mode an epoch has a fixed number of batches. Live it also ends after a time in which
something has been registered or removed, so that a change becomes active although nothing arrives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from anabranch_contract.protocol.progress import Boundary, Mode
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.state.manifest import State

#: Number of ``DriverSettings.epoch_seconds`` that an epoch lasts without changes and arrivals.
IDLE_EPOCHS = 12
#: Epochs that end early after a change: it is planned at the end of the first, active after the
#: second.
_EAGER = 2


@dataclass(frozen=True, slots=True)
class Cycle:
    """A driver's position between two epochs.

    Attributes:
        epoch: the epoch of the next batch. ``since``: when the driver entered it (seconds of a
            monotonic clock).
        reported: the last epoch whose end has been reported; -1: none.
        digest: of the registered objects when the last change was noticed.
        eager: number of epochs to end early, as a change waits to be planned or to become active.
    """

    epoch: int
    since: float
    reported: int = -1
    digest: int = 0
    eager: int = 0

    def is_due(self, settings: DriverSettings, now: float) -> bool:
        """Whether the epoch has lasted long enough to end between two batches."""
        return now - self.since >= settings.epoch_seconds

    def _entering(self, epoch: int, now: float) -> Cycle:
        return replace(self, epoch=epoch, since=now)


@dataclass(frozen=True, slots=True)
class Started:
    """The driver has recovered its state; ``last`` is the newest boundary that Redis has."""

    last: Boundary | None


@dataclass(frozen=True, slots=True)
class Quiet:
    """No batch runs or has to be repeated, live.

    Attributes:
        published: the newest ruleset for the cycle's epoch; None: none yet.
        digest: of the registered objects; the cycle's own where the epoch is not due.
    """

    published: int | None
    digest: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A batch has committed; ``failed``: queries have failed in it."""

    failed: bool


@dataclass(frozen=True, slots=True)
class ReportStart:
    """Report the boundary before the first epoch, so that it is planned."""


@dataclass(frozen=True, slots=True)
class EnterIdle:
    """Commit that the cycle's epoch has begun by this ruleset, without a batch."""

    published: int


@dataclass(frozen=True, slots=True)
class ReportEnd:
    """Report the end of this epoch, with its statistics."""

    epoch: int


Event: TypeAlias = "Started | Quiet | Committed"
Instruction: TypeAlias = "ReportStart | EnterIdle | ReportEnd"
Step: TypeAlias = "tuple[Cycle, list[Instruction]]"


def step(cycle: Cycle, state: State, event: Event, settings: DriverSettings, now: float) -> Step:
    """The next cycle, and the instructions to carry out before it holds.

    Args:
        state: as committed.
        now: seconds of the clock of ``Cycle.since``.
    """
    if isinstance(event, Quiet):
        return _between_batches(cycle, state, event, settings, now)
    if isinstance(event, Committed):
        if event.failed:
            cycle = replace(cycle, eager=_EAGER)
        over = is_full(state, settings) or cycle.epoch <= cycle.reported
        return _end(cycle, now) if over else (cycle, [])
    todo: list[Instruction] = [ReportStart()]
    if event.last is not None:
        epoch = max(event.last.epoch + 1, cycle.epoch)
        cycle, todo = replace(cycle, reported=event.last.epoch)._entering(epoch, now), []
    if state.epoch == cycle.epoch and is_full(state, settings):
        cycle, ended = _end(cycle, now)
        todo += ended
    return cycle, todo


def is_full(state: State, settings: DriverSettings) -> bool:
    """Whether the epoch of the last batch has had all its batches."""
    every = settings.epoch_batches
    if settings.mode is Mode.STEP:
        return state.next_batch > 0 and state.next_batch % every == 0
    return state.next_batch - state.epoch_starts[-1][1] >= every


def _between_batches(
    cycle: Cycle, state: State, seen: Quiet, settings: DriverSettings, now: float
) -> Step:
    if seen.published is None:
        return cycle, []
    todo: list[Instruction] = []
    # A ruleset that came after its epoch's first batch waits for the next epoch.
    unused = seen.published != state.ruleset_epoch
    if unused and state.epoch != cycle.epoch:
        todo, unused = [EnterIdle(seen.published)], False
    if not cycle.is_due(settings, now):
        return cycle, todo
    if seen.digest != cycle.digest:
        cycle = replace(cycle, digest=seen.digest, eager=_EAGER)
    longest = IDLE_EPOCHS * settings.epoch_seconds
    if cycle.eager or unused or now - cycle.since >= longest:
        cycle, ended = _end(replace(cycle, eager=max(cycle.eager - 1, 0)), now)
        todo += ended
    return cycle, todo


def _end(cycle: Cycle, now: float) -> Step:
    """End the cycle's epoch. After a roll back its end may have been reported already, and that of
    later epochs too.
    """
    if cycle.epoch <= cycle.reported:
        return cycle._entering(cycle.reported + 1, now), []
    ended = replace(cycle, reported=cycle.epoch)._entering(cycle.epoch + 1, now)
    return ended, [ReportEnd(cycle.epoch)]
