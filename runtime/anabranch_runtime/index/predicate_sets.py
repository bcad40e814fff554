"""Sets of small numbers, each stored once: few numbers as a sorted list, many as bits."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock

import numpy as np
from numba import njit

from anabranch_runtime.columns.arrays import I32, U64, Ints
from anabranch_runtime.index.words import load32, load64

#: Number of the set of all numbers, also of later ones.
ALL = 0
#: Number of results of :meth:`PredicateSets.by_member` that are kept, some 200 kB each.
KEPT = 16
#: Number of words up to which bits are faster than a list.
FEW_WORDS = 32
#: Odd factors that mix words of sets into keys.
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F], np.uint64)


@dataclass(frozen=True, slots=True)
class SetView:
    """The sets at one moment; later sets do not change it.

    Attributes:
        places: shape (sets, 2): the set's first word in ``data``, and its form: the length of a
            list, or minus the number of words with bits.
        data: lists of 32-bit numbers, and bits, the lowest first; each set begins with a word.
    """

    places: Ints
    data: U64

    @property
    def addresses(self) -> tuple[int, int]:
        """Addresses of ``places`` and ``data``."""
        return self.places.ctypes.data, self.data.ctypes.data


class PredicateSets:
    """Sets by number, from 0; set :data:`ALL` is there from the beginning."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        self._places: Ints = np.zeros((64, 2), np.int64)
        self._data: U64 = np.zeros(1024, np.uint64)
        self._count, self._used = 1, 0
        #: Arguments -> result of the newest calls of :meth:`by_member`.
        self._by_member: dict[tuple[int, int], tuple[Ints, I32]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """Bytes of all sets."""
        return 8 * self._used + 16 * self._count

    @property
    def view(self) -> SetView:
        """The sets so far."""
        return SetView(self._places[: self._count], self._data)

    def numbered(self, bits: U64, most: int) -> I32:
        """The number of each row of bits (shape (rows, words)); new sets are added.

        Args:
            most: total size of the sets in bytes; beyond it new sets get the number :data:`ALL`.
        """
        first, inverse = _distinct(bits)
        found, new = np.zeros(len(first), np.int32), list[int]()
        count, room = self._count, most - self.size
        for i, row in enumerate(bits[first]):
            # Words without bits at the end do not matter: there may be more numbers now.
            key = blake2b(row.tobytes().rstrip(b"\0"), digest_size=16).digest()
            number = self._known.get(key)
            if number is None and room > 0:
                number = self._known[key] = count + len(new)
                room -= 16 + 8 * int(_words_of(row))
                new.append(i)
            found[i] = number or ALL
        if new:
            self._add(bits[first[new]])
        return found[inverse]

    def by_member(self, first: int, last: int) -> tuple[Ints, I32]:
        """Member -> range in an array of numbers, from ``first`` on, of the sets before ``last``
        that have the member, except :data:`ALL`. The newest :data:`KEPT` results are kept.
        """
        with self._lock:
            known = self._by_member.pop((first, last), None)
            if known is None:
                known = sets_by_member(self._places[first:last], self._data)
            self._by_member[first, last] = known
            if len(self._by_member) > KEPT:
                del self._by_member[next(iter(self._by_member))]
        return known

    def bits(self, numbers: Ints | I32, words: int) -> U64:
        """Bits of sets' first 64 ``words`` numbers: shape (sets, words); all for :data:`ALL`."""
        wanted = np.asarray(numbers, np.int64)
        found: U64 = _unpacked(self._places, self._data, wanted, words)
        return found

    def _add(self, rows: U64) -> None:
        count, used = self._count, self._used
        needed = used + sum(int(_words_of(row)) for row in rows)
        # Copies: kernels may be reading the present arrays.
        while count + len(rows) > len(self._places):
            self._places = np.concatenate([self._places, np.zeros_like(self._places)])
        while needed > len(self._data):
            self._data = np.concatenate([self._data, np.zeros_like(self._data)])
        self._used = _pack(rows, self._places, self._data, count, used)
        self._count = count + len(rows)


@njit(cache=True, nogil=True)
def below_lowest(word):  # type: ignore[no-untyped-def]
    """Number of bits below the lowest bit of ``word``, which is not 0."""
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
def _words_of(row):  # type: ignore[no-untyped-def]
    """Number of words that a set takes."""
    count, last = _ones(row)
    return last if _as_bits(count, last) else (count + 1) // 2


@njit(cache=True, nogil=True)
def _as_bits(count, last):  # type: ignore[no-untyped-def]
    """Whether a set with so many members, in so many words, is stored as bits."""
    return last <= FEW_WORDS or last < (count + 1) // 2


@njit(cache=True, nogil=True)
def _pack(rows, places, data, number, used):  # type: ignore[no-untyped-def]
    """Write sets from ``number`` on; returns the end of the used words."""
    for i in range(len(rows)):
        count, last = _ones(rows[i])
        places[number + i, 0] = used
        if _as_bits(count, last):
            places[number + i, 1] = -last
            data[used : used + last] = rows[i, :last]
            used += last
            continue
        places[number + i, 1] = count
        at = 0
        for w in range(last):
            for bit in range(64):
                if (rows[i, w] >> np.uint64(bit)) & np.uint64(1) != np.uint64(0):
                    member = np.uint64((w << 6) + bit)
                    if at & 1 == 0:
                        data[used + (at >> 1)] = member
                    else:
                        data[used + (at >> 1)] |= member << np.uint64(32)
                    at += 1
        used += (count + 1) // 2
    return used


@njit(cache=True, nogil=True)
def _unpacked(places, data, numbers, words):  # type: ignore[no-untyped-def]
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
    """Ends of each member's part in an array of sets, after a 0, and the array."""
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
    # Each beginning has become an end.
    ends[1:] = ends[:-1].copy()
    ends[0] = 0
    return ends, found


@njit(cache=True, nogil=True)
def is_member(places, data, number, member):  # type: ignore[no-untyped-def]
    """Whether a set has a member; ``places`` and ``data`` are addresses."""
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


def _distinct(bits: U64) -> tuple[Ints, Ints]:
    """First row of each distinct row of ``bits``, and each row's number among these."""
    factors = _FACTORS[np.arange(bits.shape[1]) % len(_FACTORS)] + 2 * np.arange(
        bits.shape[1], dtype=np.uint64
    )
    mixed = (bits ^ (bits >> np.uint64(29))) * factors
    keys = np.bitwise_xor.reduce(mixed ^ (mixed >> np.uint64(32)), axis=1)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    if not np.array_equal(bits[first][inverse], bits):
        # Different rows have one key.
        _, first, inverse = np.unique(bits, axis=0, return_index=True, return_inverse=True)
    return first, inverse.reshape(-1)
