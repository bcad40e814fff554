"""A complete plan without one of its intermediate results: the oracle of ``Ledger``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import fsum

from anabranch_contract.plans.plan import Plan, ProbeOrder, Step, StoreCopy
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.mirs import MirId, base_mir
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.steps import Prefix, SubJoins, Trails, trails
from anabranch_planner.explain.detours import Detours
from anabranch_planner.search.copies import attribute_rank


def without(
    plan: Plan,
    queries: Sequence[JoinQuery],
    mir: MirId,
    model: CostModel,
    *,
    owner: str = "",
    found: Trails | None = None,
) -> Plan:
    """Return ``plan`` with detours in place of every probe of ``owner``'s store ``mir``.

    The result is valid if ``plan`` is. Orders with equal prefixes still probe the same copy: a step
    that the plan or an earlier detour already has is used unchanged.
    """
    found = found or trails(plan, queries)
    detour = Detours(plan, SubJoins(queries), mir, model, owner)
    known = {prefix: trail.step for prefix, trail in found.steps.items()}
    new: dict[Prefix, Step] = {}
    orders = []
    for order, prefixes in zip(plan.orders, found.orders, strict=True):
        if order.owner != owner or (order.maintains and order.goal == mir):
            orders.append(order)
            continue
        if any(step.target == mir for step in order.steps):
            taken = detour.reroute(order, [found.steps[p] for p in prefixes], new, known)
            order = replace(order, steps=tuple(taken.values()))
        orders.append(order)
    return _needed(replace(plan, orders=tuple(orders)), queries, mir, owner)


def _needed(plan: Plan, queries: Sequence[JoinQuery], gone: MirId, owner: str) -> Plan:
    """``plan`` without the orders and copies that are superfluous if ``gone`` is not probed."""
    upkeep: dict[tuple[str, str], list[ProbeOrder]] = {}
    for order in plan.orders:
        if order.maintains:
            upkeep.setdefault((order.owner, order.goal), []).append(order)
    orders = [o for o in plan.orders if not o.maintains]
    maintained: set[tuple[str, str]] = set()
    for order in orders:  # grows while it is read
        for step in order.steps:
            goal = (order.owner, str(step.target))
            if goal not in maintained:
                maintained.add(goal)
                orders += upkeep.get(goal, ())
    lost = {o for o, _ in upkeep.items() if o not in maintained} | {(owner, str(gone))}
    probed = {(o.owner, s.target, s.partition) for o in orders for s in o.steps}
    before = {(o.owner, s.target, s.partition) for o in plan.orders for s in o.steps}
    kept = [
        c
        for c in plan.copies
        if (c.owner, str(c.mir)) not in lost
        and ((c.owner, c.mir, c.partition) in probed or (c.owner, c.mir, c.partition) not in before)
    ]
    kept += _required(plan, queries, kept)
    mirs = {c.mir for c in kept}
    smaller = replace(
        plan,
        orders=tuple(o for o in plan.orders if not o.maintains or (o.owner, o.goal) not in lost),
        copies=tuple(sorted(kept, key=lambda c: (c.owner, c.mir, attribute_rank(c.partition)))),
        mirs=tuple(m for m in plan.mirs if m.id in mirs),
        method=f"{plan.method}, without {gone}",
    )
    cost = _cost(smaller, trails(smaller, queries))
    bound = min(plan.bound, cost)
    return replace(smaller, cost=cost, bound=bound, gap=(cost - bound) / cost if cost else 0.0)


def _required(
    plan: Plan, queries: Sequence[JoinQuery], kept: Sequence[StoreCopy]
) -> list[StoreCopy]:
    """Return the first copy of every base relation that must be stored and has no copy any more."""
    owners = {o.goal: o.owner for o in plan.orders if not o.maintains}
    stored = {(c.owner, c.mir) for c in kept}
    wanted = {
        (owners[q.id], base_mir(r.id).id) for q in queries if len(q.labels) > 1 for r in q.relations
    } - stored
    first: dict[tuple[str, MirId], StoreCopy] = {}
    for copy in plan.copies:
        first.setdefault((copy.owner, copy.mir), copy)
    return [first[base] for base in sorted(wanted)]


def _cost(plan: Plan, found: Trails) -> float:
    steps = fsum(t.step.cost for t in found.steps.values())
    return fsum((steps, *(c.insert_cost for c in plan.copies)))
