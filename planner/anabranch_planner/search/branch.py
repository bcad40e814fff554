"""Branch and bound over the linear relaxations of one component.

Written for this program, instead of using a general solver, because its relaxation is tight: a
handful of decisions (which results and copies are kept) make it integral. Ten to a hundred solves
from the last basis prove the optimum, while general branch and cut spends most of its time on
separating cuts.

**Cuts.** Where copies are charged, a component is large and has many independent fractional parts;
branching would multiply them. Rows violated by the root relaxation close these parts one by one
(:mod:`~.cuts`, :mod:`~anabranch_planner.solvers.zero_half`). The rows hold for every plan, so they
are valid at every node.

**Branching** is on stored results and copies first, then on edges; on the most fractional variable.
Once these are integral, the flows are too (see :mod:`anabranch_planner.search.formulation`).

**Bounding.** Nodes are taken depth first until a node is pruned; then the node with the lowest
bound is next: plunging finds plans, best-first raises the bound. A variable whose reduced cost at
the root exceeds the distance between the root's bound and the best plan is fixed at 0 for good.

**Plans.** Every few nodes the relaxation is rounded: goals are routed greedily, where an edge costs
only the fraction that the relaxation has not paid, and only results stored to at least one half are
probed.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch_planner.search.bounds.cuts import broken
from anabranch_planner.search.copies import Kept, decided
from anabranch_planner.search.formulation import Variables, formulate
from anabranch_planner.search.problem import EdgeId, PlanProblem, Sub
from anabranch_planner.search.routes import Routing, finish, route_greedily, shortest, tree_routes
from anabranch_planner.solvers.deadline import Deadline
from anabranch_planner.solvers.program import INFINITY
from anabranch_planner.solvers.relaxation import Relaxation
from anabranch_planner.solvers.zero_half import zero_half

#: Relative gap below which a plan counts as proven optimal.
TOLERANCE = 1e-7
#: Greatest distance from an integer at which a variable's value counts as integral.
INTEGRAL = 1e-6
#: Number of nodes between two roundings; for large programs, variables / ``ROUND_SIZE`` if greater.
ROUND_EVERY, ROUND_SIZE = 10, 200
#: Maximum rounds of cuts; they end after ``PATIENCE`` rounds that raise the bound by too little.
ROUNDS, PATIENCE, WORTHWHILE = 20, 2, 1e-5
#: Share of the time for rounds of cuts, because finding plans needs time, too.
TIGHTEN_SHARE = 0.3
#: Number of maintenance cuts below which zero-half cuts are added, and their maximum number.
FEW, MOST_ROWS = 10, 200
#: Minimum fraction of an edge's cost that rounding charges, so that shorter paths are preferred.
LEAST = 1e-3


@dataclass(slots=True)
class Search:
    """State of the branch and bound of one component between calls of :func:`advance`.

    Attributes:
        best: the best plan so far.
        bound: the proven lower bound.
        done: whether ``best`` is proven optimal (to :data:`TOLERANCE`).
        nodes: number of relaxations solved.
    """

    problem: PlanProblem
    best: Routing
    made: Variables
    relaxation: Relaxation
    bound: float
    done: bool = False
    nodes: int = 0
    root: NDArray[np.float64] | None = None
    root_bound: float = float("-inf")
    #: Lowest bound of a node whose integral relaxation could not be converted to a plan.
    unread: float = float("inf")
    _slopes: NDArray[np.float64] | None = None
    _open: list[tuple[float, int, tuple[tuple[int, float], ...]]] | None = None
    _fixed_at: float = float("inf")
    _ranks: NDArray[np.int64] | None = None

    @property
    def gap(self) -> float:
        """Cost of the best plan minus the lower bound of the component."""
        return max(self.best.cost - self.bound, 0.0)

    def improve(self, found: Routing) -> None:
        """Replace the best plan by ``found`` if that is cheaper."""
        _adopt(self, found)
        if self._open is not None:
            _settle(self)

    def conclude(self, bound: float) -> None:
        """Raise the lower bound to ``bound``, which another solver has proven."""
        self.bound = max(self.bound, min(bound, self.best.cost))
        if self.done or self.bound >= _cutoff(self):
            self.done = True
            self.bound = self.best.cost


def begin(
    problem: PlanProblem, known: Routing, deadline: Deadline, seed: int, floor: float
) -> Search:
    """Start branch and bound of a component: solve its root relaxation.

    Args:
        floor: a lower bound that needs no solver.
    """
    made = formulate(problem, known.cost)
    # Without presolving: if copies are charged, it takes longer than the time that it saves.
    relaxation = Relaxation(made.program, seed, presolve=not problem.charged)
    search = Search(problem, known, made, relaxation, floor)
    if deadline.expired() or not relaxation.solve({}, deadline.left()):
        return search
    search.nodes = 1
    if relaxation.objective == float("inf"):
        # Infeasible: no plan is cheaper than ``known``, whose cost was used to fix variables.
        search.bound, search.done = known.cost, True
        return search
    if problem.charged:
        _tighten(search, deadline.share(TIGHTEN_SHARE))
    search.bound = min(max(relaxation.objective, floor), known.cost)
    search.root, search._slopes = relaxation.values.copy(), relaxation.slopes.copy()
    ranks = np.full(made.program.variables, -1)
    ranks[np.array(made.program.integers, dtype=bool)] = 1
    for index in (*made.mirs.values(), *made.copies.values()):
        ranks[index] = 0
    search._ranks = ranks
    search.root_bound = relaxation.objective
    if _fractional(search) is None:
        _take(search, relaxation.objective)
        search._open = []
    else:
        _adopt(search, rounded(problem, made, relaxation.values))
        search._open = [(relaxation.objective, 0, ())]
    _settle(search)
    return search


def _tighten(search: Search, deadline: Deadline) -> None:
    """Add rows that the root relaxation violates, until they no longer raise the bound."""
    program, relaxation = search.made.program, search.relaxation
    patience = PATIENCE
    for _ in range(ROUNDS):
        before, values, slopes = relaxation.objective, relaxation.values, relaxation.slopes
        if before >= _cutoff(search) or deadline.expired():
            return
        rows = broken(search.problem, search.made, values.tolist())
        if len(rows) < FEW:
            rows += zero_half(program, values, MOST_ROWS)
        if not rows:
            return
        for upper, indices, coefficients in rows:
            program.row(-INFINITY, upper, indices, coefficients)
        relaxation.extend(rows)
        if not relaxation.solve({}, deadline.left()):
            # Out of time: restore the solution of the relaxation without the new rows.
            relaxation.objective, relaxation.values, relaxation.slopes = before, values, slopes
            return
        patience = PATIENCE if relaxation.objective > before * (1 + WORTHWHILE) else patience - 1
        if not patience:
            return


def advance(search: Search, deadline: Deadline, nodes: int | None = None) -> bool:
    """Continue the search until the optimum is proven, time is over, or ``nodes`` are solved.

    Returns:
        Whether the optimum is proven.
    """
    if search.done or search._open is None:
        return search.done
    heap, relaxation = search._open, search.relaxation
    left = nodes
    plunge: tuple[float, int, tuple[tuple[int, float], ...]] | None = None
    while heap or plunge is not None:
        if deadline.expired() or left == 0:
            if plunge is not None:
                heapq.heappush(heap, plunge)
            break
        node = heapq.heappop(heap) if plunge is None else plunge
        plunge = None
        if node[0] >= _cutoff(search):
            continue
        if not relaxation.solve(dict(node[2]), deadline.left()):
            heapq.heappush(heap, node)
            break
        search.nodes += 1
        left = None if left is None else left - 1
        bound = max(relaxation.objective, node[0])
        if bound >= _cutoff(search):
            continue
        variable = _fractional(search)
        if variable is None:
            _take(search, bound)
            continue
        if search.nodes % max(ROUND_EVERY, len(relaxation.values) // ROUND_SIZE) == 0:
            _adopt(search, rounded(search.problem, search.made, relaxation.values))
        near = float(relaxation.values[variable] >= 0.5)
        depth = len(node[2])
        heapq.heappush(heap, (bound, -depth, (*node[2], (variable, 1.0 - near))))
        plunge = (bound, -depth, (*node[2], (variable, near)))
    _settle(search)
    return search.done


def _cutoff(search: Search) -> float:
    if search.best.cost == float("inf"):
        # Without a plan within the limits, no cost is known above which variables could be fixed.
        return search.best.cost
    return search.best.cost - TOLERANCE * abs(search.best.cost)


def _settle(search: Search) -> None:
    """Update the lower bound; prune nodes; fix variables at 0 by their reduced costs."""
    heap = search._open
    assert heap is not None
    cutoff = _cutoff(search)
    heap[:] = [n for n in heap if n[0] < cutoff]
    heapq.heapify(heap)
    lowest = min(heap[0][0] if heap else float("inf"), search.unread)
    search.done = lowest >= cutoff
    search.bound = search.best.cost if search.done else max(search.bound, min(lowest, cutoff))
    if search.done or search.best.cost >= search._fixed_at:
        return
    assert search.root is not None
    assert search._slopes is not None
    search._fixed_at = search.best.cost
    slack = search.best.cost * (1 + TOLERANCE) - search.root_bound
    out = np.flatnonzero((search._slopes > slack) & (search.root < INTEGRAL))
    search.relaxation.rule_out(out)
    for i in out.tolist():
        search.made.program.tops[i] = 0.0


def _fractional(search: Search) -> int | None:
    """The variable of the relaxation to branch on; None if all values are integral."""
    values, ranks = search.relaxation.values, search._ranks
    assert ranks is not None
    off = np.abs(values - np.round(values))
    for rank in (0, 1):
        open_ = np.flatnonzero((ranks == rank) & (off > INTEGRAL))
        if len(open_):
            return int(open_[np.argmax(off[open_])])
    return None


def _take(search: Search, bound: float) -> None:
    """Adopt the plan that the integral solution of the node's relaxation describes."""
    found = read(search.problem, search.made, search.relaxation.values.tolist())
    _adopt(search, found)
    if found is None or found.cost > bound + TOLERANCE * 10 * abs(bound):
        search.unread = min(search.unread, bound)


def read(problem: PlanProblem, made: Variables, values: list[float]) -> Routing | None:
    """The plan that an integral solution of the program describes; None if there is no such plan.

    The flow on edges used by a single goal may be split between paths of equal cost, so every
    goal takes its cheapest path among the edges with positive value.
    """
    graph = problem.graph
    used: set[EdgeId] = set()
    prices: dict[EdgeId, float] = {}
    barred = {m for m, i in made.mirs.items() if values[i] < 0.5}
    for goal, flows in zip(problem.goals, made.flows, strict=True):
        if goal.mir in barred:
            continue
        open_edges = []
        for e, flow in zip(goal.edges, flows, strict=True):
            shared = made.edges[e] != flow
            if values[made.edges[e]] > (0.5 if shared else INTEGRAL):
                open_edges.append(e)
                prices[e] = 0.0 if shared else graph.cost[e] + problem.step_extra(e)
                if e in made.broadcasts and not shared:
                    prices[e] += graph.spread[e] * round(values[made.broadcasts[e]])
        path = shortest(problem, goal, prices, barred, edges=open_edges)
        if path is None:
            return None
        used.update(path)
    return finish(
        problem, tree_routes(problem, sorted(used), barred), _given(problem, made, values)
    )


def _given(problem: PlanProblem, made: Variables, values: list[float]) -> dict[Sub, Kept]:
    """Copies in an integral solution, of stores whose copies its routes do not determine."""
    kept: dict[Sub, Kept] = {}
    for (store, attribute), i in made.copies.items():
        if values[i] > 0.5:
            kept[store] = (*kept.get(store, ()), attribute)
    return decided(problem, kept)


def rounded(problem: PlanProblem, made: Variables, values: NDArray[np.float64]) -> Routing | None:
    """A plan rounded from a fractional solution; None if rounding fails."""
    cost, point = problem.graph.cost, values.tolist()
    prices = {e: cost[e] * max(1.0 - point[i], LEAST) for e, i in made.edges.items()}
    kept = [m for m, i in made.mirs.items() if values[i] >= 0.5]
    if not problem.may_keep(kept):
        counted = [m for m in kept if m not in problem.paid_mirs]
        counted.sort(key=lambda m: -values[made.mirs[m]])
        kept = [m for m in kept if m in problem.paid_mirs] + counted[: problem.most_mirs]
    return route_greedily(problem, kept, hints=prices)


def _adopt(search: Search, found: Routing | None) -> None:
    if found is not None and found.cost < search.best.cost:
        search.best = found


def support(search: Search) -> tuple[Mapping[int, frozenset[EdgeId]], frozenset[int]] | None:
    """Edges per goal, and intermediate results, that the root relaxation uses."""
    if search.root is None:
        return None
    root = search.root.tolist()
    edges = {
        g: frozenset(e for e, i in zip(goal.edges, flows, strict=True) if root[i] > INTEGRAL)
        for g, (goal, flows) in enumerate(zip(search.problem.goals, search.made.flows, strict=True))
    }
    return edges, frozenset(m for m, i in search.made.mirs.items() if root[i] > INTEGRAL)
