"""Quality of JAQPOT's greedy covers, and time of an allocation.

The paper does not say how the seconds that a freshness predicate leaves to a path are divided among
its states. Here, the seconds beyond those at saturation are divided evenly; the extra cost over the
cheapest division is measured as well.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

from benchmarks.command import cpu_milliseconds
from benchmarks.papers.jaqpot.plans import (
    FACTORS,
    Shape,
    draw,
    predicates,
    random_tree,
    selectivities,
)
from benchmarks.papers.jaqpot.printed.cover import greedy_cover
from benchmarks.papers.jaqpot.printed.exact import (
    cheapest_freshness,
    exact_cover,
    exact_throughput,
)
from benchmarks.papers.jaqpot.printed.freshness import refresh_rates
from benchmarks.papers.jaqpot.printed.jaqpot import jaqpot
from benchmarks.papers.jaqpot.printed.knapsack import exact_multiples
from benchmarks.papers.jaqpot.printed.paths import Row, input_paths, saturation, throughput
from benchmarks.papers.jaqpot.printed.plan import Plan
from benchmarks.papers.jaqpot.sums import total
from benchmarks.report.grids import Grid  # fmt: skip
from benchmarks.report.grids import spread as shown

#: Numbers of inputs of random trees.
TREES = (8, 16, 32)
#: Resources, in percent of saturation's, at which allocations are compared.
SHARES = (10, 30, 60)
INPUTS = (4, 8, 16, 32, 64)
ROUNDS = 15


def measure(seeds: int) -> dict[str, Any]:
    """Return ratios of greedy to exact costs and throughputs, and milliseconds of decisions."""
    plans: dict[str, list[Plan]] = {shape.value: [] for shape in Shape}
    for shape in Shape:
        for seed in range(seeds):
            random = Random(seed)
            plans[shape.value].append(draw(random, shape, selectivities(random, shape)))
    for inputs in TREES:
        name = f"any, {inputs} streams"
        plans[name] = [random_tree(Random(seed), inputs) for seed in range(seeds)]
    return {
        "exact": [_compared(name, found) for name, found in plans.items()],
        "time": [_time(inputs) for inputs in INPUTS],
        "knapsack": [_knapsack(mu) for mu in (1000, 10_000, 100_000)],
    }


def _compared(name: str, plans: list[Plan]) -> dict[str, Any]:
    costs, divisions, outputs, missed = [], [], [], 0
    for plan in plans:
        paths = input_paths(plan)
        everything, _ = saturation(paths)
        for factor in FACTORS:
            freshness = predicates(plan, factor)
            rates = refresh_rates(paths, freshness).rates
            if not rates:
                continue
            greedy = math.fsum(greedy_cover(paths, rates).values())
            exact = math.fsum(exact_cover(paths, rates).values())
            costs.append(greedy / exact)
            divisions.append(exact / math.fsum(cheapest_freshness(paths, freshness).values()))
            for share in SHARES:
                mu = everything * share / 100
                best = exact_throughput(paths, mu, rates)
                if greedy > mu:
                    missed += exact <= mu
                elif best is not None:
                    found = throughput(paths, jaqpot(paths, mu, freshness).resources)
                    outputs.append(found / throughput(paths, best))
    return {
        "plans": name,
        "cost": total(costs, 4),
        "division": total(divisions, 4),
        "output": total(outputs, 4),
        "missed": missed,
    }


def _time(inputs: int) -> dict[str, Any]:
    plan = random_tree(Random(inputs), inputs)
    paths = input_paths(plan)
    freshness = predicates(plan, 3.0)
    mu = 0.5 * saturation(paths)[0]
    return {
        "inputs": inputs,
        "states": len(plan.susceptible),
        "paths": cpu_milliseconds(lambda: input_paths(plan), ROUNDS),
        "greedy": cpu_milliseconds(lambda: jaqpot(paths, mu, freshness), ROUNDS),
        "linear program": cpu_milliseconds(
            lambda: jaqpot(paths, mu, freshness, exact_cover), ROUNDS
        ),
    }


def _knapsack(mu: int) -> dict[str, Any]:
    """Return the figures of the discrete model, over four rows."""
    random = Random(mu)
    rows = [
        Row(name, random.randint(5, 500), random.randint(5, 500), random.randint(5, 500))
        for name in "abcd"
    ]
    return {"mu": mu, "exact": cpu_milliseconds(lambda: exact_multiples(rows, mu), ROUNDS)}


def tables(found: dict[str, Any]) -> list[Grid]:
    """Return the tables of ratios and of milliseconds."""
    compared = tuple(
        (
            one["plans"],
            *(
                "-" if one[name] is None else f"{one[name][part]:.3f}"
                for name, part in (
                    ("cost", "mean"), ("cost", "high"), ("division", "mean"), ("division", "high"),
                    ("output", "mean"), ("output", "low"),
                )
            ),
            str(one["missed"]),
        )
        for one in found["exact"]
    )  # fmt: skip
    head = (
        "plans", "cost of greedy covers ÷ exact, mean", "most",
        "cost of even divisions ÷ cheapest, mean", "most",
        "results with greedy ÷ exact covers, mean", "least", "budgets that only exact covers fit",
    )  # fmt: skip
    times = tuple(
        (
            str(one["inputs"]),
            str(one["states"]),
            *(shown(one[name], 2) for name in ("paths", "greedy", "linear program")),
        )
        for one in found["time"]
    )
    knapsacks = tuple((str(one["mu"]), shown(one["exact"], 1)) for one in found["knapsack"])
    return [
        Grid("greedy covers (GH-WMSCP) and even divisions, over exact ones", head, compared),
        Grid(
            "CPU milliseconds of an allocation",
            ("streams", "states", "paths", "greedy", "cover by linear program"),
            times,
        ),
        Grid("CPU milliseconds of a discrete knapsack of 4 rows", ("μ", "exact"), knapsacks),
    ]
