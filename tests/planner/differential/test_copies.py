"""Compare proven optima with a plain integer program's, for problems whose optimum depends on the
choice of stores' copies.

The plain program (:mod:`tests.support.oracles.plain_program`) lacks every constraint that tightens
the planner's own relaxation. Brute force is compared on smaller problems with charged copies.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from anabranch_contract.plans.plan import Solver
from anabranch_contract.queries.joins import AttrRef
from anabranch_planner.cost.exchange import ExchangeModel
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.search.anytime import solve_problem
from anabranch_planner.search.branch import begin
from anabranch_planner.search.building.builder import build_problem
from anabranch_planner.search.demands import Limits, demand
from anabranch_planner.search.formulation import formulate, start_values
from anabranch_planner.search.outcome import SolveSettings
from anabranch_planner.search.problem import PlanProblem, Sub
from anabranch_planner.search.routes import first_routing, route_greedily
from anabranch_planner.solvers.deadline import Deadline
from tests.support.cases.queries import given_statistics
from tests.support.cases.small_problems import any_query, small_problem
from tests.support.oracles.brute_force import cheapest
from tests.support.oracles.exactness import same, tight_cost
from tests.support.oracles.plain_program import optimum
from tests.support.scenarios.seeds import mostly_slow

PARALLELISMS = (2, 3, 4, 8, 16)


def drawn(seed: int, parallelism: int, hosts: int = 1) -> PlanProblem:
    """Return random queries of up to five labels that overlap, some with a relation that occurs
    twice.

    Rates are either all the same, as in the benchmarks, where ties abound, or random.
    """
    rng = Random(f"copies {seed}")
    sizes = rng.choice([(3, 3, 3, 3), (3, 3, 4), (3, 4, 4), (3, 3, 3, 4), (5,)])
    queries = [any_query(rng, f"q{i}", size) for i, size in enumerate(sizes)]
    if rng.random() < 0.4:
        statistics = given_statistics(default=100.0, selectivity_default=0.01)
    else:
        rates = {name: rng.choice([10.0, 60.0, 100.0, 300.0]) for name in "RSTUV"}
        distincts = {(name, a): rng.uniform(5, 80) for name in "RSTUV" for a in "abc"}
        statistics = given_statistics(cardinalities=rates, distincts=distincts)
    statistics = replace(statistics, exchange=ExchangeModel(hosts))
    model = CostModel(statistics, parallelism=parallelism, bounds=LoosestBounds(queries))
    return build_problem(queries, model)


def proven(problem: PlanProblem) -> float:
    """Return the cost of the plan that the planner proves to be optimal."""
    found = solve_problem(problem, SolveSettings(Solver.BRANCH, 0, 1, 10**6), Deadline())
    assert found.proven, found.method
    assert found.bound == found.routing.cost
    return found.routing.cost


@pytest.mark.parametrize("parallelism", PARALLELISMS)
@pytest.mark.parametrize("seed", mostly_slow(range(10), 3))
def test_proven_optima_are_those_of_a_plain_program(seed: int, parallelism: int) -> None:
    problem = drawn(100 * parallelism + seed, parallelism)
    assert proven(problem) == pytest.approx(optimum(problem), rel=1e-6)


@pytest.mark.parametrize("hosts", [2, 3, 16])
@pytest.mark.parametrize("seed", mostly_slow(range(10), 3))
def test_so_are_they_on_several_hosts(seed: int, hosts: int) -> None:
    problem = drawn(7 * hosts + seed, PARALLELISMS[seed % 5], hosts)
    assert proven(problem) == pytest.approx(optimum(problem), rel=1e-6)


@pytest.mark.parametrize("seed", mostly_slow(range(10), 5))
def test_so_are_they_within_limits(seed: int) -> None:
    problem = drawn(seed, PARALLELISMS[seed % 5])
    assert proven(demanded := demand(problem, Limits(copies=1 + seed % 2), None)) == pytest.approx(
        optimum(demanded), rel=1e-6
    )
    sizes = demand(problem, Limits(memory=1e12), None).bytes
    least = sum(sizes[store] for store in problem.required)
    demanded = demand(problem, Limits(memory=1.3 * least), None)
    assert proven(demanded) == pytest.approx(optimum(demanded), rel=1e-6)


@pytest.mark.parametrize("seed", mostly_slow(range(10), 5))
def test_so_are_they_where_changes_are_charged(seed: int) -> None:
    problem = drawn(seed, PARALLELISMS[seed % 5])
    rng, graph = Random(seed), problem.graph
    steps = {e: 0.3 * c for e, c in enumerate(graph.cost) if rng.random() < 0.5}
    copies: dict[tuple[Sub, AttrRef | None], float] = {
        (store, attribute): 0.3 * problem.inserts[store]
        for store, attributes in problem.partitions.items()
        for attribute in attributes
        if rng.random() < 0.5
    }
    charged = replace(problem, extra_steps=steps, extra_copies=copies)
    assert proven(charged) == pytest.approx(optimum(charged), rel=1e-6)


@pytest.mark.parametrize("tens", mostly_slow(range(6)))
def test_brute_force_agrees_on_many_partitions(tens: int) -> None:
    for number in range(10 * tens, 10 * tens + 10):
        for parallelism in (2, 5, 16):
            problem = replace(small_problem(f"copies:{number}"), parallelism=parallelism)
            tight = tight_cost(problem)
            brute = cheapest(problem.queries, problem.model, mir=problem.mir, at_most=tight)
            assert same(tight, brute), (number, parallelism, tight, brute)


@pytest.mark.parametrize("seed", range(15))
def test_no_row_excludes_a_plan(seed: int) -> None:
    """Constraints of the formulation and cuts hold for every plan, whichever intermediate results
    (MIRs) it keeps.
    """
    problem = drawn(seed, PARALLELISMS[seed % 5])
    search = begin(problem, first_routing(problem), Deadline(), 0, 0.0)
    program, rng = search.made.program, Random(seed)
    for _ in range(20):
        hints = [rng.random() for _ in problem.graph.cost]
        kept = [m for m in problem.mirs if rng.random() < 0.4]
        plan = route_greedily(problem, kept, hints=hints)
        assert plan is not None
        point = start_values(problem, search.made, plan)
        for row in range(program.rows):
            entries = range(program.starts[row], program.starts[row + 1])
            activity = sum(program.values[k] * point[program.indices[k]] for k in entries)
            assert program.lowers[row] - 1e-9 <= activity <= program.uppers[row] + 1e-9
        cost = sum(c * v for c, v in zip(program.costs, point, strict=True)) + program.offset
        assert cost <= plan.cost * (1 + 1e-9) or any(
            v and not top for v, top in zip(point, program.tops, strict=True)
        )


def test_there_are_cuts_among_them() -> None:
    """Check that some constraints are cuts; otherwise the test above would not test cuts."""
    added = 0
    for seed in range(15):
        problem = drawn(seed, PARALLELISMS[seed % 5])
        known = first_routing(problem)
        search = begin(problem, known, Deadline(), 0, 0.0)
        added += search.made.program.rows - formulate(problem, known.cost).program.rows
    assert added > 20


@pytest.mark.parametrize("seed", range(4))
def test_equal_problems_have_equal_plans(seed: int) -> None:
    settings = SolveSettings(Solver.BRANCH, 0, 1, 10**6)
    one, other = (solve_problem(drawn(seed, 4), settings, Deadline()) for _ in range(2))
    assert one.routing == other.routing
