"""Axes of a predicate index: the conditions of many predicates on one column.

The constants of the conditions divide a column's values into intervals and single values. All
values in one of these have the same *code*, and satisfy the same conditions. So a condition is
tested once per code, not per row.

If a table lacks the column, its rows have the code :attr:`Axis.absent`, and all conditions on the
column count as holding.
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

#: Kinds of columns whose values numpy orders as Spark does.
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
#: Number of codes whose conditions are evaluated together.
_PIECE = 1 << 9
_PRESENCE = {"is_null", "is_not_null"}
_EQUAL = {"eq", "ne", "in"}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def condition_on_column(conjunct: Expr) -> tuple[Column, str, tuple[Any, ...]] | None:
    """Split ``conjunct`` into column, operation and constants; None if an axis can't test it."""
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
        #: Predicate -> its conditions, each as operation and constants.
        self._conditions: dict[int, list[tuple[str, tuple[Any, ...]]]] = defaultdict(list)
        self._constants: Any = None
        #: Pairs (code, predicate), sorted by code, of predicates that hold for single codes only.
        self._points: tuple[Ints, Ints] = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._pointed: Ints = np.zeros(0, np.int64)
        self._ranges: list[tuple[Ints, Ints, Ints]] = []
        #: Per code, the bits of the predicates that hold for it; computed only where ``_known``.
        self._bits: U64 = np.zeros((0, 1), np.uint64)
        self._known: Bools = np.zeros(0, np.bool_)

    def add(self, predicate: int, op: str, values: tuple[Any, ...]) -> None:
        """Add a condition on the column, which is part of the predicate with this number."""
        self._conditions[predicate].append((op, values))
        self._constants = None

    @property
    def size(self) -> int:
        """Number of codes."""
        return self.absent + 1

    @property
    def absent(self) -> int:
        """Code of rows without the column, the greatest code; that of NULL is one less."""
        self._prepare()
        return len(self._constants) + 2 if self._text else 2 * len(self._constants) + 2

    def codes(self, values: pa.Array) -> Ints:
        """Return each value's code; the constant ``i`` has the code ``i`` (text) or ``2 i + 1``."""
        null = self.absent - 1
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
        """Return, per code, the bits of the predicates whose conditions on the column hold: shape
        (codes, words). Predicates without a condition on the column count as holding."""
        words = words_for(predicates)
        if len(self._known) != self.size or self._bits.shape[1] != words:
            self._bits = np.empty((self.size, words), np.uint64)
            self._known = np.zeros(self.size, np.bool_)
        missing = np.unique(codes[~self._known[codes]])
        for first in range(0, len(missing), _PIECE):
            piece = missing[first : first + _PIECE]
            self._bits[piece] = packed(self._evaluated(piece, 64 * words))
        self._known[missing] = True
        return self._bits[codes]

    def _evaluated(self, codes: Ints, width: int) -> Bools:
        held = np.ones((len(codes), width), np.bool_)
        held[:, self._pointed] = False
        first, last = (np.searchsorted(self._points[0], codes, side) for side in ("left", "right"))
        rows = np.repeat(np.arange(len(codes)), last - first)
        begun = np.cumsum(last - first) - (last - first)
        at = np.arange(len(rows)) + np.repeat(first - begun, last - first)
        held[rows, self._points[1][at]] = True
        null, wide = self.absent - 1, codes[:, None]
        for numbers, low, high in self._ranges:
            # An inverted range (``low`` above ``high``), of ``ne``, excludes one code.
            inside = (wide >= low) & (wide <= high)
            outside = (low > high) & (wide != high) & (wide != null)
            held[:, numbers] &= inside | outside
        held[codes == self.absent] = True
        return held

    def _prepare(self) -> None:
        """Sort the constants; find the codes of each condition: single codes or ranges of codes."""
        if self._constants is not None:
            return
        every = [one for some in self._conditions.values() for one in some]
        given = {v for _, values in every for v in values}
        if self._text:
            self._constants = pa.array(sorted(given), pa.string())
            known = {v: i for i, v in enumerate(self._constants.to_pylist())}
        else:
            kind = _WIDTH.get(self.column.type.kind, np.dtype(np.int64))
            self._constants = np.unique(np.array(list(given), kind))
            at = np.searchsorted(self._constants, np.array(list(given), kind))
            known = dict(zip(given, (2 * at + 1).tolist(), strict=True))
        self._known = np.zeros(0, np.bool_)
        null = self.absent - 1
        points = list[tuple[int, int]]()
        pointed = list[int]()
        #: Number of earlier ranges of the same predicate -> (predicate, low, high).
        ranks: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for predicate, some in self._conditions.items():
            allowed: set[int] | None = None
            ranges = 0
            for op, values in some:
                codes = [known[v] for v in values]
                if op in ("eq", "in"):
                    allowed = set(codes) if allowed is None else allowed & set(codes)
                else:
                    ranks[ranges].append((predicate, *_range(op, codes, null)))
                    ranges += 1
            if allowed is not None:
                pointed.append(predicate)
                points += [(code, predicate) for code in allowed]
        sorted_points = np.array(sorted(points), np.int64).reshape(-1, 2)
        self._points = sorted_points[:, 0].copy(), sorted_points[:, 1].copy()
        self._pointed = np.array(pointed, np.int64)
        self._ranges = []
        for alike in ranks.values():
            numbers, low, high = np.array(alike, np.int64).T
            self._ranges.append((numbers, low, high))


def _range(op: str, codes: Sequence[int], null: int) -> tuple[int, int]:
    """Return least and greatest code for which a condition holds; for ``ne`` in reverse order."""
    at = codes[0] if codes else 0
    return {
        "lt": (0, at - 1),
        "le": (0, at),
        "gt": (at + 1, null - 1),
        "ge": (at, null - 1),
        "ne": (null + 1, at),
        "is_null": (null, null),
        "is_not_null": (0, null - 1),
    }[op]


def words_for(predicates: int) -> int:
    """Return the number of 64-bit words for a bit per predicate; at least 1."""
    return max(1, (predicates + 63) // 64)


def packed(bits: Bools) -> U64:
    """Pack predicates' ``bits`` (rows, multiple of 64) into 64-bit words, the first bit lowest."""
    found: U64 = np.packbits(bits, axis=1, bitorder="little").view(np.uint64)
    return found
