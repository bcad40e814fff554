"""Least CPU budget with which every query keeps a required fraction of its results.

A linear program over rations (the admitted fraction of each goal's tuples) and loads of steps. A
step's load is at least the ration of every goal that uses it, and each query keeps at least its
share of results. The cost is convex in the shares, so rations in between may be interpolated.
JAQPOT lacks this objective: its rations with the maximum total of results may leave a selective
query without results.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from anabranch_contract.plans.plan import Solver
from anabranch_planner.allocation.forest import Forest
from anabranch_planner.solvers.interface import Request
from anabranch_planner.solvers.program import INFINITY, Program
from anabranch_planner.solvers.registry import proven, solve

#: A completeness this close to 1 is rounded to 1; solvers are not much more precise.
CLOSE = 1e-6


def least_cost(
    forest: Forest,
    shares: Mapping[str, float],
    paid: Sequence[float] = (),
    *,
    tied: Collection[str] = (),
    worth: float = 0.0,
) -> tuple[float, ...]:
    """Cheapest rations (admitted fractions of tuples) with which each query in ``shares`` keeps its
    share of results. A query without expected results gets its share as the ration of each goal.

    Args:
        shares: query -> the least completeness, 0 to 1.
        paid: rations already granted to goals of other queries, which keep them.
        tied: queries whose goals all have the same ration.
        worth: value of all results of the queries in ``shares``, in units of the cost of all
            rations at 1. The program then minimises cost minus the value of the results kept.

    Raises:
        PlannerError: the solver fails (``no-solution``).
    """
    has = list(paid) or [0.0] * len(forest.goals)
    if all(share >= 1 - CLOSE for share in shares.values()):
        pairs = zip(forest.goals, has, strict=True)
        return tuple(1.0 if goal.query in shares else kept for goal, kept in pairs)
    loads = forest.loads(has)
    unit = forest.full or 1.0
    each = worth / (sum(forest.outputs[query] for query in shares) or 1.0)
    program = Program()
    steps = [program.variable(step.cost / unit, integer=False) for step in forest.steps]
    goals = [
        program.variable(
            goal.cost / unit - (each * goal.output if goal.query in shares else 0.0), integer=False
        )
        for goal in forest.goals
    ]
    for at, step in enumerate(forest.steps):
        if loads[at]:
            program.row(loads[at], 1.0, [steps[at]], [1.0])
        if step.parent is not None:
            program.row(0.0, INFINITY, [steps[step.parent], steps[at]], [1.0, -1.0])
    of: dict[str, list[int]] = {query: [] for query in shares}
    for at, goal in enumerate(forest.goals):
        for last in goal.steps:
            program.row(0.0, INFINITY, [steps[last], goals[at]], [1.0, -1.0])
        if goal.query in of:
            of[goal.query].append(at)
        elif has[at]:
            program.row(has[at], 1.0, [goals[at]], [1.0])
    for query, members in of.items():
        full, share = forest.outputs[query], shares[query]
        if full > 0 and share < 1 - CLOSE:
            weights = [forest.goals[at].output / full for at in members]
            program.row(min(share, sum(weights)), INFINITY, [goals[at] for at in members], weights)
        else:
            least = share if share < 1 - CLOSE else 1.0
            for at in members:
                program.row(least, 1.0, [goals[at]], [1.0])
        if query in tied:
            for at in members[1:]:
                program.row(0.0, 0.0, [goals[members[0]], goals[at]], [1.0, -1.0])
    remedy = "use the allocation 'results' without floors (minimum completeness): no solver"
    answer = solve(Solver.HIGHS, Request(program))
    values = proven(Solver.HIGHS, answer, remedy, field="allocation")
    return tuple(min(max(values[at], 0.0), 1.0) for at in goals)
