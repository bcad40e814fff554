"""Search for the probe orders of one operator, by dpPick, the exact search or a rival.

``dppick`` and ``exact`` minimise the cost; the rivals of the dpPick paper (section 5) choose one
stream after the other:

* ``fixed``: in the order of the streams, each as soon as it joins a visited stream;
* ``selectivity`` (MJoin, GrubJoin): next is the lowest selectivity, ``gamma mu`` over the rows
  stored of the target;
* ``greedy`` (MultiStream): next is the cheapest step by itself.

Ties go to the lower target. An ablation changes the prices in the search, never the prices by which
its result is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from benchmarks.papers.dppick.dppick import dppick_orders
from benchmarks.papers.dppick.exact import exact_orders
from benchmarks.papers.dppick.problem import Operator, order_cost


class Algorithm(StrEnum):
    """Search algorithm for probe orders."""

    DPPICK = "dppick"
    EXACT = "exact"
    GREEDY = "greedy"
    SELECTIVITY = "selectivity"
    FIXED = "fixed"


class Ablation(StrEnum):
    """Ablations (section 5.3): the search minimises only this part of the cost."""

    QUERY_COST = "query-cost"
    MATCH_COST = "match-cost"


@dataclass(frozen=True, slots=True)
class Orders:
    """Probe orders of one operator.

    Attributes:
        cost: cost per unit of time: the sum of the orders' costs, weighted by the arrival rates of
            their starts, under the operator's accounting and prices.
        orders: start -> the streams that are probed, in order.
    """

    algorithm: Algorithm
    cost: float
    orders: Mapping[int, tuple[int, ...]]


def search_orders(
    operator: Operator, algorithm: Algorithm, ablation: Ablation | None = None
) -> Orders:
    """Return the orders that ``algorithm`` chooses for ``operator``.

    Raises:
        PlannerError: there are more streams or sequences than the algorithm can search.
    """
    seen = operator
    if ablation is Ablation.QUERY_COST:
        seen = replace(operator, prices=replace(operator.prices, match=0.0))
    elif ablation is Ablation.MATCH_COST:
        seen = replace(operator, prices=replace(operator.prices, query=0.0))
    found = _SEARCHES[algorithm](seen)
    cost = sum(
        weight * order_cost(operator, start, order)
        for start, (weight, order) in enumerate(zip(operator.weights, found, strict=True))
    )
    return Orders(algorithm, cost, dict(enumerate(found)))


def _one_by_one(
    operator: Operator, rank: Callable[[int, int, int, int], float]
) -> tuple[tuple[int, ...], ...]:
    """Return greedy orders: each next step has the least ``rank(start, set, side, target)``."""
    orders = []
    for start in range(len(operator.names)):
        visited, order = 1 << start, list[int]()
        for _ in range(len(operator.names) - 1):
            _, target = min(
                (rank(start, visited, side, target), target)
                for side, target in operator.steps(visited)
            )
            order.append(target)
            visited |= 1 << target
        orders.append(tuple(order))
    return tuple(orders)


def _fixed(operator: Operator) -> tuple[tuple[int, ...], ...]:
    return _one_by_one(operator, lambda _start, _visited, _side, target: float(target))


def _greedy(operator: Operator) -> tuple[tuple[int, ...], ...]:
    return _one_by_one(operator, lambda *step: operator.step(*step)[0])


def _selectivity(operator: Operator) -> tuple[tuple[int, ...], ...]:
    def rank(start: int, visited: int, side: int, target: int) -> float:
        match = operator.figures.one(start, visited, side, target)
        return match.gamma * match.mu / max(operator.rows[target], 1.0)

    return _one_by_one(operator, rank)


_SEARCHES: Mapping[Algorithm, Callable[[Operator], tuple[tuple[int, ...], ...]]] = {
    Algorithm.DPPICK: dppick_orders,
    Algorithm.EXACT: exact_orders,
    Algorithm.GREEDY: _greedy,
    Algorithm.SELECTIVITY: _selectivity,
    Algorithm.FIXED: _fixed,
}
