"""Prices under load shedding: a step processes and costs only a fraction (ration) of its tuples.

A step that serves queries processes the largest ration of its goals. A step that maintains an
intermediate result processes every tuple, even if it also serves queries (``docs/semantics.md``,
"Rations"). So a step's price depends on the goals that use it, while an edge of the program has a
single price. Here an edge costs the largest ration of the queries that may use it. Maintenance
processes every tuple. Its additional cost (with the cheapest orders) is part of the price of the
intermediate result.

The prices are exact if maintenance uses these orders, no two intermediate results share steps in
them, and all queries that may share a step have equal rations. Otherwise they are approximate, so
plans are compared by the exact prices of their orders (``cost.validate.priced``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch_contract.queries.joins import Label
from anabranch_planner.search.problem import EdgeId, PlanProblem
from anabranch_planner.search.routes import shortest


def under_rations(problem: PlanProblem, rations: Mapping[tuple[str, Label], float]) -> PlanProblem:
    """``problem`` with prices under load shedding.

    Args:
        rations: (query, alias that arrives last) -> fraction of its tuples that probe; default 1.
    """
    graph = problem.graph
    taken: dict[EdgeId, float] = {}
    for goal in problem.goals:
        if not goal.maintains:
            share = rations.get((goal.name, goal.start), 1.0)
            for e in goal.edges:
                taken[e] = max(taken.get(e, 0.0), share)
    inserts = dict(problem.inserts)
    for store, goals in problem.mirs.items():
        for index in goals:
            path = shortest(problem, problem.goals[index], graph.cost, ()) or ()
            inserts[store] += sum((1 - taken.get(e, 1.0)) * graph.cost[e] for e in path)
    cost, spread = (
        [taken.get(e, 1.0) * price for e, price in enumerate(prices)]
        for prices in (graph.cost, graph.spread)
    )
    return replace(problem, graph=replace(graph, cost=cost, spread=spread), inserts=inserts)
