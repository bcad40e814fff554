"""Axes of a predicate index: the conditions of many predicates on one column.

The constants of the conditions divide a column's values into intervals and single values. All
values of one part have the same *code*, and satisfy the same conditions. So a condition is tested
once per code, not per row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.expressions import Call, Column, Expr, Literal
from anabranch_contract.queries.types import FLOATING, INTEGRAL, TIMESTAMPS, TypeKind
from anabranch_runtime.columns.arrays import U64, Bools, Ints, fixed

#: Kinds of columns whose values have an order that numpy shares with Spark.
_ORDERED = INTEGRAL | FLOATING | TIMESTAMPS | {TypeKind.DATE}
_WIDTH = {
    TypeKind.TINYINT: np.int8,
    TypeKind.SMALLINT: np.int16,
    TypeKind.INT: np.int32,
    TypeKind.BIGINT: np.int64,
    TypeKind.FLOAT: np.float32,
    TypeKind.DOUBLE: np.float64,
    TypeKind.DATE: np.int32,
    TypeKind.TIMESTAMP: np.int64,
    TypeKind.TIMESTAMP_NTZ: np.int64,
}
_PRESENCE = {"is_null", "is_not_null"}
_EQUAL = {"eq", "ne", "in"}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def condition_on_column(conjunct: Expr) -> tuple[Column, str, tuple[Any, ...]] | None:
    """``conjunct`` as column, operation and constants; None if no axis can test it."""
    if not isinstance(conjunct, Call) or not conjunct.args:
        return None
    op, args = conjunct.op, conjunct.args
    if op in _MIRRORED and isinstance(args[0], Literal):
        op, args = _MIRRORED[op], args[::-1]
    column, *given = args
    if not isinstance(column, Column):
        return None
    kind = column.type.kind
    usable = _PRESENCE
    if kind in _ORDERED:
        usable = _PRESENCE | _EQUAL | {"lt", "le", "gt", "ge"}
    elif kind is TypeKind.STRING:
        usable = _PRESENCE | _EQUAL
    if op not in usable:
        return None
    values = []
    for one in given:
        if not isinstance(one, Literal) or one.type != column.type or one.value is None:
            return None
        values.append(one.value)
    return column, op, tuple(values)


class Axis:
    """The conditions of predicates on one column."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self._text = column.type.kind is TypeKind.STRING
        #: (predicate, operation, constants) of each condition.
        self._conditions: list[tuple[int, str, tuple[Any, ...]]] = []
        self._constants: Any = None
        self._ranges: list[tuple[Ints, Ints, Ints]] = []

    def add(self, predicate: int, op: str, values: tuple[Any, ...]) -> None:
        """Add a condition of the predicate with this number."""
        self._conditions.append((predicate, op, values))
        self._constants = None

    @property
    def size(self) -> int:
        """Number of codes; the greatest is that of NULL."""
        self._prepare()
        return len(self._constants) + 2 if self._text else 2 * len(self._constants) + 2

    def codes(self, values: pa.Array) -> Ints:
        """The code of each value; constant ``i`` has the code ``i`` (text) or ``2 i + 1``."""
        self._prepare()
        null = self.size - 1
        if self._text:
            found = pc.index_in(values, value_set=self._constants)
            found = found.cast(pa.int64()).fill_null(null - 1)
            codes: Ints = np.array(found.to_numpy(zero_copy_only=False), np.int64)
        elif not len(self._constants):
            codes = np.zeros(len(values), np.int64)
        else:
            numbers = fixed(values, _WIDTH[self.column.type.kind])
            at = np.searchsorted(self._constants, numbers)
            inside = np.minimum(at, len(self._constants) - 1)
            codes = 2 * at + (self._constants[inside] == numbers)
        if values.null_count:
            codes[~values.is_valid().to_numpy(zero_copy_only=False)] = null
        return codes

    def held(self, codes: Ints, predicates: int) -> U64:
        """Bits of the predicates whose conditions on the column hold, per code: shape (codes,
        words). Predicates without a condition hold.
        """
        self._prepare()
        held = np.ones((len(codes), 64 * words_for(predicates)), np.bool_)
        null, wide = self.size - 1, codes[:, None]
        valid = wide != null
        for numbers, low, high in self._ranges:
            # An inverted range (``low`` above ``high``) excludes one code: ``ne``.
            inside = (wide >= low) & (wide <= high)
            outside = (low > high) & (wide != high) & valid
            held[:, numbers] &= inside | outside
        for predicate, op, values in self._conditions:
            if op == "in":
                held[:, predicate] &= np.isin(codes, self._codes_of(values))
        return packed(held)

    def _codes_of(self, values: Sequence[Any]) -> Ints:
        if self._text:
            return np.array([self._known[v] for v in values], np.int64)
        kind = self._constants.dtype
        found: Ints = 2 * np.searchsorted(self._constants, np.array(values, kind)) + 1
        return found

    def _prepare(self) -> None:
        """Sort the constants, and the conditions into ranges of codes."""
        if self._constants is not None:
            return
        given = [v for _, _, values in self._conditions for v in values]
        if self._text:
            self._constants = pa.array(sorted(set(given)), pa.string())
            self._known = {v: i for i, v in enumerate(self._constants.to_pylist())}
        else:
            kind = _WIDTH.get(self.column.type.kind, np.int64)
            self._constants = np.unique(np.array(given, kind))
        null = self.size - 1
        #: Number of a predicate's earlier conditions -> its (predicate, low, high).
        ranks: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        seen: dict[int, int] = defaultdict(int)
        for predicate, op, values in self._conditions:
            if op == "in":
                continue
            at = int(self._codes_of(values)[0]) if values else 0
            low, high = {
                "lt": (0, at - 1),
                "le": (0, at),
                "gt": (at + 1, null - 1),
                "ge": (at, null - 1),
                "eq": (at, at),
                "ne": (null + 1, at),
                "is_null": (null, null),
                "is_not_null": (0, null - 1),
            }[op]
            ranks[seen[predicate]].append((predicate, low, high))
            seen[predicate] += 1
        self._ranges = []
        for some in ranks.values():
            numbers, low_codes, high_codes = np.array(some, np.int64).T
            self._ranges.append((numbers, low_codes, high_codes))


def words_for(predicates: int) -> int:
    """Number of 64-bit words with a bit per predicate; at least 1."""
    return max(1, (predicates + 63) // 64)


def packed(bits: Bools) -> U64:
    """``bits`` (shape (rows, multiple of 64)) as words, the first one in the lowest bit."""
    found: U64 = np.packbits(bits, axis=1, bitorder="little").view(np.uint64)
    return found
