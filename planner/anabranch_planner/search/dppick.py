"""dpPick: probe orders of one query with the least expected time per arriving tuple.

Source: Hu & Qiu, "Runtime-optimized Multi-way Stream Join Operator", Eq. 8. The cost of an order
that probes the stores ``r_1 .. r_n`` is ``C_1``, where ``C_(n+1) = 0`` and

    C_i = alpha_q f(kappa_r) + gamma (alpha_m mu + C_(i+1)).

* ``alpha_q f(kappa_r)``: the time of one look-up in store ``r``. A store is a number of segments
  with a hash index each, so this is ``probe + look * looks``, whatever the number of keys
  (:mod:`~anabranch_planner.cost.statistics.constants`, fitted to the running pipeline).
* ``alpha_m``: the time of one match.
* ``gamma`` (Eq. 9): the fraction of look-ups that find a match. ``mu`` (Eq. 10): the matches of
  such a look-up. ``gamma mu`` is the ratio of forecast tuples after and before the step. A look-up
  with a match finds as many rows as a key has on average, at least one.

**The search** is exact. The continuation of a step depends only on the start and the joined set. So
one pass over the edges of a goal, larger joined sets first, finds the least cost of every state.
The paper's Algorithm 3 enumerates all sequences instead, and remembers the costs of their ends; it
finds the same costs.

**As printed.** The formula charges the continuation of a step once per look-up with a match,
because the paper's engine passes a look-up's matches on as one list. This runtime probes with every
match, so it pays ``gamma mu`` times as much. The optimiser ``individual`` minimises that cost;
dpPick keeps the paper's formula for comparison (``docs/papers.md``).

The paper's operator has one store per input and no intermediate results. Copies of the stores are
chosen after the orders, as for any other plan.
"""

from __future__ import annotations

from anabranch_contract.plans.plan import Objective
from anabranch_planner.cost.statistics.constants import DEFAULT_LOOKS, CostConstants
from anabranch_planner.search.bounds.lower_bounds import floor
from anabranch_planner.search.outcome import Outcome
from anabranch_planner.search.problem import EdgeId, Goal, PlanProblem
from anabranch_planner.search.routes import finish


def pick_orders(problem: PlanProblem) -> Outcome:
    """The order that dpPick finds for every goal of ``problem``, which has no intermediate results.

    Of orders with equal costs, the one wins whose edge is listed first where they differ.

    Returns:
        Routes, with their cost and a lower bound under the problem's own objective.
    """
    constants = problem.model.charging(Objective.SECONDS).constants
    assert constants is not None  # set under this objective
    figures: dict[EdgeId, tuple[float, float]] = {}
    for e in {e for goal in problem.goals for e in goal.edges}:
        figures[e] = _step(problem, e, constants)
    routing = finish(
        problem, {g: _cheapest(problem, goal, figures) for g, goal in enumerate(problem.goals)}
    )
    method = "dppick"
    if problem.reduced:
        method += f"; one order per start for {', '.join(problem.reduced)} (cap)"
    return Outcome(problem, routing, min(floor(problem), routing.cost), method, 0, 0)


def _cheapest(
    problem: PlanProblem, goal: Goal, figures: dict[EdgeId, tuple[float, float]]
) -> tuple[EdgeId, ...]:
    """The probe order of ``goal`` with the least cost by Eq. 8."""
    graph = problem.graph
    cost, following = {goal.sink: 0.0}, dict[int, "EdgeId"]()
    for e in reversed(goal.edges):
        behind = cost.get(graph.head[e])
        if behind is not None:
            own, hit = figures[e]
            total, tail = own + hit * behind, graph.tail[e]
            if tail not in cost or total <= cost[tail]:
                cost[tail], following[tail] = total, e
    path, state = [], goal.root
    while state != goal.sink:
        path.append(following[state])
        state = graph.head[path[-1]]
    return tuple(path)


def _step(problem: PlanProblem, e: EdgeId, constants: CostConstants) -> tuple[float, float]:
    """Return the seconds of a look-up with its matches, and ``gamma``, the share with a match."""
    graph, model = problem.graph, problem.model
    before, after, store = (
        graph.mir(sub) for sub in (graph.before[e], graph.after[e], graph.target[e])
    )
    origin = graph.start[e], graph.substream[e]
    sent = model.probe(before, *origin)
    mean = model.probe(after, *origin) / sent if sent > 0 else 0.0
    query = constants.probe + constants.look * constants.looks.get(store.id, DEFAULT_LOOKS)
    joined, added = graph.subs[graph.before[e]].labels, graph.members(e)
    attributes = {
        member.attribute
        for key_class in graph.subs[graph.after[e]].query.classes
        if any(member.label in joined for member in key_class.members)
        for member in key_class.members
        if member.label in added
    }
    (relation,) = store.relations
    hit = min(mean, model.present(before, after, relation, tuple(sorted(attributes))) or 1.0)
    return query + constants.match * mean, hit
