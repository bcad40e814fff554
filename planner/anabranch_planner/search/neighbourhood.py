"""Re-optimisation of a few queries of a plan, while the probe orders of others are fixed.

Large-neighbourhood search with the integer program as the sub-solver. Elements paid for by the
other queries (steps, copies, intermediate results) are free for the chosen queries, and the passes
of ``anytime`` find the optimum under these prices. (A memory budget is checked afterwards.) The
plan's cost never increases, and the work is proportional to the neighbourhood, not to the number of
queries. So adding one query to a thousand is cheap, and problems too large for a single program can
be solved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from random import Random

from anabranch_contract.queries.joins import AttrRef
from anabranch_planner.search.copies import choose_copies
from anabranch_planner.search.problem import EdgeId, Goal, PlanProblem, Sub
from anabranch_planner.search.routes import Routing, finish
from anabranch_planner.solvers.deadline import Deadline

#: Maximum flow variables per group of queries, without and with charged store copies.
FLOWS, CHARGED_FLOWS = 2_500, 800
#: Number of rounds in which every query is re-optimised once.
ROUNDS = 2


def size_of(problem: PlanProblem) -> int:
    """Target number of flow variables of a neighbourhood (queries optimised together)."""
    return CHARGED_FLOWS if problem.charged else FLOWS


class Sharing:
    """Index to find the queries that can share probe steps with a query."""

    def __init__(self, problem: PlanProblem) -> None:
        self._problem = problem
        self._edges: dict[str, set[EdgeId]] = defaultdict(set)
        self._users: dict[EdgeId, list[str]] = defaultdict(list)
        self._flows: dict[str, int] = defaultdict(int)
        for goal in problem.goals:
            if goal.mir is None:
                self._flows[goal.name] += len(goal.edges)
                for e in goal.edges:
                    if goal.name not in self._users[e]:
                        self._users[e].append(goal.name)
                    self._edges[goal.name].add(e)

    def around(self, query: str, flows: int) -> list[str]:
        """``query`` and the queries that can share most with it, up to ``flows`` flow variables."""
        shared: dict[str, int] = defaultdict(int)
        for e in self._edges[query]:
            for other in self._users[e]:
                shared[other] += 1
        return nearest([query], shared, self._flows, flows)


def nearest(
    queries: Collection[str], shared: Mapping[str, int], size: Mapping[str, int], flows: int
) -> list[str]:
    """``queries`` and the queries that share most with them, up to ``flows`` flow variables."""
    chosen, total = sorted(queries), sum(size[query] for query in queries)
    for other in sorted(shared.keys() - set(queries), key=lambda q: (-shared[q], q)):
        total += size[other]
        if total > flows:
            break
        chosen.append(other)
    return chosen


def reoptimise(
    problem: PlanProblem,
    routing: Routing,
    free: Collection[str],
    solve: Callable[[PlanProblem], Routing],
) -> Routing:
    """The best plan in which only the orders of the queries ``free`` may change.

    Args:
        routing: the plan so far; it may lack the orders of ``free`` queries.
        solve: solver for the problem of the ``free`` queries.

    Returns:
        The new plan, or ``routing`` if that is complete and cheaper.
    """
    part, goals, fixed = _around(problem, routing, free)
    found = solve(part)
    routes = {goals[g]: path for g, path in found.routes.items()} | fixed
    new = finish(problem, routes)
    complete = all(i in routing.routes for i, g in enumerate(problem.goals) if g.mir is None)
    return routing if complete and routing.cost <= new.cost else new


def _around(
    problem: PlanProblem, routing: Routing, free: Collection[str]
) -> tuple[PlanProblem, list[int], dict[int, tuple[EdgeId, ...]]]:
    """The problem of the queries ``free``, indices of its goals in ``problem``, fixed routes."""
    graph, target = problem.graph, problem.graph.target
    fixed: dict[int, tuple[EdgeId, ...]] = {}
    pending = [
        i
        for i, g in enumerate(problem.goals)
        if g.mir is None and g.name not in free and i in routing.routes
    ]
    kept: set[Sub] = set()
    while pending:
        index = pending.pop()
        if index in fixed:
            continue
        fixed[index] = path = routing.routes[index]
        for e in path:
            if target[e] in problem.mirs and target[e] not in kept:
                kept.add(target[e])
                pending.extend(problem.mirs[target[e]])
    paid = {e for path in fixed.values() for e in path}
    probed = {target[e] for e in paid}
    _, copies = choose_copies(problem, sorted(paid))
    indices = [i for i, g in enumerate(problem.goals) if g.mir is None and g.name in free]
    goals: list[Goal] = [problem.goals[i] for i in indices]
    mirs: dict[Sub, tuple[int, ...]] = {}
    at = 0
    while at < len(goals):
        for e in goals[at].edges:
            store = target[e]
            if store in problem.mirs and store not in mirs:
                upkeep = problem.mirs[store]
                mirs[store] = tuple(range(len(goals), len(goals) + len(upkeep)))
                indices += upkeep
                goals += [problem.goals[i] for i in upkeep]
        at += 1
    cost, spread = list(graph.cost), list(graph.spread)
    for e in paid:
        cost[e] = spread[e] = 0.0
    used = dict.fromkeys(target[e] for goal in goals for e in goal.edges)
    required = tuple(s for s in used if s not in mirs)
    stores = (*required, *mirs)
    extra: dict[tuple[Sub, AttrRef | None], float] = {}
    for store in stores:
        for attribute in problem.partitions[store] or (None,):
            extra[store, attribute] = problem.copy_extra(store, attribute)
        for attribute in copies[store] if store in probed else ():
            extra[store, attribute] = -problem.inserts[store]
    names = sorted({g.name for g in goals if g.mir is None})
    part = replace(
        problem,
        queries=tuple(q for q in problem.queries if q in names),
        graph=replace(graph, cost=cost, spread=spread),
        goals=tuple(goals),
        mirs=dict(sorted(mirs.items())),
        partitions={s: problem.partitions[s] for s in stores},
        required=required,
        inserts={s: problem.inserts[s] for s in stores},
        extra_steps={e: c for e, c in problem.extra_steps.items() if e not in paid},
        extra_copies=extra,
        memory=None,
        most_mirs=_left(problem, kept),
        paid_mirs=frozenset(kept),
        reduced=(),
    )
    return part, indices, fixed


def _left(problem: PlanProblem, kept: Collection[Sub]) -> int | None:
    """Number of intermediate results that a plan may store besides ``kept``; None: unlimited."""
    if problem.most_mirs is None:
        return None
    return max(problem.most_mirs - len(problem.mirs.keys() & set(kept) - problem.paid_mirs), 0)


def search(
    problem: PlanProblem,
    routing: Routing,
    solve: Callable[[PlanProblem], Routing],
    deadline: Deadline,
    seed: int,
) -> Routing:
    """Improve ``routing``: re-optimise groups of queries one by one, until time is over."""
    sharing, rng, best = Sharing(problem), Random(seed), routing
    for _ in range(ROUNDS):
        order = list(problem.queries)
        rng.shuffle(order)
        seen: set[str] = set()
        before = best.cost
        for query in order:
            if deadline.expired():
                return best
            if query not in seen:
                free = sharing.around(query, size_of(problem))
                seen.update(free)
                best = reoptimise(problem, best, free, solve)
        if best.cost >= before:
            break
    return best
