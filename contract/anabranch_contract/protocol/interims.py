"""Interim measurements: counts of a pipeline over one period of a few seconds.

They are the samples of time series (dpPick, section 4.2): per step the hit ratio ``found / probes``
(gamma, Eq. 9) and matches per hit ``matches / found`` (mu, Eq. 10); per store the distinct keys
(kappa, Eq. 11). The sub-join after a step identifies it, so a step's series continues across plans.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch_contract.codec import Message
from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.plans.steps import WHOLE, StepPart, SubJoinStep
from anabranch_contract.protocol.measurements import EdgeStatistics, Writes
from anabranch_contract.queries.joins import Label
from anabranch_contract.queries.mirs import MirId

#: Maximum number of drifts (sudden changes) displayed per period; maximum number of joins whose
#: results are counted one by one.
SHOWN, NAMED = 10, 200


@dataclass(frozen=True, slots=True)
class StepMeasures:
    """Counts of one step (partial results probe a store) in one period, over all its edges.

    Attributes:
        joined: the canonical sub-join after the step.
        head, target: the labels of the probing tuple, and of the probed store; sorted.
        counts: counts of the period; ``pairs`` as in :class:`~.measurements.JoinSample`.
        part: the part of the tuples that was counted.
    """

    joined: MirId
    head: tuple[Label, ...]
    target: tuple[Label, ...]
    counts: EdgeStatistics
    part: StepPart = WHOLE

    @classmethod
    def of(cls, step: SubJoinStep, counts: EdgeStatistics) -> StepMeasures:
        """Return the measures of ``step`` with the counts of a period."""
        return cls(step.joined, step.head, step.target, counts, step.part)

    @property
    def step(self) -> SubJoinStep:
        """The measured step, with the part of its tuples that was counted."""
        return SubJoinStep(self.joined, self.head, self.target, self.part)


@dataclass(frozen=True, slots=True)
class StoreSize:
    """Size of a store at the end of a period.

    Attributes:
        keys: comma-joined sorted key attributes -> upper bound of the number of distinct values.
    """

    rows: int
    keys: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, order=True)
class DriftedRate:
    """A relation whose arrival rate has changed suddenly, relative to the other relations' rates.

    Attributes:
        factor: new rate over old rate.
    """

    relation: str
    factor: float

    def __str__(self) -> str:
        return f"{self.relation}: {self.factor:.3g} times the arrivals"


@dataclass(frozen=True, slots=True, order=True)
class DriftedStep:
    """A step whose matches per probe have changed suddenly.

    Attributes:
        joined, head, target: as in :class:`StepMeasures`.
        figure: ``matches`` or ``found`` of :class:`~.measurements.EdgeStatistics`.
        before, after: the figure per probe, before and after the change.
        part: the part of the tuples that was counted.
    """

    joined: MirId
    head: tuple[Label, ...]
    target: tuple[Label, ...]
    figure: str
    before: float
    after: float
    part: StepPart = WHOLE

    def __str__(self) -> str:
        step = SubJoinStep(self.joined, self.head, self.target, self.part)
        return f"{step}: {self.figure} per probe from {self.before:.3g} to {self.after:.3g}"


@dataclass(frozen=True, slots=True)
class Drifts:
    """Sudden changes in a period, found by the runtime (``driver.drift``); falsy if none."""

    rates: tuple[DriftedRate, ...] = ()
    steps: tuple[DriftedStep, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rates or self.steps)

    def shown(self) -> tuple[str, ...]:
        """Return descriptions of the drifts for people: at most :data:`SHOWN`, rates first."""
        return tuple(map(str, (*self.rates, *self.steps)[:SHOWN]))


@dataclass(frozen=True, slots=True)
class DriftedRates:
    """The part of :class:`Drifts` that forecasts of rates use."""

    rates: tuple[DriftedRate, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrivals(Message):
    """The arrivals of one period: the part of an :class:`Interim` from which rates are computed.

    Decoding an ``Interim``'s text as ``Arrivals`` skips all other fields, most of the text.

    Attributes:
        next_batch: the first batch after the period. ``batches``: number of its batches.
        arrivals: relation -> number of tuples that arrived, after the local filter.
        drifted: the rates that changed at the first batch of the period.
    """

    next_batch: int
    batches: int
    arrivals: dict[str, int] = field(default_factory=dict)
    drifted: DriftedRates = DriftedRates()


@dataclass(frozen=True, slots=True)
class Interim(Message):
    """The measurements of one period, which begins and ends between two batches.

    Attributes:
        until: end of the period, seconds since 1970.
        seconds: length of the period by a monotonic clock.
        epoch: epoch of its last batch. ``ruleset_epoch``, ``revision``: ruleset of its last batch.
        next_batch: the first batch after the period. ``batches``: number of its batches.
        arrivals: relation -> number of tuples that arrived, after the local filter.
        steps: counts of the steps with at least one probe, sorted.
        stores: store -> its size.
        asks: whether the runtime waits for the service's answer (``revisions``).
        inserts: inserts by all tasks into all stores, without backfills: writes, rows, CPU seconds.
        results: results written by all tasks, over all queries: writes, rows, CPU seconds.
        merges: merges of segments on all hosts: their number, rows rewritten, CPU seconds.
        rationed: whether a batch of the period withheld tuples from probes.
        drifted: the drifts at its first batch; they ended the period early.
        rulesets: (epoch, revision) of the rulesets of its batches, ascending.
        emitted: join -> number of its results; only for the :data:`NAMED` joins with most results.
    """

    until: float
    seconds: float
    epoch: int
    ruleset_epoch: int
    next_batch: int
    batches: int
    arrivals: dict[str, int] = field(default_factory=dict)
    steps: tuple[StepMeasures, ...] = ()
    stores: dict[str, StoreSize] = field(default_factory=dict)
    revision: int = 0
    asks: bool = False
    inserts: Writes = field(default_factory=Writes)
    drifted: Drifts = Drifts()
    results: Writes = field(default_factory=Writes)
    rationed: bool = False
    merges: Writes = field(default_factory=Writes)
    rulesets: tuple[RulesetId, ...] = ()
    emitted: dict[str, int] = field(default_factory=dict)

    @property
    def arrived(self) -> Arrivals:
        """Return the arrivals of the period, from which rates are computed."""
        rates = DriftedRates(self.drifted.rates)
        return Arrivals(self.next_batch, self.batches, self.arrivals, rates)
