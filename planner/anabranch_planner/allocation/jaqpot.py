"""JAQPOT's allocation over probe forests: the least rations that satisfy the floors, then input
paths in full by descending productivity.

The paper's Algorithm 1 has two phases. The *cover* finds the least CPU time that meets every
requirement (a weighted multiple set cover, section 4.2); *GrePP* spends the rest on the input paths
by falling path productivity (a fractional knapsack, section 4.1). In this model:

* An input path is a goal with all steps before it. If a query has one ration for all its goals,
  they are a single path. Its productivity ``ρ_p`` is its results divided by the CPU time of the
  results and of all its steps (Eq. 8, with measured seconds instead of the paper's unit probes).
* Each path is priced separately, as printed: a step shared by several paths is in all of their
  prices. Its CPU time is spent once (``Forest.used``), so rations still stay within their budget.
* The requirements of the cover are floors: the least completeness of a query. The paper's
  requirements are refresh rates of intermediate states. Here the upkeep of intermediate results is
  never rationed; its CPU time is spent before any budget is divided.
* The cover is the cheapest one, by a linear program (:func:`.fair.least_cost`), instead of the
  paper's greedy GH-WMSCP. So a budget violates a floor only if every allocation does.

Without floors and shared steps the rations equal those by :mod:`.results`. Otherwise JAQPOT's
rations keep at most as many results: a path with shared steps seems dearer than it is, and the
cover stays even if other rations satisfy the floors with more results. Source: JAQPOT, section 4.3.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from anabranch_planner.allocation.forest import Forest


def by_productivity(
    forest: Forest, queries: Collection[str], paid: Sequence[float], *, tied: Collection[str] = ()
) -> Iterator[tuple[float, ...]]:
    """JAQPOT's greedy algorithm GrePP: all rations after each further input path is admitted.

    Args:
        queries: the queries that get CPU time.
        paid: the ration that every goal already has: from the cover, and 1 for goals of queries
            with a higher priority.
        tied: queries whose goals all have the same ration.
    """
    shares = list(paid)
    for path in input_paths(forest, queries, tied):
        for at in path:
            shares[at] = 1.0
        yield tuple(shares)


def input_paths(
    forest: Forest, queries: Collection[str], tied: Collection[str] = ()
) -> list[tuple[int, ...]]:
    """Input paths of ``queries`` (indices of goals), by descending results per CPU second.

    Among equally productive paths, the one with the smaller first goal comes first.
    """
    paths: dict[str | int, list[int]] = {}
    for at, goal in enumerate(forest.goals):
        if goal.query in queries:
            paths.setdefault(goal.query if goal.query in tied else at, []).append(at)
    found = [tuple(goals) for goals in paths.values()]
    return sorted(found, key=lambda goals: (-_productivity(forest, goals), goals))


def _productivity(forest: Forest, goals: Sequence[int]) -> float:
    """Results per CPU second of the input path with these goals; infinite if it costs nothing."""
    alone = [0.0] * len(forest.goals)
    for at in goals:
        alone[at] = 1.0
    cost = forest.used(alone)
    return forest.output(alone) / cost if cost > 0 else math.inf
