"""Sets of predicates (by number), each set stored once: as a sorted list, or as bits if large."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numba import njit

from anabranch_runtime.columns.arrays import I32, U64, Ints
from anabranch_runtime.index.words import load32, load64

#: Number of the set that has all members, including members added later.
ALL = 0
#: Maximum number of cached lists by member.
KEPT = 16
#: Number of words up to which a set stored as bits is read faster than one stored as a list.
FEW_WORDS = 32
#: Odd factors that mix words of sets into hashes.
_STEP, _FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
#: Number of sets for which there is room at first.
_FIRST = 64


@dataclass(frozen=True, slots=True)
class SetView:
    """The predicate sets at one moment; sets added later do not change it.

    Attributes:
        places: shape (sets, 2): the set's first word in ``data``, and its form: the length of a
            list, or minus the number of words with bits.
        data: lists of 32-bit numbers, and bits, the lowest first; each set begins with a word.
    """

    places: Ints
    data: U64

    @property
    def addresses(self) -> tuple[int, int]:
        """The memory addresses of ``places`` and ``data``, as arguments of kernels."""
        return self.places.ctypes.data, self.data.ctypes.data


class PredicateSets:
    """Predicate sets by number, from 0; set :data:`ALL` is there from the beginning."""

    def __init__(self) -> None:
        self._places: Ints = np.zeros((_FIRST, 2), np.int64)
        self._data: U64 = np.zeros(1024, np.uint64)
        self._count, self._used = 1, 0
        #: Hash of each set, and a hash table of their numbers (0: free), at least twice as long.
        self._hashes: U64 = np.zeros(_FIRST, np.uint64)
        self._slots: I32 = np.zeros(4 * _FIRST, np.int32)
        #: Arguments -> list of the newest calls of :meth:`by_member`.
        self._by_member: dict[tuple[int, int], tuple[Ints, I32]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """Bytes of all predicate sets."""
        return 8 * self._used + 16 * self._count

    @property
    def view(self) -> SetView:
        """The predicate sets that there are at present."""
        return SetView(self._places[: self._count], self._data)

    def numbered(self, bits: U64, most: int) -> I32:
        """Return the number of the predicate set in each row of bits (rows, words); adds new sets.

        Args:
            most: total size of the sets in bytes; beyond it new sets get the number :data:`ALL`.
        """
        found = np.zeros(len(bits), np.int32)
        # New arrays are made, since kernels may be reading the old ones.
        length = len(self._places)
        while self._count + len(bits) > length:
            length *= 2
        if length > len(self._places):
            self._places, self._hashes = longer(self._places, length), longer(self._hashes, length)
            self._slots = np.zeros(4 * length, np.int32)
            _enter(self._hashes, self._count, self._slots)
        done = 0
        while done < len(bits):
            done, self._count, self._used = _number(
                bits,
                self._places,
                self._data,
                self._hashes,
                self._slots,
                (done, self._count, self._used),
                most,
                found,
            )
            if done < len(bits):
                self._data = longer(
                    self._data, max(2 * len(self._data), self._used + bits.shape[1])
                )
        return found

    def by_member(self, first: int, last: int) -> tuple[Ints, I32]:
        """Return which sets from ``first`` to before ``last`` have each predicate (member): the end
        of each member's range in an array of sets, and this array. Set :data:`ALL` is left out."""
        with self._lock:
            known = self._by_member.pop((first, last), None)
            if known is None:
                known = sets_by_member(self._places[first:last], self._data)
            self._by_member[first, last] = known
            if len(self._by_member) > KEPT:
                del self._by_member[next(iter(self._by_member))]
        return known

    def bits(self, numbers: Ints | I32, words: int) -> U64:
        """Return the bits of sets for the first 64 * ``words`` predicates, shape (sets, words)."""
        wanted = np.asarray(numbers, np.int64)
        found: U64 = _sets_as_bits(self._places, self._data, wanted, words)
        return found


def longer(values: Any, length: int) -> Any:
    """Return a copy of an array with zeros appended up to ``length``, for more sets."""
    made = np.zeros((length, *values.shape[1:]), values.dtype)
    made[: len(values)] = values
    return made


@njit(cache=True, nogil=True)
def below_lowest(word):  # type: ignore[no-untyped-def]
    """Return the number of bits below the lowest bit that is set in ``word``, which is not 0."""
    x = (word & (~word + np.uint64(1))) - np.uint64(1)
    x -= (x >> np.uint64(1)) & np.uint64(0x5555555555555555)
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(cache=True, nogil=True)
def _ones(row):  # type: ignore[no-untyped-def]
    count, last = 0, 0
    for w in range(len(row)):
        word = row[w]
        if word != np.uint64(0):
            last = w + 1
        while word != np.uint64(0):
            word &= word - np.uint64(1)
            count += 1
    return count, last


@njit(cache=True, nogil=True)
def _as_bits(count, last):  # type: ignore[no-untyped-def]
    """Whether a set of ``count`` predicates, in ``last`` words, is stored as bits."""
    return last <= FEW_WORDS or last < (count + 1) // 2


@njit(cache=True, nogil=True)
def _hashed(row):  # type: ignore[no-untyped-def]
    """Return the hash of a set's bits; zero words at the end have no effect on it."""
    found = np.uint64(0)
    for w in range(len(row)):
        if row[w] != np.uint64(0):
            mixed = (row[w] + np.uint64(w) * _STEP) * _FACTOR
            mixed = (mixed ^ (mixed >> np.uint64(32))) * _STEP
            found += mixed ^ (mixed >> np.uint64(29))
    return found


@njit(cache=True, nogil=True)
def _enter(hashes, count, slots):  # type: ignore[no-untyped-def]
    """Enter the numbers below ``count``, except :data:`ALL`, into an empty hash table of sets."""
    for number in range(1, count):
        slot = np.int64(hashes[number] & np.uint64(len(slots) - 1))
        while slots[slot] != 0:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = number


@njit(cache=True, nogil=True)
def _is_equal(row, place, data):  # type: ignore[no-untyped-def]
    """Whether the predicate set stored at ``place`` has the bits of ``row``."""
    at, size = place
    if size <= 0:
        for w in range(max(-size, len(row))):
            here = row[w] if w < len(row) else np.uint64(0)
            if here != (data[at + w] if w < -size else np.uint64(0)):
                return False
        return True
    for k in range(size):
        member = np.int64((data[at + (k >> 1)] >> np.uint64(32 * (k & 1))) & np.uint64(0xFFFFFFFF))
        if member >> 6 >= len(row):
            return False
        if (row[member >> 6] >> np.uint64(member & 63)) & np.uint64(1) == np.uint64(0):
            return False
    return _ones(row)[0] == size


@njit(cache=True, nogil=True)
def _number(rows, places, data, hashes, slots, begun, most, found):  # type: ignore[no-untyped-def]
    """Find the numbers of predicate sets, and add new sets.

    Args:
        rows: bits of the sets. ``found``: receives the sets' numbers.
        places, hashes: arrays with room for a new set per row. ``slots``: see :func:`_enter`.
        begun: number of finished rows, of sets, and of used words.
        most: see :meth:`PredicateSets.numbered`.

    Returns:
        Numbers as in ``begun``, after as many rows as ``data`` has room for.
    """
    done, count, used = begun
    for i in range(done, len(rows)):
        hashed = _hashed(rows[i])
        slot = np.int64(hashed & np.uint64(len(slots) - 1))
        while slots[slot] != 0:
            number = slots[slot]
            if hashes[number] == hashed and _is_equal(rows[i], places[number], data):
                break
            slot = (slot + 1) & (len(slots) - 1)
        if slots[slot] == 0 and 8 * used + 16 * count < most:
            if used + rows.shape[1] > len(data):
                return i, count, used
            places[count, 0] = used
            places[count, 1], used = _packed(rows[i], data, used)
            hashes[count], slots[slot] = hashed, count
            count += 1
        # A set for which there is no room has found a free slot: its number is 0, the set of all.
        found[i] = slots[slot]
    return len(rows), count, used


@njit(cache=True, nogil=True)
def _packed(row, data, used):  # type: ignore[no-untyped-def]
    """Write a predicate set to the words from ``used`` on; return its form and its words' end."""
    count, last = _ones(row)
    if _as_bits(count, last):
        data[used : used + last] = row[:last]
        return -last, used + last
    at = 0
    for w in range(last):
        word = row[w]
        while word != np.uint64(0):
            member = np.uint64((w << 6) + below_lowest(word))
            word &= word - np.uint64(1)
            if at & 1 == 0:
                data[used + (at >> 1)] = member
            else:
                data[used + (at >> 1)] |= member << np.uint64(32)
            at += 1
    return count, used + (count + 1) // 2


@njit(cache=True, nogil=True)
def _sets_as_bits(places, data, numbers, words):  # type: ignore[no-untyped-def]
    found = np.zeros((len(numbers), words), np.uint64)
    for i in range(len(numbers)):
        first, size = places[numbers[i], 0], places[numbers[i], 1]
        if numbers[i] == 0:
            found[i] = ~np.uint64(0)
        elif size < 0:
            width = min(-size, words)
            found[i, :width] = data[first : first + width]
        else:
            for k in range(size):
                pair = data[first + (k >> 1)] >> np.uint64(32 * (k & 1))
                member = np.int64(pair & np.uint64(0xFFFFFFFF))
                if member >> 6 < words:
                    found[i, member >> 6] |= np.uint64(1) << np.uint64(member & 63)
    return found


@njit(cache=True, nogil=True)
def sets_by_member(places, data):  # type: ignore[no-untyped-def]
    """Return the sets by member: an array of 0 and ends of members' ranges, and one of sets."""
    most = np.int64(0)
    for number in range(len(places)):
        at, size = places[number]
        if size > 0:
            last = data[at + ((size - 1) >> 1)] >> np.uint64(32 * ((size - 1) & 1))
            most = max(most, np.int64(last & np.uint64(0xFFFFFFFF)) + 1)
        else:
            most = max(most, -64 * size)
    ends = np.zeros(most + 1, np.int64)
    found = np.empty(0, np.int32)
    # The first turn counts, the second one fills in.
    for turn in range(2):
        for number in range(len(places)):
            at, size = places[number]
            for k in range(size):
                pair = data[at + (k >> 1)] >> np.uint64(32 * (k & 1))
                member = np.int64(pair & np.uint64(0xFFFFFFFF))
                if turn == 0:
                    ends[member + 1] += 1
                else:
                    found[ends[member]] = number
                    ends[member] += 1
            for w in range(-size):
                word = data[at + w]
                while word != np.uint64(0):
                    one = (w << 6) + below_lowest(word)
                    word &= word - np.uint64(1)
                    if turn == 0:
                        ends[one + 1] += 1
                    else:
                        found[ends[one]] = number
                        ends[one] += 1
        if turn == 0:
            ends = np.cumsum(ends)
            found = np.empty(ends[-1], np.int32)
    # Filling in has moved each range's beginning to its end.
    ends[1:] = ends[:-1].copy()
    ends[0] = 0
    return ends, found


@njit(cache=True, nogil=True)
def is_member(places, data, number, member):  # type: ignore[no-untyped-def]
    """Whether a predicate set has a member; ``places`` and ``data`` are addresses."""
    if number == 0:
        return True
    first = np.int64(load64(places, 2 * number))
    size = np.int64(load64(places, 2 * number + 1))
    if size < 0:
        word = member >> 6
        if word >= -size:
            return False
        return (np.int64(load64(data, first + word)) >> (member & 63)) & 1 != 0
    low, high = 2 * first, 2 * first + size
    while low < high:
        middle = (low + high) >> 1
        if np.int64(load32(data, middle)) < member:
            low = middle + 1
        else:
            high = middle
    return low < 2 * first + size and np.int64(load32(data, low)) == member
