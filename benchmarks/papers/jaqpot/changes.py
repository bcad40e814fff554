"""Number of results from Poisson arrivals over ten minutes (Fig. 6 of JAQPOT), and over five
streams (Fig. 8).

Arrivals and matches of each second are drawn. Half-way joins probe with the tuples of the same
second, up to their allowance; further tuples are lost. Selectivities change after three and seven
minutes (Fig. 6), and every policy immediately divides the same resources again; detecting the
change is not simulated. The recorded streams of Fig. 8 are replaced by Poisson arrivals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import numpy as np

from benchmarks.papers.jaqpot.plans import Shape, draw, predicates, selectivities
from benchmarks.papers.jaqpot.policies import POLICIES, RIVALS, allowances
from benchmarks.papers.jaqpot.printed.jaqpot import jaqpot
from benchmarks.papers.jaqpot.printed.paths import input_paths, saturation
from benchmarks.papers.jaqpot.printed.plan import Plan
from benchmarks.papers.jaqpot.sums import mean, total
from benchmarks.report.grids import Grid

#: Phases in order: name, seconds, selectivities of the joins (section 5.1).
PHASES = (
    ("SEL1", 180, (0.01, 0.01, 0.05)),
    ("SEL2", 240, (0.03, 0.03, 0.05)),
    ("SEL3", 180, (0.03, 0.03, 0.1)),
)
#: Resources in probes per second, and number of tuples in every state (section 5.2).
RESOURCES, WINDOW = (300, 600, 900), 1000
FACTOR = 1.5


def measure(seeds: int) -> dict[str, Any]:
    """Return the results per minute: by phase for 4 streams, by resources for 5 streams."""
    return {
        "changes": [_phases(shape, seeds) for shape in (Shape.LINEAR, Shape.BUSHY)],
        "five": [_five(mu, seeds) for mu in RESOURCES],
    }


def simulate(
    plan: Plan, allowed: Mapping[str, float], seconds: int, random: np.random.Generator
) -> float:
    """Return the results of ``seconds`` seconds with ``allowed`` probes per second per half-way
    join.
    """
    made: dict[str, np.ndarray[Any, np.dtype[np.float64]]] = {}
    last = ""
    for last, halves in plan.joins.items():
        made[last] = np.zeros(seconds)
        for half in halves:
            arrived = made[half.name] if half.rate is None else random.poisson(half.rate, seconds)
            probes = np.minimum(arrived, allowed[half.name])
            made[last] += random.poisson(probes * half.productivity)
    return float(made[last].sum())


def _promised(plan: Plan, mu: float) -> bool:
    return not jaqpot(input_paths(plan), mu, predicates(plan, FACTOR)).infeasible


def _phases(shape: Shape, seeds: int) -> dict[str, Any]:
    results: dict[str, list[list[float]]] = {policy: [[] for _ in PHASES] for policy in POLICIES}
    promised: list[list[bool]] = [[] for _ in PHASES]
    for seed in range(seeds):
        # All phases have the same rates and windows; μ is 30 % of the saturation of the first
        # phase.
        plans = [draw(Random(seed), shape, sigma) for _, _, sigma in PHASES]
        mu = 0.3 * saturation(input_paths(plans[0]))[0]
        for place, (plan, (_, seconds, _)) in enumerate(zip(plans, PHASES, strict=True)):
            paths, freshness = input_paths(plan), predicates(plan, FACTOR)
            promised[place].append(_promised(plan, mu))
            for policy in POLICIES:
                allowed = allowances(plan, paths, mu, policy, freshness)
                arrivals = np.random.default_rng((seed, place))
                found = simulate(plan, allowed, seconds, arrivals)
                results[policy][place].append(found / seconds * 60)
    return {"shape": shape} | _summed(results, promised, [name for name, _, _ in PHASES])


def _five(mu: int, seeds: int) -> dict[str, Any]:
    results: dict[str, list[list[float]]] = {policy: [[]] for policy in POLICIES}
    promised = []
    for seed in range(seeds):
        random = Random(seed)
        plan = draw(random, Shape.FIVE, selectivities(random, Shape.FIVE), WINDOW)
        paths, freshness = input_paths(plan), predicates(plan, FACTOR)
        promised.append(_promised(plan, mu))
        for policy in POLICIES:
            allowed = allowances(plan, paths, mu, policy, freshness)
            found = simulate(plan, allowed, 600, np.random.default_rng(seed))
            results[policy][0].append(found / 10)
    return {"mu": mu} | _summed(results, [promised], ["all"])


def _summed(
    results: dict[str, list[list[float]]], promised: list[list[bool]], phases: list[str]
) -> dict[str, Any]:
    """Return results per minute by phase and policy, and JAQPOT's relative to the best rival's."""
    found = []
    for place, phase in enumerate(phases):
        best = [max(one) for one in zip(*(results[r][place] for r in RIVALS), strict=True)]
        ours = results["JAQPOT"][place]
        found.append(
            {
                "phase": phase,
                "results": {p: round(mean(results[p][place])) for p in POLICIES},
                "promised": round(mean(promised[place]), 4),
                "ratio": total((a / b for a, b in zip(ours, best, strict=True) if b), 3),
            }
        )
    return {"phases": found}


def tables(found: dict[str, Any]) -> list[Grid]:
    """Return the tables of results per minute."""
    head = ("", "phase", *POLICIES, "times the best rival", "promised, %")
    groups: Iterable[tuple[str, str, list[dict[str, Any]]]] = (
        ("four streams, 30 % of SEL1's resources (Fig. 6)", "shape", found["changes"]),
        ("five streams of windows of 1000, probes per second (Fig. 8)", "mu", found["five"]),
    )
    grids = []
    for title, by, ones in groups:
        rows = tuple(
            (
                str(one[by]),
                phase["phase"],
                *(f"{phase['results'][policy]:.4g}" for policy in POLICIES),
                "-" if phase["ratio"] is None else f"{phase['ratio']['mean']:.2f}",
                f"{100 * phase['promised']:.0f}",
            )
            for one in ones
            for phase in one["phases"]
        )
        grids.append(Grid(f"results per minute, mean: {title}", head, rows, texts=2))
    return grids
