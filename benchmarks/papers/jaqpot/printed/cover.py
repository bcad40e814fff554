"""Cheapest resources of input paths that refresh all states: a weighted multiple set cover.

Minimise ``Δμ = Σ X_I`` so that every state ``j`` takes ``Σ_I b_(I,j) X_(I,j) >= R_j`` tuples per
second (Eq. 11, 12), where no path gets more resources than its arrivals can use. Multiples may be
fractions, as in the continuous model. Source: JAQPOT, Problem 2. The paper uses the greedy
algorithm GH-WMSCP of Yang and Leung, "A generalization of the weighted set covering problem",
without printing it; :func:`greedy_cover` is this algorithm for fractions, and for paths with
limited resources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch_contract.errors import PlannerError
from benchmarks.papers.jaqpot.printed.paths import InputPath

#: Share by which a refresh rate or a path's resources may be missed, for rounding errors.
TOLERANCE = 1e-9


def refreshed_by(path: InputPath) -> dict[str, float]:
    """Return the tuples that each intermediate state on the path takes, per probe of the path."""
    return {
        hop.name: part
        for hop, part in zip(path.hops, path.allowances(1.0), strict=True)
        if hop.susceptible
    }


def greedy_cover(paths: Sequence[InputPath], rates: Mapping[str, float]) -> dict[str, float]:
    """Return the resources of each path by GH-WMSCP, in probes per second.

    In each step, the path that refreshes uncovered states the most per probe gets resources, until
    one of these states is covered or the path has all resources that it can use. So there is at
    most one step per state and path. Ties go to the path further left.

    Args:
        rates: refresh rate ``R_S`` of each state.

    Raises:
        PlannerError: all paths together can't refresh a state (``uncoverable-state``).
    """
    gains = {path.name: refreshed_by(path) for path in paths}
    room = {path.name: path.most for path in paths}
    lacking = {state: rate for state, rate in rates.items() if rate > 0}
    found = dict.fromkeys(gains, 0.0)
    while lacking:
        worth = {
            name: sum(gain for state, gain in gains[name].items() if state in lacking)
            for name in gains
            if room[name] > 0
        }
        best = max(worth, key=lambda name: worth[name], default=None)
        if best is None or worth[best] <= 0:
            raise uncoverable(min(lacking))
        useful = {s: gain for s, gain in gains[best].items() if s in lacking and gain > 0}
        given = min(room[best], *(lacking[state] / gain for state, gain in useful.items()))
        found[best] += given
        room[best] -= given
        if room[best] <= TOLERANCE * found[best]:
            room[best] = 0.0
        for state, gain in useful.items():
            lacking[state] -= given * gain
            if lacking[state] <= TOLERANCE * rates[state]:
                del lacking[state]
    return found


def uncoverable(state: str) -> PlannerError:
    """Return the error for a state that can't be refreshed at the requested rate."""
    return PlannerError(
        "uncoverable-state",
        "no allocation refreshes this state fast enough",
        field=state,
        remedy="ask for a lower refresh rate, as refresh_rates does",
    )
