"""Probe forests: the joint CPU cost of many queries, as a function of load shedding.

A *goal* is a query and the alias whose tuple arrives last; its *ration* is the admitted fraction of
such tuples. A step, an edge of the ruleset's probe trees, processes the largest ration of the goals
that use it (``docs/semantics.md``, "Rations"). So each shared step is paid once, and the cost of a
forest is a convex function of the rations. JAQPOT has a single query, without shared steps.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from anabranch_contract.errors import StatisticsError


@dataclass(frozen=True, slots=True)
class ForestStep:
    """A step of a probe tree.

    Attributes:
        parent: index of the preceding step; None: it begins a tree.
        cost: CPU seconds per unit of time if it processes every tuple.
    """

    parent: int | None
    cost: float


@dataclass(frozen=True, slots=True)
class ForestGoal:
    """Goal: the results of a query that tuples of one of its streams complete. It has one path, or
    one per substream (set of key values) with a probe order of its own.

    Attributes:
        query: the registered query; both joins of an outer join have its name.
        start: the alias whose tuple arrives last (``rankings.goal_name``).
        steps: indices of its paths' last steps; empty if its results need no step.
        cost: CPU seconds per unit of time to produce its results, without steps, at ration 1.
        output: number of results per unit of time at ration 1.
    """

    query: str
    start: str
    steps: tuple[int, ...]
    cost: float
    output: float


@dataclass(frozen=True)
class Forest:
    """Probe trees of several queries: their steps (edges), and the goals at the ends of paths.

    Attributes:
        steps: every step after its parent. Steps that process every tuple whatever the rations
            are have cost 0.

    Raises:
        StatisticsError: a number is negative or not finite, or an index is out of range.
    """

    steps: tuple[ForestStep, ...]
    goals: tuple[ForestGoal, ...]

    def __post_init__(self) -> None:
        for at, step in enumerate(self.steps):
            _check(f"steps[{at}].cost", step.cost)
            if step.parent is not None and not 0 <= step.parent < at:
                raise StatisticsError(
                    "bad-parent",
                    f"step {at} follows step {step.parent}",
                    field=f"steps[{at}].parent",
                    remedy="list every step after its parent",
                )
        for at, goal in enumerate(self.goals):
            _check(f"goals[{at}].cost", goal.cost)
            _check(f"goals[{at}].output", goal.output)
            for last in goal.steps:
                if not 0 <= last < len(self.steps):
                    raise StatisticsError(
                        "unknown-step",
                        f"there is no step {last}",
                        field=f"goals[{at}].steps",
                        remedy=f"name one of the {len(self.steps)} steps",
                    )

    @property
    def is_tree(self) -> bool:
        """Whether each goal has at most one path, so that the forest consists of trees."""
        return all(len(goal.steps) <= 1 for goal in self.goals)

    @cached_property
    def full(self) -> float:
        """CPU seconds per unit of time of the whole forest if load shedding withholds no tuples."""
        return self.used([1.0] * len(self.goals))

    @cached_property
    def outputs(self) -> Mapping[str, float]:
        """Query -> number of its results per unit of time if load shedding withholds no tuples."""
        found: dict[str, float] = defaultdict(float)
        for goal in self.goals:
            found[goal.query] += goal.output
        return dict(found)

    def loads(self, shares: Sequence[float]) -> list[float]:
        """Fraction of tuples that each probe step processes: the largest ration of its goals."""
        found = [0.0] * len(self.steps)
        for goal, share in zip(self.goals, shares, strict=True):
            for step in goal.steps:
                found[step] = max(found[step], share)
        for at in range(len(self.steps) - 1, -1, -1):
            parent = self.steps[at].parent
            if parent is not None:
                found[parent] = max(found[parent], found[at])
        return found

    def used(self, shares: Sequence[float]) -> float:
        """CPU seconds per unit of time if each goal admits its fraction ``shares`` of tuples."""
        steps = sum(s.cost * y for s, y in zip(self.steps, self.loads(shares), strict=True))
        return steps + sum(g.cost * p for g, p in zip(self.goals, shares, strict=True))

    def output(self, shares: Sequence[float]) -> float:
        """Number of results per unit of time if each goal admits its fraction of tuples."""
        return sum(g.output * p for g, p in zip(self.goals, shares, strict=True))

    def completeness(self, shares: Sequence[float]) -> dict[str, float]:
        """Query -> fraction of its results that the rations leave; 1 if it has no results."""
        kept: dict[str, float] = defaultdict(float)
        for goal, share in zip(self.goals, shares, strict=True):
            kept[goal.query] += goal.output * share
        return {q: kept[q] / full if full else 1.0 for q, full in self.outputs.items()}


def _check(name: str, value: float) -> None:
    """Require that a figure of the probe forest is finite and not negative."""
    if not 0 <= value < math.inf:
        raise StatisticsError(
            "bad-figure",
            f"{name} is {value}",
            field=name,
            remedy="give a finite number that is not negative",
        )
