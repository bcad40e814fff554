"""GrePP, JAQPOT's greedy allocation: the most productive path gets all resources that it can use,
then the next.

This is the fractional knapsack: maximise ``Σ ρ_I X_I`` for ``Σ X_I <= μ``, ``0 <= X_I <= most_I``.
**Why greedy is optimal.** Moving resources from a path to a more productive one below its maximum
never lowers the sum. An assignment that permits no such move is the greedy one, up to ties.

It is also optimal among all allowances per half-way join: every probe processes tuples that entered
at one leaf, so the probes whose matches are all processed further are a sum over paths, and any
other probes are wasted. Source: JAQPOT, section 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch_contract.errors import PlannerError
from benchmarks.papers.jaqpot.printed.paths import InputPath


def grepp(
    paths: Sequence[InputPath], mu: float, used: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Return the resources of each path, in probes per second; in O(k log k).

    Ties go to the path further left.

    Args:
        mu: available resources, in probes per second.
        used: resources that paths have already been given; their arrivals can't use these again.

    Raises:
        PlannerError: ``mu`` is negative or no number (``bad-resources``).
    """
    check_resources(mu)
    found = dict.fromkeys((path.name for path in paths), 0.0)
    left = mu
    for path in sorted(paths, key=lambda path: -path.productivity):
        room = path.most - (used or {}).get(path.name, 0.0)
        found[path.name] = min(left, max(room, 0.0))
        left -= found[path.name]
    return found


def check_resources(mu: float) -> None:
    """Refuse ``mu`` if it is negative or no number."""
    if not mu >= 0:
        raise PlannerError(
            "bad-resources", f"{mu} probes per second", field="mu", remedy="give 0 or more"
        )
