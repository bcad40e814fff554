"""Optimal cost of a problem with charged store copies, by a plain integer program.

It has all variables, but none of the rows, reductions and cuts that only speed up the solver: rows
``f <= y``, ``f <= z`` and ``y <= sum of known p + b`` for each step, in a single program. HiGHS
solves it by its own branch and cut.
"""

from __future__ import annotations

from anabranch_contract.plans.plan import Solver
from anabranch_planner.search.problem import PlanProblem
from anabranch_planner.solvers.interface import Request, SolveStatus
from anabranch_planner.solvers.program import INFINITY, Program
from anabranch_planner.solvers.registry import solve


def optimum(problem: PlanProblem) -> float:
    """Return the least cost of a plan, including switching charges."""
    assert problem.charged
    graph, program = problem.graph, Program()
    kept = {m: program.variable(0.0, integer=True) for m in problem.mirs}
    copies = {
        (store, i): program.variable(problem.copy_price(store, attribute), integer=True)
        for store, attributes in problem.partitions.items()
        for i, attribute in enumerate(attributes)
    }
    for store, attributes in problem.partitions.items():
        indices = [copies[store, i] for i in range(len(attributes))]
        ones = [1.0] * len(indices)
        if store in kept:
            program.row(0.0, INFINITY, [*indices, kept[store]], [*ones, -1.0])
        elif indices:
            program.row(1.0, INFINITY, indices, ones)
        else:
            program.offset += problem.copy_price(store, None)
        if problem.most_copies is not None and indices:
            program.row(-INFINITY, float(problem.most_copies), indices, ones)
    if problem.memory is not None:
        sizes = [problem.bytes[store] / problem.memory for store, _ in copies]
        program.row(-INFINITY, 1.0 + 1e-9, list(copies.values()), sizes)
    steps = {}
    for e in sorted({e for goal in problem.goals for e in goal.edges}):
        steps[e] = program.variable(graph.cost[e] + problem.step_extra(e), integer=True)
        store, known = graph.target[e], graph.known[e]
        attributes = problem.partitions[store]
        if attributes:
            serving = [copies[store, i] for i in range(len(attributes)) if known >> i & 1]
            serving.append(program.variable(graph.spread[e], integer=True))
            program.row(-INFINITY, 0.0, [steps[e], *serving], [1.0] + [-1.0] * len(serving))
    for goal in problem.goals:
        balance: dict[int, list[tuple[int, float]]] = {goal.sink: []}
        for e in goal.edges:
            flow = program.variable(0.0, integer=False)
            program.row(-INFINITY, 0.0, [flow, steps[e]], [1.0, -1.0])
            if graph.target[e] in kept:
                program.row(-INFINITY, 0.0, [flow, kept[graph.target[e]]], [1.0, -1.0])
            balance.setdefault(graph.head[e], []).append((flow, 1.0))
            if graph.tail[e] != goal.root:
                balance.setdefault(graph.tail[e], []).append((flow, -1.0))
        for state, entries in balance.items():
            due = 1.0 if state == goal.sink and goal.mir is None else 0.0
            if state == goal.sink and goal.mir is not None:
                entries.append((kept[goal.mir], -1.0))
            if goal.edges:
                program.row(due, due, [i for i, _ in entries], [c for _, c in entries])
    solution = solve(Solver.HIGHS, Request(program))
    assert solution.status is SolveStatus.OPTIMAL, solution
    return solution.bound
