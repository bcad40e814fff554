"""Direct probes: a fast path for few tuples, with one kernel call per group (``index.direct``).

Most probes of a pipeline with many queries are of this kind: few tuples, a key of one integer
column, a base store with rows of the probed relation only, time bounds on the looked-up member.
Direct and general probes (``probe``) give the same results; all other probes are general.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_contract.plans.ruleset import ProbeRule, Ruleset
from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_contract.queries.joins import Label
from anabranch_runtime.columns.arrays import I32, Ints
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.epochs.per_ruleset import per_ruleset
from anabranch_runtime.index import prefetch
from anabranch_runtime.index.direct import match_few
from anabranch_runtime.index.gather import NOWHERE, ColumnPlaces
from anabranch_runtime.index.matching import TooManyPairs
from anabranch_runtime.probe.groups import LiveSegments, SegmentGroup
from anabranch_runtime.probe.reads import LookupCounts, ReadMeters
from anabranch_runtime.state.coverage import Access
from anabranch_runtime.storage.partial import Partial, RowSet, concat_rows, narrow
from anabranch_runtime.storage.segment import SIGMA, TAU, IndexKey

_LEAST, _GREATEST = np.int64(-(1 << 63)), np.int64((1 << 63) - 1)
_NONE = np.zeros(0, np.int64)
#: Key type -> column types whose values are integers that are hashed unchanged.
_PLAIN = {
    "bigint": frozenset({pa.int8(), pa.int16(), pa.int32(), pa.int64()}),
    "timestamp": frozenset({pa.timestamp("us"), pa.timestamp("us", "UTC")}),
}


@dataclass(frozen=True, slots=True)
class DirectStep:
    """The part of a direct probe that its rule fixes for all batches.

    Attributes:
        label: member of the partial result that has the key. ``column``: its key column.
        index: index of the probed stores. ``columns``: accepted types of key columns.
        found: label of the matches. ``inclusive``: whether a match may be the start tuple itself.
        bounds: (partner's label, microseconds, whether the match is the later of the two).
    """

    label: Label
    column: str
    index: IndexKey
    columns: frozenset[pa.DataType]
    found: Label
    inclusive: bool
    bounds: tuple[tuple[Label, int, bool], ...]


@per_ruleset
def direct_steps(ruleset: Ruleset) -> dict[str, DirectStep | None]:
    """Edge -> its direct step, filled at first use; None: the edge's probes are always general."""
    return {}


def step_of(layout: Layout, rule: ProbeRule) -> DirectStep | None:
    """The direct step of ``rule``; None: its probes are general."""
    known = direct_steps(layout.ruleset)
    if rule.out not in known:
        known[rule.out] = _step(layout, rule)
    return known[rule.out]


def _step(layout: Layout, rule: ProbeRule) -> DirectStep | None:
    key, found = rule.key[0], rule.members[0]
    probe, build = key.probe, key.build
    derived = layout.derived(probe.label, probe.attribute) or layout.derived(
        build.label, build.attribute
    )
    if not layout.is_base(rule.mir) or len(rule.key) > 1 or key.type not in _PLAIN or derived:
        return None
    bounds = []
    for bound in rule.bounds:
        if (bound.later == found) == (bound.earlier == found):
            return None
        later = bound.later == found
        bounds.append((bound.earlier if later else bound.later, bound.micros, later))
    return DirectStep(
        probe.label,
        probe.attribute,
        IndexKey((build.attribute,), (key.type,)),
        _PLAIN[key.type],
        found,
        found in rule.inclusive,
        tuple(bounds),
    )


@dataclass(frozen=True, slots=True)
class Direct:
    """One direct probe.

    Attributes:
        keys: addresses of the key column. ``rows``: rows of the member with the key column.
        starts: the starting tuples, rows of one table. ``sigmas``: addresses of their sigmas.
        groups: (store, segment groups) of each tile.
    """

    segments: LiveSegments
    step: DirectStep
    partial: Partial
    keys: ColumnPlaces
    rows: RowSet
    starts: RowSet
    sigmas: Ints
    groups: list[tuple[str, list[SegmentGroup]]]

    @staticmethod
    def of(
        layout: Layout, segments: LiveSegments, partial: Partial, rule: ProbeRule, access: Access
    ) -> Direct | None:
        """The direct probe of ``partial`` by ``rule``; None: the probe has to be general."""
        if access.gaps or prefetch.is_enabled():
            return None
        step = step_of(layout, rule)
        if step is None:
            return None
        at, member = partial.place[step.label]
        rows = partial.sets[at]
        keys = rows.tables.places(f"{member}.{step.column}" if member else step.column)
        if keys.nullable or keys.kind not in step.columns:
            return None
        at, member = partial.place[partial.start]
        starts = partial.sets[at]
        if member or starts.which is not None:
            return None
        groups = []
        for tile in access.tiles:
            if layout.missing_filter(rule.mir, tile.store):
                return None
            some = segments.groups(tile.store, tile.interval, split=False)
            if any(group.any_clipped for group in some):
                return None
            groups.append((tile.store, some))
        sigmas = starts.tables.places(SIGMA).first
        return Direct(segments, step, partial, keys, rows, starts, sigmas, groups)

    def join(self, reads: ReadMeters, meter: EdgeStatistics, most: int) -> Partial | None:
        """Result of the probe before residuals are checked; None if it is empty. Adds all counts
        but ``made`` to ``meter``.

        Raises:
            TooManyPairs: the result would have more than ``most`` tuples.
        """
        partial, n = self.partial, self.partial.length
        lows, highs = self._range()
        lookups: dict[str, LookupCounts] = {}
        parts: list[tuple[I32, RowSet]] = []
        left = most
        for store, groups in self.groups:
            lookup = lookups.get(store)
            if lookup is None:
                lookup = reads.begin(store, self.step.index.name, n)
                lookups[store] = lookup
            inside = sum(len(group.readers) for group in groups)
            lookup.by_batch += n * (self.segments.count(store) - inside)
            for group in groups:
                found = self._match(group, lows, highs, left, lookup, meter)
                if found is not None:
                    parts.append(found)
                    left -= len(found[0])
        marks = None
        for lookup in lookups.values():
            meter.looked += lookup.looked
            marks = lookup.marks if marks is None else marks | lookup.marks
        meter.calls += 1
        meter.probes += n
        meter.found += 0 if marks is None else int(np.count_nonzero(marks))
        if not parts:
            return None
        positions = np.concatenate([p for p, _ in parts]) if len(parts) > 1 else parts[0][0]
        rows = concat_rows([rows for _, rows in parts])
        return partial.extend(positions, rows, {self.step.found: ""})

    def _match(
        self,
        group: SegmentGroup,
        lows: Ints,
        highs: Ints,
        most: int,
        lookup: LookupCounts,
        meter: EdgeStatistics,
    ) -> tuple[I32, RowSet] | None:
        step, rows = self.step, self.rows

        def columns(reader: Any) -> list[pa.Array]:
            return [reader.column(step.index.columns[0])]

        indexes = group.indexes(step.index, columns)
        sigmas = group.columns(SIGMA, current=True) if group.any_current else group.nowhere
        taus = least = greatest = _NONE
        if len(lows):
            taus = group.tables.places(TAU).first
            least, greatest = group.times(0)
        whole, _ = group.whole
        positions, numbers, found, counts = match_few(
            self.keys.first,
            NOWHERE if rows.which is None else rows.which,
            rows.rows,
            self.keys.width,
            self.sigmas,
            self.starts.rows,
            0 if step.inclusive else 1,
            lows,
            highs,
            indexes,
            sigmas,
            taus,
            least,
            greatest,
            group.rows,
            whole,
            most,
            lookup.marks,
        )
        within, stored, held, matches, hits, stopped = counts.tolist()
        if stopped:
            raise TooManyPairs
        n, segments = self.partial.length, len(group.readers)
        group.count(n, found)
        lookup.by_time += n * (segments - within)
        lookup.filtered += held
        lookup.looked += n * within - held
        lookup.matches += matches
        meter.pairs += n * stored
        meter.matches += matches
        meter.hits += hits
        if not len(positions):
            return None
        tables, hit = group.having(found, len(positions))
        which: NDArray[np.integer[Any]] | None = None
        if len(hit) > 1:
            which = np.repeat(np.arange(len(hit), dtype=narrow(len(hit))), found[hit])
        return positions, RowSet(tables, which, numbers)

    def _range(self) -> tuple[Ints, Ints]:
        """Least and greatest event time of a match, per tuple; empty if the rule has no bounds."""
        low: Ints | None = None
        high: Ints | None = None
        for label, micros, later in self.step.bounds:
            tau = self.partial.tau(label)
            if later:
                limit = tau + micros
                high = limit if high is None else np.minimum(high, limit)
            else:
                limit = tau - micros
                low = limit if low is None else np.maximum(low, limit)
        if low is None and high is None:
            return _NONE, _NONE
        n = self.partial.length
        low = np.full(n, _LEAST) if low is None else low
        return low, np.full(n, _GREATEST) if high is None else high
