"""Solution of planning problems by general solvers: our program per component, or the paper's."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch_contract.plans.plan import Solver
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.search.bounds.lower_bounds import floor
from anabranch_planner.search.branch import read
from anabranch_planner.search.components import SubProblem, batches, join
from anabranch_planner.search.copies import Kept, decided
from anabranch_planner.search.formulation import formulate, start_values
from anabranch_planner.search.outcome import ComponentPlans, Outcome, SolveSettings, Tally
from anabranch_planner.search.printed.formulation import solve_paper
from anabranch_planner.search.problem import PlanProblem, Sub
from anabranch_planner.search.routes import Routes, finish, first_routing, tree_routes
from anabranch_planner.solvers.deadline import Deadline
from anabranch_planner.solvers.interface import Request, SolveStatus
from anabranch_planner.solvers.registry import opened


def delegate(
    problem: PlanProblem,
    parts: Sequence[SubProblem],
    settings: SolveSettings,
    deadline: Deadline,
    tally: Tally,
) -> ComponentPlans:
    """Solve one integer program per component (small ones together) with a general solver."""
    routes: Routes = {}
    copies: dict[Sub, Kept] = {}
    bound, closed, trouble = 0.0, True, ""
    groups = batches(parts)
    with opened(settings.solver) as ask:
        for number, batch in enumerate(groups):
            part = batch[0] if len(batch) == 1 else join(problem, batch)
            best = first_routing(part.problem)
            made = formulate(part.problem, best.cost)
            tally.add(made)
            left = deadline.left()
            request = Request(
                made.program,
                tuple(start_values(part.problem, made, best)),
                None if left is None else left / (len(groups) - number),
                settings.seed,
                settings.threads,
            )
            solution = ask(request)
            if solution.values is not None:
                found = read(part.problem, made, list(solution.values))
                best = found if found is not None and found.cost < best.cost else best
            done = solution.status is SolveStatus.OPTIMAL
            closed = closed and done
            trouble = trouble or (solution.message if solution.status is SolveStatus.FAILED else "")
            low = floor(part.problem)
            bound += best.cost if done else min(max(solution.bound, low), best.cost)
            routes |= {part.goals[g]: path for g, path in best.routes.items()}
            copies |= decided(part.problem, best.copies)
    return ComponentPlans(routes, copies, bound, closed, trouble)


def solve_as_printed(
    problem: PlanProblem, queries: Sequence[JoinQuery], settings: SolveSettings, deadline: Deadline
) -> Outcome:
    """Solve ``problem`` by the paper's own program (:mod:`.printed.formulation`), for comparison.

    The solver gets the whole problem, without reduction, components or an initial plan.
    """
    known = first_routing(problem)
    if not problem.flows:
        return Outcome(problem, known, known.cost, str(settings.solver), 0, 0, proven=True)
    solver = Solver.HIGHS if settings.solver is Solver.BRANCH else settings.solver
    result = solve_paper(
        problem,
        queries,
        solver=solver,
        deadline=deadline,
        seed=settings.seed,
        threads=settings.threads,
    )
    solution, best = result.solution, known
    if solution.values is not None:
        routes = tree_routes(problem, result.edges, problem.mirs.keys() - set(result.mirs))
        best = min(known, finish(problem, routes), key=lambda r: r.cost)
    done = solution.status is SolveStatus.OPTIMAL
    method = f"{solver} on the formulation as printed"
    if not done:
        method += ": " + (solution.message or "out of time")
    bound = best.cost if done else min(max(solution.bound, floor(problem)), best.cost)
    return Outcome(problem, best, bound, method, result.variables, result.constraints, proven=done)
