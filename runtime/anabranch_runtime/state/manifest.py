"""The state manifest: the durable state of a pipeline, committed once per batch.

A manifest is a complete snapshot: number of the next batch, first batch of each epoch, live
segments, intervals of stores, visibility of queries, event times. A batch is committed by one
atomic rename of ``manifest/<batch>.json``. A batch that the newest manifest already contains is
never applied again. Files that no kept manifest names are garbage.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any

from anabranch_contract import codec
from anabranch_contract.plans.rations import RationedBatches
from anabranch_contract.plans.ruleset import RulesetId, StoreSpec
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.queries.joins import Stream
from anabranch_runtime.errors import StateError
from anabranch_runtime.state.dealt import Dealt
from anabranch_runtime.state.debt import Debt
from anabranch_runtime.state.measured import Measurements
from anabranch_runtime.state.offsets import Offsets
from anabranch_runtime.state.placement import Hosts
from anabranch_runtime.state.slices import Backfill
from anabranch_runtime.state.table_versions import TableVersions
from anabranch_runtime.state.unread import FeedState
from anabranch_runtime.storage.documents import (
    Kind,
    Spelling,
    canonical,
    checksum,
    read_document,
    read_exactly,
)
from anabranch_runtime.storage.durable import durable
from anabranch_runtime.storage.segment import Segment


@dataclass(slots=True)
class Speller:
    """Incremental serialiser of consecutive states as canonical JSON text.

    With many queries a state is large, and a batch changes little of it: unchanged values are the
    same objects in the next state. So for mappings in a state, or in a dataclass of a state, the
    text of each entry is cached, and only changed entries are written again.
    """

    #: Cache: path of a field -> key -> (value in the last state, text of key and value).
    _known: dict[str, dict[str, tuple[Any, str]]] = field(default_factory=dict)

    def spell(self, state: Any) -> Spelling:
        """Serialise ``state``, a dataclass; the text equals that of :func:`documents.canonical`."""
        return Spelling(self._record("", state))

    def _record(self, path: str, record: Any) -> str:
        parts = []
        for name, value in sorted(codec.fields(record).items()):
            if isinstance(value, dict):
                text = self._mapping(f"{path}.{name}", value)
            elif is_dataclass(value):
                text = self._record(f"{path}.{name}", value)
            else:
                text = canonical(value)
            parts.append(f"{canonical(name)}:{text}")
        return f"{{{','.join(parts)}}}"

    def _mapping(self, path: str, values: Mapping[str, Any]) -> str:
        last = self._known.get(path, {})
        found: dict[str, tuple[Any, str]] = {}
        for key in sorted(values):
            value, known = values[key], last.get(key)
            # By identity, as values never change in place; equal numbers in two objects only cost
            # time.
            if known is None or known[0] is not value:
                known = (value, f"{json.dumps(key)}:{canonical(value)}")
            found[key] = known
        self._known[path] = found
        return f"{{{','.join(text for _, text in found.values())}}}"


KIND = Kind("manifest", "state")
#: Number of older manifests kept besides the newest one.
KEPT = 2
#: Seconds for which a task waits for its batch's manifest, and seconds between two attempts.
PATIENCE, POLL = 10.0, 0.01


@dataclass(frozen=True, slots=True)
class StoreState:
    """One store: rows of a relation or of a materialized join (MIR).

    Attributes:
        spec: the store's specification in the last ruleset that had it.
        streams: the members' streams.
        filter: for a base store, texts of the conjuncts that its rows satisfy.
        intervals: closed (first, last) batch intervals that it covers.
        open_since: first batch of the interval that is still growing, or None.
        segments: live segments.
        expired_below: per member, one more than the greatest event time dropped so far
            (microseconds); None: nothing dropped.
        backfill: running computation of a materialized join's past rows.
        dealt: hot key values with rows spread outside their home partitions (``state.dealt``).
    """

    spec: StoreSpec
    streams: tuple[str, ...]
    filter: tuple[str, ...] = ()
    intervals: tuple[tuple[int, int], ...] = ()
    open_since: int | None = None
    segments: tuple[Segment, ...] = ()
    expired_below: tuple[int | None, ...] = ()
    backfill: Backfill | None = None
    dealt: tuple[Dealt, ...] = ()

    @property
    def is_base(self) -> bool:
        """Whether this is a base relation's store."""
        return len(self.streams) == 1

    @property
    def kept(self) -> tuple[Segment, ...]:
        """All segments whose files are needed: live segments, a backfill's results and inputs."""
        if self.backfill is None:
            return self.segments
        sources = (s.segment for s in self.backfill.sources)
        return (*self.segments, *self.backfill.segments, *sources)

    @property
    def bytes(self) -> int:
        """Bytes of its live segments, and of its backfill's results."""
        pending = () if self.backfill is None else self.backfill.segments
        return sum(s.bytes for s in self.segments) + sum(s.bytes for s in pending)

    def covers(self, now: int) -> tuple[tuple[int, int], ...]:
        """The store's intervals, the open one up to and including batch ``now``."""
        if self.open_since is None or self.open_since > now:
            return self.intervals
        return (*self.intervals, (self.open_since, now))


@dataclass(frozen=True, slots=True)
class StreamState:
    """One stream: its definition and progress.

    Attributes:
        spec: definition; None: no ruleset names the stream yet, so its tuples are only counted.
        max_tau: greatest event time (microseconds) of completely read loads, parts of the input
            without lateness inside (``sources.loads``); late tuples count, future ones do not.
        open_tau: greatest event time of the load that is still being read.
        min_tau: least event time of the tuples that were not late.
        history: (batch, greatest event time before it) at epoch starts, newest last, back to the
            oldest coverage in use (``epochs.forgetting``). Of entries with the same event time,
            only the newest is kept.
        active_at: clock reading (``State.clock``) in the last batch with tuples of the stream.
        floor: lower bound of the watermark, raised while the stream was idle.
        latest_since: first batch from which the stream has kept the latest per key and been read by
            queries without interruption; None if it does not keep the latest, or no query reads it.
        ahead: number of future tuples (``event_time.newest_allowed``).
        began: first batch with a tuple of the stream; None: no such batch, or unknown.
        admitted: (batch, valid tuples before it that were neither late nor future) at epoch starts,
            newest last, as far back as ``history``.
        versions: versions of a table; None before its first row.
    """

    spec: Stream | None = None
    max_tau: int | None = None
    open_tau: int | None = None
    min_tau: int | None = None
    history: tuple[tuple[int, int | None], ...] = ()
    input: int = 0
    late: int = 0
    invalid: int = 0
    active_at: int | None = None
    floor: int | None = None
    latest_since: int | None = None
    ahead: int = 0
    began: int | None = None
    admitted: tuple[tuple[int, int], ...] = ()
    versions: TableVersions | None = None

    @property
    def newest(self) -> int | None:
        """Greatest event time seen, also in input that does not count for the watermark yet."""
        return max((t for t in (self.max_tau, self.open_tau) if t is not None), default=None)

    def with_load_read(self) -> StreamState:
        """Let all input read so far (the open load) count for the watermark."""
        return self if self.open_tau is None else replace(self, max_tau=self.newest, open_tau=None)

    def watermark(self) -> int | None:
        """Greatest event time of completely read input (loads) minus the lateness, at least
        ``floor``; None if no tuple can be late.
        """
        if self.max_tau is None or self.spec is None or self.spec.lateness is None:
            return self.floor
        own = self.max_tau - self.spec.lateness
        return own if self.floor is None else max(own, self.floor)

    def max_tau_before(self, batch: int) -> int | None:
        """Return an upper bound of the event times that arrived before ``batch``."""
        for start, greatest in self.history:
            if start >= batch:
                return greatest
        return self.newest if batch > 0 else None

    def admitted_before(self, batch: int) -> int:
        """Number of valid, neither late nor future tuples before an epoch's first ``batch``."""
        if batch == 0:
            return 0
        for start, count in self.admitted:
            if start >= batch:
                return count
        return self.input - self.late - self.invalid - self.ahead


@dataclass(frozen=True, slots=True)
class State:
    """A committed state; never changed in place.

    Attributes:
        ruleset: id of the running ruleset; before the first one, epoch -1.
        epoch_starts: (epoch, its first batch), newest last.
        offsets: end of the input read; None: no planned input.
        clock: clock reading of the last batch (``event_time.idleness``).
        feeds: source feed id -> its hold after a read error and its skipped input, if any.
        rationed: the newest batches that withheld tuples from probes, oldest first
            (``sinks.ledger`` has all such batches).
        debt: withheld results that a catch-up still owes.
    """

    next_batch: int = 0
    epoch: int = -1
    ruleset: RulesetId = field(default=RulesetId(-1))
    epoch_starts: tuple[tuple[int, int], ...] = ()
    streams: dict[str, StreamState] = field(default_factory=dict)
    stores: dict[str, StoreState] = field(default_factory=dict)
    queries: dict[str, Activation] = field(default_factory=dict)
    measured: Measurements = field(default_factory=Measurements)
    clock: int | None = None
    offsets: Offsets | None = None
    feeds: dict[str, FeedState] = field(default_factory=dict)
    rationed: tuple[RationedBatches, ...] = ()
    debt: Debt = field(default_factory=Debt)
    hosts: Hosts = field(default_factory=Hosts)

    @property
    def bytes(self) -> int:
        """Bytes of all live segments and of the results of backfills."""
        return sum(store.bytes for store in self.stores.values())

    @property
    def kept(self) -> Iterator[Segment]:
        """Every segment whose file is needed."""
        yield from (source.segment for source in self.debt.sources)
        for store in self.stores.values():
            yield from store.kept

    def with_loads_read(self, unless: Collection[str] = ()) -> State:
        """Let all input read so far count for the watermarks, except of the streams ``unless``."""
        streams = {
            name: stream if name in unless else stream.with_load_read()
            for name, stream in self.streams.items()
        }
        return replace(self, streams=streams)

    def with_stores(self, stores: dict[str, StoreState]) -> State:
        """Replace the stores; measurements of reads of other stores are dropped."""
        return replace(self, stores=stores, measured=self.measured.of_stores(stores))

    def validate(self) -> None:
        """Check the invariants that every committed state has.

        Raises:
            StateError: names the first violated invariant.
        """
        for name, store in self.stores.items():
            spans = sorted(store.covers(max(self.next_batch - 1, 0)))
            for (_, last), (first, _) in itertools.pairwise(spans):
                if first <= last:
                    raise StateError("overlap", f"store {name} covers batch {first} twice")
            for segment in store.segments:
                if segment.last_batch >= self.next_batch:
                    raise StateError("future-segment", f"store {name} has rows of a future batch")
                if not store.is_base:
                    continue
                if segment.first_batch < spans[0][0] or segment.last_batch > spans[-1][1]:
                    raise StateError("stray-segment", f"store {name} has rows outside its batches")


class Manifests:
    """The manifest directory of one pipeline.

    The newest ``KEPT + 1`` manifests are kept, with the packs that they name, so that the state can
    be rolled back to any of them.
    """

    def __init__(self, root: Path) -> None:
        self._durable = durable(root)
        self._directory = root / "manifest"
        self._directory.mkdir(parents=True, exist_ok=True)
        #: Readable manifest -> pack files that it names; manifest -> id of its ruleset.
        self._named: dict[Path, frozenset[str]] = {}
        self._rulesets: dict[Path, RulesetId] = {}
        self._dropped: frozenset[str] = frozenset()
        self._speller = Speller()

    def load(self) -> State:
        """The newest committed state; an empty state before the first commit."""
        names = self._names()
        return read_manifest(names[-1]) if names else State()

    def kept(self) -> list[tuple[Path, State | StateError]]:
        """Read every manifest in the folder, newest first: path, and its state or the read error.

        Raises:
            StateError: ``unknown-version``: another release has written a manifest.
        """
        found: list[tuple[Path, State | StateError]] = []
        for path in reversed(self._names()):
            try:
                state = read_manifest(path)
            except StateError as error:
                if error.code == "unknown-version":
                    raise
                found.append((path, error))
            else:
                self._note(path, state)
                found.append((path, state))
        return found

    @property
    def named(self) -> frozenset[str]:
        """The pack files that kept manifests name."""
        return frozenset().union(*self._named.values())

    @property
    def rulesets(self) -> frozenset[RulesetId]:
        """The rulesets of the kept manifests."""
        return frozenset(self._rulesets.values())

    def dropped(self) -> frozenset[str]:
        """Return the pack files that no kept manifest names any more, since the last call."""
        found, self._dropped = self._dropped, frozenset()
        return found - self.named

    def commit(self, state: State) -> None:
        """Write ``state`` as the newest manifest; returns only once it is durable."""
        before = self.named
        path = manifest_path(self._directory.parent, state.next_batch)
        self._durable.write(path, KIND, self._speller.spell(state))
        self._note(path, state)
        names = self._names()
        # Later manifests exist after a rollback of the state at the start: delete them.
        rejected, spent = [n for n in names if n > path], names[: -KEPT - 1]
        self._durable.remove(rejected)
        self._durable.discard(f"{self._directory.name}/{n.name}" for n in spent)
        for old in (*spent, *rejected):
            self._named.pop(old, None)
            self._rulesets.pop(old, None)
        self._dropped |= before

    def checksum(self, batch: int) -> int:
        """The checksum of the manifest that the batch starts from.

        Raises:
            StateError: ``missing-manifest``: the file was removed or is unreadable.
        """
        try:
            return checksum(manifest_path(self._directory.parent, batch))
        except (OSError, ValueError) as cause:
            raise _missing(cause) from cause

    def _note(self, path: Path, state: State) -> None:
        self._named[path] = packs_of(state)
        self._rulesets[path] = state.ruleset

    def _names(self) -> list[Path]:
        return sorted(p for p in self._directory.iterdir() if p.suffix == ".json")


def manifest_path(root: Path, batch: int) -> Path:
    """Path of the manifest that batch ``batch`` starts from."""
    return root / "manifest" / f"{batch:012d}.json"


@dataclass(frozen=True, slots=True)
class _Stored:
    segments: codec.Raw


@dataclass(frozen=True, slots=True)
class _Committed:
    """Projection of a manifest to the fields that tasks need."""

    stores: dict[str, _Stored]


@dataclass(frozen=True, slots=True)
class _Read:
    """Parsed segments of a store: JSON text of the list, and text of a segment -> the segment."""

    text: bytes
    known: dict[bytes, Segment]
    segments: tuple[Segment, ...]

    @staticmethod
    def of(text: bytes, last: _Read | None) -> _Read:
        """Parse the segments of ``text``, reusing the objects of segments that ``last`` has."""
        known = last.known if last is not None else {}
        parts = [bytes(part) for part in codec.loads(text, tuple[codec.Raw, ...])]
        found = {part: known.get(part) or codec.loads(part, Segment) for part in parts}
        return _Read(text, found, tuple(found[part] for part in parts))


#: Cache: store -> its segments in the last read manifest, as the next one has most of them.
_LAST: dict[str, _Read] = {}


def _segments(body: bytes) -> dict[str, tuple[Segment, ...]]:
    """Parse store -> segments; an unchanged store has the same tuple object as in the last call."""
    found = {}
    for name, store in codec.loads(body, _Committed).stores.items():
        text, last = bytes(store.segments), _LAST.get(name)
        found[name] = last if last is not None and last.text == text else _Read.of(text, last)
    _LAST.clear()
    _LAST.update(found)
    return {name: read.segments for name, read in found.items()}


def committed_segments(root: Path, batch: int, crc: int) -> dict[str, tuple[Segment, ...]]:
    """Read store -> live segments from the manifest that ``batch`` starts from; called by tasks.

    Waits for the manifest with checksum ``crc``: shared storage may still show none, or an older
    one of the same number, since an epoch can begin without a batch.

    Raises:
        StateError: ``missing-manifest``: the manifest does not appear in time.
    """
    path, deadline = manifest_path(root, batch), time.monotonic() + PATIENCE
    while True:
        try:
            return _segments(read_exactly(path, KIND, crc))
        except (OSError, ValueError) as cause:
            if time.monotonic() > deadline:
                raise _missing(cause) from cause
        if not durable(root).bring(f"manifest/{path.name}", path):
            time.sleep(POLL)


def _missing(cause: Exception) -> StateError:
    return StateError(
        "missing-manifest",
        f"the manifest of the batch can't be read: {cause}",
        remedy="see that all hosts share the state directory; restart the pipeline",
    )


def packs_of(state: State) -> frozenset[str]:
    """Return the paths of all pack files that ``state`` names, relative to the state directory."""
    return frozenset(s.path for s in state.kept)


def read_manifest(path: Path) -> State:
    """Read the state from a manifest file.

    Raises:
        StateError: ``unknown-version`` or ``damaged-manifest``.
    """
    body = read_document(path, KIND)
    try:
        return codec.from_json(body, State)
    except codec.Malformed as cause:
        raise StateError("damaged-manifest", f"{path} is no state: {cause!r}") from cause
