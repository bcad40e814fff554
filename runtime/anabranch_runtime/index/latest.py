"""Superseded rows (latest per key): rows for which there is a newer row of equal key.

>>> import numpy as np
>>> import pyarrow as pa
>>> keys = [pa.array(["a", "b", "a", None, None]), pa.array([1, 1, 1, 1, 1])]
>>> superseded(keys, np.array([5, 6, 7, 8, 9])).tolist()
[True, False, False, False, False]
>>> superseded([pa.array(["a", "a", "a"])], np.array([5, 7, 6]), np.array([True, False, True]))
array([ True, False, False])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch_runtime.columns.arrays import Bools, Ints, fixed, present

_NEVER = np.int64(-(1 << 63))


def superseded(keys: Sequence[pa.Array], tau: Ints, by: Bools | None = None) -> Bools:
    """Return the mask of rows for which a row of equal key has a greater ``tau``; NULL equals none.

    Args:
        keys: the key's columns, of types without different representations of equal values.
        tau: event times, microseconds.
        by: mask of rows that may supersede others; None: all rows.
    """
    groups, known = _groups(keys)
    times = tau
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    for those in (by, known):
        times = times if those is None else np.where(those, times, _NEVER)
    newest = np.maximum.reduceat(times[order], first)
    found = np.empty(len(tau), np.bool_)
    found[order] = tau[order] < np.repeat(newest, np.diff(first, append=len(tau)))
    return found if known is None else found & known


def ranked(batches: Ints, positions: Ints) -> Ints:
    """Number rows in order of arrival: by batch, then by position in it; equal for equal pairs.

    >>> ranked(np.array([2, 1, 2, 2]), np.array([5, 9, 0, 5])).tolist()
    [2, 0, 1, 2]
    """
    order = np.lexsort((positions, batches))
    one, other = batches[order], positions[order]
    steps = np.zeros(len(order), np.int64)
    steps[1:] = (one[1:] != one[:-1]) | (other[1:] != other[:-1])
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(steps)
    return found


def _groups(keys: Sequence[pa.Array]) -> tuple[Ints, Bools | None]:
    """Number keys: return a number per row, equal for equal keys, and the mask of rows whose keys
    have no NULL (None: all). Numbers of keys with a NULL are meaningless."""
    groups = np.zeros(len(keys[0]), np.int64)
    known: Bools | None = None
    for column in keys:
        valid = present(column)
        if valid is not None:
            known = valid if known is None else known & valid
        encoded = column.dictionary_encode()
        codes = fixed(encoded.indices, np.int32).astype(np.int64)
        if valid is not None:
            codes = np.where(valid, codes, 0)
        # Columns are combined one by one and renumbered, so that products stay within 64 bits.
        groups = np.unique(groups * (len(encoded.dictionary) + 1) + codes, return_inverse=True)[
            1
        ].astype(np.int64)
    return groups, known
