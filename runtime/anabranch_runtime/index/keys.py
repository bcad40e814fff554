"""Join keys as vectors of 64-bit hashes, equal where the values are equal.

Every key part becomes one 64-bit *lane* per row, a function of the value alone: integers, dates,
microseconds and booleans are their own lane; a double's lane is its bits, with one NaN and one
zero; a decimal's 128 bits are folded; a string's lane sums the mixes of its 8-byte words. The first
part's lane is mixed (:func:`mix`); each further part is combined by another mix. Nothing depends on
the process, the machine's word order or the physical width of the column, so two workers always
agree, and in a key of ``decimal(38,2)``, ``int`` 7 equals ``decimal(10,2)`` 7.00.

**Exactness.** :func:`mix` adds a constant, and applies xor-shifts and multiplications by odd
constants, each a bijection of 64-bit words; so a key of one part whose lane is injective has
equal hashes exactly where the values are equal, and needs no comparison of values
(``KeyVector.exact``). All other keys are compared by :func:`values_equal` after a hash match.

>>> small = key_vector([pa.array([7, None], pa.int8())], ["bigint"])
>>> wide = key_vector([pa.array([7, 7], pa.int64())], ["bigint"])
>>> bool(small.hashes[0] == wide.hashes[0]), small.valid.tolist(), small.exact
(True, [True, False], True)

:func:`mix` is the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
generators", OOPSLA 2014).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_runtime.columns.arrays import U64, Bools, Ints, both, fixed, plain, present
from anabranch_runtime.errors import KeyTypeError
from anabranch_runtime.index import kernels

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
FOLD = np.uint64(0xD6E8FEB86659FD93)
_WORDS_IN_STEP = 8
#: Rows per pass, few enough for their data to stay in the processor's cache.
_BLOCK = 1 << 14
_TAIL_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)
_INJECTIVE = frozenset({"bigint", "double", "timestamp", "date", "boolean"})
_DECIMAL = re.compile(r"decimal\(38,(\d+)\)")


@dataclass(frozen=True, slots=True)
class KeyVector:
    """The keys of ``n`` rows.

    Attributes:
        hashes: one hash per row; 0 where the key is NULL.
        valid: False where any part of the key is NULL; None if no row has a NULL part.
        exact: whether equal hashes imply equal values (see the module docstring).
    """

    hashes: U64
    valid: Bools | None
    exact: bool

    def __len__(self) -> int:
        return len(self.hashes)


def mix(words: U64) -> U64:
    """Mix words by a bijection of 64-bit words that spreads each input bit over all output bits."""
    hashes = np.empty(len(words), dtype=np.uint64)
    kernels.mix(np.ascontiguousarray(words), hashes)
    return hashes


def key_vector(columns: Sequence[pa.Array], types: Sequence[str]) -> KeyVector:
    """Return the keys of rows; ``columns``: one column per part of the key (at least one);
    ``types``: the parts' key types, such as ``bigint``.

    Raises:
        KeyTypeError: a column's values can't be read as the key type.
    """
    hashes: U64 | None = None
    valid: Bools | None = None
    for column, kind in zip(columns, types, strict=True):
        part = plain(column)
        lane = _lane(part, kind)
        hashes = mix(lane if hashes is None else hashes * FOLD + lane)
        valid = both(valid, present(part))
    if hashes is None:
        raise KeyTypeError("empty-key", "a key needs at least one column")
    if valid is not None:
        hashes[~valid] = 0
    return KeyVector(hashes, valid, len(types) == 1 and types[0] in _INJECTIVE)


def values_equal(
    left: Sequence[pa.Array], right: Sequence[pa.Array], types: Sequence[str]
) -> Bools:
    """Return the mask of rows with equal left and right keys; a NULL part equals no value.

    Raises:
        KeyTypeError: a column's values can't be read as the key type.
    """
    equal: Bools | None = None
    for one, other, kind in zip(left, right, types, strict=True):
        a, b = plain(one), plain(other)
        if kind in ("string", "binary"):
            same = pc.equal(_cast(a, pa.large_binary(), kind), _cast(b, pa.large_binary(), kind))
            part = np.asarray(same.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)
        else:
            part = _equal_words(a, b, kind)
            for side in (a, b):
                known = present(side)
                if known is not None:
                    part &= known
        equal = part if equal is None else equal & part
    if equal is None:
        raise KeyTypeError("empty-key", "a key needs at least one column")
    return equal


def partition_of(hashes: U64, partitions: int) -> Ints:
    """Return each hash's partition, by its low 32 bits, since index buckets use the high bits.

    >>> partition_of(np.array([0, 5, 1 << 40], dtype=np.uint64), 4).tolist()
    [0, 1, 0]
    """
    low = hashes & np.uint64(0xFFFFFFFF)
    if partitions & (partitions - 1) == 0:
        return (low & np.uint64(partitions - 1)).astype(np.int64)
    return (low % np.uint64(partitions)).astype(np.int64)


def _cast(column: pa.Array, target: pa.DataType, kind: str) -> pa.Array:
    if column.type == target:
        return column
    try:
        return column.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise KeyTypeError(
            "bad-key-column",
            f"a column of {column.type} can't be a key of type {kind}: {error}",
            remedy="cast the column in the query",
        ) from error


def _lane(column: pa.Array, kind: str) -> U64:
    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.uint64)
    if kind in ("string", "binary"):
        return _bytes_lane(column, kind)
    if _DECIMAL.fullmatch(kind):
        words = _decimal_words(column, kind)
        lane: U64 = words[:, 0] + words[:, 1] * FOLD
        if words.shape[1] == 4:
            # A value beyond 128 bits equals only another such value, so its upper words are folded
            # in. A value within 128 bits gets the lane that it has in a 128-bit column.
            sign = _sign_words(words[:, 1])
            wide = (words[:, 2] != sign) | (words[:, 3] != sign)
            rest = mix(words[:, 2] + words[:, 3] * FOLD)
            lane = np.where(wide, lane + rest, lane)
        return lane
    return _word(column, kind)


def _word(column: pa.Array, kind: str) -> U64:
    """Return the 64-bit lane of each key value, for key types of at most 64 bits."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.uint64)
    given = column.type
    if kind == "bigint" and pa.types.is_integer(given):
        ints: U64 = fixed(_cast(column, pa.int64(), kind), np.uint64)
        return ints
    if kind == "bigint" and pa.types.is_duration(given):
        lengths: U64 = fixed(_cast(column, pa.duration("us"), kind), np.uint64)
        return lengths
    if kind == "double" and pa.types.is_floating(given):
        values = fixed(_cast(column, pa.float64(), kind), np.float64) + 0.0
        values[np.isnan(values)] = np.nan
        bits: U64 = values.view(np.uint64)
        return bits
    if kind == "timestamp" and pa.types.is_timestamp(given):
        if given.unit == "ns":
            nanos = fixed(column, np.int64)
            cut: U64 = np.floor_divide(nanos, 1000).view(np.uint64)
            return cut
        micros: U64 = fixed(_cast(column, pa.timestamp("us", given.tz), kind), np.uint64)
        return micros
    if kind == "date" and pa.types.is_date(given):
        if pa.types.is_date64(given):
            days: Ints = np.floor_divide(fixed(column, np.int64), 86_400_000)
        else:
            days = fixed(column, np.int32).astype(np.int64)
        return days.view(np.uint64)
    if kind == "boolean" and pa.types.is_boolean(given):
        return fixed(_cast(column, pa.int8(), kind), np.int8).astype(np.uint64)
    raise KeyTypeError(
        "bad-key-column",
        f"a column of {given} can't be a key of type {kind}",
        remedy="cast the column in the query",
    )


def _sign_words(high: U64) -> U64:
    return (high.view(np.int64) >> np.int64(63)).view(np.uint64)


def _decimal_words(column: pa.Array, kind: str) -> U64:
    """Return decimals, as integers at the key's scale, in little-endian words: (n, 2) or (n, 4).

    A value of 38 digits, rescaled by up to 38 more, has 76 digits, which always fit in 256 bits.
    """
    match = _DECIMAL.fullmatch(kind)
    scale = int(match.group(1)) if match else 0
    given = column.type
    if pa.types.is_null(given):
        return np.zeros((len(column), 2), dtype=np.uint64)
    if pa.types.is_integer(given) and not pa.types.is_uint64(given):
        ints = fixed(_cast(column, pa.int64(), kind), np.int64)
        bound = (1 << 63) // 10**scale
        if len(ints) == 0 or (-bound < int(ints.min()) and int(ints.max()) < bound):
            low = (ints * np.int64(10**scale if scale < 19 else 0)).view(np.uint64)
            return np.stack([low, _sign_words(low)], axis=1)
        digits = 19
    elif pa.types.is_uint64(given):
        digits = 20
    elif pa.types.is_decimal(given):
        digits = given.precision - given.scale
    else:
        raise KeyTypeError(
            "bad-key-column",
            f"a column of {given} can't be a key of type {kind}",
            remedy="cast the column in the query",
        )
    lanes = 2 if digits + scale <= 38 else 4
    target = pa.decimal128(38, scale) if lanes == 2 else pa.decimal256(76, scale)
    exact = _cast(column, target, kind)
    if len(exact) == 0:
        return np.empty((0, lanes), dtype=np.uint64)
    flat = np.frombuffer(
        exact.buffers()[1], np.dtype("<u8"), lanes * len(exact), exact.offset * lanes * 8
    )
    return flat.reshape(len(exact), lanes)


def _equal_words(left: pa.Array, right: pa.Array, kind: str) -> Bools:
    if not _DECIMAL.fullmatch(kind):
        equal: Bools = _word(left, kind) == _word(right, kind)
        return equal
    a, b = _decimal_words(left, kind), _decimal_words(right, kind)
    if a.shape[1] != b.shape[1]:
        a, b = _widen(a), _widen(b)
    same: Bools = (a == b).all(axis=1)
    return same


def _widen(words: U64) -> U64:
    if words.shape[1] == 4:
        return words
    sign = _sign_words(np.ascontiguousarray(words[:, 1]))
    return np.concatenate([words, sign[:, None], sign[:, None]], axis=1)


def _bytes_lane(column: pa.Array, kind: str) -> U64:
    """Return each string's lane: the sum of mix(word + position) over 8-byte words, and its length.

    The sum does not depend on the order. So the first words of all rows are added step by step, one
    word position per step; the remaining words of long values are added in one flat pass.
    """
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        column = _cast(column, pa.large_binary(), kind)
    n = len(column)
    if n == 0:
        return np.empty(0, dtype=np.uint64)
    wide = pa.types.is_large_binary(column.type)
    _, offset_buffer, data_buffer = column.buffers()
    width = np.dtype(np.int64 if wide else np.int32)
    bounds = np.frombuffer(offset_buffer, width, n + 1, column.offset * width.itemsize)
    first, last = int(bounds[0]), int(bounds[-1])
    padded = np.zeros(last - first + 8, dtype=np.uint8)
    if last > first:
        padded[: last - first] = np.frombuffer(data_buffer, np.uint8, last - first, first)
    words: U64 = np.ndarray((last - first + 1,), np.dtype("<u8"), padded, strides=(1,))
    starts = bounds[:-1].astype(np.int64) - first
    lengths = np.diff(bounds).astype(np.int64)

    lane = np.empty(n, dtype=np.uint64)
    for begin in range(0, n, _BLOCK):
        block = slice(begin, begin + _BLOCK)
        lane[block] = _block_lane(words, starts[block], lengths[block])
    return lane


def _block_lane(words: U64, starts: Ints, lengths: Ints) -> U64:
    """Return the lanes of a block of strings; ``words``: the 8 bytes from each byte on."""
    lane = lengths.view(np.uint64) * FOLD
    lane += mix(words[starts] & _TAIL_MASKS[np.minimum(lengths, 8)])
    rows: Ints | None = None
    for step in range(1, _WORDS_IN_STEP):
        reach = lengths if rows is None else lengths[rows]
        more = np.flatnonzero(reach > 8 * step)
        if len(more) == 0:
            return lane
        rows = more if rows is None else rows[more]
        left = np.minimum(lengths[rows] - 8 * step, 8)
        salt = np.uint64(step * int(_GAMMA) & 0xFFFFFFFFFFFFFFFF)
        lane[rows] += mix((words[starts[rows] + 8 * step] & _TAIL_MASKS[left]) + salt)
    rows = np.flatnonzero(lengths > 8 * _WORDS_IN_STEP)
    if len(rows):
        counts = (lengths[rows] + 7) // 8 - _WORDS_IN_STEP
        ends = np.cumsum(counts)
        step_of = np.arange(ends[-1]) - np.repeat(ends - counts, counts) + _WORDS_IN_STEP
        left = np.minimum(np.repeat(lengths[rows], counts) - 8 * step_of, 8)
        found = words[np.repeat(starts[rows], counts) + 8 * step_of] & _TAIL_MASKS[left]
        parts = mix(found + step_of.view(np.uint64) * _GAMMA)
        lane[rows] += np.add.reduceat(parts, ends - counts)
    return lane
