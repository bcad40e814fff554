"""Every policy as a division of the same CPU time of rationed probes, based on one calibration run.

``results``, ``fair`` and ``jaqpot`` are the service's own schedules at the given budget. ``exact``
is the optimum of a linear program over the measured forest. ``GrePP`` charges shared steps to each
path and leaves the savings unspent, which ``jaqpot`` spends. The rivals limit edges
(:mod:`benchmarks.papers.jaqpot.rations.rivals`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from anabranch_contract.plans.plan import Objective, Optimizer, Solver
from anabranch_contract.plans.rations import (
    Allocation,
    Overload,
    RationedGoal,
    RationSchedule,
    SchedulePoint,
)
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.rest.planning.settings import PlanningSettings
from anabranch_planner.allocation.forest import Forest
from anabranch_planner.allocation.rankings import rationed_goals
from anabranch_planner.solvers.interface import Request
from anabranch_planner.solvers.program import INFINITY, Program
from anabranch_planner.solvers.registry import proven, solve
from anabranch_runtime.index.ranks import WHOLE
from anabranch_service.planning.rations import measured_forest, ration_schedule
from benchmarks.papers.jaqpot.allocate.policies import Policy, allocate
from benchmarks.papers.jaqpot.printed.rivals import Rival
from benchmarks.papers.jaqpot.rations.rivals import HalfWay, half_ways, limits, rival_shares
from benchmarks.papers.jaqpot.rations.runs import Division, Planned

OURS = (Allocation.RESULTS.value, Allocation.FAIR.value, Allocation.JAQPOT.value)
RIVALS = tuple(rival.value for rival in Rival)
EXACT, GREPP = "exact", "GrePP"
POLICIES = (*OURS, EXACT, GREPP, *RIVALS)


@dataclass(frozen=True)
class Calibrated:
    """Measurements of the calibration run (all rations 1), from which policies divide CPU time.

    Attributes:
        period: the measurements of the run as one period.
    """

    plan: Planned
    period: Interim

    @cached_property
    def goals(self) -> tuple[RationedGoal, ...]:
        """The goals that may be rationed, in the order of the forest's goals."""
        streams = {stream.name: stream for stream in self.plan.rules.streams}
        known = {(str(g.query), str(g.start)): g for g in rationed_goals(self.plan.joins, streams)}
        return tuple(known[goal.query, goal.start] for goal in self.forest.goals)

    @cached_property
    def forest(self) -> Forest:
        """The probe forest with measured costs, as in the service."""
        streams = {stream.name: stream for stream in self.plan.rules.streams}
        rationed = {(g.query, g.start) for g in rationed_goals(self.plan.joins, streams)}
        return measured_forest(self.plan.rules, rationed, [self.period])[0]

    @cached_property
    def halves(self) -> tuple[HalfWay, ...]:
        """The edges of the ruleset as half-way joins."""
        return half_ways(self.plan.rules, self.period)

    def planned(self, allocation: Allocation) -> RationSchedule:
        """Return the service's schedule under ``allocation``."""
        record = PlanningSettings(
            optimizer=Optimizer.CLASH,
            objective=Objective.TUPLES,
            parallelism=1,
            overload=Overload.RATION,
            allocation=allocation,
        )
        found = ration_schedule(self.plan.rules, self.plan.joins, {}, [self.period], record)
        assert found is not None, "a run has been measured, and rations save something"
        return found

    def division(self, policy: str, capacity: float) -> Division:
        """Divide ``capacity`` (a share of the cost with all rations 1) by ``policy``, one of
        :data:`POLICIES`.
        """
        if policy in OURS:
            return Division(replace(self.planned(Allocation(policy)), budget=capacity))
        if policy in (EXACT, GREPP):
            return Division(self._fixed(self.shares(policy, capacity)))
        shares = rival_shares(self.halves, capacity * self.forest.full, Rival(policy))
        return Division(limits=limits(self.plan.rules, self.goals, shares))

    def shares(self, policy: str, capacity: float) -> tuple[float, ...]:
        """Return the rations of the forest's goals under ``exact`` or ``GrePP``."""
        if policy == EXACT:
            return optimum(self.forest, capacity * self.forest.full)
        return allocate(self.forest, capacity, Policy.GREPP)

    def predicted(self, division: Division) -> float:
        """Return the share of all results that a division keeps according to the model."""
        if division.limits is None:
            assert division.schedule is not None
            rations = division.schedule.rations(division.schedule.budget or 0.0)
            shares = {(str(r.query), str(r.start)): r.share for r in rations}
        else:
            rules = self.plan.rules
            start = {rule.out: rule.start for rule in rules.paths}
            shares = {
                (str(output.query), str(start[output.edge])): most / WHOLE
                for output in rules.output_rules
                for _, most in division.limits.edge(output.edge) or ()
            }
        goals = self.forest.goals
        kept = math.fsum(g.output * shares.get((g.query, g.start), 1.0) for g in goals)
        return kept / math.fsum(goal.output for goal in goals)

    def _fixed(self, shares: Sequence[float]) -> RationSchedule:
        """Return a schedule with the rations ``shares`` for every budget."""
        ones = (1.0,) * len(shares)
        points = (SchedulePoint(0.0, tuple(shares)), SchedulePoint(1.0, ones))
        rules = self.plan.rules
        return RationSchedule(rules.epoch, rules.revision, self.goals, points, budget=0.0)


def optimum(forest: Forest, budget: float) -> tuple[float, ...]:
    """Return the rations with the most results within ``budget``, by a linear program. It shares no
    code with ``allocation.results``, to which it is compared.

    Raises:
        PlannerError: the solver fails (``no-solution``).
    """
    unit = forest.full or 1.0
    most = sum(goal.output for goal in forest.goals) or 1.0
    program = Program()
    steps = [program.variable(0.0, integer=False) for _ in forest.steps]
    # Variables are the missed shares of each goal's results, since the program minimises.
    missed = [program.variable(goal.output / most, integer=False) for goal in forest.goals]
    for at, step in enumerate(forest.steps):
        if step.parent is not None:
            program.row(0.0, INFINITY, [steps[step.parent], steps[at]], [1.0, -1.0])
    for at, goal in enumerate(forest.goals):
        for last in goal.steps:
            program.row(1.0, INFINITY, [steps[last], missed[at]], [1.0, 1.0])
    costs = [step.cost / unit for step in forest.steps] + [-g.cost / unit for g in forest.goals]
    own = math.fsum(goal.cost for goal in forest.goals)
    program.row(-INFINITY, (budget - own) / unit, [*steps, *missed], costs)
    answer = solve(Solver.HIGHS, Request(program))
    values = proven(Solver.HIGHS, answer, "compare with allocation.results alone")
    return tuple(1 - min(max(values[at], 0.0), 1.0) for at in missed)
