"""Measurements of streams, edges and stores, which the runtime reports for each epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

from anabranch_contract.body import Body
from anabranch_contract.codec import Message
from anabranch_contract.plans.steps import WHOLE, StepPart, SubJoinStep
from anabranch_contract.protocol.counts import Summed
from anabranch_contract.protocol.reads import Reads
from anabranch_contract.queries.joins import Label
from anabranch_contract.queries.mirs import MirId
from anabranch_contract.queries.types import FLOATING, TypeKind, parse_type


@dataclass(frozen=True, slots=True)
class JoinSample:
    """Measurements of one step, in which partial results over ``head`` probe ``target``.

    Attributes:
        joined: the canonical sub-join over the labels of ``head`` and ``target``.
        head, target: the labels of the probing tuple, and of the probed store; sorted.
        probes: number of tuples that probed; fractional, because older tuples have less weight.
        pairs: number of (probing tuple, stored tuple) pairs covered by the probes, including pairs
            of tuples that a look-ahead filter dropped.
        hits: ``pairs`` with equal keys, before any other check.
        part: the tuples that were counted, if not all.
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
        """Return the join sample of ``step`` with these counts."""
        return cls(step.joined, step.head, step.target, probes, pairs, hits, step.part)

    @property
    def step(self) -> SubJoinStep:
        """The measured step, with the part of its tuples that was counted."""
        return SubJoinStep(self.joined, self.head, self.target, self.part)


@dataclass(slots=True)
class EdgeStatistics(Body, Summed):
    """Counts of the probes of one edge. Mutable, so that running probes add to them in place.

    Attributes:
        probes: number of tuples that probed.
        matches: number of matches before any check of time bounds or residuals.
        seconds: CPU seconds.
        pairs: pairs of a probing tuple and a stored row of an earlier batch: the size of their
            cross product, however few of them an index made the probes compare.
        hits: ``pairs`` with equal keys. Neither ``pairs`` nor ``hits`` has rows of the probing
            tuple's batch, because only some of these arrived before the tuple.
        found: number of ``probes`` with at least one match.
        calls: number of probe calls, each with a block of tuples.
        looked: number of segments read, summed over the tuples.
        made: number of matches that satisfied the rule's time bounds and residuals.
        sent: number of tuples sent to other hosts for probing, counted once per host.
        sent_bytes: their size in bytes (Arrow, not compressed).
        asked: number of tuples tested by a look-ahead filter (``ProbeRule.ahead``).
        dropped: number of tuples that the filter dropped; they are not in ``probes``.
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
        """CPU time of the edge's probes in whole nanoseconds."""
        return round(self.seconds * 1e9)


@dataclass(frozen=True, slots=True)
class Writes(Summed):
    """Rows written over a period of time: into stores, or as results.

    Attributes:
        writes: number of writes, each of a block of rows into one store, or of one query.
        rows: number of rows written.
        seconds: CPU seconds, including index entries and sketches, or a query's last checks.
    """

    writes: int = 0
    rows: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StoreStatistics(Body):
    """Statistics of one store at the end of an epoch.

    Attributes:
        rows: number of rows.
        bytes: size in bytes.
        segments: number of segments.
        keys: comma-joined sorted key attributes -> upper bound of the number of distinct values
            stored: the number since the store began, at most ``rows``.
        reads: index -> counts of its reads during the epoch.
        mir: the relation or intermediate result whose rows the store has.
    """

    rows: int
    bytes: int
    segments: int
    keys: dict[str, float] = field(default_factory=dict)
    reads: dict[str, Reads] = field(default_factory=dict)
    mir: str = ""

    @property
    def tuples(self) -> int:
        """Number of rows in the store."""
        return self.rows


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """Statistics of one stream during one epoch.

    Attributes:
        input, late, invalid, ahead: numbers of tuples: read, late, invalid, too far in the future.
        seconds: wall time from the beginning of the epoch's first batch to the end of its last one.
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
        """Tuples of the stream per second of wall time, in the epoch."""
        return self.input / self.seconds if self.seconds > 0 else None

    @property
    def event_rate(self) -> float | None:
        """Valid tuples of the stream per second of event time; None without event time."""
        if not self.event_seconds or self.event_seconds < 0:
            return None
        return (self.input - self.invalid - self.ahead) / self.event_seconds

    def delay(self, share: float) -> int | None:
        """Return a delay in microseconds that at least the ``share`` of the tuples did not exceed.

        It is the upper end of a bin of ``delays``, so at most twice the exact quantile.

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
    """Return a stream's number of accepted tuples from its ``counts``, as in :class:`Snapshot`."""
    return counts["input"] - counts["late"] - counts["invalid"] - counts.get("ahead", 0)


@dataclass(frozen=True, slots=True)
class Counts(Message):
    """The fields of a :class:`Snapshot` for computing rates; other fields are not decoded.

    Attributes:
        batches, total_batches, arrivals, streams: as in ``Snapshot``.
    """

    batches: int
    total_batches: int
    arrivals: dict[str, int] = field(default_factory=dict)
    streams: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def relations(self) -> dict[str, int]:
        """Return the number of tuples so far of each relation; streams are relations, too."""
        return {**self.arrivals, **{name: valid(counts) for name, counts in self.streams.items()}}


@dataclass(frozen=True, slots=True)
class FrequentValues:
    """Frequent values of one key attribute of a relation (``docs/statistics.md``).

    Hashes, texts and shares have an entry per value, in descending order of ``arriving``. NULL has
    no entry, but tuples with NULL count among all tuples.

    Attributes:
        hashes: 64-bit hashes of the values, as stores and probes use them (``index.keys`` of the
            runtime); equal values of one key type have equal hashes.
        texts: the values for display, at most 64 characters; "" for a value without text.
        arriving: share of the relation's arriving tuples (0..1); recent batches count more.
        stored: share of all its tuples since counting of the key began (0..1), equally weighted.
        error: maximum error of a share (0..1), and so the maximum share of an unlisted value.
            Shares may be too low by this much, never too high.
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
    """The statistics of one epoch.

    Attributes:
        batches: number of batches of the epoch.
        arrivals: relation -> number of tuples so far (all epochs, after the local filter).
        total_batches: number of batches so far.
        distincts: relation -> {comma-joined sorted attributes -> number of distinct values so far}.
        streams: stream -> numbers of tuples so far, by "input", "late", "invalid", "ahead".
        edges: edge -> counts of its probes. ``stores``: store -> its statistics.
        spans: stream -> microseconds between the least and the greatest event time so far.
        steps: measurements of steps in this epoch and earlier ones, which weigh less with age
            (``join_samples`` of the runtime).
        measured: stream -> its statistics of this epoch.
        on_hosts: number of hosts that the newest batch ran on.
        locality: the share of arriving tuples, by bytes, whose partition is on the host on which
            they arrive; None: unknown.
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


Value: TypeAlias = bool | int | float | str | Decimal | None


@dataclass(frozen=True, slots=True)
class StreamSample(Message):
    """A uniform sample, without replacement, of all tuples of a stream so far.

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
        """Return a column's sampled values, with decimals and floats parsed from their texts."""
        text, values = self.columns[column]
        kind = parse_type(text).kind
        read: Callable[[Any], Value] | None = None
        if kind is TypeKind.DECIMAL:
            read = Decimal
        elif kind in FLOATING:
            read = float
        return values if read is None else [None if v is None else read(v) for v in values]


@dataclass(frozen=True, slots=True)
class LatestRows(Message):
    """Some of the latest tuples of a stream, the latest first, late and invalid ones included.

    Attributes:
        size: number of tuples.
        content: an Arrow IPC stream of the rows, as base64. Columns of nested types, and all
            columns after the 64th, are left out; long texts are cut off.
    """

    size: int
    content: str
