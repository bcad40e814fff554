"""What the control plane and the data plane say to each other, and under which Redis keys.

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
* While somebody follows a query's results, the service keeps it in ``Keys.listeners``, and the
  runtime appends committed rows to ``Keys.tail(query)`` (:func:`tail_entry`): the newest few
  thousand, never waiting for a reader. An entry's field ``rows`` holds JSON objects, one a line;
  without it the entry says how many results there are (``count``) and that what follows is new.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from anabranch_planner.plain import plain
from anabranch_planner.reads import Reads
from anabranch_planner.statistics import JoinSample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch_planner.model import Equality, RelationId


class Mode(StrEnum):
    """Who waits for whom: ``LIVE`` never for the planner, ``STEP`` (replay) at every boundary.

    So a boundary is answered with the epoch after the next one, or with the next.
    """

    LIVE = "live"
    STEP = "step"


@dataclass(frozen=True, slots=True)
class Keys:
    """Redis key names under one namespace (one pipeline per namespace).

    >>> Keys("demo").ruleset(3)
    'demo:ruleset:3'
    """

    namespace: str = "anabranch"

    def _key(self, *parts: object) -> str:
        return ":".join((self.namespace, *map(str, parts)))

    @property
    def streams(self) -> str:
        """Hash: stream name -> JSON stream record (service)."""
        return self._key("streams")

    @property
    def queries(self) -> str:
        """Hash: query id -> JSON query record (service)."""
        return self._key("queries")

    @property
    def settings(self) -> str:
        """String: what has been set at run time, JSON (service)."""
        return self._key("settings")

    def ruleset(self, epoch: int) -> str:
        """String: the ruleset's wire document (service, immutable)."""
        return self._key("ruleset", epoch)

    def epoch(self, epoch: int) -> str:
        """String: the epoch record: plan, costs, explain (service, immutable)."""
        return self._key("epoch", epoch)

    @property
    def published(self) -> str:
        """Sorted set: published epoch numbers, scored by themselves (service)."""
        return self._key("published")

    @property
    def boundaries(self) -> str:
        """List: JSON :class:`Boundary` documents (runtime appends; service reads by index, and
        removes those before the last that it has answered).
        """
        return self._key("boundaries")

    @property
    def cursor(self) -> str:
        """String int: how many boundaries of those in the list have been answered (service)."""
        return self._key("cursor")

    @property
    def gate(self) -> str:
        """String int: batches that may start; absent means no limit (client)."""
        return self._key("gate")

    @property
    def stop(self) -> str:
        """String: present when the runtime is asked to leave."""
        return self._key("stop")

    @property
    def runtime(self) -> str:
        """String: JSON :class:`Progress` (runtime)."""
        return self._key("runtime")

    @property
    def heartbeat(self) -> str:
        """String with an expiry: JSON :class:`Heartbeat`; absent: no runtime works (runtime)."""
        return self._key("heartbeat")

    @property
    def views(self) -> str:
        """Hash: query id -> JSON :class:`ViewRows` of its view (runtime)."""
        return self._key("views")

    @property
    def state(self) -> str:
        """String: JSON :class:`anabranch_planner.state_report.StateReport` (runtime)."""
        return self._key("state")

    @property
    def state_parts(self) -> str:
        """Hash: store -> JSON :class:`anabranch_planner.state_report.StoreParts` (runtime)."""
        return self._key("state", "parts")

    @property
    def pipeline(self) -> str:
        """String: the id of the pipeline that the namespace belongs to; its state has the same
        (runtime).
        """
        return self._key("pipeline")

    @property
    def activations(self) -> str:
        """Hash: query id -> JSON :class:`Activation` (runtime)."""
        return self._key("activations")

    @property
    def samples(self) -> str:
        """Hash: stream -> the newest sample as in :class:`anabranch_planner.sampling.StreamSample`
        (runtime).
        """
        return self._key("samples")

    @property
    def listeners(self) -> str:
        """Sorted set: query id -> until when its results are followed, Redis's time (service)."""
        return self._key("listeners")

    def tail(self, query: str) -> str:
        """Stream: a query's newest results, while somebody follows them (runtime)."""
        return self._key("tail", query)

    @property
    def limit(self) -> str:
        """String int: rows that the next batch may bring of Redis Streams and files; absent means
        no limit (runtime: the driver writes, its sources read).
        """
        return self._key("limit")

    @property
    def intake(self) -> str:
        """String: JSON :class:`Intake` (runtime: its sources write, the driver reads)."""
        return self._key("intake")

    @property
    def sources(self) -> str:
        """Hash: stream -> JSON :class:`SourceStatus` (runtime)."""
        return self._key("sources")

    @property
    def held(self) -> str:
        """String: JSON object, id of a feed whose input can't be read for now -> how often that has
        been tried, and the offset up to which the feed has been read (runtime: the driver writes,
        its sources read).
        """
        return self._key("held")

    def stream(self, name: str) -> str:
        """Redis Stream: the entries of a ``redis-stream`` source that names no keys."""
        return self._key("stream", name)

    @property
    def tokens(self) -> str:
        """Hash: token id -> JSON token record, with a digest of the secret (service)."""
        return self._key("tokens")

    @property
    def token_uses(self) -> str:
        """Hash: token id -> about when it was used last (service)."""
        return self._key("tokens", "uses")

    def audit(self, kind: str) -> str:
        """Stream: the newest audit entries of one kind (service)."""
        return self._key("audit", kind)

    def statistics(self, epoch: int) -> str:
        """String: the statistics of ``epoch`` as in :class:`Snapshot` (runtime)."""
        return self._key("statistics", epoch)


#: Milliseconds that a heartbeat lasts.
HEARTBEAT_MILLISECONDS = 10_000
#: Seconds that a query counts as followed after the service last said so.
LISTENING_SECONDS = 15
#: Seconds that a tail outlives the last sign of a reader.
TAIL_SECONDS = 60


def tail_entry(batch: int, ordinal: int) -> str:
    """The id of a tail's entry.

    ``ordinal`` is the number of its first row among all of the query's results, ``batch`` the batch
    that the row belongs to. An entry without rows has the number of the first batch that it does
    not include, less one.

    >>> tail_entry(7, 1200), read_tail_entry("9-1200"), tail_entry(-1, 0)
    ('9-1200', (7, 1200), '1-0')
    """
    return f"{batch + 2}-{ordinal}"


def read_tail_entry(entry: str) -> tuple[int, int]:
    """Batch and ordinal of an entry's id."""
    batch, _, ordinal = entry.partition("-")
    return int(batch) - 2, int(ordinal)


@dataclass(frozen=True, slots=True)
class ViewRows:
    """The rows of a view as of a version, in its order.

    Attributes:
        total: how many there are; ``rows`` are the first of them.
        rows: as JSON objects.
    """

    version: int
    total: int
    columns: tuple[str, ...]
    rows: tuple[str, ...]

    def dumps(self) -> str:
        """The wire form."""
        return json.dumps(asdict(self), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class EdgeStatistics:
    """One edge during one epoch.

    Attributes:
        probes: tuples sent.
        matches: matches found before any check of time bounds or residuals.
        seconds: of CPU.
        pairs: combinations of a probing tuple and a stored row of an earlier batch that the
            probes stood for, whether an index spared looking at them or not.
        hits: those among ``pairs`` whose keys agree. Rows of the same batch are left out of
            both, because only some of them arrived before the probing tuple.
    """

    probes: int
    matches: int
    seconds: float
    pairs: int = 0
    hits: int = 0

    @property
    def nanoseconds(self) -> int:
        """``seconds`` in whole nanoseconds."""
        return round(self.seconds * 1e9)


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """One store at the end of an epoch.

    Attributes:
        keys: comma-joined sorted key attributes -> how many distinct values are stored, at most
            (of what has been stored since the store began, and never more than ``rows``).
            Empty in documents of earlier releases.
        reads: index -> what was asked of it during the epoch; likewise.
    """

    rows: int
    bytes: int
    segments: int
    keys: dict[str, float] = field(default_factory=dict)
    reads: dict[str, Reads] = field(default_factory=dict)

    @staticmethod
    def from_json(doc: dict[str, Any]) -> StoreStatistics:
        """What a JSON document says."""
        reads = {index: Reads(**found) for index, found in doc.get("reads", {}).items()}
        return StoreStatistics(**{**doc, "reads": reads})


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """One stream during one epoch.

    Attributes:
        input, late, invalid, ahead: tuples; of none ahead in documents of earlier releases.
        seconds: wall time from the epoch's first batch to the end of its last.
        event_seconds: by how much the greatest event time grew (in a stream's first epoch: the
            time between the least and the greatest); None without event time.
        delays: valid tuples by how far they were behind the greatest event time of earlier batches:
            entry 0 counts those that were not, entry ``n`` those that were by at least
            ``2**(n-1)`` and less than ``2**n`` microseconds. Empty without event time.
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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The statistics of one epoch. Implements :class:`anabranch_planner.statistics.Statistics`.

    Attributes:
        batches: how many batches the epoch had; all rates below are per batch of history seen.
        arrivals: relation -> tuples that arrived so far (all epochs, after the local filter).
        total_batches: batches so far.
        distincts: relation -> {comma-joined sorted attributes -> distinct values so far}.
        streams: stream -> {"input", "late", "invalid", "ahead"} tuples so far.
        edges, stores: measured.
        spans: stream -> microseconds between the least and the greatest event time so far.
        steps: what edges have told about sub-joins, this epoch's and what is remembered of
            earlier ones (``optimiser.measured``).
        measured: stream -> what it did in this epoch; absent from documents of earlier releases.
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

    def cardinality(self, relation: RelationId) -> float | None:
        """Tuples of ``relation`` seen so far; None if the runtime has not met it.

        An unfiltered relation is its stream, which is counted whether a query reads it or not; a
        filtered one is counted from its first query on.
        """
        stream = self.streams.get(relation)
        if stream is not None:
            aside = stream["late"] + stream["invalid"] + stream.get("ahead", 0)
            return float(max(stream["input"] - aside, 1))
        seen = self.arrivals.get(relation)
        return None if seen is None else float(max(seen, 1))

    def distinct(self, relation: RelationId, attributes: tuple[str, ...]) -> float | None:
        """Distinct values seen so far of the sorted attribute combination."""
        return self.distincts.get(relation, {}).get(",".join(sorted(attributes)))

    def selectivity(self, predicate: Equality) -> float | None:
        """Not measured per predicate: the cost model derives it from distinct counts."""
        return None

    def span(self, relation: RelationId) -> float | None:
        """How much event time the relation's stream has covered so far; None without any."""
        known = self.spans.get(relation, self.spans.get(relation.rpartition("[")[0]))
        return float(known) if known else None

    def samples(self) -> Sequence[JoinSample]:
        """What edges have told so far."""
        return self.steps

    def to_json(self) -> dict[str, Any]:
        """A JSON document; :meth:`from_json` is its inverse."""
        return asdict(self)

    @staticmethod
    def from_json(doc: dict[str, Any]) -> Snapshot:
        """The snapshot that :meth:`to_json` wrote."""
        return Snapshot(
            **{
                **doc,
                "edges": {k: EdgeStatistics(**v) for k, v in doc.get("edges", {}).items()},
                "stores": {
                    k: StoreStatistics.from_json(v) for k, v in doc.get("stores", {}).items()
                },
                "steps": tuple(JoinSample.from_json(s) for s in doc.get("steps", ())),
                "measured": {
                    k: StreamStatistics(**{**v, "delays": tuple(v.get("delays", ()))})
                    for k, v in doc.get("measured", {}).items()
                },
            }
        )


@dataclass(frozen=True, slots=True)
class Boundary:
    """The end of an epoch (``epoch = -1``: the runtime has started)."""

    epoch: int
    next_batch: int
    snapshot: dict[str, Any] | None = None

    def dumps(self) -> str:
        """JSON text."""
        return json.dumps(self, default=plain, sort_keys=True)

    @staticmethod
    def loads(text: str | bytes) -> Boundary:
        """The boundary that :meth:`dumps` wrote."""
        return Boundary(**json.loads(text))


#: A closed matrix of time bounds in microseconds (``model.JoinQuery.bounds``).
Retention = tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Visibility:
    """From when on an alias's stored tuples are visible: batch, and event time in microseconds."""

    batch: int
    event_time: int | None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a query has failed at run time: an expression of its own that can't be evaluated.

    Attributes:
        code, message, remedy: as the error had them.
        expression: the text of what failed; empty where it is unknown.
        batch: the batch in which it did; of it the query has no results.
    """

    code: str
    message: str
    expression: str
    batch: int
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Activation:
    """What the runtime fixed when it activated a query, and what it has done since.

    Attributes:
        activated_batch: first batch whose arrivals can complete a result.
        expired_batch: first batch whose arrivals no longer can; None while active.
        visible_from: per alias.
        complete_from: microseconds; None: complete from the first answer (``complete``
            ``"always"``) or never over full history that was missed (``"never"``).
        results: results emitted so far.
        failure: why it has failed, with ``expired_batch`` the batch in which it did; None as long
            as it has not, and in documents of earlier releases.
        retention: the query's closed matrix in microseconds (``ruleset.QuerySpec.retention``) by
            which this activation goes; None in documents of earlier releases.
        earlier: the activations before this one, oldest first: each ended, with ``results`` as
            they stood then, where a stream's ttl changed the matrix. None of them has any itself.
    """

    activated_batch: int
    visible_from: dict[str, Visibility]
    complete_from: int | None = None
    complete: str = "always"
    expired_batch: int | None = None
    results: int = 0
    failure: Failure | None = None
    retention: Retention | None = None
    earlier: tuple[Activation, ...] = ()

    def dumps(self) -> str:
        """JSON text."""
        return json.dumps(self, default=plain, sort_keys=True)

    @staticmethod
    def loads(text: str | bytes) -> Activation:
        """The activation that :meth:`dumps` wrote."""
        return Activation.from_json(json.loads(text))

    @staticmethod
    def from_json(doc: dict[str, Any]) -> Activation:
        """The activation of a JSON document."""
        failure, retention = doc.get("failure"), doc.get("retention")
        return Activation(
            **{
                **doc,
                "visible_from": {a: Visibility(**v) for a, v in doc["visible_from"].items()},
                "failure": None if failure is None else Failure(**failure),
                "retention": None if retention is None else tuple(map(tuple, retention)),
                "earlier": tuple(map(Activation.from_json, doc.get("earlier", ()))),
            }
        )


class SourceState(StrEnum):
    """How a stream's source stands: nobody has opened it yet; it is read; it can't be read and is
    tried again; no runtime runs that could read it.
    """

    NOT_TRIED = "not tried"
    READING = "reading"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """What the runtime says of a stream's source.

    Attributes:
        registration: of the stream, as registered; what is said of another one is out of date.
        error: why it can't be read.
        since: Unix time since when this holds.
    """

    registration: str
    state: SourceState = SourceState.NOT_TRIED
    error: str | None = None
    since: float = 0.0

    def dumps(self) -> str:
        """JSON text."""
        return json.dumps(self, default=plain, sort_keys=True)

    @staticmethod
    def loads(text: str | bytes) -> SourceStatus:
        """What :meth:`dumps` wrote."""
        doc = json.loads(text)
        return SourceStatus(**{**doc, "state": SourceState(doc["state"])})


@dataclass(frozen=True, slots=True)
class UnreadPiece:
    """A part of a stream's input that could not be read.

    Attributes:
        source: path of the file, or key of the Redis Stream.
        unit: what ``first`` and ``last`` count: ``rows`` or ``bytes`` of a file (``[first, last)``;
            ``last`` None: to its end), or ``entries`` by their ids (after ``first``, up to
            ``last``).
        rows: how many rows that was; None where nobody can tell.
        entries: of a Redis Stream, how many entries were gone; None where nobody can tell.
        code, reason: why it could not be read.
        batch: the first batch that should have read it, or a part of it.
    """

    source: str
    unit: str
    first: int | str
    last: int | str | None
    rows: int | None
    entries: int | None
    code: str
    reason: str
    batch: int

    def joined(self, after: UnreadPiece) -> UnreadPiece | None:
        """This piece and ``after`` as one; None unless that is what follows in the same file, and
        could not be read for the same reason.
        """
        same = (self.source, self.unit, self.code) == (after.source, after.unit, after.code)
        follows = self.last is not None and self.last == after.first
        if self.unit == "entries" or not (same and follows):
            return None
        known = self.rows is not None and after.rows is not None
        rows = (self.rows or 0) + (after.rows or 0) if known else None
        return replace(self, last=after.last, rows=rows)


@dataclass(frozen=True, slots=True)
class Unread:
    """What of a stream's input was not read and never will be.

    Attributes:
        pieces: how many parts of files or ranges of entries.
        lost: how many entries were gone as far as anybody can tell, or how many parts of files.
        last: the newest :data:`RECORDED` of the pieces, oldest first.
    """

    pieces: int = 0
    lost: int = 0
    last: tuple[UnreadPiece, ...] = ()

    def and_also(self, more: Sequence[UnreadPiece]) -> Unread:
        """With ``more`` pieces recorded; one that continues a piece of a file lengthens that."""
        pieces, lost, last = self.pieces, self.lost, list(self.last)
        for piece in more:
            longer = ((i, known.joined(piece)) for i, known in enumerate(last))
            at, found = next(((i, p) for i, p in longer if p is not None), (-1, None))
            if found is not None:
                last[at] = found
                continue
            pieces += 1
            lost += piece.entries or 0 if piece.unit == "entries" else 1
            last.append(piece)
        return Unread(pieces, lost, tuple(last[-RECORDED:]))

    @staticmethod
    def from_json(doc: dict[str, Any]) -> Unread:
        """What a JSON document says."""
        return Unread(**{**doc, "last": tuple(UnreadPiece(**p) for p in doc["last"])})


#: How many records of pieces that could not be read are kept per stream.
RECORDED = 20


@dataclass(frozen=True, slots=True)
class StreamIntake:
    """How the input of one stream stands.

    Attributes:
        waiting: rows that have arrived and were not read yet (an estimate).
        seconds: how long the oldest of them has been waiting.
        lost: as in ``unread``.
        error: why the stream is not read at present; None: it is.
        unread: what could not be read and was recorded; none in documents of the release before.
    """

    waiting: int = 0
    seconds: float = 0.0
    lost: int = 0
    error: str | None = None
    unread: Unread = Unread()

    @staticmethod
    def from_json(doc: dict[str, Any]) -> StreamIntake:
        """What a JSON document says."""
        return StreamIntake(
            **{**doc, "unread": Unread.from_json(doc["unread"]) if "unread" in doc else Unread()}
        )


@dataclass(frozen=True, slots=True)
class Intake:
    """How the input of the streams stands that the runtime reads itself.

    ``planned`` is the Unix time at which the last batch was planned that brings rows of theirs.
    """

    streams: dict[str, StreamIntake] = field(default_factory=dict)
    planned: float = 0.0

    def dumps(self) -> str:
        """JSON text."""
        return json.dumps(self, default=plain, sort_keys=True)

    @staticmethod
    def loads(text: str | bytes) -> Intake:
        """What :meth:`dumps` wrote."""
        doc = json.loads(text)
        streams = {name: StreamIntake.from_json(s) for name, s in doc["streams"].items()}
        return Intake(streams, doc["planned"])


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life of the runtime.

    Attributes:
        run: the id of this run of the runtime, the same as in :class:`Progress`.
        pid, host: its process.
        state: ``starting`` until its main loop runs, then ``working``.
    """

    run: str
    pid: int
    host: str
    state: str = "working"

    def dumps(self) -> str:
        """JSON text."""
        return json.dumps(self, default=plain, sort_keys=True)

    @staticmethod
    def loads(text: str | bytes) -> Heartbeat:
        """The heartbeat that :meth:`dumps` wrote, also one of a later release."""
        doc = json.loads(text)
        return Heartbeat(**{name: doc[name] for name in Heartbeat.__slots__ if name in doc})


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the runtime is.

    Attributes:
        state: ``starting``, ``running``, ``idle``, ``stopped`` or ``failed``.
        run: the id of the run of the runtime that wrote this; empty in documents of the release
            before.
        committed: batches committed so far (the next batch's number).
        epoch: the epoch of the last committed batch (-1 before the first).
        epoch_starts: epoch -> its first batch, for the epochs so far.
        ruleset_epoch: which published ruleset the running epoch goes by.
        streams: stream -> {"input", "late", "invalid", "ahead"} tuples so far.
        latest_since: stream that keeps the latest per key -> the first batch of the tuples that
            supersede others; none in documents of the release before.
        results: query -> results so far.
        probes: epoch -> tuples probed so far in it.
        exhausted: whether every recorded source has been read to its end.
        intake: stream -> how its input stands, for streams that the runtime reads itself or that
            can't be read; none in documents of the release before.
        row_limit: rows that the next batch may bring of such streams; None: any number, and in
            documents of the release before.
        private_bytes: private memory that the last batch's tasks took together, at most;
            memory_limit: what it should be less than, None: any number; neither in documents of the
            release before.
        sinks: query -> why its sink does not take its results; none in documents of the release
            before.
        backfill: store whose past is being computed -> the part that is done; none in documents
            of the release before.
    """

    state: str
    committed: int = 0
    epoch: int = -1
    epoch_starts: dict[str, int] = field(default_factory=dict)
    ruleset_epoch: int = -1
    streams: dict[str, dict[str, int]] = field(default_factory=dict)
    latest_since: dict[str, int] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    probes: dict[str, int] = field(default_factory=dict)
    state_bytes: int = 0
    batch_seconds: float = 0.0
    processing_seconds: float = 0.0
    exhausted: bool = False
    error: str | None = None
    sinks: dict[str, str] = field(default_factory=dict)
    intake: dict[str, StreamIntake] = field(default_factory=dict)
    row_limit: int | None = None
    private_bytes: int = 0
    memory_limit: int | None = None
    backfill: dict[str, float] = field(default_factory=dict)
    run: str = ""

    def dumps(self) -> str:
        """JSON text."""
        return json.dumps(self, default=plain, sort_keys=True)

    @staticmethod
    def loads(text: str | bytes) -> Progress:
        """The progress that :meth:`dumps` wrote."""
        doc = json.loads(text)
        intake = {name: StreamIntake.from_json(s) for name, s in doc.pop("intake", {}).items()}
        return Progress(intake=intake, **doc)
