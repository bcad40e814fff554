"""What follows from a ruleset alone, worked out once for all batches that go by it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from anabranch_contract.plans.ruleset import Ruleset

_T = TypeVar("_T")

#: Rulesets of which something is kept: the running one and the next, each also less what failed.
KEPT = 4


def per_ruleset(work: Callable[[Ruleset], _T]) -> Callable[[Ruleset], _T]:
    """``work``, done once for each of the last few rulesets. They are told apart by identity: to
    hash one takes as long as to go through all of its rules.
    """
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
