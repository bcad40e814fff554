"""Counts over a period of time, added and subtracted field by field."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any, Self


class Summed:
    """Base of frozen dataclasses whose fields are all counts over a period of time."""

    __slots__ = ()

    def __add__(self, other: Self) -> Self:
        return self._with(operator.add, other)

    def __sub__(self, earlier: Self) -> Self:
        """Return the counts since the time of ``earlier``."""
        return self._with(operator.sub, earlier)

    def _with(self, how: Callable[[Any, Any], Any], other: Self) -> Self:
        kind: Any = type(self)
        values = _values(kind)
        made: Self = kind(*map(how, values(self), values(other)))
        return made


@cache
def _values(kind: Any) -> operator.attrgetter[Any]:
    return operator.attrgetter(*kind.__match_args__)
