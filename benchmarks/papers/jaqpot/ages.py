"""Ages of the tuples in results, sampled from a plan of the JAQPOT paper in steady state.

A state of ``|S|`` tuples that takes ``λ`` per second holds them for ``|S| / λ`` seconds, so the
time that a tuple found by a probe has spent in the state is uniform between 0 and that. An
intermediate tuple combines a tuple that had just arrived and a tuple found in a state. Which side
has probed is drawn, in the ratio of the tuples that the join's two half-way joins make.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.jaqpot.printed.plan import HalfWay, Plan
from benchmarks.papers.jaqpot.printed.rivals import Flow

Ages: TypeAlias = dict[str, NDArray[np.float64]]


def stale_share(
    plan: Plan,
    flow: Flow,
    freshness: Mapping[str, float],
    random: np.random.Generator,
    results: int,
) -> float | None:
    """Return the share of results with a tuple older than its predicate; None without predicates.

    Args:
        results: number of results to draw.
    """
    if flow.output <= 0:
        return None
    ages = _made(plan, flow, list(plan.joins)[-1], results, random)
    stale = np.zeros(results, dtype=np.bool_)
    for stream, seconds in freshness.items():
        # A result with a tuple of exactly the permitted age must not become stale by rounding.
        stale |= ages[stream] > seconds * (1 + 1e-9)
    return float(stale.mean())


def _made(plan: Plan, flow: Flow, join: str, count: int, random: np.random.Generator) -> Ages:
    """Return the ages, by stream, of ``count`` tuples at the moment when ``join`` makes them."""
    left, right = plan.joins[join]
    made = [flow.probes[half.name] * half.productivity for half in (left, right)]
    # The state of a join that makes nothing has tuples of any age, if it has any.
    by_left = int(random.binomial(count, made[0] / sum(made))) if sum(made) > 0 else count
    parts = []
    for half, other, number in ((left, right, by_left), (right, left, count - by_left)):
        new = _new(plan, flow, half, number, random)
        old = _new(plan, flow, other, number, random)
        rate = flow.probes[other.name] if other.rate is None else other.rate
        stay = other.window / rate if rate > 0 else np.inf
        waited = stay * (1 - random.random(number))
        parts.append(new | {stream: age + waited for stream, age in old.items()})
    order = random.permutation(count)
    return {s: np.concatenate([part[s] for part in parts])[order] for s in parts[0]}


def _new(plan: Plan, flow: Flow, half: HalfWay, count: int, random: np.random.Generator) -> Ages:
    """Return the ages, by stream, of tuples at the moment at which they probe in ``half``."""
    if half.rate is not None:
        return {half.name: np.zeros(count)}
    return _made(plan, flow, half.name, count, random)
