"""Groups of choices: the alternatives of predicates by which the queries of one probe tree differ.

For each label, a row's set of predicates is translated into the set of choices that it satisfies.
Within a group there are few different sets of choices, however many queries and sets of predicates
there are. These sets are numbered, so the test of a row costs two loads and an intersection of few
words. A translation is kept as long as a tag program uses it, and new sets are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np

from anabranch_contract.queries.joins import Label
from anabranch_runtime.columns.arrays import I32, U64, Ints
from anabranch_runtime.index.choosing import rehash, translate
from anabranch_runtime.index.predicate_sets import ALL, PIECE, PredicateSets, longer

_FIRST = 64


@dataclass(frozen=True, slots=True)
class TranslatedView:
    """Translation of predicate sets into choices, at one moment; later sets do not change it.

    Attributes:
        numbers: per set, its row of ``bits``. ``bits``: shape (different sets of choices, words).
    """

    numbers: I32
    bits: U64

    @property
    def addresses(self) -> tuple[int, int]:
        """The memory addresses of ``numbers`` and ``bits``, for kernels that test tags."""
        return self.numbers.ctypes.data, self.bits.ctypes.data


class TranslatedSets:
    """For each predicate set, the choices whose predicate on one label is in the set.

    Args:
        sets: the sets of predicates.
        predicates: per choice, its predicate of the label, or -1.
    """

    def __init__(self, sets: PredicateSets, predicates: I32) -> None:
        self._sets, self._lock = sets, Lock()
        words = (len(predicates) + 63) // 64
        self._choices: I32 = np.flatnonzero(predicates >= 0).astype(np.int32)
        self._wanted: I32 = predicates[self._choices]
        self._every = bits_of(np.arange(len(predicates)), words)
        self._free = bits_of(np.flatnonzero(predicates < 0), words)
        self._known, self._count = 0, 0
        self._numbers: I32 = np.zeros(_FIRST, np.int32)
        self._bits: U64 = np.zeros((_FIRST, words), np.uint64)
        self._slots: I32 = np.full(2 * _FIRST, -1, np.int32)

    @property
    def view(self) -> TranslatedView:
        """The translation of all predicate sets that there are at present."""
        with self._lock:
            wanted = len(self._sets)
            # A new array is made, since kernels may be reading the old one.
            if wanted > len(self._numbers):
                self._numbers = longer(self._numbers, 2 * wanted)
            while self._known < wanted:
                # In pieces with fixed ends, whose lists by member other translations share.
                self._translate(min((self._known // PIECE + 1) * PIECE, wanted))
            return TranslatedView(self._numbers, self._bits)

    def _translate(self, end: int) -> None:
        first = self._known
        rows = np.tile(self._free, (end - first, 1))
        if first == ALL:
            rows[ALL] = self._every
        needed = self._count + len(rows)
        if needed > len(self._bits):
            self._bits = longer(self._bits, 2 * needed)
            self._slots = np.full(1 << (4 * needed).bit_length(), -1, np.int32)
            rehash(self._bits, self._count, self._slots)
        ends, holders = self._sets.by_member(first, end)
        self._count = translate(
            ends,
            holders,
            self._wanted,
            self._choices,
            rows,
            self._numbers[first:end],
            self._bits,
            self._slots,
            self._count,
        )
        self._known = end


@dataclass(frozen=True, slots=True)
class ChoiceGroup:
    """The choices of all queries of one probe tree.

    Attributes:
        labels: the labels with predicates.
        predicates: shape (choices, labels): predicate of the label, or -1; sorted.
        translated: per label, the choices that rows' sets satisfy.
    """

    labels: tuple[Label, ...]
    predicates: I32
    translated: tuple[TranslatedSets, ...]


@dataclass(frozen=True, slots=True)
class Choices:
    """Alternatives of predicates: a tuple passes if it satisfies all predicates of one alternative.

    Attributes:
        group: the choices of all queries of the probe tree. ``chosen``: these choices' numbers in
            the group, ascending; ``mask``: their bits.
        labels: the tested labels, which have predicates.
    """

    group: ChoiceGroup
    chosen: Ints
    mask: U64
    labels: tuple[Label, ...]

    @property
    def predicates(self) -> I32:
        """Return the distinct predicates of ``labels``, by choice: shape (alternatives, labels)."""
        rows: I32 = self.group.predicates[self.chosen]
        if self.labels == self.group.labels:
            # The choices of a probe tree have different predicates.
            return rows
        columns = [self.group.labels.index(label) for label in self.labels]
        distinct = sorted(set(map(tuple, rows[:, columns].tolist())))
        return np.array(distinct, np.int32).reshape(-1, len(columns))

    def views(self, labels: Sequence[Label]) -> list[TranslatedView]:
        """Return the present translations of the predicate sets of these labels."""
        return [self.group.translated[self.group.labels.index(label)].view for label in labels]


def addresses_of(views: Sequence[TranslatedView]) -> Ints:
    """Return the views as the kernels' table of labels; valid while the views live."""
    return np.array([view.addresses for view in views], np.int64).reshape(-1, 2)


def bits_of(numbers: Ints, words: int) -> U64:
    """Return bits of choices as ``words`` words, in which the bits ``numbers`` are set."""
    found = np.zeros(64 * words, np.bool_)
    found[numbers] = True
    packed: U64 = np.packbits(found, bitorder="little").view(np.uint64)
    return packed
