"""Probing: from a partial result and a rule to the next partial result.

Correct output of one probe (``semantics.md``): every pair (tuple of the partial result, stored
row) whose keys are equal, where each member of the row arrived before the start tuple (by sigma;
at the same sigma for ``inclusive`` members), belongs to the batches that the store is asked for,
and satisfies the rule's time bounds and residuals. Each such pair appears once, because the tiles
of a rule don't overlap and gaps are disjoint from tiles.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from anabranch_planner.model import Label
from anabranch_runtime.state.segment import OFFSET_BITS, SIGMA
from anabranch_runtime.task.partial import Partial, RowSet, concat_partials, concat_rows
from anabranch_runtime.vectors.expressions import evaluate, filter_mask
from anabranch_runtime.vectors.keys import key_vector, partition_of, values_equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from anabranch_planner.expr import Column, Expr
    from anabranch_planner.model import AttrRef
    from anabranch_planner.ruleset import KeyPart, ProbeRule, TimeBound
    from anabranch_runtime.context import Access
    from anabranch_runtime.state.coverage import Interval, Tile
    from anabranch_runtime.state.layout import Layout, StoreLayout
    from anabranch_runtime.state.segment import SegmentReader

    Ints = NDArray[np.int64]


class Segments(Protocol):
    """Access to live segments, those of this batch included."""

    def of(self, store: str, interval: Interval) -> Iterable[SegmentReader]:
        """Readers of ``store``'s segments that have rows of batches in ``interval``."""


@dataclass(slots=True)
class EdgeMeter:
    """What happened on one edge, as :class:`anabranch_planner.exchange.EdgeStatistics` has it."""

    probes: int = 0
    matches: int = 0
    seconds: float = 0.0
    pairs: int = 0
    hits: int = 0


@dataclass(slots=True)
class Prober:
    """Executes probe rules of one batch in one task."""

    layout: Layout
    segments: Segments
    batch: int
    meters: dict[str, EdgeMeter] = field(default_factory=lambda: defaultdict(EdgeMeter))

    def probe(self, partial: Partial, rule: ProbeRule, access: Access) -> Partial | None:
        """The partial result on ``rule.out``; None where it is empty."""
        started = time.process_time()
        meter = self.meters[rule.out]
        found = self._tiles(
            partial, access.tiles, rule.key, rule.members, rule.inclusive, rule.mir, meter
        )
        parts = [found] if found is not None else []
        if access.gaps:
            filled = self._fill(partial, rule, access)
            if filled is not None:
                parts.append(filled)
        joined = concat_partials(parts) if parts else None
        meter.probes += partial.length
        meter.matches += joined.length if joined is not None else 0
        if joined is not None:
            joined = check(self.layout, joined, rule.bounds, rule.residuals)
        meter.seconds += time.process_time() - started
        return joined if joined is not None and joined.length else None

    def _fill(self, partial: Partial, rule: ProbeRule, access: Access) -> Partial | None:
        """Probe the MIR's parts one by one; keep combinations that belong to a gap."""
        current = partial
        for step, tiles in zip(rule.fill, access.fill, strict=True):
            found = self._tiles(
                current, tiles, step.key, (step.label,), step.inclusive, step.relation
            )
            if found is None:
                return None
            current = check(self.layout, found, step.bounds, ())
            if current.length == 0:
                return None
        if len(access.gaps) == 1 and access.gaps[0][1] >= self.batch:
            return current
        last = np.max([current.batch(m) for m in rule.members], axis=0)
        inside = np.zeros(current.length, bool)
        for low, high in access.gaps:
            inside |= (last >= low) & (last <= high)
        return current.where(inside)

    def _tiles(
        self,
        partial: Partial,
        tiles: Sequence[Tile],
        key: Sequence[KeyPart],
        members: Sequence[Label],
        inclusive: Sequence[Label],
        target: str,
        meter: EdgeMeter | None = None,
    ) -> Partial | None:
        """Join ``partial`` with the rows of ``tiles``; key and arrival order only.

        Pairs and hits are metered over the segments of which every row may match: those of
        earlier batches, wholly inside their tile, without a filter to make up for.
        """
        arrays = [attribute(self.layout, partial, k.probe) for k in key]
        types = [k.type for k in key]
        keys = key_vector(arrays, types)
        alive = None if keys.valid is None else np.flatnonzero(keys.valid)
        routes: dict[tuple[AttrRef, str, int], list[Ints]] = {}
        positions: list[Ints] = []
        rows: list[RowSet] = []
        for tile in tiles:
            store = self.layout.stores[tile.store]
            index = store.index_key(key)
            routed = self._route(store, key, arrays, keys.hashes, alive, routes)
            weaker = self.layout.missing_filter(target, tile.store)
            for reader in self.segments.of(tile.store, tile.interval):
                segment = reader.segment
                low, high = tile.interval
                metered = (
                    meter is not None
                    and not weaker
                    and low <= segment.first_batch
                    and segment.last_batch <= min(high, self.batch - 1)
                )
                if meter is not None and metered:
                    meter.pairs += partial.length * segment.rows
                chosen = alive if routed is None else routed[segment.partition]
                hashes = keys.hashes if chosen is None else keys.hashes[chosen]
                if len(hashes) == 0:
                    continue
                table = reader.index(index, _build_side(self.layout, store, reader, key))
                at, row = table.probe(hashes)
                if len(at) == 0:
                    continue
                if chosen is not None:
                    at = chosen[at]
                mask = self._admit(partial, reader, tile, store, inclusive, members, at, row)
                if not keys.exact:
                    equal = values_equal(
                        [a.take(_arrow(at)) for a in arrays],
                        [
                            b.take(_arrow(row))
                            for b in _build_side(self.layout, store, reader, key)()
                        ],
                        types,
                    )
                    mask = equal if mask is None else mask & equal
                kept = _filter_rows(reader, weaker, row) if weaker else None
                if kept is not None:
                    mask = kept if mask is None else mask & kept
                if mask is not None:
                    at, row = at[mask], row[mask]
                if meter is not None and metered:
                    meter.hits += len(at)
                if len(at):
                    positions.append(at)
                    rows.append(RowSet((reader,), None, row))
        if not positions:
            return None
        base = self.layout.is_base(target)
        place = {members[0]: ""} if base else {m: str(m) for m in members}
        return partial.extend(np.concatenate(positions), concat_rows(rows), place)

    def _route(
        self,
        store: StoreLayout,
        key: Sequence[KeyPart],
        arrays: Sequence[pa.Array],
        hashes: NDArray[np.uint64],
        alive: Ints | None,
        routes: dict[tuple[AttrRef, str, int], list[Ints]],
    ) -> list[Ints] | None:
        """Positions per partition where the tuple knows the partition attribute, else None."""
        if store.partition is None or store.partitions == 1:
            return None
        found = next((i for i, k in enumerate(key) if (k.build, k.type) == store.partition), None)
        if found is None:
            return None
        cache = (*store.partition, store.partitions)
        if cache not in routes:
            if len(key) > 1:
                hashes = key_vector([arrays[found]], [key[found].type]).hashes
            number = partition_of(hashes, store.partitions)
            if alive is not None:
                number = number[alive]
            order = np.argsort(number, kind="stable")
            cuts = np.searchsorted(number[order], np.arange(store.partitions + 1))
            where = order if alive is None else alive[order]
            routes[cache] = [where[cuts[p] : cuts[p + 1]] for p in range(store.partitions)]
        return routes[cache]

    def _admit(
        self,
        partial: Partial,
        reader: SegmentReader,
        tile: Tile,
        store: StoreLayout,
        inclusive: Sequence[Label],
        members: Sequence[Label],
        at: Ints,
        row: Ints,
    ) -> NDArray[np.bool_] | None:
        """Whether the rows belong to the tile and arrived before the start tuple."""
        segment = reader.segment
        low, high = tile.interval
        clipped = segment.first_batch < low or segment.last_batch > high
        current = segment.last_batch >= self.batch
        if not clipped and not current:
            return None
        start = partial.sigma(partial.start)[at] if current else None
        mask = np.ones(len(at), bool)
        newest: Ints | None = None
        for label, member in zip(members, store.members, strict=True):
            sigma = reader.int64(SIGMA if store.is_base else f"{SIGMA}:{member}")[row]
            if start is not None:
                mask &= sigma <= start if label in inclusive else sigma < start
            newest = sigma if newest is None else np.maximum(newest, sigma)
        if clipped and newest is not None:
            batch = newest >> OFFSET_BITS
            mask &= (batch >= low) & (batch <= high)
        return mask


def check(
    layout: Layout, partial: Partial, bounds: Sequence[TimeBound], residuals: Sequence[Expr]
) -> Partial:
    """``partial`` less the tuples that violate a time bound or a residual."""
    mask: NDArray[np.bool_] | None = None
    for bound in bounds:
        held = partial.tau(bound.later) - partial.tau(bound.earlier) <= bound.micros
        mask = held if mask is None else mask & held
    partial = partial.where(mask)
    if residuals and partial.length:
        partial = partial.where(filter_mask(residuals, fetcher(partial), partial.length))
    return partial


def fetcher(partial: Partial) -> Callable[[Column], pa.Array]:
    """How expressions over several labels read ``partial``."""
    return lambda column: partial.column(Label(column.alias), column.name)


def attribute(layout: Layout, partial: Partial, ref: AttrRef) -> pa.Array:
    """A key attribute of ``partial``: a column, or a derived key expression."""
    derived = layout.derived(ref.label, ref.attribute)
    if derived is None:
        return partial.column(ref.label, ref.attribute)
    return evaluate(derived, lambda c: partial.column(ref.label, c.name), partial.length)


def _build_side(
    layout: Layout, store: StoreLayout, reader: SegmentReader, key: Sequence[KeyPart]
) -> Callable[[], list[pa.Array]]:
    """The stored side's key columns, computed only if somebody asks."""
    rows = reader.segment.rows
    return lambda: [layout.stored(store, reader, rows, k.build) for k in key]


def _filter_rows(
    reader: SegmentReader, conjuncts: Sequence[Expr], rows: Ints
) -> NDArray[np.bool_] | None:
    """Which of a base segment's ``rows`` satisfy ``conjuncts``."""
    picked = _arrow(rows)
    return filter_mask(conjuncts, lambda c: reader.column(c.name).take(picked), len(rows))


def _arrow(positions: Ints) -> pa.Array:
    return pa.array(positions)
