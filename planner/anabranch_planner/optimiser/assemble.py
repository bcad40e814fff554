"""From routings to the plan's orders and copies; naive sharing of plans made alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_planner.optimiser.copies import Access, attribute_rank
from anabranch_planner.plan import ProbeOrder, Step, StoreCopy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch_planner.mir import MirId
    from anabranch_planner.model import AttrRef, Label
    from anabranch_planner.optimiser.problem import EdgeId, Goal, Problem, Sub
    from anabranch_planner.optimiser.routes import Routing

#: How a step is accessed, by the path that it ends.
PathAccess = dict[tuple["EdgeId", ...], Access]
#: A goal whatever problem it is listed in: (maintained MIR, name, start).
GoalKey = tuple["Sub | None", str, "Label"]


def assemble(
    problem: Problem, routing: Routing, owner: str = ""
) -> tuple[list[ProbeOrder], list[StoreCopy]]:
    """The orders and copies of ``routing``."""
    orders = []
    for index, path in routing.routes.items():
        access = [routing.accesses[e] for e in path]
        orders.append(_order(problem, problem.goals[index], path, access, owner))
    copies = [
        StoreCopy(_id(problem, store), attribute, owner, problem.inserts[store])
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

    Args:
        parts: problems over one graph, so that equal edges have equal indices.
    """
    routes: dict[GoalKey, tuple[EdgeId, ...]] = {}
    goals: dict[GoalKey, tuple[Problem, Goal]] = {}
    accesses: PathAccess = {}
    for problem, routing in parts:
        for index, path in routing.routes.items():
            goal = problem.goals[index]
            key = _key(goal)
            if key not in routes or _price(problem, path) < _price(problem, routes[key]):
                routes[key] = path
            goals.setdefault(key, (problem, goal))
            for i, edge in enumerate(path):
                prefix = path[: i + 1]
                access = routing.accesses[edge]
                accesses[prefix] = min(access, accesses.get(prefix, access), key=_preference)
    upkeep: dict[Sub, list[GoalKey]] = {}
    for key in goals:
        if key[0] is not None:
            upkeep.setdefault(key[0], []).append(key)
    pending = [key for key in routes if key[0] is None]
    needed: dict[GoalKey, tuple[EdgeId, ...]] = {}
    used: dict[Sub, set[AttrRef | None]] = {}
    while pending:
        key = pending.pop()
        if key in needed:
            continue
        needed[key] = path = routes[key]
        target = goals[key][0].graph.target
        for i, edge in enumerate(path):
            used.setdefault(target[edge], set()).add(accesses[path[: i + 1]].partition)
            pending.extend(upkeep.get(target[edge], ()))
    source = {s: p for p, _ in reversed(parts) for s in (*p.required, *p.mirs)}
    for problem, routing in parts:
        for store in problem.required:
            used.setdefault(store, {routing.copies[store][0]})
    orders = []
    steps: dict[tuple[EdgeId, ...], float] = {}
    for key, path in needed.items():
        problem, goal = goals[key]
        chosen = [accesses[path[: i + 1]] for i in range(len(path))]
        orders.append(_order(problem, goal, path, chosen, ""))
        for i, step in enumerate(orders[-1].steps):
            steps[path[: i + 1]] = step.cost
    copies = [
        StoreCopy(_id(source[store], store), attribute, "", source[store].inserts[store])
        for store, attributes in used.items()
        for attribute in sorted(attributes, key=attribute_rank)
    ]
    return orders, copies, sum(steps.values()) + sum(c.insert_cost for c in copies)


def _key(goal: Goal) -> GoalKey:
    return goal.mir, goal.name, goal.start


def _id(problem: Problem, store: Sub) -> MirId:
    return problem.graph.mir(store).id


def _price(problem: Problem, path: tuple[EdgeId, ...]) -> tuple[float, tuple[EdgeId, ...]]:
    return sum(problem.graph.cost[e] for e in path), path


def _preference(access: Access) -> tuple[bool, tuple[str, ...]]:
    return access.broadcast, attribute_rank(access.partition)


def _order(
    problem: Problem, goal: Goal, path: tuple[EdgeId, ...], accesses: Sequence[Access], owner: str
) -> ProbeOrder:
    graph, model = problem.graph, problem.model
    steps = []
    for e, access in zip(path, accesses, strict=True):
        steps.append(
            Step(
                target=graph.mir(graph.target[e]).id,
                members=graph.members(e),
                partition=access.partition,
                broadcast=access.broadcast,
                cost=graph.cost[e] * model.chi(broadcast=access.broadcast),
                cardinality=model.probe(graph.mir(graph.after[e]), goal.start),
            )
        )
    return ProbeOrder(goal.name, goal.maintains, goal.start, tuple(steps), owner)
