"""The cheapest sharing of stores by filters, found by brute force, for random small problems.

A relation (a stream with the filter of one or more queries) may read any store that has all of its
rows. :func:`every_grouping` yields all combinations of stores, independently of
``planner.cost.sharing``; whether a store has the rows is determined by trying all values of both
columns. Each combination is priced in two ways:

- by the *plan*: the optimum of all probe orders of the queries with these stores, by brute force;
- by the *stores*: the formula of ``docs/cost-model.md``, written again.

``python -m tests.support.oracles.groupings --problems 1000`` prints how the planner's choice
compares with the cheapest one.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import inf
from random import Random
from typing import Any

from anabranch_contract.plans.plan import Objective
from anabranch_contract.queries.expressions import Expr, is_total
from anabranch_contract.queries.joins import (
    JoinQuery,
    Relation,
    RelationId,
    Stream,
    StreamName,
    make_relation,
)
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.sharing import Filters, SharedStores
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.validate import validate_plan
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.optimise import Options
from tests.support.oracles.brute_force import cheapest
from tests.support.oracles.exactness import ROUNDING, same

STREAMS: dict[str, Stream] = {
    name: Stream(
        StreamName(name),
        tuple((c, parse_type("int")) for c in ("k", "m", "v", "w")),
    )
    for name in "abc"
}
#: Conditions of filters, as SQL -> as function of the values of ``v`` and ``w``. The last one may
#: fail.
CONDITIONS: dict[str, Callable[[int, int], bool]] = {
    "v > 1": lambda v, w: v > 1,
    "v > 5": lambda v, w: v > 5,
    "v = 7": lambda v, w: v == 7,
    "w = 2": lambda v, w: w == 2,
    "w < 4": lambda v, w: w < 4,
    "v + w > 9": lambda v, w: v + w > 9,
}
VALUES = range(10)
#: Maximum number of groupings of a problem.
MOST = 96
#: Relation -> conditions of the store that it reads.
Grouping = Mapping[RelationId, tuple[Expr, ...]]


@dataclass(frozen=True)
class SharingProblem:
    """Statements to register, and statistics of all stores that they may use."""

    statements: Mapping[str, str]
    statistics: Statistics
    shares: Mapping[RelationId, float]
    rows: Mapping[str, float]

    def queries(self, filters: Mapping[Any, Filters] | None = None) -> list[JoinQuery]:
        """The queries with separate stores or, for the queries in ``filters``, with shared ones."""
        chosen = filters or {}
        return [
            parse_sql(name, sql, STREAMS, relaxed=chosen.get(name))
            for name, sql in self.statements.items()
        ]

    def relations(self) -> list[Relation]:
        """The distinct relations of the queries, by their whole filters."""
        every = {r.id: r for q in self.queries() for r in q.relations}
        return [every[name] for name in sorted(every)]

    def grouped(self, grouping: Grouping) -> list[JoinQuery]:
        """Return the queries with the stores of a grouping."""
        filters = {q.id: {m.alias: grouping[m.relation] for m in q.members} for q in self.queries()}
        return self.queries(filters)

    def chosen(self, *, together: bool) -> list[JoinQuery]:
        """Return the queries with the stores that the planner chooses, if they are registered
        ``together`` or else one after the other.
        """
        if together:
            return self.queries(SharedStores(self.statistics).choose(self.queries()))
        running = list[JoinQuery]()
        for query in self.queries():
            stores = SharedStores(self.statistics)
            for one in running:
                stores.add(one)
            found = stores.choose([query]).get(query.id)
            running.append(parse_sql(query.id, self.statements[query.id], STREAMS, relaxed=found))
        return running

    def partners(self, stream: str) -> float:
        """The mean number of a stream's rows with an equal key, over the keys of all queries."""
        keys = [
            side.attribute
            for query in self.queries()
            for one in query.classes
            for side in one.members
            if query.relation_of(side.label).stream == stream
        ]
        values = [self.statistics.distincts[RelationId(stream), key] for key in keys]
        return sum(max(1.0, self.rows[stream] / v) for v in values) / len(values)

    def price_of_stores(self, grouping: Grouping) -> float:
        """Return the CPU seconds of the stores and of the first steps of their tuples."""
        readers = defaultdict[RelationId, list[RelationId]](list)
        stores = dict[RelationId, Relation]()
        for relation in self.relations():
            store = make_relation(relation.stream, grouping[relation.id])
            stores[store.id] = store
            readers[store.id].append(relation.id)
        known, total = self.statistics.constants or CostConstants(), 0.0
        for name, store in stores.items():
            rows, share = self.rows[str(store.stream)], self.shares[name]
            sent = min(share, sum(self.shares[r] for r in readers[name])) * rows
            total += known.write * known.calls + known.row * share * rows
            total += known.call * known.calls
            matches = sent * share * self.partners(str(store.stream))
            total += sent * (known.probe + known.look) + matches * known.match
        return total


def sharing_problem(key: str) -> SharingProblem:
    """Return the problem named ``key``: two to four queries over two or three streams, whose
    filters have few different conditions, and which join by one or two keys.

    >>> sharing_problem("a") == sharing_problem("a")
    True
    """
    rng = Random(key)
    while True:
        found = _drawn(rng)
        if 1 < sum(1 for _ in every_grouping(found.relations())) <= MOST:
            return found


def _drawn(rng: Random) -> SharingProblem:
    names = "abc"[: rng.choice((2, 2, 3))]
    keys = rng.choice(("k", "km"))
    statements = {}
    for number in range(rng.randint(2, 4)):
        members = rng.sample(names, rng.choice((2, len(names))))
        joins = [f"FROM {members[0]}"]
        for at, name in enumerate(members[1:], 1):
            column = rng.choice(keys)
            joins.append(f"JOIN {name} ON {rng.choice(members[:at])}.{column} = {name}.{column}")
        conditions = [
            re.sub(r"\b([vw])\b", rf"{name}.\1", text)
            for name in members
            for text in rng.sample(list(CONDITIONS), rng.choice((0, 1, 1, 1, 2)))
        ]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        statements[f"q{number}"] = f"SELECT {members[0]}.k {' '.join(joins)}{where}"
    rows = {name: 10 ** rng.uniform(3, 7) for name in names}
    distinct = {(name, key): 10 ** rng.uniform(1, 6) for name in names for key in "km"}
    weights = {(n, c): [10 ** rng.uniform(-4, 0) for _ in VALUES] for n in names for c in "vw"}
    problem = SharingProblem(statements, Statistics(), {}, rows)
    shares, distincts = dict[RelationId, float](), dict[tuple[RelationId, str], float]()
    relations = problem.relations()
    # The runtime counts the rows of whole streams as well.
    whole = [make_relation(StreamName(name), ()) for name in names]
    for store in (*whole, *(s for r in relations for s in stores_of(r, relations))):
        name = str(store.stream)
        v, w = weights[name, "v"], weights[name, "w"]
        passing = sum(v[x] * w[y] for x, y in _rows_of(store.filter)) / (sum(v) * sum(w))
        # As in measurements, a relation without rows counts as one with a single row.
        shares[store.id] = max(passing, 1 / rows[name])
        for key in "km":
            distincts[store.id, key] = min(distinct[name, key], shares[store.id] * rows[name])
    sizes = {one: share * rows[one.partition("[")[0]] for one, share in shares.items()}
    constants = CostConstants(calls=10 ** rng.uniform(0, 4))
    statistics = Statistics(sizes, distincts, constants=constants)
    return SharingProblem(statements, statistics, shares, rows)


def _rows_of(conditions: Iterable[Expr]) -> frozenset[tuple[int, int]]:
    """Return the values of (v, w) that satisfy all conditions."""
    tests = [CONDITIONS[_text(c)] for c in conditions]
    return frozenset((v, w) for v in VALUES for w in VALUES if all(t(v, w) for t in tests))


def _text(condition: Expr) -> str:
    return str(condition).replace("(", "").replace(")", "")


def stores_of(relation: Relation, relations: Sequence[Relation]) -> list[Relation]:
    """Return every store with all rows of ``relation`` whose conditions occur in ``relations``,
    those with the fewest conditions first. A store has the conditions of ``relation`` that may
    fail, and no other such condition.
    """
    pool = {str(c): c for r in relations if r.stream == relation.stream for c in r.filter}
    failing = [c for c in relation.filter if not is_total(c)]
    total = [c for c in pool.values() if is_total(c)]
    found = dict[RelationId, Relation]()
    for count in range(len(total) + 1):
        for kept in combinations(total, count):
            if _rows_of(kept) >= _rows_of(c for c in relation.filter if is_total(c)):
                store = make_relation(relation.stream, (*failing, *kept))
                found.setdefault(store.id, store)
    return list(found.values())


def every_grouping(relations: Sequence[Relation]) -> Iterator[Grouping]:
    """Yield every choice of a store for each relation."""
    for chosen in product(*(stores_of(r, relations) for r in relations)):
        yield {r.id: s.filter for r, s in zip(relations, chosen, strict=True)}


@dataclass(frozen=True, slots=True)
class Compared:
    """Costs of the planner's choice of stores, relative to the least cost over all groupings.

    Attributes:
        groupings: number of groupings tried.
        plan: cost of the plan, for queries registered together. ``stores``: price of its stores.
        later: cost of the plan, for queries registered one after the other.
        apart: cost of the plan with a store per filter; ``whole``: with stores of whole streams.
    """

    groupings: int
    plan: float
    stores: float
    later: float
    apart: float
    whole: float


def compare(key: str) -> Compared:
    """Try every grouping of a problem, and compare the planner's choice.

    Raises:
        AssertionError: for some grouping the planner's plan is not the cheapest, or not proven; or
            the choice is none of the groupings.
    """
    problem = sharing_problem(key)
    relations = problem.relations()
    costs, prices = list[float](), list[float]()
    for grouping in every_grouping(relations):
        costs.append(optimum(problem.grouped(grouping), problem.statistics))
        prices.append(problem.price_of_stores(grouping))
    together = problem.chosen(together=True)
    chosen = _grouping_of(problem, together)
    assert chosen in list(every_grouping(relations)), f"{key}: {chosen} is no grouping"
    least = min(costs)
    return Compared(
        len(costs),
        optimum(together, problem.statistics) / least,
        problem.price_of_stores(chosen) / min(prices),
        optimum(problem.chosen(together=False), problem.statistics) / least,
        optimum(problem.queries(), problem.statistics) / least,
        optimum(
            problem.grouped({r.id: stores_of(r, relations)[0].filter for r in relations}),
            problem.statistics,
        )
        / least,
    )


def _grouping_of(problem: SharingProblem, queries: Sequence[JoinQuery]) -> Grouping:
    """Return the stores that queries read."""
    found = dict[RelationId, tuple[Expr, ...]]()
    for whole, query in zip(problem.queries(), queries, strict=True):
        labels = {m.alias: m.label for m in query.members}
        for one in whole.members:
            store = query.relation_of(labels[one.alias])
            assert found.setdefault(one.relation, store.filter) == store.filter, one
    return found


def optimum(queries: Sequence[JoinQuery], statistics: Statistics) -> float:
    """Return the cost of the cheapest plan: proven by the planner, equal by brute force."""
    options = Options(objective=Objective.SECONDS, mir=False)
    plan = optimise(queries, statistics, options)
    validate_plan(plan, queries)
    assert plan.gap <= ROUNDING, f"gap {plan.gap!r}, {plan.method}"
    model = CostModel(statistics, objective=Objective.SECONDS)
    brute = cheapest(queries, model, mir=False)
    assert same(plan.cost, brute), f"plan {plan.cost!r}, brute force {brute!r}"
    return brute


def main() -> None:
    """Print the distribution of the planner's cost relative to the least one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = [compare(f"{options.seed}:{n}") for n in range(options.problems)]
    sys.stdout.write(f"{sum(c.groupings for c in found)} groupings\n")
    for name in ("stores", "plan", "later", "apart", "whole"):
        ratios = sorted(getattr(c, name) for c in found)
        least = sum(r <= 1 + ROUNDING for r in ratios)
        mean = sum(ratios) / len(ratios)
        at = [ratios[min(len(ratios) - 1, int(len(ratios) * q))] for q in (0.5, 0.9, 0.99)]
        sys.stdout.write(
            f"{name}: least in {least} of {len(ratios)}, mean {mean:.3f}, "
            + ", ".join(f"{x:.3f}" for x in at)
            + f" (50, 90, 99 %), most {max(ratios, default=inf):.3f}\n"
        )


if __name__ == "__main__":
    main()
