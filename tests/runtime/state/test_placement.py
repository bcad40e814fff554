"""Partitions are dealt evenly, and stay where they are as far as may be."""

from __future__ import annotations

from random import Random

import pytest

from anabranch_runtime.epochs.placing import weighed
from anabranch_runtime.state.placement import MOST, Placement, place


def hosts(count: int) -> list[str]:
    return [f"host-{n}" for n in range(count)]


def owners(found: Placement, count: int) -> list[str]:
    return [str(found.host_of(count, p)) for p in range(count)]


@pytest.mark.parametrize(("count", "machines"), [(4, 3), (16, 3), (64, 7), (5, 8), (1, 2)])
def test_every_host_gets_its_share(count: int, machines: int) -> None:
    given = owners(place([count], hosts(machines)), count)
    sizes = [given.count(name) for name in hosts(machines)]
    assert max(sizes) <= -(-count // machines) + 1
    assert sum(sizes) == count
    assert min(sizes) >= (1 if count >= 2 * machines else 0)


@pytest.mark.parametrize("seed", range(50))
def test_little_moves_when_a_host_comes_or_goes(seed: int) -> None:
    rng = Random(seed)
    count, machines = rng.choice((16, 64, 256)), rng.randint(2, 8)
    before = place([count], hosts(machines))
    gone = rng.choice(hosts(machines))
    left = place([count], set(hosts(machines)) - {gone}, before)
    moved = [a for a, b in zip(owners(before, count), owners(left, count), strict=True) if a != b]
    assert set(moved) <= {gone}
    weights = {count: [1.0] * count}
    more = place([count], hosts(machines + 1), before, weights)
    moves = sum(a != b for a, b in zip(owners(before, count), owners(more, count), strict=True))
    # What is balanced stays; the new host is given what others have too much of.
    assert moves <= count / machines + 1
    assert owners(more, count).count(hosts(machines + 1)[-1]) >= count / (machines + 1) / MOST - 1


@pytest.mark.parametrize("seed", range(50))
def test_no_host_stays_overloaded(seed: int) -> None:
    rng = Random(seed)
    count, machines = 64, rng.randint(2, 6)
    weights = {count: [rng.choice((0.0, 1.0, 5.0, 20.0)) for _ in range(count)]}
    before = place([count], hosts(machines))
    found = place([count], hosts(machines), before, weights)
    load = [0.0] * machines
    for name, weight in zip(owners(found, count), weights[count], strict=True):
        load[hosts(machines).index(name)] += weight
    share = sum(load) / machines
    assert max(load) <= max(share * MOST, share + max(weights[count])) * 1.01


def test_equal_arguments_give_equal_maps() -> None:
    assert place([4, 16], hosts(3)) == place({16, 4}, hosts(3)[::-1])


# In the last four two hosts differ by just what a partition weighs, but for how sums are rounded.
@pytest.mark.parametrize("seed", [*range(40), 387, 805, 1090, 1598])
def test_balancing_ends_whatever_the_weights(seed: int) -> None:
    rng = Random(seed)
    count = rng.choice((1, 2, 3, 4, 7, 16))
    found = None
    for _ in range(5):
        sizes = [rng.choice((0, 500, 1500, 4000)) for _ in range(count)]
        seconds = [rng.random() * rng.choice((0, 1)) for _ in range(count)]
        weights = {count: weighed(sizes, seconds)}
        found = place([count], hosts(rng.randint(1, 5)), found, weights)
    assert found is not None
