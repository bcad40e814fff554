"""Faults and changes in a scenario's run, drawn by a seed and fixed before the run begins.

Plans, layouts, numbers of tasks, failing tasks, deaths of the driver, compaction, rulesets that
come late or never: all of it is data, so that a run can be repeated, printed and cut down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from anabranch_contract.plans.plan import Backfilling
from anabranch_contract.plans.rations import Allocation
from anabranch_contract.protocol.merging import FANOUT
from anabranch_contract.protocol.progress import Mode

#: Attempts that a batch gets before the pipeline fails (and is started again).
ATTEMPTS = 2
_BACKFILLS = (Backfilling.NEVER, Backfilling.AUTO, Backfilling.ALWAYS)


class Point(StrEnum):
    """Where a task fails: while it reads, where it meets the others, or when it has done all."""

    READ = "read"
    MEET = "meet"
    END = "end"


class Death(StrEnum):
    """When the driver dies: before results are published, before its commit, or right after."""

    JOB = "job"
    COMMIT = "commit"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class Fault:
    """Task ``task`` (modulo their number) fails; ``nth`` is which block or meeting it is."""

    task: int
    point: Point
    nth: int


@dataclass(frozen=True, slots=True)
class Script:
    """One run's script.

    Attributes:
        odd: plans are random valid ones, another for each epoch; else the optimiser's.
        layouts: every store has a random number of partitions, another in each epoch.
        ahead: probes look ahead at random, wherever nothing is lost by it.
        seed: of plans and layouts.
        tasks: per batch and attempt the number of tasks; the last of each goes on.
        faults: (batch, attempt) -> what fails in it; attempts are counted over restarts.
        deaths: batch -> how the driver dies in it, once.
        restarts: batches before which the driver is restarted.
        fanout: per batch, how many segments make a merge.
        missing: live epochs whose ruleset is never published.
        late: live epoch -> batches by which its ruleset comes after the epoch's start.
        backfills: per epoch, whether its new intermediate results are backfilled.
        relaxed: relations have a random part of their filters, the rest is checked after joining.
        revised: batches before which a random revision of the running ruleset is published.
        picked: most of these are dpPick's for drawn statistics, where there are no others' stores.
        rationed: batches that withhold random tuples from probes.
        allocation: plans the rations of these batches; None: the rations are random.
        owed: rationed batches whose withheld results are to be made good. The run goes on, with
            batches without input, until that has been done.
        fresh: query -> alias -> how old its members of results may be, in microseconds.
        past: the queries that emit results of the past as well. The run goes on until they have.
        hosts: per batch and attempt on how many hosts its tasks are at most; the last goes on.
        hot: every ruleset has random values that are hot.
    """

    mode: Mode = Mode.STEP
    odd: bool = False
    layouts: bool = False
    ahead: bool = True
    seed: int = 0
    tasks: tuple[tuple[int, ...], ...] = ((2,),)
    faults: tuple[tuple[tuple[int, int], Fault], ...] = ()
    deaths: tuple[tuple[int, Death], ...] = ()
    restarts: frozenset[int] = frozenset()
    fanout: tuple[int, ...] = (FANOUT,)
    missing: frozenset[int] = frozenset()
    late: tuple[tuple[int, int], ...] = ()
    backfills: tuple[Backfilling, ...] = (Backfilling.NEVER,)
    relaxed: bool = False
    revised: frozenset[int] = frozenset()
    picked: bool = False
    rationed: frozenset[int] = frozenset()
    allocation: Allocation | None = None
    owed: frozenset[int] = frozenset()
    fresh: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    past: frozenset[str] = frozenset()
    hosts: tuple[int, ...] = (1,)
    hot: bool = False

    def hosts_of(self, batch: int, attempt: int, tasks: int) -> tuple[str, ...]:
        """Where each task of an attempt at a batch is."""
        most = self.hosts[min(batch, len(self.hosts) - 1)]
        if most == 1:
            return ("",) * tasks
        rng = Random(f"{self.seed}/{batch}/{attempt}")
        return tuple(f"host-{rng.randrange(most)}" for _ in range(tasks))

    def tasks_of(self, batch: int, attempt: int) -> int:
        """The number of tasks of an attempt at a batch."""
        attempts = self.tasks[min(batch, len(self.tasks) - 1)]
        return attempts[min(attempt, len(attempts) - 1)]

    def backfilling(self, epoch: int) -> Backfilling:
        """Whether an epoch's ruleset has backfills."""
        return self.backfills[min(epoch, len(self.backfills) - 1)]

    def published_before(self, epoch: int, every: int) -> int | None:
        """The batch before which an epoch's ruleset is published; None: it never is."""
        if epoch in self.missing:
            return None
        return epoch * every + dict(self.late).get(epoch, 0)

    def ruleset_of(self, epoch: int, every: int) -> int:
        """The ruleset by which ``epoch`` must go: the newest that is there when it begins."""
        start = epoch * every
        there = [
            e
            for e in range(epoch + 1)
            if (moment := self.published_before(e, every)) is not None and moment <= start
        ]
        return max(there)


def draw(seed: int, batches: int) -> Script:
    """A script for a scenario of ``batches``; some seeds have little happen, some a lot."""
    rng = Random(seed)
    live = rng.random() < 0.4
    odd = rng.random() < 0.8
    wild = rng.choice((0.0, 0.1, 0.3))
    tasks = rng.choice((1, 2, 3, 4))
    changing = rng.random() < 0.6
    faults: dict[tuple[int, int], Fault] = {}
    deaths: dict[int, Death] = {}
    for batch in range(batches):
        attempt = 0
        while attempt < 2 * ATTEMPTS and rng.random() < wild:
            fault = Fault(rng.randrange(4), rng.choice(tuple(Point)), rng.randrange(4))
            faults[batch, attempt] = fault
            attempt += 1
        if rng.random() < wild:
            deaths[batch] = rng.choice(tuple(Death))
    epochs = range(1, batches + 1)
    return Script(
        mode=Mode.LIVE if live else Mode.STEP,
        odd=odd,
        layouts=odd and rng.random() < 0.7,
        # Probes that look ahead do not go in rounds, which want to be tried as well.
        ahead=seed % 2 == 1,
        seed=seed,
        tasks=tuple(
            tuple(rng.randint(1, 4) if changing else tasks for _ in range(3))
            for _ in range(batches)
        ),
        faults=tuple(faults.items()),
        deaths=tuple(deaths.items()),
        restarts=frozenset(b for b in range(1, batches) if rng.random() < wild),
        fanout=tuple(rng.choice((2, 3, FANOUT)) for _ in range(batches)),
        missing=frozenset(e for e in epochs if live and rng.random() < 0.15),
        late=tuple((e, rng.randint(1, 4)) for e in epochs if live and rng.random() < 0.15),
        backfills=tuple(rng.choice(_BACKFILLS) for _ in range(batches)),
        revised=_revised(rng, batches),
    )


def _revised(rng: Random, batches: int) -> frozenset[int]:
    often = rng.choice((0.0, 0.3, 1.0))
    return frozenset(b for b in range(1, batches) if rng.random() < often)
