"""HiGHS, the default solver of integer programs."""

from __future__ import annotations

from typing import Any

from anabranch_planner.solvers.interface import Request, Solution, SolveStatus


def solve(request: Request) -> Solution:
    """Solve ``request`` by HiGHS's branch and cut."""
    # Imported here, because HiGHS and OR-Tools can't be loaded into the same process.
    import highspy

    program = request.program
    highs, scale = load(request)
    if request.start is not None:
        point = highspy.HighsSolution()
        point.col_value = list(request.start)
        highs.setSolution(point)
    if highs.run() == highspy.HighsStatus.kError:
        return Solution(
            SolveStatus.FAILED, None, float("-inf"), highs.getRunTime(), "HiGHS gave up"
        )
    info = highs.getInfo()
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    ended = highs.getModelStatus()
    if ended == highspy.HighsModelStatus.kInfeasible:
        status = SolveStatus.INFEASIBLE
    elif not feasible:
        status = SolveStatus.NOTHING
    elif ended == highspy.HighsModelStatus.kOptimal:
        status = SolveStatus.OPTIMAL
    else:
        status = SolveStatus.FEASIBLE
    # For an optimal solution HiGHS may report its last node's bound instead of the optimal cost.
    best = info.objective_function_value if status is SolveStatus.OPTIMAL else info.mip_dual_bound
    return Solution(
        status=status,
        values=tuple(highs.getSolution().col_value) if feasible else None,
        bound=program.offset + best / scale,
        seconds=highs.getRunTime(),
    )


def load(request: Request, *, relaxed: bool = False) -> tuple[Any, float]:
    """A HiGHS instance with the program to solve, and the factor by which its costs are scaled."""
    import highspy
    import numpy as np

    program = request.program
    # Scale the costs so that coefficients stay far from the solver's absolute tolerances.
    scale = 1e4 / max(max(program.costs, default=0.0), 1e-9)
    limit = request.time_limit
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in (
        ("output_flag", False),
        ("threads", request.threads),
        ("random_seed", request.seed),
        ("mip_rel_gap", request.gap),
        ("mip_abs_gap", 1e-7),
        ("time_limit", float("inf") if limit is None else max(limit, 0.0)),
    ):
        highs.setOptionValue(option, value)
    if request.nodes is not None:
        highs.setOptionValue("mip_max_nodes", request.nodes)
    model = highspy.HighsLp()
    model.num_col_ = program.variables
    model.num_row_ = program.rows
    model.col_cost_ = np.array(program.costs) * scale
    model.col_lower_ = np.zeros(program.variables)
    model.col_upper_ = np.array(program.tops)
    model.row_lower_ = np.array(program.lowers)
    model.row_upper_ = np.array(program.uppers)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.num_col_ = program.variables
    model.a_matrix_.num_row_ = program.rows
    model.a_matrix_.start_ = np.array(program.starts, dtype=np.int32)
    model.a_matrix_.index_ = np.array(program.indices, dtype=np.int32)
    model.a_matrix_.value_ = np.array(program.values)
    if not relaxed:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[integer] for integer in program.integers]
    highs.passModel(model)
    return highs, scale
