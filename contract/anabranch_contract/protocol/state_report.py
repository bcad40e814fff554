"""Reports of a pipeline's stores: the runtime writes them, the service shows them.

A :class:`StateReport` lists all stores, a :class:`StoreParts` the largest segments of one store and
the edges that read it.

Sizes are bytes on disk. Totals cover the newest committed state, amplification covers the
pipeline's whole life (``docs/state.md``).
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch_contract.body import Body
from anabranch_contract.codec import Message
from anabranch_contract.protocol.reads import Reads


@dataclass(frozen=True, slots=True)
class LevelReport(Body):
    """The segments of one store that have been merged equally often.

    Attributes:
        level: number of merges of each segment.
        segments: number of segments.
        rows: number of rows.
        bytes: size in bytes, with indexes.
    """

    level: int
    segments: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class IndexReport(Body):
    """One index of a store.

    Attributes:
        key: columns of the index and their types.
        entries: number of rows that have the key, over all segments.
        bytes: size of the index with its filters, in bytes.
        filter_bytes: size of its filters, in bytes.
        life: counts of the index's reads since the store began.
    """

    key: str
    entries: int
    bytes: int
    filter_bytes: int
    life: Reads


@dataclass(frozen=True, slots=True)
class StoreReport(Body):
    """Report of one store: its contents and sizes.

    Attributes:
        store: id of the store.
        mir: the canonical relation or intermediate result whose rows the store has.
        members: labels of an intermediate result; none for a stream.
        streams: the streams whose tuples the store has.
        filter: conjuncts that its rows satisfy.
        partition: the attribute by which rows are partitioned; None: none.
        partitions: number of partitions.
        batches: ranges (first, last) of batches whose rows are all in the store.
        growing: whether the running epoch adds rows to it.
        queries: the queries whose results depend on it.
        rows: number of rows, of all segments.
        bytes: size of its segments with their indexes, in bytes.
        index_bytes: size of its indexes, in bytes.
        segments: number of its segments.
        levels: the same totals for each level, smallest level first.
        expired_below: for each member, event time (microseconds) below which rows may have expired.
        backfill: whether a backfill is computing the store's past rows.
        ttl: for each member, the ttl of its stream in microseconds; None: there is none.
        disk_bytes: share of this store, by bytes, in the size of the files that contain it.
        indexes: its indexes.
    """

    store: str
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
    def kind(self) -> str:
        """Kind of store: ``stream`` or ``intermediate result``."""
        return "intermediate result" if self.members else "stream"

    @property
    def life(self) -> Reads:
        """Counts of reads by all indexes of the store since it began."""
        return sum((index.life for index in self.indexes), Reads())

    @property
    def space_amplification(self) -> float | None:
        """Bytes of the store's files over bytes of its live segments; None if nothing is stored."""
        return self.disk_bytes / self.bytes if self.bytes and self.disk_bytes else None

    @property
    def write_amplification(self) -> float | None:
        """Mean number of writes of a stored byte, by its batch and by merges; None if empty."""
        written = sum((1 + level.level) * level.bytes for level in self.levels)
        return written / self.bytes if self.bytes else None


@dataclass(frozen=True, slots=True)
class SegmentReport(Body):
    """One segment: an immutable part of a store.

    Attributes:
        partition: number of its partition, from 0.
        level: number of its merges.
        rows: number of rows.
        bytes: size in bytes, with indexes.
        batches: first and last of the batches in which the newest members of its rows arrived.
        event_time: least and greatest event time of any member, in microseconds; None: none.
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
        edge: id of the edge.
        queries: the queries that it serves.
        fill: whether the store is probed in place of an intermediate result that has gaps.
    """

    edge: str
    queries: tuple[str, ...]
    fill: bool


@dataclass(frozen=True, slots=True)
class StoreParts(Message):
    """One store's segments and readers, as of ``next_batch``.

    Attributes:
        segments: the largest segments, in the order in which they are probed.
        omitted: number of smaller segments that are not listed.
        edges: the first edges by name. ``edges_omitted``: number of edges that are not listed.
    """

    store: str
    next_batch: int
    segments: tuple[SegmentReport, ...]
    omitted: int
    edges: tuple[EdgeReport, ...]
    edges_omitted: int


@dataclass(frozen=True, slots=True)
class TableReport(Body):
    """Report of the maintained table of a query's post-join part.

    Attributes:
        query: name of the query's run.
        rows: number of present rows; of an outer join without a view, of rows written so far.
        version: the last version with changes; -1: none.
        changes: number of changes written so far.
        rounds: number of batches of joined rows that its last checkpoint does not include.
        added: number of joined rows included since the start of the run.
        seconds: CPU seconds for including them. Time for groups that several queries share is
            divided equally.
        bytes: size in memory, including shared groups; 0: not known yet.
        common: the first of the queries that share a table or groups, which identifies these.
    """

    query: str
    rows: int
    version: int
    changes: int
    rounds: int
    added: int = 0
    seconds: float = 0.0
    bytes: int = 0
    common: str = ""


@dataclass(frozen=True, slots=True)
class StateReport(Body, Message):
    """Report of all stores of a pipeline, with the disk space and writes that they have cost.

    Attributes:
        next_batch: number of the pipeline's next batch.
        epoch: number of the pipeline's epoch.
        ruleset_epoch: epoch of its ruleset.
        bytes: size of all segments of the newest state, in bytes.
        packs: number of files of the newest state.
        disk_bytes: size of these files, in bytes; they may contain segments that have been merged
            or dropped since.
        space_amplification: ``disk_bytes`` over ``bytes``; None if nothing is stored.
        inserted_bytes: all bytes ever written by batches.
        merged_bytes: all bytes ever written by merges.
        write_amplification: ``inserted_bytes`` and ``merged_bytes`` together, over
            ``inserted_bytes``; None before the first insert.
        stores: the stores.
        revision: number of the ruleset's revision; 0: the ruleset with which the epoch began.
        tables: the maintained tables.
        table_bytes: size of the tables' checkpoints and of joined rows since, in bytes.
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
    tables: tuple[TableReport, ...] = ()
    table_bytes: int = 0
