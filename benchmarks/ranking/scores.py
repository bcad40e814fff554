"""How well prices rank plans: Kendall's tau-b, and the regret of the cheapest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

#: Relative difference below which two prices are one: sums of the same terms in another order.
EQUAL = 1e-9


def tau(prices: Sequence[float], costs: Sequence[float]) -> float:
    """Kendall's tau-b: 1 where both rank alike, -1 where they rank inversely; 0 if one has ties
    only.

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
    """By how much more the plan with the least price costs than the best, as a share of that; of
    several with that price the dearest counts.

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
