"""Compare all searches for probe orders with the enumeration of every permutation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from random import Random

import pytest

from anabranch_contract.errors import PlannerError
from benchmarks.papers.dppick.figures import EdgeFigures, Match
from benchmarks.papers.dppick.problem import Accounting, Operator, edges_near
from benchmarks.papers.dppick.search import Ablation, Algorithm, search_orders
from tests.benchmarks.papers.dppick.random_operators import KINDS, SHAPES, random_operator

PROBLEMS = 1_000
#: Maximum number of probe sequences for dppick to enumerate a random problem as well.
FEW = 3_000


def every_order(operator: Operator, start: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Return all probe orders of a start with their costs, directly from the recursion."""
    streams = len(operator.names)
    for order in permutations([i for i in range(streams) if i != start]):
        cost, visited = 0.0, (1 << streams) - 1
        for target in reversed(order):
            visited &= ~(1 << target)
            options = []
            for side in range(streams):
                if visited >> side & 1 and operator.near[side] >> target & 1:
                    match = operator.figures.one(start, visited, side, target)
                    price = operator.prices.query * operator.prices.lookup(operator.keys[target])
                    matched = operator.prices.match * match.mu
                    if operator.accounting is Accounting.PAPER:
                        options.append(price + match.gamma * (matched + cost))
                    else:
                        each = operator.prices.match + cost
                        options.append(price + match.gamma * match.mu * each)
            if not options:
                break
            cost = min(options)
        else:
            yield order, cost


def sequences(operator: Operator) -> int:
    """Return the number of probe sequences of all starts together."""
    streams, total = len(operator.names), 0
    for start in range(streams):
        ways = {1 << start: 1}
        for _ in range(streams - 1):
            longer: dict[int, int] = {}
            for visited, count in ways.items():
                for _, target in operator.steps(visited):
                    after = visited | 1 << target
                    longer[after] = longer.get(after, 0) + count
            ways = longer
        total += sum(ways.values())
    return total


@pytest.mark.parametrize("part", range(10))
def test_searches_agree_with_brute_force(part: int) -> None:
    enumerated = 0
    for seed in range(part, PROBLEMS, 10):
        random = Random(seed)
        # Seven streams have 5,040 permutations, so they are drawn less often.
        streams = random.choice((1, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5, 6, 6)) if seed % 20 else 7
        operator = random_operator(
            random,
            streams,
            random.choice(SHAPES),
            random.choice(KINDS),
            random.choice(tuple(Accounting)),
        )
        best = [min(every_order(operator, s), key=lambda o: o[1]) for s in range(streams)]
        least = sum(w * cost for w, (_, cost) in zip(operator.weights, best, strict=True))
        exact = search_orders(operator, Algorithm.EXACT)
        assert exact.cost == pytest.approx(least, rel=1e-9), seed
        if sequences(operator) <= FEW:
            enumerated += 1
            assert search_orders(operator, Algorithm.DPPICK).cost == pytest.approx(least, rel=1e-9)
        for rival in (Algorithm.GREEDY, Algorithm.SELECTIVITY, Algorithm.FIXED):
            assert exact.cost <= search_orders(operator, rival).cost * (1 + 1e-9), seed
        for ablation in Ablation:
            ablated = search_orders(operator, Algorithm.EXACT, ablation)
            assert exact.cost <= ablated.cost * (1 + 1e-9), seed
    assert enumerated >= PROBLEMS / 10 * 0.8


@pytest.mark.parametrize("algorithm", Algorithm)
def test_orders_visit_every_stream_once(algorithm: Algorithm) -> None:
    operator = random_operator(Random(5), 5, "any", "starts", Accounting.TUPLE)
    found = search_orders(operator, algorithm)
    assert found.algorithm is algorithm
    for start, order in found.orders.items():
        assert sorted((start, *order)) == list(range(5))
    assert found == search_orders(operator, algorithm)


def equal_clique(streams: int) -> Operator:
    matches = {(a, b): Match(0.5, 2.0) for a in range(streams) for b in range(streams) if a != b}
    ones = (1.0,) * streams
    names = tuple(f"s{i}" for i in range(streams))
    near = edges_near(streams, matches)
    return Operator(names, ones, ones, ones, near, EdgeFigures(streams, matches))


@pytest.mark.parametrize("algorithm", Algorithm)
def test_ties_go_by_stream_order(algorithm: Algorithm) -> None:
    found = search_orders(equal_clique(4), algorithm)
    assert found.orders == {0: (1, 2, 3), 1: (0, 2, 3), 2: (0, 1, 3), 3: (0, 1, 2)}


def test_an_order_given_waits_for_what_joins() -> None:
    matches = {(0, 2): Match(1, 1), (2, 0): Match(1, 1), (1, 2): Match(1, 1), (2, 1): Match(1, 1)}
    ones = (1.0,) * 3
    operator = Operator(
        ("a", "b", "c"), ones, ones, ones, edges_near(3, matches), EdgeFigures(3, matches)
    )
    assert search_orders(operator, Algorithm.FIXED).orders == {0: (2, 1), 1: (2, 0), 2: (0, 1)}


def test_rivals_look_at_one_step_only() -> None:
    # From a: b finds 2 of 4 rows, c finds 3 of 100; then c is more selective, b cheaper.
    matches = {(0, 1): Match(1, 2), (0, 2): Match(1, 3), (1, 0): Match(1, 1), (2, 0): Match(1, 1)}
    ones = (1.0,) * 3
    operator = Operator(
        ("a", "b", "c"), ones, ones, (10.0, 4.0, 100.0), edges_near(3, matches),
        EdgeFigures(3, matches),
    )  # fmt: skip
    assert search_orders(operator, Algorithm.GREEDY).orders[0] == (1, 2)
    assert search_orders(operator, Algorithm.SELECTIVITY).orders[0] == (2, 1)


@pytest.mark.parametrize(
    ("algorithm", "streams", "code"),
    [(Algorithm.DPPICK, 8, "too-many-sequences"), (Algorithm.EXACT, 21, "too-many-streams")],
)
def test_what_is_too_large_is_refused(algorithm: Algorithm, streams: int, code: str) -> None:
    with pytest.raises(PlannerError, match="use") as caught:
        search_orders(equal_clique(streams), algorithm)
    assert caught.value.code == code
    assert len(search_orders(equal_clique(streams), Algorithm.GREEDY).orders) == streams
