"""Groups of values: each way against the definition, the chosen ones against brute force."""

from __future__ import annotations

from itertools import combinations
from random import Random

import numpy as np
import pytest

from benchmarks.papers.pmjoin.exact import exact
from benchmarks.papers.pmjoin.operators import cost
from benchmarks.papers.pmjoin.partitioners import (
    Group,
    Place,
    by_hash,
    by_range,
    by_rate,
    placed,
    placed_by_plan,
)
from benchmarks.papers.pmjoin.rates import ValueRates, windowed
from benchmarks.papers.pmjoin.stream_join_opt import stream_join_opt


def drawn(seed: int, values: int) -> tuple[ValueRates, list[int]]:
    """Zipf rates over values whose ranks differ from stream to stream."""
    rng = Random(seed)
    streams = rng.choice((3, 4))
    rates = []
    for _ in range(streams):
        weights = np.array([1 / (rank + 1) ** 1.2 for rank in range(values)])
        rates.append(rng.uniform(10, 100) * np.array(rng.sample(list(weights), values)))
    found = np.array(rates)
    windows = found * np.array([[rng.uniform(0.01, 1)] for _ in range(streams)])
    return windowed(found, windows), [rng.randrange(3) for _ in range(streams)]


def total(groups: list[Group]) -> float:
    return sum(group.cost for group in groups)


@pytest.mark.parametrize("seed", range(20))
def test_chosen_groups_are_the_best_of_all_choices_of_plans(seed: int) -> None:
    rates, sites = drawn(seed, 6)
    own = [exact(rates.of(np.array([v])), sites) for v in range(6)]
    plans = list(dict.fromkeys([*own, exact(rates, sites)]))
    prices = [[cost(plan, rates.of(np.array([v]))) for v in range(6)] for plan in plans]
    for groups in (1, 2, 3):
        best = min(
            sum(min(prices[plan][v] for plan in chosen) for v in range(6))
            for chosen in combinations(range(len(plans)), min(groups, len(plans)))
        )
        found = placed_by_plan(rates, sites, groups, exact)
        assert len(found) <= groups
        assert sorted(v for group in found for v in group.values) == list(range(6))
        # A plan that is made for a whole group may only be better.
        assert total(found) <= best * (1 + 1e-9)


@pytest.mark.parametrize("place", [exact, stream_join_opt])
@pytest.mark.parametrize("seed", range(10))
def test_chosen_groups_send_no_more_than_any_others(seed: int, place: Place) -> None:
    rates, sites = drawn(seed, 30)
    for groups in (1, 2, 4, 8, 30):
        chosen = total(placed_by_plan(rates, sites, groups, place))
        for other in (by_hash(30, groups), by_range(30, groups), by_rate(rates, groups)):
            assert chosen <= total(placed(rates, sites, other, place)) * (1 + 1e-9)
    if place is exact:
        assert chosen == pytest.approx(total(placed(rates, sites, np.arange(30), exact)))


def test_hash_and_range_spread_values_evenly() -> None:
    for groups in (2, 7, 10):
        for found in (by_hash(10_000, groups), by_range(10_000, groups)):
            sizes = np.bincount(found, minlength=groups)
            assert sizes.min() > 0.8 * 10_000 / groups
    assert (np.diff(by_range(100, 7)) >= 0).all()


def test_rates_that_rank_alike_are_together() -> None:
    low, high = [1.0, 2.0, 3.0], [30.0, 20.0, 10.0]
    rates = windowed(np.array([low, high, low, high, low]).T.copy(), np.ones((3, 5)))
    found = by_rate(rates, 2)
    assert found[0] == found[2] == found[4] != found[1] == found[3]


def test_a_group_is_placed_by_its_own_values() -> None:
    rates, sites = drawn(3, 12)
    groups = by_range(12, 3)
    for group in placed(rates, sites, groups, stream_join_opt):
        part = rates.of(group.values)
        assert group.plan == stream_join_opt(part, sites)
        assert group.cost == pytest.approx(cost(group.plan, part))
