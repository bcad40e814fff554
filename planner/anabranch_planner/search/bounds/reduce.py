"""Reduction of a problem: removes elements that no optimal plan needs, before solving.

**Intermediate results (MIRs) that cost more than they save.** Take a plan that keeps ``M``. Every
step that probes ``M`` can be replaced by a *detour* to the same state: probes of the base stores of
``M``'s relations, one after the other. Base stores are always kept, so the detour exists, and costs
at most its steps' costs times ``chi`` (each broadcast). The changed plan no longer probes ``M``, so
it saves the inserts of one copy of ``M``, and the maintenance of ``M``. Let ``gain(e) = detour(e) -
cost(e)`` (switching charges included) for an edge ``e`` that probes ``M``. Then keeping ``M`` saves
at most

    sum over aliases r of min( sum of gain(e) over distinct edges e from r that probe M,
                               sum over goals g from r of max gain(e) over g's edges that probe M )

because equal steps are paid once (first term), and a path probes ``M`` at most once, its aliases
being disjoint (second term). If that is not more than the inserts of one copy, some optimal plan
does not keep ``M``. ``M`` is then dropped, with its goals and every edge that probes it. This
removes users of the smaller MIRs that its maintenance could probe, so the test is repeated until
nothing changes. Limits on copies, memory or MIRs stay satisfied. The optimal cost stays the same;
among plans of equal cost, plans without ``M`` are preferred.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import chain

from anabranch_planner.search.problem import EdgeId, Goal, Origin, PlanProblem, Sub
from anabranch_planner.solvers.program import INFINITY

#: A goal, and the positive savings of its edges that probe one intermediate result.
_User = tuple[Goal, dict[EdgeId, float]]


def drop_unprofitable(problem: PlanProblem) -> PlanProblem:
    """``problem`` without intermediate results that no optimal plan needs to store."""
    target = problem.graph.target
    gains = {e: gain for e, gain in _gains(problem).items() if gain > 0.0}
    users: dict[Sub, list[_User]] = defaultdict(list)
    for goal in problem.goals:
        probing: dict[Sub, dict[EdgeId, float]] = defaultdict(dict)
        for e in goal.edges:
            if e in gains:
                probing[target[e]][e] = gains[e]
        for mir, edges in probing.items():
            users[mir].append((goal, edges))
    alive = dict.fromkeys(problem.mirs)
    changed = True
    while changed:
        changed = False
        for mir in list(alive):
            price = min(problem.copy_price(mir, a) for a in problem.partitions[mir] or (None,))
            if _worth(users[mir], alive) <= price:
                del alive[mir]
                changed = True
    return restrict(problem, set(alive)) if len(alive) < len(problem.mirs) else problem


def restrict(problem: PlanProblem, kept: set[Sub]) -> PlanProblem:
    """``problem`` in which only the intermediate results ``kept`` may be stored and probed."""
    target, gone = problem.graph.target, problem.mirs.keys() - kept
    goals, mirs = [], {}
    for goal in problem.goals:
        if goal.mir is None:
            goals.append(goal)
    for mir, found in problem.mirs.items():
        if mir in kept:
            mirs[mir] = tuple(range(len(goals), len(goals) + len(found)))
            goals += [problem.goals[g] for g in found]
    return replace(
        problem,
        goals=tuple(
            replace(g, edges=tuple(e for e in g.edges if target[e] not in gone)) for g in goals
        ),
        mirs=mirs,
        partitions={s: a for s, a in problem.partitions.items() if s not in gone},
        inserts={s: c for s, c in problem.inserts.items() if s not in gone},
    )


def _worth(users: list[_User], alive: dict[Sub, None]) -> float:
    """Upper bound of an intermediate result's saving, from which its inserts are not subtracted."""
    distinct: dict[Origin, dict[EdgeId, float]] = defaultdict(dict)
    per_goal: dict[Origin, float] = defaultdict(float)
    for goal, edges in users:
        if goal.mir is None or goal.mir in alive:
            distinct[goal.origin] |= edges
            per_goal[goal.origin] += max(edges.values())
    return sum(min(per_goal[r], sum(found.values())) for r, found in distinct.items())


def _gains(problem: PlanProblem) -> dict[EdgeId, float]:
    """Edge that probes an intermediate result -> saving compared with a detour over base stores."""
    graph = problem.graph
    spread = graph.spread if problem.charged else [0.0] * len(graph.spread)
    #: State -> probes of base stores that lead to it: (state before, price as a broadcast).
    entering: dict[int, list[tuple[int, float]]] = defaultdict(list)
    probing: list[EdgeId] = []
    for e in dict.fromkeys(chain.from_iterable(goal.edges for goal in problem.goals)):
        if graph.target[e] in problem.mirs:
            probing.append(e)
        else:
            price = graph.cost[e] + spread[e] + problem.step_extra(e)
            entering[graph.head[e]].append((graph.tail[e], price))
    return {
        e: _detour(entering, graph.head[e], graph.tail[e]) - graph.cost[e] - problem.step_extra(e)
        for e in probing
    }


def _detour(entering: dict[int, list[tuple[int, float]]], state: int, origin: int) -> float:
    """Price of the cheapest path from state ``origin`` to ``state`` by probes of base stores, which
    ``entering`` lists by the state that they reach."""
    best = {state: 0.0}
    while best and origin not in best:
        before: dict[int, float] = {}
        for at, so_far in best.items():
            for tail, price in entering[at]:
                total = so_far + price
                if total < before.get(tail, INFINITY):
                    before[tail] = total
        best = before
    return best.get(origin, INFINITY)
