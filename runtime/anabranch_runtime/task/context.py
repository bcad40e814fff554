"""One batch as the driver describes it to tasks: frozen, small, shipped with them.

Stored rows are not described here: tasks read the segments from the manifest that the batch goes on
from, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.plans.rations import Ration
from anabranch_contract.plans.ruleset import RulesetId
from anabranch_runtime.epochs.layout import StoreLayout
from anabranch_runtime.sources.dealing import Sites
from anabranch_runtime.sources.feed import Piece
from anabranch_runtime.state.coverage import Access, Tile
from anabranch_runtime.state.debt import CatchUp
from anabranch_runtime.state.manifest import committed_segments
from anabranch_runtime.state.measures import Bounds
from anabranch_runtime.state.placement import Placement
from anabranch_runtime.state.slices import Slice
from anabranch_runtime.storage.segment import Segment

if TYPE_CHECKING:  # Arrow Flight is for several hosts only
    from anabranch_runtime.exchange.meeting import CoordinatorAddress

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BatchContext:
    """One batch as its tasks see it.

    Attributes:
        batch, epoch: their numbers. ``ruleset``: the id of the epoch's ruleset.
        attempt: distinguishes the files of repeated attempts at the same batch.
        root: the state directory. ``staging``: folder of result files until the commit.
        watermarks: stream -> microseconds, for streams that can have late tuples.
        newest_allowed: stream -> microseconds, for streams that can have future tuples.
        manifest: checksum of the manifest that the batch starts from; None: nothing is stored.
        replaced: store -> live segments, where they differ from the manifest's.
        access: edge -> tiles and gaps of its probe.
        visible: query -> label -> (batch, event time or None), for labels with limited visibility;
            all other rows are visible.
        activated: query -> activation batch.
        stores: every live store's layout.
        clock: microseconds that the pipeline had been running when the batch started; None: event
            time is the clock (``event_time.idleness``).
        failed: active queries of the ruleset that have failed in an earlier batch.
        backfill: slice of an MIR's backfill, if one is running.
        catch_up: withheld results that the batch delivers, if any.
        bounds: bounds of the measurements so far.
        latest: stream -> tiles with the later tuples of its keys, for streams that keep the latest.
        looked_up: table -> first batch of the rows of its current version, and the batch before
            which they end (None: they go on), for tables that were read again.
        memory_limit: bytes of private memory that the workers of a host may take together.
        objects: the object store behind the state directory, if there is one. ``cache_size``: bytes
            of packs that a cache of it may have; None: any number.
        shares: per task, its pieces of the sources that the runtime reads itself.
        sites: preferred sites of reading, per stream.
        redefined: streams registered with other columns than the ruleset's; their tuples are
            counted and skipped.
        now: reference time for tuple ages (``rations.freshness``), microseconds.
        rations: of goals with a share below 1; the share of all others is 1.
        sampled: queries whose results carry their inclusion probabilities.
        placement: partition -> host; None: there has been one host. ``coming``: placement of an
            epoch that began now; None: the same.
        meeting: address of the coordinator of tasks that share nothing but the object store; None:
            they share the state directory.
        cache: the directory that serves the tasks of one host as the state directory; if relative,
            below their executors' own.
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
    meeting: CoordinatorAddress | None = None
    cache: str = ""


#: Root -> store -> live segments by the manifest, mask of the host's own partitions, and the
#: segments in them. Other caches compare these tuples by identity to skip unchanged stores.
_OWNED: dict[str, dict[str, tuple[Sequence[Segment], bytes, tuple[Segment, ...]]]] = {}


def live_segments(
    context: BatchContext, own: Callable[[int], Bools] | None = None
) -> dict[str, tuple[Segment, ...]]:
    """Store -> live segments of earlier batches.

    Args:
        own: number of partitions -> mask of the wanted partitions; None: all.

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
    """Folder of the messages between the tasks of this attempt."""
    return Path(context.root) / "exchange" / context.attempt
