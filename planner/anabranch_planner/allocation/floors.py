"""The most results for every budget, while no query falls below its floor.

With floors, with queries whose goals all have one ration, or with goals of several paths, the sets
of :mod:`.results` do not apply. The maximum of results remains a concave, piecewise linear function
of the budget, and for a price of CPU time the best rations follow from a linear program
(:func:`.fair.least_cost`). The corners are found from their chords (Eisner and Severance, J. ACM
23(4), 1976): between two known corners the program is solved with the price at which both are worth
the same. A better solution is a corner between them; without one, a straight piece joins the two.
So each program finds a corner or proves a piece.

Between corners that are within :data:`NEAR` of each other no more are looked for, which bounds the
number of programs. Rations in between are interpolated, and hold all floors there too: completeness
is linear in the rations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from anabranch_planner.allocation.fair import least_cost
from anabranch_planner.allocation.forest import Forest

#: Least distance of corners, as a share of the full cost, or of all results.
NEAR = 1 / 64
#: A gain below this share is a solver's tolerance.
NO_GAIN = 1e-7


class _Corner(NamedTuple):
    """``used`` of CPU time and ``output`` of the queries, both as shares of all."""

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
    """The corners of the most results by budget, by growing use: from the cheapest rations that
    hold the floors to all rations of 1.

    Args:
        floors: each query that gets anything -> its least completeness; 0: it has no floor.
        paid: rations that goals of other queries have already, which they keep.
        tied: queries whose goals all have one ration.

    Raises:
        PlannerError: the solver breaks (``no-solution``).
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
        # Worth and cost of the piece are equal, so both of its ends are worth the same.
        worth = wide / gain
        best = corner(least_cost(forest, floors, paid, tied=tied, worth=worth))
        if (best.output - low.output) * worth - (best.used - low.used) > NO_GAIN:
            found.add(best)
            open_pieces += [(low, best), (best, high)]
    corners: list[_Corner] = []
    for one in sorted(found, key=lambda one: (one.used, one.output)):
        if not corners or one.output > corners[-1].output - NO_GAIN:
            # Of two that take the same, the first brings less.
            if corners and one.used <= corners[-1].used + NO_GAIN:
                corners.pop()
            corners.append(one)
    if corners[-1] != last:
        corners.append(last)
    return tuple(one.shares for one in corners)
