"""Which host has which partition, from one epoch to the next."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch_runtime.state.placement import place

if TYPE_CHECKING:
    from anabranch_runtime.state.manifest import State
    from anabranch_runtime.state.placement import Placement


def placed(state: State) -> State:
    """``state`` with its partitions dealt to the hosts of the last batch, by the bytes that they
    take; as it is where tasks share a state directory.
    """
    if not state.hosts:
        return state
    weights: dict[int, list[float]] = defaultdict(list)
    for store in state.stores.values():
        count = store.spec.partitions
        known = weights[count] = weights[count] or [0.0] * count
        for segment in store.segments:
            known[segment.partition] += segment.bytes
    found = place(weights.keys(), state.hosts, state.placement, weights)
    return replace(state, placement=found)


def coming(state: State) -> Placement | None:
    """Where partitions will be once the next epoch begins, as far as that can be known now; None:
    where they are. Hosts can read beforehand what they will be dealt.
    """
    if state.placement is None or set(state.placement.hosts) == set(state.hosts):
        return None
    return placed(state).placement
