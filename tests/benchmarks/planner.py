"""Planning: what joint plans cost beside plans made alone, and how long they take to find.

``python -m tests.benchmarks.planner [--json] [--seeds 3]``

Problems: the five TPC-H queries under exact statistics of generated data, and random problems as
in section VII-C of the CLASH paper. Every problem is planned by every optimiser under both
objectives; a plan is validated, and no joint plan may cost more than the same queries alone.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
from rich.table import Table

from anabranch_client import tpch
from anabranch_planner.exchange import Snapshot
from anabranch_planner.model import Stream, StreamName
from anabranch_planner.optimiser.check import validate_plan
from anabranch_planner.optimiser.optimise import optimise
from anabranch_planner.optimiser.watch import Watch
from anabranch_planner.plan import Objective, Optimizer
from anabranch_planner.sql.parse import parse_sql
from anabranch_planner.types import parse_type
from tests.benchmarks.figures import Spread, document, line, show, tell
from tests.support.random_problems import UniformStatistics, random_queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from anabranch_planner.model import JoinQuery
    from anabranch_planner.statistics import Statistics

#: Phase -> the function of ``optimise`` that it is the time of. ``search`` finds the plan that the
#: solver starts from; what is left of ``total`` is turning solutions into plans.
_PHASES = {
    "candidates": "build_problem",
    "search": "improve",
    "build": "formulate",
    "solve": "solve",
}
#: (queries wanted, relations per query, relations).
_RANDOM = ((20, 3, 10), (100, 3, 10), (50, 3, 100), (10, 4, 10))
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Workload:
    """A problem to plan; ``make``: seed -> queries and what is known about their streams."""

    name: str
    make: Callable[[int], tuple[Sequence[JoinQuery], Statistics]]


class WorsePlanError(Exception):
    """A joint plan, solved to the end, costs more than plans made without it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    options = _options(arguments)
    load = os.getloadavg()
    workloads = [_tpch(options.scale), *(_random(*shape) for shape in options.random)]
    # The first plan loads the solver.
    optimise(random_queries(0, count=2), UniformStatistics())
    try:
        problems = [
            _measure(workload, objective, options)
            for workload in workloads
            for objective in Objective
        ]
    except WorsePlanError as error:
        tell(f"wrong plans, so no figures: {error}")
        return 1
    settings = {
        "scale": options.scale,
        "seeds": options.seeds,
        "parallelism": options.parallelism,
        "deadline": options.deadline,
    }
    found = document("planner", settings, load) | {"problems": problems}
    if options.json:
        sys.stdout.write(line(found) + "\n")
    else:
        show([_table(found)])
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="cost and time of joint planning")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--scale", type=float, default=0.01, help="of the data behind statistics")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--parallelism", type=int, default=4, help="partitions per store")
    parser.add_argument("--deadline", type=float, default=10.0, help="seconds for the solver")
    parser.add_argument(
        "--random", type=_shape, nargs="*", default=list(_RANDOM), metavar="QUERIESxSIZExRELATIONS"
    )
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error("--seeds: at least 1 is needed")
    return options


def _shape(text: str) -> tuple[int, int, int]:
    count, size, relations = map(int, text.split("x"))
    return count, size, relations


# --- workloads ---------------------------------------------------------------------------------


def _random(count: int, size: int, relations: int) -> Workload:
    return Workload(
        f"{count} × {size}-way of {relations}",
        lambda seed: (
            random_queries(seed, count=count, size=size, relations=relations),
            UniformStatistics(),
        ),
    )


def _tpch(scale: float) -> Workload:
    """The demo's queries; seeds do not change them, so they only repeat the measurement."""
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        recorded = tpch.generate(Path(folder), scale, 1)
        streams = {
            s.name: Stream(
                StreamName(s.name), tuple((c, parse_type(kind)) for c, kind in s.columns)
            )
            for s in recorded
        }
        queries = [parse_sql(q.name, q.sql, streams) for q in tpch.QUERIES]
        statistics = _exact_statistics(queries, {s.name: s.path for s in recorded})
    return Workload(f"{len(queries)} TPC-H", lambda _: (queries, statistics))


def _exact_statistics(queries: Sequence[JoinQuery], files: dict[str, Path]) -> Snapshot:
    """Rows and distinct keys as DuckDB counts them; of filters the queries have none."""
    keys: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for query in queries:
        pairs: dict[tuple[str, str], set[str]] = defaultdict(set)
        for predicate in query.predicates:
            left, right = predicate.left, predicate.right
            for side, other in ((left, right), (right, left)):
                keys[side.label].add((side.attribute,))
                pairs[side.label, other.label].add(side.attribute)
        for (label, _), attributes in pairs.items():
            keys[label].add(tuple(sorted(attributes)))
    arrivals, distincts = {}, {}
    with duckdb.connect() as connection:
        for relation in sorted(keys):
            rows = connection.read_parquet(str(files[relation]))
            arrivals[relation] = len(rows)
            distincts[relation] = {
                ",".join(key): float(len(rows.select(*key).distinct()))
                for key in sorted(keys[relation])
            }
    return Snapshot(0, 1, 1, arrivals=arrivals, distincts=distincts)


# --- measuring ---------------------------------------------------------------------------------


def _measure(
    workload: Workload, objective: Objective, options: argparse.Namespace
) -> dict[str, Any]:
    """Plan a workload for every seed; medians and ranges over seeds."""
    costs: dict[Optimizer, list[float]] = defaultdict(list)
    times: dict[Optimizer, list[dict[str, float]]] = defaultdict(list)
    gaps: dict[Optimizer, list[float]] = defaultdict(list)
    sizes: list[tuple[int, int, int, int]] = []
    for seed in range(options.seeds):
        queries, statistics = workload.make(seed)
        for optimizer in Optimizer:
            run = partial(
                optimise,
                queries,
                statistics,
                optimizer=optimizer,
                objective=objective,
                parallelism=options.parallelism,
                # The paper's figures have neither: copies are free, so partitioning is nothing.
                partitioning=objective is Objective.DEFAULT,
                watch=Watch(time.monotonic, deadline=options.deadline),
                seed=seed,
            )
            with _phases() as phases:
                began = time.perf_counter()
                plan = run()
                phases["total"] = 1e3 * (time.perf_counter() - began)
            validate_plan(plan, queries)
            costs[optimizer].append(plan.cost)
            times[optimizer].append(dict(phases))
            gaps[optimizer].append(plan.gap)
            if optimizer is Optimizer.CLASH:
                sizes.append((len(queries), plan.candidates, plan.variables, plan.constraints))
        _require_no_worse(workload.name, seed, costs, gaps)
    names = ("queries", "candidates", "variables", "constraints")
    tell(f"{workload.name}, {objective} objective")
    return {
        "name": workload.name,
        "objective": str(objective),
        **{n: Spread.of(s[i] for s in sizes).rounded(0) for i, n in enumerate(names)},
        "optimizers": {
            str(optimizer): {
                "cost": Spread.of(costs[optimizer]).rounded(2),
                "of_individual": Spread.of(
                    one / alone
                    for one, alone in zip(
                        costs[optimizer], costs[Optimizer.INDIVIDUAL], strict=True
                    )
                ).rounded(4),
                "gap": Spread.of(gaps[optimizer]).rounded(4),
                "ms": {
                    phase: Spread.of(t.get(phase, 0.0) for t in times[optimizer]).rounded(2)
                    for phase in (*_PHASES, "total")
                },
            }
            for optimizer in Optimizer
        },
    }


@contextmanager
def _phases() -> Iterator[dict[str, float]]:
    """Phase -> milliseconds that the planner spends on it inside the block.

    The passes are timed where ``optimise`` calls them: the planner itself may not look at a
    clock, and timing them outside would be timing something else.
    """
    passes = importlib.import_module("anabranch_planner.optimiser.optimise")
    spent: dict[str, float] = dict.fromkeys(_PHASES, 0.0)
    originals = {phase: getattr(passes, name) for phase, name in _PHASES.items()}

    def timed(phase: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return originals[phase](*arguments, **named)
            finally:
                spent[phase] += 1e3 * (time.perf_counter() - began)

        return call

    for phase, name in _PHASES.items():
        setattr(passes, name, timed(phase))
    try:
        yield spent
    finally:
        for phase, name in _PHASES.items():
            setattr(passes, name, originals[phase])


def _require_no_worse(
    name: str, seed: int, costs: dict[Optimizer, list[float]], gaps: dict[Optimizer, list[float]]
) -> None:
    """Where all plans are optimal, joint costs at most shared, shared at most individual.

    Raises:
        WorsePlanError: it does not.
    """
    if any(found[-1] > 0.0 for optimizer, found in gaps.items() if optimizer != Optimizer.SHARED):
        return
    order = [costs[o][-1] for o in (Optimizer.CLASH, Optimizer.SHARED, Optimizer.INDIVIDUAL)]
    for less, more in pairwise(order):
        if less > more * (1 + _ROUNDING):
            raise WorsePlanError(f"{name}, seed {seed}: clash, shared, individual cost {order}")


def _table(found: dict[str, Any]) -> Table:
    table = Table(title=f"medians over {found['settings']['seeds']} seeds")
    for column in (
        *("problem", "objective", "variables", "clash", "shared", "individual", "clash / alone"),
        *(f"{phase} ms" for phase in (*_PHASES, "total")),
    ):
        left = column in ("problem", "objective")
        table.add_column(column, justify="left" if left else "right")
    for one in found["problems"]:
        clash = one["optimizers"][str(Optimizer.CLASH)]
        table.add_row(
            one["name"],
            one["objective"],
            f"{one['variables']['median']:,.0f}",
            *(f"{one['optimizers'][str(o)]['cost']['median']:,.0f}" for o in Optimizer),
            f"{clash['of_individual']['median']:.0%}",
            *(f"{ms['median']:,.0f}" for ms in clash["ms"].values()),
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
