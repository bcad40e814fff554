"""Rulesets with hand-written probe orders."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch_contract.plans.plan import Objective, Optimizer, Plan, ProbeOrder, Step, StoreCopy
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.queries.joins import JoinQuery, Label
from anabranch_contract.queries.mirs import base_mir
from anabranch_planner.plans.compile import compile_ruleset


def by_hand(orders: Mapping[str, tuple[str, ...]], *queries: JoinQuery) -> Ruleset:
    """Compile a ruleset without intermediate results.

    Args:
        orders: "query:start" -> probed labels in order; without an entry, any connected order.
    """
    found = []
    for query in queries:
        for start in sorted(query.labels):
            rest = tuple(x for x in sorted(query.labels) if x != start)
            order = orders.get(f"{query.id}:{start}") or _connected(query, start, rest)
            steps = tuple(
                Step(base_mir(query.relation_of(Label(x)).id).id, (Label(x),), None, False, 0, 0)
                for x in order
            )
            found.append(ProbeOrder(query.id, False, start, steps))
    relations = sorted({r.id for q in queries for r in q.relations})
    plan = Plan(
        optimizer=Optimizer.CLASH,
        objective=Objective.TUPLES,
        queries=tuple(sorted(q.id for q in queries)),
        orders=tuple(sorted(found, key=lambda o: o.rank)),
        mirs=tuple(base_mir(r) for r in relations),
        copies=tuple(StoreCopy(base_mir(r).id, None, "") for r in relations),
        cost=0.0,
        bound=0.0,
        gap=0.0,
        method="by hand",
    )
    return compile_ruleset(plan, queries, (), epoch=0, parallelism=1, sinks={})


def _connected(query: JoinQuery, start: str, rest: tuple[str, ...]) -> tuple[str, ...]:
    head, order, left = {start}, [], list(rest)
    while left:
        step = next(x for x in left if any(_joins(query, x, other) for other in head))
        order.append(step)
        head.add(step)
        left.remove(step)
    return tuple(order)


def _joins(query: JoinQuery, one: str, other: str) -> bool:
    both = {Label(one), Label(other)}
    return any(both <= {m.label for m in c.members} for c in query.classes)
