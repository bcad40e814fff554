"""The most results for every budget, exactly.

For a price of CPU time the best rations are 0 or 1: a set of goals with all of the steps before
them. As the price falls the sets grow, so all budgets together are one sequence of *increments* by
falling results per second, and of the last one that a budget reaches the affordable share is taken
(Lagrange; within an increment all rations are equal, so its steps carry just that share).

The sequence is found from the leaves of the trees to their roots: a step takes in the increments
after it as long as they bring at least as much per second as it does itself. This is Horn's
schedule of jobs that follow each other in a forest (SIAM J. Appl. Math. 23(2), 1972). With n steps
and goals it takes O(n log² n).

**For one query whose paths share no step this is GrePP** (JAQPOT, section 4.1.2). Let a path have
the steps 1 .. n with costs ``c_j``, its results the cost ``c_0``, and let its goal bring ``r``
results. No other goal lies behind these steps, so each of them has the goal's ration ``p``: what
one step makes, the next takes (Eq. 6, 7). The rations cost ``Σ p_I (c_0 + .. + c_n)_I`` and bring
``Σ p_I r_I`` with ``0 <= p_I <= 1``: the fractional knapsack that GrePP solves, with resources
``X_I = p_I (c_0 + .. + c_n)_I``, ``ρ_p = r / (c_0 + .. + c_n)`` (Eq. 8), and what the arrivals can
use as the bound ``p_I <= 1``. The increments say the same: a step has one increment after it and
brings nothing itself, so it takes that in, until each path is one increment of ratio ``ρ_p``. Both
then fill paths by falling ``ρ_p``. Where each probe costs the same, costs are the paper's probes:
step ``j`` of a path costs ``λ φ_(j-1)``, its goal brings ``λ φ_n``. So both keep equally many
results of any budget, by the same rations wherever no two paths are equally productive
(``tests/benchmarks/papers/jaqpot/test_results_as_grepp.py``). Where paths share steps GrePP pays
those several times, and this does not (:mod:`.jaqpot`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from anabranch_planner.allocation.forest import Forest


@dataclass(frozen=True, slots=True)
class Increment:
    """Goals that get their rations together.

    Attributes:
        goals: their numbers, ascending.
        cost: CPU seconds per unit of time of their results, and of all steps that no earlier
            increment has paid. ``output``: their results per unit of time.
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
        """Results per second of CPU time; infinite for free results."""
        return self.output / self.cost if self.cost > 0 else math.inf


#: Blocks by falling ratio; of equal ones that with the least goal first.
_Heap = list[tuple[float, int, _Block]]


def increments(
    forest: Forest, goals: Iterable[int] | None = None, paid: Sequence[float] = ()
) -> tuple[Increment, ...]:
    """Goals in the order in which they get their rations.

    Args:
        forest: each goal has at most one path (``Forest.is_tree``).
        goals: numbers of the goals to ration; None: all.
        paid: rations granted already, each 0 or 1; the steps of a goal with 1 cost nothing more.
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
        # One that brings as much is taken in as well: it must not come before the step.
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
    heappush(heap, (-block.ratio, min(block.goals), block))


def _merged(one: _Heap, other: _Heap) -> _Heap:
    """Both heaps as one; the smaller goes into the larger."""
    if len(one) < len(other):
        one, other = other, one
    for entry in other:
        heappush(one, entry)
    return one
