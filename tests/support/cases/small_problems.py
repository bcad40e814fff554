"""Random planning problems small enough for brute force, with many unusual features."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from anabranch_contract.plans.plan import Objective
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.mirs import MirId
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.statistics import Statistics
from tests.support.cases.queries import given_statistics, join_query

#: Number of relations of a query -> weight with which it is drawn.
SIZES = {
    (2,): 1, (3,): 2, (2, 2): 2, (2, 3): 3, (3, 3): 6, (2, 2, 3): 3, (3, 3, 3): 3,
    (4,): 2, (2, 4): 2,
}  # fmt: skip
SHAPES = ("chain", "star", "cycle", "clique", "any")
RELATIONS = "RSTUV"
ATTRIBUTES = "abc"


@dataclass(frozen=True)
class SmallProblem:
    """Queries to plan together, and all other inputs of the plan."""

    queries: tuple[JoinQuery, ...]
    statistics: Statistics
    objective: Objective
    parallelism: int
    mir: bool

    @property
    def model(self) -> CostModel:
        """The cost model of the problem."""
        return CostModel(self.statistics, objective=self.objective, parallelism=self.parallelism)

    def __str__(self) -> str:
        joins = "; ".join(
            f"{q.id}: " + ", ".join(f"{e.left}={e.right}" for e in q.predicates)
            for q in self.queries
        )
        options = f"{self.objective} x{self.parallelism} {'with' if self.mir else 'no'} MIR"
        return f"{options}; {joins}"


def small_problem(key: str) -> SmallProblem:
    """Return the problem named ``key``.

    Joins are chains, stars, cycles, cliques or any graph, over one of two attributes per pair or
    over both (a composite key); relations may occur twice; statistics are uniform, or random for
    relations, keys and predicates, down to relations on which nothing arrives.

    >>> small_problem("a") == small_problem("a")
    True
    """
    rng = Random(key)
    sizes = rng.choices(list(SIZES), list(SIZES.values()))[0]
    names = RELATIONS[: rng.randint(max(sizes), len(RELATIONS))]
    attributes = ATTRIBUTES[: rng.randint(2, len(ATTRIBUTES))]
    queries = []
    for number, size in enumerate(sizes):
        # With cycles and cliques of four relations, brute force takes minutes.
        shapes = SHAPES if size < 4 else ("chain", "star", "any")
        queries.append(_query(rng, f"q{number}", size, names, attributes, rng.choice(shapes)))
    return SmallProblem(
        queries=tuple(queries),
        statistics=_statistics(rng, queries, attributes),
        objective=rng.choice(list(Objective)),
        parallelism=rng.randint(1, 4),
        # With a query of four relations, another query and MIRs, brute force takes minutes.
        mir=rng.random() < 0.75 and sizes != (2, 4),
    )


def any_query(rng: Random, id: str, size: int) -> JoinQuery:
    """Draw a query of ``size`` labels and any shape, over few relations and attributes."""
    return _query(rng, id, size, RELATIONS, ATTRIBUTES, rng.choice(SHAPES))


def _query(rng: Random, id: str, size: int, names: str, attributes: str, shape: str) -> JoinQuery:
    labels = rng.sample(names, size)
    if rng.random() < 0.2:
        labels[-1] = f"{labels[0]}#1"
    predicates = []
    for one, other in _links(rng, size, shape):
        width = 2 if rng.random() < 0.2 else 1
        pairs = zip(rng.sample(attributes, width), rng.sample(attributes, width), strict=True)
        predicates += [f"{labels[one]}.{a}={labels[other]}.{b}" for a, b in pairs]
    return join_query(dict.fromkeys(predicates), id=id, labels=labels)


def _links(rng: Random, size: int, shape: str) -> list[tuple[int, int]]:
    if shape == "star":
        return [(0, i) for i in range(1, size)]
    if shape == "clique":
        return [(i, j) for j in range(size) for i in range(j)]
    if shape == "any":
        return [(rng.randrange(i), i) for i in range(1, size)]
    chain = [(i - 1, i) for i in range(1, size)]
    return [*chain, (0, size - 1)] if shape == "cycle" and size > 2 else chain


def _statistics(rng: Random, queries: list[JoinQuery], attributes: str) -> Statistics:
    kind = rng.choice(["uniform", "distinct", "measured", "measured", "extreme"])
    if kind == "uniform":
        return given_statistics(default=100.0, selectivity_default=0.01)
    rates = [0.0, 0.001, 1.0, 1e6] if kind == "extreme" else [5.0, 10.0, 40.0, 100.0, 300.0]
    sizes = {name: rng.choice(rates) for name in RELATIONS}
    selectivities = {}
    if kind != "distinct":
        written = sorted({f"{e.left}={e.right}" for q in queries for e in q.predicates})
        selectivities = {
            text: rng.choice([0.0, 1.0]) if kind == "extreme" and rng.random() < 0.2
            else 10 ** rng.uniform(-4, 0)
            for text in written
            if rng.random() < 0.8
        }  # fmt: skip
    keys = [*attributes, *(f"{a},{b}" for a in attributes for b in attributes if a < b)]
    distincts = {
        (name, key): float(rng.randint(1, max(1, int(sizes[name]))))
        for name in RELATIONS
        for key in keys
        if rng.random() < 0.5
    }
    return given_statistics(
        cardinalities=sizes, selectivities=selectivities, distincts=distincts, constants=_costs(rng)
    )


def _costs(rng: Random) -> CostConstants:
    """Draw cost constants of the size of tuple counts, so that tolerances in tests are
    as strict.
    """
    some = {
        name: rng.choice([0.0, rng.uniform(0.1, 2.0), rng.uniform(1.0, 20.0)])
        for name in ("call", "probe", "look", "match", "write", "row", "calls")
    }
    looks = {MirId(name): rng.uniform(1.0, 5.0) for name in RELATIONS if rng.random() < 0.5}
    some |= {name: rng.choice([0.0, rng.uniform(0.1, 2.0)]) for name in ("merge", "rewrite")}
    some["batches"] = rng.choice([1.0, 30.0, 1000.0])
    return CostConstants(**some, looks=looks)  # type: ignore[arg-type]
