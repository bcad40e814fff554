"""Requests to solvers and their solutions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from anabranch_planner.solvers.program import Program


class SolveStatus(StrEnum):
    """The end of a solve.

    ``FEASIBLE``: a point, not proven optimal; ``NOTHING``: the limit passed without a point;
    ``FAILED``: the solver broke, see :attr:`Solution.message`.
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    NOTHING = "nothing"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Request:
    """One program to solve.

    Attributes:
        start: a point to begin from, feasible as far as the caller knows; or None.
        time_limit: seconds for the solver; None is no limit.
        seed: of its tie-breaking. threads: how many it may use. Equal requests give equal
            solutions unless the limit strikes.
        gap: relative gap at which it may stop.
        nodes: nodes of its search tree after which it may stop; None is no limit. Solvers
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
    """The result of a solve.

    Attributes:
        values: the best point; None unless the status is optimal or feasible. Integral
            variables are within 1e-6 of an integer.
        bound: a proven lower bound of the objective, offset included (``-inf``: none).
        seconds: the time that the solver says it took.
    """

    status: SolveStatus
    values: tuple[float, ...] | None
    bound: float
    seconds: float
    message: str = ""
