"""Solution of a large problem whose queries share nothing but the choice of store copies.

With several partitions per store, queries share the cost of copies and of the broadcasts that
missing copies cause. So many queries are one component. Two related problems have the same goals
but a fixed choice of copies, so they split into small components:

* In the *relaxation* no step is a broadcast, and each store pays for one copy. Its optimum is a
  lower bound, because every plan pays for its steps and for at least one copy of each store. It is
  the Lagrangean dual with all prices of copies at zero.
* With *fixed copies* a step without the partition key of any copy is priced as a broadcast, and a
  kept store pays for all of its copies. For the best steps under these copies, other copies may be
  better (:func:`~.routes.finish`). Copies and steps are optimised in turn; the cost never
  increases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from anabranch_planner.search.copies import Kept, access_by
from anabranch_planner.search.outcome import Outcome
from anabranch_planner.search.problem import PlanProblem, Sub
from anabranch_planner.search.routes import Routing, finish
from anabranch_planner.solvers.deadline import Deadline

#: Relative saving per round below which the iteration ends.
WORTHWHILE = 1e-3


def applies(problem: PlanProblem) -> bool:
    """Whether the method applies: copies are charged, and neither copies nor memory limited."""
    limited = problem.given or problem.most_copies is not None or problem.memory is not None
    return problem.charged and not limited


def relaxation(problem: PlanProblem) -> PlanProblem:
    """The relaxation of ``problem``: no step is a broadcast, and every store has one copy."""
    return replace(
        problem,
        model=problem.model.unpartitioned(),
        graph=replace(problem.graph, spread=[0.0] * len(problem.graph.spread)),
        partitions=dict.fromkeys(problem.partitions, ()),
        extra_copies={},
    )


def beside(problem: PlanProblem, copies: Mapping[Sub, Kept]) -> PlanProblem:
    """``problem`` with fixed ``copies``; other stores are treated as in the relaxation."""
    graph, found = problem.graph, relaxation(problem)
    cost = list(graph.cost)
    for e, store in enumerate(graph.target):
        if store in copies and access_by(problem, e, copies[store]).broadcast:
            cost[e] += graph.spread[e]
    inserts = {s: price * len(copies.get(s, (None,))) for s, price in problem.inserts.items()}
    return replace(found, graph=replace(found.graph, cost=cost), inserts=inserts)


def descend(
    problem: PlanProblem,
    known: Routing,
    solve: Callable[[PlanProblem, Deadline], Outcome],
    deadline: Deadline,
) -> tuple[Routing, float]:
    """A plan of ``problem`` that costs at most as much as ``known``, and a lower bound.

    Args:
        solve: solver for problems in which the copies are fixed.
    """
    first = solve(relaxation(problem), deadline.share(0.5))
    best = min(known, finish(problem, first.routing.routes), key=lambda r: r.cost)
    while not deadline.expired():
        found = solve(beside(problem, best.copies), deadline.share(0.5)).routing
        found = finish(problem, found.routes)
        if found.cost >= best.cost:
            break
        gain, best = best.cost - found.cost, found
        if gain < WORTHWHILE * best.cost:
            break
    return best, first.bound
