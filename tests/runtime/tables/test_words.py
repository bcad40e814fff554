"""Tests that each text in a pool of words (maintained tables) has one number."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa

from anabranch_runtime.columns.arrays import present
from anabranch_runtime.tables.words import Texts

#: Lengths in bytes, around multiples of 8.
_LENGTHS = (0, 1, 2, 7, 8, 9, 15, 16, 17, 24, 41)


def test_equal_texts_have_one_number_and_different_ones_different_numbers() -> None:
    random, pool = Random(3), Texts()
    known: dict[bytes, int] = {}
    for _ in range(40):
        # Few different bytes, so that texts are often equal, or differ in one byte only.
        texts = [
            None if random.random() < 0.05 else random.randbytes(random.choice(_LENGTHS))
            for _ in range(500)
        ]
        few = [None if t is None else bytes(b & 1 for b in t) for t in texts]
        kind = random.choice((pa.binary(), pa.large_binary()))
        column = pa.array(few, kind).slice(random.randrange(20))
        found = pool.numbers(column)
        for text, number in zip(column.to_pylist(), found.tolist(), strict=True):
            assert text is None or known.setdefault(text, number) == number
        valid = present(column)
        assert pool.column(found, valid, pa.binary()).to_pylist() == column.to_pylist()
    assert sorted(known.values()) == sorted(set(known.values()))
    assert pool.size_of(np.ones(pool.count, np.bool_)) == pool.size
    assert pool.size == (len(known), sum(map(len, known)))


def test_numbers_of_nulls_may_be_anything() -> None:
    """As in rows without a match, whose words are never written."""
    pool = Texts()
    pool.numbers(pa.array(["a text of some bytes", "b"]))
    numbers = np.array([1, 1 << 60, 0, -(1 << 60)])
    valid = np.array([True, False, True, False])
    column = pool.column(numbers, valid, pa.string())
    assert column.to_pylist() == ["b", None, "a text of some bytes", None]
