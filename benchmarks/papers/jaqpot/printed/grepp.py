"""GrePP: the most productive path gets what its arrivals can use, then the next one, and so on.

This is the fractional knapsack: maximise ``Σ ρ_I X_I`` for ``Σ X_I <= μ``, ``0 <= X_I <= most_I``.
**Why greedy is optimal.** Move any amount from a path to a more productive one that has room: the
sum does not fall. An assignment that admits no such move is the greedy one, up to ties.

It is optimal among all allowances per half-way join, too, not only among paths: every probe works
for tuples that entered at one leaf, so probes whose results are all probed further are a sum of
paths, and any others are wasted. Source: JAQPOT, section 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch_contract.errors import PlannerError
from benchmarks.papers.jaqpot.printed.paths import InputPath


def grepp(
    paths: Sequence[InputPath], mu: float, used: Mapping[str, float] | None = None
) -> dict[str, float]:
    """The resources of each path, in probes per second; in O(k log k).

    Ties go to the path further left.

    Args:
        mu: what there is, in probes per second.
        used: what paths have already been given, which their arrivals can't use again.

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
