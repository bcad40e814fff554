"""Limits of a plan (memory, copies, results), and charges for changing the running plan.

**Limits** hold for the joint plan. A memory budget limits the bytes of all store copies: the tuples
stored per unit of time, times their widths. A cap on intermediate results counts results, not
copies; with a cap of 0 every path probes only base stores.

**Switching.** A negligible saving should not rewire an epoch. Every step and store copy that the
running plan lacks is charged once: a step ``weight`` times its cost, a copy ``weight`` times the
tuples inserted per unit of time. So a step is replaced only if the new plan saves more than
``weight`` times the cost of the new elements; kept and removed elements are free. With weight 0 the
running plan has no effect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.joins import AttrRef
from anabranch_planner.cost.footprint import Footprint, StepKey
from anabranch_planner.search.copies import ROUNDING
from anabranch_planner.search.problem import EdgeId, PlanProblem, Sub

#: Bytes assumed per tuple of a relation with an unknown width.
DEFAULT_WIDTH = 100.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a joint plan.

    Attributes:
        memory: maximum bytes of all store copies together; None: no limit.
        copies: maximum number of copies per store, at least 1; None: no limit.
        mirs: maximum number of kept intermediate results; None: no limit.
        widths: relation -> bytes per tuple, by default :data:`DEFAULT_WIDTH`; the width of an
            intermediate result is the sum over its relations.
    """

    memory: float | None = None
    copies: int | None = None
    mirs: int | None = None
    widths: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.memory is not None and not (math.isfinite(self.memory) and self.memory >= 0):
            raise PlannerError(
                "bad-limit",
                f"a memory budget of {self.memory} bytes",
                field="memory",
                remedy="give a finite number of bytes, 0 or more",
            )
        if self.copies is not None and self.copies < 1:
            raise PlannerError(
                "bad-limit",
                f"at most {self.copies} copies of a store",
                field="copies",
                remedy="allow at least 1: what is probed has to be stored",
            )
        if self.mirs is not None and self.mirs < 0:
            raise PlannerError(
                "bad-limit",
                f"at most {self.mirs} intermediate results",
                field="intermediate_results",
                remedy="give a whole number, 0 or more",
            )
        for relation, width in sorted(self.widths.items()):
            if not (math.isfinite(width) and width > 0):
                raise PlannerError(
                    "bad-limit",
                    f"tuples of {relation} are {width} bytes wide",
                    field="widths",
                    remedy="give a positive number of bytes",
                )


@dataclass(frozen=True, slots=True)
class Switching:
    """The running plan's footprint, and the switching charge per new element (see the module)."""

    running: Footprint
    weight: float = 0.1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise PlannerError(
                "bad-switching",
                f"the switching weight is {self.weight}",
                field="switching",
                remedy="give a finite number, 0 or more; 0 ignores the running plan",
            )


def demand(problem: PlanProblem, limits: Limits, switching: Switching | None) -> PlanProblem:
    """Add ``limits`` and switching charges to the planning ``problem``.

    Raises:
        PlannerError: one copy of each base store already exceeds the memory budget.
    """
    most_mirs = limits.mirs
    if most_mirs is not None and most_mirs >= len(problem.mirs):
        most_mirs = None
    problem = replace(problem, most_copies=limits.copies, most_mirs=most_mirs)
    if limits.memory is not None:
        sizes = {s: _bytes(problem, s, limits.widths) for s in problem.inserts}
        least = sum(sizes[s] for s in problem.required)
        if least > limits.memory * (1 + ROUNDING):
            raise PlannerError(
                "memory-limit",
                f"one copy of every relation takes {least:.0f} bytes, the budget is "
                f"{limits.memory:.0f}",
                field="memory",
                remedy="raise the budget, shorten windows, or drop queries",
            )
        problem = replace(problem, memory=limits.memory, bytes=sizes)
    if switching is None or switching.weight == 0:
        return problem
    return replace(
        problem,
        extra_steps=_new_step_charges(problem, switching),
        extra_copies=_new_copies(problem, switching),
    )


def _bytes(problem: PlanProblem, store: Sub, widths: Mapping[str, float]) -> float:
    mir = problem.graph.mir(store)
    width = sum(widths.get(r, DEFAULT_WIDTH) for r in mir.relations)
    return problem.model.cardinality(mir) * width


def _new_step_charges(problem: PlanProblem, switching: Switching) -> dict[EdgeId, float]:
    graph, running = problem.graph, switching.running.steps
    charged = {}
    for e in dict.fromkeys(e for goal in problem.goals for e in goal.edges):
        key = StepKey(
            graph.start[e],
            graph.mir(graph.before[e]).id,
            graph.mir(graph.after[e]).id,
            graph.mir(graph.target[e]).id,
            graph.members(e),
            graph.substream[e],
        )
        if key not in running:
            charged[e] = switching.weight * graph.cost[e]
    return charged


def _new_copies(
    problem: PlanProblem, switching: Switching
) -> dict[tuple[Sub, AttrRef | None], float]:
    running = switching.running.copies
    charged: dict[tuple[Sub, AttrRef | None], float] = {}
    for store, attributes in problem.partitions.items():
        mir = problem.graph.mir(store)
        price = switching.weight * problem.model.upkeep(mir)
        for attribute in attributes or (None,):
            if (mir.id, attribute) not in running:
                charged[store, attribute] = price
    return charged
