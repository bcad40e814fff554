"""The planner's memory from epoch to epoch: the next plan is made from the last one."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch_contract.plans.plan import Plan
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.parts import PlanPart
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.statistics.steady import Steady
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan.session import Session


class Follower:
    """Makes consecutive plans.

    The switching charge, which unchanged plans save, is also the tolerance for changes of figures.

    Attributes:
        weight: the charge for switching, which may change between two plans.
        taken: the figures of the last plan; None before the first.
        parts: the parts of the last plan with rules.
    """

    def __init__(self) -> None:
        self.weight = 0.0
        self.taken: Steady | None = None
        self.parts: tuple[PlanPart, ...] = ()
        self._session = Session()

    def known(self, queries: Sequence[JoinQuery]) -> tuple[JoinQuery, ...]:
        """``queries``, equal ones replaced by the identical objects of the last plan's parts."""
        there = {query.id: query for part in self.parts for query in part.queries}
        return tuple(found if (found := there.get(q.id)) == q else q for q in queries)

    def stays(self, queries: Sequence[JoinQuery], statistics: Statistics) -> bool:
        """Whether the last plan is of ``queries``, and no figure of it has moved."""
        figures = Steady(statistics, self.taken, self.weight)
        if figures.before is None or figures.moved is None or figures.moved:
            return False
        return self.is_of(queries)

    def is_of(self, queries: Sequence[JoinQuery]) -> bool:
        """Whether the last plan is of ``queries``, and worth keeping."""
        return self._session.stays(queries)

    def make(self, queries: Sequence[JoinQuery], statistics: Statistics, options: Options) -> Plan:
        """The next plan; arguments and errors as for :func:`~anabranch_planner.passes.optimise`."""
        figures = Steady(statistics, self.taken, self.weight)
        plan = self._session.plan(queries, figures, options, self.weight)
        figures.forget()
        self.taken = figures
        return plan
