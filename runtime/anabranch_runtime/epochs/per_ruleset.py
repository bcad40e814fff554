"""Values derived from a ruleset alone, computed once for all batches that run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from operator import is_
from typing import TypeVar

from anabranch_contract.plans.ruleset import Ruleset

_T = TypeVar("_T")

#: Number of rulesets with cached values: the present and next one, also without failed queries.
KEPT = 4
_ROWS = tuple(one.name for one in fields(Ruleset) if one.name not in ("epoch", "revision"))


def alike(one: Ruleset, other: Ruleset | None) -> bool:
    """Whether two rulesets differ at most in their numbers, by identity: comparing rules would take
    as long as reading all of them. An epoch with the rules of the last one has the same objects
    (``plans.rows.read_ruleset``). None differs from every ruleset.
    """
    return one is other or (
        other is not None and all(getattr(one, name) is getattr(other, name) for name in _ROWS)
    )


def per_ruleset(work: Callable[[Ruleset], _T]) -> Callable[[Ruleset], _T]:
    """Cache the values of ``work``, which must not use the ruleset's number, for the last few
    rulesets; rulesets that are :func:`alike` have the same value.
    """
    return _cached(work, alike)


def per_number(work: Callable[[Ruleset], _T]) -> Callable[[Ruleset], _T]:
    """Cache the values of ``work`` for the last few rulesets, whatever their rules."""
    return _cached(work, is_)


def _cached(
    work: Callable[[Ruleset], _T], same: Callable[[Ruleset, Ruleset], bool]
) -> Callable[[Ruleset], _T]:
    known: tuple[tuple[Ruleset, _T], ...] = ()

    @wraps(work)
    def found(ruleset: Ruleset) -> _T:
        nonlocal known
        for one, value in known:
            if same(one, ruleset):
                return value
        value = work(ruleset)
        known = ((ruleset, value), *known[: KEPT - 1])
        return value

    return found
