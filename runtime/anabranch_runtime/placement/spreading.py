"""Skew handling: spreading the new rows of hot (frequent) key values over several partitions.

Rulesets name the hot values of a store's partition attribute, and the number of hosts over which to
spread their new rows (``StoreSpec.hot``); the partitions follow from the placement. Stored rows are
not moved: they stay in their partitions, and are found there as long as they are kept
(:mod:`anabranch_runtime.state.dealt`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from anabranch_contract.plans.ruleset import HotValue, Ruleset, StoreSpec, home_partition
from anabranch_runtime.state.dealt import Dealt
from anabranch_runtime.state.manifest import State, StoreState
from anabranch_runtime.state.placement import Placement
from anabranch_runtime.storage.segment import Segment

#: Maximum number of spread values of a store; rows of other hot values stay in their home.
REMEMBERED = 256


def deal(state: State, ruleset: Ruleset) -> State:
    """Choose the partitions over which new rows of hot values are spread under ``ruleset``.

    No rows are spread if tasks share a state directory, or before partitions are placed on hosts.
    """
    specs = {str(s.id): s for s in ruleset.stores}
    stores = {}
    for name, store in state.stores.items():
        spec = specs.get(name)
        hot = () if spec is None or store.open_since is None else spec.hot
        if not hot and not store.dealt:
            continue
        dealt = _dealt(store, hot, state.hosts.placement, state.next_batch)
        if dealt != store.dealt:
            stores[name] = replace(store, dealt=dealt)
    return state if not stores else replace(state, stores={**state.stores, **stores})


def _dealt(
    store: StoreState, hot: Sequence[HotValue], placement: Placement | None, batch: int
) -> tuple[Dealt, ...]:
    """Return the spread values of ``store`` if ``hot`` values are spread from ``batch`` on."""
    last = batch - 1
    # Rows of values that are no longer hot were spread up to the previous batch.
    known = {
        one.hash: Dealt(one.hash, one.partitions, (), one.first, last) if one.now else one
        for one in forget_cold(store.dealt, store.kept)
    }
    for value in hot:
        targets = _targets(store.spec, value, placement)
        before = known.get(value.hash)
        if not targets or (before is None and len(known) >= REMEMBERED):
            continue
        away = set(targets) - {home_partition(value.hash, store.spec.partitions)}
        if before is None:
            known[value.hash] = Dealt(value.hash, tuple(sorted(away)), targets, batch, last)
        else:
            places = tuple(sorted(away.union(before.partitions)))
            known[value.hash] = Dealt(value.hash, places, targets, before.first, before.last)
    return tuple(sorted(known.values()))


def forget_cold(entries: tuple[Dealt, ...], segments: Iterable[Segment]) -> tuple[Dealt, ...]:
    """Drop entries of values that are no longer hot and have no spread rows left.

    ``segments``: all segments of the store.
    """
    cold = [one for one in entries if not one.now]
    if not cold:
        return entries
    left = {
        one.hash
        for segment in segments
        for one in cold
        if segment.partition in one.partitions
        and segment.first_batch <= one.last
        and segment.last_batch >= one.first
    }
    return tuple(one for one in entries if one.now or one.hash in left)


def _targets(spec: StoreSpec, value: HotValue, placement: Placement | None) -> tuple[int, ...]:
    """Return the partitions, one per host, over which to spread rows of the hot ``value``: its home
    partition, and the next partition of each further host; empty if there is only one host."""
    owners = None if placement is None else placement.of(spec.partitions)
    if spec.partition is None or owners is None:
        return ()
    home, met = home_partition(value.hash, spec.partitions), dict[int, int]()
    for step in range(spec.partitions):
        partition = (home + step) % spec.partitions
        if len(met) < value.hosts:
            met.setdefault(owners[partition], partition)
    return tuple(met.values()) if len(met) > 1 else ()
