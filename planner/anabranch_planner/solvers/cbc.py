"""The solver CBC through PuLP, which contains CBC's program and runs it as a separate process."""

from __future__ import annotations

import math
import re
import tempfile
from pathlib import Path
from typing import Any

import pulp
from pulp.apis.coin_api import COIN_CMD, pulp_cbc_path

from anabranch_planner.solvers.interface import Request, Solution, SolveStatus

_LOWER = re.compile(r"^Lower bound:\s+(\S+)", re.MULTILINE)
_SECONDS = re.compile(r"^Time \(Wallclock seconds\):\s+(\S+)", re.MULTILINE)
#: Rounding error of the bound in CBC's report, which has three decimals.
PRINTED = 1e-3
#: Minimum improvement over the best point for which CBC continues to search.
INCREMENT = 1e-5


def solve(request: Request) -> Solution:
    """Solve ``request`` by CBC's branch and cut.

    The bound is read from CBC's report, which contains one if CBC stopped early. If CBC stopped
    because the best point is optimal, the bound follows from CBC's tolerances.
    """
    program = request.program
    scale = 1e4 / max(max(program.costs, default=0.0), 1e-9)
    problem, variables = _load_program(request, scale)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report")
        solver = COIN_CMD(
            path=pulp_cbc_path,
            msg=False,
            warmStart=request.start is not None,
            timeLimit=None if request.time_limit is None else max(request.time_limit, 0.0),
            gapRel=request.gap,
            threads=request.threads,
            options=[f"randomSeed {request.seed + 1}", f"randomCbcSeed {request.seed + 1}"],
            logPath=str(report),
        )
        solver.tmpDir = folder
        ended = problem.solve(solver)
        text = report.read_text(errors="replace")
    seconds = float(found[1]) if (found := _SECONDS.search(text)) else 0.0
    bound = float(found[1]) - PRINTED if (found := _LOWER.search(text)) else -math.inf
    if ended == pulp.LpStatusInfeasible:
        return Solution(SolveStatus.INFEASIBLE, None, math.inf, seconds)
    if problem.sol_status == pulp.LpSolutionNoSolutionFound:
        return Solution(SolveStatus.NOTHING, None, program.offset + bound / scale, seconds)
    if ended != pulp.LpStatusOptimal:
        message = f"CBC: {pulp.LpStatus[ended]}"
        return Solution(SolveStatus.FAILED, None, -math.inf, seconds, message)
    values = tuple(v.varValue or 0.0 for v in variables)
    status = SolveStatus.FEASIBLE
    if problem.sol_status == pulp.LpSolutionOptimal:
        status = SolveStatus.OPTIMAL
        objective = sum(c * v for c, v in zip(program.costs, values, strict=True))
        bound = max(bound, (objective - request.gap * abs(objective)) * scale - INCREMENT)
    return Solution(status, values, program.offset + bound / scale, seconds)


def _load_program(request: Request, scale: float) -> tuple[Any, list[Any]]:
    program = request.program
    problem = pulp.LpProblem("program", pulp.LpMinimize)
    variables = [
        problem.add_variable(
            f"x{i}",
            0,
            None if program.tops[i] == math.inf else program.tops[i],
            pulp.LpInteger if program.integers[i] else pulp.LpContinuous,
        )
        for i in range(program.variables)
    ]
    problem += pulp.LpAffineExpression(
        [(v, program.costs[i] * scale) for i, v in enumerate(variables)]
    )
    for i in range(program.rows):
        entries = range(program.starts[i], program.starts[i + 1])
        terms = [(variables[program.indices[k]], program.values[k]) for k in entries]
        lower, upper = program.lowers[i], program.uppers[i]
        sides = [(pulp.LpConstraintEQ, lower)]
        if lower != upper:
            sides = [(pulp.LpConstraintGE, lower), (pulp.LpConstraintLE, upper)]
        for sense, side in sides:
            if math.isfinite(side):
                problem += pulp.LpConstraint(pulp.LpAffineExpression(terms), sense, rhs=side)
    if request.start is not None:
        for variable, value in zip(variables, request.start, strict=True):
            variable.setInitialValue(value)
    return problem, variables
