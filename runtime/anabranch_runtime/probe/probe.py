"""Probing: from a partial result and a rule to the next partial result.

Correct output of one probe (``semantics.md``): every pair (tuple of the partial result, stored row)
with equal keys that satisfies the rule's time bounds and residuals. The row's batch must be one for
which the rule reads this store (``Tile``). Each member of the row must have arrived before the
start tuple: its sigma is less, or for ``inclusive`` members at most equal. Each pair appears once,
because the tiles of a rule don't overlap, and gaps don't overlap tiles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_contract.plans.ruleset import KeyPart, ProbeRule, TimeBound
from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import Label
from anabranch_runtime.columns.arrays import I32, Ints, joined, plain
from anabranch_runtime.cpu import process_seconds
from anabranch_runtime.epochs.layout import Layout, StoreLayout
from anabranch_runtime.errors import GatherOverflow
from anabranch_runtime.expressions.evaluate import evaluate, filter_mask
from anabranch_runtime.index.gather import gather, pick, place_of, places
from anabranch_runtime.index.keys import key_vector, partition_of, values_equal
from anabranch_runtime.index.matching import ANY, Constraint, Probes, TooManyPairs, in_order, match
from anabranch_runtime.probe.groups import LiveSegments, SegmentGroup
from anabranch_runtime.probe.reads import LookupCounts, ReadMeters
from anabranch_runtime.state.coverage import Access, Tile
from anabranch_runtime.state.dealt import Dealt
from anabranch_runtime.storage.partial import (
    Partial,
    RowSet,
    concat_partials,
    concat_rows,
    fetcher,
    narrow,
)
from anabranch_runtime.storage.segment import OFFSET_BITS, SIGMA, TAU, IndexKey
from anabranch_runtime.tags.tags import Tags, WantedResults

#: Up to this number of tuples, a probe searches the segments of all partitions in one call: a call
#: per partition would cost more than the needless look-ups.
FEW = 1 << 11
_LEAST, _GREATEST = np.int64(-(1 << 63)), np.int64((1 << 63) - 1)


@dataclass(frozen=True, slots=True)
class Target:
    """The build side of a probe.

    Attributes:
        name: the relation or MIR.
        key: the attributes that must be equal.
        members: the labels that a row of the target fills.
        inclusive: members that may be the start tuple itself.
        whenever: whether rows that arrived after the start tuple match too.
    """

    name: str
    key: Sequence[KeyPart]
    members: Sequence[Label]
    inclusive: Sequence[Label]
    whenever: bool = False


@dataclass(slots=True)
class Prober:
    """Executes probe rules of one batch in one task.

    Attributes:
        most: maximum number of result tuples of a probe, or of one of its fill steps.
        by_stream: whether tuples of one batch are ordered by their streams (``Routes.order``), not
            by their sigmas (``semantics.md``, "Rations").
        tags: tests by which :meth:`probe` drops results that no query needs; None: it keeps all.
    """

    layout: Layout
    segments: LiveSegments
    batch: int
    most: int = ANY
    by_stream: bool = False
    tags: Tags | None = None
    meters: dict[str, EdgeStatistics] = field(default_factory=lambda: defaultdict(EdgeStatistics))
    reads: ReadMeters = field(default_factory=ReadMeters)

    def probe(self, partial: Partial, rule: ProbeRule, access: Access) -> Partial | None:
        """Probe by ``rule``, and return the partial result on ``rule.out``; None if it is empty.

        Raises:
            TooManyPairs: the result, or the result of a fill step, would exceed ``most`` tuples.
                Retry with a part of ``partial`` (``pieces``). Never raised for a single tuple.
        """
        with self._metered(rule) as meter:
            return self._probe(partial, rule, access, meter)

    def fill(self, partial: Partial, rule: ProbeRule, access: Access, at: int) -> Partial | None:
        """Return the result of one fill step in the gaps of an MIR (``ProbeRule.fill``), which
        after the last step is the partial result on ``rule.out``; None if it is empty.

        Raises:
            TooManyPairs: as for :meth:`probe`.
        """
        most = self.most if partial.length > 1 else ANY
        with self._metered(rule) as meter:
            found = self._fill_step(partial, rule, access, at, most)
            if found is not None and at + 1 == len(rule.fill):
                found = self._inside(found, rule, access)
                meter.matches += found.length
                # A lower bound, since tuples with the same starting tuple count once.
                meter.found += len(np.unique(found.sigma(found.start)))
                found = check(found, rule.bounds, rule.residuals)
                meter.made += found.length
        return found if found is not None and found.length else None

    @contextmanager
    def _metered(self, rule: ProbeRule) -> Iterator[EdgeStatistics]:
        """Yield the meter of a probe rule. If the ``with`` block fails, it counts CPU time only."""
        started = process_seconds()
        meter = self.meters[rule.out]
        known = replace(meter)
        try:
            yield meter
        except Exception:
            # With too many pairs, or a failed expression, the probe is repeated or dropped: only
            # its time counts.
            meter = self.meters[rule.out] = known
            raise
        else:
            self.reads.keep()
        finally:
            self.reads.forget()
            meter.seconds += process_seconds() - started

    def _probe(
        self, partial: Partial, rule: ProbeRule, access: Access, meter: EdgeStatistics
    ) -> Partial | None:
        most = self.most if partial.length > 1 else ANY
        target = Target(rule.mir, rule.key, rule.members, rule.inclusive)
        early = not access.gaps and not any(
            self.layout.missing_filter(rule.mir, tile.store) for tile in access.tiles
        )
        bounds = rule.bounds if early else ()
        lookup = Lookup(self, partial, target, bounds)
        if self.tags is not None:
            lookup.wanted = self.tags.tested(partial, rule)
        found = self._join(lookup, access.tiles, meter, most)
        parts = [found] if found is not None else []
        marks = lookup.marks()
        if access.gaps:
            filled = self._fill(partial, rule, access, most)
            if filled is not None:
                parts.append(filled)
                meter.matches += filled.length
                marks[filled.origins] = 1
        joined = concat_partials(parts) if parts else None
        meter.calls += 1
        meter.probes += partial.length
        meter.looked += lookup.looked
        meter.found += int(np.count_nonzero(marks.view(np.bool_)))
        if joined is not None:
            joined = check(joined, rule.bounds, rule.residuals)
            meter.made += joined.length
        return joined if joined is not None and joined.length else None

    def _fill(self, partial: Partial, rule: ProbeRule, access: Access, most: int) -> Partial | None:
        """Probe the members of an MIR that has gaps one after the other; return the results in
        gaps, with the index of each one's tuple in ``partial``; None if empty."""
        current = partial.numbered()
        for at in range(len(rule.fill)):
            found = self._fill_step(current, rule, access, at, most)
            if found is None:
                return None
            current = found
        return self._inside(current, rule, access)

    def _fill_step(
        self, partial: Partial, rule: ProbeRule, access: Access, at: int, most: int
    ) -> Partial | None:
        """Return the result of the ``at``-th fill step of ``rule``; None if it is empty."""
        step = rule.fill[at]
        target = Target(step.relation, step.key, (step.label,), step.inclusive)
        found = self._join(Lookup(self, partial, target, ()), access.fill[at], None, most)
        if found is None:
            return None
        found = check(found, step.bounds, ())
        return found if found.length else None

    def _inside(self, current: Partial, rule: ProbeRule, access: Access) -> Partial:
        """Return the combinations whose newest member arrived in a gap of the MIR's store."""
        if len(access.gaps) == 1 and access.gaps[0][1] >= self.batch:
            return current
        last = np.max([current.batch(m) for m in rule.members], axis=0)
        inside = np.zeros(current.length, bool)
        for low, high in access.gaps:
            inside |= (last >= low) & (last <= high)
        return current.where(inside)

    def _join(
        self, lookup: Lookup, tiles: Sequence[Tile], meter: EdgeStatistics | None, most: int
    ) -> Partial | None:
        """Join each tuple of the partial result with the rows of ``tiles`` that have its key and
        arrived before it.

        Args:
            lookup: an unused lookup of the partial result in the target.
            meter: counts the matches by key and arrival order. Pairs and hits are counted only over
                segments of earlier batches that are completely inside their tile, of stores with
                the relation's filter.
            most: greatest number of result tuples.

        Raises:
            TooManyPairs: the result would have more than ``most`` tuples.
        """
        target, found = lookup.target, list[tuple["I32", RowSet]]()
        left = most
        for tile in tiles:
            for group, probes in lookup.routed(tile):
                pairs = lookup.match(tile, group, probes, meter, left)
                if pairs is not None:
                    found.append(pairs)
                    left -= len(pairs[0])
        if not found:
            return None
        base = self.layout.is_base(target.name)
        place = {target.members[0]: ""} if base else {m: str(m) for m in target.members}
        positions = np.concatenate([at for at, _ in found]) if len(found) > 1 else found[0][0]
        return lookup.partial.extend(positions, concat_rows([rows for _, rows in found]), place)


@dataclass(slots=True)
class _Keys:
    """The keys of a partial result's tuples, sorted for probing; cached in the partial result."""

    arrays: list[pa.Array]
    types: list[str]
    exact: bool
    probes: Probes
    routes: dict[tuple[int, int, tuple[Dealt, ...]], list[Probes]] = field(default_factory=dict)

    @staticmethod
    def of(layout: Layout, partial: Partial, key: Sequence[KeyPart]) -> _Keys:
        """Return the keys of the partial result's tuples: the values of ``key``."""
        wanted = tuple((k.probe, k.type) for k in key)
        found: _Keys | None = partial.lookups.get(wanted)
        if found is None:
            arrays = [layout.probed(partial, k.probe) for k in key]
            types = [k.type for k in key]
            keys = key_vector(arrays, types)
            alive = None if keys.valid is None else np.flatnonzero(keys.valid)
            found = _Keys(arrays, types, keys.exact, in_order(keys.hashes, alive))
            partial.lookups[wanted] = found
        return found

    def routed(self, part: int, store: StoreLayout) -> list[Probes]:
        """Return, per partition of ``store``, its probes by the ``part``-th key attribute."""
        partitions = store.partitions
        found = self.routes.get((part, partitions, store.dealt))
        if found is None:
            hashes = self.probes.hashes
            if len(self.arrays) > 1:
                alone = key_vector([self.arrays[part]], [self.types[part]]).hashes
                hashes = pick(alone, self.probes.order)
            homes = partition_of(hashes, partitions)
            dealt = store.dealt_rows
            masks = (
                (homes == p for p in range(partitions))
                if dealt is None
                else dealt.by_partition(hashes, homes)
            )
            found = [self.probes.where(mask) for mask in masks]
            self.routes[part, partitions, store.dealt] = found
        return found


class Lookup:
    """One probe of one partial result.

    The match already checks some of the time ``bounds``, where this is exact and cheap; the caller
    checks all of them.

    Attributes:
        wanted: test of counted matches if only some are needed; None: all are.
    """

    __slots__ = (
        "_arrived",
        "_keys",
        "_lookups",
        "_ranges",
        "partial",
        "prober",
        "target",
        "wanted",
    )

    def __init__(
        self, prober: Prober, partial: Partial, target: Target, bounds: Sequence[TimeBound]
    ) -> None:
        self.prober, self.partial, self.target = prober, partial, target
        self._keys = _Keys.of(prober.layout, partial, target.key)
        self._arrived: dict[Label, Ints] = {}
        self._lookups: dict[str, tuple[IndexKey, LookupCounts]] = {}
        self._ranges = self._time_ranges(bounds) if bounds and partial.length else []
        self.wanted: WantedResults | None = None

    def marks(self) -> NDArray[np.uint8]:
        """Return a copy of the marks: 1 for each tuple of the partial result that has a match."""
        found = np.zeros(self.partial.length, np.uint8)
        for _, counts in self._lookups.values():
            found |= counts.marks
        return found

    @property
    def looked(self) -> int:
        """Number of look-ups in segments by this probe so far, summed over its tuples."""
        return sum(counts.looked for _, counts in self._lookups.values())

    def routed(self, tile: Tile) -> Iterator[tuple[SegmentGroup, Probes]]:
        """Yield groups of the tile's segments, each with the probes that may match in it.

        If there are many probes and their key has the partition attribute, each partition gets its
        own probes. Otherwise every segment gets all probes.
        """
        store = self.prober.layout.stores[tile.store]
        part = None
        many = len(self._keys.probes) > FEW
        if many and store.partition is not None and store.partitions > 1:
            parts = ((k.build, k.type) for k in self.target.key)
            part = next((i for i, p in enumerate(parts) if p == store.partition), None)
        segments = self.prober.segments
        groups = segments.groups(tile.store, tile.interval, split=part is not None)
        lookup, probes = self._index(store)[1], self._keys.probes
        inside = sum(len(group.readers) for group in groups)
        lookup.by_batch += len(probes) * (segments.count(tile.store) - inside)
        if part is None:
            yield from ((group, probes) for group in groups)
        elif groups:
            routes = self._keys.routed(part, store)
            lookup.by_partition += len(probes) * inside
            for group in groups:
                own = routes[group.partition]
                lookup.by_partition -= len(own) * len(group.readers)
                yield group, own

    def _index(self, store: StoreLayout) -> tuple[IndexKey, LookupCounts]:
        """Return the index of ``store`` for the probe's key, and the counts of lookups in it."""
        found = self._lookups.get(store.id)
        if found is None:
            key = store.index_key(self.target.key)
            lookup = self.prober.reads.begin(store.id, key.name, self.partial.length)
            found = self._lookups[store.id] = (key, lookup)
        return found

    def match(
        self,
        tile: Tile,
        group: SegmentGroup,
        probes: Probes,
        meter: EdgeStatistics | None,
        most: int,
    ) -> tuple[I32, RowSet] | None:
        """Return the matches of ``probes`` with rows of ``group`` (segments of ``tile``).

        Raises:
            TooManyPairs: there are more than ``most`` matches.
        """
        layout, target = self.prober.layout, self.target
        store = layout.stores[tile.store]
        key, lookup = self._index(store)
        before = len(group.readers)
        group = self._in_time(group)
        within = len(group.readers)
        lookup.by_time += len(probes) * (before - within)
        weaker = layout.missing_filter(target.name, tile.store)
        whole, stored = group.whole
        if meter is not None and not weaker:
            meter.pairs += self.partial.length * stored
        if not len(probes) or not len(group.readers):
            return None
        indexes = group.indexes(
            key, lambda r: [layout.stored(store, r, r.segment.rows, k.build) for k in target.key]
        )
        arrival = self._arrival(store, tile, group)
        timing = self._timing(store, group) if self._keys.exact else []
        # If a later check may reject matches, tuples are marked after that check.
        sure = self._keys.exact and not weaker and (store.is_base or not group.any_clipped)
        marks = lookup.marks if sure else np.zeros_like(lookup.marks)
        test = None
        if sure and self.wanted is not None:
            test = self.wanted.of(group.tables, store.is_base)
        found = match(probes, indexes, [*arrival, *timing], len(arrival), most, marks, test)
        if len(found.positions) > most:
            raise TooManyPairs
        group.count(len(probes), found.found)
        lookup.filtered += found.held
        lookup.looked += len(probes) * within - found.held
        positions, counted = found.positions, found.counted
        tables, hit = group.having(found.found, len(positions))
        which: NDArray[np.integer[Any]] | None = None
        if len(hit) > 1:
            numbers: Ints = np.repeat(np.arange(len(hit)), found.found[hit])
            which = numbers.astype(narrow(len(hit)))
        joined = RowSet(tables, which, found.rows)
        mask = self._afterwards(store, tile, group, positions, joined, weaker)
        if mask is not None and not mask.all():
            kept = np.flatnonzero(mask).astype(np.int32)
            positions, joined = pick(positions, kept), joined.take(kept)
            sources = np.zeros(len(kept), np.int64) if joined.which is None else joined.which
            counted = np.bincount(hit[sources], minlength=len(group.readers))
        if not sure:
            lookup.kept(marks, positions, mask)
        lookup.matches += int(counted.sum())
        if meter is not None:
            meter.matches += int(counted.sum())
            if not weaker:
                meter.hits += int(counted[whole].sum())
        if self.wanted is not None and test is None and len(positions):
            kept = self.wanted.among(positions, joined, store.is_base)
            positions, joined = pick(positions, kept), joined.take(kept)
        return (positions, joined) if len(positions) else None

    def _arrival(self, store: StoreLayout, tile: Tile, group: SegmentGroup) -> list[Constraint]:
        """Return two constraints: each member arrived before the start tuple; and a base store's
        row arrived in the tile's batches (for rows of an MIR :meth:`_afterwards` checks this)."""
        found: list[Constraint] = []
        if group.any_current and not self.target.whenever:
            for label, member in zip(self.target.members, store.members, strict=True):
                name = SIGMA if store.is_base else f"{SIGMA}:{member}"
                columns = group.columns(name, current=True)
                found.append(Constraint(columns, self._ever(), self._before(label)))
        if store.is_base and group.any_clipped:
            low, high = tile.interval
            columns = group.columns(SIGMA, current=False)
            first = np.full(self.partial.length, low << OFFSET_BITS, np.int64)
            last = np.full(self.partial.length, ((high + 1) << OFFSET_BITS) - 1, np.int64)
            found.append(Constraint(columns, first, last))
        return found

    def _ever(self) -> Ints:
        """Return lower limits without effect, the least integer, per tuple of a partial result."""
        found: Ints | None = self.partial.lookups.get("ever")
        if found is None:
            found = self.partial.lookups["ever"] = np.full(self.partial.length, _LEAST)
        return found

    def _before(self, label: Label) -> Ints:
        """Return, per tuple, the greatest sigma (arrival number) for a match's member ``label``."""
        if label not in self._arrived:
            start, layout = self.partial.start, self.prober.layout
            first = self.prober.batch << OFFSET_BITS
            own, other = layout.order(start), layout.order(label)
            if self.prober.by_stream and own != other:
                last = first - 1 if other > own else first + (1 << OFFSET_BITS) - 1
                self._arrived[label] = np.full(self.partial.length, last, np.int64)
            else:
                sigma = self.partial.sigma(start)
                self._arrived[label] = sigma if label in self.target.inclusive else sigma - 1
        return self._arrived[label]

    def _timing(self, store: StoreLayout, group: SegmentGroup) -> list[Constraint]:
        """Return constraints on stored event times, from time bounds between tuples and matches."""
        found = []
        for label, low, high in self._ranges:
            member = store.members[self.target.members.index(label)]
            name = TAU if store.is_base else f"{TAU}:{member}"
            found.append(Constraint(group.tables.places(name).first, low, high))
        return found

    def _in_time(self, group: SegmentGroup) -> SegmentGroup:
        """Return the segments of ``group`` that may have matches within the time bounds."""
        for label, low, high in self._ranges:
            least, greatest = group.times(self.target.members.index(label))
            near = (greatest >= low.min()) & (least <= high.max())
            if not near.all():
                group = group.where(near)
        return group

    def _time_ranges(self, bounds: Sequence[TimeBound]) -> list[tuple[Label, Ints, Ints]]:
        """Return labels of a match, with the least and greatest event time allowed per tuple."""
        found: dict[Label, tuple[Ints, Ints]] = {}
        members = set(self.target.members)
        for bound in bounds:
            if (bound.later in members) == (bound.earlier in members):
                continue
            label = bound.later if bound.later in members else bound.earlier
            if label not in found:
                shape = self.partial.length
                found[label] = (np.full(shape, _LEAST), np.full(shape, _GREATEST))
            low, high = found[label]
            if label == bound.later:
                np.minimum(high, self.partial.tau(bound.earlier) + bound.micros, out=high)
            else:
                np.maximum(low, self.partial.tau(bound.later) - bound.micros, out=low)
        return [(label, low, high) for label, (low, high) in found.items()]

    def _afterwards(
        self,
        store: StoreLayout,
        tile: Tile,
        group: SegmentGroup,
        positions: I32,
        rows: RowSet,
        weaker: Sequence[Expr],
    ) -> NDArray[np.bool_] | None:
        """Return the mask of pairs that pass the checks after the match of hashes: values of
        inexact keys, a filter that the store lacks, batches of an MIR's rows. None: all pairs pass.
        """
        if len(positions) == 0:
            return None
        mask: NDArray[np.bool_] | None = None
        if not self._keys.exact:
            arrays = [plain(a) for a in self._keys.arrays]
            left = [gather(places([place_of(a)]), None, positions) for a in arrays]
            right = [_stored(self.prober.layout, store, rows, k) for k in self.target.key]
            mask = values_equal(left, right, self._keys.types)
        if weaker:
            kept = filter_mask(weaker, lambda c: rows.column(c.name), len(positions))
            mask = kept if mask is None else mask if kept is None else mask & kept
        if not store.is_base and group.any_clipped:
            low, high = tile.interval
            newest = np.max([rows.int64(f"{SIGMA}:{m}") for m in store.members], axis=0)
            batch = newest >> OFFSET_BITS
            inside = (batch >= low) & (batch <= high)
            mask = inside if mask is None else mask & inside
        return mask


def check(partial: Partial, bounds: Sequence[TimeBound], residuals: Sequence[Expr]) -> Partial:
    """Return ``partial`` without the tuples that violate a time bound or a residual."""
    partial = partial.where(within(partial, bounds))
    return partial.where(_held(partial, residuals)) if residuals and partial.length else partial


def _held(partial: Partial, residuals: Sequence[Expr]) -> NDArray[np.bool_] | None:
    """Return the mask of tuples with true ``residuals``; if texts are long, in smaller parts."""
    try:
        return filter_mask(residuals, fetcher(partial), partial.length)
    except GatherOverflow:
        if partial.length < 2:
            raise
    middle = partial.length // 2
    halves = partial.cut(0, middle), partial.cut(middle, partial.length)
    return joined([(_held(half, residuals), half.length) for half in halves])


def within(partial: Partial, bounds: Sequence[TimeBound]) -> NDArray[np.bool_] | None:
    """Return the mask of the tuples that satisfy all time bounds; None if there are none."""
    mask: NDArray[np.bool_] | None = None
    for bound in bounds:
        held = partial.tau(bound.later) - partial.tau(bound.earlier) <= bound.micros
        mask = held if mask is None else mask & held
    return mask


def _stored(layout: Layout, store: StoreLayout, rows: RowSet, part: KeyPart) -> pa.Array:
    """Return a key attribute of the stored rows that a probe searches."""
    derived = layout.derived(part.build.label, part.build.attribute)
    if derived is None:
        return rows.column(store.column(part.build.label, part.build.attribute))
    label = part.build.label
    return evaluate(derived, lambda c: rows.column(store.column(label, c.name)), len(rows.rows))
