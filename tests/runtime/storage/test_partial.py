"""Compare partial results with lists of dictionaries, and check the origin of their tuples."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch_contract.queries.joins import Label
from anabranch_runtime.columns.arrays import Ints
from anabranch_runtime.index.gather import BatchTable
from anabranch_runtime.storage.partial import (
    Partial,
    RowSet,
    Tables,
    concat_partials,
    concat_rows,
    narrow,
)

R, S, T = Label("R"), Label("S"), Label("T")
Tuples = list[tuple[int, ...]]


def rows(rng: Random, count: int, first: int, length: int) -> RowSet:
    """Return ``length`` random rows of two tables, whose values are numbers from ``first`` on."""
    tables = [
        BatchTable(pa.record_batch({"v": pa.array(range(begin, begin + count))}))
        for begin in (first, first + 100)
    ]
    which = np.array([rng.randrange(2) for _ in range(length)], np.int16)
    numbers = np.array([rng.randrange(count) for _ in range(length)], np.int32)
    return RowSet(Tables(tables), which, numbers)


def values(partial: Partial) -> Tuples:
    """Return the tuples, one value per label in the order of labels."""
    columns = [partial.column(label, "v").to_pylist() for label in sorted(partial.place)]
    return list(zip(*columns, strict=True))


@given(st.integers(0, 10**6))
def test_steps_give_the_tuples_that_lists_give_and_know_their_origins(seed: int) -> None:
    rng = Random(seed)
    length = rng.randint(1, 6)
    start = Partial(length, (rows(rng, 5, 1000, length),), {R: (0, "")}, R)
    begun = values(start)
    assert start.origins is None
    assert start.numbered().origins is not None
    current, wanted, origins = start.numbered(), begun, list(range(length))
    for label, first in ((S, 2000), (T, 3000)):
        many = rng.randint(0, 9) if wanted else 0
        positions = [rng.randrange(len(wanted)) for _ in range(many)]
        fresh = rows(rng, 4, first, many)
        numbers = fresh.column("v").to_pylist()
        current = current.extend(np.array(positions, np.int32), fresh, {label: ""})
        wanted = [(*wanted[p], n) for p, n in zip(positions, numbers, strict=True)]
        origins = [origins[p] for p in positions]
        mask = [rng.random() < 0.7 for _ in wanted]
        current = current.where(np.array(mask, bool))
        wanted = [w for w, keep in zip(wanted, mask, strict=True) if keep]
        origins = [o for o, keep in zip(origins, mask, strict=True) if keep]

    assert values(current) == wanted
    assert current.origins is not None
    assert current.origins.tolist() == origins
    assert [begun[o][0] for o in origins] == [w[0] for w in wanted]


@given(st.integers(0, 10**6), st.integers(0, 7), st.integers(0, 7))
def test_pieces_put_together_are_the_whole(seed: int, first: int, second: int) -> None:
    rng = Random(seed)
    whole = Partial(7, (rows(rng, 5, 1000, 7),), {R: (0, "")}, R)
    low, high = sorted((first, second))
    pieces = [whole.cut(0, low), whole.cut(low, high), whole.cut(high, 7)]
    assert values(concat_partials(pieces)) == values(whole)
    assert whole.cut(0, 7) is whole


@given(st.lists(st.integers(1, 30_000), min_size=2, max_size=4))
@example([20_000, 20_000, 5])
def test_rows_of_many_tables_keep_their_tables(counts: list[int]) -> None:
    table = BatchTable(pa.record_batch({"a": pa.array([7], pa.int64())}))
    sets = []
    for count in counts:
        numbers: Ints = np.arange(count, dtype=narrow(count))
        sets.append(RowSet(Tables([table] * count), numbers, np.zeros(count, np.int32)))
    joined = concat_rows(sets)
    assert joined.which is not None
    assert joined.which.tolist() == list(range(sum(counts)))
    assert len(joined.tables) == sum(counts)
