"""Time of one decision on probe orders: the forecasts, and the search.

The selectivities of the steps are random per edge, as in the paper. dpPick enumerates all
sequences, so it refuses a clique of ten streams; the exact search finds orders of the same cost.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from anabranch_contract.errors import PlannerError
from anabranch_planner.forecast.forecast import StatisticKind, forecasts
from anabranch_planner.forecast.series import Series
from benchmarks.command import Benchmark, cpu_milliseconds
from benchmarks.papers.dppick.figures import EdgeFigures, Match
from benchmarks.papers.dppick.problem import Operator, edges_near
from benchmarks.papers.dppick.search import Algorithm, search_orders
from benchmarks.report.grids import Grid  # fmt: skip
from benchmarks.report.grids import spread as shown

ALGORITHMS = (Algorithm.EXACT, Algorithm.DPPICK)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--streams", type=int, nargs="+", default=[4, 10, 15])
    parser.add_argument("--rounds", type=int, default=15)


def operator_of(graph: str, streams: int, seed: int) -> Operator:
    """Return a join operator with random statistics whose graph is a ``chain`` or a ``clique``."""
    draw = np.random.default_rng(seed)
    edges = {
        (a, b): Match(float(draw.random()), float(draw.uniform(1, 10)))
        for a in range(streams)
        for b in range(streams)
        if a != b and (graph == "clique" or abs(a - b) == 1)
    }
    each = (1000.0,) * streams
    names = tuple(f"s{n}" for n in range(streams))
    near = edges_near(streams, edges)
    return Operator(names, each, each, each, near, EdgeFigures(streams, edges))


def _measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    del home
    found = []
    for streams in options.streams:
        draw = np.random.default_rng(streams)
        # Kinds of the series of a chain: of its steps in both directions, and of each store.
        kinds = [
            *[StatisticKind.HIT_RATIO, StatisticKind.MATCHES] * (2 * streams),
            *[StatisticKind.RATE] * (2 * streams),
        ]
        asked = [
            (Series.of([(float(t), float(v), 1.0) for t, v in enumerate(draw.random(60))]), kind)
            for kind in kinds
        ]
        one: dict[str, Any] = {"streams": streams, "series": len(asked)}
        one["forecasts"] = cpu_milliseconds(partial(forecasts, asked, 1.0), options.rounds)
        for graph in ("chain", "clique"):
            for algorithm in ALGORITHMS:
                operator = operator_of(graph, streams, streams)
                name = f"{graph}, {algorithm}"
                try:
                    one[name] = cpu_milliseconds(
                        lambda o=operator, a=algorithm: search_orders(o, a),  # type: ignore[misc]
                        options.rounds,
                    )
                except PlannerError as error:
                    one[name] = {"refused": error.code}
        found.append(one)
    return {"decisions": found}


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: milliseconds by number of streams."""
    names = [n for n in entry["decisions"][0] if n not in ("streams", "series")]
    rows = tuple(
        (
            str(one["streams"]),
            str(one["series"]),
            *(one[n].get("refused") or shown(one[n], 2) for n in names),
        )
        for one in entry["decisions"]
    )
    return [Grid("CPU milliseconds", ("streams", "series", *names), rows)]


PART = Benchmark("decisions", "how long a decision takes", _options, _measure, tables)
