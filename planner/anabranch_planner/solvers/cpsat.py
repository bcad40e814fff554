"""CP-SAT of OR-Tools: a solver of integer programs.

CP-SAT supports integers only, which requires three conversions.

*Costs* are multiplied by a power of two ``s`` and rounded down. Variables are not negative. So the
objective of CP-SAT never exceeds ``s`` times the true costs at any point, and its proven bound
divided by ``s`` is a lower bound of the true optimum. ``s`` is the largest power of two for which
the scaled costs of all variables together stay below :data:`COSTS_UP_TO`, so nothing overflows. No
point loses more than ``sum(tops) / s`` of its costs, which is at most ``2**-44 * sum(tops)`` times
the sum of all costs. Integral costs are exact.

*Rows* with integral coefficients stay unchanged. Any other row is scaled in the same way and
rounded so that it only becomes weaker (terms of ``a · x >= l`` up, ``l`` down); bounds therefore
stay valid. The loss is below the feasibility tolerance with which every point is checked afterwards
(:mod:`anabranch_planner.solvers.registry`).

*Continuous variables* are restricted to integers. That loses nothing if some optimum is integral,
which the caller must ensure; otherwise the answer solves the restricted program. The tight
formulation has integral optima: give all variables declared integral (edges that goals share, kept
results, copies) their optimal values. The rest, goal by goal, sends 0 or 1 through an acyclic
network with integer capacities. A broadcast ``b = max(0, f - sum p)`` of an edge is then 0 or that
edge's flow ``f``, so costs are linear in the flow, and the cheapest flow is a shortest path. The
rows over edges that probe one intermediate result keep that path feasible: it adds each alias once,
so it probes no result twice. The paper's formulation has no continuous variables. A variable with a
fractional upper bound is rejected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from anabranch_planner.solvers.interface import Request, Solution, SolveStatus
from anabranch_planner.solvers.program import Program

#: Upper limit of the sum of all scaled costs, because CP-SAT adds in 64 bits.
COSTS_UP_TO = 2.0**45
#: Upper limit of the sum of a row's scaled terms, if the row is not integral.
ROWS_UP_TO = 2.0**40
#: CP-SAT's infinities.
LOWEST, HIGHEST = -(2**63), 2**63 - 1


def solve(request: Request) -> Solution:
    """Solve ``request`` by CP-SAT; continuous variables become integers (see the module)."""
    # Imported here: in a process with HiGHS the import fails.
    from ortools.sat.python import cp_model

    program = request.program
    fractional = [i for i, top in enumerate(program.tops) if not float(top).is_integer()]
    if fractional:
        where = f"variable {fractional[0]} has the top {program.tops[fractional[0]]}"
        return Solution(
            SolveStatus.FAILED, None, -math.inf, 0.0, f"CP-SAT needs integral tops; {where}"
        )
    scale = _scale([c * t for c, t in zip(program.costs, program.tops, strict=True)], COSTS_UP_TO)
    model = cp_model.CpModel()
    _fill(model.proto, program, scale, request.start)
    solver = cp_model.CpSolver()
    solver.parameters.random_seed = request.seed
    solver.parameters.num_workers = request.threads
    # Without interleaving, several workers race, and equal requests may have different solutions.
    solver.parameters.interleave_search = request.threads > 1
    # Flow programs need the full linear relaxation for a proof, not the default level's part.
    solver.parameters.linearization_level = 2
    solver.parameters.relative_gap_limit = request.gap
    solver.parameters.absolute_gap_limit = 0.0
    if request.time_limit is not None:
        solver.parameters.max_time_in_seconds = max(request.time_limit, 0.0)
    ended = solver.solve(model)
    statuses = {
        cp_model.OPTIMAL: SolveStatus.OPTIMAL,
        cp_model.FEASIBLE: SolveStatus.FEASIBLE,
        cp_model.INFEASIBLE: SolveStatus.INFEASIBLE,
        cp_model.UNKNOWN: SolveStatus.NOTHING,
    }
    if ended not in statuses:
        return Solution(SolveStatus.FAILED, None, -math.inf, 0.0, f"CP-SAT: {model.validate()}")
    status = statuses[ended]
    found = status in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE)
    bound = float(solver.response_proto.inner_objective_lower_bound) / scale
    return Solution(
        status=status,
        values=tuple(float(v) for v in solver.response_proto.solution) if found else None,
        bound=program.offset + bound,
        seconds=solver.wall_time,
    )


def _fill(proto: Any, program: Program, scale: float, start: tuple[float, ...] | None) -> None:
    """Write the program into CP-SAT's protocol buffer; CP-SAT's own Python layer is slower."""
    for top in program.tops:
        proto.variables.add().domain.extend([0, int(top)])
    for i in range(program.rows):
        entries = slice(program.starts[i], program.starts[i + 1])
        indices, values = program.indices[entries], program.values[entries]
        for lower, upper in _sides(program.lowers[i], program.uppers[i], values):
            terms, low, high = _integral(indices, values, lower, upper, program.tops)
            row = proto.constraints.add().linear
            row.vars.extend(indices)
            row.coeffs.extend(terms)
            row.domain.extend([low, high])
    costs = [math.floor(c * scale) for c in program.costs]
    proto.objective.vars.extend([i for i, c in enumerate(costs) if c])
    proto.objective.coeffs.extend([c for c in costs if c])
    if start is not None:
        proto.solution_hint.vars.extend(list(range(program.variables)))
        proto.solution_hint.values.extend([round(v) for v in start])


def _sides(lower: float, upper: float, values: Sequence[float]) -> list[tuple[float, float]]:
    """The bounds of a row with integral coefficients; other rows are split in two inequalities."""
    if all(float(v).is_integer() for v in values):
        return [(lower, upper)]
    return [s for s in ((lower, math.inf), (-math.inf, upper)) if s != (-math.inf, math.inf)]


def _integral(
    indices: Sequence[int],
    values: Sequence[float],
    lower: float,
    upper: float,
    tops: Sequence[float],
) -> tuple[list[int], int, int]:
    """An integral row that every integral solution of the given row satisfies, for CP-SAT."""
    if all(float(v).is_integer() for v in values):
        scale = 1.0
        terms = [int(v) for v in values]
    else:
        scale = _scale([v * tops[i] for i, v in zip(indices, values, strict=True)], ROWS_UP_TO)
        up = upper == math.inf
        terms = [math.ceil(v * scale) if up else math.floor(v * scale) for v in values]
    slack = 1e-9 * max(1.0, scale)
    low = LOWEST if lower == -math.inf else math.ceil(lower * scale - slack)
    high = HIGHEST if upper == math.inf else math.floor(upper * scale + slack)
    return terms, low, high


def _scale(terms: Sequence[float], total: float) -> float:
    """The largest power of two that scales costs or rows, ``terms``, to a sum within ``total``."""
    size = sum(abs(t) for t in terms)
    return 1.0 if size == 0 else 2.0 ** math.floor(math.log2(total / size))
