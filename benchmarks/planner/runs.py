"""One timed planning run: the problem, the outcome, and summaries over runs of equal cases."""

from __future__ import annotations

import gc
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Formulation, Objective, Optimizer, Plan, Solver
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.validate import validate_plan
from anabranch_planner.passes import optimise
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_planner.solvers.deadline import Deadline
from benchmarks.papers.clash.environment import natural_problem, tree_problem
from benchmarks.planner.random_queries import join_queries, statistics_of
from benchmarks.report.figures import Spread

#: Relative gap up to which a plan counts as proven optimal.
PROVEN_GAP = 1e-6
#: Phases in the order of the report: the planner's phases, the ruleset, other time.
PHASES = ("build", "search", "reduce", "solve", "assemble", "ruleset", "other")
#: Objectives that count tuples, as in the paper.
TUPLES = (Objective.TUPLES, Objective.PAPER)
_LONG = DataType(TypeKind.BIGINT)


class Environment(StrEnum):
    """The environments of :mod:`benchmarks.papers.clash.environment`."""

    NATURAL = "natural"
    TREE = "tree"


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a random problem: number of relations, number of queries, relations per query.

    >>> str(Shape(100, 10, 4))
    '100×10×4'
    """

    relations: int
    queries: int
    size: int

    def __str__(self) -> str:
        return f"{self.relations}×{self.queries}×{self.size}"


@dataclass(frozen=True, slots=True)
class Case:
    """A random problem and how to plan it; ``deadline``: the optimiser's, in seconds."""

    shape: Shape
    seed: int
    environment: Environment = Environment.NATURAL
    parallelism: int = 1
    objective: Objective = Objective.TUPLES
    optimizer: Optimizer = Optimizer.CLASH
    formulation: Formulation = Formulation.TIGHT
    solver: Solver = Solver.BRANCH
    threads: int = 1
    deadline: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The case as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, doc: dict[str, Any]) -> Case:
        """Return the case that ``doc`` represents."""
        read: dict[str, Callable[[Any], Any]] = {
            "shape": lambda shape: Shape(**shape),
            "environment": Environment,
            "objective": Objective,
            "optimizer": Optimizer,
            "formulation": Formulation,
            "solver": Solver,
        }
        named: dict[str, Any] = {n: read[n](v) if n in read else v for n, v in doc.items()}
        return cls(**named)


@dataclass(frozen=True, slots=True)
class Run:
    """Outcome of one case.

    Attributes:
        seconds, cpu: wall and CPU seconds of the whole run (including child processes of solvers).
        phases: phase -> seconds.
        probes: cost of the probes alone.
        refused: code of the planner's error if there is no plan; then all figures of the plan are
            0.
    """

    seconds: float
    cpu: float
    phases: dict[str, float]
    queries: int
    cost: float = 0.0
    probes: float = 0.0
    gap: float = 1.0
    candidates: int = 0
    variables: int = 0
    constraints: int = 0
    method: str = ""
    refused: str = ""

    @property
    def proven(self) -> bool:
        """Whether the plan is proven optimal."""
        return not self.refused and self.gap <= PROVEN_GAP

    @property
    def planning(self) -> float:
        """Seconds without the ruleset: candidates, building, solving, reading the solution."""
        return self.seconds - self.phases.get("ruleset", 0.0)


class WrongPlanError(Exception):
    """Plans that must cost the same do not, or a joint plan costs more than individual plans."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The problem of a case, as parsed."""

    queries: Sequence[JoinQuery]
    statistics: Statistics
    streams: Sequence[Stream]


def draw(shape: Shape, seed: int, environment: Environment = Environment.NATURAL) -> Drawn:
    """Draw the random problem of a case."""
    make = natural_problem if environment is Environment.NATURAL else tree_problem
    problem = make(seed, relations=shape.relations, count=shape.queries, size=shape.size)
    return Drawn(
        join_queries(problem),
        statistics_of(problem),
        [
            Stream(StreamName(name), tuple((column, _LONG) for column in columns))
            for name, columns in problem.columns.items()
        ],
    )


def warm_up(cases: Iterable[Case]) -> None:
    """Load the code that the cases need: plan a small problem by each solver and formulation."""
    small = Shape(5, 3, 3)
    for case in dict.fromkeys(replace(c, shape=small, seed=0, deadline=None) for c in cases):
        run(case)


def run(case: Case) -> Run:
    """Draw the problem of a case, plan it, and return the timed run.

    Raises:
        PlannerError: the plan is invalid, or can't be compiled into a ruleset.
    """
    drawn = draw(case.shape, case.seed, case.environment)
    return timed(case, drawn)


def timed(case: Case, drawn: Drawn) -> Run:
    """Plan ``drawn`` with the options of the case, ignoring its shape, and time it."""
    gc.collect()
    began, cpu = time.perf_counter(), cpu_seconds()
    deadline = Deadline(time.perf_counter, seconds=case.deadline)
    plan: Plan | None = None
    refused = ""
    try:
        plan = optimise(
            drawn.queries,
            drawn.statistics,
            Options(
                optimizer=case.optimizer,
                objective=case.objective,
                formulation=case.formulation,
                solver=case.solver,
                parallelism=case.parallelism,
                deadline=deadline,
                seed=case.seed,
                threads=case.threads,
            ),
        )
    except PlannerError as error:
        refused = error.code
    else:
        with deadline.phase("ruleset"):
            compile_validated(plan, drawn, case.parallelism)
    seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu
    if plan is None:
        phases = phases_of(deadline, seconds)
        return Run(seconds, cpu, phases, len(drawn.queries), refused=refused)
    return told(plan, drawn.queries, deadline, seconds, cpu)


def told(
    plan: Plan, queries: Sequence[JoinQuery], deadline: Deadline, seconds: float, cpu: float
) -> Run:
    """Return the figures of a validated plan."""
    validate_plan(plan, queries)
    return Run(
        seconds=seconds,
        cpu=cpu,
        phases=phases_of(deadline, seconds),
        queries=len(queries),
        cost=plan.cost,
        probes=plan.cost - sum(c.insert_cost for c in plan.copies),
        gap=plan.gap,
        candidates=plan.candidates,
        variables=plan.variables,
        constraints=plan.constraints,
        method=plan.method,
    )


def phases_of(deadline: Deadline, seconds: float) -> dict[str, float]:
    """Return phase -> seconds; ``other`` is the part of ``seconds`` outside of all phases."""
    return {**deadline.spent, "other": seconds - sum(deadline.spent.values())}


def compile_validated(plan: Plan, drawn: Drawn, parallelism: int) -> None:
    """Compile the ruleset of ``plan``, which also validates the plan, as in the service."""
    compile_ruleset(plan, drawn.queries, drawn.streams, epoch=0, parallelism=parallelism, sinks={})


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its ended children."""
    usages = (
        resource.getrusage(resource.RUSAGE_SELF),
        resource.getrusage(resource.RUSAGE_CHILDREN),
    )
    return sum(u.ru_utime + u.ru_stime for u in usages)


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """Return medians and ranges over runs of one case under different seeds.

    Figures of plans cover only the runs that were not refused.
    """
    planned = [r for r in runs if not r.refused]
    found: dict[str, Any] = {
        "runs": len(runs),
        "proven": sum(r.proven for r in runs),
        "refused": dict(sorted(Counter(r.refused for r in runs if r.refused).items())),
    }
    if not planned:
        return found
    return found | {
        "seconds": Spread.of(r.seconds for r in planned).rounded(4),
        "cpu": Spread.of(r.cpu for r in planned).rounded(4),
        "phases": {
            phase: Spread.of(r.phases.get(phase, 0.0) for r in planned).rounded(4)
            for phase in PHASES
        },
        "gap": Spread.of(r.gap for r in planned).rounded(6),
        **{
            name: Spread.of(getattr(r, name) for r in planned).rounded(2)
            for name in ("queries", "cost", "probes", "candidates", "variables", "constraints")
        },
        "methods": dict(sorted(Counter(r.method for r in planned).items())),
    }


def require_equal(what: str, runs: Iterable[Run]) -> None:
    """Check that all plans of one problem that are proven optimal have the same cost.

    Raises:
        WrongPlanError: two of them differ.
    """
    costs = [r.cost for r in runs if r.proven]
    if costs and max(costs) > min(costs) * (1 + 2 * PROVEN_GAP):
        raise WrongPlanError(f"{what}: proven optima differ: {costs}")


def require_no_worse(what: str, clash: Run, *others: Run) -> None:
    """Check that a proven joint plan costs at most as much as each of ``others``, and each of these
    at most as much as the next.

    Raises:
        WrongPlanError: it costs more.
    """
    if not clash.proven:
        return
    costs = [r.cost for r in (clash, *others)]
    if any(less > more * (1 + PROVEN_GAP) for less, more in pairwise(costs)):
        raise WrongPlanError(f"{what}: costs do not rise: {costs}")
