"""Requests to solvers of integer programs, and their solutions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from anabranch_planner.solvers.program import Program


class SolveStatus(StrEnum):
    """Outcome of solving an integer program.

    ``FEASIBLE``: a point that is not proven optimal; ``NOTHING``: the time limit passed without a
    point; ``FAILED``: the solver failed, see :attr:`Solution.message`.
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    NOTHING = "nothing"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Request:
    """A program to solve, and limits; equal requests have equal solutions unless time runs out.

    Attributes:
        start: an initial point, believed to be feasible; or None.
        time_limit: seconds for the solver; None: no limit.
        seed: seed of the solver's tie-breaking.
        threads: maximum number of threads.
        gap: relative gap at which the solver may stop.
        nodes: nodes of the search tree after which the solver may stop; None: no limit. Solvers
            without such a limit ignore it.
    """

    program: Program
    start: tuple[float, ...] | None = None
    time_limit: float | None = None
    seed: int = 0
    threads: int = 1
    gap: float = 1e-9
    nodes: int | None = None


@dataclass(frozen=True, slots=True)
class Solution:
    """The result of a solver for one request.

    Attributes:
        values: the best point, one value per variable; None unless the status is optimal or
            feasible. Integral variables are within 1e-6 of an integer.
        bound: a proven lower bound of the objective, offset included (``-inf``: none).
        seconds: solving time reported by the solver.
    """

    status: SolveStatus
    values: tuple[float, ...] | None
    bound: float
    seconds: float
    message: str = ""
