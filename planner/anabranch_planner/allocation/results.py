"""Maximum total number of results for every CPU budget, exactly.

For a given price of CPU time the best rations are 0 or 1: a set of goals with all steps before
them. The sets grow as the price falls. So the solutions for all budgets form one sequence of
*increments* with descending results per second. A budget takes the increments in this order, and of
the last one only the affordable fraction (Lagrange; all rations in an increment are equal, so its
steps process just that fraction).

The sequence is computed from the leaves of the trees to their roots: a step absorbs the increments
after it as long as these have at least as many results per second as the step has with them. This
is Horn's schedule of jobs under precedence constraints in a forest (SIAM J. Appl. Math. 23(2),
1972). With n steps and goals it takes O(n log² n).

**For a single query whose paths share no step this is GrePP** (JAQPOT, section 4.1.2). Let a path
have the steps 1 .. n with costs ``c_j``, let its results cost ``c_0``, and let its goal have ``r``
results. No other goal uses these steps, so each of them has the goal's ration ``p``: the next step
processes a step's matches (Eq. 6, 7). The rations cost ``Σ p_I (c_0 + .. + c_n)_I`` and produce ``Σ
p_I r_I`` with ``0 <= p_I <= 1``. That is the fractional knapsack of GrePP, with resources ``X_I =
p_I (c_0 + .. + c_n)_I``, productivity ``ρ_p = r / (c_0 + .. + c_n)`` (Eq. 8), and the arrivals'
limit as the bound ``p_I <= 1``. The increments are the same: a step has one increment after it and
no results itself, so it absorbs that increment, until each path is one increment of ratio ``ρ_p``.
Both then fill paths by descending ``ρ_p``. If each probe costs the same, costs are the paper's
probes: step ``j`` of a path costs ``λ φ_(j-1)``, its goal produces ``λ φ_n``. So both keep equally
many results for any budget, by the same rations unless two paths are equally productive
(``tests/benchmarks/papers/jaqpot/test_results_as_grepp.py``). If paths share steps, GrePP pays
these several times; this algorithm pays them once (:mod:`.jaqpot`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from anabranch_planner.allocation.forest import Forest


@dataclass(frozen=True, slots=True)
class Increment:
    """Goals whose tuples are admitted together as the CPU budget grows.

    Attributes:
        goals: indices of the goals, ascending.
        cost: CPU seconds per unit of time for their results, and for all steps that no earlier
            increment has paid.
        output: number of results per unit of time.
    """

    goals: tuple[int, ...]
    cost: float
    output: float


@dataclass(slots=True)
class _Block:
    cost: float
    output: float
    goals: list[int] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Results per CPU second of the increment; infinite if its results cost nothing."""
        return self.output / self.cost if self.cost > 0 else math.inf


#: Heap of blocks (goals with one ration), by descending results per CPU second, then by goal.
_Heap = list[tuple[float, int, _Block]]


def increments(
    forest: Forest, goals: Iterable[int] | None = None, paid: Sequence[float] = ()
) -> tuple[Increment, ...]:
    """Increments by descending results per CPU second, the order in which a budget admits them.

    Args:
        forest: forest in which each goal has at most one path (``Forest.is_tree``).
        goals: indices of the goals to ration; None: all.
        paid: rations already granted, each 0 or 1; a goal with 1 has paid for its steps.
    """
    loads = forest.loads(paid or [0.0] * len(forest.goals))
    after: list[_Heap] = [[] for _ in forest.steps]
    roots: _Heap = []
    for at in range(len(forest.goals)) if goals is None else goals:
        goal = forest.goals[at]
        heap = after[goal.steps[0]] if goal.steps else roots
        _push(heap, _Block(goal.cost, goal.output, [at]))
    for at in range(len(forest.steps) - 1, -1, -1):
        step, heap = forest.steps[at], after[at]
        if not heap:
            continue
        own = _Block(0.0 if loads[at] else step.cost, 0.0)
        # Absorb a block of equal ratio as well, because its goals need this step first.
        while heap and (not own.goals or -heap[0][0] >= own.ratio):
            _, _, block = heappop(heap)
            own.cost += block.cost
            own.output += block.output
            own.goals += block.goals
        _push(heap, own)
        if step.parent is None:
            roots = _merged(roots, heap)
        else:
            after[step.parent] = _merged(after[step.parent], heap)
        after[at] = []
    found = []
    while roots:
        _, _, block = heappop(roots)
        found.append(Increment(tuple(sorted(block.goals)), block.cost, block.output))
    return tuple(found)


def _push(heap: _Heap, block: _Block) -> None:
    """Add a block of goals to the heap, by its results per CPU second."""
    heappush(heap, (-block.ratio, min(block.goals), block))


def _merged(one: _Heap, other: _Heap) -> _Heap:
    """Merge two heaps of blocks of goals, the smaller into the larger."""
    if len(one) < len(other):
        one, other = other, one
    for entry in other:
        heappush(one, entry)
    return one
