"""Plans of a problem in which the choice of copies ties all queries together.

With several partitions per store a query pays for other queries' copies, or with broadcasts for
their absence, so a problem of many queries is one component. Two problems of the same goals have
no such ties, and fall into small components:

* In the *relaxation* every step finds a copy that it knows, and one copy of each store is paid.
  Its optimum is a lower bound: whatever a plan does, it takes its steps, and each of its stores has
  a copy. This is the Lagrangean dual with all prices of copies at zero.
* *Beside given copies* a step that knows none of them is priced as a broadcast; all copies of a
  store are paid if it is kept. Steps that are best beside these copies have best copies of their
  own (:func:`~.routes.finish`), and so on: no plan is dearer than the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from anabranch_planner.search.copies import Kept, access_by
from anabranch_planner.search.outcome import Outcome
from anabranch_planner.search.problem import PlanProblem, Sub
from anabranch_planner.search.routes import Routing, finish
from anabranch_planner.solvers.deadline import Deadline

#: The part by which a plan has to become cheaper for another one to be looked for.
WORTHWHILE = 1e-3


def applies(problem: PlanProblem) -> bool:
    """Whether copies tie queries together, and nothing limits them."""
    limited = problem.given or problem.most_copies is not None or problem.memory is not None
    return problem.charged and not limited


def relaxation(problem: PlanProblem) -> PlanProblem:
    """``problem`` where every step finds a copy that it knows, and no store has several."""
    return replace(
        problem,
        model=problem.model.unpartitioned(),
        graph=replace(problem.graph, spread=[0.0] * len(problem.graph.spread)),
        partitions=dict.fromkeys(problem.partitions, ()),
        extra_copies={},
    )


def beside(problem: PlanProblem, copies: Mapping[Sub, Kept]) -> PlanProblem:
    """``problem`` where steps are priced by ``copies``; other stores are as in the relaxation."""
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
    """A plan of ``problem``, at most as dear as ``known``, and a lower bound.

    Args:
        solve: solves a problem without ties.
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
