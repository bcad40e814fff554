"""The protocol by which the control plane and the data plane communicate through Redis.

Pure data, no I/O. The service writes rulesets and control keys, the runtime writes progress,
activations and statistics. Neither imports the other; both import this module.

Protocol:

* The runtime appends :class:`Boundary` documents to the list ``Keys.boundaries``: one with
  ``epoch = -1`` when it starts, then one after the last batch of every epoch, with that epoch's
  statistics. For each, the service publishes the ruleset of a later epoch: ``epoch + 1`` in step
  mode (``replay``), where the runtime waits for it, and ``epoch + 2`` in live mode; for
  ``epoch = -1`` epoch 0. A published ruleset never changes (``SET NX``). In live mode a
  registration also ends the epoch after some time, so an epoch may have no batch at all.
* If no ruleset is published for an epoch, the runtime keeps running the newest older ruleset.
* ``Keys.gate`` holds the number of batches that may start (absent: no limit).
* If ``Keys.stop`` exists, the runtime finishes its batch and stops.
* ``Keys.runtime`` is a JSON :class:`Progress`, rewritten after every batch. It is not removed when
  the runtime ends, so it does not show whether a runtime is working.
* ``Keys.heartbeat`` shows whether a runtime works: a JSON :class:`Heartbeat`, rewritten about every
  second, which expires after :data:`HEARTBEAT_MILLISECONDS`.
* While a client follows a query's results, the service keeps the query in ``Keys.listeners``. The
  runtime appends committed rows to ``Keys.tail(query)`` (:func:`tail_entry`), keeps the newest few
  thousand, and never waits for a reader. An entry's field ``rows`` holds JSON objects, one a line.
  An entry without rows begins a tail; its field ``count`` is the number of results before the
  tail's first rows.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import StrEnum

from anabranch_contract.codec import Message
from anabranch_contract.plans.rations import Overload, Ration
from anabranch_contract.protocol.activations import LeftRows
from anabranch_contract.protocol.ages import AgeCounts
from anabranch_contract.protocol.intake import InputProgress

#: Version of all documents in Redis: registry records and messages of service and runtime.
VERSION = 1


class Mode(StrEnum):
    """Pace of the runtime: ``LIVE`` never waits for the planner, which at every boundary plans the
    epoch after the next one; ``STEP`` (replay) waits at every boundary for the next epoch's plan.
    """

    LIVE = "live"
    STEP = "step"


@dataclass(frozen=True, slots=True)
class Boundary(Message):
    """The end of an epoch (``epoch = -1``: the runtime has started).

    Attributes:
        snapshot: the text of the epoch's :class:`~.measurements.Snapshot`.
    """

    epoch: int
    next_batch: int
    snapshot: str | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat(Message):
    """A sign of life of the runtime.

    Attributes:
        run: id of this run of the runtime, the same as in :class:`Progress`.
        pid, host: process id of the runtime, and its host.
        state: ``starting`` until its main loop runs, then ``working``.
        version: :data:`VERSION` of its release.
    """

    run: str
    pid: int
    host: str
    state: str = "working"
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class RevisionCounts:
    """Numbers of revisions that a run of the runtime has received, by outcome.

    Attributes:
        taken: number used by a batch. ``passed_over``: number that came after their epoch's end.
        refused: revisions that could not replace the running ruleset. ``reason``: why the last of
            these was refused; empty: none was.
    """

    taken: int = 0
    passed_over: int = 0
    refused: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rationing:
    """State of load shedding: the rations of the last batch, and the figures that determine them.

    Attributes:
        policy: policy for input that exceeds the machine's capacity.
        budget: the share of rationed probes' CPU time that the next batch may take.
        needed: time of all work without rations, as a share of the available time; above 1 the
            machine is too slow for its input. 0: unknown.
        overloaded: whether the last batch withheld results.
        latency: promised seconds from arrival to commit; None: no promise.
        rations: the rations of the last batch that were below 1.
        owed: number of batches whose withheld results will still be computed.
        left_rows: outer join -> numbers of its left rows whose deadline has passed.
    """

    policy: Overload = Overload.WAIT
    budget: float = 1.0
    needed: float = 0.0
    overloaded: bool = False
    latency: float | None = None
    rations: tuple[Ration, ...] = ()
    owed: int = 0
    left_rows: dict[str, LeftRows] = field(default_factory=dict)


#: Upper bounds, in seconds, of the bins of :class:`Latencies`; a last bin is for greater times.
LATENCY_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


@dataclass(frozen=True, slots=True)
class Latencies:
    """Histogram of times from arrival to commit: per stream and batch one, of the oldest row.

    Attributes:
        counts: number of times per bin of :data:`LATENCY_BOUNDS`; empty: nothing was measured.
        seconds: the sum of all times.
    """

    counts: tuple[int, ...] = ()
    seconds: float = 0.0

    def adding(self, seconds: float) -> Latencies:
        """Return the histogram with one more time.

        >>> Latencies().adding(0.3).adding(99.0).counts
        (0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0)
        """
        counts = list(self.counts or (0,) * (len(LATENCY_BOUNDS) + 1))
        counts[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        return Latencies(tuple(counts), self.seconds + seconds)


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Monitoring figures of a run of the runtime; sums and counts begin with the run.

    Attributes:
        batches: number of batches committed by this run. ``seconds``: their total duration.
        phases: phase -> its seconds. ``enter`` (choosing the ruleset) and ``commit`` are the
            driver's, ``spark`` is the job's time without the tasks' work, the others are phases of
            each batch's slowest task (``task_report`` of the runtime).
        committed_at: time of the last commit, seconds since 1970; 0: none yet.
        latencies: times from arrival to commit, for sources that report arrivals; recordings do
            not. ``ages``: the same times by stream, for the history of freshness.
        watermarks: stream -> microseconds since 1970, as of the last batch.
        parked: query -> number of batches whose results wait for the query's sink.
        view_lag: view -> number of committed batches whose joined rows it does not include yet.
        merge_bytes: bytes of the segments that wait to be merged.
    """

    batches: int = 0
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    committed_at: float = 0.0
    latencies: Latencies = Latencies()
    ages: dict[str, AgeCounts] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    parked: dict[str, int] = field(default_factory=dict)
    view_lag: dict[str, int] = field(default_factory=dict)
    merge_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Resources:
    """Time, memory and disk space that the runtime uses.

    Attributes:
        state_bytes: bytes of stored rows.
        batch_seconds: duration of the last batch. ``processing_seconds``: duration of all batches.
        private_bytes: peak private memory of the last batch, sum over its tasks.
        memory_limit: upper limit of the private memory, in bytes; None: no limit.
    """

    state_bytes: int = 0
    batch_seconds: float = 0.0
    processing_seconds: float = 0.0
    private_bytes: int = 0
    memory_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Progress(Message):
    """The progress of the runtime.

    Attributes:
        state: ``starting``, ``running``, ``idle``, ``stopped`` or ``failed``: state of the runtime.
        run: id of the run of the runtime that wrote this document.
        committed: number of batches committed so far (the next batch's number).
        epoch: the epoch of the last committed batch (-1 before the first).
        epoch_starts: epoch -> its first batch, for the epochs so far.
        ruleset_epoch, revision: the published ruleset of the running epoch.
        revisions: counts of the revisions received by this run.
        streams: stream -> numbers of tuples so far, by "input", "late", "invalid", "ahead", and
            "unseen" (invisible to a query activated now).
        results: query -> number of results so far; for views and outer joins of joined rows.
        shown: view -> number of its rows; outer join -> number of rows emitted. Every report of a
            run has all active queries.
        probes: epoch -> number of tuples that have probed in it so far.
        input: state of the sources. ``resources``: time, memory and disk of the runtime.
        sinks: query -> error of its failing sink.
        backfill: store for which a backfill is running -> the completed share (0..1).
        rationing: state of load shedding.
        results_home: the results directory.
        telemetry: figures for monitoring the runtime.
    """

    state: str
    committed: int = 0
    epoch: int = -1
    epoch_starts: dict[str, int] = field(default_factory=dict)
    ruleset_epoch: int = -1
    streams: dict[str, dict[str, int]] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=dict)
    probes: dict[str, int] = field(default_factory=dict)
    error: str | None = None
    sinks: dict[str, str] = field(default_factory=dict)
    input: InputProgress = field(default_factory=InputProgress)
    resources: Resources = field(default_factory=Resources)
    backfill: dict[str, float] = field(default_factory=dict)
    run: str = ""
    revision: int = 0
    revisions: RevisionCounts = field(default_factory=RevisionCounts)
    rationing: Rationing = field(default_factory=Rationing)
    results_home: str = ""
    telemetry: Telemetry = field(default_factory=Telemetry)

    @property
    def input_tuples(self) -> int:
        """Number of rows read so far of all streams, including late and invalid rows."""
        return sum(counts.get("input", 0) for counts in self.streams.values())
