"""The state manifest: the durable state of a pipeline, committed once per batch.

A state consists of the number of the next batch, the first batch of each epoch, live segments,
intervals of stores, visibility of queries, event times, and more. A batch is committed by one
atomic rename of ``manifest/<batch>.json``. A batch that the newest manifest already contains is
never applied again. Files that no kept manifest names are garbage.

A manifest has the changes since the one before it, whose checksum it names; at a start, and once
the changes have grown, it has the whole state. So the cost of a commit depends on the size of the
batch's changes. A state is read from a chain of manifests, whose length is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from anabranch_contract import codec
from anabranch_contract.plans.rations import RationedBatches
from anabranch_contract.plans.ruleset import RulesetId, StoreSpec
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.queries.joins import Stream
from anabranch_runtime.errors import StateError
from anabranch_runtime.state.changes import StateChange, applied, difference
from anabranch_runtime.state.dealt import Dealt
from anabranch_runtime.state.debt import Debt
from anabranch_runtime.state.measured import Measurements
from anabranch_runtime.state.offsets import Offsets
from anabranch_runtime.state.placement import Hosts
from anabranch_runtime.state.slices import Backfill
from anabranch_runtime.state.table_versions import TableVersions
from anabranch_runtime.state.tables import TablesState
from anabranch_runtime.state.unread import FeedState
from anabranch_runtime.storage.documents import Kind, Spelling, at_once, checksum, read_text
from anabranch_runtime.storage.durable import durable
from anabranch_runtime.storage.segment import Segment
from anabranch_runtime.storage.verify import REMEDY

KIND = Kind("manifest", "commit")
#: Number of older manifests kept besides the newest one.
KEPT = 2
#: A whole manifest is written after ``MOST_LINKS`` incremental ones, or once these have more bytes
#: than the last whole one and than ``LEAST_GROWN``, so that reading a chain takes some tens of
#: milliseconds.
MOST_LINKS, LEAST_GROWN = 256, 1 << 22


@dataclass(frozen=True, slots=True)
class StoreState:
    """One store: rows of a relation or of a materialized join (MIR).

    Attributes:
        spec: the store's specification in the last ruleset that had it.
        streams: the members' streams.
        filter: for a base store, texts of the conjuncts that its rows satisfy.
        intervals: closed intervals (first batch, last batch) that the store covers.
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
        """Whether this is a store of a base relation, not of an MIR."""
        return len(self.streams) == 1

    @property
    def pending(self) -> tuple[Segment, ...]:
        """Segments computed so far by a running backfill, which no probe reads yet."""
        return () if self.backfill is None else self.backfill.segments

    @property
    def kept(self) -> tuple[Segment, ...]:
        """Segments whose files the store needs: live ones, a backfill's results and inputs."""
        if self.backfill is None:
            return self.segments
        sources = (s.segment for s in self.backfill.sources)
        return (*self.segments, *self.pending, *sources)

    @property
    def bytes(self) -> int:
        """Bytes of the store's live segments, and of its backfill's results."""
        return sum(s.bytes for s in (*self.segments, *self.pending))

    def covers(self, now: int) -> tuple[tuple[int, int], ...]:
        """Return the store's intervals; the open one extends to batch ``now``, included."""
        if self.open_since is None or self.open_since > now:
            return self.intervals
        return (*self.intervals, (self.open_since, now))


@dataclass(frozen=True, slots=True)
class StreamState:
    """One stream: its definition and progress.

    Attributes:
        spec: definition; None: no ruleset names the stream yet, so its tuples are only counted.
        max_tau: greatest event time (microseconds) of completely read loads (``sources.loads``:
            parts of the input within which nothing is late); late tuples count, future ones do not.
        open_tau: greatest event time of the load that is still being read.
        min_tau: least event time of the tuples that were not late.
        history: (batch, greatest event time before it) at epoch starts, newest last, back to the
            oldest batch of stores in use (``epochs.forgetting``). Of equal event times, only the
            newest entry is kept.
        active_at: clock reading (``State.clock``) in the last batch with tuples of the stream.
        floor: lower bound of the watermark, raised while the stream was idle.
        latest_since: first batch since which, without interruption, the stream has kept the latest
            per key and been read by queries; None if it does not keep the latest, or no query reads
            it.
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
        """Greatest event time seen, even in input that does not count for the watermark yet."""
        return max((t for t in (self.max_tau, self.open_tau) if t is not None), default=None)

    def with_load_read(self) -> StreamState:
        """Return the stream as if its open load had ended, so that it counts for the watermark."""
        return self if self.open_tau is None else replace(self, max_tau=self.newest, open_tau=None)

    def watermark(self) -> int | None:
        """Greatest event time of completely read input (loads) minus the lateness, at least
        ``floor``; None if no tuple can be late."""
        if self.max_tau is None or self.spec is None or self.spec.lateness is None:
            return self.floor
        own = self.max_tau - self.spec.lateness
        return own if self.floor is None else max(own, self.floor)

    def max_tau_before(self, batch: int) -> int | None:
        """Return an upper bound of the stream's event times that arrived before ``batch``."""
        for start, greatest in self.history:
            if start >= batch:
                return greatest
        return self.newest if batch > 0 else None

    def admitted_before(self, batch: int) -> int:
        """Return the number of valid tuples, not late or future, that arrived before ``batch``."""
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
        offsets: end of the input that has been read; None: no planned input.
        clock: clock reading of the last batch (``event_time.idleness``).
        feeds: id of a feed -> its hold after a read error, and its skipped input, if any.
        rationed: the newest batches that withheld tuples from probes, oldest first
            (``sinks.ledger`` has all such batches).
        debt: withheld results that a catch-up still owes.
        tables: maintained tables of queries with post-join parts.
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
    tables: TablesState = field(default_factory=TablesState)

    @property
    def bytes(self) -> int:
        """Bytes of all live segments, of the results of backfills, and of tables."""
        return sum(store.bytes for store in self.stores.values()) + self.tables.bytes

    @property
    def kept(self) -> Iterator[Segment]:
        """Every segment of the state whose file is needed."""
        yield from (source.segment for source in self.debt.sources)
        yield from self.tables.segments
        for store in self.stores.values():
            yield from store.kept

    def with_loads_read(self, unless: Collection[str] = ()) -> State:
        """Return the state in which all input read counts for watermarks, except of ``unless``."""
        streams = {
            name: stream if name in unless else stream.with_load_read()
            for name, stream in self.streams.items()
        }
        return replace(self, streams=streams)

    def with_stores(self, stores: dict[str, StoreState]) -> State:
        """Return the state with these stores; measurements of reads of other stores are dropped."""
        return replace(self, stores=stores, measured=self.measured.of_stores(stores))


#: Types of large parts of a state, which are compared field by field, as batches change little.
_INSIDE = frozenset((State, Measurements, StoreState, Backfill, Debt, Hosts, TablesState))


class Commit(codec.Row, frozen=True):
    """Body of a manifest.

    Attributes:
        after: number and checksum of the preceding manifest; None: this one is whole.
        change: change since the preceding manifest; in a whole one, since the empty state.
    """

    after: tuple[int, int] | None
    change: StateChange


@dataclass(frozen=True, slots=True)
class _Written:
    """The last manifest that this process has written: number, checksum, state.

    Attributes:
        first: number of the whole manifest at the beginning of its chain. ``whole``: its bytes.
        links, grown: number and bytes of the incremental manifests after it.
    """

    number: int
    crc: int
    state: State
    first: int
    whole: int
    links: int = 0
    grown: int = 0


class Manifests:
    """The manifest directory of one pipeline.

    The states of the newest ``KEPT + 1`` manifests are kept, with the packs that they name, so that
    the state can be rolled back to any of them. Older manifests of their chains are kept too.
    """

    def __init__(self, root: Path) -> None:
        self._root, self._durable = root, durable(root)
        directory = root / "manifest"
        directory.mkdir(parents=True, exist_ok=True)
        self._numbers = sorted(int(p.stem) for p in directory.glob("*.json"))
        #: Per kept and readable manifest: packs that it names; ruleset; first of its chain.
        self._named: dict[int, frozenset[str]] = {}
        self._rulesets: dict[int, RulesetId] = {}
        self._firsts: dict[int, int] = {}
        self._dropped: frozenset[str] = frozenset()
        #: The newest two manifests that this process has written.
        self._written: tuple[_Written, ...] = ()

    def load(self) -> State:
        """The newest committed state; an empty state before the first commit."""
        return Chains(self._root).state(self._numbers[-1]) if self._numbers else State()

    def kept(self) -> list[tuple[Path, State | StateError]]:
        """Read every kept manifest, newest first: path, and its state or the read error.

        Raises:
            StateError: ``unknown-version``: another release has written a manifest.
        """
        chains = Chains(self._root)
        found: list[tuple[Path, State | StateError]] = []
        for number in reversed(self._numbers[-KEPT - 1 :]):
            path = manifest_path(self._root, number)
            try:
                state = chains.state(number)
            except StateError as error:
                if error.code == "unknown-version":
                    raise
                found.append((path, error))
            else:
                self._note(number, state, chains.first(number))
                found.append((path, state))
        return found

    @property
    def named(self) -> frozenset[str]:
        """The pack files that the kept manifests name."""
        return frozenset().union(*self._named.values())

    @property
    def rulesets(self) -> frozenset[RulesetId]:
        """The rulesets of the kept manifests."""
        return frozenset(self._rulesets.values())

    def dropped(self) -> frozenset[str]:
        """Return the pack files that kept manifests named at the last call, and no longer name."""
        found, self._dropped = self._dropped, frozenset()
        return found - self.named

    def commit(self, state: State, ready: Callable[[], object] = at_once) -> None:
        """Write ``state`` as the newest manifest; return once it is durable. ``ready`` waits until
        all is durable that must be so before."""
        before, number = self.named, state.next_batch
        earlier = [one for one in self._written if one.number < number]
        fresh = self._write(state, earlier[-1] if earlier else None, ready)
        self._written = (*earlier[-1:], fresh)
        self._note(number, state, fresh.first)
        # After a rollback at the start, later batches' manifests are left over and are deleted.
        rejected = [n for n in self._numbers if n > number]
        self._numbers = [*(n for n in self._numbers if n < number), number]
        self._durable.remove(manifest_path(self._root, n) for n in rejected)
        kept = self._numbers[-KEPT - 1 :]
        # A few are deleted at a time, so that no commit waits for the deletion of a long chain.
        needed = min(self._firsts.get(n, 0) for n in kept)
        spent = [n for n in self._numbers[:2] if n < needed]
        self._durable.discard(f"manifest/{manifest_path(self._root, n).name}" for n in spent)
        self._numbers = self._numbers[len(spent) :]
        for known in (self._named, self._rulesets, self._firsts):
            for old in known.keys() - kept:
                del known[old]
        self._dropped |= before

    def checksum(self, batch: int) -> int:
        """Return the checksum of the manifest from which a batch starts.

        Raises:
            StateError: ``missing-manifest``: the file was removed or is unreadable.
        """
        try:
            return checksum(manifest_path(self._root, batch))
        except (OSError, ValueError) as cause:
            raise missing_manifest(cause) from cause

    def _write(
        self, state: State, before: _Written | None, ready: Callable[[], object]
    ) -> _Written:
        """Write the changes since the manifest ``before``, or the whole state."""
        if before is not None and (
            before.links >= MOST_LINKS or before.grown >= max(before.whole, LEAST_GROWN)
        ):
            before = None
        known = State() if before is None else before.state
        after = None if before is None else (before.number, before.crc)
        text = codec.dumps(Commit(after, difference(known, state, _INSIDE)))
        number, crc, size = state.next_batch, KIND.crc(text.encode()), len(text)
        self._durable.write(manifest_path(self._root, number), KIND, Spelling(text), ready)
        if before is None:
            return _Written(number, crc, state, number, size)
        links, grown = before.links + 1, before.grown + size
        return replace(before, number=number, crc=crc, state=state, links=links, grown=grown)

    def _note(self, number: int, state: State, first: int) -> None:
        self._named[number] = packs_of(state)
        self._rulesets[number] = state.ruleset
        self._firsts[number] = first


@dataclass(frozen=True, slots=True)
class _Read:
    """A manifest that has been read: checksum, first of its chain, JSON form of its state."""

    crc: int
    first: int
    tree: Any


@dataclass(frozen=True, slots=True)
class Chains:
    """Reader of the states in the manifests below ``root``; it reads each manifest once."""

    root: Path
    _read: dict[int, _Read] = field(default_factory=dict)

    def state(self, number: int) -> State:
        """Return the state from which batch ``number`` starts.

        Raises:
            StateError: ``unknown-version``; ``damaged-manifest``, which names the damaged manifest.
        """
        tree = self._find(number).tree
        try:
            return codec.from_json(tree, State)
        except codec.Malformed as cause:
            raise _damaged(manifest_path(self.root, number), f"is no state: {cause!r}") from cause

    def first(self, number: int) -> int:
        """Return the number of the whole manifest at the beginning of ``number``'s chain."""
        return self._find(number).first

    def _find(self, number: int) -> _Read:
        links: list[tuple[int, int, Commit]] = []
        after: tuple[int, int] | None = (number, -1)
        while after is not None and after[0] not in self._read:
            crc, commit = self._commit(after[0])
            self._check(after, crc, links)
            links.append((after[0], crc, commit))
            after = commit.after
        if after is not None:
            self._check(after, self._read[after[0]].crc, links)
        for at, crc, commit in reversed(links):
            known = _EMPTY if commit.after is None else self._read[commit.after[0]]
            first = at if commit.after is None else known.first
            try:
                self._read[at] = _Read(crc, first, applied(known.tree, commit.change))
            except (LookupError, TypeError, ValueError) as cause:
                path = manifest_path(self.root, at)
                raise _damaged(path, f"does not fit the one before it: {cause!r}") from cause
        return self._read[number]

    def _check(
        self, after: tuple[int, int], crc: int, links: Sequence[tuple[int, int, Commit]]
    ) -> None:
        if links and crc != after[1]:
            later, path = (manifest_path(self.root, n) for n in (links[-1][0], after[0]))
            raise _damaged(path, f"is not the one that {later.name} continues")

    def _commit(self, number: int) -> tuple[int, Commit]:
        path = manifest_path(self.root, number)
        if not path.exists():
            durable(self.root).bring(f"manifest/{path.name}", path)
        try:
            text = read_text(path, KIND)
            return KIND.crc(text.encode()), codec.loads(text, Commit)
        except codec.Malformed as cause:
            raise _damaged(path, f"is not a manifest: {cause!r}") from cause
        except StateError as error:
            if error.code == "unknown-version":
                raise
            raise StateError(error.code, error.message, remedy=REMEDY) from error


_EMPTY = _Read(0, 0, codec.to_json(State()))


def _damaged(path: Path, reason: str) -> StateError:
    return StateError("damaged-manifest", f"{path} {reason}", remedy=REMEDY)


def manifest_path(root: Path, batch: int) -> Path:
    """Return the path of the manifest from which a batch starts."""
    return root / "manifest" / f"{batch:012d}.json"


def missing_manifest(cause: Exception) -> StateError:
    """Return the error for a manifest that a batch needs and that can't be read."""
    return StateError(
        "missing-manifest",
        f"the manifest of the batch can't be read: {cause}",
        remedy="see that all hosts share the state directory; restart the pipeline",
    )


def packs_of(state: State) -> frozenset[str]:
    """Return the paths of all pack files that ``state`` names, relative to the state directory."""
    return frozenset(s.path for s in state.kept)


def read_manifest(path: Path) -> State:
    """Read the state of a manifest file.

    Raises:
        StateError: ``unknown-version`` or ``damaged-manifest``.
    """
    return Chains(path.parent.parent).state(int(path.stem))
