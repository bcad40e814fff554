"""Settings and outcome of solving a problem."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch_contract.plans.plan import Solver
from anabranch_planner.search.copies import Kept
from anabranch_planner.search.formulation import Variables
from anabranch_planner.search.problem import PlanProblem, Sub
from anabranch_planner.search.routes import Routes, Routing


@dataclass(frozen=True, slots=True)
class SolveSettings:
    """Settings of a solve.

    Attributes:
        max_flows: above it no program of the whole is built, only of neighbourhoods.
        as_a_whole: build it whatever its size and the time: the problem is a neighbourhood.
    """

    solver: Solver
    seed: int
    threads: int
    max_flows: int
    as_a_whole: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of solving one problem.

    Attributes:
        method: the solver's name; where the plan is not proven optimal, why.
        proven: whether ``bound`` is the plan's cost because nothing is cheaper.
    """

    problem: PlanProblem
    routing: Routing
    bound: float
    method: str
    variables: int
    constraints: int
    proven: bool = False


@dataclass(slots=True)
class Tally:
    """Sizes of the programs that were built."""

    variables: int = 0
    rows: int = 0

    def add(self, made: Variables) -> None:
        """Count one program more."""
        self.variables += made.program.variables
        self.rows += made.program.rows


@dataclass(frozen=True, slots=True)
class ComponentPlans:
    """The best plan of some components, the sum of their bounds, and whether all are optimal.

    ``copies`` lists only copies that do not follow from the routes; ``trouble`` is the message of a
    failed solver, or "".
    """

    routes: Routes
    copies: dict[Sub, Kept]
    bound: float
    closed: bool
    trouble: str = ""
