"""Spark's ``hash`` (MurmurHash3, x86, 32 bits) and ``xxhash64``, one column after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch_contract.queries.expressions import Call
from anabranch_runtime.columns.arrays import canonical, fixed, present, unscaled
from anabranch_runtime.expressions.functions.xxhash import of_bytes, of_words

_SEED = 42
_Words = npt.NDArray[np.uint32]
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def murmur3(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``hash(values...)``: MurmurHash3; a NULL leaves the hash unchanged."""
    found: _Words = np.full(len(args[0]), _SEED, dtype=np.uint32)
    with np.errstate(over="ignore"):
        for arg in args:
            valid = present(arg)
            hashed = _column(arg, found)
            found = hashed if valid is None else np.where(valid, hashed, found)
    return pa.array(found.view(np.int32), pa.int32())


def xxhash64(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``xxhash64(values...)``: XXH64 with seed 42; a NULL leaves the hash unchanged."""
    found = np.full(len(args[0]), _SEED, dtype=np.uint64)
    for arg in args:
        words, valid = words_of(arg), present(arg)
        hashed = of_bytes(words, found) if isinstance(words, list) else of_words(words, found)
        found = hashed if valid is None else np.where(valid, hashed, found)
    return pa.array(found.view(np.int64), pa.int64())


def words_of(column: pa.Array) -> npt.NDArray[Any] | list[bytes | None]:
    """Return a column's values as Spark hashes them: as words of 32 or 64 bits, or as bytes."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        found: list[bytes | None] = column.cast(pa.binary()).to_pylist()
        return found
    if pa.types.is_boolean(kind):
        flags: _Words = column.fill_null(False).to_numpy(False).astype(np.uint32)
        return flags
    if pa.types.is_decimal(kind):
        values = unscaled(column)
        if kind.precision <= 18:
            return np.array([(v or 0) & (2**64 - 1) for v in values], dtype=np.uint64)
        return [None if v is None else v.to_bytes(_bytes(v), "big", signed=True) for v in values]
    if pa.types.is_floating(kind):
        # Make all zeros equal, and all NaNs, so that their hashes are equal.
        return fixed(canonical(column), np.uint32 if kind.bit_width == 32 else np.uint64)
    if kind.bit_width == 64:
        return fixed(column, np.int64).view(np.uint64)
    plain = np.int32 if pa.types.is_date(kind) else kind.to_pandas_dtype()
    return fixed(column, plain).astype(np.int32).view(np.uint32)


def _column(column: pa.Array, seeds: _Words) -> _Words:
    words = words_of(column)
    if isinstance(words, list):
        return _by_row(words, seeds)
    if words.dtype == np.uint32:
        return _of_words([words], seeds)
    return _of_words([words.astype(np.uint32), (words >> np.uint64(32)).astype(np.uint32)], seeds)


def _bytes(value: int) -> int:
    return ((value if value >= 0 else ~value).bit_length()) // 8 + 1


def _rotated(words: Any, by: int) -> Any:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))


def _mixed(found: Any, word: Any) -> Any:
    """Return Murmur3's state ``found`` after another 32-bit word has been mixed in."""
    word = _rotated(word * _C1, 15) * _C2
    return _rotated(found ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(found: Any, length: int) -> Any:
    found = found ^ np.uint32(length)
    found = (found ^ (found >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    found = (found ^ (found >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return found ^ (found >> np.uint32(16))


def _of_words(words: list[_Words], seeds: _Words) -> _Words:
    found: Any = seeds
    for word in words:
        found = _mixed(found, word)
    hashed: _Words = _finished(found, 4 * len(words))
    return hashed


def _by_row(values: list[bytes | None], seeds: _Words) -> _Words:
    known: dict[tuple[bytes, int], int] = {}
    found = np.zeros(len(values), dtype=np.uint32)
    for row, (value, seed) in enumerate(zip(values, seeds.tolist(), strict=True)):
        if value is None:
            continue
        if (value, seed) not in known:
            known[value, seed] = _of_bytes(value, seed)
        found[row] = known[value, seed]
    return found


def _of_bytes(data: bytes, seed: int) -> int:
    found: Any = np.uint32(seed)
    whole = len(data) // 4 * 4
    for word in np.frombuffer(data[:whole], dtype="<u4"):
        found = _mixed(found, word)
    # Unlike standard Murmur3, Spark mixes each remaining byte separately, as a signed number.
    for byte in np.frombuffer(data[whole:], dtype=np.int8).astype(np.int32).view(np.uint32):
        found = _mixed(found, byte)
    return int(_finished(found, len(data)))


#: Operation -> kernel.
HASHES: dict[str, Callable[[Call, list[pa.Array]], pa.Array]] = {
    "hash": murmur3,
    "xxhash64": xxhash64,
}
