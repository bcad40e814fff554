r"""Cost shares of queries in a joint plan.

A fixed plan consists of *elements*, paid once each: executed steps, and copies of stores (their
inserts). A query *needs* an element if it is

* a step of one of the query's orders,
* the copy that a needed step probes,
* a step of an order that maintains an intermediate result probed by a needed step (recursively;
  sizes decrease down to base relations),
* the first copy of a base relation that the query reads but never probes (every relation of a
  join is stored), or
* an unprobed copy of a store if the query needs another copy of that store.

The plan's *cost-sharing game* is ``c(S)``: the cost of all elements that some query of ``S`` needs.
``c`` of all queries is the plan's cost. If ``c_e`` is the cost of an element and ``N_e`` the set of
queries that need it, ``c(S) = sum of c_e over the e with N_e ∩ S ≠ ∅``.

* ``part`` of a query ``q`` is ``c({q})``: the plan's cost for the query alone.
* ``marginal`` is ``c(N) - c(N \ {q})``: the saving from removing the elements that only ``q``
  needs, i.e. the sum of the ``c_e`` with ``N_e = {q}``.
* ``shapley`` is ``sum of c_e / |N_e| over the e that q needs``. *This is the game's Shapley value*:
  the value of a sum of games is the sum of their values, and ``c`` is the sum over ``e`` of the
  games ``c_e(S) = c_e if N_e ∩ S ≠ ∅ else 0``. In the game of ``e``, queries outside ``N_e`` change
  no value (null players: 0), queries inside are interchangeable (symmetry: equal values), and the
  values add up to ``c_e`` (efficiency). So each of the ``|N_e|`` queries pays ``c_e / |N_e|``.
  (Littlechild & Owen, 1973, prove it so for the airport game.) The game is submodular, so the
  Shapley value is in its core: no query pays more than ``part``.
* ``standalone`` is the cost of the query's own optimum, independent of the joint plan. A plan
  proven optimal costs at most the sum of these.
* ``proportional`` splits the plan's cost in the ratio of ``standalone``.

For each query ``marginal <= shapley <= part``. Over all queries ``shapley`` and ``proportional``
add up to the plan's cost, ``part`` to at least that, ``marginal`` to at most that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from anabranch_contract.plans.plan import Plan
from anabranch_contract.queries.joins import AttrRef, JoinQuery, QueryId
from anabranch_contract.queries.mirs import MirId, base_mir
from anabranch_planner.cost.steps import Prefix, Trails, trails


@dataclass(frozen=True, slots=True)
class Element:
    """A probe step or store copy of a plan, whose cost its users share.

    Attributes:
        step: the step's prefix, or None for a store copy.
        copy: (owner, store, partition attribute) of a store copy, or None for a step.
        users: the queries that need the element, sorted; never empty.
    """

    step: Prefix | None
    copy: tuple[str, MirId, AttrRef | None] | None
    cost: float
    users: tuple[QueryId, ...]


@dataclass(frozen=True, slots=True)
class Game:
    """The cost-sharing game of a plan: its elements, and the queries that need each element."""

    queries: tuple[QueryId, ...]
    elements: tuple[Element, ...]

    @property
    def cost(self) -> float:
        """The plan's cost: the sum over its elements."""
        return fsum(e.cost for e in self.elements)


@dataclass(frozen=True, slots=True)
class Share:
    """Cost share of one query by each method; None if that needs an unknown standalone cost."""

    query: QueryId
    standalone: float | None
    marginal: float
    shapley: float
    proportional: float | None
    part: float


def game(plan: Plan, queries: Sequence[JoinQuery], found: Trails | None = None) -> Game:
    """The cost-sharing game of ``plan``, a plan for ``queries``.

    Args:
        found: the plan's distinct steps, if computed already.

    Raises:
        PlanError: an order's goal is not one of the queries.
    """
    found = found or trails(plan, queries)
    upkeep: dict[tuple[str, str], list[Prefix]] = {}
    own: dict[str, list[Prefix]] = {}
    owner_of: dict[str, str] = {}
    for order, prefixes in zip(plan.orders, found.orders, strict=True):
        if order.maintains:
            upkeep.setdefault((order.owner, order.goal), []).extend(prefixes)
        else:
            own.setdefault(order.goal, []).extend(prefixes)
            owner_of[order.goal] = order.owner
    first: dict[tuple[str, MirId], AttrRef | None] = {}
    for copy in plan.copies:
        first.setdefault((copy.owner, copy.mir), copy.partition)
    steps: dict[Prefix, list[QueryId]] = {prefix: [] for prefix in found.steps}
    copies: dict[tuple[str, MirId, AttrRef | None], list[QueryId]] = {
        (c.owner, c.mir, c.partition): [] for c in plan.copies
    }
    for query in sorted(queries, key=lambda q: q.id):
        needed = _closure(own.get(query.id, []), upkeep, found)
        probed = {
            (prefix.owner, found.steps[prefix].step.target, found.steps[prefix].step.partition)
            for prefix in needed
        }
        stored = {(owner, store) for owner, store, _ in probed}
        owner = owner_of.get(query.id, "")
        for relation in query.relations if len(query.labels) > 1 else ():
            base = (owner, base_mir(relation.id).id)
            if base in first and base not in stored:
                probed.add((*base, first[base]))
        for prefix in needed:
            steps[prefix].append(query.id)
        for access in probed:
            copies[access].append(query.id)
    for idle in [c for c, users in copies.items() if not users]:
        others = {q for c, users in copies.items() if c[:2] == idle[:2] for q in users}
        copies[idle] = sorted(others)
    elements = [
        Element(prefix, None, found.steps[prefix].step.cost, tuple(users))
        for prefix, users in steps.items()
        if users
    ]
    costs = {(c.owner, c.mir, c.partition): c.insert_cost for c in plan.copies}
    elements += [
        Element(None, copy, costs[copy], tuple(users)) for copy, users in copies.items() if users
    ]
    return Game(tuple(sorted(q.id for q in queries)), tuple(elements))


def _closure(
    prefixes: Sequence[Prefix], upkeep: Mapping[tuple[str, str], list[Prefix]], found: Trails
) -> set[Prefix]:
    """``prefixes``, and recursively the steps that maintain the intermediate results probed."""
    needed: set[Prefix] = set()
    maintained: set[tuple[str, str]] = set()
    pending = list(prefixes)
    while pending:
        prefix = pending.pop()
        if prefix in needed:
            continue
        needed.add(prefix)
        goal = (prefix.owner, str(found.steps[prefix].step.target))
        if goal not in maintained:
            maintained.add(goal)
            pending.extend(upkeep.get(goal, ()))
    return needed


def part(found: Game) -> dict[QueryId, float]:
    """Query -> full cost of the elements (steps, store copies) that it needs."""
    return _collect(found, lambda e: e.cost)


def marginal(found: Game) -> dict[QueryId, float]:
    """Query -> cost of the elements of the plan that no other query needs."""
    return _collect(found, lambda e: e.cost if len(e.users) == 1 else 0.0)


def shapley(found: Game) -> dict[QueryId, float]:
    """The Shapley value: the cost of each element of the plan, split among queries that need it."""
    return _collect(found, lambda e: e.cost / len(e.users))


def proportional(cost: float, standalone: Mapping[QueryId, float]) -> dict[QueryId, float]:
    """The plan's ``cost`` split in proportion to ``standalone``; equally if all those are 0."""
    total = fsum(standalone.values())
    if total <= 0:
        return {query: cost / len(standalone) for query in standalone}
    return {query: cost * (alone / total) for query, alone in standalone.items()}


def _collect(found: Game, price: Callable[[Element], float]) -> dict[QueryId, float]:
    terms: dict[QueryId, list[float]] = {query: [] for query in found.queries}
    for element in found.elements:
        for query in element.users:
            terms[query].append(price(element))
    return {query: fsum(values) for query, values in terms.items()}


def costs_by_owner(plan: Plan, queries: Sequence[JoinQuery]) -> dict[QueryId, float]:
    """The cost of each query in a plan of the ``individual`` optimiser."""
    return part(game(plan, queries))


def shares(
    plan: Plan,
    queries: Sequence[JoinQuery],
    alone: Mapping[QueryId, float] | None = None,
    found: Game | None = None,
) -> tuple[Share, ...]:
    """Every query's cost share by every method, sorted by id.

    Args:
        alone: the cost of each query's own optimum, if known.
        found: the plan's game, if computed already.
    """
    found = found or game(plan, queries)
    parts, margins, values = part(found), marginal(found), shapley(found)
    ratio = None if alone is None else proportional(found.cost, alone)
    return tuple(
        Share(
            query=query,
            standalone=None if alone is None else alone[query],
            marginal=margins[query],
            shapley=values[query],
            proportional=None if ratio is None else ratio[query],
            part=parts[query],
        )
        for query in found.queries
    )
