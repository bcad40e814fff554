"""Maximum results for every CPU budget, with no query below its floor (minimum completeness).

The increments of :mod:`.results` do not apply with floors, with tied queries (all goals have the
same ration), or if a goal has several paths. The maximum of results is still a concave, piecewise
linear function of the budget, and for a given price of CPU time a linear program finds the best
rations (:func:`.fair.least_cost`). The corners are found from their chords (Eisner and Severance,
J. ACM 23(4), 1976): between two known corners the program is solved with the price at which both
have the same value. A better solution is a corner between them; if there is none, a straight line
connects them. So each program finds a corner or proves a line.

Between corners within :data:`NEAR` of each other the search stops, which bounds the number of
programs. Rations in between are interpolated; they satisfy all floors as well, because completeness
is linear in the rations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from anabranch_planner.allocation.fair import least_cost
from anabranch_planner.allocation.forest import Forest

#: Corners closer than this fraction of the full cost, or of all results, are not searched.
NEAR = 1 / 64
#: Relative gain up to which a better solution is an error of the solver's tolerance.
NO_GAIN = 1e-7


class _Corner(NamedTuple):
    """Corner of the piecewise linear function from CPU time ``used`` to the number of results
    ``output``, both as fractions of their maximum."""

    used: float
    output: float
    shares: tuple[float, ...]


def most_results_above(
    forest: Forest,
    floors: Mapping[str, float],
    paid: Sequence[float] = (),
    *,
    tied: Collection[str] = (),
) -> tuple[tuple[float, ...], ...]:
    """Corners of the function from CPU budget to maximum results, ascending: from the cheapest
    rations (admitted fractions of tuples) that satisfy the floors to all rations at 1.

    Args:
        floors: each query that may get CPU time -> its least completeness; 0: no floor.
        paid: rations already granted to goals of other queries, which keep them.
        tied: queries whose goals all have the same ration.

    Raises:
        PlannerError: the solver fails (``no-solution``).
    """
    unit = forest.full or 1.0
    full = sum(forest.outputs[query] for query in floors) or 1.0

    def corner(shares: tuple[float, ...]) -> _Corner:
        pairs = zip(forest.goals, shares, strict=True)
        output = sum(goal.output * share for goal, share in pairs if goal.query in floors)
        return _Corner(forest.used(shares) / unit, output / full, shares)

    first = corner(least_cost(forest, floors, paid, tied=tied))
    last = corner(least_cost(forest, dict.fromkeys(floors, 1.0), paid))
    found, open_pieces = {first, last}, [(first, last)]
    while open_pieces:
        low, high = open_pieces.pop()
        wide, gain = high.used - low.used, high.output - low.output
        if max(wide, gain) < NEAR or min(wide, gain) < NO_GAIN:
            continue
        # Value of all results, in units of CPU time, at which both corners are equally good.
        worth = wide / gain
        best = corner(least_cost(forest, floors, paid, tied=tied, worth=worth))
        if (best.output - low.output) * worth - (best.used - low.used) > NO_GAIN:
            found.add(best)
            open_pieces += [(low, best), (best, high)]
    corners: list[_Corner] = []
    for one in sorted(found, key=lambda one: (one.used, one.output)):
        if not corners or one.output > corners[-1].output - NO_GAIN:
            # Two corners use equal CPU time: drop the first one, which has fewer results.
            if corners and one.used <= corners[-1].used + NO_GAIN:
                corners.pop()
            corners.append(one)
    if corners[-1] != last:
        corners.append(last)
    return tuple(one.shares for one in corners)
