"""MathOpt of OR-Tools, a common interface to several solvers, used here for SCIP."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import numpy as np

from anabranch_planner.solvers.interface import Request, Solution, SolveStatus
from anabranch_planner.solvers.program import Program

#: The solver that MathOpt calls. (HiGHS is called without MathOpt.)
INSIDE = "GSCIP"


def solve(request: Request) -> Solution:
    """Solve ``request`` with the solver that MathOpt calls (:data:`INSIDE`)."""
    # Imported here, because the import fails in a process with HiGHS.
    from ortools.math_opt import model_pb2
    from ortools.math_opt.python import mathopt

    program = request.program
    # Scale the costs so that coefficients stay far from the solver's absolute tolerances.
    scale = 1e4 / max(max(program.costs, default=0.0), 1e-9)
    proto = model_pb2.ModelProto()
    _fill(proto, request.program, scale)
    model = mathopt.Model.from_model_proto(proto)
    hints = []
    if request.start is not None:
        start = dict(zip(model.variables(), request.start, strict=True))
        hints.append(mathopt.SolutionHint(variable_values=start))
    limit = request.time_limit
    parameters = mathopt.SolveParameters(
        time_limit=None if limit is None else timedelta(seconds=max(limit, 0.0)),
        # With more threads SCIP's result varies, but equal requests must have equal solutions.
        threads=1,
        random_seed=request.seed,
        relative_gap_tolerance=request.gap,
        absolute_gap_tolerance=1e-7,
    )
    result = mathopt.solve(
        model,
        mathopt.SolverType[INSIDE],
        params=parameters,
        model_params=mathopt.ModelSolveParameters(solution_hints=hints),
    )
    reason, known = result.termination.reason, mathopt.TerminationReason
    values: tuple[float, ...] | None = None
    if result.has_primal_feasible_solution():
        values = tuple(result.variable_values(list(model.variables())))
    if reason is known.OPTIMAL:
        status = SolveStatus.OPTIMAL
    elif reason is known.INFEASIBLE:
        status = SolveStatus.INFEASIBLE
    elif values is not None:
        status = SolveStatus.FEASIBLE
    elif reason is known.NO_SOLUTION_FOUND:
        status = SolveStatus.NOTHING
    else:
        message = f"MathOpt: {reason.value} {result.termination.detail}".strip()
        return Solution(SolveStatus.FAILED, None, -math.inf, 0.0, message)
    return Solution(
        status=status,
        values=values,
        bound=program.offset + result.best_objective_bound() / scale,
        seconds=result.solve_time().total_seconds(),
    )


def _fill(proto: Any, program: Program, scale: float) -> None:
    """Write the program by columns into MathOpt's protocol buffer, faster than its own layer."""
    columns = range(program.variables)
    proto.variables.ids.extend(columns)
    proto.variables.lower_bounds.extend([0.0] * program.variables)
    proto.variables.upper_bounds.extend(program.tops)
    proto.variables.integers.extend(program.integers)
    priced = [i for i in columns if program.costs[i]]
    proto.objective.linear_coefficients.ids.extend(priced)
    proto.objective.linear_coefficients.values.extend(program.costs[i] * scale for i in priced)
    proto.linear_constraints.ids.extend(range(program.rows))
    proto.linear_constraints.lower_bounds.extend(program.lowers)
    proto.linear_constraints.upper_bounds.extend(program.uppers)
    rows = np.repeat(np.arange(program.rows), np.diff(np.array(program.starts)))
    indices, values = np.array(program.indices, dtype=np.int64), np.array(program.values)
    # Sorted by row and column without zeros, as the buffer requires.
    order = np.lexsort((indices, rows))
    order = order[values[order] != 0]
    matrix = proto.linear_constraint_matrix
    matrix.row_ids.extend(rows[order].tolist())
    matrix.column_ids.extend(indices[order].tolist())
    matrix.coefficients.extend(values[order].tolist())
