"""JAQPOT (Algorithm 1): resources for freshness first, at least cost; all others for throughput.

The resources of the cover, which keeps states fresh, produce results as well; GrePP only adds to
them. Every predicate that is not kept is reported (:class:`Infeasible`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from benchmarks.papers.jaqpot.printed.cover import greedy_cover
from benchmarks.papers.jaqpot.printed.freshness import (
    TOLERANCE,
    Cause,
    Infeasible,
    refresh_rates,
)
from benchmarks.papers.jaqpot.printed.grepp import check_resources, grepp
from benchmarks.papers.jaqpot.printed.paths import InputPath

Cover: TypeAlias = Callable[[Sequence[InputPath], Mapping[str, float]], dict[str, float]]


@dataclass(frozen=True, slots=True)
class Allocation:
    """Division of ``μ`` among input paths, in probes per second.

    Attributes:
        cover: resources of each path for freshness; their sum is ``Δμ``.
        rest: resources of each path for throughput.
        rates: refresh rate ``R_S`` of each state, which the cover fulfils.
        infeasible: the predicates that are not promised.
    """

    cover: Mapping[str, float]
    rest: Mapping[str, float]
    rates: Mapping[str, float]
    infeasible: tuple[Infeasible, ...]

    @property
    def resources(self) -> dict[str, float]:
        """Resources of each path, for freshness and throughput together."""
        return {path: given + self.rest[path] for path, given in self.cover.items()}

    @property
    def for_freshness(self) -> float:
        """Resources of all paths for freshness, ``Δμ``."""
        return math.fsum(self.cover.values())


def jaqpot(
    paths: Sequence[InputPath],
    mu: float,
    predicates: Mapping[str, float],
    cover: Cover = greedy_cover,
) -> Allocation:
    """Divide ``mu`` probes per second.

    If the cover of all feasible predicates takes more than ``mu``, no predicate that needs
    probes is promised, and all resources go to throughput.

    Args:
        predicates: stream -> seconds.
        cover: function that finds the resources that refresh all states.

    Raises:
        PlannerError: ``mu`` is negative or no number, or a predicate is negative, not finite or not
            of an input.
    """
    check_resources(mu)
    refresh = refresh_rates(paths, predicates)
    rates, infeasible = refresh.rates, refresh.infeasible
    covered = cover(paths, rates)
    needed = math.fsum(covered.values())
    if needed > mu * (1 + TOLERANCE):
        broken = {one.stream for one in infeasible}
        for path in paths:
            states = [hop.name for hop in path.hops if rates.get(hop.name)]
            if path.name in predicates and path.name not in broken and states:
                worst = max(states, key=lambda state: rates[state])
                infeasible += (Infeasible(path.name, worst, Cause.RESOURCES, mu, needed),)
        rates, covered, needed = {}, dict.fromkeys(covered, 0.0), 0.0
    rest = grepp(paths, max(mu - needed, 0.0), covered)
    return Allocation(covered, rest, rates, infeasible)
