"""Results by resources and policy in steady state (Fig. 7 of JAQPOT).

Results and resources are shares of those at saturation, where every arrival is processed
completely. JAQPOT's freshness predicates are random multiples of the windows, within the range of
Table 3. Its results count even if it can't promise all predicates.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from random import Random
from typing import Any

from benchmarks.papers.jaqpot.plans import Shape, draw, predicates, selectivities
from benchmarks.papers.jaqpot.policies import POLICIES, RIVALS, allowances
from benchmarks.papers.jaqpot.printed.grepp import grepp
from benchmarks.papers.jaqpot.printed.jaqpot import jaqpot
from benchmarks.papers.jaqpot.printed.paths import input_paths, saturation, throughput
from benchmarks.papers.jaqpot.printed.rivals import Rival, push, rival_allowances
from benchmarks.papers.jaqpot.sums import mean, total
from benchmarks.report.grids import Grid

#: Resources, in percent of those at saturation.
SHARES = tuple(range(10, 101, 10))
#: Factors of selectivities, to measure the influence of their range on the results.
SCALES = (1.0, 0.1, 0.01, 0.001)
SHAPES = (Shape.LINEAR, Shape.BUSHY)


def measure(seeds: int) -> list[dict[str, Any]]:
    """Return results by shape, policy and resources, and ratios; also for other selectivities."""
    return [_shape(shape, seeds) for shape in SHAPES]


def _shape(shape: Shape, seeds: int) -> dict[str, Any]:
    results: dict[str, list[list[float]]] = {policy: [[] for _ in SHARES] for policy in POLICIES}
    promised = []
    for seed in range(seeds):
        random = Random(seed)
        plan = draw(random, shape, selectivities(random, shape))
        freshness = predicates(plan, random.uniform(1.5, 5.0))
        paths = input_paths(plan)
        resources, most = saturation(paths)
        for place, share in enumerate(SHARES):
            mu = resources * share / 100
            for policy in POLICIES:
                flow = push(plan, allowances(plan, paths, mu, policy, freshness))
                results[policy][place].append(flow.output / most)
            promised.append(not jaqpot(paths, mu, freshness).infeasible)
    best = [
        [max(results[rival][place][seed] for rival in RIVALS) for seed in range(seeds)]
        for place in range(len(SHARES))
    ]
    ratios = [
        (seed, results["JAQPOT"][place][seed] / rivals)
        for place in range(len(SHARES))
        for seed, rivals in enumerate(best[place])
        if rivals
    ]
    means = {policy: [mean(one) for one in found] for policy, found in results.items()}
    leading = [max(means[rival][place] for rival in RIVALS) for place in range(len(SHARES))]
    return {
        "shape": shape,
        "results": {policy: [total(one, 4) for one in found] for policy, found in results.items()},
        "ratio": total((ratio for _, ratio in ratios), 3, (seed for seed, _ in ratios)),
        "ratio to leading": round(
            mean(ours / theirs for ours, theirs in zip(means["JAQPOT"], leading, strict=True)), 3
        ),
        "promised": round(mean(promised), 4),
        "scales": [_scale(shape, seeds, scale) for scale in SCALES],
    }


def _scale(shape: Shape, seeds: int, scale: float) -> dict[str, Any]:
    """Return GrePP's results and ratios at 60 % of the resources, with scaled selectivities."""
    at_60, ratios, per_probe = [], [], []
    for seed in range(seeds):
        random = Random(seed)
        plan = draw(random, shape, selectivities(random, shape, scale))
        paths = input_paths(plan)
        resources, most = saturation(paths)
        at_60.append(throughput(paths, grepp(paths, 0.6 * resources)) / most)
        per_probe.append(statistics.median(one.productivity for one in plan.half_ways.values()))
        for share in SHARES:
            mu = resources * share / 100
            best = max(push(plan, rival_allowances(plan, mu, rival)).output for rival in Rival)
            if best:
                ratios.append(throughput(paths, grepp(paths, mu)) / best)
    return {
        "scale": scale,
        "productivity": round(statistics.median(per_probe), 3),
        "results at 60 %": total(at_60, 4),
        "ratio": total(ratios, 3),
    }


def tables(found: Iterable[dict[str, Any]]) -> list[Grid]:
    """Return tables of results by policy and resources, and of ratios by range of selectivities."""
    grids = []
    for one in found:
        rows = tuple(
            (f"{share} %", *(f"{100 * one['results'][p][place]['mean']:.1f}" for p in POLICIES))
            for place, share in enumerate(SHARES)
        )
        title = f"{one['shape']} plans: results, % of saturation's, mean (Fig. 7)"
        grids.append(Grid(title, ("resources", *POLICIES), rows))
    ratios = tuple(
        (
            one["shape"],
            *(f"{one['ratio'][name]:.2f}" for name in ("mean", "low", "high")),
            f"{one['ratio to leading']:.2f}",
            f"{100 * one['promised']:.1f}",
        )
        for one in found
    )
    names = "", "each plan's best rival, mean", "least", "most", "best rival by mean", "promised, %"
    grids.append(Grid("JAQPOT's results, times a rival's", names, ratios))
    head = (
        "", "σ times", "median ρ_h", "GrePP's results at 60 %, mean", "times the best rival, mean",
        "least", "most",
    )  # fmt: skip
    rows = tuple(
        (
            one["shape"],
            f"{at['scale']:g}",
            f"{at['productivity']:g}",
            f"{100 * at['results at 60 %']['mean']:.1f} %",
            *(f"{at['ratio'][name]:.2f}" for name in ("mean", "low", "high")),
        )
        for one in found
        for at in one["scales"]
    )
    return [*grids, Grid("selectivities times a factor (1: Table 3)", head, rows, texts=2)]
