"""Description of a batch that the driver sends to its tasks: frozen and small.

Tasks that have run the preceding batch get only changes: bounds and layouts for hundreds of queries
take megabytes, and few change in a batch. The description does not list the live segments, which
may be many: tasks read them from the manifest that the batch starts from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anabranch_contract.plans.ruleset import RulesetId
from anabranch_runtime.columns.arrays import Bools
from anabranch_runtime.epochs.layout import StoreLayout
from anabranch_runtime.event_time.newest_allowed import BatchTimes
from anabranch_runtime.exchange.fleet import BatchHosts
from anabranch_runtime.probe.scope import ProbeScope
from anabranch_runtime.rations.catch_up import Shedding
from anabranch_runtime.sources.dealing import InputShares
from anabranch_runtime.state.changes import StateChange, difference, renewed
from anabranch_runtime.state.committed import committed_segments
from anabranch_runtime.state.measures import Bounds
from anabranch_runtime.state.slices import Slice
from anabranch_runtime.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class BatchContext:
    """Description of one batch for its tasks; each feature has a record of its own in it.

    Attributes:
        batch, epoch: their numbers. ``ruleset``: the id of the epoch's ruleset.
        attempt: name of the attempt at the batch, by which its files differ from other attempts'.
        root: the state directory. ``staging``: folder of result files until the commit.
        manifest: checksum of the manifest that the batch starts from; None: nothing is stored.
        replaced: store -> live segments, for stores whose segments differ from the manifest's.
        stores: layout of every live store.
        bounds: thresholds by which tasks skip values that can't change the statistics.
        backfill: slice of an MIR's backfill, if one is running.
        memory_limit: bytes of private memory that the workers of a host may take together.
        objects: the object store behind the state directory, if there is one.
    """

    batch: int
    epoch: int
    ruleset: RulesetId
    attempt: str
    root: str
    staging: str
    redis_url: str
    namespace: str
    times: BatchTimes = field(default_factory=BatchTimes)
    scope: ProbeScope = field(default_factory=ProbeScope)
    shedding: Shedding = field(default_factory=Shedding)
    input: InputShares = field(default_factory=InputShares)
    hosts: BatchHosts = field(default_factory=BatchHosts)
    manifest: int | None = None
    replaced: dict[str, tuple[Segment, ...]] = field(default_factory=dict)
    stores: dict[str, StoreLayout] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=Bounds)
    backfill: Slice | None = None
    memory_limit: int | None = None
    objects: str | None = None


#: Types whose fields are compared one by one with the preceding batch's.
_INSIDE = frozenset((BatchContext, ProbeScope, Bounds))
#: A batch's context, or its changes since the context of the batch before.
Order = BatchContext | StateChange


def order_of(last: BatchContext | None, context: BatchContext) -> Order:
    """Return the message for tasks whose last context is ``last`` (None: no context yet)."""
    return context if last is None else difference(last, context, _INSIDE)


def context_of(last: BatchContext | None, order: Order) -> BatchContext:
    """Return the batch's context that ``order`` encodes; unchanged parts of ``last`` are reused."""
    if isinstance(order, BatchContext):
        return order
    assert last is not None
    return renewed(last, order)


#: State directory -> store -> (live segments, mask of the host's partitions, segments in these).
#: Other caches compare these tuples by identity, to skip unchanged stores.
_OWNED: dict[str, dict[str, tuple[Sequence[Segment], bytes, tuple[Segment, ...]]]] = {}


def live_segments(
    context: BatchContext, own: Callable[[int], Bools] | None = None
) -> dict[str, tuple[Segment, ...]]:
    """Return store -> live segments of earlier batches.

    Args:
        own: number of partitions -> mask of the wanted partitions; None: all.

    Raises:
        StateError: ``missing-manifest``: the manifest does not appear in time.
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
