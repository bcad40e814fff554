"""Probe forests: the joint cost of the goals of many queries, for any rations.

A step is an edge of the ruleset's probe trees. It takes the tuples of the largest ration behind it
(``docs/semantics.md``, "Rations"), so steps that goals share are paid once, and the cost of a
forest is a convex function of the rations. JAQPOT has the special case of one query whose paths
share nothing.
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
        parent: the number of the step before it; None: it begins a tree.
        cost: CPU seconds per unit of time if every tuple takes it.
    """

    parent: int | None
    cost: float


@dataclass(frozen=True, slots=True)
class ForestGoal:
    """A goal at the end of a path, or of several: one for each kind of its starting tuples that
    takes an order of its own.

    Attributes:
        query: the registered one: both joins of an outer join have its name.
        start: the label whose tuple arrives last (``rankings.goal_name``).
        steps: the numbers of its paths' last steps; empty: its results take no step.
        cost: of its own results, as of a step.
        output: results per unit of time if its ration is 1.
    """

    query: str
    start: str
    steps: tuple[int, ...]
    cost: float
    output: float


@dataclass(frozen=True)
class Forest:
    """Steps and goals.

    Attributes:
        steps: every step after its parent. Steps that every tuple takes, whatever the rations are,
            have no cost here.

    Raises:
        StatisticsError: a figure is negative or not finite, or a number names no step.
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
        """Whether each goal has one path at most."""
        return all(len(goal.steps) <= 1 for goal in self.goals)

    @cached_property
    def full(self) -> float:
        """CPU time of the whole forest with every ration at 1, in the unit of step costs."""
        return self.used([1.0] * len(self.goals))

    @cached_property
    def outputs(self) -> Mapping[str, float]:
        """Query -> its results per unit of time with all rations 1."""
        found: dict[str, float] = defaultdict(float)
        for goal in self.goals:
            found[goal.query] += goal.output
        return dict(found)

    def loads(self, shares: Sequence[float]) -> list[float]:
        """Of each step the largest ration behind it."""
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
        """CPU seconds per unit of time that these rations take."""
        steps = sum(s.cost * y for s, y in zip(self.steps, self.loads(shares), strict=True))
        return steps + sum(g.cost * p for g, p in zip(self.goals, shares, strict=True))

    def output(self, shares: Sequence[float]) -> float:
        """Results per unit of time that these rations keep."""
        return sum(g.output * p for g, p in zip(self.goals, shares, strict=True))

    def completeness(self, shares: Sequence[float]) -> dict[str, float]:
        """Query -> the share of its results that is kept; 1 where it has none."""
        kept: dict[str, float] = defaultdict(float)
        for goal, share in zip(self.goals, shares, strict=True):
            kept[goal.query] += goal.output * share
        return {q: kept[q] / full if full else 1.0 for q, full in self.outputs.items()}


def _check(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise StatisticsError(
            "bad-figure",
            f"{name} is {value}",
            field=name,
            remedy="give a finite number that is not negative",
        )
