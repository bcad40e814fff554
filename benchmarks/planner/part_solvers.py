"""Part ``solvers``: the tight integer program with every solver, on one thread and on two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from anabranch_contract.plans.plan import Solver
from anabranch_planner.plans.optimise import JOINT_SHARE
from benchmarks.planner.part_rivals import planning, rotated
from benchmarks.planner.runs import Case, Shape, require_equal
from benchmarks.planner.worker import measure
from benchmarks.report.figures import tell

SHAPES = (Shape(100, 100, 3), Shape(100, 10, 4), Shape(100, 100, 4), Shape(100, 10, 5))


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the part; ``limit``: time limit of the joint program in seconds."""

    seeds: int
    threads: Sequence[int]
    limit: float
    shapes: Sequence[Shape] = SHAPES
    solvers: Sequence[Solver] = tuple(Solver)


def measure_solvers(options: Options) -> dict[str, Any]:
    """Measure every solver on every shape, interleaved."""
    entrants = list(product(options.solvers, options.threads))
    groups: list[dict[str, Any]] = []
    for shape in options.shapes:
        cases = [
            Case(shape, seed, solver=solver, threads=threads, deadline=options.limit / JOINT_SHARE)
            for seed in range(options.seeds)
            for solver, threads in rotated(entrants, seed)
        ]
        found = dict(zip(cases, measure(cases).runs, strict=True))
        for seed in range(options.seeds):
            same = [run for case, run in found.items() if case.seed == seed]
            require_equal(f"{shape}, seed {seed}", same)
        for solver, threads in entrants:
            runs = [r for c, r in found.items() if (c.solver, c.threads) == (solver, threads)]
            about = {"shape": str(shape), "solver": str(solver), "threads": threads}
            groups.append(about | planning(runs))
            tell(
                f"{shape}, {solver}, threads {threads}: "
                f"{groups[-1]['planning']['median']:.3f} s, proven "
                f"{groups[-1]['proven']} of {options.seeds}"
            )
    loading = measure([Case(Shape(5, 3, 3), 0, solver=solver) for solver in options.solvers])
    smallest = dict(zip(map(str, options.solvers), loading.runs, strict=True))
    seconds = {name: round(run.seconds, 3) for name, run in smallest.items()}
    return {"groups": groups, "smallest_plan": seconds}
