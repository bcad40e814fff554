"""JAQPOT's allocation over probe forests: the cover of the floors, then paths by productivity.

The paper's Algorithm 1 has two phases. The *cover* finds the least CPU time that meets every
requirement (a weighted multiple set cover, section 4.2); *GrePP* spends the rest on the input paths
by falling path productivity (a fractional knapsack, section 4.1). In this model:

* An input path is a goal with all steps before it. Where a query has one ration for all its goals,
  they are one path. Its productivity ``ρ_p`` is its results over the CPU time of its own results
  and of all its steps (Eq. 8, with measured seconds for the paper's unit probes).
* Each path is priced alone, as printed: a step that several paths share is in all their prices. Its
  CPU time is spent once (``Forest.used``), so rations still stay within their budget.
* The requirements of the cover are floors: the least completeness of a query. The paper's
  requirements are refresh rates of intermediate states. Here the upkeep of intermediate results is
  never rationed, which is their dearest cover, paid before any budget.
* The cover is the cheapest one, by a linear program (:func:`.fair.least_cost`), and not the paper's
  greedy GH-WMSCP, so a budget breaks a floor only if every allocation does.

Without floors and shared steps the rations equal the result of :mod:`.results`. Elsewhere they keep
at most as many results: shared steps make a path look dearer than it is, and the cover stays
although other rations might hold the floors and bring more. Source: JAQPOT, section 4.3.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from anabranch_planner.allocation.forest import Forest


def by_productivity(
    forest: Forest,
    queries: Collection[str],
    paid: Sequence[float],
    *,
    tied: Collection[str] = (),
) -> Iterator[tuple[float, ...]]:
    """GrePP: all rations after each path has been filled, in the order of the paths.

    Args:
        queries: the queries whose goals are filled.
        paid: the ration that every goal has already: the cover's, and 1 for goals of queries with
            a higher priority.
        tied: queries whose goals all have one ration.
    """
    shares = list(paid)
    for path in input_paths(forest, queries, tied):
        for at in path:
            shares[at] = 1.0
        yield tuple(shares)


def input_paths(
    forest: Forest, queries: Collection[str], tied: Collection[str] = ()
) -> list[tuple[int, ...]]:
    """The input paths of ``queries`` by falling productivity, each as the numbers of its goals.

    Paths of equal productivity are sorted by their first goal.
    """
    paths: dict[str | int, list[int]] = {}
    for at, goal in enumerate(forest.goals):
        if goal.query in queries:
            paths.setdefault(goal.query if goal.query in tied else at, []).append(at)
    found = [tuple(goals) for goals in paths.values()]
    return sorted(found, key=lambda goals: (-_productivity(forest, goals), goals))


def _productivity(forest: Forest, goals: Sequence[int]) -> float:
    """Results per CPU second of a path; infinite where it costs nothing."""
    alone = [0.0] * len(forest.goals)
    for at in goals:
        alone[at] = 1.0
    cost = forest.used(alone)
    return forest.output(alone) / cost if cost > 0 else math.inf
