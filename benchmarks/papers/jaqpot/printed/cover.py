"""The cheapest resources of paths that refresh all states: a weighted multiple set cover.

Minimise ``Δμ = Σ X_I`` so that every state ``j`` takes ``Σ_I b_(I,j) X_(I,j) >= R_j`` tuples per
second (Eq. 11, 12), where a path has no more resources than its arrivals can use. Multiples are
fractions, as in the continuous model. Source: JAQPOT, Problem 2. It takes its greedy algorithm,
GH-WMSCP, from Yang and Leung, "A generalization of the weighted set covering problem", and does not
print it: :func:`greedy_cover` is that for fractions and for paths that can be used up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch_contract.errors import PlannerError
from benchmarks.papers.jaqpot.printed.paths import InputPath

#: The share of a refresh rate or of a path that may be missing, by rounding.
TOLERANCE = 1e-9


def refreshed_by(path: InputPath) -> dict[str, float]:
    """Tuples that each intermediate state on the path takes, per probe of the path."""
    return {
        hop.name: part
        for hop, part in zip(path.hops, path.allowances(1.0), strict=True)
        if hop.susceptible
    }


def greedy_cover(paths: Sequence[InputPath], rates: Mapping[str, float]) -> dict[str, float]:
    """The resources of each path by GH-WMSCP, in probes per second.

    Again and again the path that refreshes the states that are not covered yet by most per probe
    is given resources, until one of them is covered or the path has all that it can use. So it
    has at most a step per state and path. Ties go to the path further left.

    Args:
        rates: ``R_S`` by state.

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
    """The complaint that a state can't be refreshed as fast as is asked."""
    return PlannerError(
        "uncoverable-state",
        "no allocation refreshes this state fast enough",
        field=state,
        remedy="ask for a lower refresh rate, as refresh_rates does",
    )
