"""Compare exact placements of PMJoin with all operator trees, and heuristics with exact ones."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from functools import cache
from random import Random

import numpy as np
import pytest

from anabranch_contract.errors import PlannerError
from benchmarks.papers.pmjoin.exact import MAX_STREAMS, exact
from benchmarks.papers.pmjoin.operators import Operator, cost
from benchmarks.papers.pmjoin.rates import GraphRates, Mask, Rates, connected, members, windowed
from benchmarks.papers.pmjoin.stream_join_opt import local, simple, stream_join_opt


def drawn(seed: int, streams: int) -> tuple[Rates, list[int]]:
    """Return random streams on a few hosts, joined by one key or along a random graph."""
    rng = Random(seed)
    sites = [rng.randrange(rng.choice((2, 3, streams))) for _ in range(streams)]
    if rng.random() < 0.5:
        values = rng.choice((1, 3))
        found = np.array(
            [[10 ** rng.uniform(-2, 2) for _ in range(values)] for _ in range(streams)]
        )
        windows = found * np.array([[10 ** rng.uniform(-2, 1)] for _ in range(streams)])
        widths = tuple(float(rng.randint(1, 9)) for _ in range(streams))
        return windowed(found, windows, rng.choice((None, widths))), sites
    links = {(rng.randrange(one), one): 10 ** rng.uniform(-4, -1) for one in range(1, streams)}
    for _ in range(rng.randrange(3)):
        one, other = sorted(rng.sample(range(streams), 2))
        links.setdefault((one, other), 10 ** rng.uniform(-3, 0))
    rates = [10 ** rng.uniform(0, 2) for _ in range(streams)]
    return GraphRates(rates, [r * rng.uniform(1, 10) for r in rates], links), sites


@pytest.mark.parametrize("chunk", range(10))
def test_a_thousand_exact_placements_are_those_of_brute_force(chunk: int) -> None:
    for seed in range(100 * chunk, 100 * chunk + 100):
        rates, sites = drawn(seed, 2 + seed % 4)
        plan = exact(rates, sites)
        check(plan, rates, sites)
        assert cost(plan, rates) == pytest.approx(cheapest(rates, sites)), seed


def test_no_heuristic_is_better_and_the_papers_is_close() -> None:
    ratios = []
    for seed in range(150):
        rates, sites = drawn(seed, 3 + seed % 6)
        best = cost(exact(rates, sites), rates)
        for place in (stream_join_opt, simple, local):
            plan = place(rates, sites)
            check(plan, rates, sites)
            assert cost(plan, rates) >= best * (1 - 1e-9)
        if best > 0:
            ratios.append(cost(stream_join_opt(rates, sites), rates) / best)
    assert statistics.median(ratios) == pytest.approx(1.0)


def test_too_many_streams_are_refused() -> None:
    rates = windowed(np.ones((MAX_STREAMS + 1, 1)), np.ones((MAX_STREAMS + 1, 1)))
    with pytest.raises(PlannerError, match="15 streams are placed, and an exact search takes 14"):
        exact(rates, [0] * (MAX_STREAMS + 1))


def check(plan: Operator, rates: Rates, sites: Sequence[int]) -> None:
    """Assert that each stream is read once, at its site, and that every operator is connected."""
    if not plan.inputs:
        (stream,) = members(plan.streams)
        assert plan.host == sites[stream]
        return
    assert connected(rates, plan.streams)
    inside = 0
    for one in plan.inputs:
        assert not inside & one.streams
        inside |= one.streams
        check(one, rates, sites)
    assert inside == plan.streams


def cheapest(rates: Rates, sites: Sequence[int]) -> float:
    """Return the cost of the best of all operator trees."""
    hosts = set(sites)

    @cache
    def made(streams: Mask, host: int) -> float:
        """Return the best cost to make the result over ``streams`` on ``host``."""
        return min(
            sum(min(sent(block, there, host) for there in hosts) for block in blocks)
            for blocks in partitions(members(streams))
            if len(blocks) > 1
        )

    def sent(block: tuple[int, ...], there: int, host: int) -> float:
        streams = sum(1 << one for one in block)
        if len(block) == 1:
            return 0.0 if sites[block[0]] == host else rates.rate(streams)
        if not connected(rates, streams):
            return float("inf")
        return made(streams, there) + (0.0 if there == host else rates.rate(streams))

    whole = (1 << len(sites)) - 1
    return min(made(whole, host) for host in hosts)


def partitions(items: Sequence[int]) -> Iterator[list[tuple[int, ...]]]:
    """Return all partitions of a set."""
    if not items:
        yield []
        return
    first, *rest = items
    for blocks in partitions(rest):
        yield [(first,), *blocks]
        for at, block in enumerate(blocks):
            yield [*blocks[:at], (first, *block), *blocks[at + 1 :]]
