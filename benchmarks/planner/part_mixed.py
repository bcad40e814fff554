"""Part ``mixed``: plans of random queries over TPC-H, joined by keys and by columns of compatible
types.

Costs of joint, shared and individual plans are compared, with exact row counts and selectivities of
generated data.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anabranch_client.replay import tpch
from anabranch_contract.plans.plan import Optimizer
from anabranch_contract.queries.joins import (
    AttrRef,
    Equality,
    Label,
    Stream,
    StreamName,
)
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import parse_sql
from benchmarks.planner.runs import TUPLES, Case, Drawn, Shape, require_no_worse, timed
from benchmarks.planner.type_compatible import (
    TABLES,
    Joinable,
    Mixture,
    RandomQuery,
    draw,
    joinable,
)
from benchmarks.report.figures import Spread, tell

#: Numbers of queries in a set, and tables per query, as in the paper's Figure 7.
COUNTS, SIZE = (5, 10), 4
_PLANS = (Optimizer.CLASH, Optimizer.SHARED, Optimizer.INDIVIDUAL)


@dataclass(frozen=True, slots=True)
class Options:
    """Options: sets per mixture, queries per set; ``scale``: TPC-H's, for the statistics."""

    seeds: int
    scale: float
    limit: float


@dataclass(frozen=True, slots=True)
class Data:
    """TPC-H for random queries: streams, rows by table, and pairs of columns that join."""

    streams: dict[str, Stream]
    rows: dict[str, int]
    joins: list[Joinable]


def measure_mixed(options: Options) -> dict[str, Any]:
    """Measure cost ratios by mixture, number of queries and objective."""
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        data = data_of(Path(folder), options.scale)
    groups = []
    for mixture in Mixture:
        for count in COUNTS:
            sets = [draw(data.joins, mixture, count, SIZE, seed) for seed in range(options.seeds)]
            results = [sum(query.results(data.rows) for query in one) for one in sets]
            keys = [join.is_key for one in sets for query in one for join in query.joins]
            group: dict[str, Any] = {
                "mixture": str(mixture),
                "queries": count,
                "keys": round(sum(keys) / len(keys), 3),
                "results": Spread.of(results).rounded(0),
                "objectives": {},
            }
            for objective in TUPLES:
                shape = Shape(len(TABLES), count, SIZE)
                found = [
                    _ratios(
                        drawn(data, one),
                        Case(shape, seed, objective=objective, deadline=options.limit),
                    )
                    for seed, one in enumerate(sets)
                ]
                group["objectives"][str(objective)] = {
                    name: Spread.of(one[name] for one in found).rounded(3) for name in found[0]
                }
            groups.append(group)
            tell(f"{mixture}, {count} queries: {group['objectives']}")
    return {"scale": options.scale, "pairs": len(data.joins), "groups": groups}


def _ratios(problem: Drawn, case: Case) -> dict[str, float]:
    """Return the cost ratios individual to joint and individual to shared, and the gap of the joint
    plan.

    Raises:
        WrongPlanError: the joint plan costs more than another one.
    """
    joint, shared, alone = (
        timed(replace(case, optimizer=optimizer), problem) for optimizer in _PLANS
    )
    require_no_worse(f"{case.shape}, seed {case.seed}", joint, shared, alone)
    return {
        "joint": alone.cost / joint.cost,
        "shared": alone.cost / shared.cost,
        "gap": joint.gap,
    }


def data_of(folder: Path, scale: float) -> Data:
    """Generate TPC-H at scale factor ``scale`` in ``folder``."""
    recorded = tpch.generate(folder, scale, 1, tables=TABLES)
    streams = {
        one.name: Stream(
            StreamName(one.name), tuple((name, parse_type(kind)) for name, kind in one.columns)
        )
        for one in recorded
    }
    joins = joinable({one.name: one.path for one in recorded})
    return Data(streams, {one.name: one.rows for one in recorded}, joins)


def drawn(data: Data, queries: Sequence[RandomQuery]) -> Drawn:
    """Return a planning problem of ``queries``, with exact row counts and selectivities."""
    parsed = [
        parse_sql(f"q{number}", query.query(f"q{number}").sql, data.streams)
        for number, query in enumerate(queries)
    ]
    relations = {one.id: one.stream for query in parsed for one in query.relations}
    statistics = Statistics(
        cardinalities={one: float(data.rows[stream]) for one, stream in relations.items()},
        # Includes pairs of columns whose equality follows from others by transitivity.
        selectivities={equality(join): join.selectivity for join in data.joins},
    )
    return Drawn(parsed, statistics, list(data.streams.values()))


def equality(join: Joinable) -> Equality:
    """Return a join's equality predicate, whose labels are tables."""
    sides = (
        AttrRef(Label(table), column)
        for table, column in zip(join.tables, join.columns, strict=True)
    )
    return Equality(*sorted(sides))
