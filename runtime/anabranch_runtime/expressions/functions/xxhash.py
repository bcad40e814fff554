"""XXH64, as Spark's ``xxhash64`` computes it of words of 32 and 64 bits, and of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from anabranch_runtime.columns.arrays import U64

_ALL = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def of_words(words: npt.NDArray[Any], seeds: U64) -> U64:
    """Return the hash of one word of 32 or 64 bits per row, each with its row's seed."""
    wide = words.dtype == np.uint64
    word: Any = words.astype(np.uint64)
    p1, p2, p3, p4 = (np.uint64(p) for p in (_P1, _P2, _P3, _P4))
    with np.errstate(over="ignore"):
        found: Any = seeds + np.uint64(_P5 + (8 if wide else 4))
        if wide:
            found = found ^ (_rotated(word * p2, 31) * p1)
            found = _rotated(found, 27) * p1 + p4
        else:
            found = found ^ (word * p1)
            found = _rotated(found, 23) * p2 + p3
        found = (found ^ (found >> np.uint64(33))) * p2
        found = (found ^ (found >> np.uint64(29))) * p3
    made: U64 = found ^ (found >> np.uint64(32))
    return made


def _rotated(words: Any, by: int) -> Any:
    return (words << np.uint64(by)) | (words >> np.uint64(64 - by))


def of_bytes(values: list[bytes | None], seeds: U64) -> U64:
    """Return the hash of each row's bytes, computed once per pair of bytes and seed; 0 for None."""
    known: dict[tuple[bytes | None, int], int] = {}
    found = np.zeros(len(values), dtype=np.uint64)
    for row, pair in enumerate(zip(values, seeds.tolist(), strict=True)):
        value, seed = pair
        if value is not None:
            if pair not in known:
                known[pair] = _of_bytes(value, seed)
            found[row] = known[pair]
    return found


def _of_bytes(data: bytes, seed: int) -> int:
    place, length = 0, len(data)
    if length >= 32:
        lanes = [(seed + add) & _ALL for add in (_P1 + _P2, _P2, 0, -_P1)]
        while place + 32 <= length:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], data[place : place + 8])
                place += 8
        found = sum(_turned(one, by) for one, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _ALL
        for one in lanes:
            found = ((found ^ _mixed(one)) * _P1 + _P4) & _ALL
    else:
        found = (seed + _P5) & _ALL
    found = (found + length) & _ALL
    while place + 8 <= length:
        word = int.from_bytes(data[place : place + 8], "little")
        found = (_turned(found ^ _mixed(word * _P2 & _ALL, scaled=True), 27) * _P1 + _P4) & _ALL
        place += 8
    if place + 4 <= length:
        word = int.from_bytes(data[place : place + 4], "little")
        found = (_turned(found ^ (word * _P1 & _ALL), 23) * _P2 + _P3) & _ALL
        place += 4
    for byte in data[place:]:
        found = _turned(found ^ (byte * _P5 & _ALL), 11) * _P1 & _ALL
    found = (found ^ (found >> 33)) * _P2 & _ALL
    found = (found ^ (found >> 29)) * _P3 & _ALL
    return found ^ (found >> 32)


def _round(lane: int, word: bytes) -> int:
    return _turned((lane + int.from_bytes(word, "little") * _P2) & _ALL, 31) * _P1 & _ALL


def _mixed(word: int, *, scaled: bool = False) -> int:
    """Prepare a lane or word of XXH64 for merging; ``scaled``: already times the second prime."""
    return _turned(word if scaled else word * _P2 & _ALL, 31) * _P1 & _ALL


def _turned(word: int, by: int) -> int:
    return ((word << by) | (word >> (64 - by))) & _ALL
