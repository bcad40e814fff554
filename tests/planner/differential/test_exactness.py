"""Compare brute force, the tight integer program and the paper's program on random small problems.

``python -m tests.support.oracles.exactness --problems 10000 --jobs 2`` tries many more.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from anabranch_contract.plans.plan import Solver
from anabranch_planner.search.building.builder import build_problem
from anabranch_planner.search.formulation import formulate
from anabranch_planner.search.printed.formulation import formulate_paper
from anabranch_planner.search.routes import route_greedily
from anabranch_planner.solvers.interface import Request, SolveStatus
from anabranch_planner.solvers.registry import CHILDREN, opened
from tests.support.cases.small_problems import small_problem
from tests.support.oracles.exactness import try_problem
from tests.support.scenarios.seeds import mostly_slow


@pytest.mark.parametrize("tens", mostly_slow(range(20), 4))
def test_brute_force_tight_and_paper_have_the_same_optimum(tens: int) -> None:
    complaints = [try_problem(1, 10 * tens + i).complaint for i in range(10)]
    assert complaints == [""] * 10


@pytest.mark.parametrize("solver", CHILDREN)
def test_all_solvers_have_the_same_optimum(solver: Solver) -> None:
    with opened(solver) as ask, opened(Solver.HIGHS) as reference:
        for number in range(15):
            problem = small_problem(f"2:{number}")
            graph = build_problem(problem.queries, problem.model, mir=problem.mir)
            # As in the optimiser: what alone costs more than a known plan is left out.
            known = route_greedily(graph)
            assert known is not None
            tight = formulate(graph, known.cost).program
            paper = formulate_paper(
                problem.queries, problem.model, mir=problem.mir, at_most=known.cost
            ).program
            best = reference(Request(tight))
            # Other solvers take minutes for the paper's program of a large problem.
            for program in [tight, *([paper] if paper.variables < 300 else [])]:
                found = ask(Request(program, time_limit=60.0))
                assert found.status is best.status is SolveStatus.OPTIMAL, (number, found.message)
                assert found.bound == pytest.approx(best.bound, rel=1e-6, abs=1e-6), number


def test_random_problems_are_of_every_kind() -> None:
    problems = [small_problem(f"0:{i}") for i in range(200)]
    queries = [q for p in problems for q in p.queries]
    assert {len(q.labels) for q in queries} == {2, 3, 4}
    assert {p.parallelism for p in problems} == {1, 2, 3, 4}
    assert {(p.objective, p.mir) for p in problems} == {
        (o, m) for o in {p.objective for p in problems} for m in (True, False)
    }
    assert any(len(q.relations) < len(q.labels) for q in queries)
    assert any(0.0 in p.statistics.cardinalities.values() for p in problems)
    assert any(not p.statistics.cardinalities for p in problems)
    pairs = [[(e.left.label, e.right.label) for e in q.predicates] for q in queries]
    assert any(len(set(found)) < len(found) for found in pairs)
    assert any(len(set(p)) == len(q.labels) == 3 for p, q in zip(pairs, queries, strict=True))


def test_the_command_reports_in_json() -> None:
    command = [sys.executable, "-m", "tests.support.oracles.exactness", "--problems", "4", "--json"]
    ended = subprocess.run(
        [*command, "--seed", "3", "--first", "2"], capture_output=True, text=True, check=True
    )
    line = json.loads(ended.stdout)
    assert (line["problems"], line["mismatches"], line["failed"]) == (4, 0, [])
    assert (line["seed"], line["first"]) == (3, 2)
    assert sum(line["objectives"].values()) == 4
