"""Values derived from a ruleset alone, computed once for all batches that run it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from anabranch_contract.plans.ruleset import Ruleset

_T = TypeVar("_T")

#: Number of rulesets with cached values: the present and next one, also without failed queries.
KEPT = 4


def per_ruleset(work: Callable[[Ruleset], _T]) -> Callable[[Ruleset], _T]:
    """Cache the values of ``work`` for the last few rulesets. Rulesets are compared by identity,
    because hashing one would read all of its rules."""
    known: tuple[tuple[Ruleset, _T], ...] = ()

    @wraps(work)
    def found(ruleset: Ruleset) -> _T:
        nonlocal known
        for one, value in known:
            if one is ruleset:
                return value
        value = work(ruleset)
        known = ((ruleset, value), *known[: KEPT - 1])
        return value

    return found
