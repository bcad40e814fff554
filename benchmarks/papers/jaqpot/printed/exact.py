"""Linear programs of JAQPOT's continuous model, to which greedy allocations are compared.

Variables are shares of a path's maximum resources, and rows are divided by their limits, so that a
solver's tolerances are relative. No cost is negative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Solver
from anabranch_planner.solvers.interface import Request, SolveStatus
from anabranch_planner.solvers.program import INFINITY, Program
from anabranch_planner.solvers.registry import proven, solve
from benchmarks.papers.jaqpot.printed.cover import TOLERANCE, refreshed_by, uncoverable
from benchmarks.papers.jaqpot.printed.freshness import refresh_rates
from benchmarks.papers.jaqpot.printed.paths import InputPath

#: Maximum number of rounds of tangents; then the division of seconds fails.
MOST_TANGENTS = 500
#: Share by which ages may exceed predicates when seconds are divided with tangents.
CLOSE = 1e-4
_GREEDY = "use the greedy allocation, which needs no solver"


def exact_cover(paths: Sequence[InputPath], rates: Mapping[str, float]) -> dict[str, float]:
    """Return the least resources that refresh all states (Eq. 11, 12), in probes per second by
    path.

    Raises:
        PlannerError: all paths together can't refresh a state (``uncoverable-state``), or the
            solver fails (``no-solution``).
    """
    gains = [refreshed_by(path) for path in paths]
    units = [
        min(path.most, max((rates.get(s, 0.0) / g for s, g in gain.items() if g), default=0.0))
        for path, gain in zip(paths, gains, strict=True)
    ]
    program = Program()
    each = [program.variable(unit, integer=False) for unit in units]
    _cover_rows(program, each, units, gains, rates)
    found = _solved(program)
    if found is None:
        raise uncoverable(min(rates))
    return {path.name: unit * x for path, unit, x in zip(paths, units, found, strict=True)}


def exact_throughput(
    paths: Sequence[InputPath], mu: float, rates: Mapping[str, float]
) -> dict[str, float] | None:
    """Return the resources by path that give the most results while all states are refreshed.

    Algorithm 1 pays for the cheapest cover first, and then divides the rest; here, one program
    decides on both. None if ``mu``, a positive number, does not suffice for any cover.

    Raises:
        PlannerError: the solver fails (``no-solution``).
    """
    gains = [refreshed_by(path) for path in paths]
    units = [min(path.most, mu) for path in paths]
    best = max(path.productivity for path in paths)
    program = Program()
    # The objective is the loss, compared with all probes having the best productivity.
    each = [
        program.variable((best - path.productivity) * unit, integer=False)
        for path, unit in zip(paths, units, strict=True)
    ]
    unused = program.variable(best * mu, integer=False)
    program.row(1.0, 1.0, [*each, unused], [*(unit / mu for unit in units), 1.0])
    _cover_rows(program, each, units, gains, rates)
    found = _solved(program)
    if found is None:
        return None
    return {path.name: unit * x for path, unit, x in zip(paths, units, found[:-1], strict=True)}


def cheapest_freshness(
    paths: Sequence[InputPath], predicates: Mapping[str, float]
) -> dict[str, float]:
    """Return the least resources that keep ``predicates``, in probes per second by path.

    :func:`refresh_rates` divides the seconds of a path among its states before a cover is sought.
    Here the division is part of the optimisation: minimise ``Σ X_I`` so that ``Σ_j |S_j| / R_j <=
    G_I`` on every path, where ``R_j`` is the number of tuples per second that state ``j`` takes,
    and ``G_I`` the seconds of the predicate that the window of the stream itself leaves. The left
    side is convex in ``R``, so each of its tangents is a row of a linear program. Tangents are
    added at optima that violate the predicates (Kelley's cutting planes), until ages are within
    :data:`CLOSE` of the predicates. The optimum under these rows is a lower bound of the least
    resources. Infeasible predicates are left out.

    Raises:
        PlannerError: a predicate is negative or not finite, or not of an input (``bad-freshness``),
            or the solver fails or needs too many rounds (``no-solution``).
    """
    refresh = refresh_rates(paths, predicates)
    broken = {one.stream for one in refresh.infeasible}
    windows = {hop.name: hop.window for path in paths for hop in path.hops}
    seconds: dict[str, float] = {}
    over: dict[str, list[str]] = {}
    for path in paths:
        states = [hop.name for hop in path.hops if hop.name in refresh.rates]
        if path.name in predicates and path.name not in broken and states:
            own = path.leaf.state.window / path.leaf.rate if path.leaf.state.window else 0.0
            seconds[path.name] = predicates[path.name] - own
            over[path.name] = states
    if not over:
        return dict.fromkeys((path.name for path in paths), 0.0)
    gains = [refreshed_by(path) for path in paths]
    # No path needs more resources than the cover for some division of the seconds costs.
    enough = math.fsum(exact_cover(paths, refresh.rates).values())
    units = [min(path.most, enough) for path in paths]
    program = Program()
    each = [program.variable(unit, integer=False) for unit in units]
    alone = {
        state: max(windows[state] / seconds[name] for name in over if state in over[name])
        for state in refresh.rates
    }
    _cover_rows(program, each, units, gains, alone)
    at: Mapping[str, float] = refresh.rates
    for _ in range(MOST_TANGENTS):
        for name, states in over.items():
            slopes = {state: windows[state] / seconds[name] / at[state] ** 2 for state in states}
            least = 2 * math.fsum(slope * at[state] for state, slope in slopes.items()) - 1
            if least <= 0:
                # A tangent far from the limit constrains nothing.
                continue
            parts = [
                unit * math.fsum(slope * gain.get(s, 0.0) for s, slope in slopes.items())
                for unit, gain in zip(units, gains, strict=True)
            ]
            program.row(1.0 - TOLERANCE, INFINITY, each, [part / least for part in parts])
        found = _solved(program)
        if found is None:
            raise uncoverable(min(refresh.rates))
        at = {
            state: math.fsum(
                unit * share * gain.get(state, 0.0)
                for unit, share, gain in zip(units, found, gains, strict=True)
            )
            for state in refresh.rates
        }
        worst = max(
            math.fsum(windows[state] / at[state] for state in states) / seconds[name]
            for name, states in over.items()
        )
        if worst <= 1 + CLOSE:
            return {p.name: unit * x for p, unit, x in zip(paths, units, found, strict=True)}
    message = f"{MOST_TANGENTS} tangents did not suffice"
    raise PlannerError("no-solution", message, field="solver", remedy=_GREEDY)


def _cover_rows(
    program: Program,
    each: Sequence[int],
    units: Sequence[float],
    gains: Sequence[Mapping[str, float]],
    rates: Mapping[str, float],
) -> None:
    """Add a row for each state that has to be refreshed (Eq. 12)."""
    for state, rate in rates.items():
        if rate > 0:
            parts = [unit * gain.get(state, 0.0) for unit, gain in zip(units, gains, strict=True)]
            # If a rate takes all available resources, rounding may make it unattainable, hence the
            # tolerance.
            program.row(1.0 - TOLERANCE, INFINITY, each, [part / rate for part in parts])


def _solved(program: Program) -> tuple[float, ...] | None:
    """Solve a program; None if it has no solution."""
    answer = solve(Solver.HIGHS, Request(program))
    if answer.status is SolveStatus.INFEASIBLE:
        return None
    return proven(Solver.HIGHS, answer, _GREEDY)
