"""Incremental planning: if little has changed, a plan is made from the previous one.

A :class:`Session` keeps the graph of states of all queries, and the last plan's probe orders
(routes) and lower bound. The next plan has almost the same queries, under almost the same
statistics (:class:`~anabranch_planner.cost.statistics.steady.Settled` lists the changed ones). Then

* a new query that joins like another, with no longer time bounds, is *entered*: it gets the other
  query's routes, without a search; a dropped query that has the routes of such a query *leaves*;
* queries that are neither new nor affected by changed statistics keep their routes;
* other queries are replanned, together with the queries that share most with them
  (:mod:`~anabranch_planner.search.neighbourhood`); elements that the remaining queries pay for are
  free for them;
* if much has changed, or the bound has become loose, everything is replanned; the last plan, with
  its new cost, stays unless a better one is found in time. A plan whose bound is a little loose
  only since queries were dropped is replanned when nothing else changes, so a deletion needs no
  search.

**Bounds** survive changes. Let ``b`` be a bound of the optimum under the previous charges, for
switching to the last plan from its predecessor. Now plans are charged for switching from the *last*
plan. Such a plan costs at least ``b`` minus the last plan's switching charge: each of its elements
that the predecessor lacked is either new to the last plan, too, or was charged in it. If queries
are dropped, the optimum falls by at most the cost of their parts of the last plan, because these
parts (which are not charged) and any plan of the other queries form a plan of all. Elements that
every plan of the other queries has are not subtracted: base stores of their relations, and steps of
queries with a single probe order. A store with one possible copy has the same copy in both plans;
if there are several, the steps of the dropped queries can probe all partitions of the other plan's
copy. If a step becomes cheaper, a plan that uses it falls by at most that amount. And a plan of
more queries contains a plan of the earlier queries, without elements that only new queries can use.
So the optimum of the new queries alone may be added to the bound, where all elements that earlier
queries can use are free.

An *entered* query uses only elements that the plan has, and changes no price: prices depend on the
loosest bounds of the queries with a sub-join. So the plan costs as much as before, and its bound
holds: a plan that was proven optimal stays so. The same holds if the query leaves, since any plan
of the others could include it at no cost.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch_contract.plans.plan import Formulation, Objective, Optimizer, Plan, Solver
from anabranch_contract.queries.joins import AttrRef, JoinQuery, QueryId
from anabranch_planner.cost.footprint import footprint
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.statistics.steady import Settled
from anabranch_planner.cost.timing import pair_bounds
from anabranch_planner.plans.optimise import (
    Options,
    PlanRequest,
    assemble,
    builder_of,
    charge,
    cost_model,
    require_plannable,
    solve,
)
from anabranch_planner.search.anytime import solve_problem
from anabranch_planner.search.assemble import Reused, gap, make_plan
from anabranch_planner.search.bounds.lower_bounds import floor, relaxed
from anabranch_planner.search.building.builder import Builder
from anabranch_planner.search.copies import CopyAccess, Kept
from anabranch_planner.search.demands import Switching
from anabranch_planner.search.neighbourhood import nearest, reoptimise, size_of
from anabranch_planner.search.outcome import Outcome
from anabranch_planner.search.problem import EdgeId, GoalKey, PlanProblem, Sub
from anabranch_planner.search.routes import Routing, finish
from anabranch_planner.solvers.deadline import Deadline

#: Fraction of changed queries up to which unchanged queries keep their probe orders.
PART = 0.25
#: Growth of the gap (relative distance of cost and bound) beyond which all queries are replanned.
LOOSER = 0.01
#: Gap (relative distance of cost and bound) up to which the last plan without the dropped queries
#: is kept for a while, although its gap has grown.
LOOSEST = 0.05
#: Relative difference of costs that is attributed to floating-point rounding.
ROUNDING = 1e-9
_NO_DEADLINE = Deadline()


@dataclass(slots=True)
class _LastPlan:
    """The last plan and its inputs.

    Attributes:
        routes, accesses, copies: its probe orders by goal, the copies they probe, all copies.
        bound: lower bound of the cost of plans that are charged for switching from this plan.
        gap: relative distance of cost and bound at the last full replanning.
        gone: dropped queries whose states are still in the graph.
        settled: whether the gap is small, or replanning did not reduce it.
        loosened: whether the plan is not settled only because queries have been dropped.
    """

    settings: Options
    statistics: Statistics
    queries: dict[QueryId, JoinQuery]
    builder: Builder
    routes: dict[GoalKey, tuple[EdgeId, ...]]
    accesses: Mapping[EdgeId, CopyAccess]
    copies: Mapping[Sub, Kept]
    bound: float
    gap: float
    plan: Plan
    reused: Reused
    gone: int
    settled: bool
    loosened: bool = False

    @property
    def unsearched(self) -> Plan:
        """The last plan, as the base of a plan that is made from it without a search."""
        return replace(
            self.plan,
            switching=0.0,
            bound=min(self.bound, self.plan.cost),
            gap=gap(self.plan.cost, self.bound),
            variables=0,
            constraints=0,
        )


@dataclass(frozen=True, slots=True)
class _QueryChange:
    """Queries added, dropped, or with changed statistics, since the last plan.

    A query with a new definition is both added and dropped.
    """

    added: tuple[JoinQuery, ...]
    dropped: tuple[QueryId, ...]
    moved: tuple[QueryId, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.dropped or self.moved)

    @property
    def new(self) -> frozenset[QueryId]:
        """Names of queries for which the last plan has no probe orders."""
        return frozenset(q.id for q in self.added)

    @property
    def names(self) -> frozenset[QueryId]:
        """Names of queries to replan: new ones, and those with changed statistics."""
        return self.new.union(self.moved)

    def is_large(self, queries: int) -> bool:
        """Whether so large a fraction of all ``queries`` has changed that all are replanned."""
        return max(len(self.names), len(self.dropped)) > max(PART * queries, 1)


class Session:
    """Makes successive joint plans (optimiser ``clash``) for a changing set of queries."""

    def __init__(self) -> None:
        self._last: _LastPlan | None = None

    def plan(
        self, queries: Sequence[JoinQuery], figures: Settled, options: Options, weight: float = 0.0
    ) -> Plan:
        """The joint plan of exactly ``queries``, as :func:`~anabranch_planner.passes.optimise`.

        Args:
            options: options of the plan. The first plan is charged for ``options.switching``.
            weight: switching penalty of later plans, as a fraction of the cost of their new
                elements (:class:`~anabranch_planner.search.demands.Switching`).
            figures: statistics equal to the last plan's, or settled against these. Others cause a
                full replanning.

        Raises:
            QueryError: two queries have the same id, or a query is a cross product.
            PlannerError: the limits can't be met. The session is reset.
        """
        last, self._last, statistics = self._last, None, figures.statistics
        if last is None:
            return self._anew(queries, statistics, options)
        change = _change(last, queries, figures, options)
        if change is None:
            return self._anew(queries, statistics, _going_on(options, last, weight), last)
        if not change and not last.settled:
            # The deadline cut the last planning short, so replan until the plan no longer improves.
            plan = self._anew(queries, statistics, _going_on(options, last, weight))
            if _total(plan) <= last.plan.cost:
                if self._last is not None and _total(plan) >= last.plan.cost * (1 - LOOSER):
                    self._last.settled = True
                return plan
            last.bound, last.settled = max(last.bound, plan.bound), True
            last.gap, last.loosened = min(last.gap, gap(last.plan.cost, last.bound)), False
        if not change:
            plan = replace(
                last.plan,
                switching=0.0,
                bound=min(last.bound, last.plan.cost),
                gap=gap(last.plan.cost, last.bound),
                method="as before",
            )
            self._last = replace(last, statistics=statistics, plan=plan)
            return plan
        if change.is_large(len(queries)) or last.gone > len(queries):
            plan = self._anew(queries, statistics, _going_on(options, last, weight), last)
            if plan.gap > LOOSER and self._last is not None:
                kept = _follow(last, change, queries, statistics, options, weight, anew=plan)
                if kept is not None and _total(kept.plan) < _total(plan):
                    self._last, plan = kept, kept.plan
            return plan
        require_plannable(change.added)
        left = _leave(last, change, statistics)
        if left is not None:
            last, change = left, replace(change, dropped=())
        if not change:
            self._last = last
            return last.plan
        found = _enter(last, change, queries, statistics) or _follow(
            last, change, queries, statistics, options, weight
        )
        if found is not None and found.plan.gap > last.gap + LOOSER:
            # Dropping a query hardly makes the plan worse, but it lowers the bound.
            only_less = not change.names and found.plan.gap <= max(LOOSEST, last.gap)
            found = _loosened(found) if only_less else None
        if found is None:
            return self._anew(queries, statistics, _going_on(options, last, weight))
        self._last = found
        return found.plan

    def stays(self, queries: Sequence[JoinQuery]) -> bool:
        """Whether the last plan has exactly ``queries``, and replanning would hardly improve it."""
        return self._last is not None and self._last.settled and self.may_rest(queries)

    def may_rest(self, queries: Sequence[JoinQuery]) -> bool:
        """Whether the last plan has exactly ``queries`` and can be kept for a while, because its
        search was complete, though possibly for more queries."""
        last = self._last
        if last is None or not (last.settled or last.loosened):
            return False
        same = (last.queries.get(query.id) == query for query in queries)
        return len(queries) == len(last.queries) and all(same)

    def _anew(
        self,
        queries: Sequence[JoinQuery],
        statistics: Statistics,
        options: Options,
        last: _LastPlan | None = None,
    ) -> Plan:
        """Plan all queries together, over the last plan's graph if it still fits."""
        require_plannable(queries)
        request = PlanRequest(tuple(queries), statistics, options)
        with options.deadline.phase("build"):
            builder = builder_of(queries, request)
            if last is not None and _has_graph(last, queries, builder, options):
                last.builder.reprice(builder.model)
                builder = last.builder
            else:
                builder.add(queries)
            problem = builder.problem()
        outcomes = solve(charge(problem, request), request)
        reused = Reused()
        plan = assemble(outcomes, request, reused)
        routing = outcomes[0].routing
        taken = abs(plan.cost + plan.switching - routing.cost) <= ROUNDING * routing.cost
        if _follows(options) and taken:
            self._last = _LastPlan(
                _settings(options),
                statistics,
                {q.id: q for q in queries},
                builder,
                {problem.goals[g].key: path for g, path in routing.routes.items()},
                routing.accesses,
                routing.copies,
                plan.bound - plan.switching,
                plan.gap,
                plan,
                reused,
                0,
                plan.gap <= LOOSER,
            )
        return plan


def _going_on(options: Options, last: _LastPlan, weight: float) -> Options:
    """``options`` with the last plan's substreams, and a charge for switching from it."""
    switching = None
    if weight:
        queries = tuple(last.queries.values())
        switching = Switching(footprint(last.plan, queries), weight)
    return replace(options, switching=switching, told_apart=last.plan.substreams)


def _follows(options: Options) -> bool:
    """Whether ``options`` allow a plan to be made from the previous one."""
    return (
        options.optimizer is Optimizer.CLASH
        and options.formulation is Formulation.TIGHT
        and options.solver is Solver.BRANCH
        and options.limits is None
    )


def _has_graph(
    last: _LastPlan, queries: Sequence[JoinQuery], empty: Builder, options: Options
) -> bool:
    """Whether the last plan's graph is equal to that built for ``queries``, except for prices.

    ``empty``: builder of that graph. Graphs with substreams, or with single probe orders beyond the
    cap, depend on statistics.
    """
    builder = last.builder
    return (
        builder.built_at_once
        and not builder.reduced
        and not builder.model.substreams
        and not empty.model.substreams
        and _settings(options) == last.settings
        and len(queries) == len(last.queries)
        and all(last.queries.get(query.id) == query for query in queries)
    )


def _settings(options: Options) -> Options:
    """Options that must not change between two plans if the second is made from the first."""
    return replace(
        options,
        mir=options.keeps_mirs,
        deadline=_NO_DEADLINE,
        seed=0,
        threads=1,
        told_apart=(),
        look_ahead=False,
        switching=None,
    )


def _change(
    last: _LastPlan, queries: Sequence[JoinQuery], figures: Settled, options: Options
) -> _QueryChange | None:
    """Changes of queries and statistics since the last plan; None if unknown (replan all)."""
    same = figures.statistics is last.statistics
    if not same and (figures.moved is None or figures.before is not last.statistics):
        return None
    if not _follows(options) or _settings(options) != last.settings:
        return None
    there = {q.id: q for q in queries}
    if len(there) != len(queries):
        require_plannable(queries)
    added = tuple(q for q in queries if last.queries.get(q.id) != q)
    new = {q.id for q in added}
    dropped = tuple(name for name in last.queries if name not in there or name in new)
    if (added or dropped) and last.builder.model.aside.any:
        # The key values that a store excludes depend on all queries that probe it.
        return None
    return _QueryChange(
        added,
        dropped,
        tuple(q.id for q in queries if not same and q.id not in new and figures.concerns(q)),
    )


def _total(plan: Plan) -> float:
    return plan.cost + plan.switching


def _follow(
    last: _LastPlan,
    change: _QueryChange,
    queries: Sequence[JoinQuery],
    statistics: Statistics,
    options: Options,
    weight: float,
    anew: Plan | None = None,
) -> _LastPlan | None:
    """Plan the queries of ``change`` incrementally; unchanged queries keep their probe orders.

    If a full plan of these queries is given, its bound is used, and only new queries are planned.

    Returns:
        The plan; None if a remaining store may be partitioned by an attribute that no query uses.
    """
    again = change.names if anew is None else change.new
    deadline, builder = options.deadline, last.builder
    with deadline.phase("build"):
        bound = last.bound - _spent(last, {*change.dropped, *change.moved})
        stale: set[Sub] = set()
        for name in (*change.dropped, *change.moved):
            stale |= builder.subs_of(name)
        for name in change.dropped:
            builder.drop(name)
        request = PlanRequest(tuple(queries), statistics, options)
        # Substreams are chosen only in a full replanning.
        builder.model = cost_model(queries, request, builder.model.substreams)
        builder.add(change.added)
        for query in change.added:
            stale |= builder.subs_of(query.id)
        if change.dropped and builder.has_idle_attributes(stale):
            return None
        cheaper, cheaper_stores = builder.reprice_some(stale)
        problem = builder.problem()
        others = reach(problem, (q for q in problem.queries if q not in again))
        bound -= sum(less for e, less in cheaper.items() if e in others.edges)
        bound -= sum(
            less * max(len(problem.partitions[s]), 1)
            for s, less in cheaper_stores.items()
            if s in others.stores
        )
        reused = last.reused.without(stale, problem.graph)
    at = {goal.key: g for g, goal in enumerate(problem.goals)}
    known = {at[key]: path for key, path in last.routes.items() if key in at}
    free = around(problem, again, size_of(problem)) if again else []
    charged = _charged(problem, free, last, weight)
    if free:
        complete = all(g in known for g, goal in enumerate(problem.goals) if goal.mir is None)
        start = finish(charged, known) if complete else Routing(known, {}, {}, float("inf"))
        settings = options.settings

        def improved(part: PlanProblem) -> Routing:
            return solve_problem(part, settings, deadline).routing

        routing = reoptimise(charged, start, free, improved)
        if anew is None:
            with deadline.phase("bound"):
                bound += exclusive(charged, again, others, options)
        method = f"{options.solver} around {len(again)} of {len(queries)} queries"
    else:
        routing = finish(charged, known)
        method = f"without {len(change.dropped)} queries, else as before"
    if anew is not None:
        bound, method = anew.bound, f"the last plan goes on; {anew.method}"
    bound = min(max(bound, floor(problem)), routing.cost)
    with deadline.phase("assemble"):
        outcome = Outcome(charged, routing, bound, method, 0, 0)
        plan = make_plan(Optimizer.CLASH, options.objective, [outcome], reused)
    return _LastPlan(
        last.settings,
        statistics,
        {q.id: q for q in queries},
        builder,
        {problem.goals[g].key: path for g, path in routing.routes.items()},
        routing.accesses,
        routing.copies,
        plan.bound - plan.switching,
        last.gap if anew is None else plan.gap,
        plan,
        reused,
        last.gone + len(change.dropped),
        last.settled and anew is None,
        last.loosened and anew is None,
    )


def _loosened(last: _LastPlan) -> _LastPlan:
    """``last``, marked to be replanned in full once nothing else has changed."""
    searched = last.settled or last.loosened
    return replace(last, gap=last.plan.gap, settled=False, loosened=searched)


def _enter(
    last: _LastPlan, change: _QueryChange, queries: Sequence[JoinQuery], statistics: Statistics
) -> _LastPlan | None:
    """The last plan with new queries that take others' routes; None unless all of them can."""
    if change.dropped or change.moved:
        return None
    likes = [_model_of(query, last.queries.values()) for query in change.added]
    graph, builder, routes, reused = last.builder.graph, last.builder, last.routes, last.reused
    pairs = [(query, like) for query, like in zip(change.added, likes, strict=True) if like]
    goals = [goal for _, like in pairs for goal in builder.query_goals(like.id)]
    probed = {graph.target[e] for goal in goals for e in routes[goal.key]}
    # New queries may need rows or columns that a stored intermediate result lacks, so queries that
    # probe one are planned by a search.
    if len(pairs) < len(likes) or not probed <= graph.bases:
        return None
    builder.add(change.added)
    orders, candidates = [*last.plan.orders], last.plan.candidates
    for query, like in pairs:
        there = {goal.origin: goal for goal in builder.query_goals(like.id)}
        for goal in builder.query_goals(query.id):
            same = there[goal.origin]
            number = reused.candidates[id(same)][1]
            routes[goal.key], reused.candidates[id(goal)] = routes[same.key], (goal, number)
            order = replace(reused.orders[same.key], goal=query.id)
            insort(orders, order, key=lambda one: one.rank)
            reused.orders[goal.key], candidates = order, candidates + number
    plan = replace(
        last.unsearched,
        queries=tuple(sorted(q.id for q in queries)),
        orders=tuple(orders),
        method=f"{len(pairs)} of {len(queries)} queries entered beside like ones",
        candidates=candidates,
    )
    return replace(last, statistics=statistics, queries={q.id: q for q in queries}, plan=plan)


def _leave(last: _LastPlan, change: _QueryChange, statistics: Statistics) -> _LastPlan | None:
    """The last plan without dropped queries; None unless each has the routes of a remaining one."""
    if not change.dropped or change.moved:
        return None
    graph, builder, routes, reused = last.builder.graph, last.builder, last.routes, last.reused
    there = {name: q for name, q in last.queries.items() if name not in set(change.dropped)}
    goals = []
    for name in change.dropped:
        like = _model_of(last.queries[name], there.values())
        if like is None:
            return None
        others = {goal.origin: goal for goal in builder.query_goals(like.id)}
        for goal in builder.query_goals(name):
            goals.append(goal)
            path = routes[goal.key]
            # Without the query, a stored intermediate result might keep fewer rows or columns.
            if path != routes[others[goal.origin].key] or not graph.bases.issuperset(
                graph.target[e] for e in path
            ):
                return None
    candidates = last.plan.candidates
    for goal in goals:
        del routes[goal.key], reused.orders[goal.key]
        candidates -= reused.candidates.pop(id(goal))[1]
    for name in change.dropped:
        builder.drop(name)
    gone = set(change.dropped)
    plan = replace(
        last.unsearched,
        queries=tuple(sorted(there)),
        orders=tuple(o for o in last.plan.orders if o.maintains or o.goal not in gone),
        method=f"without {len(gone)} queries, else as before",
        candidates=candidates,
    )
    return replace(
        last, statistics=statistics, queries=there, plan=plan, gone=last.gone + len(gone)
    )


def _model_of(query: JoinQuery, others: Iterable[JoinQuery]) -> JoinQuery | None:
    """The first of ``others`` that joins like ``query``, and whose time bounds are on pairs that
    ``query`` bounds, too, with bounds at least as long; None if there is none."""
    bounds = pair_bounds(query)
    for other in others:
        if other.joins_like(query):
            looser = pair_bounds(other)
            if all(pair in bounds and bounds[pair] <= d for pair, d in looser.items()):
                return other
    return None


def _spent(last: _LastPlan, names: Collection[QueryId]) -> float:
    """Upper bound of the cost that the queries ``names`` add to any plan of the other queries, if
    they take their probe orders of the last plan: the cost of these orders and of maintaining the
    stores that they probe, without steps and base stores that every plan of the others has."""
    graph, builder = last.builder.graph, last.builder
    pending = [goal.key for name in names for goal in builder.query_goals(name)]
    stores: set[Sub] = set()
    edges: set[EdgeId] = set()
    for name in names:
        stores |= {s for s in builder.subs_of(name) if s in last.copies and not builder.is_kept(s)}
    while pending:
        for e in last.routes[pending.pop()]:
            edges.add(e)
            store = graph.target[e]
            if store not in stores:
                stores.add(store)
                if builder.is_kept(store):
                    pending += [goal.key for goal in builder.upkeep(store)]
    others = last.queries.keys() - set(names)
    # The steps that every plan has, because a query of two relations has a single step per alias.
    only = {
        goal.edges[0]
        for name in others
        for goal in builder.query_goals(name)
        if len(goal.edges) == 1
    }
    needed = builder.bases_of(others)
    steps = maintenance = 0.0
    #: Store -> price of sending the tuples of its steps to all partitions.
    spread: dict[Sub, float] = defaultdict(float)
    for e in edges:
        store, broadcast = graph.target[e], last.accesses[e].broadcast
        steps += (0.0 if e in only else graph.cost[e]) + (graph.spread[e] if broadcast else 0.0)
        spread[store] += 0.0 if broadcast else graph.spread[e]
    for store in stores:
        price = builder.insert_price(store) * len(last.copies[store])
        if store in needed:
            # Every plan has a copy of this store: with only one possible partition it is the same
            # copy, else one whose partitions can all be probed.
            alike = len(builder.partitions.get(store, ())) <= 1
            price = 0.0 if alike else min(price, spread[store])
        maintenance += price
    return steps + maintenance


@dataclass(frozen=True, slots=True)
class Reach:
    """Probe steps (edges) and stores that some queries can use, directly or to maintain stores."""

    edges: set[EdgeId]
    stores: set[Sub]


def reach(problem: PlanProblem, names: Iterable[str]) -> Reach:
    """Probe steps and stores that the queries ``names`` can use."""
    wanted, target, mirs = set(names), problem.graph.target, problem.mirs
    pending = [goal for goal in problem.goals if goal.mir is None and goal.name in wanted]
    edges: set[EdgeId] = set()
    stores: set[Sub] = set()
    while pending:
        fresh = set(pending.pop().edges) - edges
        edges |= fresh
        for store in {target[e] for e in fresh} - stores:
            stores.add(store)
            pending += [problem.goals[g] for g in mirs.get(store, ())]
    return Reach(edges, stores)


def around(problem: PlanProblem, names: Collection[str], flows: int) -> list[str]:
    """``names`` and the queries that share most with them, up to ``flows`` flow variables."""
    goals = [goal for goal in problem.goals if goal.mir is None]
    mine = {e for goal in goals if goal.name in names for e in goal.edges}
    shared: dict[str, int] = defaultdict(int)
    size: dict[str, int] = defaultdict(int)
    for goal in goals:
        size[goal.name] += len(goal.edges)
        if goal.name not in names and not mine.isdisjoint(goal.edges):
            shared[goal.name] += len(mine.intersection(goal.edges))
    return nearest(names, shared, size, flows)


def _charged(
    problem: PlanProblem, free: Collection[str], last: _LastPlan, weight: float
) -> PlanProblem:
    """``problem`` with switching charges for store copies that the last plan lacks, and for probe
    steps that it lacks and that the queries ``free`` may use."""
    if not weight:
        return problem
    graph, model = problem.graph, problem.model
    copies: dict[tuple[Sub, AttrRef | None], float] = {}
    # The best copies of a store depend on all steps that probe it, so any copy may be new.
    for store, attributes in problem.partitions.items():
        there = last.copies.get(store, ())
        fresh = [a for a in attributes or (None,) if a not in there]
        if fresh:
            paper = model.objective is Objective.PAPER
            price = model.upkeep(graph.mir(store)) if paper else problem.inserts[store]
            copies.update(dict.fromkeys(((store, a) for a in fresh), weight * price))
    edges = reach(problem, free).edges - last.accesses.keys()
    return replace(
        problem, extra_steps={e: weight * graph.cost[e] for e in edges}, extra_copies=copies
    )


def exclusive(
    problem: PlanProblem, names: Collection[str], others: Reach, options: Options
) -> float:
    """Lower bound of the additional cost of the queries ``names`` in a plan with the others."""
    alone = problem.part_of(names)
    cost, spread = list(problem.graph.cost), list(problem.graph.spread)
    for e in {e for goal in alone.goals for e in goal.edges} & others.edges:
        cost[e] = spread[e] = 0.0
    priced = replace(
        alone,
        graph=replace(problem.graph, cost=cost, spread=spread),
        inserts={s: 0.0 if s in others.stores else c for s, c in alone.inserts.items()},
        extra_steps={e: c for e, c in problem.extra_steps.items() if e not in others.edges},
        extra_copies={k: c for k, c in problem.extra_copies.items() if k[0] not in others.stores},
    )
    return relaxed(priced, options.deadline, options.seed)
