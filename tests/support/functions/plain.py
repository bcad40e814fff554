"""Users' functions for tests, equivalent to conditions and values of SQL."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def above(values: pa.Array, limit: pa.Array) -> pa.Array:
    """Return ``values > limit``, for Arrow arrays."""
    return pc.greater(values, limit)


def below(values: Any, limit: Any) -> Any:
    """Return ``values < limit``, for pandas Series."""
    return (values < limit).astype("boolean").where(values.notna() & limit.notna())


def known(value: float | None) -> bool:
    """Return ``value IS NOT NULL``, for one value."""
    return value is not None


def begins(text: str | None, start: str | None) -> bool | None:
    """Whether ``text`` begins with ``start``."""
    return None if text is None or start is None else text.startswith(start)


def doubled(values: pa.Array) -> pa.Array:
    """Return ``2 * values``, for Arrow arrays."""
    return pc.multiply(values, 2)


def joined(first: pa.Array, second: pa.Array) -> pa.Array:
    """Return ``first`` and ``second`` joined with a hyphen; NULL counts as an empty text."""
    parts = (pc.fill_null(part, "") for part in (first, second))
    return pc.binary_join_element_wise(*parts, "-")


def inverse(value: int | None) -> float | None:
    """Return ``1 / value``, which fails for 0."""
    return None if value is None else 1 / value


def endless(values: pa.Array) -> pa.Array:
    """Loop without end."""
    while True:
        values = values.slice(0)


def drawn(values: pa.Array) -> pa.Array:
    """Return a random number in [0, 1) for each value."""
    return pa.array([random.random() for _ in range(len(values))])
