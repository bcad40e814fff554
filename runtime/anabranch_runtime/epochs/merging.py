"""Choice of segments to merge: a tiered LSM tree per store partition. Pure functions over the
state.

``fanout`` segments of one level become one of the next, so a row is written once per level and a
probe reads fewer than ``fanout`` segments per level. A merged segment is dropped as a whole once
all its rows have expired. So segments are merged only if they expire at nearly the same time, at
most a ``SPANS``-th of the retention apart. Expired rows therefore take at most this share of a
store. Segments that expire after a few batches are never merged, and of the largest level a probe
reads at most ``SPANS * fanout`` segments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.merging import FANOUT, SPANS
from anabranch_runtime.epochs.retention import Limits, needed_from
from anabranch_runtime.epochs.table_versions import sides, versions_of
from anabranch_runtime.state.manifest import State, StoreState
from anabranch_runtime.storage.segment import Merge, Segment

#: The next commit waits for merges once a level has ``STALL * fanout`` segments.
STALL = 4
#: Maximum rows of a merged segment. A merge needs about 100 bytes of memory per row, and a probe of
#: several segments of this size costs little more than one of a larger segment.
LARGEST = 1 << 24


@dataclass(frozen=True, slots=True)
class DueMerge(Merge):
    """A merge that may begin.

    Attributes:
        behind: number of segments of its level and partition.
    """

    behind: int


@dataclass(slots=True)
class QuietStores:
    """Stores in which the last search found no segments to merge.

    They stay unmergeable until the store's segments change, as the time to expiry only shrinks.
    """

    #: Other arguments of the search from which the cached result is.
    _key: tuple[object, ...] = ()
    _segments: dict[str, Sequence[Segment]] = field(default_factory=dict)

    def look(self, *key: object) -> dict[str, Sequence[Segment]]:
        """Return store -> segments in which a search with the arguments ``key`` found no merge."""
        if self._key != key:
            self._key, self._segments = key, {}
        return self._segments


def merges(
    state: State,
    ruleset: Ruleset,
    fanout: int = FANOUT,
    most: int | None = None,
    quiet: QuietStores | None = None,
    taken: Collection[Segment] = (),
) -> tuple[DueMerge, ...]:
    """Return possible merges of segments in the stores of ``ruleset``, largest first, without the
    segments ``taken`` by running merges; a merged segment has about ``most`` bytes at most. Stores
    in ``quiet`` are skipped."""
    found = _due(state, ruleset, fanout, most, quiet, taken)
    return tuple(sorted(found, key=lambda due: -sum(s.rows for s in due.segments)))


def merge_groups(
    segments: Iterable[Segment],
    fanout: int = FANOUT,
    durations: Limits = (),
    largest: int = LARGEST,
    most: int | None = None,
) -> tuple[Merge, ...]:
    """Group ``segments`` of one store into merges.

    Args:
        segments: segments of any levels and partitions, each level's oldest first.
        fanout: number of segments of a level that become one of the next.
        durations: per member, microseconds before the newest event time for which rows are needed
            (None: for ever); empty if no rows expire.
        largest: maximum rows of a merged segment. ``most``: its maximum bytes, about; None: any.
    """
    found = (_merge(group, durations, fanout, largest, most) for group in _levels(segments))
    return tuple(merge for merge in found if merge is not None)


def has_parts(store: StoreState, merge: Merge) -> bool:
    """Whether all parts of a merge are segments of the store or of its backfill."""
    parts = set(merge.segments)
    return parts <= set(store.segments) or parts <= set(store.pending)


def with_merged(store: StoreState, merge: Merge, by: Segment) -> StoreState:
    """Return ``store``, which has all parts of ``merge``, with its result ``by`` in their place."""
    if store.backfill is not None and merge.segments[0] in store.pending:
        found = replaced(store.pending, merge, by)
        return replace(store, backfill=replace(store.backfill, segments=found))
    return replace(store, segments=replaced(store.segments, merge, by))


def replaced(segments: Sequence[Segment], merge: Merge, by: Segment) -> tuple[Segment, ...]:
    """Return ``segments`` with ``by``, the result of ``merge``, in place of the merged segments."""
    parts = set(merge.segments)
    at = min(i for i, s in enumerate(segments) if s in parts)
    return (*segments[:at], by, *(s for s in segments[at:] if s not in parts))


def _due(
    state: State,
    ruleset: Ruleset,
    fanout: int,
    most: int | None,
    quiet: QuietStores | None,
    taken: Collection[Segment],
) -> Iterator[DueMerge]:
    """Yield the possible merge of each level of each store partition, if there is one."""
    needed = needed_from(state, ruleset)
    key = ruleset.id, fanout, most, state.debt.past, versions_of(state)
    known = {} if quiet is None else quiet.look(*key)
    busy = {segment.store for segment in taken}
    for spec in ruleset.stores:
        store = state.stores[spec.id]
        if store.backfill is not None:
            # No commit waits for these merges, since no probe reads the segments yet.
            free = [s for s in store.pending if s not in taken]
            for due in merge_groups(free, fanout, most=most):
                yield DueMerge(due.segments, behind=0)
        if len(store.segments) < fanout or known.get(spec.id) is store.segments:
            continue
        durations = () if needed is None else _durations(store.segments, needed(store))
        still = spec.id not in busy
        for group in _levels(store.segments, sides(state, store)):
            for run in _free(group, taken) if spec.id in busy else [group]:
                merge = _merge(run, durations, fanout, most=most)
                if merge is not None:
                    still = False
                    yield DueMerge(merge.segments, len(group))
                    break
        if still:
            known[spec.id] = store.segments


def _free(group: Sequence[Segment], taken: Collection[Segment]) -> Iterator[list[Segment]]:
    """Yield runs of neighbouring segments in ``group`` without segments of ``taken``."""
    for is_taken, run in groupby(group, key=taken.__contains__):
        if not is_taken:
            yield list(run)


def _levels(
    segments: Iterable[Segment], side: Callable[[Segment], int] = lambda _: 0
) -> list[list[Segment]]:
    groups: dict[tuple[int, int, int], list[Segment]] = {}
    for segment in segments:
        key = segment.level, segment.partition, side(segment)
        groups.setdefault(key, []).append(segment)
    return [group for _, group in sorted(groups.items())]


def _durations(segments: Sequence[Segment], needed: Limits) -> Limits:
    """Return per member the microseconds for which rows of a store are needed (None: for ever)."""
    found: list[int | None] = []
    for at, least in enumerate(needed):
        times = [t for s in segments if (t := s.tau_max[at]) is not None]
        found.append(None if least is None or not times else max(times) - least)
    return tuple(found)


def _merge(
    group: Sequence[Segment],
    durations: Limits,
    fanout: int,
    largest: int = LARGEST,
    most: int | None = None,
) -> Merge | None:
    """Choose the oldest ``fanout`` neighbours in ``group`` whose merged segment has at most
    ``largest`` rows and about ``most`` bytes (None: no limit)."""
    usable = [
        s
        for s in group
        if s.rows * fanout <= largest and (most is None or s.bytes * fanout <= most)
    ]
    for first in range(len(usable) - fanout + 1):
        parts = tuple(usable[first : first + fanout])
        if go_together(parts, durations):
            return Merge(parts)
    return None


def go_together(parts: Sequence[Segment], durations: Limits) -> bool:
    """Whether segments expire at nearly the same time by a member's event times, or never."""
    expire = False
    for at, duration in enumerate(durations):
        ends = [t for s in parts if (t := s.tau_max[at]) is not None]
        if duration is None or len(ends) < len(parts):
            continue
        if SPANS * (max(ends) - min(ends)) <= duration:
            return True
        expire = True
    return not expire
