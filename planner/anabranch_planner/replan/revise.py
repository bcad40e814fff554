"""Revisions: new plans over the stores of the running epoch, under the newest statistics.

The queries of a running epoch are replanned jointly under the newest statistics, by the same
program as an epoch's plan, but only over the stores of the running ruleset. A revision opens no
store and keeps all copies; it drops intermediate results that no order needs. Arriving tuples are
stored as before, so inserts cost the same in all these plans. A plan by dpPick is revised by
dpPick, query by query; its revision, too, has to cost less than the running plan under the
pipeline's objective.

Under load shedding, steps of queries cost only their share (ration) of tuples, but maintenance
costs as much as before. So a revision may drop an intermediate result that would pay off without
load shedding.

If an order probes a store by a key without an index, every worker indexes the stored rows once.
This indexing is charged like one more insert of these rows (:attr:`Revised.indexing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.plan import Optimizer, Plan, StoreCopy
from anabranch_contract.plans.ruleset import IndexSpec, Ruleset, StoreId, Substreams
from anabranch_contract.queries.joins import Label
from anabranch_planner.cost.footprint import Footprint, footprint_of
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.steps import trails
from anabranch_planner.cost.validate import priced
from anabranch_planner.plans.compile import compile_revision
from anabranch_planner.plans.look_ahead import look_ahead
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan.running import OwnersPart, RunningPlan, plan_of
from anabranch_planner.search.anytime import solve_problem
from anabranch_planner.search.assemble import assemble, gap
from anabranch_planner.search.building.builder import Builder
from anabranch_planner.search.copies import attribute_rank
from anabranch_planner.search.demands import Limits, Switching, demand
from anabranch_planner.search.dppick import pick_orders
from anabranch_planner.search.outcome import Outcome
from anabranch_planner.search.problem import PlanProblem
from anabranch_planner.search.rations import under_rations
from anabranch_planner.search.warm_start import complete, running_routes


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionRequest:
    """A running ruleset, and the inputs for replanning its queries over the same stores.

    Attributes:
        running: the newest ruleset of the epoch.
        number: the revision's number.
        options: options of the revision's plan. Limits on memory and copies are ignored, because a
            revision never adds stores.
        switching: penalty of a step that is not running, as a fraction of its cost.
        counted: substreams for which steps were measured, besides the ones in ``running``.
        rations: (query, alias that arrives last) -> the current share of its tuples that probe;
            default 1. All costs are computed with these rations.
    """

    statistics: Statistics
    running: RunningPlan
    number: int
    options: Options = field(default_factory=Options)
    switching: float = 0.1
    counted: tuple[Substreams, ...] = ()
    rations: Mapping[tuple[str, Label], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Revised:
    """A revision that costs less than the running plan under the request's statistics.

    Attributes:
        footprint: the probe steps and store copies of ``plan``.
        running_cost: cost of the running plan, without switching charges (as :attr:`Plan.cost`).
        unindexed: (store, key) pairs that the revision's orders probe, but that have no index yet.
        indexing: one-off cost of indexing these stores in memory, in the unit of the plan's cost.
        closed: stores that the revision drops.
    """

    plan: Plan
    footprint: Footprint
    ruleset: Ruleset
    running_cost: float
    unindexed: tuple[tuple[StoreId, IndexSpec], ...]
    indexing: float
    closed: tuple[StoreId, ...]

    @property
    def gain(self) -> float:
        """Saving of the revision as a fraction of the running plan's cost."""
        return 1 - self.plan.cost / self.running_cost if self.running_cost else 0.0


def revise(request: RevisionRequest) -> Revised | None:
    """The best plan found over the stores of the running ruleset; None if no other one is cheaper.

    The search starts from the running plan, so the result is never worse.

    Raises:
        RulesetError: the running ruleset does not match its queries.
    """
    running, before = request.running, request.running.plan
    model = _model(request)
    found = _solve(request, model)
    after = _assembled(before, found)
    walked = trails(after, running.queries, running.subs)
    marks = footprint_of(after, walked)
    if marks == running.footprint:
        return None
    cost = priced(after, walked, model, request.rations)
    running_cost = priced(before, running.trails, model, request.rations)
    if cost >= running_cost:
        return None
    total = [
        sum(o.routing.cost - o.routing.switching for _, o in found),
        sum(o.bound for _, o in found),
    ]
    plan = replace(after, cost=cost, gap=gap(total[0], min(total)))
    return _revised(request, model, plan, marks, running_cost)


def compared_with(request: RevisionRequest, found: Revised, baseline: RunningPlan) -> Revised:
    """The revision ``found``, with another plan of the same queries, ``baseline``, as the running
    plan, whose cost is computed under the statistics and rations of ``request``."""
    model = _model(replace(request, running=baseline))
    cost = priced(baseline.plan, baseline.trails, model, request.rations)
    return replace(found, running_cost=cost)


def restore(request: RevisionRequest, earlier: Ruleset) -> Revised | None:
    """The revision that returns to the probe orders of ``earlier``, an earlier ruleset of the same
    queries, even if these cost more; None if a store that they probe no longer exists."""
    running, before = request.running, request.running.plan
    there = {store.id for store in running.ruleset.stores}
    if not {store.id for store in earlier.stores if len(store.members) > 1} <= there:
        return None
    model = _model(request)
    try:
        plan = plan_of(earlier, running.queries, before.optimizer, before.objective)
        if not {_rank(copy) for copy in plan.copies} <= {_rank(copy) for copy in before.copies}:
            return None
        bases = {mir.id for mir in before.mirs if mir.is_base}
        copies = {c for c in before.copies if c.mir in bases}
        copies |= {c for c in plan.copies if c.mir not in bases}
        mirs = {mir.id: mir for mir in (*before.mirs, *plan.mirs)}
        used = {copy.mir for copy in copies}
        plan = replace(
            plan,
            copies=tuple(sorted(copies, key=_rank)),
            mirs=tuple(mirs[name] for name in sorted(used)),
            method="as before",
        )
        walked = trails(plan, running.queries, running.subs)
        plan = replace(plan, cost=priced(plan, walked, model, request.rations))
        running_cost = priced(before, running.trails, model, request.rations)
        marks = footprint_of(plan, walked)
        return _revised(request, model, plan, marks, running_cost)
    except RulesetError:
        return None


def _model(request: RevisionRequest) -> CostModel:
    running, substreams = request.running, request.running.plan.substreams
    return CostModel(
        request.statistics,
        objective=request.options.objective,
        parallelism=max((s.partitions for s in running.ruleset.stores), default=1),
        bounds=running.bounds,
        parts=running.names,
        substreams=substreams,
        counted=(*substreams, *request.counted),
    )


def _revised(
    request: RevisionRequest, model: CostModel, plan: Plan, marks: Footprint, running_cost: float
) -> Revised:
    """Compile ``plan``, whose footprint is ``marks``, to a revision."""
    running = request.running
    ruleset = compile_revision(plan, running.queries, running.ruleset, request.number, running.subs)
    if request.options.look_ahead:
        prices = request.statistics.constants
        ruleset = look_ahead(ruleset, running.queries, model, prices)
    unindexed = _unindexed(running.ruleset, ruleset)
    mirs = {m.id: m for m in plan.mirs}
    mir_of = {s.id: s.mir for s in ruleset.stores}
    rows = (model.cardinality(mirs[mir_of[store]]) for store, _ in unindexed)
    closed = {s.id for s in running.ruleset.stores} - {s.id for s in ruleset.stores}
    return Revised(
        plan=plan,
        footprint=marks,
        ruleset=ruleset,
        running_cost=running_cost,
        unindexed=unindexed,
        indexing=sum(model.stored(size) for size in rows),
        closed=tuple(sorted(closed)),
    )


def _solve(request: RevisionRequest, model: CostModel) -> list[tuple[str, Outcome]]:
    """Solve each owner's planning problem over running stores; return (owner, routes) pairs."""
    deadline, parts = request.options.deadline, request.running.parts
    found = []
    for number, (owner, part) in enumerate(parts.items()):
        with deadline.phase("build"):
            # With weight 0, use a tiny charge, since charges mark the steps that are not running.
            switching = Switching(part.footprint, max(request.switching, 1e-9))
            problem = _problem(part, model)
            if request.options.optimizer is Optimizer.DPPICK:
                found.append((owner, pick_orders(problem)))
                continue
            if request.rations:
                problem = under_rations(problem, request.rations)
            problem = demand(problem, Limits(), switching)
        warm = complete(problem, running_routes(problem)) if problem.extra_steps else None
        share = deadline.share(1 / (len(parts) - number))
        found.append((owner, solve_problem(problem, request.options.settings, share, warm)))
    return found


def _problem(part: OwnersPart, model: CostModel) -> PlanProblem:
    """The planning problem over the running stores. For all revisions of a ruleset it has the same
    graph with other prices, unless a query exceeds the cap: its single order depends on prices."""
    if part.builder is None or part.builder.reduced:
        part.builder = Builder(model, there=part.there)
        part.builder.add(part.queries)
    else:
        part.builder.reprice(model)
    return part.builder.problem()


def _assembled(before: Plan, found: Sequence[tuple[str, Outcome]]) -> Plan:
    """Convert the routes ``found`` to the revision's plan, which keeps all base stores' copies."""
    bases = {m.id for m in before.mirs if m.is_base}
    orders, copies = [], {c for c in before.copies if c.mir in bases}
    for owner, outcome in found:
        some, kept = assemble(outcome.problem, outcome.routing, owner)
        orders += some
        copies |= {replace(c, insert_cost=0.0) for c in kept if c.mir not in bases}
    used = {c.mir for c in copies}
    return replace(
        before,
        orders=tuple(sorted(orders, key=lambda o: o.rank)),
        copies=tuple(sorted(copies, key=_rank)),
        mirs=tuple(m for m in before.mirs if m.id in used),
        method="; ".join(dict.fromkeys(o.method for _, o in found)) or "nothing to choose",
    )


def _rank(copy: StoreCopy) -> tuple[object, ...]:
    return copy.owner, copy.mir, attribute_rank(copy.partition)


def _unindexed(before: Ruleset, after: Ruleset) -> tuple[tuple[StoreId, IndexSpec], ...]:
    known = {s.id: s.indexes for s in before.stores}
    return tuple(
        (store.id, index)
        for store in after.stores
        for index in store.indexes
        if index not in known[store.id]
    )
