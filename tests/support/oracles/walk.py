"""The steps of a probe order found by search: the oracle of :mod:`anabranch_planner.cost.steps`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch_contract.plans.plan import Plan, ProbeOrder, Step
from anabranch_contract.queries.joins import JoinQuery, Label
from anabranch_contract.queries.mirs import Mir, MirId, sub_join
from anabranch_planner.cost.steps import PlanError, Prefix


def witness(plan: Plan, order: ProbeOrder, queries: Sequence[JoinQuery]) -> JoinQuery:
    """Return a query that contains the order's goal: the query itself, or one that uses the MIR."""
    if not order.maintains:
        found = [q for q in queries if q.id == order.goal]
    else:
        members = goal_labels(plan, order, queries)
        found = [
            q for q in queries if members <= set(q.labels) and sub_join(q, members).id == order.goal
        ]
    if not found:
        raise PlanError("unknown-goal", f"no query has the goal {order.goal!r}")
    return found[0]


def goal_labels(plan: Plan, order: ProbeOrder, queries: Sequence[JoinQuery]) -> frozenset[Label]:
    """Return the labels that the order must cover."""
    if order.maintains:
        members = [m.members for m in plan.mirs if m.id == order.goal]
    else:
        members = [q.labels for q in queries if q.id == order.goal]
    if not members:
        raise PlanError("unknown-goal", f"the plan does not know the goal {order.goal!r}")
    return frozenset(members[0])


def walk(
    plan: Plan, order: ProbeOrder, queries: Sequence[JoinQuery]
) -> Iterable[tuple[Prefix, Step, Mir, frozenset[Label], JoinQuery]]:
    """Yield the order's steps as (prefix, step, sub-join before it, its labels, witness)."""
    query = witness(plan, order, queries)
    head = frozenset({order.start})
    trail: tuple[tuple[MirId, tuple[Label, ...], MirId], ...] = ()
    for step in order.steps:
        after = head | frozenset(step.members)
        trail = (*trail, (step.target, step.members, sub_join(query, after).id))
        prefix = Prefix(order.owner, order.start, trail, order.substream)
        yield prefix, step, sub_join(query, head), head, query
        head = after
