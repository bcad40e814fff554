"""Tests that placement balances bytes and probe seconds of partitions over hosts, and leaves
balanced ones alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.placement.assignment import MOST, SLACK
from anabranch_runtime.placement.moves import (
    HORIZON,
    LEAST_SECONDS,
    coming,
    locality,
    met,
    placed,
    weighed,
)
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.placement import HostReport, Hosts
from tests.support.cases.states import RS, rules, segment

COUNT = 64


def stored(sizes: Sequence[int], hosts: Sequence[str]) -> State:
    """Return a state whose store has so many bytes per partition, after a batch on ``hosts``."""
    state = enter_epoch(State(), rules(0, {"q": RS}, parallelism=COUNT), 0)
    name = next(n for n, s in state.stores.items() if s.spec.partitions == COUNT)
    found = tuple(
        replace(segment(name, (0, 0), partition=p), data=(64, size, 0))
        for p, size in enumerate(sizes)
        if size
    )
    stores = {name: replace(state.stores[name], segments=found)}
    return replace(state, stores=stores, hosts=Hosts(tasks=dict.fromkeys(hosts, 1)), next_batch=1)


def probed(state: State, seconds: Sequence[float]) -> State:
    """Return ``state`` after a batch on its hosts whose probes took so long, by partition."""
    owners = state.hosts.placement.of(COUNT) if state.hosts.placement else None
    assert owners is not None
    reports = [
        TaskReport(
            host=HostReport(
                host, load={COUNT: [s if owners[p] == n else 0.0 for p, s in enumerate(seconds)]}
            )
        )
        for n, host in enumerate(sorted(state.hosts.tasks))
    ]
    return met(state, reports)


def loads(state: State, weights: Sequence[float]) -> list[float]:
    """Return the weight of each host."""
    owners = state.hosts.placement.of(COUNT) if state.hosts.placement else None
    assert owners is not None
    return [
        sum(w for w, owner in zip(weights, owners, strict=True) if owner == n)
        for n in range(len(state.hosts.tasks))
    ]


@pytest.mark.parametrize("seed", range(40))
def test_no_host_has_far_more_of_bytes_and_seconds_than_its_share(seed: int) -> None:
    rng = Random(seed)
    hosts = [f"host-{n}" for n in range(rng.randint(2, 6))]
    sizes = [rng.choice((1, 10, 10, 30)) << 20 for _ in range(COUNT)]
    seconds = [rng.choice((0.0, 0.1, 0.1, 2.0)) for _ in range(COUNT)]
    first = placed(stored(sizes, hosts))
    found = placed(probed(first, seconds))
    weights = weighed(sizes, seconds)
    share = sum(weights) / len(hosts)
    assert sum(weights) == pytest.approx(2)
    assert max(loads(found, weights)) <= max(share * MOST, share + max(weights)) * 1.01
    # A balanced placement stays, and equal states are placed in the same way.
    again = placed(probed(found, seconds))
    assert again.hosts.placement == found.hosts.placement
    assert placed(probed(first, seconds)) == found


@pytest.mark.parametrize("seed", range(20))
def test_what_one_small_batch_has_stored_is_no_reason_to_deal_unevenly(seed: int) -> None:
    rng = Random(seed)
    hosts = [f"{seed}-{n}" for n in range(4)]
    found = placed(stored([rng.choice((0, 500, 5_000)) for _ in range(COUNT)], hosts))
    assert max(loads(found, [1.0] * COUNT)) <= COUNT / 4 * SLACK


def test_a_partition_that_is_probed_most_has_fewer_beside_it() -> None:
    hosts = ["a", "b", "c"]
    first = placed(stored([100] * COUNT, hosts))
    assert max(loads(first, [1.0] * COUNT)) <= COUNT / 3 * 1.1 + 1
    hot = [60.0 if p == 7 else 0.5 for p in range(COUNT)]
    found = placed(probed(first, hot))
    owners = found.hosts.placement.of(COUNT) if found.hosts.placement else None
    assert owners is not None
    sizes = [owners.count(n) for n in range(3)]
    assert sizes[owners[7]] < min(sizes[n] for n in range(3) if n != owners[7])
    before = first.hosts.placement.of(COUNT) if first.hosts.placement else None
    assert before is not None
    # Partitions are moved only from or to hosts with much more or less weight.
    assert sum(a != b for a, b in zip(before, owners, strict=True)) <= COUNT // 3


def test_seconds_that_say_nothing_do_not_count() -> None:
    first = placed(stored([100] * COUNT, ["a", "b"]))
    little = [LEAST_SECONDS / 4 if p < 3 else 0.0 for p in range(COUNT)]
    assert placed(probed(first, little)).hosts.placement == first.hosts.placement


def test_what_earlier_epochs_took_counts_less_and_less() -> None:
    state = placed(stored([100] * COUNT, ["a", "b"]))
    state = placed(probed(state, [8.0] + [0.0] * (COUNT - 1)))
    assert state.hosts.load[str(COUNT)][0] == 4.0
    state = placed(probed(state, [0.0, 3.0] + [0.0] * (COUNT - 2)))
    assert state.hosts.load[str(COUNT)][:3] == (2.0, 1.5, 0.0)
    # Weights of dropped stores are forgotten.
    assert placed(replace(state, stores={})).hosts.load == {}


def _on(state: State, hosts: Sequence[str]) -> State:
    """Return ``state`` after a batch on ``hosts``."""
    return replace(state, hosts=replace(state.hosts, tasks=dict.fromkeys(hosts, 1)))


def _state(*hosts: str) -> State:
    return _on(enter_epoch(State(), rules(0, {"q": RS}), 0), hosts)


def test_without_hosts_nothing_is_dealt_and_nothing_comes() -> None:
    assert placed(_state()).hosts.placement is None
    assert coming(_state()) is None


def test_what_comes_is_what_the_next_epoch_deals() -> None:
    state = placed(_state("a", "b"))
    assert coming(state) is None
    for hosts in (("a", "b", "c"), ("a",), ("b", "c")):
        changed = _on(state, hosts)
        found = coming(changed)
        assert found is not None
        assert found.hosts == hosts
        assert placed(changed).hosts.placement == found
        assert coming(placed(changed)) is None


def wanted(state: State, sizes: Sequence[Sequence[float]]) -> State:
    """``state`` after a batch in which so many bytes arrived on each host for each partition."""
    reports = [
        TaskReport(host=HostReport(host, demand={COUNT: list(of_host)}))
        for host, of_host in zip(sorted(state.hosts.tasks), sizes, strict=True)
    ]
    return met(state, reports)


def test_partitions_come_to_the_hosts_on_which_their_tuples_arrive() -> None:
    hosts, rng = ["a", "b"], Random(3)
    first = placed(stored([1] * COUNT, hosts))
    assert locality(first) is None
    there = [rng.randrange(2) for _ in range(COUNT // 2)]
    there += [1 - host for host in there]
    arrived = wanted(first, [[9e6 if t == n else 1e6 for t in there] for n in range(2)])
    before = locality(arrived)
    assert before is not None
    assert before < 0.7
    after = placed(arrived)
    assert locality(after) == pytest.approx(0.9)
    assert after.hosts.placement is not None
    assert after.hosts.placement.of(COUNT) == tuple(there)
    # The placement stays, and the old arrivals count less and less.
    again = placed(after)
    assert again.hosts.placement == after.hosts.placement
    assert sum(again.hosts.demand["a"][str(COUNT)]) == pytest.approx(
        sum(arrived.hosts.demand["a"][str(COUNT)]) / 4
    )


def test_what_has_much_stored_moves_only_for_much() -> None:
    hosts = ["a", "b"]
    first = placed(stored([100 << 20] * COUNT, hosts))
    assert first.hosts.placement is not None
    owners = first.hosts.placement.of(COUNT)
    assert owners is not None

    def after(size: float) -> State:
        elsewhere = [[size if o != n else 0.0 for o in owners] for n in range(2)]
        return placed(wanted(first, elsewhere))

    pays = (100 << 20) * 2 / HORIZON
    assert after(0.8 * pays).hosts.placement == first.hosts.placement
    found = after(1.5 * pays)
    assert found.hosts.placement is not None
    moved = sum(a != b for a, b in zip(found.hosts.placement.of(COUNT) or (), owners, strict=True))
    assert moved > COUNT / 2


def test_what_arrived_on_hosts_that_have_gone_is_forgotten() -> None:
    first = wanted(placed(stored([1] * COUNT, ["a", "b"])), [[1.0] * COUNT] * 2)
    left = placed(_on(first, ("a",)))
    assert {host: set(wanted) for host, wanted in left.hosts.demand.items()} == {"a": {str(COUNT)}}
