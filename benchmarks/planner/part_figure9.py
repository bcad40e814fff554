"""Part ``figure9``: the simulation in section VII-C of the CLASH paper, Fig. 9.

As in the paper, only probes are charged (objective ``paper``), MIRs are allowed, and there are no
duplicate queries. Sizes of the printed program are given without partition attributes and with them
(decorated). The paper counts decorated orders; but since copies of stores are free in its program,
decoration makes no plan cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Formulation, Objective, Optimizer, Solver
from anabranch_planner.cost.model import CostModel
from anabranch_planner.plans.optimise import JOINT_SHARE
from anabranch_planner.search.printed.formulation import formulate_paper
from benchmarks.planner.runs import (
    Case,
    Environment,
    Run,
    Shape,
    draw,
    require_equal,
    require_no_worse,
    summary,
)
from benchmarks.planner.worker import measure
from benchmarks.report.figures import Spread, tell

#: Partitions per store for decorated orders; any number above 1 gives the same sizes.
_DECORATED = 2


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the part.

    Attributes:
        limit: time limit of a joint program in seconds.
        pools: numbers of relations to draw from, for plots (a) to (d); (e) and (f) use the last
            one.
        counts: numbers of queries with three relations, for plots (a) to (e).
        sizes, sized_counts: relations per query, and numbers of queries, for plot (f).
    """

    seeds: int
    environment: Environment
    limit: float
    pools: Sequence[int] = (10, 100)
    counts: Sequence[int] = (20, 40, 50, 60, 80, 100)
    sizes: Sequence[int] = (3, 4, 5)
    sized_counts: Sequence[int] = (10, 20, 30)


def measure_figure9(options: Options) -> dict[str, Any]:
    """Measure the figures of the six plots."""
    cost_groups = [
        _costs(Shape(pool, count, 3), options) for pool in options.pools for count in options.counts
    ]
    size_groups = [
        _times(Shape(options.pools[-1], count, size), options)
        for size in options.sizes
        for count in options.sized_counts
    ]
    return {
        "environment": str(options.environment),
        "costs": cost_groups,
        "sizes": size_groups,
    }


def _costs(shape: Shape, options: Options) -> dict[str, Any]:
    """Return costs with and without sharing, and run times of the default and printed programs."""
    first = Case(
        shape,
        0,
        environment=options.environment,
        objective=Objective.PAPER,
        deadline=options.limit / JOINT_SHARE,
    )
    ways = {
        "clash": first,
        "individual": replace(first, optimizer=Optimizer.INDIVIDUAL),
        "printed": replace(first, formulation=Formulation.PAPER, solver=Solver.HIGHS),
    }
    cases = [replace(way, seed=seed) for seed in range(options.seeds) for way in ways.values()]
    found = dict(zip(cases, measure(cases).runs, strict=True))
    runs = {
        name: [found[replace(way, seed=seed)] for seed in range(options.seeds)]
        for name, way in ways.items()
    }
    for seed, (clash, alone, printed) in enumerate(zip(*runs.values(), strict=True)):
        what = f"{shape}, seed {seed}"
        require_no_worse(what, clash, alone)
        require_equal(what, (clash, printed))
    saved = Spread.of(
        1 - clash.probes / alone.probes
        for clash, alone in zip(runs["clash"], runs["individual"], strict=True)
    )
    group = {
        "shape": str(shape),
        "relations": shape.relations,
        "wanted": shape.queries,
        "saved": saved.rounded(4),
        **{name: summary(some) for name, some in runs.items()},
        **_program_sizes(shape, options),
    }
    tell(
        f"figure 9, {shape}: {saved.median:.1%} of the probes saved, "
        f"{Spread.of(r.seconds for r in runs['clash']).median:.3f} s"
    )
    return group


def _program_sizes(shape: Shape, options: Options) -> dict[str, Any]:
    """Return the numbers of variables and orders of the printed program, by MIRs and decoration."""
    found: dict[str, Any] = {}
    for name, parallelism, mir in (
        ("plain", 1, True),
        ("decorated", _DECORATED, True),
        ("decorated_without_mirs", _DECORATED, False),
    ):
        variables, orders = [], []
        for seed in range(options.seeds):
            drawn = draw(shape, seed, options.environment)
            model = CostModel(drawn.statistics, objective=Objective.PAPER, parallelism=parallelism)
            try:
                listed = formulate_paper(drawn.queries, model, mir=mir)
            except PlannerError:
                continue
            variables.append(listed.program.variables)
            orders.append(sum(len(some) for some in listed.orders.values()))
        if variables:
            found[name] = {
                "variables": Spread.of(variables).rounded(0),
                "orders": Spread.of(orders).rounded(0),
            }
    return {"printed_sizes": found}


def _times(shape: Shape, options: Options) -> dict[str, Any]:
    """Return the run times by number of relations per query."""
    cases = [
        Case(
            shape,
            seed,
            environment=options.environment,
            objective=Objective.PAPER,
            deadline=options.limit / JOINT_SHARE,
        )
        for seed in range(options.seeds)
    ]
    runs: Sequence[Run] = measure(cases).runs
    group = {
        "shape": str(shape),
        "size": shape.size,
        "wanted": shape.queries,
        **summary(runs),
    }
    tell(
        f"figure 9 (f), {shape}: {group['seconds']['median']:.3f} s, "
        f"proven {group['proven']} of {group['runs']}"
    )
    return group
