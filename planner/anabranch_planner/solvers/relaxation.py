"""The linear relaxation of an integer program, solved repeatedly with some variables fixed.

HiGHS keeps its basis between solves. So after a few changes of bounds, the dual simplex method
needs only few iterations, which makes branching cheap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch_planner.solvers.highs import load
from anabranch_planner.solvers.interface import Request
from anabranch_planner.solvers.program import Program, Row

INFINITE = float("inf")
#: HiGHS's code for dual simplex pricing by Devex weights, which start at 1.
DEVEX = 1


class Relaxation:
    """An integer program without integrality, and the result of the last :meth:`solve`.

    Attributes (of the last solve):
        objective: objective with offset; ``inf``: infeasible; ``-inf``: the time limit was reached.
        values, slopes: value and reduced cost per variable. The reduced cost is the objective's
            increase per unit if the variable moves off its bound.
    """

    __slots__ = ("_fixed", "_highs", "_offset", "_scale", "_tops", "objective", "slopes", "values")

    def __init__(self, program: Program, seed: int = 0, *, presolve: bool = True) -> None:
        self._highs, self._scale = load(Request(program, seed=seed), relaxed=True)
        if not presolve:
            self._highs.setOptionValue("presolve", "off")
        self._tops = list(program.tops)
        self._offset = program.offset
        self._fixed: dict[int, float] = {}
        self.objective = -INFINITE
        self.values: NDArray[np.float64] = np.zeros(program.variables)
        self.slopes: NDArray[np.float64] = np.zeros(program.variables)

    def solve(self, fixed: Mapping[int, float], time_limit: float | None = None) -> bool:
        """Solve the relaxation with the variables in ``fixed`` at the given values, others free.

        Returns:
            Whether the result is final: an optimum, or a proof that the relaxation is infeasible.
        """
        import highspy

        for i in self._fixed:
            if i not in fixed:
                self._highs.changeColBounds(i, 0.0, self._tops[i])
        for i, value in fixed.items():
            if self._fixed.get(i) != value:
                self._highs.changeColBounds(i, value, value)
        self._fixed = dict(fixed)
        if time_limit is not None:
            self._highs.setOptionValue("time_limit", self._highs.getRunTime() + time_limit)
        # Another program may have changed HiGHS's global number of threads in the meantime.
        highspy.Highs.resetGlobalScheduler(True)
        self._highs.run()
        status = self._highs.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            self.objective = INFINITE
            return True
        if status != highspy.HighsModelStatus.kOptimal:
            self.objective = -INFINITE
            return False
        solution = self._highs.getSolution()
        self.values = np.array(solution.col_value)
        self.slopes = np.array(solution.col_dual) / self._scale
        self.objective = self._offset + self._highs.getInfo().objective_function_value / self._scale
        return True

    def extend(self, rows: Sequence[Row]) -> None:
        """Add ``rows`` to the linear program."""
        # Steepest-edge weights would have to be recomputed for the longer basis.
        self._highs.setOptionValue("simplex_dual_edge_weight_strategy", DEVEX)
        lengths = [len(indices) for _, indices, _ in rows]
        self._highs.addRows(
            len(rows),
            np.full(len(rows), -INFINITE),
            np.array([upper for upper, _, _ in rows]),
            sum(lengths),
            np.cumsum([0, *lengths[:-1]], dtype=np.int32),
            np.array([i for _, indices, _ in rows for i in indices], dtype=np.int32),
            np.array([c for _, _, coefficients in rows for c in coefficients]),
        )

    def rule_out(self, indices: NDArray[np.int64]) -> None:
        """Fix the variables ``indices`` of the relaxation at 0 permanently."""
        for i in indices.tolist():
            self._tops[i] = 0.0
            self._highs.changeColBounds(i, 0.0, 0.0)
