"""Tests that ranks (for rations) depend on values only, are uniform, and can be recomputed from the
documentation.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from anabranch_contract.plans.rations import Ranking
from anabranch_runtime.index.ranks import WHOLE, limit, ranks

_MASK = (1 << 64) - 1


def _mix(word: int) -> int:
    """Return SplitMix64's finaliser of ``word``, without its added constant."""
    word = (word + 0x9E3779B97F4A7C15) & _MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)


def _rank(values: tuple[int | None, ...], batch: int | None) -> int:
    """Return the rank of a tuple of integers, by the definition in the module's docstring."""
    found = 0 if batch is None else batch + 1
    for value in values:
        part = 0 if value is None else _mix(value & _MASK)
        found = _mix((found * 0xD6E8FEB86659FD93 + part) & _MASK)
    return found >> 11


@pytest.mark.parametrize("by_batch", [False, True])
def test_ranks_are_what_is_written(by_batch: bool) -> None:
    columns = {"a": pa.array([7, None, -3]), "b": pa.array([1, 2, None])}
    ranking = Ranking((("a", "bigint"), ("b", "bigint")), by_batch)
    found = ranks(ranking, columns.__getitem__, 3, 41)
    batch = 41 if by_batch else None
    assert found.tolist() == [_rank(v, batch) for v in ((7, 1), (None, 2), (-3, None))]


def test_a_key_class_ranks_alike_whatever_the_type_of_its_columns() -> None:
    decimals = pa.array([Decimal(7), Decimal(8)], pa.decimal128(10, 2))
    one = Ranking((("k", "decimal(38,2)"),), by_batch=False)
    assert (
        ranks(one, lambda _: decimals, 2, 0).tolist()
        == ranks(one, lambda _: pa.array([7, 8], pa.int32()), 2, 5).tolist()
    )


def test_a_share_of_the_ranks_is_below_its_limit() -> None:
    column = pa.array(np.arange(100_000))
    for by_batch in (False, True):
        found = ranks(Ranking((("k", "bigint"),), by_batch), lambda _: column, len(column), 3)
        assert found.min() >= 0
        assert found.max() < WHOLE
        for share in (0.01, 0.3, 0.9):
            error = (share * (1 - share) / len(column)) ** 0.5
            assert abs((found < limit(share)).mean() - share) < 4 * error


def test_batches_rank_anew() -> None:
    column = pa.array(np.arange(10_000))
    ranking = Ranking((("k", "bigint"),), by_batch=True)
    one, other = (ranks(ranking, lambda _: column, len(column), b) < limit(0.5) for b in (1, 2))
    # Half of the rows kept in one batch are kept in the next.
    assert abs((one & other).mean() - 0.25) < 0.02
