"""One timed planning: a case, what came of it, and how runs of equal cases are summed up."""

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
#: Phases in the order of the report: planner phases, the ruleset, the rest.
PHASES = ("build", "search", "reduce", "solve", "assemble", "ruleset", "other")
#: The objectives that count tuples, as the paper does.
TUPLES = (Objective.TUPLES, Objective.PAPER)
_LONG = DataType(TypeKind.BIGINT)


class Environment(StrEnum):
    """The environments of :mod:`benchmarks.papers.clash.environment`."""

    NATURAL = "natural"
    TREE = "tree"


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a random problem: relations, queries over them, relations per query.

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
    """A random problem and how it is to be planned; ``deadline`` is the optimiser's."""

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
        """As JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, doc: dict[str, Any]) -> Case:
        """The case that ``doc`` was made from."""
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
        seconds, cpu: of everything, by the wall and by the CPUs (children of solvers included).
        phases: phase -> seconds.
        probes: the part of the cost that is probes.
        refused: the code of the error by which the planner declined; everything else that is
            said about the plan is 0 then.
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
        """Whether the plan is known to be optimal."""
        return not self.refused and self.gap <= PROVEN_GAP

    @property
    def planning(self) -> float:
        """Seconds without the ruleset: candidates, building, solving, reading the solution."""
        return self.seconds - self.phases.get("ruleset", 0.0)


class WrongPlanError(Exception):
    """Plans that must cost the same do not, or a joint plan costs more than plans made alone."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A case's problem, as it comes from parsing."""

    queries: Sequence[JoinQuery]
    statistics: Statistics
    streams: Sequence[Stream]


def draw(shape: Shape, seed: int, environment: Environment = Environment.NATURAL) -> Drawn:
    """The random problem of a case."""
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
    """Load what the cases need: a small plan by every solver and formulation among them."""
    small = Shape(5, 3, 3)
    for case in dict.fromkeys(replace(c, shape=small, seed=0, deadline=None) for c in cases):
        run(case)


def run(case: Case) -> Run:
    """Plan a case, and time it.

    Raises:
        PlannerError: the plan is not valid, or no ruleset can be made of it.
    """
    drawn = draw(case.shape, case.seed, case.environment)
    return timed(case, drawn)


def timed(case: Case, drawn: Drawn) -> Run:
    """Plan ``drawn`` as the case says; of the case's shape and environment nothing is used."""
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
    """Figures of a plan that has been validated."""
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
    """Phase -> seconds; ``other`` is what of ``seconds`` is in no phase."""
    return {**deadline.spent, "other": seconds - sum(deadline.spent.values())}


def compile_validated(plan: Plan, drawn: Drawn, parallelism: int) -> None:
    """Compile the ruleset of ``plan``, which validates it, as the service does."""
    compile_ruleset(plan, drawn.queries, drawn.streams, epoch=0, parallelism=parallelism, sinks={})


def cpu_seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    usages = (
        resource.getrusage(resource.RUSAGE_SELF),
        resource.getrusage(resource.RUSAGE_CHILDREN),
    )
    return sum(u.ru_utime + u.ru_stime for u in usages)


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """Medians and ranges over runs of one case under different seeds.

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
    """Plans of one problem that are proven optimal cost the same.

    Raises:
        WrongPlanError: they don't.
    """
    costs = [r.cost for r in runs if r.proven]
    if costs and max(costs) > min(costs) * (1 + 2 * PROVEN_GAP):
        raise WrongPlanError(f"{what}: proven optima differ: {costs}")


def require_no_worse(what: str, clash: Run, *others: Run) -> None:
    """A proven joint plan costs at most what each of ``others`` does, each at most the next.

    Raises:
        WrongPlanError: it costs more.
    """
    if not clash.proven:
        return
    costs = [r.cost for r in (clash, *others)]
    if any(less > more * (1 + PROVEN_GAP) for less, more in pairwise(costs)):
        raise WrongPlanError(f"{what}: costs do not rise: {costs}")
