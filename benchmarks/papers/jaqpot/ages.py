"""The ages of the tuples in results, sampled from a plan in steady state.

A state of ``|S|`` tuples that takes ``λ`` per second holds them for ``|S| / λ`` seconds, so a tuple
found by a probe has stayed in it for a time that is uniform up to that. An intermediate tuple was
made of a tuple that had just arrived and of one found in a state; the probing side is drawn in the
ratio of the tuples that both half-way joins make.
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
    """The share of results with a tuple older than its predicate; None where there are none.

    Args:
        results: how many are drawn.
    """
    if flow.output <= 0:
        return None
    ages = _made(plan, flow, list(plan.joins)[-1], results, random)
    stale = np.zeros(results, dtype=np.bool_)
    for stream, seconds in freshness.items():
        # Rounding must not make a result stale that is as old as may be.
        stale |= ages[stream] > seconds * (1 + 1e-9)
    return float(stale.mean())


def _made(plan: Plan, flow: Flow, join: str, count: int, random: np.random.Generator) -> Ages:
    """Ages by stream of ``count`` tuples at the moment that ``join`` makes them."""
    left, right = plan.joins[join]
    made = [flow.probes[half.name] * half.productivity for half in (left, right)]
    # Of a join that makes nothing, what its state may once have had is of any age.
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
    """Ages of tuples as they come to probe by ``half``."""
    if half.rate is not None:
        return {half.name: np.zeros(count)}
    return _made(plan, flow, half.name, count, random)
