"""The figures of docs/planner.md: ``python scripts/planner_figures.py bounds|solvers [--limit S]``.

``bounds`` compares root relaxations (of the CLASH paper's program, and of our tight one without and
with cuts) with the best plan found in 30 seconds, marked ``≤`` if it is not proven optimal.
``solvers`` runs every solver on the same tight programs, and prints the seconds to a proof, or the
gap at the time limit. Problems are ``natural(SEED, relations=..., count=..., size=...)``. Bounds
and optima are reproducible; times depend on the machine.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Objective, Solver
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.search.anytime import solve_problem
from anabranch_planner.search.bounds.lower_bounds import floor
from anabranch_planner.search.bounds.reduce import drop_unprofitable
from anabranch_planner.search.branch import advance, begin
from anabranch_planner.search.building.builder import build_problem
from anabranch_planner.search.components import split
from anabranch_planner.search.formulation import formulate
from anabranch_planner.search.outcome import SolveSettings
from anabranch_planner.search.printed.formulation import formulate_paper
from anabranch_planner.search.problem import PlanProblem
from anabranch_planner.search.routes import first_routing
from anabranch_planner.solvers.deadline import Deadline
from anabranch_planner.solvers.interface import Request
from anabranch_planner.solvers.program import Program
from anabranch_planner.solvers.registry import opened
from anabranch_planner.solvers.relaxation import Relaxation
from benchmarks.planner.random_queries import natural


@dataclass(frozen=True, slots=True)
class Case:
    """A random problem of the kind ``natural`` under an objective.

    The objective ``paper`` is used without partitioning, where it is equivalent and the paper's
    program is smallest.
    """

    relations: int
    count: int
    size: int
    objective: Objective = Objective.TUPLES
    mir: bool = True
    seed: int = 1
    parallelism: int = 4

    @property
    def name(self) -> str:
        """Columns of the table that identify the case."""
        kept = "" if self.mir else ", no MIRs"
        shape = f"{self.relations} × {self.count} × {self.size}"
        number = "1 way" if self.parallelism == 1 else f"{self.parallelism} ways"
        ways = f", {number}" if self.partitioning else ""
        return f"{shape}, seed {self.seed} | {self.objective}{ways}{kept}"

    @property
    def partitioning(self) -> bool:
        """Whether stores are partitioned in this case."""
        return self.objective is Objective.TUPLES

    def drawn(self) -> tuple[tuple[JoinQuery, ...], Statistics]:
        """Draw the queries and statistics."""
        return natural(self.seed, relations=self.relations, count=self.count, size=self.size)

    def model(self, queries: Sequence[JoinQuery], statistics: Statistics) -> CostModel:
        """Return the cost model for the case."""
        return CostModel(
            statistics,
            objective=self.objective,
            parallelism=self.parallelism,
            partitioning=self.partitioning,
            bounds=LoosestBounds(queries),
        )

    def optimum(self) -> tuple[float, bool, float]:
        """Return the cost of the best plan, whether it is proven, and the seconds of the search."""
        queries, statistics = self.drawn()
        began = time.perf_counter()
        plan = optimise(
            queries,
            statistics,
            Options(
                objective=self.objective,
                parallelism=self.parallelism,
                partitioning=self.partitioning,
                mir=self.mir,
                deadline=Deadline(time.perf_counter, seconds=30.0),
            ),
        )
        return plan.cost, plan.gap <= 1e-6, time.perf_counter() - began


BOUNDS = (
    Case(100, 100, 3, Objective.PAPER),
    Case(100, 10, 4, Objective.PAPER),
    Case(100, 10, 5, Objective.PAPER, mir=False),
    Case(100, 100, 3, parallelism=1),
    Case(100, 10, 4, parallelism=1),
    Case(100, 10, 5, seed=2, parallelism=1),
    Case(100, 30, 5, parallelism=1),
    Case(100, 100, 3),
    Case(100, 10, 4),
    Case(100, 10, 5, seed=2),
    Case(100, 30, 5),
)
SOLVERS = (
    Case(100, 100, 3, parallelism=1),
    Case(100, 10, 4, parallelism=1),
    Case(100, 100, 4, parallelism=1),
    Case(100, 10, 5, seed=2, parallelism=1),
    Case(100, 100, 3),
    Case(100, 10, 4),
    Case(100, 100, 4),
    Case(100, 10, 5, seed=2),
)


GENERAL = (Solver.HIGHS, Solver.CP_SAT, Solver.MATHOPT, Solver.CBC)
#: Relative gap up to which a plan counts as proven optimal.
PROVEN = 1e-6


def main() -> None:
    """Print the table named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=["bounds", "solvers"])
    parser.add_argument("--limit", type=float, default=60.0, help="seconds per solver")
    options = parser.parse_args()
    # Warm-up: the first program loads HiGHS.
    optimise(*natural(0, relations=10, count=2, size=3), Options())
    lines = bounds_table() if options.table == "bounds" else solvers_table(options.limit)
    for line in lines:
        sys.stdout.write(f"| {line} |\n")
        sys.stdout.flush()


def bounds_table() -> Iterator[str]:
    """Return the lines of the table of bounds."""
    yield "problem | objective | best plan | printed | of it | tight | gap | with cuts | gap"
    yield "---|---|---:|---:|---:|---:|---:|---:|---:"
    for case in BOUNDS:
        yield f"{case.name} | {bounds(case)}"


def solvers_table(limit: float) -> Iterator[str]:
    """Return the lines of the table of solvers."""
    general = " | ".join(GENERAL)
    yield f"problem | objective | branch | branching alone | nodes | {general}"
    yield "---|---|---:|---:|---:" + "|---:" * len(GENERAL)
    for case in SOLVERS:
        yield f"{case.name} | " + " | ".join(solved(case, limit))


def bounds(case: Case) -> str:
    """Return the optimum and the root bounds of both programs, and of the tight one with cuts."""
    queries, statistics = case.drawn()
    model = case.model(queries, statistics)
    best, proven, _ = case.optimum()
    try:
        printed = root(formulate_paper(queries, model, mir=case.mir).program)
        share = f"{printed:,.0f} | {printed / best:.1%}"
    except PlannerError as cause:
        share = f"too large: {str(cause)[:60]} | "
    whole = drop_unprofitable(build_problem(queries, model, mir=case.mir))
    tight = root(formulate(whole).program)
    cut = begin(whole, first_routing(whole), Deadline(), 0, floor(whole)).root_bound
    sign = "" if proven else "≤ "
    return (
        f"{sign}{best:,.1f} | {share} | {tight:,.1f} | {max(1 - tight / best, 0.0):.2%} | "
        f"{cut:,.1f} | {max(1 - cut / best, 0.0):.2%}"
    )


def root(program: Program) -> float:
    """Return the optimum of the linear relaxation of ``program``."""
    relaxation = Relaxation(program)
    relaxation.solve({})
    return relaxation.objective


def solved(case: Case, limit: float) -> list[str]:
    """Return every solver's figures for the components of the reduced problem."""
    queries, statistics = case.drawn()
    model = case.model(queries, statistics)
    whole = drop_unprofitable(build_problem(queries, model, mir=case.mir))
    parts = [part.problem for part in split(whole)]
    general = [asked(parts, solver, limit) for solver in GENERAL]
    return [ours(whole, limit), *branching(parts, limit), *general]


def ended(seconds: float, cost: float, bound: float) -> str:
    """Return the seconds to a proof, or else the remaining gap, as text."""
    gap = max(cost - bound, 0.0) / cost
    return f"{seconds:.2f}" if gap <= PROVEN else f"gap {gap:.2%}"


def ours(problem: PlanProblem, limit: float) -> str:
    """Return the figures of the default solver with all its passes."""
    began = time.perf_counter()
    deadline = Deadline(time.perf_counter, seconds=limit)
    found = solve_problem(problem, SolveSettings(Solver.BRANCH, 0, 1, problem.flows), deadline)
    return ended(time.perf_counter() - began, found.routing.cost, found.bound)


def branching(parts: Sequence[PlanProblem], limit: float) -> tuple[str, str]:
    """Return figures of our search alone, without neighbourhood search and general solvers."""
    began = time.perf_counter()
    deadline = Deadline(time.perf_counter, seconds=limit)
    cost = bound = 0.0
    nodes = 0
    for part in parts:
        search = begin(part, first_routing(part), deadline, 0, floor(part))
        advance(search, deadline)
        nodes += search.nodes
        cost += search.best.cost
        bound += search.bound
    return ended(time.perf_counter() - began, cost, bound), str(nodes)


def asked(parts: Sequence[PlanProblem], solver: Solver, limit: float) -> str:
    """Return the figures of a general solver on the same programs."""
    cost = bound = 0.0
    with opened(solver) as ask:
        ask(Request(one()))
        began = time.perf_counter()
        for part in parts:
            known = first_routing(part)
            program = formulate(part, known.cost).program
            left = limit - (time.perf_counter() - began)
            found = ask(Request(program, time_limit=max(left, 0.0)))
            best = known.cost
            if found.values is not None:
                priced = zip(program.costs, found.values, strict=True)
                best = min(best, program.offset + sum(c * v for c, v in priced))
            cost += best
            bound += min(max(found.bound, floor(part)), best)
        seconds = time.perf_counter() - began
    return ended(seconds, cost, bound)


def one() -> Program:
    """Return a program to load a solver with."""
    program = Program()
    program.variable(1.0, integer=True)
    return program


if __name__ == "__main__":
    main()
