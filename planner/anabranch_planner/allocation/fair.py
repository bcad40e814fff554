"""The least budget for which every query is complete to a share, and the rations that keep it.

A linear program: rations of goals and loads of steps, a load being at least every ration behind
it; each query keeps at least the share of its results. What it costs is convex in the share, so
rations between those of two shares may be interpolated. Not in the paper, whose aim of most results
may leave a selective query with none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_contract.plans.plan import Solver
from anabranch_planner.solvers.interface import Request
from anabranch_planner.solvers.program import INFINITY, Program
from anabranch_planner.solvers.registry import proven, solve

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from anabranch_planner.allocation.forest import Forest
#: So near to all of its results a query gets all: a solver's tolerances are not much finer.
CLOSE = 1e-6


def least_cost(
    forest: Forest, share: float, queries: Collection[str], paid: Sequence[float] = ()
) -> tuple[float, ...]:
    """The cheapest rations with which each of ``queries`` keeps ``share`` of its results, 0 to 1.

    Of a query that is expected to have no results, each goal gets the share.

    Args:
        paid: rations that goals of other queries have already, which they keep.

    Raises:
        PlannerError: the solver breaks (``no-solution``).
    """
    has = list(paid) or [0.0] * len(forest.goals)
    if share >= 1 - CLOSE:
        pairs = zip(forest.goals, has, strict=True)
        return tuple(1.0 if goal.query in queries else kept for goal, kept in pairs)
    loads = forest.loads(has)
    unit = forest.full or 1.0
    program = Program()
    steps = [program.variable(step.cost / unit, integer=False) for step in forest.steps]
    goals = [program.variable(goal.cost / unit, integer=False) for goal in forest.goals]
    for at, step in enumerate(forest.steps):
        if loads[at]:
            program.row(loads[at], 1.0, [steps[at]], [1.0])
        if step.parent is not None:
            program.row(0.0, INFINITY, [steps[step.parent], steps[at]], [1.0, -1.0])
    of: dict[str, list[int]] = {query: [] for query in queries}
    for at, goal in enumerate(forest.goals):
        if goal.step is not None:
            program.row(0.0, INFINITY, [steps[goal.step], goals[at]], [1.0, -1.0])
        if goal.query in of:
            of[goal.query].append(at)
        elif has[at]:
            program.row(has[at], 1.0, [goals[at]], [1.0])
    for query, members in of.items():
        full = forest.outputs.get(query, 0.0)
        if full > 0:
            weights = [forest.goals[at].output / full for at in members]
            program.row(min(share, sum(weights)), INFINITY, [goals[at] for at in members], weights)
        else:
            for at in members:
                program.row(share, 1.0, [goals[at]], [1.0])
    remedy = "use the allocation 'results', which needs no solver"
    answer = solve(Solver.HIGHS, Request(program))
    values = proven(Solver.HIGHS, answer, remedy, field="allocation")
    return tuple(min(max(values[at], 0.0), 1.0) for at in goals)
