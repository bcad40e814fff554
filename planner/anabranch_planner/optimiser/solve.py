"""Solving the integer program with HiGHS, from a known plan and within a time limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch_planner.optimiser.formulation import Program


@dataclass(frozen=True, slots=True)
class Solution:
    """What the solver found.

    Attributes:
        values: the best point, or None if the limit passed without one.
        bound: a proven lower bound of the objective (offset included).
        optimal: whether the point is proven optimal.
        seconds: the time that the solver says it took.
    """

    values: tuple[float, ...] | None
    bound: float
    optimal: bool
    seconds: float


def solve(
    program: Program,
    *,
    start: list[float] | None = None,
    time_limit: float | None = None,
    seed: int = 0,
) -> Solution:
    """Minimise ``program``.

    One thread and a fixed seed: equal programs give equal solutions unless the limit strikes.

    Args:
        start: a feasible point to begin from.
        time_limit: seconds; None is no limit.
        seed: of the solver's own tie-breaking.
    """
    # Imported here: HiGHS and OR-Tools can't be loaded into one process, and a plan that
    # needs no solver should not load one.
    import highspy
    import numpy as np

    # Scaled so that coefficients stay far from the solver's absolute tolerances.
    scale = 1e4 / max(max(program.costs, default=0.0), 1e-9)
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("random_seed", seed),
        ("mip_rel_gap", 1e-9),
        ("mip_abs_gap", 1e-7),
        ("time_limit", float("inf") if time_limit is None else max(time_limit, 0.0)),
    ):
        highs.setOptionValue(option, value)
    model = highspy.HighsLp()
    model.num_col_ = len(program.costs)
    model.num_row_ = len(program.rows)
    model.col_cost_ = np.array(program.costs) * scale
    model.col_lower_ = np.zeros(len(program.costs))
    model.col_upper_ = np.array(program.tops)
    model.row_lower_ = np.array([r[0] for r in program.rows])
    model.row_upper_ = np.array([r[1] for r in program.rows])
    lengths = [len(r[2]) for r in program.rows]
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.num_col_ = len(program.costs)
    model.a_matrix_.num_row_ = len(program.rows)
    model.a_matrix_.start_ = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    model.a_matrix_.index_ = np.array([i for r in program.rows for i in r[2]], dtype=np.int32)
    model.a_matrix_.value_ = np.array([c for r in program.rows for c in r[3]])
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    model.integrality_ = [kinds[integer] for integer in program.integers]
    highs.passModel(model)
    if start is not None:
        point = highspy.HighsSolution()
        point.col_value = start
        highs.setSolution(point)
    highs.run()
    info = highs.getInfo()
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    return Solution(
        values=tuple(highs.getSolution().col_value) if feasible else None,
        bound=program.offset + max(info.mip_dual_bound, 0.0) / scale,
        optimal=highs.getModelStatus() == highspy.HighsModelStatus.kOptimal,
        seconds=highs.getRunTime(),
    )
