"""Bodies of ``/v1/state``."""

from __future__ import annotations

from anabranch_contract.rest.documents import Document
from anabranch_contract.rest.planning.statistics import EdgeStatisticsOut, ReadsOut


class LevelOut(Document):
    """The segments of a store that have been merged ``level`` times; ``bytes`` on disk."""

    level: int
    segments: int
    rows: int
    bytes: int


class IndexOut(Document):
    """One index of a store: its rows with the key, its bytes, its filters' bytes, and its reads
    since the store began.
    """

    key: str
    entries: int
    bytes: int
    filter_bytes: int
    life: ReadsOut


class StoreOut(Document):
    """One store as of the newest batch that the runtime has reported; sizes are bytes on disk.

    ``batches`` are the complete ranges of batches (first, last); ``growing``: the running epoch
    adds to it; ``expired_below``: per member, the event time in microseconds below which rows may
    be gone; ``ttl``: per member, its stream's in microseconds; ``backfill``: its past is being
    computed. ``disk_bytes`` is its share of its segments' files, ``space_amplification`` that over
    ``bytes``, ``write_amplification`` how often each stored byte has been written. ``reads`` is of
    the last ended epoch (``probes`` and ``matches`` are part of it; null if not measured), ``life``
    of all epochs since the store began, up to now.
    """

    store: str
    kind: str
    mir: str
    members: list[str]
    streams: list[str]
    filter: list[str]
    partition: str | None
    partitions: int
    batches: list[tuple[int, int]]
    growing: bool
    queries: list[str]
    rows: int
    bytes: int
    index_bytes: int
    segments: int
    levels: list[LevelOut]
    expired_below: list[int | None]
    ttl: list[int | None]
    backfill: bool
    probes: int | None
    matches: int | None
    disk_bytes: int
    space_amplification: float | None
    write_amplification: float | None
    reads: ReadsOut | None
    life: ReadsOut
    indexes: list[IndexOut]


class SegmentOut(Document):
    """One segment: ``batches`` and ``event_time`` are first and last, least and greatest."""

    partition: int
    level: int
    rows: int
    bytes: int
    batches: tuple[int, int]
    event_time: tuple[int, int] | None


class ReaderOut(Document):
    """An edge whose probes read a store: tuples of ``start`` that have come as far as ``edge`` says
    look ``mir`` up by ``key``. ``fill``: the store stands in for an intermediate result where that
    has gaps. ``statistics`` of the last epoch that ended, over all stores that the edge asks.
    """

    edge: str
    start: str | None
    mir: str | None
    key: list[str]
    queries: list[str]
    fill: bool
    statistics: EdgeStatisticsOut | None


class StoreEpochOut(Document):
    """A store at the end of an epoch, and its reads meanwhile."""

    epoch: int
    rows: int
    bytes: int
    segments: int
    reads: ReadsOut


class StoreDetailOut(StoreOut):
    """One store with its largest segments (``parts``, as of before ``parts_batch``; null where
    they have not been reported yet), who reads it, and its last epochs, oldest first.
    """

    next_batch: int
    parts_batch: int | None
    parts: list[SegmentOut]
    parts_omitted: int
    readers: list[ReaderOut]
    readers_omitted: int
    history: list[StoreEpochOut]


class StateOut(Document):
    """The contents of the stores. ``write_amplification`` is the bytes ever written by batches and
    merges over the batches' part, ``space_amplification`` the files' bytes over their live bytes.
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
    stores: list[StoreOut]
