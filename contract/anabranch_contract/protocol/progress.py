"""The protocol between the control plane and the data plane.

Pure data: no I/O happens here. The service writes rulesets and control, the runtime writes
progress, activations and statistics; neither imports the other, both import this module.

Protocol:

* The runtime appends :class:`Boundary` documents to the list ``Keys.boundaries``: one with
  ``epoch = -1`` when it starts, then one after the last batch of every epoch, with that epoch's
  statistics. The service answers each by publishing the ruleset of a later epoch: ``epoch + 1``
  in step mode (``replay``: the runtime waits for it), ``epoch + 2`` live (``epoch = -1`` is
  always answered with epoch 0). A published ruleset never changes (``SET NX``). Live, an epoch also
  ends by time where something has been registered, so epochs may have no batch at all.
* Where nothing has been published for an epoch the runtime goes on with the newest older one.
* ``Keys.gate`` holds the number of batches that may start (absent: no limit).
* ``Keys.stop`` set to anything asks the runtime to finish its batch and leave.
* ``Keys.runtime`` is the progress: a JSON :class:`Progress`, rewritten after every batch. It stays
  when the runtime ends, so it says nothing about whether one lives.
* ``Keys.heartbeat`` says that: a JSON :class:`Heartbeat` that expires after
  :data:`HEARTBEAT_MILLISECONDS` unless the runtime writes it again, about every second.
* While a client follows a query's results, the service keeps it in ``Keys.listeners``, and the
  runtime appends committed rows to ``Keys.tail(query)`` (:func:`tail_entry`): the newest few
  thousand, never waiting for a reader. An entry's field ``rows`` holds JSON objects, one a line;
  without it the entry says how many results there are (``count``) and that what follows is new.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import StrEnum

from anabranch_contract.codec import Message
from anabranch_contract.plans.rations import Overload, Ration
from anabranch_contract.protocol.activations import LeftRows
from anabranch_contract.protocol.intake import InputProgress

#: Version of all documents in Redis: registry records and messages of service and runtime.
VERSION = 1


class Mode(StrEnum):
    """Pace of the runtime: ``LIVE`` never waits for the planner, ``STEP`` (replay) does at every
    boundary. A boundary is answered with the epoch after the next one, or with the next.
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
        run: the id of this run of the runtime, the same as in :class:`Progress`.
        pid, host: its process.
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
    """The revisions that a run of the runtime has met.

    Attributes:
        taken: batches have gone by them. ``passed_over``: they came for an epoch that was over.
        refused: they could not take the place of the running ruleset. ``reason``: of the last
            rejection; empty: none.
    """

    taken: int = 0
    passed_over: int = 0
    refused: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rationing:
    """Load shedding: how probes are rationed.

    Attributes:
        policy: wait, or ration probes.
        budget: the share of rationed probes' CPU time that the next batch may take.
        needed: time of all work without rations, as a share of the available time; above 1 the
            machine is too slow for its input. 0: unknown.
        overloaded: whether the last batch withheld results.
        latency: promised seconds; None: no promise.
        rations: of the last batch; missing goals have ration 1.
        owed: number of batches with results still to be made good.
        left_rows: outer join -> counts of its left rows after their deadlines.
    """

    policy: Overload = Overload.WAIT
    budget: float = 1.0
    needed: float = 0.0
    overloaded: bool = False
    latency: float | None = None
    rations: tuple[Ration, ...] = ()
    owed: int = 0
    left_rows: dict[str, LeftRows] = field(default_factory=dict)


#: Upper bounds of the classes of :class:`Latencies`, seconds; one more class is above them all.
LATENCY_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


@dataclass(frozen=True, slots=True)
class Latencies:
    """A histogram of times from arrival to commit: of the oldest row of each stream in each batch.

    Attributes:
        counts: by the classes of :data:`LATENCY_BOUNDS`; empty: nothing was measured.
        seconds: the sum of all.
    """

    counts: tuple[int, ...] = ()
    seconds: float = 0.0

    def adding(self, seconds: float) -> Latencies:
        """With one more.

        >>> Latencies().adding(0.3).adding(99.0).counts
        (0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0)
        """
        counts = list(self.counts or (0,) * (len(LATENCY_BOUNDS) + 1))
        counts[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        return Latencies(tuple(counts), self.seconds + seconds)


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Monitoring figures of a run of the runtime. Sums and counts begin with the run.

    Attributes:
        batches: committed by this run. ``seconds``: their total time.
        phases: phase -> its seconds. ``enter`` (choosing rules) and ``commit`` are the driver's,
            ``spark`` is the job's time without the tasks' work, the others are the slowest task's
            (``task_report`` of the runtime).
        committed_at: time of the last commit, seconds since 1970; 0: none yet.
        latencies: of tuples whose source reports their arrival; recordings do not.
        watermarks: stream -> microseconds since 1970, as of the last batch.
        parked: query -> batches whose results wait for its sink.
        view_lag: view -> committed batches that it does not include yet.
        merge_bytes: bytes of segments due to be merged.
    """

    batches: int = 0
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    committed_at: float = 0.0
    latencies: Latencies = Latencies()
    watermarks: dict[str, int] = field(default_factory=dict)
    parked: dict[str, int] = field(default_factory=dict)
    view_lag: dict[str, int] = field(default_factory=dict)
    merge_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Resources:
    """Time, memory and disk space that the runtime takes.

    Attributes:
        state_bytes: of stored rows.
        batch_seconds: duration of the last batch. ``processing_seconds``: of all batches.
        private_bytes: peak private memory of the last batch's tasks together; memory_limit: its
            upper limit, None: no limit.
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
        state: ``starting``, ``running``, ``idle``, ``stopped`` or ``failed``.
        run: the id of the run of the runtime that wrote this.
        committed: batches committed so far (the next batch's number).
        epoch: the epoch of the last committed batch (-1 before the first).
        epoch_starts: epoch -> its first batch, for the epochs so far.
        ruleset_epoch, revision: the published ruleset of the running epoch.
        revisions: of this run.
        streams: stream -> {"input", "late", "invalid", "ahead"} tuples so far; "unseen": tuples
            that a query beginning now would not see.
        results: query -> results so far; of a view and of an outer join: joined rows.
        shown: view -> its rows, outer join -> rows that it has emitted; lists every active one from
            the first report of a run on.
        probes: epoch -> tuples probed so far in it.
        input: state of the sources. ``resources``: time, memory and disk of the runtime.
        sinks: query -> error of its failing sink.
        backfill: store whose past is being computed -> the completed share (0..1).
        rationing: how probes are rationed.
        results_home: the results directory.
        telemetry: the figures for monitoring.
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
        """Rows read so far, all streams; late and invalid ones included."""
        return sum(counts.get("input", 0) for counts in self.streams.values())
