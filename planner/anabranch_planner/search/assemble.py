"""Conversion of routings (solutions of the search) to plans; merging of plans of single queries."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from anabranch_contract.plans.plan import Objective, Optimizer, Plan, ProbeOrder, Step, StoreCopy
from anabranch_contract.queries.joins import AttrRef
from anabranch_contract.queries.mirs import MirId
from anabranch_planner.search.copies import CopyAccess, attribute_rank
from anabranch_planner.search.outcome import Outcome
from anabranch_planner.search.problem import EdgeId, Goal, GoalKey, Graph, PlanProblem, Sub
from anabranch_planner.search.routes import Routing

#: Path (edges up to a step) -> the store copy that the last step probes, and how.
PathAccess = dict[tuple["EdgeId", ...], CopyAccess]
#: Steps of a plan, by edge, partition attribute of the probed copy, and whether it broadcasts.
Steps = dict[tuple["EdgeId", "AttrRef | None", bool], Step]


@dataclass(slots=True)
class Reused:
    """Elements of a plan that are reused in the next plan over the same graph.

    Attributes:
        orders: the last probe order of each goal, so that an unchanged order stays one object.
        candidates: ``id()`` of a goal -> the goal (kept alive) and its number of candidate orders.
    """

    steps: Steps = field(default_factory=dict)
    orders: dict[GoalKey, ProbeOrder] = field(default_factory=dict)
    candidates: dict[int, tuple[Goal, int]] = field(default_factory=dict)

    def without(self, subs: Collection[Sub], graph: Graph) -> Reused:
        """Copy without the steps whose prices depend on one of the sub-joins ``subs``."""
        before, after = graph.before, graph.after
        steps = {
            key: step
            for key, step in self.steps.items()
            if before[key[0]] not in subs and after[key[0]] not in subs
        }
        return Reused(steps, self.orders, self.candidates)

    def count(self, problem: PlanProblem) -> int:
        """Number of candidate probe orders of all goals in the planning problem."""
        known, self.candidates = self.candidates, {}
        for goal in problem.goals:
            found = known.get(id(goal)) or (goal, problem.candidates_of(goal))
            self.candidates[id(goal)] = found
        return sum(number for _, number in self.candidates.values())


def assemble(
    problem: PlanProblem, routing: Routing, owner: str = "", reused: Reused | None = None
) -> tuple[list[ProbeOrder], list[StoreCopy]]:
    """Convert ``routing``, a solution of the search, to probe orders and store copies."""
    reused = Reused() if reused is None else reused
    before, reused.orders = reused.orders, {}
    orders = []
    for index, path in routing.routes.items():
        goal = problem.goals[index]
        access = [routing.accesses[e] for e in path]
        order = _order(problem, goal, path, access, owner, reused.steps)
        known = before.get(goal.key)
        if known == order:
            order = known
        reused.orders[goal.key] = order
        orders.append(order)
    copies = [
        StoreCopy(_id(problem, store), attribute, owner, problem.inserts[store])
        for store, kept in routing.copies.items()
        for attribute in kept
    ]
    return orders, copies


def merge_prefixes(
    parts: Sequence[tuple[PlanProblem, Routing]],
) -> tuple[list[ProbeOrder], list[StoreCopy], float]:
    """Merge equal elements of plans for single queries, without new choices of probe orders.

    Equal prefixes run once; if they probe different copies, a probe without broadcast is kept. If
    several plans keep an intermediate result, the cheapest of their orders per member maintains it.
    Equal copies are kept once, and unneeded elements are dropped, so the result never costs more
    than the standalone plans together. The last value returned is its cost.

    Args:
        parts: problems over one graph, so that equal edges have equal indices.
    """
    routes: dict[GoalKey, tuple[EdgeId, ...]] = {}
    goals: dict[GoalKey, tuple[PlanProblem, Goal]] = {}
    accesses: PathAccess = {}
    for problem, routing in parts:
        for index, path in routing.routes.items():
            goal = problem.goals[index]
            key = goal.key
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
        orders.append(_order(problem, goal, path, chosen, "", {}))
        for i, step in enumerate(orders[-1].steps):
            steps[path[: i + 1]] = step.cost
    copies = [
        StoreCopy(_id(source[store], store), attribute, "", source[store].inserts[store])
        for store, attributes in used.items()
        for attribute in sorted(attributes, key=attribute_rank)
    ]
    return orders, copies, sum(steps.values()) + sum(c.insert_cost for c in copies)


def _id(problem: PlanProblem, store: Sub) -> MirId:
    return problem.graph.mir(store).id


def _price(problem: PlanProblem, path: tuple[EdgeId, ...]) -> tuple[float, tuple[EdgeId, ...]]:
    return sum(problem.graph.cost[e] for e in path), path


def _preference(access: CopyAccess) -> tuple[bool, tuple[str, ...]]:
    return access.broadcast, attribute_rank(access.partition)


def _order(
    problem: PlanProblem,
    goal: Goal,
    path: tuple[EdgeId, ...],
    accesses: Sequence[CopyAccess],
    owner: str,
    steps: Steps,
) -> ProbeOrder:
    """The probe order of a plan for the path of a goal; ``steps`` caches its steps."""
    made = []
    for e, access in zip(path, accesses, strict=True):
        key = (e, access.partition, access.broadcast)
        step = steps.get(key)
        if step is None:
            step = steps[key] = _step(problem, e, access)
        made.append(step)
    return ProbeOrder(goal.name, goal.maintains, goal.start, tuple(made), owner, goal.substream)


def _step(problem: PlanProblem, e: EdgeId, access: CopyAccess) -> Step:
    """The step of a plan for an edge of the graph of states."""
    graph, model = problem.graph, problem.model
    return Step(
        target=graph.mir(graph.target[e]).id,
        members=graph.members(e),
        partition=access.partition,
        broadcast=access.broadcast,
        cost=graph.cost[e] + (graph.spread[e] if access.broadcast else 0.0),
        cardinality=model.probe(graph.mir(graph.after[e]), graph.start[e], graph.substream[e]),
    )


def make_plan(
    optimizer: Optimizer,
    objective: Objective,
    outcomes: Sequence[Outcome],
    reused: Reused | None = None,
) -> Plan:
    """The plan that consists of ``outcomes``: one for all queries, or one per query.

    Args:
        reused: elements of the last plan over the same graph; this plan's elements replace them.
    """
    orders: list[ProbeOrder] = []
    copies: list[StoreCopy] = []
    switching = 0.0
    if optimizer is Optimizer.SHARED:
        orders, copies, cost = merge_prefixes([(o.problem, o.routing) for o in outcomes])
        # A joint plan costs at least as much as the most expensive query's own optimum.
        bound = max((o.bound for o in outcomes), default=0.0)
    else:
        for o in outcomes:
            owner = "" if optimizer is Optimizer.CLASH else str(o.problem.queries[0])
            some_orders, some_copies = assemble(o.problem, o.routing, owner, reused)
            orders += some_orders
            copies += some_copies
        cost = sum(o.routing.cost for o in outcomes)
        switching = sum(o.routing.switching for o in outcomes)
        bound = sum(o.bound for o in outcomes)
    stores = {
        found.id: found
        for o in outcomes
        for store in o.routing.copies
        for found in (o.problem.graph.mir(store),)
    }
    used = {c.mir for c in copies}
    methods = dict.fromkeys(o.method for o in outcomes if not o.proven)
    methods = methods or dict.fromkeys(o.method for o in outcomes)
    bound = min(bound, cost)
    return Plan(
        optimizer=optimizer,
        objective=objective,
        queries=tuple(sorted(q for o in outcomes for q in o.problem.queries)),
        orders=tuple(sorted(orders, key=lambda o: o.rank)),
        mirs=tuple(stores[m] for m in sorted(used)),
        copies=tuple(sorted(copies, key=lambda c: (c.owner, c.mir, attribute_rank(c.partition)))),
        cost=cost - switching,
        switching=switching,
        bound=bound,
        gap=gap(cost, bound),
        method="; ".join(methods) or "nothing to choose",
        candidates=sum(
            o.problem.candidates if reused is None else reused.count(o.problem) for o in outcomes
        ),
        variables=sum(o.variables for o in outcomes),
        constraints=sum(o.constraints for o in outcomes),
        substreams=outcomes[0].problem.model.substreams if outcomes else (),
    )


def gap(cost: float, bound: float) -> float:
    """Relative gap between a plan's ``cost`` and its lower ``bound``."""
    return (cost - bound) / cost if cost > bound else 0.0
