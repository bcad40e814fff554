"""Frequent hashes of keys: exact counts of known hashes, and a search for further frequent hashes.

The low bits of an unknown hash choose a slot, in which the hash votes for the slot's majority
(Boyer and Moore: "MJRTY – a fast majority vote algorithm", 1991). If a slot has had ``n`` hashes
and its candidate has ``v`` votes left, the candidate occurs at most ``(n + v) / 2`` times and any
other hash at most ``(n - v) / 2`` times. Hashes are spread evenly over slots. A candidate that may
be frequent becomes a known hash, and another pass reads all hashes again. This pass counts the
candidate exactly, and votes without it, so that it may find another frequent hash of the slot. The
search ends when no hash that became known is frequent, or after :data:`_PASSES` passes; mostly one
pass is enough.

Which hashes are found depends on their order; counts and bound are correct for any order.
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from anabranch_runtime.columns.arrays import U64, Ints

#: Number of slots, whose tables fit the L1 cache; and number of hashes from which on four times as
#: many slots are used, whose tables fit the L2 cache.
SLOTS, _MANY = 1024, 1 << 14
#: Size of the hash table of known hashes, several times their number.
_PLACES = 1024
#: Maximum number of passes, and of candidates that one pass makes known.
_PASSES, _CANDIDATES = 4, 64


@dataclass(frozen=True, slots=True)
class FrequentHashes:
    """Frequent hashes and their numbers of occurrences: result of :func:`frequent`.

    Attributes:
        counts: number of occurrences of each hash in ``known``.
        fresh: other hashes with the required number of occurrences, most frequent first.
            ``fresh_counts``: occurrences of each. ``positions``: one position of each.
        rest: upper bound of the occurrences of any hash in neither list.
    """

    counts: Ints
    fresh: U64
    fresh_counts: Ints
    positions: Ints
    rest: int


def frequent(hashes: U64, known: U64, least: int, most: int) -> FrequentHashes:
    """Count ``known`` hashes among ``hashes``, and find at most ``most`` others that occur at least
    ``least`` times (1 or more). ``known`` has at most 256 hashes, all distinct.

    >>> found = frequent(np.array([7, 5, 7, 9, 7, 5], np.uint64), np.array([5], np.uint64), 2, 8)
    >>> found.counts.tolist(), found.fresh.tolist(), found.fresh_counts.tolist(), found.rest
    ([2], [7], [3], 1)
    """
    hashes, counted, new = np.ascontiguousarray(hashes), known, 0
    slots = SLOTS if len(hashes) < _MANY else 4 * SLOTS
    candidates, above = np.empty(slots, np.uint64), np.empty(slots, np.int32)
    for number in range(_PASSES):
        counts, positions = np.zeros(len(counted), np.int64), np.zeros(len(counted), np.int64)
        rest = _pass(hashes, counted, counts, positions, candidates, above)
        idle = number > 0 and counts[-new:].max() < least
        if rest < least or number == _PASSES - 1 or idle:
            break
        likely = np.flatnonzero(above >= least)
        if len(likely) > _CANDIDATES:
            likely = likely[np.argsort(-above[likely], kind="stable")[:_CANDIDATES]]
        counted, new = np.concatenate([counted, candidates[likely]]), len(likely)
    if len(counted) == len(known):
        none = np.empty(0, np.int64)
        return FrequentHashes(counts, none.view(np.uint64), none, none, rest)
    fresh, fresh_counts = counted[len(known) :], counts[len(known) :]
    order = np.lexsort((fresh, -fresh_counts))
    listed = min(int(np.count_nonzero(fresh_counts >= least)), most)
    if listed < len(order):
        rest = max(rest, int(fresh_counts[order[listed]]))
    order = order[:listed]
    places = positions[len(known) :][order]
    return FrequentHashes(counts[: len(known)], fresh[order], fresh_counts[order], places, rest)


@njit(cache=True, nogil=True)
def _pass(
    hashes: U64,
    known: U64,
    counts: Ints,
    positions: Ints,
    candidates: U64,
    above: np.typing.NDArray[np.int32],
) -> int:
    """Pass over ``hashes``: write the count and last position of each ``known`` hash, and each
    slot's candidate with an upper bound (``above``) of its count; return other hashes' bound."""
    table = np.empty(_PLACES, np.uint64)
    owner = np.full(_PLACES, -1, np.int32)
    last = np.uint64(_PLACES - 1)
    for k in range(len(known)):
        place = (known[k] >> np.uint64(32)) & last
        while owner[place] >= 0:
            place = (place + np.uint64(1)) & last
        table[place] = known[k]
        owner[place] = k
    votes = np.zeros(len(above), np.int32)
    sizes = np.zeros(len(above), np.int32)
    candidates[:] = 0
    low = np.uint64(len(above) - 1)
    for i in range(len(hashes)):
        wanted = hashes[i]
        if len(known) > 0:
            place = (wanted >> np.uint64(32)) & last
            while owner[place] >= 0 and table[place] != wanted:
                place = (place + np.uint64(1)) & last
            if owner[place] >= 0:
                counts[owner[place]] += 1
                positions[owner[place]] = i
                continue
        slot = wanted & low
        # Without branches, which the processor mispredicts if all hashes differ.
        vote, held = votes[slot], candidates[slot]
        sizes[slot] += 1
        candidates[slot] = wanted if vote == 0 else held
        votes[slot] = vote + 1 if vote == 0 or held == wanted else vote - 1
    greatest = 0
    for slot in range(len(above)):
        above[slot] = (sizes[slot] + votes[slot]) // 2
        greatest = max(greatest, above[slot])
    return greatest


def warm() -> None:
    """Compile the kernel that counts frequent hashes, or load it from Numba's cache."""
    for known in (np.empty(1, np.uint64), np.frombuffer(bytes(8), np.uint64)):
        frequent(np.zeros(1, np.uint64), known, 1, 1)
