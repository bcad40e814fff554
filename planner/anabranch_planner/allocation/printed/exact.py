"""Linear programs of the continuous model: what greedy allocations are measured by.

Variables are shares of what a path can use at most, and rows are divided by their limit, so that a
solver's tolerances are relative. No cost is negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Solver
from anabranch_planner.allocation.printed.cover import TOLERANCE, refreshed_by, uncoverable
from anabranch_planner.solvers.interface import Request, Status
from anabranch_planner.solvers.program import INFINITY, Program
from anabranch_planner.solvers.registry import solve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anabranch_planner.allocation.printed.paths import InputPath


def exact_cover(paths: Sequence[InputPath], rates: Mapping[str, float]) -> dict[str, float]:
    """The least resources that refresh all states (Eq. 11, 12), in probes per second by path.

    Raises:
        PlannerError: all paths together can't refresh a state (``uncoverable-state``), or the
            solver breaks (``no-solution``).
    """
    gains = [refreshed_by(path) for path in paths]
    units = [
        min(path.most, max((rates.get(s, 0.0) / g for s, g in gain.items() if g), default=0.0))
        for path, gain in zip(paths, gains, strict=True)
    ]
    program = Program()
    each = [program.variable(unit, integer=False) for unit in units]
    _cover_rows(program, each, units, gains, rates)
    found = _solved(program)
    if found is None:
        raise uncoverable(min(rates))
    return {path.name: unit * x for path, unit, x in zip(paths, units, found, strict=True)}


def exact_throughput(
    paths: Sequence[InputPath], mu: float, rates: Mapping[str, float]
) -> dict[str, float] | None:
    """The resources that bring the most results among those that refresh all states, by path.

    Algorithm 1 pays for the cheapest cover first and divides the rest; this decides on both at
    once. None where ``mu``, a positive number, does not suffice for any cover.

    Raises:
        PlannerError: the solver breaks (``no-solution``).
    """
    gains = [refreshed_by(path) for path in paths]
    units = [min(path.most, mu) for path in paths]
    best = max(path.productivity for path in paths)
    program = Program()
    # What is missed, compared with the best productivity for all probes.
    each = [
        program.variable((best - path.productivity) * unit, integer=False)
        for path, unit in zip(paths, units, strict=True)
    ]
    unused = program.variable(best * mu, integer=False)
    program.row(1.0, 1.0, [*each, unused], [*(unit / mu for unit in units), 1.0])
    _cover_rows(program, each, units, gains, rates)
    found = _solved(program)
    if found is None:
        return None
    return {path.name: unit * x for path, unit, x in zip(paths, units, found[:-1], strict=True)}


def _cover_rows(
    program: Program,
    each: Sequence[int],
    units: Sequence[float],
    gains: Sequence[Mapping[str, float]],
    rates: Mapping[str, float],
) -> None:
    """A row per state that has to be refreshed (Eq. 12)."""
    for state, rate in rates.items():
        if rate > 0:
            parts = [unit * gain.get(state, 0.0) for unit, gain in zip(units, gains, strict=True)]
            # A rate that takes all that there is may be missed by rounding.
            program.row(1.0 - TOLERANCE, INFINITY, each, [part / rate for part in parts])


def _solved(program: Program) -> tuple[float, ...] | None:
    """The optimum; None if there is none."""
    answer = solve(Solver.HIGHS, Request(program))
    if answer.status is Status.INFEASIBLE:
        return None
    if answer.status is not Status.OPTIMAL or answer.values is None:
        raise PlannerError(
            "no-solution",
            f"{Solver.HIGHS} ended with {answer.status}: {answer.message}",
            field="solver",
            remedy="use the greedy allocation, which needs no solver",
        )
    return answer.values
