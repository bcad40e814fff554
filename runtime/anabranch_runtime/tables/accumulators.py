"""Accumulators of a group's aggregates: counts, sums and minima, in 64-bit words of its state row.

Counts and sums are linear in the weights of input rows. If ``once`` is set (to the index of a
collection of values, ``collections``), each distinct value counts once (DISTINCT).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa

from anabranch_runtime.columns.arrays import Ints
from anabranch_runtime.tables import sums, trees
from anabranch_runtime.tables.inputs import Inputs
from anabranch_runtime.tables.words import Texts, TupleField, TupleLayout


class Accumulator(Protocol):
    """Part of a group's state row: ``width`` words, updated by weighted input rows."""

    @property
    def width(self) -> int:
        """Number of words in a group's state row."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """Number of words of each of the accumulator's numbers, in their order."""

    @property
    def once(self) -> int | None:
        """Index of the collection of DISTINCT values that count in the group; None: all rows do."""

    def add(self, state: Ints, at: int, index: Ints, rows: Inputs, weights: Ints) -> None:
        """Add weighted ``rows`` to the words from ``at`` on; ``index``: their rows in ``state``."""
        ...


@dataclass(frozen=True, slots=True)
class Count:
    """The number of a group's input rows without NULL in ``columns``."""

    columns: tuple[str, ...]
    once: int | None = None

    width: ClassVar[int] = 1
    numbers: ClassVar[tuple[int, ...]] = (1,)

    def add(self, state: Ints, at: int, index: Ints, rows: Inputs, weights: Ints) -> None:
        """Add the weights of input rows to groups' counts."""
        sums.add_counts(state, at, index, rows.valid(*self.columns), weights)


@dataclass(frozen=True, slots=True)
class IntegerSum:
    """The sum of an integer column over a group, with 128 bits."""

    column: str
    once: int | None = None

    width: ClassVar[int] = 2
    numbers: ClassVar[tuple[int, ...]] = (2,)

    def add(self, state: Ints, at: int, index: Ints, rows: Inputs, weights: Ints) -> None:
        """Add weighted integers to groups' sums."""
        values, valid = rows.integers(self.column), rows.valid(self.column)
        sums.add_integers(state.view(np.uint64), at, index, values, valid, weights)


@dataclass(frozen=True, slots=True)
class DecimalSum:
    """The sum of a decimal column's unscaled values over a group, with 192 bits."""

    column: str
    once: int | None = None

    width: ClassVar[int] = 3
    numbers: ClassVar[tuple[int, ...]] = (3,)

    def add(self, state: Ints, at: int, index: Ints, rows: Inputs, weights: Ints) -> None:
        """Add weighted decimals to groups' sums."""
        low, high = rows.halves(self.column)
        valid = rows.valid(self.column)
        unsigned = state.view(np.uint64)
        sums.add_decimals(unsigned, at, index, low.view(np.uint64), high, valid, weights)


@dataclass(frozen=True, slots=True)
class FloatSum:
    """The sum of a column as doubles; if ``other`` is set, over rows without NULL in either."""

    column: str
    other: str | None = None
    once: int | None = None

    width: ClassVar[int] = sums.FLOAT_WORDS
    numbers: ClassVar[tuple[int, ...]] = sums.FLOAT_NUMBERS

    def add(self, state: Ints, at: int, index: Ints, rows: Inputs, weights: Ints) -> None:
        """Add weighted floats to groups' sums."""
        values = rows.floats(self.column)
        valid = rows.valid(self.column, *(() if self.other is None else (self.other,)))
        unsigned, floats = state.view(np.uint64), state.view(np.float64)
        sums.add_floats(unsigned, floats, at, index, values, valid, weights)


@dataclass(frozen=True, slots=True)
class ProductSum:
    """The sum over a group of the products of two columns, as doubles, over rows without NULL in
    these columns and in the column ``known``."""

    column: str
    other: str
    known: str | None = None
    once: int | None = None

    width: ClassVar[int] = sums.FLOAT_WORDS
    numbers: ClassVar[tuple[int, ...]] = sums.FLOAT_NUMBERS

    def add(self, state: Ints, at: int, index: Ints, rows: Inputs, weights: Ints) -> None:
        """Add weighted products to groups' sums."""
        x, y = rows.floats(self.column), rows.floats(self.other)
        valid = rows.valid(self.column, self.other, *(() if self.known is None else (self.known,)))
        unsigned, floats = state.view(np.uint64), state.view(np.float64)
        sums.add_products(unsigned, floats, at, index, x, y, valid, weights)


@dataclass(frozen=True, slots=True)
class PowerSum:
    """The sum of the third or fourth powers of a column as doubles."""

    column: str
    power: int

    once: ClassVar[int | None] = None
    width: ClassVar[int] = sums.FLOAT_WORDS
    numbers: ClassVar[tuple[int, ...]] = sums.FLOAT_NUMBERS

    def add(self, state: Ints, at: int, index: Ints, rows: Inputs, weights: Ints) -> None:
        """Add weighted powers to groups' sums."""
        values, valid = rows.floats(self.column), rows.valid(self.column)
        unsigned, floats = state.view(np.uint64), state.view(np.float64)
        sums.add_powers(unsigned, floats, at, index, values, valid, weights, self.power)


@dataclass(frozen=True, slots=True)
class BitCounts:
    """The number of a group's integers that have each of the 64 bits (sign-extended) set."""

    column: str

    once: ClassVar[int | None] = None
    width: ClassVar[int] = 64
    numbers: ClassVar[tuple[int, ...]] = (1,) * 64

    def add(self, state: Ints, at: int, index: Ints, rows: Inputs, weights: Ints) -> None:
        """Add the weights of values to the counts of their bits."""
        values, valid = rows.integers(self.column), rows.valid(self.column)
        sums.add_bits(state, at, index, values, valid, weights)


class Least:
    """The least tuple of ``columns`` in a group so far, for rows that are never deleted.

    Attributes:
        layout: fields of the tuple. ``known``: a column; rows with NULL in it are excluded.
    """

    once = None

    def __init__(
        self, columns: tuple[str, ...], fields: tuple[TupleField, ...], known: str, pool: Texts
    ) -> None:
        self.columns = columns
        self.layout = TupleLayout(fields, pool)
        self.known = known

    @property
    def width(self) -> int:
        """Return the number of words: one that is 1 if there is a tuple, and the tuple's."""
        return 1 + self.layout.width

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return 1 for each word: the words are no numbers, since tuples are never subtracted."""
        return (1,) * self.width

    def add(self, state: Ints, at: int, index: Ints, rows: Inputs, weights: Ints) -> None:
        """Keep the least of each group's stored tuple and the tuples of its ``rows``."""
        given = self.layout.encode([rows.column(name) for name in self.columns])
        pool = self.layout.pool
        trees.least(
            state, at, index, given, rows.valid(self.known), self.layout.texts, pool.data, pool.ends
        )

    def value(self, state: Ints, at: int, field: int) -> pa.Array:
        """Return the groups' values of one field of the tuple; NULL where there is no tuple."""
        words = np.ascontiguousarray(state[:, at + 1 : at + self.width])
        return masked(self.layout.column(words, field), state[:, at] != 0)


def masked(column: pa.Array, valid: np.typing.NDArray[np.bool_]) -> pa.Array:
    """Return a column of groups' values, with NULL where it is not ``valid``."""
    if valid.all():
        return column
    return column.take(pa.array(np.arange(len(column)), mask=~valid))
