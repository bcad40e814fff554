"""Beginning and end of epochs: a pure function from events to instructions for the driver.

In step mode an epoch has a fixed number of batches. In live mode a change of the registry also ends
two epochs early: the running epoch, so that the service plans the one after the next, and the next
epoch, as soon as that plan is published. If changes come in quick succession, an epoch ends early
only after a rest: :data:`REST` times the last planning time, but at most
``DriverSettings.epoch_seconds`` (ADR 0075).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from anabranch_contract.protocol.progress import Boundary, Mode
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.state.manifest import State

#: Multiple of ``DriverSettings.epoch_seconds`` that an epoch without changes and arrivals lasts.
IDLE_EPOCHS = 12
#: Number of epochs from the epoch at whose end a plan is made to the epoch that runs the plan.
AHEAD = 2
#: Least seconds without another change before an epoch ends early, so that changes that belong
#: together are planned together.
SETTLED = 0.05
#: Least time between two early ends of epochs because of changes of the registry, as a multiple of
#: the time from the end of an epoch to the publication of the plan made for it.
REST = 2.0


@dataclass(frozen=True, slots=True)
class Cycle:
    """The driver's progress through epochs.

    Attributes:
        epoch: the epoch of the next batch. ``since``: time at which the driver entered it (seconds
            of a monotonic clock).
        reported: the last epoch whose end was reported; -1: none.
        digest: digest of the registered streams, queries and settings at the last noticed change.
        fresh: whether there are changes for which no plan has been requested. ``changed``: time of
            the last noticed change.
        awaited: epoch of the requested plan that takes the earlier changes into account; None once
            it is published. ``ended``: last time at which a plan with changes was requested.
            ``planning``: seconds from then to the plan's publication.
    """

    epoch: int
    since: float
    reported: int = -1
    digest: int = 0
    fresh: bool = False
    changed: float = float("-inf")
    awaited: int | None = None
    ended: float = float("-inf")
    planning: float = 0.0

    def is_due(self, settings: DriverSettings, now: float) -> bool:
        """Whether the epoch may end between two batches because it has lasted ``epoch_seconds``."""
        return now - self.since >= settings.epoch_seconds

    def is_settled(self, settings: DriverSettings, now: float) -> bool:
        """Whether the last registry change and the last plan are old enough for another plan."""
        pause = min(REST * self.planning, settings.epoch_seconds)
        return now - self.changed >= SETTLED and now - self.ended >= pause

    def _entering(self, epoch: int, now: float) -> Cycle:
        return replace(self, epoch=epoch, since=now)


@dataclass(frozen=True, slots=True)
class Started:
    """Event: the driver has recovered its state. ``last``: the newest epoch boundary in Redis."""

    last: Boundary | None


@dataclass(frozen=True, slots=True)
class Quiet:
    """Event of live mode: no batch runs, and no interrupted batch has to be repeated.

    Attributes:
        published: epoch of the newest ruleset up to the cycle's epoch; None: none yet. ``coming``:
            the same for the next epoch.
        digest: digest of the registry's objects. ``since``: time at which it was first seen.
    """

    published: int | None
    coming: int | None
    digest: int
    since: float


@dataclass(frozen=True, slots=True)
class Committed:
    """Event: a batch has committed; ``failed``: whether queries have failed in it."""

    failed: bool


@dataclass(frozen=True, slots=True)
class ReportStart:
    """Instruction: report the boundary before the first epoch, so that the service plans it."""


@dataclass(frozen=True, slots=True)
class EnterIdle:
    """Instruction: begin the cycle's epoch before any batch, with epoch ``published``'s ruleset."""

    published: int


@dataclass(frozen=True, slots=True)
class ReportEnd:
    """Instruction: report the end of ``epoch``, with its statistics."""

    epoch: int


Event: TypeAlias = "Started | Quiet | Committed"
Instruction: TypeAlias = "ReportStart | EnterIdle | ReportEnd"
Step: TypeAlias = "tuple[Cycle, list[Instruction]]"


def step(cycle: Cycle, state: State, event: Event, settings: DriverSettings, now: float) -> Step:
    """Return the cycle after an event, and the instructions to perform before it takes effect.

    Args:
        state: the committed state.
        now: time on the clock of ``Cycle.since``, seconds.
    """
    if isinstance(event, Quiet):
        return _between_batches(cycle, state, event, settings, now)
    if isinstance(event, Committed):
        if event.failed:
            cycle = replace(cycle, fresh=True)
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
    """Whether the epoch of the last batch has reached its number of batches."""
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
    # A ruleset that was published after the epoch's first batch is used from the next epoch on.
    unused = seen.published != state.ruleset.epoch
    if unused and state.epoch != cycle.epoch:
        todo, unused = [EnterIdle(seen.published)], False
    if seen.digest != cycle.digest:
        cycle = replace(cycle, digest=seen.digest, fresh=True, changed=seen.since)
    due = cycle.is_due(settings, now)
    longest = now - cycle.since >= IDLE_EPOCHS * settings.epoch_seconds
    if cycle.awaited is not None and seen.coming is not None and seen.coming >= cycle.awaited:
        fresh, planning = cycle.fresh, now - cycle.ended
        cycle, ended = _end(replace(cycle, fresh=False, awaited=None, planning=planning), now)
        return replace(cycle, fresh=fresh), todo + ended
    prompt = cycle.fresh and cycle.awaited is None and cycle.is_settled(settings, now)
    waiting = cycle.fresh or (cycle.awaited is not None and cycle.epoch < cycle.awaited)
    if not prompt and not (due and (waiting or unused or longest)):
        return cycle, todo
    cycle, ended = _end(cycle, now)
    return cycle, todo + ended


def _end(cycle: Cycle, now: float) -> Step:
    """End the cycle's epoch. After a rollback of the state, the ends of this and of later epochs
    may have been reported already, so the cycle skips these epochs."""
    if cycle.epoch <= cycle.reported:
        return cycle._entering(cycle.reported + 1, now), []
    ended = replace(cycle, reported=cycle.epoch)._entering(cycle.epoch + 1, now)
    # A plan that was not published in time is no longer awaited.
    if cycle.fresh and (cycle.awaited is None or cycle.awaited <= cycle.epoch):
        ended = replace(ended, fresh=False, awaited=cycle.epoch + AHEAD, ended=now)
    return ended, [ReportEnd(cycle.epoch)]
