"""Ranks of tuples for load shedding: uniformly distributed hashes of values (``plans.rations``).

A rank is a number below :data:`WHOLE`. A hash begins as 0, or as the batch number plus one if the
ranking is by batch. The hash of each column's value (``index.keys``; 0 for NULL) is mixed in. The
upper 53 bits of the result are the rank. So a tuple's rank can be recomputed from its values and
batch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_contract.plans.rations import Ranking
from anabranch_runtime.index.keys import FOLD, key_vector, mix

#: One more than the greatest rank; a double represents every integer up to it exactly.
WHOLE = 1 << 53
_REST = np.uint64(64 - 53)


def ranks(
    ranking: Ranking, column: Callable[[str], pa.Array], rows: int, batch: int | NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the ranks of ``rows`` tuples, from 0 to ``WHOLE - 1``.

    Args:
        batch: the batch in which all tuples arrived, or the batch of each.
        column: returns the values of a stream's column.

    Raises:
        KeyTypeError: a column's values can't be read as its key type.
    """
    hashes = np.full(rows, batch + 1 if ranking.by_batch else 0, np.uint64)
    for name, kind in ranking.columns:
        hashes = mix(hashes * FOLD + key_vector([column(name)], [kind]).hashes)
    return (hashes >> _REST).view(np.int64)


def limit(share: float) -> int:
    """Return the rank below which a fraction ``share`` of all ranks lies.

    >>> limit(0.0), limit(1.0) == WHOLE
    (0, True)
    """
    return round(share * WHOLE)
