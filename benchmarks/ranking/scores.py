"""Scores of prices as rankings of plans: Kendall's tau-b, and the regret of the cheapest plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

#: Relative difference up to which prices count as equal: they may be sums of the same terms in
#: different orders.
EQUAL = 1e-9


def tau(prices: Sequence[float], costs: Sequence[float]) -> float:
    """Return Kendall's tau-b: 1 if both rank alike, -1 if they rank inversely; 0 if all values of
    one are equal.

    >>> tau([1, 2, 3], [10, 20, 30]), tau([1, 2, 3], [3, 2, 1]), tau([1, 1], [1, 2])
    (1.0, -1.0, 0.0)
    """
    agree = of_prices = of_costs = 0
    for one, other in combinations(range(len(prices)), 2):
        price, cost = _order(prices[one], prices[other]), _order(costs[one], costs[other])
        agree += price * cost
        of_prices += abs(price)
        of_costs += abs(cost)
    return agree / math.sqrt(of_prices * of_costs) if of_prices and of_costs else 0.0


def regret(prices: Sequence[float], costs: Sequence[float]) -> float:
    """Return the additional cost of the plan with the least price, relative to the least cost; of
    several plans with that price, the most expensive one counts.

    >>> round(regret([1.0, 2.0], [12.0, 10.0]), 6)
    0.2
    """
    least = min(prices)
    chosen = max(c for p, c in zip(prices, costs, strict=True) if not _order(p, least))
    return chosen / min(costs) - 1.0


def _order(one: float, other: float) -> int:
    if math.isclose(one, other, rel_tol=EQUAL):
        return 0
    return 1 if one > other else -1
