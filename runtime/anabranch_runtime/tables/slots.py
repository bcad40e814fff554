"""Numbers (slots) of distinct tuples; slots of removed tuples are used again."""

from __future__ import annotations

import numpy as np

from anabranch_runtime.columns.arrays import I32, U64, Bools, Ints
from anabranch_runtime.tables import kernels
from anabranch_runtime.tables.words import grown

_FEW = 64


class Slots:
    """Distinct tuples of ``width`` words, by slot.

    Attributes:
        words: the tuple of each slot.
        alive: mask of slots in use.
        room: number of slots for which arrays by slot must have space.
    """

    __slots__ = ("_counts", "_free", "_hashes", "_marks", "_table", "alive", "words")

    def __init__(self, width: int) -> None:
        self.words: Ints = np.empty((_FEW, width), np.int64)
        self.alive: Bools = np.zeros(_FEW, np.bool_)
        self._hashes: U64 = np.empty(_FEW, np.uint64)
        self._marks: I32 = np.full(_FEW, -1, np.int32)
        self._table: I32 = np.full(2 * _FEW, kernels.NONE, np.int32)
        self._free: Ints = np.empty(_FEW, np.int64)
        #: Highest slot used so far plus 1; number of free slots; scratch.
        self._counts: Ints = np.zeros(3, np.int64)

    @property
    def room(self) -> int:
        """Number of slots for which arrays by slot must have space."""
        return len(self.alive)

    def __len__(self) -> int:
        return int(self._counts[0] - self._counts[1])

    def find(self, tuples: Ints) -> tuple[Ints, Ints]:
        """Return the slot of each tuple, and the slots that are new."""
        slots = np.empty(len(tuples), np.int64)
        fresh = np.empty(len(tuples), np.int64)
        self._counts[2] = 0
        done = 0
        while True:
            done = kernels.number(
                tuples,
                done,
                slots,
                self._table,
                self._hashes,
                self.words,
                self._free,
                self._counts,
                fresh,
            )
            if done == len(slots):
                break
            self._grow()
        fresh = fresh[: self._counts[2]]
        self.alive[fresh] = True
        return slots, fresh

    def distinct(self, slots: Ints) -> tuple[Ints, Ints]:
        """Return the distinct ``slots``, and the position of each of ``slots`` among these."""
        index = np.empty(len(slots), np.int64)
        touched = np.empty(len(slots), np.int64)
        count = kernels.compact(slots, self._marks, index, touched)
        return touched[:count].copy(), index

    def drop(self, slots: Ints) -> None:
        """Remove the tuples in ``slots``, which are distinct."""
        kernels.forget_slots(slots, self._table, self._hashes, self._free, self._counts)
        self.alive[slots] = False

    def all(self) -> Ints:
        """Return the slots in use."""
        return np.flatnonzero(self.alive)

    @property
    def bytes(self) -> int:
        """Return the bytes of the slots in memory."""
        arrays = (self.words, self.alive, self._hashes, self._marks, self._table, self._free)
        return sum(a.nbytes for a in arrays)

    def _grow(self) -> None:
        room, used = 2 * self.room, int(self._counts[0])
        self.words = grown(self.words, room)
        self._hashes = grown(self._hashes, room)
        self._free = grown(self._free, room)
        alive = np.zeros(room, np.bool_)
        alive[: len(self.alive)] = self.alive
        self.alive = alive
        self._marks = np.full(room, -1, np.int32)
        self._table = np.full(2 * room, kernels.NONE, np.int32)
        # Room is needed only if all slots are in use.
        kernels.rehash_slots(self._table, self._hashes, used, np.zeros(used, np.bool_))
