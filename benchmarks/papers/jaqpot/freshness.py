"""Share of stale results by policy, and the resources that freshness takes (Fig. 9 of JAQPOT).

The paper uses 300 probes per second for all plans. Plans of Table 3 need between a hundred thousand
and two hundred million probes per second to process everything, so shares of these are measured as
well. Ages are those in steady state. Of JAQPOT, results count only if it promises all predicates.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from random import Random
from typing import Any

import numpy as np

from benchmarks.papers.jaqpot.ages import stale_share
from benchmarks.papers.jaqpot.plans import FACTORS, Shape, draw, predicates, selectivities
from benchmarks.papers.jaqpot.policies import POLICIES, allowances
from benchmarks.papers.jaqpot.printed.freshness import Cause
from benchmarks.papers.jaqpot.printed.jaqpot import jaqpot
from benchmarks.papers.jaqpot.printed.paths import input_paths, saturation
from benchmarks.papers.jaqpot.printed.rivals import push
from benchmarks.papers.jaqpot.sums import mean, total
from benchmarks.report.grids import Grid

#: Resources at which staleness is measured: a percentage of saturation's, or probes per second.
RESOURCES = ("30 %", "300/s")
#: Resources, in percent of saturation's, over which the share that freshness takes is averaged.
SHARES = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
#: Number of results drawn for each plan and policy.
DRAWN = 2000


def measure(seeds: int) -> list[dict[str, Any]]:
    """Return stale shares, freshness's share of resources, infeasible predicates; by
    shape, factor.
    """
    return [_one(shape, factor, seeds) for shape in Shape for factor in FACTORS]


def _one(shape: Shape, factor: float, seeds: int) -> dict[str, Any]:
    stale: dict[str, dict[str, list[float]]] = {
        amount: {policy: [] for policy in POLICIES} for amount in RESOURCES
    }
    promised: dict[str, list[bool]] = {amount: [] for amount in RESOURCES}
    taken, infeasible, causes = [], [], dict.fromkeys(Cause, 0)
    for seed in range(seeds):
        random = Random(seed)
        plan = draw(random, shape, selectivities(random, shape))
        freshness = predicates(plan, factor)
        paths = input_paths(plan)
        everything, _ = saturation(paths)
        for amount, mu in zip(RESOURCES, (0.3 * everything, 300.0), strict=True):
            promised[amount].append(not jaqpot(paths, mu, freshness).infeasible)
            for policy in POLICIES:
                if policy == "JAQPOT" and not promised[amount][-1]:
                    continue
                flow = push(plan, allowances(plan, paths, mu, policy, freshness))
                name = f"{shape} {factor} {seed} {amount} {policy}".encode()
                share = stale_share(
                    plan, flow, freshness, np.random.default_rng(zlib.crc32(name)), DRAWN
                )
                stale[amount][policy] += [] if share is None else [share]
        for share in SHARES:
            mu = everything * share / 100
            found = jaqpot(paths, mu, freshness)
            infeasible.append(bool(found.infeasible))
            for cause in {one.cause for one in found.infeasible}:
                causes[cause] += 1
            taken += [] if found.infeasible else [found.for_freshness / mu]
    return {
        "shape": shape,
        "factor": factor,
        "stale": {
            amount: {policy: total(found, 4) for policy, found in by_policy.items()}
            for amount, by_policy in stale.items()
        },
        "promised": {amount: round(mean(found), 4) for amount, found in promised.items()},
        "taken": total(taken, 4),
        "infeasible": round(mean(infeasible), 4),
        "causes": causes,
    }


def tables(found: Iterable[dict[str, Any]]) -> list[Grid]:
    """Return the tables of stale results, and of resources for freshness."""
    grids = []
    for amount in RESOURCES:
        rows = tuple(
            (
                one["shape"],
                f"{one['factor']:g}",
                *(_percent(one["stale"][amount][policy]) for policy in POLICIES),
                f"{100 * one['promised'][amount]:.0f}",
            )
            for one in found
        )
        head = ("", "F, windows", *POLICIES, "promised by JAQPOT")
        title = f"stale results, %, mean, with resources of {amount} (Fig. 9 a-c)"
        grids.append(Grid(title, head, rows, texts=2))
    rows = tuple(
        (
            one["shape"],
            f"{one['factor']:g}",
            _percent(one["taken"]),
            "-" if one["taken"] is None else f"{100 * one['taken']['high']:.1f}",
            f"{100 * one['infeasible']:.1f}",
            *(str(one["causes"][cause]) for cause in Cause),
        )
        for one in found
    )
    head = ("", "F, windows", "% of μ, mean", "most", "infeasible, %", *(str(c) for c in Cause))
    title = "what freshness takes, with 10 to 100 % of saturation's resources (Fig. 9 d)"
    return [*grids, Grid(title, head, rows, texts=2)]


def _percent(found: dict[str, float] | None) -> str:
    return "-" if found is None else f"{100 * found['mean']:.1f}"
