"""Policies that divide a CPU budget among the goals of a probe forest, for comparison."""

from __future__ import annotations

from enum import StrEnum

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.rations import Allocation, shares_at
from anabranch_planner.allocation.fair import least_cost
from anabranch_planner.allocation.forest import Forest
from anabranch_planner.allocation.schedule import schedule
from tests.support.oracles.most_results import most_results

#: Number of halvings in the binary search for the greatest completeness.
_HALVINGS = 16


class Policy(StrEnum):
    """Policy that divides CPU time among goals.

    ``exact``: maximises the number of results. ``fair``: maximises the completeness of the least
    complete query. ``grepp``: the most productive paths first, each charged for all of its steps,
    as JAQPOT prints it for paths without common steps. ``jaqpot``: the planner's allocation of that
    name, which also spends what ``grepp`` charges twice. ``equal``: the same ration for every goal.
    """

    EXACT = "exact"
    FAIR = "fair"
    GREPP = "grepp"
    JAQPOT = "jaqpot"
    EQUAL = "equal"


def allocate(forest: Forest, capacity: float, policy: Policy) -> tuple[float, ...]:
    """Return the rations of the forest's goals.

    Args:
        capacity: the budget, above 0 and up to 1, as a share of the cost with all rations 1.

    Raises:
        PlannerError: ``capacity`` is out of this range (``bad-capacity``), or the solver fails.
    """
    if not 0 < capacity <= 1:
        raise PlannerError(
            "bad-capacity",
            f"a capacity of {capacity}",
            field="--capacity",
            remedy="give a share of what everything would cost: above 0, at most 1",
        )
    if capacity == 1 or not forest.full:
        return (1.0,) * len(forest.goals)
    budget = capacity * forest.full
    if policy is Policy.EXACT:
        return most_results(forest, budget)
    if policy is Policy.FAIR:
        return _fair(forest, budget)
    if policy is Policy.JAQPOT:
        return shares_at(schedule(forest, Allocation.JAQPOT, {}).points, capacity)
    if policy is Policy.EQUAL:
        return (capacity,) * len(forest.goals)
    return _by_path(forest, budget)


def _fair(forest: Forest, budget: float) -> tuple[float, ...]:
    low, high, best = 0.0, 1.0, (0.0,) * len(forest.goals)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        shares = least_cost(forest, dict.fromkeys(forest.outputs, middle))
        if forest.used(shares) <= budget:
            low, best = middle, shares
        else:
            high = middle
    return best


def _by_path(forest: Forest, budget: float) -> tuple[float, ...]:
    """Return rations if each path pays even for steps shared with others (JAQPOT, Eq. 8 to 10)."""
    paths: list[frozenset[int]] = []
    for at, step in enumerate(forest.steps):
        paths.append(frozenset({at}) | (frozenset() if step.parent is None else paths[step.parent]))
    costs = [
        g.cost + sum(forest.steps[at].cost for at in sorted({x for s in g.steps for x in paths[s]}))
        for g in forest.goals
    ]
    shares, left = [0.0] * len(costs), budget

    def productivity(at: int) -> float:
        return forest.goals[at].output / costs[at] if costs[at] else float("inf")

    for at in sorted(range(len(costs)), key=productivity, reverse=True):
        shares[at] = 1.0 if costs[at] <= left else left / costs[at]
        left = max(left - costs[at], 0.0)
    return tuple(shares)
