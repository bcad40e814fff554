"""Comparison of optima: brute force, the tight program and the paper's program, on many random
problems.

``python -m tests.support.oracles.exactness --problems 10000 --seed 0 --jobs 2 --json`` tries that
many problems (:func:`tests.support.cases.small_problems.small_problem`), reports on standard error
and, with ``--json``, prints one line of JSON. The exit code is 1 if optima differ. ``--first NUMBER
--problems 1`` with the same seed repeats a single problem.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from anabranch_contract.plans.plan import Solver
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.search.building.builder import build_problem
from anabranch_planner.search.printed.formulation import solve_paper
from anabranch_planner.search.routes import finish, route_greedily, tree_routes
from anabranch_planner.solvers.interface import SolveStatus
from tests.support.cases.small_problems import SmallProblem, small_problem
from tests.support.oracles.brute_force import cheapest

#: Relative difference up to which costs count as equal.
ROUNDING = 1e-6
#: Number of problems per task of a worker process.
CHUNK = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one problem.

    Attributes:
        complaint: the difference between optima; empty if there is none.
        seconds: times of brute force, of the tight and of the paper's program.
    """

    number: int
    complaint: str
    objective: str
    seconds: tuple[float, float, float]


def try_problem(seed: int, number: int, solver: Solver = Solver.BRANCH) -> Outcome:
    """Compare the optima of problem ``number`` of ``seed``; ``solver`` is for the tight program."""
    problem = small_problem(f"{seed}:{number}")
    complaint, seconds = "", (0.0, 0.0, 0.0)
    try:
        complaint, seconds = _compare(problem, solver)
    except Exception as cause:  # noqa: BLE001 - one more kind of failure, to be reported like others
        complaint = f"{type(cause).__name__}: {cause}"
    if complaint:
        complaint = f"{complaint} [{problem}]"
    return Outcome(number, complaint, str(problem.objective), seconds)


def _compare(problem: SmallProblem, solver: Solver) -> tuple[str, tuple[float, float, float]]:
    began = time.perf_counter()
    tight = tight_cost(problem, solver)
    then = time.perf_counter()
    paper = paper_cost(problem)
    later = time.perf_counter()
    least = min(tight, paper)
    brute = cheapest(problem.queries, problem.model, mir=problem.mir, at_most=least)
    ended = time.perf_counter()
    differ = [not same(tight, brute), not same(paper, brute)]
    complaint = f"brute force {brute!r}, tight {tight!r}, paper {paper!r}" if any(differ) else ""
    return complaint, (ended - later, then - began, later - then)


def tight_cost(problem: SmallProblem, solver: Solver = Solver.BRANCH) -> float:
    """Return the optimum of the tight program, whose plan is validated."""
    queries = problem.queries
    plan = optimise(
        queries,
        problem.statistics,
        Options(
            objective=problem.objective,
            parallelism=problem.parallelism,
            mir=problem.mir,
            solver=solver,
        ),
    )
    validate_plan(plan, queries)
    again = cost_of(plan, queries, problem.statistics, parallelism=problem.parallelism)
    if not same(plan.cost, again):
        raise AssertionError(f"the plan says {plan.cost!r} and costs {again!r}")
    if plan.gap > ROUNDING:
        raise AssertionError(f"the plan is not proven optimal: gap {plan.gap!r}, {plan.method}")
    return plan.cost


def paper_cost(problem: SmallProblem, solver: Solver = Solver.HIGHS) -> float:
    """Return the optimum of the paper's program, after comparison with the sum of its steps."""
    graph = build_problem(problem.queries, problem.model, mir=problem.mir)
    found = solve_paper(graph, problem.queries, solver=solver, known=route_greedily(graph))
    if found.solution.status is not SolveStatus.OPTIMAL:
        raise AssertionError(f"{found.solution.status}: {found.solution.message}")
    barred = graph.mirs.keys() - set(found.mirs)
    routing = finish(graph, tree_routes(graph, found.edges, barred))
    bound = found.solution.bound
    # A solution may include an unnecessary step if it costs less than the solver's tolerance.
    if routing.cost > bound and not same(routing.cost, bound):
        raise AssertionError(f"the paper's optimum is {bound!r}, its orders cost {routing.cost!r}")
    return routing.cost


def same(one: float, other: float) -> bool:
    """Whether two costs are equal up to rounding."""
    return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=1e-9)


def _try_several(seed: int, numbers: range, solver: Solver) -> list[Outcome]:
    return [try_problem(seed, number, solver) for number in numbers]


def _outcomes(seed: int, numbers: range, jobs: int, solver: Solver) -> Iterable[list[Outcome]]:
    chunks = [numbers[i : i + CHUNK] for i in range(0, len(numbers), CHUNK)]
    if jobs == 1:
        yield from (_try_several(seed, chunk, solver) for chunk in chunks)
        return
    # Processes are spawned, since a fork would copy the threads of the parent's solver.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        tasks = [pool.submit(_try_several, seed, chunk, solver) for chunk in chunks]
        for task in as_completed(tasks):
            yield task.result()


def main(
    problems: Annotated[int, typer.Option(min=1, help="How many problems to try.")] = 500,
    seed: Annotated[int, typer.Option(help="Which family of problems.")] = 0,
    first: Annotated[int, typer.Option(min=0, help="Number of the first problem.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes to use.")] = 1,
    solver: Annotated[Solver, typer.Option(help="Solver of the tight program.")] = Solver.BRANCH,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Compare brute force with the tight and the paper's program."""
    console = Console(stderr=True)
    began = time.perf_counter()
    outcomes: list[Outcome] = []
    with Progress(console=console) as progress:
        task = progress.add_task("problems", total=problems)
        for some in _outcomes(seed, range(first, first + problems), jobs, solver):
            outcomes += some
            progress.advance(task, len(some))
            for outcome in some:
                if outcome.complaint:
                    progress.console.print(f"{outcome.number}: {outcome.complaint}", markup=False)
    failed = sorted((o for o in outcomes if o.complaint), key=lambda o: o.number)
    spent = [sum(o.seconds[i] for o in outcomes) for i in range(3)]
    names = ("brute_force", "tight", "paper")
    console.print(
        f"{len(outcomes)} problems, {len(failed)} failed; seconds: "
        + ", ".join(f"{n} {s:.1f}" for n, s in zip(names, spent, strict=True))
    )
    if as_json:
        line = {
            "problems": len(outcomes),
            "mismatches": len(failed),
            "objectives": dict(sorted(Counter(o.objective for o in outcomes).items())),
            "solver": str(solver),
            "seed": seed,
            "first": first,
            "failed": [{"problem": o.number, "complaint": o.complaint} for o in failed],
            "seconds": dict(zip(names, (round(s, 1) for s in spent), strict=True)),
            "elapsed": round(time.perf_counter() - began, 1),
        }
        sys.stdout.write(json.dumps(line) + "\n")
    raise typer.Exit(1 if failed else 0)


if __name__ == "__main__":
    typer.run(main)
