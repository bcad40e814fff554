"""Reports of a pipeline's stores: the runtime writes them, the service shows them.

One has all stores; a second kind has the segments of one store and who reads it, at most so many.

Sizes are bytes on disk. Totals are of the newest committed state, amplification of the pipeline's
whole life (``docs/state.md``).
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch_contract.body import Body
from anabranch_contract.codec import Message
from anabranch_contract.protocol.reads import Reads


@dataclass(frozen=True, slots=True)
class LevelReport(Body):
    """The segments of a store that have been merged ``level`` times."""

    level: int
    segments: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class IndexReport(Body):
    """One index of a store.

    Attributes:
        key: its columns and their types.
        entries: rows that have the key, over all segments.
        bytes: of the index, its filters included. ``filter_bytes``: of these.
        life: its reads since the store began.
    """

    key: str
    entries: int
    bytes: int
    filter_bytes: int
    life: Reads


@dataclass(frozen=True, slots=True)
class StoreReport(Body):
    """One store.

    Attributes:
        store: its id.
        kind: ``stream`` or ``intermediate result``.
        mir: the canonical relation or intermediate result that it holds.
        members: labels of an intermediate result; none for a stream.
        streams: whose tuples it holds.
        filter: conjuncts that its rows satisfy.
        partition: the attribute by which rows are partitioned; None: none.
        partitions: how many there are.
        batches: the runs of batches that it has all rows of.
        growing: whether the running epoch adds to it.
        queries: those whose results depend on it.
        rows, bytes, index_bytes, segments: of its segments; ``bytes`` includes the indexes.
        levels: the same by level, smallest first.
        expired_below: per member, event time (microseconds) below which rows may be gone.
        backfill: whether its past is being computed.
        ttl: per member, its stream's in microseconds; None: it has none.
        disk_bytes: its share, by bytes, of the files that its segments lie in.
    """

    store: str
    kind: str
    mir: str
    members: tuple[str, ...]
    streams: tuple[str, ...]
    filter: tuple[str, ...]
    partition: str | None
    partitions: int
    batches: tuple[tuple[int, int], ...]
    growing: bool
    queries: tuple[str, ...]
    rows: int
    bytes: int
    index_bytes: int
    segments: int
    levels: tuple[LevelReport, ...]
    expired_below: tuple[int | None, ...]
    backfill: bool
    ttl: tuple[int | None, ...]
    disk_bytes: int
    indexes: tuple[IndexReport, ...]

    @property
    def life(self) -> Reads:
        """Its reads since it began, by all indexes."""
        return sum((index.life for index in self.indexes), Reads())

    @property
    def space_amplification(self) -> float | None:
        """Bytes of its files over bytes of its live segments; None where nothing is stored."""
        return self.disk_bytes / self.bytes if self.bytes and self.disk_bytes else None

    @property
    def write_amplification(self) -> float | None:
        """How often a byte that is stored has been written: once by its batch, and once per level;
        None where nothing is stored.
        """
        written = sum((1 + level.level) * level.bytes for level in self.levels)
        return written / self.bytes if self.bytes else None


@dataclass(frozen=True, slots=True)
class SegmentReport(Body):
    """One segment. ``batches``: its first and last, of its rows' last-arriving members;
    ``event_time``: the least and the greatest of any member, microseconds; None: it has none.
    """

    partition: int
    level: int
    rows: int
    bytes: int
    batches: tuple[int, int]
    event_time: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class EdgeReport(Body):
    """An edge whose probes read a store.

    Attributes:
        queries: the queries that it serves.
        fill: the store replaces an intermediate result where that has gaps.
    """

    edge: str
    queries: tuple[str, ...]
    fill: bool


@dataclass(frozen=True, slots=True)
class StoreParts(Message):
    """One store's segments and readers, as of ``next_batch``.

    Attributes:
        segments: the largest, in the order in which they are probed.
        omitted: how many smaller ones are left out.
        edges: by name; ``edges_omitted`` more are left out.
    """

    store: str
    next_batch: int
    segments: tuple[SegmentReport, ...]
    omitted: int
    edges: tuple[EdgeReport, ...]
    edges_omitted: int


@dataclass(frozen=True, slots=True)
class StateReport(Body, Message):
    """All stores, and what keeping them has cost.

    Attributes:
        next_batch, epoch, ruleset_epoch, revision: where the pipeline stands.
        bytes: of all segments of the newest state.
        packs: files that it names. ``disk_bytes``: of these files, which may still hold segments
            that have been merged or dropped.
        space_amplification: ``disk_bytes`` over ``bytes``; None where nothing is stored.
        inserted_bytes, merged_bytes: what batches, and merges, have ever written.
        write_amplification: both over ``inserted_bytes``; None before the first.
    """

    next_batch: int
    epoch: int
    ruleset_epoch: int
    bytes: int
    packs: int
    disk_bytes: int
    space_amplification: float | None
    inserted_bytes: int
    merged_bytes: int
    write_amplification: float | None
    stores: tuple[StoreReport, ...]
    revision: int
