"""From routings to the plan's orders and copies; naive sharing of plans made alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_planner.optimiser.copies import Access, attribute_rank
from anabranch_planner.optimiser.problem import Edge, Goal, Problem
from anabranch_planner.plan import ProbeOrder, Step, StoreCopy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch_planner.mir import MirId
    from anabranch_planner.model import AttrRef
    from anabranch_planner.optimiser.routes import Routes, Routing

#: How a step is accessed, by the path that it ends.
PathAccess = dict[tuple[Edge, ...], Access]


def assemble(
    problem: Problem, routing: Routing, owner: str = ""
) -> tuple[list[ProbeOrder], list[StoreCopy]]:
    """The orders and copies of ``routing``."""
    accesses = {
        path[: i + 1]: routing.accesses[edge]
        for path in routing.routes.values()
        for i, edge in enumerate(path)
    }
    orders = [_order(problem, goal, path, accesses, owner) for goal, path in routing.routes.items()]
    copies = [
        StoreCopy(store, attribute, owner, problem.inserts[store])
        for store, kept in routing.copies.items()
        for attribute in kept
    ]
    return orders, copies


def merge_prefixes(
    parts: Sequence[tuple[Problem, Routing]],
) -> tuple[list[ProbeOrder], list[StoreCopy], float]:
    """Share what plans made alone have in common, without choosing anything anew.

    Equal prefixes run once: where they access different copies, by the one that needs no
    broadcast. An MIR that several plans keep is maintained by the cheaper of their orders per
    member, and equal copies are kept once. What nothing needs any more is left out, so the
    result never costs more than the parts. The last value returned is that cost.
    """
    routes: Routes = {}
    accesses: PathAccess = {}
    source: dict[Goal, Problem] = {}
    for problem, routing in parts:
        for goal, path in routing.routes.items():
            if goal not in routes or _price(path) < _price(routes[goal]):
                routes[goal] = path
            source.setdefault(goal, problem)
            for i, edge in enumerate(path):
                prefix = path[: i + 1]
                access = routing.accesses[edge]
                accesses[prefix] = min(access, accesses.get(prefix, access), key=_preference)
    stores = {m: (p, p.mirs[m]) for p, _ in reversed(parts) for m in p.mirs}
    pending = [goal for goal in routes if not goal.maintains]
    needed: Routes = {}
    used: dict[MirId, set[AttrRef | None]] = {}
    while pending:
        goal = pending.pop()
        if goal in needed:
            continue
        needed[goal] = path = routes[goal]
        for i, edge in enumerate(path):
            used.setdefault(edge.target, set()).add(accesses[path[: i + 1]].partition)
            mir = stores[edge.target][1]
            if not mir.is_base:
                pending.extend(Goal(True, mir.id, start) for start in mir.members)
    for problem, routing in parts:
        for store in problem.required:
            used.setdefault(store, {routing.copies[store][0]})
    needed = dict(sorted(needed.items()))
    orders = [_order(source[goal], goal, path, accesses, "") for goal, path in needed.items()]
    copies = [
        StoreCopy(store, attribute, "", stores[store][0].inserts[store])
        for store, attributes in sorted(used.items())
        for attribute in sorted(attributes, key=attribute_rank)
    ]
    steps = {
        path[: i + 1]: step.cost
        for order, path in zip(orders, needed.values(), strict=True)
        for i, step in enumerate(order.steps)
    }
    return orders, copies, sum(steps.values()) + sum(c.insert_cost for c in copies)


def _price(path: tuple[Edge, ...]) -> tuple[float, list[str]]:
    return sum(e.cost for e in path), [e.head.mir for e in path]


def _preference(access: Access) -> tuple[bool, tuple[str, ...]]:
    return access.broadcast, attribute_rank(access.partition)


def _order(
    problem: Problem, goal: Goal, path: tuple[Edge, ...], accesses: PathAccess, owner: str
) -> ProbeOrder:
    steps = []
    for i, edge in enumerate(path):
        access = accesses[path[: i + 1]]
        steps.append(
            Step(
                target=edge.target,
                members=edge.members,
                partition=access.partition,
                broadcast=access.broadcast,
                cost=edge.cost * problem.model.chi(broadcast=access.broadcast),
                cardinality=edge.yields,
            )
        )
    return ProbeOrder(goal.name, goal.maintains, goal.start, tuple(steps), owner)
