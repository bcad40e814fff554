"""Script of a scenario's faults and changes, drawn by a seed before the run begins.

Plans, layouts, numbers of tasks, failing tasks, deaths of the driver, merges, rulesets that arrive
late or never are all data, so that a run can be repeated, printed and shortened.
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

#: Number of attempts at a batch before the pipeline fails (and is restarted).
ATTEMPTS = 2
_BACKFILLS = (Backfilling.NEVER, Backfilling.AUTO, Backfilling.ALWAYS)


class Point(StrEnum):
    """Point at which a task fails: while it reads, when it exchanges messages, or at its end."""

    READ = "read"
    MEET = "meet"
    END = "end"


class Death(StrEnum):
    """Time of a driver's death: before results are published, before its commit, or right after."""

    JOB = "job"
    COMMIT = "commit"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class Fault:
    """Failure of task ``task`` (modulo their number); ``nth``: number of the block or exchange."""

    task: int
    point: Point
    nth: int


@dataclass(frozen=True, slots=True)
class Script:
    """The script of one run.

    Attributes:
        odd: whether plans are random valid ones, a new one for each epoch; else the optimiser's.
        layouts: whether every store has a random number of partitions, a new one in each epoch.
        ahead: whether probes have random look-ahead filters, where these drop no result.
        seed: seed of plans and layouts.
        tasks: number of tasks per batch and attempt; the last number applies to later ones as well.
        faults: (batch, attempt) -> failure; attempts are counted across restarts.
        deaths: batch -> time at which the driver dies in it, once.
        restarts: batches before which the driver is restarted.
        fanout: number of segments per merge, for each batch.
        missing: live epochs whose ruleset is never published.
        late: live epoch -> number of batches after the epoch's start at which its ruleset is
            published.
        backfills: for each epoch, whether its new intermediate results are backfilled.
        relaxed: whether stores have a random part of their filters; the rest is checked after
            joining.
        revised: batches before which a random revision of the running ruleset is published.
        picked: whether most of these are dpPick's for random statistics.
        rationed: batches in which random tuples do not probe.
        allocation: allocation that plans the rations of these batches; None: random rations.
        owed: rationed batches whose withheld results are caught up. The run continues with empty
            batches until that is finished.
        fresh: query -> alias -> maximum age of its members in results, in microseconds.
        past: queries that also emit past results. The run continues until they have done so.
        hosts: maximum number of hosts per batch and attempt; the last number applies to later ones
            as well.
        hot: whether every ruleset has random hot values.
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
        """Return the host of each task of an attempt at a batch."""
        most = self.hosts[min(batch, len(self.hosts) - 1)]
        if most == 1:
            return ("",) * tasks
        rng = Random(f"{self.seed}/{batch}/{attempt}")
        return tuple(f"host-{rng.randrange(most)}" for _ in range(tasks))

    def tasks_of(self, batch: int, attempt: int) -> int:
        """Return the number of tasks of an attempt at a batch."""
        attempts = self.tasks[min(batch, len(self.tasks) - 1)]
        return attempts[min(attempt, len(attempts) - 1)]

    def backfilling(self, epoch: int) -> Backfilling:
        """Whether the ruleset of an epoch has backfills."""
        return self.backfills[min(epoch, len(self.backfills) - 1)]

    def published_before(self, epoch: int, every: int) -> int | None:
        """Return the batch before which an epoch's ruleset is published; None: never."""
        if epoch in self.missing:
            return None
        return epoch * every + dict(self.late).get(epoch, 0)

    def ruleset_of(self, epoch: int, every: int) -> int:
        """Return the ruleset that ``epoch`` must run: the newest one published when it begins."""
        start = epoch * every
        there = [
            e
            for e in range(epoch + 1)
            if (moment := self.published_before(e, every)) is not None and moment <= start
        ]
        return max(there)


def draw(seed: int, batches: int) -> Script:
    """Draw a script for ``batches`` batches; some seeds have few faults and changes, some many."""
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
        # Probes with look-ahead filters do not run in rounds, so half of the seeds have none.
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
