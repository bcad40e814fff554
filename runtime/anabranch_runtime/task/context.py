"""One batch as the driver describes it to tasks: frozen, small, shipped with them.

Stored rows are not described here: tasks read the segments from the manifest that the batch goes on
from, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.plans.rations import Ration
from anabranch_contract.plans.ruleset import RulesetId
from anabranch_runtime.epochs.layout import StoreLayout
from anabranch_runtime.exchange.meeting import Place
from anabranch_runtime.sources.dealing import Sites
from anabranch_runtime.sources.feed import Piece
from anabranch_runtime.state.coverage import Access, Tile
from anabranch_runtime.state.debt import CatchUp
from anabranch_runtime.state.manifest import committed_segments
from anabranch_runtime.state.measures import Bounds
from anabranch_runtime.state.placement import Placement
from anabranch_runtime.state.slices import Slice
from anabranch_runtime.storage.segment import Segment

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BatchContext:
    """One batch as its tasks see it.

    Attributes:
        batch, epoch: their numbers. ``ruleset``: the id of the epoch's ruleset.
        attempt: distinguishes the files of repeated attempts at the same batch.
        root: the state directory. ``staging``: where result files wait for the commit.
        watermarks: stream -> microseconds, for streams where something can be late.
        newest_allowed: stream -> microseconds, for streams where something can be ahead.
        manifest: checksum of the manifest that the batch goes on from; None: nothing is stored.
        replaced: store -> live segments, where they are not those of the manifest.
        access: edge -> how its probe is answered.
        visible: query -> label -> (batch, event time or None), for labels whose visibility is
            limited; others see everything.
        activated: query -> activation batch.
        stores: every live store's layout.
        clock: microseconds that the pipeline had been running when the batch started; None:
            event time is the clock (``event_time.idleness``).
        failed: active queries of the ruleset that have failed in an earlier batch.
        backfill: background work on an MIR's past, if there is any.
        catch_up: what the batch makes good of results that were withheld, if anything.
        bounds: what has been measured so far, as far as tasks need to know it.
        latest: stream -> the stores in which later tuples of a key are found, for streams that
            keep the latest.
        looked_up: table -> first batch of the rows that are looked up, and the batch before which
            they end (None: they go on), of tables that were read again.
        memory_limit: bytes of private memory that the workers of a host may take together.
        objects: the object store behind the state directory, if there is one. ``cache_size``: bytes
            of packs that a cache of it may have; None: any number.
        shares: per task, what it reads of the sources that the runtime reads itself.
        sites: which streams are to be read where.
        redefined: streams that are registered with other columns than the ruleset means; what
            arrives of them is counted and passed over.
        now: by what the age of tuples is measured (``rations.freshness``), microseconds.
        rations: of goals that do not get every tuple; of all others the share is 1.
        sampled: queries whose results say with which probability they were kept.
        placement: which host has which partition; None: there has been one host. ``coming``: which
            will have which, if the next epoch began now; None: the same.
        meeting: where tasks meet that share nothing but the object store; None: they share the
            state directory. ``cache``: the directory that is the state directory to those of one
            host; relative to their executors' own where it is relative.
    """

    batch: int
    epoch: int
    ruleset: RulesetId
    attempt: str
    root: str
    staging: str
    redis_url: str
    namespace: str
    watermarks: dict[str, int] = field(default_factory=dict)
    newest_allowed: dict[str, int] = field(default_factory=dict)
    manifest: int | None = None
    replaced: dict[str, tuple[Segment, ...]] = field(default_factory=dict)
    access: dict[str, Access] = field(default_factory=dict)
    visible: dict[str, dict[str, tuple[int, int | None]]] = field(default_factory=dict)
    activated: dict[str, int] = field(default_factory=dict)
    stores: dict[str, StoreLayout] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=Bounds)
    clock: int | None = None
    failed: frozenset[str] = frozenset()
    backfill: Slice | None = None
    catch_up: CatchUp | None = None
    latest: dict[str, tuple[Tile, ...]] = field(default_factory=dict)
    looked_up: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    memory_limit: int | None = None
    objects: str | None = None
    cache_size: int | None = None
    shares: tuple[tuple[Piece, ...], ...] = ()
    sites: Sites = field(default_factory=Sites)
    redefined: frozenset[str] = frozenset()
    rations: tuple[Ration, ...] = ()
    now: int | None = None
    sampled: frozenset[str] = frozenset()
    placement: Placement | None = None
    coming: Placement | None = None
    meeting: Place | None = None
    cache: str = ""


#: Root -> store -> its live segments as the manifest has them, which partitions are a host's own,
#: and the segments of these: by identity, of which other caches know that nothing has changed.
_OWNED: dict[str, dict[str, tuple[Sequence[Segment], bytes, tuple[Segment, ...]]]] = {}


def live_segments(
    context: BatchContext, own: Callable[[int], Bools] | None = None
) -> dict[str, tuple[Segment, ...]]:
    """Store -> live segments of earlier batches.

    Args:
        own: number of partitions -> those of which segments are wanted; None: all.

    Raises:
        StateError: ``missing-manifest``.
    """
    found = dict(context.replaced)
    if context.manifest is not None:
        kept = committed_segments(Path(context.root), context.batch, context.manifest)
        found = {name: s for name, s in (kept | found).items() if name in context.stores}
    if own is None:
        return found
    known, fresh = _OWNED.get(context.root, {}), {}
    for name, segments in found.items():
        mine = own(context.stores[name].partitions)
        before = known.get(name)
        if before is None or before[0] is not segments or before[1] != mine.tobytes():
            before = segments, mine.tobytes(), tuple(s for s in segments if mine[s.partition])
        fresh[name] = before
    _OWNED[context.root] = fresh
    return {name: wanted for name, (_, _, wanted) in fresh.items()}


def exchange_directory(context: BatchContext) -> Path:
    """Where the tasks of this attempt leave messages for each other."""
    return Path(context.root) / "exchange" / context.attempt
