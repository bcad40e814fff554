"""Anytime solving: always returns a valid plan, a proven bound, and the method's name.

If time runs out, the plan of the last finished pass is returned. The passes are:

1. *Greedy* routes over base stores and a trivial bound (:func:`floor`).
2. *Reduction*: intermediate results that cost more than they save are dropped (:mod:`reduce`).
3. *Components* that share nothing (:mod:`components`); small ones are relaxed together.
4. *Root relaxation* of each: its bound, and a plan rounded from it.
5. *Neighbourhood of the relaxation*: the component restricted to edges and stores with a positive
   value in the relaxation, solved exactly (relaxation enforced neighbourhood search). The
   restricted problem is far smaller, and its optimum nearly always within half a per cent of the
   component's.
6. *Branch and bound* (:mod:`branch`), components with small gaps first.

A general solver can replace the last three passes; it gets one integer program per component.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch_contract.plans.plan import Solver
from anabranch_planner.search.bounds import free_copies
from anabranch_planner.search.bounds.lower_bounds import by_shares, cheapest_copy, floor
from anabranch_planner.search.bounds.reduce import drop_unprofitable
from anabranch_planner.search.branch import INTEGRAL, Search, advance, begin, read, support
from anabranch_planner.search.components import SubProblem, batches, join, restrict, split
from anabranch_planner.search.copies import Kept, decided
from anabranch_planner.search.formulation import start_values
from anabranch_planner.search.general import delegate
from anabranch_planner.search.neighbourhood import search
from anabranch_planner.search.outcome import ComponentPlans, Outcome, SolveSettings, Tally
from anabranch_planner.search.problem import PlanProblem, Sub
from anabranch_planner.search.routes import Routes, Routing, finish, first_routing
from anabranch_planner.solvers.deadline import Deadline
from anabranch_planner.solvers.interface import Request
from anabranch_planner.solvers.registry import solve as solve_program

#: Work (nodes * variables^2), and at least this number of nodes, after which branch and bound hands
#: over to a general solver, which is better at large components with many fractional variables.
WORK, LEAST_NODES = 2_000_000_000, 10
#: Factor on the number of nodes if store copies are charged, since the root then has cuts.
CUT = 20
#: Branch and bound is too slow if more than this fraction of the gap remains after these nodes.
CHECK_NODES, SLOW = 50, 0.9
#: Maximum nodes that the general solver solves before our own branching resumes.
GENERAL_NODES = 500
#: Maximum nodes that branch and bound solves in one restricted problem.
RESTRICTED_NODES = 40
#: Exceptions by which a solver fails: not installed, an error in its binding, or out of memory.
BROKEN = (ImportError, RuntimeError, MemoryError)
#: Flow variables per second of remaining time up to which the whole problem's relaxation is tried.
#: If copies are charged, flows * (1 + flows / TIED) counts, because the problem does not split.
REACH, TIED = 40_000, 15_000
#: Shares of the time: for the bound, for copies and routes in turn, for a group of queries.
BOUND_SHARE, COPIES_SHARE, PIECE_SHARE = 0.4, 0.8, 0.2


def solve_problem(
    problem: PlanProblem, settings: SolveSettings, deadline: Deadline, known: Routing | None = None
) -> Outcome:
    """The best plan of ``problem`` found before the deadline, with a lower bound.

    Args:
        known: a plan of ``problem`` to start from.
    """
    with deadline.phase("search"):
        greedy = first_routing(problem)
        known = greedy if known is None else min(greedy, known, key=lambda r: r.cost)
    if not any(goal.edges for goal in problem.goals):
        return Outcome(problem, known, known.cost, str(settings.solver), 0, 0, proven=True)
    low = floor(problem)
    if deadline.expired():
        return Outcome(problem, known, low, "greedy: no time for more", 0, 0)
    beyond = _beyond_reach(problem, settings, deadline)
    if beyond:
        return _piecemeal(problem, known, settings, deadline, beyond)
    with deadline.phase("reduce"):
        reduced = drop_unprofitable(problem)
        parts = split(reduced)
    tally = Tally()
    with deadline.phase("solve"):
        try:
            if settings.solver is Solver.BRANCH:
                warm = _lower(problem, reduced, known)
                found = _branch(reduced, parts, settings, deadline, tally, warm=warm)
            else:
                found = delegate(reduced, parts, settings, deadline, tally)
        except BROKEN as cause:
            method = f"greedy: {settings.solver} failed ({cause!r})"
            return Outcome(problem, known, low, method, 0, 0)
        # ``reduced`` lacks goals of dropped intermediate results, so indices of goals differ.
        best = min(known, _lift(problem, reduced, found), key=lambda r: r.cost)
    method, bound = str(settings.solver), best.cost
    if not found.closed:
        method += f": {found.trouble or 'out of time'}"
        bound = min(max(found.bound + _unused(problem, parts), low), best.cost)
    if problem.reduced:
        names = ", ".join(problem.reduced)
        method, bound = f"{method}; one order per start for {names} (cap)", low
    proven = found.closed and not problem.reduced
    return Outcome(problem, best, bound, method, tally.variables, tally.rows, proven=proven)


def _beyond_reach(problem: PlanProblem, settings: SolveSettings, deadline: Deadline) -> str:
    """Reason why no single integer program is built for the whole problem; empty if it is built."""
    if settings.as_a_whole:
        return ""
    if problem.flows > settings.max_flows:
        return f"{problem.flows} flows exceed the cap of {settings.max_flows}"
    left = deadline.left()
    work = problem.flows * (1 + problem.flows / TIED if problem.charged else 1)
    if left is not None and work > REACH * left:
        return f"{problem.flows} flows are too many for the time"
    return ""


def _piecemeal(
    problem: PlanProblem, known: Routing, settings: SolveSettings, deadline: Deadline, why: str
) -> Outcome:
    """Solve a problem too large for one integer program by re-optimising a few queries at a time.
    If queries share only store copies, copies and routes are first optimised in turn."""
    bound, tied = floor(problem), free_copies.applies(problem)
    if tied and not _beyond_reach(free_copies.relaxation(problem), settings, deadline):
        with deadline.phase("copies"):
            whole, share = replace(settings, as_a_whole=True), deadline.share(COPIES_SHARE)
            known, low = free_copies.descend(
                problem, known, lambda p, d: solve_problem(p, whole, d), share
            )
            bound = max(bound, low)
    else:
        with deadline.phase("bound"):
            share = deadline.share(BOUND_SHARE)
            bound = max(bound, by_shares(problem, share, settings.seed))

    def solve(part: PlanProblem) -> Routing:
        share = deadline.share(PIECE_SHARE)
        return solve_problem(part, replace(settings, as_a_whole=True), share).routing

    with deadline.phase("search"):
        best = search(problem, known, solve, deadline, settings.seed)
    return Outcome(problem, best, min(bound, best.cost), f"neighbourhoods: {why}", 0, 0)


def _unused(problem: PlanProblem, parts: Sequence[SubProblem]) -> float:
    """Price of one copy of each base store that is in none of the components."""
    charged: dict[int, int] = {}
    for part in parts:
        for store in part.problem.required:
            charged[store] = charged.get(store, 0) + 1
    return sum(
        (1 - charged.get(store, 0)) * cheapest_copy(problem, store) for store in problem.required
    )


def _lower(problem: PlanProblem, reduced: PlanProblem, routing: Routing) -> Routes | None:
    """Translate ``routing`` to the goals of ``reduced``; None if it needs a store dropped there."""
    if any(m not in reduced.mirs for m in routing.kept(problem)):
        return None
    at = {g.key: i for i, g in enumerate(reduced.goals)}
    return {at[problem.goals[g].key]: path for g, path in routing.routes.items()}


def _lift(problem: PlanProblem, reduced: PlanProblem, found: ComponentPlans) -> Routing:
    """Combine the plans ``found`` for components of ``reduced`` to a routing of ``problem``."""
    at = {g.key: i for i, g in enumerate(problem.goals)}
    routes = {at[reduced.goals[g].key]: path for g, path in found.routes.items()}
    return finish(problem, routes, found.copies)


def _branch(
    problem: PlanProblem,
    parts: Sequence[SubProblem],
    settings: SolveSettings,
    deadline: Deadline,
    tally: Tally,
    *,
    nodes: int | None = None,
    warm: Routes | None = None,
) -> ComponentPlans:
    """Branch and bound on every component of a planning problem.

    Args:
        parts: the components of ``problem``.
        nodes: limit of solved relaxations per component; with a limit, the neighbourhood of the
            relaxation is not searched first (a limited call is itself part of such a search).
        warm: a plan of ``problem`` to start from.
    """
    routes: Routes = {}
    copies: dict[Sub, Kept] = {}
    bound = 0.0
    hard: list[tuple[SubProblem, Search]] = []
    for batch in batches(parts):
        whole = batch[0] if len(batch) == 1 else join(problem, batch)
        search = _begin(whole, settings, deadline, tally, warm)
        if search.done or len(batch) == 1:
            hard.append((whole, search))
            continue
        settled = [p for p in batch if _settled(search, p)]
        found = _read_settled(problem, search, whole, settled)
        if found is None:
            settled = []
        else:
            routes |= found[0]
            copies |= found[1]
            bound += found[2]
        done = {id(p) for p in settled}
        hard += [
            (p, _begin(p, settings, deadline, tally, warm)) for p in batch if id(p) not in done
        ]
    if nodes is None:
        for part, search in hard:
            if not search.done:
                _enforce(part, search, settings, deadline)
    hard.sort(key=lambda h: h[1].gap)
    for number, (_, search) in enumerate(hard):
        share = deadline.share(1 / (len(hard) - number))
        if nodes is None:
            _close(search, settings, share)
        else:
            advance(search, share, nodes)
    for _, search in hard if nodes is None else ():
        # Spend the time that other components have left on the unproven ones.
        advance(search, deadline)
    for part, search in hard:
        routes |= {part.goals[g]: path for g, path in search.best.routes.items()}
        copies |= decided(part.problem, search.best.copies)
        bound += search.bound
    return ComponentPlans(routes, copies, bound, all(search.done for _, search in hard))


def _begin(
    part: SubProblem, settings: SolveSettings, deadline: Deadline, tally: Tally, warm: Routes | None
) -> Search:
    problem = part.problem
    given = {i: warm[g] for i, g in enumerate(part.goals) if g in warm} if warm else {}
    if all(i in given for i, g in enumerate(problem.goals) if g.mir is None):
        known = finish(problem, given)
    else:
        known = first_routing(problem)
    search = begin(problem, known, deadline, settings.seed, floor(problem))
    tally.add(search.made)
    return search


def _settled(search: Search, part: SubProblem) -> bool:
    """Whether a batch's linear relaxation is integral on one of its components, ``part``."""
    if search.root is None:
        return False
    problem, made, root = part.problem, search.made, search.root
    indices = {made.edges[e] for goal in problem.goals for e in goal.edges}
    indices |= {made.mirs[m] for m in problem.mirs}
    indices |= {i for (store, _), i in made.copies.items() if store in problem.partitions}
    return all(abs(v - round(v)) <= INTEGRAL for v in (float(root[i]) for i in indices))


def _read_settled(
    problem: PlanProblem, search: Search, whole: SubProblem, settled: Sequence[SubProblem]
) -> tuple[Routes, dict[Sub, Kept], float] | None:
    """Routes, copies and cost of the components whose optimum a batch's relaxation has found."""
    if not settled:
        return None
    part = join(problem, settled)
    at = {g: i for i, g in enumerate(whole.goals)}
    flows = [search.made.flows[at[g]] for g in part.goals]
    made = search.made.of(part.problem, flows)
    assert search.root is not None
    found = read(part.problem, made, search.root.tolist())
    if found is None:
        return None
    routes = {part.goals[g]: path for g, path in found.routes.items()}
    return routes, decided(part.problem, found.copies), found.cost


def _enforce(part: SubProblem, search: Search, settings: SolveSettings, deadline: Deadline) -> None:
    """Solve the component restricted to edges and stores that its root relaxation uses."""
    used = support(search)
    if used is None or deadline.expired():
        return
    edges, alive = used
    inner = restrict(part.problem, lambda g, e: e in edges[g], alive)
    if inner is None:
        return
    found = _branch(
        inner.problem, split(inner.problem), settings, deadline, Tally(), nodes=RESTRICTED_NODES
    )
    routes = {inner.goals[g]: path for g, path in found.routes.items()}
    search.improve(finish(part.problem, routes, found.copies))


def _close(search: Search, settings: SolveSettings, deadline: Deadline) -> None:
    """Close a component's gap by branch and bound, if that is slow also by a general solver."""
    if search.done or search.root is None:
        return
    program = search.made.program
    nodes = max(WORK // program.variables**2, LEAST_NODES) * (CUT if search.problem.charged else 1)
    while nodes > 0:
        before = search.gap
        if advance(search, deadline, min(nodes, CHECK_NODES)) or deadline.expired():
            return
        nodes -= CHECK_NODES
        if search.gap > SLOW * before:
            break
    left = deadline.left()
    solution = solve_program(
        Solver.HIGHS,
        Request(
            program,
            tuple(start_values(search.problem, search.made, search.best)),
            None if left is None else left / 2,
            settings.seed,
            settings.threads,
            nodes=GENERAL_NODES,
        ),
    )
    if solution.values is not None:
        found = read(search.problem, search.made, list(solution.values))
        if found is not None:
            search.improve(found)
    search.conclude(solution.bound)
    advance(search, deadline)
