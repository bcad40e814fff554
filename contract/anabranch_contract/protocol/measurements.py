"""Measurements of streams, edges and stores, which the runtime reports for each epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

from anabranch_contract.body import Body
from anabranch_contract.codec import Message
from anabranch_contract.plans.steps import WHOLE, StepPart, SubJoinStep
from anabranch_contract.protocol.counts import Summed
from anabranch_contract.protocol.reads import Reads
from anabranch_contract.queries.joins import Equality, Label, RelationId
from anabranch_contract.queries.mirs import MirId
from anabranch_contract.queries.types import FLOATING, TypeKind, parse_type


@dataclass(frozen=True, slots=True)
class JoinSample:
    """Measurements of one step: partial results over ``head`` probing ``target``.

    Attributes:
        joined: the canonical sub-join over both.
        head, target: its labels, cut in two; sorted.
        probes: tuples that probed. Fractional, since older tuples count less.
        pairs: (probing tuple, stored tuple) combinations covered by the probes, including the
            combinations of tuples dropped by a look-ahead filter.
        hits: ``pairs`` with equal keys, before any other check.
        part: the tuples that were counted.
    """

    joined: MirId
    head: tuple[Label, ...]
    target: tuple[Label, ...]
    probes: float
    pairs: float
    hits: float
    part: StepPart = WHOLE

    @classmethod
    def of(cls, step: SubJoinStep, probes: float, pairs: float, hits: float) -> JoinSample:
        """The measurements of ``step``."""
        return cls(step.joined, step.head, step.target, probes, pairs, hits, step.part)

    @property
    def step(self) -> SubJoinStep:
        """The step, and the part that was counted."""
        return SubJoinStep(self.joined, self.head, self.target, self.part)


@dataclass(frozen=True, slots=True)
class EdgeStatistics(Body, Summed):
    """One edge during one epoch.

    Attributes:
        probes: tuples sent.
        matches: matches found before any check of time bounds or residuals.
        seconds: of CPU.
        pairs: combinations of a probing tuple and a stored row of an earlier batch that the probes
            stood for, whether an index spared looking at them or not.
        hits: ``pairs`` with equal keys. Neither counts rows of the same batch, because only some of
            them arrived before the probing tuple.
        found: ``probes`` with at least one match.
        calls: number of times that tuples were sent, any number at a time.
        looked: segments read, summed over the tuples.
        made: matches that passed the rule's time bounds and residuals.
        sent, sent_bytes: tuples sent to other hosts for probing, counted once per host, and their
            bytes (Arrow, not compressed).
        asked, dropped: tuples tested by a look-ahead filter (``ProbeRule.ahead``), and tuples that
            it dropped; dropped tuples are not in ``probes``.
    """

    probes: int = 0
    matches: int = 0
    seconds: float = 0.0
    pairs: int = 0
    hits: int = 0
    found: int = 0
    calls: int = 0
    looked: int = 0
    made: int = 0
    sent: int = 0
    sent_bytes: int = 0
    asked: int = 0
    dropped: int = 0

    @property
    def nanoseconds(self) -> int:
        """``seconds`` in whole nanoseconds."""
        return round(self.seconds * 1e9)


@dataclass(frozen=True, slots=True)
class Writes(Summed):
    """Rows written over some time: into stores, or as results.

    Attributes:
        writes: how many times, each time any number of rows: into one store, or of one query.
        rows: that were written.
        seconds: of CPU; with index entries and sketches, or with a query's last checks.
    """

    writes: int = 0
    rows: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StoreStatistics(Body):
    """One store at the end of an epoch.

    Attributes:
        keys: comma-joined sorted key attributes -> upper limit of the distinct values stored
            (counted since the store began, and never more than ``rows``).
        reads: index -> its reads during the epoch.
        mir: the relation or intermediate result that it holds.
    """

    rows: int
    bytes: int
    segments: int
    keys: dict[str, float] = field(default_factory=dict)
    reads: dict[str, Reads] = field(default_factory=dict)
    mir: str = ""

    @property
    def tuples(self) -> int:
        """Its rows."""
        return self.rows


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """One stream during one epoch.

    Attributes:
        input, late, invalid, ahead: tuples (ahead: too far in the future).
        seconds: wall time from the epoch's first batch to the end of its last.
        event_seconds: growth of the greatest event time (in a stream's first epoch: from the least
            to the greatest); None without event time.
        delays: histogram of valid tuples by delay behind the greatest event time of earlier
            batches: entry 0 counts tuples without delay, entry ``n`` delays from ``2**(n-1)`` up to
            less than ``2**n`` microseconds. Empty without event time.
    """

    input: int
    late: int = 0
    invalid: int = 0
    seconds: float = 0.0
    event_seconds: float | None = None
    delays: tuple[int, ...] = ()
    ahead: int = 0

    @property
    def arrival_rate(self) -> float | None:
        """Tuples per second of wall time."""
        return self.input / self.seconds if self.seconds > 0 else None

    @property
    def event_rate(self) -> float | None:
        """Valid tuples per second of event time."""
        if not self.event_seconds or self.event_seconds < 0:
            return None
        return (self.input - self.invalid - self.ahead) / self.event_seconds

    def delay(self, share: float) -> int | None:
        """A delay in microseconds that at least ``share`` of the tuples did not exceed.

        It is the upper end of a class of ``delays``, so up to twice the least such delay.

        >>> StreamStatistics(10, delays=(8, 0, 1, 1)).delay(0.9)
        3
        """
        total, seen = sum(self.delays), 0
        if not total:
            return None
        for position, count in enumerate(self.delays):
            seen += count
            if seen >= share * total:
                return (1 << position) - 1
        return (1 << len(self.delays)) - 1


def valid(counts: Mapping[str, int]) -> int:
    """Tuples that were taken in, of the counts of a stream as :class:`Snapshot` has them."""
    return counts["input"] - counts["late"] - counts["invalid"] - counts.get("ahead", 0)


@dataclass(frozen=True, slots=True)
class Counts(Message):
    """The part of a :class:`Snapshot` that rates are made of; reading it passes over all else.

    Attributes:
        batches, total_batches, arrivals, streams: as in ``Snapshot``.
    """

    batches: int
    total_batches: int
    arrivals: dict[str, int] = field(default_factory=dict)
    streams: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def relations(self) -> dict[str, int]:
        """Relation -> its tuples so far; a stream is a relation, too."""
        return {**self.arrivals, **{name: valid(counts) for name, counts in self.streams.items()}}


@dataclass(frozen=True, slots=True)
class FrequentValues:
    """Frequent values of one key attribute of a relation (``docs/statistics.md``).

    Hashes, texts and shares have an entry per value, in descending order of ``arriving``. NULL has
    no entry, but tuples with NULL count among all tuples.

    Attributes:
        hashes: 64-bit hashes, as they are computed where tuples are stored and probe
            (``index.keys`` of the runtime): equal where values of one key type are equal.
        texts: the values for people, at most 64 characters; "" for a value without text.
        arriving: share of the relation's arriving tuples (0..1); recent batches count more.
        stored: share of all its tuples since counting of the key began (0..1), equally weighted.
        error: maximum underestimate of a share (0..1), and so the maximum share of an unlisted
            value. Shares are never too high.
        null_arriving, null_stored: the shares of NULL among the same tuples.
    """

    hashes: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    arriving: tuple[float, ...] = ()
    stored: tuple[float, ...] = ()
    error: float = 1.0
    null_arriving: float = 0.0
    null_stored: float = 0.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The statistics of one epoch. Answers the protocol ``Statistics`` of the planner.

    Attributes:
        batches: how many batches the epoch had; all rates below are per batch of history seen.
        arrivals: relation -> tuples that arrived so far (all epochs, after the local filter).
        total_batches: batches so far.
        distincts: relation -> {comma-joined sorted attributes -> distinct values so far}.
        streams: stream -> {"input", "late", "invalid", "ahead"} tuples so far.
        edges, stores: measured.
        spans: stream -> microseconds between the least and the greatest event time so far.
        steps: measurements of sub-joins on edges, of this epoch and, faded, of earlier ones
            (``join_samples`` of the runtime).
        measured: stream -> what it did in this epoch.
        on_hosts: hosts that the newest batch ran on.
        locality: the share of arriving tuples, by bytes, that find their partitions on the host on
            which they arrive; None: not known.
        values: relation -> key attribute -> its frequent values.
    """

    epoch: int
    batches: int
    total_batches: int
    arrivals: dict[str, int] = field(default_factory=dict)
    distincts: dict[str, dict[str, float]] = field(default_factory=dict)
    streams: dict[str, dict[str, int]] = field(default_factory=dict)
    edges: dict[str, EdgeStatistics] = field(default_factory=dict)
    stores: dict[str, StoreStatistics] = field(default_factory=dict)
    spans: dict[str, int] = field(default_factory=dict)
    steps: tuple[JoinSample, ...] = ()
    measured: dict[str, StreamStatistics] = field(default_factory=dict)
    on_hosts: int = 1
    locality: float | None = None
    values: dict[str, dict[str, FrequentValues]] = field(default_factory=dict)

    def cardinality(self, relation: RelationId) -> float | None:
        """Tuples of ``relation`` seen so far; None if the runtime has not met it.

        An unfiltered relation is its stream, which is counted whether a query reads it or not; a
        filtered one is counted from its first query on.
        """
        stream = self.streams.get(relation)
        if stream is not None:
            return float(max(valid(stream), 1))
        seen = self.arrivals.get(relation)
        return None if seen is None else float(max(seen, 1))

    def distinct(self, relation: RelationId, attributes: tuple[str, ...]) -> float | None:
        """Distinct values seen so far of the sorted attribute combination."""
        return self.distincts.get(relation, {}).get(",".join(sorted(attributes)))

    def frequent(self, relation: RelationId, attribute: str) -> FrequentValues | None:
        """Frequent values of a key attribute; None if they have not been counted."""
        return self.values.get(relation, {}).get(attribute)

    def selectivity(self, predicate: Equality) -> float | None:
        """Not measured per predicate: the cost model derives it from distinct counts."""
        return None

    def span(self, relation: RelationId) -> float | None:
        """How much event time the relation's stream has covered so far; None without any."""
        known = self.spans.get(relation, self.spans.get(relation.rpartition("[")[0]))
        return float(known) if known else None

    def samples(self) -> Sequence[JoinSample]:
        """The measurements of sub-joins so far."""
        return self.steps

    def ahead(self) -> None:
        """An epoch says what was, not what will be."""

    def constants(self) -> None:
        """CPU time per operation is fitted to many of them."""

    def exchange(self) -> None:
        """How wide tuples are follows from schemas and samples."""


Value: TypeAlias = bool | int | float | str | Decimal | None


@dataclass(frozen=True, slots=True)
class StreamSample(Message):
    """Uniform sample, without replacement, of all tuples of a stream.

    Attributes:
        seen: number of the stream's tuples.
        size: number of tuples drawn.
        columns: column -> (type, values). Values as in ``expressions.Literal``, but decimals and
            floats as texts; long texts are cut off.
    """

    seen: int
    size: int
    columns: dict[str, tuple[str, list[Any]]]

    def values(self, column: str) -> list[Value]:
        """A column's values, decimals and floats as such."""
        text, values = self.columns[column]
        kind = parse_type(text).kind
        read: Callable[[Any], Value] | None = None
        if kind is TypeKind.DECIMAL:
            read = Decimal
        elif kind in FLOATING:
            read = float
        return values if read is None else [None if v is None else read(v) for v in values]
