"""Every policy as allowances per half-way join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.papers.jaqpot.printed.grepp import grepp
from benchmarks.papers.jaqpot.printed.jaqpot import jaqpot
from benchmarks.papers.jaqpot.printed.paths import InputPath, by_half_way
from benchmarks.papers.jaqpot.printed.plan import Plan
from benchmarks.papers.jaqpot.printed.rivals import Rival, rival_allowances

RIVALS = tuple(rival.value for rival in Rival)
POLICIES = (*RIVALS, "GrePP", "JAQPOT")


def allowances(
    plan: Plan,
    paths: Sequence[InputPath],
    mu: float,
    policy: str,
    freshness: Mapping[str, float],
) -> dict[str, float]:
    """Probes per second by half-way join.

    Args:
        paths: of the plan.
        freshness: predicates, which JAQPOT alone heeds; where it can't promise them, it is GrePP.
    """
    if policy == "GrePP":
        return by_half_way(paths, grepp(paths, mu))
    if policy == "JAQPOT":
        return by_half_way(paths, jaqpot(paths, mu, freshness).resources)
    return rival_allowances(plan, mu, Rival(policy))
