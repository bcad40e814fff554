"""Small random planning problems for tests of footprints, differences, shares and reasons."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from anabranch_contract.plans.plan import Plan
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.steps import trails
from tests.support.cases.queries import given_statistics, join_query
from tests.support.cases.random_plans import random_plan


def small_queries(rng: Random, *, least: int = 1) -> list[JoinQuery]:
    """Draw up to four queries over ``least`` to four relations, with self-joins and cycles."""
    queries = []
    for number in range(rng.randint(1, 4)):
        chosen = rng.sample(list("RSTU"), rng.randint(least, 4))
        if len(chosen) > 1 and rng.random() < 0.25:
            chosen[1] = f"{chosen[0]}#1"
        predicates = []
        for i in range(1, len(chosen)):
            partners = [rng.randrange(i) for _ in range(rng.choice([1, 1, 2]))]
            predicates += [
                f"{chosen[i]}.{rng.choice('ab')}={chosen[j]}.{rng.choice('ab')}" for j in partners
            ]
        queries.append(join_query(dict.fromkeys(predicates), id=f"q{number}", labels=chosen))
    return queries


def small_statistics(rng: Random) -> Statistics:
    """Draw cardinalities and distinct counts of these relations, some of them unknown."""
    sizes = {name: float(rng.choice([5, 10, 40, 100, 300])) for name in "RSTU"}
    distincts = {
        (name, key): float(rng.randint(1, int(sizes[name])))
        for name in "RSTU"
        for key in ("a", "b", "a,b")
        if rng.random() < 0.7
    }
    return given_statistics(cardinalities=sizes, distincts=distincts)


def priced_plan(queries: list[JoinQuery], rng: Random, model: CostModel) -> Plan:
    """Return a random valid plan, with the costs of its steps and copies by ``model``.

    Unlike plans of optimisers, it also stores the relations of queries over a single relation.
    """
    plan = random_plan(queries, rng)
    mirs = {m.id: m for m in plan.mirs}
    found = trails(plan, queries)
    price = {
        prefix: model.probe(t.before, t.start) * model.chi(broadcast=t.step.broadcast)
        for prefix, t in found.steps.items()
    }
    orders = tuple(
        replace(
            order,
            steps=tuple(
                replace(step, cost=price[p]) for step, p in zip(order.steps, prefixes, strict=True)
            ),
        )
        for order, prefixes in zip(plan.orders, found.orders, strict=True)
    )
    copies = tuple(replace(c, insert_cost=model.insert(mirs[c.mir])) for c in plan.copies)
    cost = sum(price.values()) + sum(c.insert_cost for c in copies)
    return replace(plan, orders=orders, copies=copies, cost=cost)
