"""Incremental planning: the plan of an epoch starts from the plan of the epoch before."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch_contract.plans.plan import Plan
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.parts import PlanPart
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.statistics.steady import settle
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan.session import Session


class Follower:
    """Plans consecutive epochs incrementally.

    The setting ``switching`` (relative penalty for changes of the plan) is a tolerance, too:
    smaller relative changes of statistics are ignored.

    Attributes:
        weight: the setting ``switching``; may differ from plan to plan.
        taken: the statistics used by the last plan; None before the first.
        parts: independent parts of the last plan that was compiled into rules.
    """

    def __init__(self) -> None:
        self.weight = 0.0
        self.taken: Statistics | None = None
        self.parts: tuple[PlanPart, ...] = ()
        self._session = Session()

    def known(self, queries: Sequence[JoinQuery]) -> tuple[JoinQuery, ...]:
        """Return ``queries``, each as the equal object of the last plan if there is one."""
        there = {query.id: query for part in self.parts for query in part.queries}
        return tuple(found if (found := there.get(q.id)) == q else q for q in queries)

    def stays(self, queries: Sequence[JoinQuery], statistics: Statistics) -> bool:
        """Whether the last plan is for the same ``queries`` and (nearly) the same statistics, and
        replanning would hardly improve it."""
        if self.taken is None or not self._session.stays(queries):
            return False
        figures = settle(statistics, self.taken, self.weight)
        return not any(figures.concerns(query) for query in queries)

    def is_of(self, queries: Sequence[JoinQuery]) -> bool:
        """Whether the last plan is for the same ``queries``, so that it can stay in force until
        replanning is due."""
        return self._session.may_rest(queries)

    def make(self, queries: Sequence[JoinQuery], statistics: Statistics, options: Options) -> Plan:
        """Make the next plan; arguments and errors: :func:`~anabranch_planner.passes.optimise`."""
        figures = settle(statistics, self.taken, self.weight)
        plan = self._session.plan(queries, figures, options, self.weight)
        self.taken = figures.statistics
        return plan
