"""Transitive closure of equalities."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

_T = TypeVar("_T", bound=Any)


def equal_groups(pairs: Iterable[tuple[_T, _T]]) -> list[list[_T]]:
    """Return the sorted groups of equal elements, if the members of each pair are equal.

    >>> equal_groups([("a", "b"), ("c", "d"), ("e", "b")])
    [['a', 'b', 'e'], ['c', 'd']]
    """
    groups: list[set[_T]] = []
    for pair in pairs:
        touched = [g for g in groups if g & set(pair)]
        groups = [g for g in groups if g not in touched]
        groups.append(set(pair).union(*touched))
    return sorted(sorted(g) for g in groups)
