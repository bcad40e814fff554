"""Part ``tpch``: the demo's five queries, planned with exact statistics of generated data."""

from __future__ import annotations

import gc
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from anabranch_client.replay import tpch
from anabranch_contract.plans.plan import Optimizer
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.statistics.statistics import Statistics, measured
from anabranch_planner.passes import parse_sql
from benchmarks.planner.runs import (
    TUPLES,
    Case,
    Drawn,
    Run,
    Shape,
    require_no_worse,
    summary,
    timed,
)
from benchmarks.report.figures import Spread, tell

_PLANS = (Optimizer.CLASH, Optimizer.SHARED, Optimizer.INDIVIDUAL)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the part; ``scale``: TPC-H scale factor of the data behind the statistics."""

    repeats: int
    parallelisms: Sequence[int]
    scale: float
    limit: float


def measure_tpch(options: Options) -> dict[str, Any]:
    """Measure every optimiser, objective and parallelism; seeds only decide between equal plans."""
    drawn = demo(options.scale)
    groups: list[dict[str, Any]] = []
    for objective in TUPLES:
        for parallelism in options.parallelisms:
            runs: dict[Optimizer, list[Run]] = defaultdict(list)
            # The first run loads the solver and is not counted.
            for repeat in range(options.repeats + 1):
                for optimizer in _PLANS:
                    gc.collect()
                    case = Case(
                        Shape(8, len(drawn.queries), 4),
                        repeat,
                        parallelism=parallelism,
                        objective=objective,
                        optimizer=optimizer,
                        deadline=options.limit,
                    )
                    run = timed(case, drawn)
                    if repeat:
                        runs[optimizer].append(run)
            for same in zip(*(runs[o] for o in _PLANS), strict=True):
                require_no_worse(f"TPC-H, {objective} objective", *same)
            groups.append(
                {
                    "objective": str(objective),
                    "parallelism": parallelism,
                    "of_individual": {
                        str(o): Spread.of(
                            one.cost / alone.cost
                            for one, alone in zip(runs[o], runs[Optimizer.INDIVIDUAL], strict=True)
                        ).rounded(4)
                        for o in _PLANS
                    },
                    "optimizers": {str(o): summary(runs[o]) for o in _PLANS},
                }
            )
            tell(f"TPC-H, {objective} objective, parallelism {parallelism}")
    return {"scale": options.scale, "queries": len(drawn.queries), "groups": groups}


def demo(scale: float) -> Drawn:
    """Return the demo's queries, with exact statistics of their streams."""
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        recorded = tpch.generate(Path(folder), scale, 1)
        streams = {
            s.name: Stream(
                StreamName(s.name), tuple((c, parse_type(kind)) for c, kind in s.columns)
            )
            for s in recorded
        }
        queries = [parse_sql(q.name, q.sql, streams) for q in tpch.QUERIES]
        statistics = exact_statistics(queries, {s.name: s.path for s in recorded})
    return Drawn(queries, statistics, list(streams.values()))


def exact_statistics(queries: Sequence[JoinQuery], files: dict[str, Path]) -> Statistics:
    """Return numbers of rows and distinct keys as DuckDB counts them; queries have no filters."""
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
    return measured(Snapshot(0, 1, 1, arrivals=arrivals, distincts=distincts))
