"""Revisions: another plan over the stores that are there, for the statistics of now.

The queries of a running epoch are planned anew under the newest statistics, jointly, by the same
program as an epoch's plan, but over the stores of the running ruleset only: no store is opened, and
copies of stores are as they are. An intermediate result that no order needs any more is closed.
What arrives goes on being kept as before, so its insertion is the same for all of these plans.

An order that probes a store by a key that it has no index for makes every worker index what is
stored, once. That is charged like inserting the stored rows once more (:attr:`Revised.indexing`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from anabranch_planner.cost.footprint import Footprint, footprint
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.cost.validate import cost_of
from anabranch_planner.plans.compile import compile_revision
from anabranch_planner.plans.optimise import Options
from anabranch_planner.plans.running import plan_of
from anabranch_planner.plans.there import StoresThere, owners
from anabranch_planner.search.anytime import solve_problem
from anabranch_planner.search.assemble import assemble, gap
from anabranch_planner.search.copies import attribute_rank
from anabranch_planner.search.demands import Limits, Switching, demand
from anabranch_planner.search.problem import build_problem
from anabranch_planner.search.warm_start import complete, running_routes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch_contract.plans.plan import Plan, StoreCopy
    from anabranch_contract.plans.ruleset import IndexSpec, Ruleset, StoreId
    from anabranch_contract.queries.joins import JoinQuery
    from anabranch_planner.cost.statistics import Statistics
    from anabranch_planner.search.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionRequest:
    """A ruleset to revise.

    Attributes:
        queries: those of ``running``.
        running: the newest ruleset of the epoch.
        number: of the revision.
        options: by which its plan was made; limits of memory and copies can only be kept better by
            fewer stores, so they are not read.
        switching: how many times its cost a step is charged that does not run.
    """

    queries: Sequence[JoinQuery]
    statistics: Statistics
    running: Ruleset
    number: int
    options: Options = field(default_factory=Options)
    switching: float = 0.1


@dataclass(frozen=True, slots=True)
class Revised:
    """A revision that costs less than what runs, under the statistics that it was made for.

    Attributes:
        running_cost: of the running plan; as :attr:`Plan.cost`, without charges for switching.
        unindexed: (store, key) that its orders probe and no stored row is indexed by.
        indexing: the one-off cost of indexing these in memory, in the unit of the plan's cost.
        closed: stores that the revision leaves out.
    """

    plan: Plan
    ruleset: Ruleset
    running_cost: float
    unindexed: tuple[tuple[StoreId, IndexSpec], ...]
    indexing: float
    closed: tuple[StoreId, ...]

    @property
    def gain(self) -> float:
        """The share of the running plan's cost that the revision saves."""
        return 1 - self.plan.cost / self.running_cost if self.running_cost else 0.0


def revise(request: RevisionRequest) -> Revised | None:
    """The best plan found over the stores of the running ruleset; None: nothing is cheaper.

    The running plan is where the search starts, so no deadline makes it worse.

    Raises:
        RulesetError: the running ruleset is not one of ``request.queries``.
    """
    running = request.running
    parallelism = max((s.partitions for s in running.stores), default=1)
    before = plan_of(running, request.queries, request.options.optimizer, request.options.objective)
    found = _solve(request, before, parallelism)
    after = _assembled(before, found)
    if footprint(after, request.queries) == footprint(before, request.queries):
        return None
    costs = [
        cost_of(plan, request.queries, request.statistics, parallelism=parallelism)
        for plan in (after, before)
    ]
    if costs[0] >= costs[1]:
        return None
    total = [
        sum(o.routing.cost - o.routing.switching for _, o in found),
        sum(o.bound for _, o in found),
    ]
    plan = replace(after, cost=costs[0], gap=gap(total[0], min(total)))
    ruleset = compile_revision(plan, request.queries, running, request.number)
    return _described(request, plan, ruleset, costs[1], parallelism)


def _solve(request: RevisionRequest, before: Plan, parallelism: int) -> list[tuple[str, Outcome]]:
    """Owner -> the routes of its queries."""
    owner_of = owners(request.running)
    model = _model(request, parallelism)
    found = []
    whose = sorted({owner_of[q.id] for q in request.queries})
    for number, owner in enumerate(whose):
        queries = [q for q in request.queries if owner_of[q.id] == owner]
        with request.options.deadline.phase("build"):
            there = StoresThere(request.running, owner)
            problem = build_problem(queries, model, there=there)
            steps = _footprint(before, owner, queries)
            # At least a little, or nothing is known to run.
            weight = max(request.switching, 1e-9)
            problem = demand(problem, Limits(), Switching(steps, weight))
        warm = complete(problem, running_routes(problem)) if problem.extra_steps else None
        share = request.options.deadline.share(1 / (len(whose) - number))
        found.append((owner, solve_problem(problem, request.options.settings, share, warm)))
    return found


def _model(request: RevisionRequest, parallelism: int) -> CostModel:
    return CostModel(
        request.statistics,
        objective=request.options.objective,
        parallelism=parallelism,
        bounds=LoosestBounds(request.queries),
    )


def _footprint(plan: Plan, owner: str, queries: Sequence[JoinQuery]) -> Footprint:
    """The steps of one owner's orders, as if they were shared."""
    mine = replace(
        plan,
        queries=tuple(q.id for q in queries),
        orders=tuple(replace(o, owner="") for o in plan.orders if o.owner == owner),
        copies=tuple(replace(c, owner="") for c in plan.copies if c.owner == owner),
    )
    return footprint(mine, queries)


def _assembled(before: Plan, found: Sequence[tuple[str, Outcome]]) -> Plan:
    """The plan of these routes. All copies of base stores stay."""
    bases = {m.id for m in before.mirs if m.is_base}
    orders, copies = [], {c for c in before.copies if c.mir in bases}
    for owner, outcome in found:
        some, kept = assemble(outcome.problem, outcome.routing, owner)
        orders += some
        copies |= {replace(c, insert_cost=0.0) for c in kept if c.mir not in bases}
    used = {c.mir for c in copies}
    return replace(
        before,
        orders=tuple(sorted(orders, key=lambda o: (o.owner, o.maintains, o.goal, o.start))),
        copies=tuple(sorted(copies, key=_rank)),
        mirs=tuple(m for m in before.mirs if m.id in used),
        method="; ".join(dict.fromkeys(o.method for _, o in found)) or "nothing to choose",
    )


def _rank(copy: StoreCopy) -> tuple[object, ...]:
    return copy.owner, copy.mir, attribute_rank(copy.partition)


def _described(
    request: RevisionRequest, plan: Plan, ruleset: Ruleset, running_cost: float, parallelism: int
) -> Revised:
    before = {s.id: s for s in request.running.stores}
    unindexed = tuple(
        (store.id, index)
        for store in ruleset.stores
        for index in store.indexes
        if index not in before[store.id].indexes
    )
    mirs, model = {m.id: m for m in plan.mirs}, _model(request, parallelism)
    indexing = sum(
        model.stored(model.cardinality(mirs[before[store].mir])) for store, _ in unindexed
    )
    closed = tuple(sorted(before.keys() - {s.id for s in ruleset.stores}))
    return Revised(plan, ruleset, running_cost, unindexed, indexing, closed)
