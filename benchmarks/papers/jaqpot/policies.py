"""Policies of the JAQPOT paper, as functions to probes per second of each half-way join."""

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
    """Return the probes per second that ``policy`` allows to each half-way join.

    Args:
        paths: input paths of the plan.
        freshness: predicates in seconds, which only JAQPOT considers. If it can't promise them, it
            is equal to GrePP.
    """
    if policy == "GrePP":
        return by_half_way(paths, grepp(paths, mu))
    if policy == "JAQPOT":
        return by_half_way(paths, jaqpot(paths, mu, freshness).resources)
    return rival_allowances(plan, mu, Rival(policy))
