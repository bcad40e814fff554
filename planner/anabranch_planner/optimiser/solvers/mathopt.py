"""MathOpt of OR-Tools: a common front to several solvers, of which one is used."""

from __future__ import annotations

import math
from datetime import timedelta

import numpy as np
from ortools.math_opt import model_pb2
from ortools.math_opt.python import mathopt

from anabranch_planner.optimiser.solvers.interface import Request, Solution, Status

#: The solver behind MathOpt. Its HiGHS is as fast as HiGHS by itself, and the same solver again; it
#: can't be told how many threads to use either. SCIP is slower on larger programs, but another
#: solver.
INSIDE = mathopt.SolverType.GSCIP

_ENDED = mathopt.TerminationReason


def solve(request: Request) -> Solution:
    """Solve ``request`` with :data:`INSIDE`."""
    program = request.program
    # Scaled so that coefficients stay far from the solver's absolute tolerances.
    scale = 1e4 / max(max(program.costs, default=0.0), 1e-9)
    model = mathopt.Model.from_model_proto(_proto(request, scale))
    hints = []
    if request.start is not None:
        start = dict(zip(model.variables(), request.start, strict=True))
        hints.append(mathopt.SolutionHint(variable_values=start))
    limit = request.time_limit
    parameters = mathopt.SolveParameters(
        time_limit=None if limit is None else timedelta(seconds=max(limit, 0.0)),
        threads=None if INSIDE is mathopt.SolverType.HIGHS else request.threads,
        random_seed=request.seed,
        relative_gap_tolerance=request.gap,
        absolute_gap_tolerance=1e-7,
    )
    result = mathopt.solve(
        model,
        INSIDE,
        params=parameters,
        model_params=mathopt.ModelSolveParameters(solution_hints=hints),
    )
    reason = result.termination.reason
    values: tuple[float, ...] | None = None
    if result.has_primal_feasible_solution():
        values = tuple(result.variable_values(list(model.variables())))
    if reason is _ENDED.OPTIMAL:
        status = Status.OPTIMAL
    elif reason is _ENDED.INFEASIBLE:
        status = Status.INFEASIBLE
    elif values is not None:
        status = Status.FEASIBLE
    elif reason is _ENDED.NO_SOLUTION_FOUND:
        status = Status.NOTHING
    else:
        message = f"MathOpt: {reason.value} {result.termination.detail}".strip()
        return Solution(Status.FAILED, None, -math.inf, 0.0, message)
    return Solution(
        status=status,
        values=values,
        bound=program.offset + result.best_objective_bound() / scale,
        seconds=result.solve_time().total_seconds(),
    )


def _proto(request: Request, scale: float) -> model_pb2.ModelProto:
    """The program as MathOpt's protocol buffer, column by column: its own layer is slower."""
    program = request.program
    proto = model_pb2.ModelProto()
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
    # Sorted by row and column, as the buffer wants it, and without zeros.
    order = np.lexsort((indices, rows))
    order = order[values[order] != 0]
    matrix = proto.linear_constraint_matrix
    matrix.row_ids.extend(rows[order].tolist())
    matrix.column_ids.extend(indices[order].tolist())
    matrix.coefficients.extend(values[order].tolist())
    return proto
