"""Controller for load shedding: the share of probing (budget) for which each batch has time.

Design. A tuple that arrives just after a batch was planned waits for this batch and is processed by
the next one, so a batch may take half of the promised latency. In this time it processes the
arrivals of an equal time, and part of the backlog. Reading, storing and maintaining intermediate
results come first. The rest of the time is for probes that rations (shares of probing tuples) may
limit. The *budget* is this rest as a share of the time that these probes would take without load
shedding. All times are estimated from the last batches, whatever budget they had.

Overload begins when input waits longer than a batch may take, or a batch takes longer. The budget
then falls at once to the available share, and later rises step by step. Overload ends after some
batches with a budget of 1. The functions are pure; replays are unaffected.

Source: JAQPOT, section 4.4 (monitor, analyse, actuate); the budget is its mu.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from anabranch_runtime.sources.pacing.back_pressure import fit

#: Number of batches for estimates; weight of a batch relative to the next one.
MEMORY, FADING = 12, 0.8
#: Weight of a batch in the fast average, which follows rising costs of probes.
RISING = 0.4
#: Share of a batch's time that is kept free, as batches vary.
HEADROOM = 0.1
#: Number of batches in which a backlog is to be processed.
DRAIN = 4
#: Budgets are rounded to multiples of this, so that small changes of load leave rations unchanged.
GRAIN = 1 / 32
#: Maximum rise of the budget per batch, and number of calm batches that end an overload.
RISE, CALM = 1 / 8, 3


@dataclass(frozen=True, slots=True)
class BatchWork:
    """Measured work of one batch.

    Attributes:
        rows: number of input rows. ``seconds``: duration from planning to commit.
        probing: seconds of probing by the slowest task.
        budget: the batch's budget, as a share of full probing time. ``rationable``: share of its
            probing time that would be saved if all tuples were withheld.
        elapsed: seconds since the commit of the preceding batch.
        waiting: number of rows that wait after the batch. ``waited``: seconds that the oldest of
            them has waited.
    """

    rows: int
    seconds: float
    probing: float
    budget: float
    rationable: float
    elapsed: float
    waiting: int = 0
    waited: float = 0.0

    @property
    def rationed(self) -> float:
        """Seconds of probing that the batch would have saved if all tuples had been withheld."""
        kept = 1 - self.rationable + self.rationable * self.budget
        return self.rationable * self.budget * self.probing / kept if kept > 0 else 0.0

    @property
    def rest(self) -> float:
        """Seconds of the batch that can't be saved by withholding tuples."""
        return max(self.seconds - self.rationed, 0.0)


@dataclass(frozen=True, slots=True)
class LoadState:
    """The measured load, and the controller's state.

    Attributes:
        budget: share of full probing time for which the next batch has time, 0 to 1.
        needed: time to process, without load shedding, the arrivals of a batch's length, as a share
            of this length; above 1 the machine is too slow for its input. 0: unknown.
        overloaded: whether tuples are withheld.
        calm: number of batches in succession, up to the last, that had time for all probes.
        works: measured work of the last batches, oldest first. ``waiting``: number of rows that
            waited before the first of them; None: unknown, assumed equal to the number after it.
        savable: seconds of probing per row that would be saved if all tuples were withheld. Batches
            without probes do not change it.
    """

    budget: float = 1.0
    needed: float = 0.0
    overloaded: bool = False
    calm: int = 0
    works: tuple[BatchWork, ...] = ()
    waiting: int | None = 0
    savable: float = 0.0


def observe(load: LoadState, work: BatchWork, latency: float) -> LoadState:
    """Update the load and the budget of load shedding after a batch.

    Args:
        latency: promised seconds from the arrival of a tuple to the commit of its results.

    >>> load = LoadState()
    >>> for _ in range(8):  # 10,000 rows a second, each with 0.1 ms of probing
    ...     probing = load.budget * 1.0
    ...     work = BatchWork(10_000, 0.4 + probing, probing, load.budget, 1.0, 1.0, 9_000, 2.0)
    ...     load = observe(load, work, latency=2.0)
    >>> load.overloaded, load.budget < 0.5
    (True, True)
    """
    length = latency / 2
    works = (*load.works, work)[-MEMORY:]
    before = load.works[0].waiting if len(works) == MEMORY and load.works else load.waiting
    before = works[0].waiting if before is None else before
    savable = _savable(works, load.savable)
    share, needed = _room(works, before, length, savable)
    late = work.waited > length or work.seconds > length
    if not load.overloaded and not late:
        return LoadState(1.0, needed, works=works, waiting=before, savable=savable)
    budget = min(share, load.budget + RISE) if load.overloaded else share
    budget = max(min(int(budget / GRAIN) * GRAIN, 1.0), 0.0)
    calm = load.calm + 1 if share >= 1 and budget >= 1 and not late else 0
    known = LoadState(budget, needed, budget < 1 or load.overloaded, calm, works, before, savable)
    return replace(known, overloaded=False, budget=1.0, calm=0) if calm >= CALM else known


def _savable(works: tuple[BatchWork, ...], known: float) -> float:
    """Estimate seconds per row that withholding all tuples saves; ``known`` if none probed.

    While windows fill, probes become more expensive, and a budget that follows too late makes input
    wait. So the greater of a slow and a fast average is taken.
    """
    return max(_mean_savable(works, known, FADING), _mean_savable(works, known, RISING))


def _mean_savable(works: tuple[BatchWork, ...], known: float, fading: float) -> float:
    seconds = rows = 0.0
    for age, work in enumerate(reversed(works)):
        if work.budget >= GRAIN:
            weight = fading**age
            seconds += weight * work.rationed / work.budget
            rows += weight * work.rows
    return seconds / rows if rows else known


def _room(
    works: tuple[BatchWork, ...], before: int, length: float, savable: float
) -> tuple[float, float]:
    """Return the share of probing for which a batch of ``length`` seconds has time; and the time to
    process the arrivals of ``length`` seconds without load shedding, as a share of ``length``."""
    elapsed = sum(one.elapsed for one in works)
    read = tuple((one.rows, one.rest) for one in works if one.rows)
    if not read or elapsed <= 0:
        return 1.0, 0.0
    fixed, per_row, _ = fit(read)
    arrived = _arrived(works, before, length)
    backlog = max(works[-1].waiting - arrived * length, 0.0) / DRAIN
    due = arrived * length + backlog
    room = length * (1 - HEADROOM) - fixed - due * per_row
    everything = (fixed + arrived * length * (per_row + savable)) / length
    return (room / (due * savable) if due * savable > 0 else 1.0), everything


def _arrived(works: tuple[BatchWork, ...], before: int, length: float) -> float:
    """Estimate arriving rows per second: the greater of the rate over all batches and the rate over
    the last ``length`` seconds.

    Args:
        before: number of rows that waited before the first batch.
    """
    found = rows = elapsed = 0.0
    for at in range(len(works) - 1, -1, -1):
        rows, elapsed = rows + works[at].rows, elapsed + works[at].elapsed
        if elapsed >= length or not at:
            waited = works[at - 1].waiting if at else before
            found = max(found, (rows + works[-1].waiting - waited) / elapsed)
            length = math.inf
    return found
