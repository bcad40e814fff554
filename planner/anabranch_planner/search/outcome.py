"""Settings and outcome of solving a planning problem."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch_contract.plans.plan import Solver
from anabranch_planner.search.copies import Kept
from anabranch_planner.search.formulation import Variables
from anabranch_planner.search.problem import PlanProblem, Sub
from anabranch_planner.search.routes import Routes, Routing


@dataclass(frozen=True, slots=True)
class SolveSettings:
    """Settings for solving a planning problem.

    Attributes:
        max_flows: number of flow variables above which only a few queries are solved at a time.
        as_a_whole: whether to build a single integer program, whatever its size and the time left.
    """

    solver: Solver
    seed: int
    threads: int
    max_flows: int
    as_a_whole: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of solving one planning problem.

    Attributes:
        method: the solver's name; if the plan is not proven optimal, the reason.
        proven: whether the plan is proven optimal, so that ``bound`` equals its cost.
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
    """Total numbers of variables and rows of the integer programs built so far."""

    variables: int = 0
    rows: int = 0

    def add(self, made: Variables) -> None:
        """Count the variables and rows of one integer program."""
        self.variables += made.program.variables
        self.rows += made.program.rows


@dataclass(frozen=True, slots=True)
class ComponentPlans:
    """Best plan of some components, sum of their lower bounds, and whether the plan is optimal.

    ``copies`` lists only stores whose copies do not follow from the routes. ``trouble`` is the
    message of a failed solver, or "".
    """

    routes: Routes
    copies: dict[Sub, Kept]
    bound: float
    closed: bool
    trouble: str = ""
