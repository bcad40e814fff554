"""Counts over some time, which are added and subtracted field by field."""

from __future__ import annotations

import operator
from functools import cache
from typing import Any, Self


class Summed:
    """Base of frozen dataclasses of numbers."""

    __slots__ = ()

    def __add__(self, other: Self) -> Self:
        values = _values(type(self))
        return type(self)(*map(operator.add, values(self), values(other)))

    def __sub__(self, earlier: Self) -> Self:
        """Return the counts since ``earlier``."""
        values = _values(type(self))
        return type(self)(*map(operator.sub, values(self), values(earlier)))


@cache
def _values(kind: Any) -> operator.attrgetter[Any]:
    return operator.attrgetter(*kind.__match_args__)
