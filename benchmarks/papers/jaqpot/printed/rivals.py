"""JAQPOT's rivals: allowances by the productivity of single half-way joins instead of paths.

Tuples that a join makes beyond the next join's allowance are lost, and an allowance beyond the
number of tuples is wasted (producer-consumer mismatch). Source: JAQPOT, section 2, appendix B and
Table 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.papers.jaqpot.printed.grepp import check_resources
from benchmarks.papers.jaqpot.printed.plan import HalfWay, Plan


class Rival(StrEnum):
    """Rival policy for the division of ``μ``.

    * ``EQUAL_HJ``: equally among half-way joins;
    * ``GLOBAL_HJPR``: among half-way joins, in proportion to their productivities;
    * ``E_BEST_HJP``: equally among joins, then the most productive half first;
    * ``S_BEST_HJP``: among joins, in proportion to their selectivities, then the most productive
    half first.
    """

    EQUAL_HJ = "EqualHJ"
    GLOBAL_HJPR = "GlobalHJPR"
    E_BEST_HJP = "EBestHJP"
    S_BEST_HJP = "SBestHJP"


@dataclass(frozen=True, slots=True)
class Flow:
    """Rates in a plan under given allowances, in steady state.

    Attributes:
        probes: probes per second of each half-way join: the minimum of its allowance and its
            tuples.
        made: tuples per second that each join makes.
        output: results per second.
    """

    probes: Mapping[str, float]
    made: Mapping[str, float]
    output: float


def push(plan: Plan, allowances: Mapping[str, float]) -> Flow:
    """Return the rates of a plan in steady state.

    Args:
        allowances: probes per second of each half-way join; missing: 0.
    """
    probes: dict[str, float] = {}
    made: dict[str, float] = {}
    output = 0.0
    for join, halves in plan.joins.items():
        for half in halves:
            probes[half.name] = min(allowances.get(half.name, 0.0), _arriving(half, made))
        output = made[join] = math.fsum(probes[half.name] * half.productivity for half in halves)
    return Flow(probes, made, output)


def rival_allowances(plan: Plan, mu: float, rival: Rival) -> dict[str, float]:
    """Return the probes per second of each half-way join, whose sum is at most ``mu``.

    Within a join, ``E_BEST_HJP`` and ``S_BEST_HJP`` apply BestHJP of one join: the more productive
    half gets as much of the join's share as it can use (``min(μ, λ)``), the other half gets the
    rest. That wastes less than assigning all to one half, and gives the same figures in Table 4.

    Raises:
        PlannerError: ``mu`` is negative or no number (``bad-resources``).
    """
    check_resources(mu)
    halves = plan.half_ways.values()
    if rival is Rival.EQUAL_HJ:
        return {half.name: mu / len(halves) for half in halves}
    if rival is Rival.GLOBAL_HJPR:
        return _in_ratio(mu, {half.name: half.productivity for half in halves})
    if rival is Rival.E_BEST_HJP:
        return _best_halves(plan, dict.fromkeys(plan.joins, mu / len(plan.joins)))
    # The two halves may have different selectivities; the join's is their mean (footnote 4).
    mean = {join: (a.selectivity + b.selectivity) / 2 for join, (a, b) in plan.joins.items()}
    return _best_halves(plan, _in_ratio(mu, mean))


def whole_allowances(allowances: Mapping[str, float]) -> dict[str, float]:
    """Round allowances as in Table 4: down, and the remainder goes to the last half-way join."""
    found = {name: float(math.floor(value)) for name, value in allowances.items()}
    last = next(reversed(found))
    found[last] += round(math.fsum(allowances.values()) - math.fsum(found.values()))
    return found


def _in_ratio(mu: float, weights: Mapping[str, float]) -> dict[str, float]:
    """Divide ``mu`` in proportion to ``weights``; equally if all are 0."""
    total = math.fsum(weights.values())
    if total == 0:
        return dict.fromkeys(weights, mu / len(weights))
    return {name: mu * weight / total for name, weight in weights.items()}


def _best_halves(plan: Plan, shares: Mapping[str, float]) -> dict[str, float]:
    found = dict.fromkeys(plan.half_ways, 0.0)
    made: dict[str, float] = {}
    for join, halves in plan.joins.items():
        left = shares[join]
        for half in sorted(halves, key=lambda half: -half.productivity):
            found[half.name] = min(left, _arriving(half, made))
            left -= found[half.name]
        made[join] = math.fsum(found[half.name] * half.productivity for half in halves)
    return found


def _arriving(half: HalfWay, made: Mapping[str, float]) -> float:
    """Return the tuples per second with which the half-way join could probe."""
    return made[half.name] if half.rate is None else half.rate
