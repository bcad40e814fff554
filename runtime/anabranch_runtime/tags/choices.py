"""Groups of choices: the alternatives of predicates by which the queries of one probe tree differ.

For each label, a row's set of predicates is translated into the set of choices that it satisfies.
Within a group there are few different sets of choices, however many queries and sets of predicates
there are. These sets are numbered, so the test of a row costs two loads and an intersection of few
words. A translation is kept as long as a tag program uses it. New sets are added at once, as their
rows are probed soon; sets that are older than the translation are added when they are needed, since
most stored rows of a new group's streams are never met by its probes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np

from anabranch_contract.queries.joins import Label
from anabranch_runtime.columns.arrays import I32, U64, Ints
from anabranch_runtime.index.choosing import (
    WIDTH,
    PairTest,
    add_by_member,
    add_by_set,
    number_rows,
    rehash,
)
from anabranch_runtime.index.predicate_sets import ALL, PredicateSets, longer

_FIRST = 64
#: Number of sets that are translated together.
PIECE = 1 << 12
#: Greatest number of sets, numbered since a translation was last used, that are added at once.
MOST_NEW = 2 * PIECE


@dataclass(frozen=True, slots=True)
class TranslatedView:
    """Translation of predicate sets into choices, at one moment; later sets do not change it.

    Attributes:
        numbers: per set, the number of its row of ``bits``, from 1. Sets that are translated later
            have 0 or a number above ``count``.
        bits: shape (different sets of choices, words). ``count``: number of rows.
    """

    numbers: I32
    bits: U64
    count: int

    @property
    def row(self) -> tuple[int, int, int]:
        """The view as a row of the kernels' table of translations."""
        return self.numbers.ctypes.data, self.bits.ctypes.data, self.count


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
        self._free = bits_of(np.flatnonzero(predicates < 0), words)
        #: Number of sets seen so far, and of distinct rows of bits.
        self._seen, self._count = 1, 0
        #: Whether all sets seen so far are translated.
        self._complete = True
        self._bits: U64 = np.zeros((_FIRST, words), np.uint64)
        self._slots: I32 = np.full(2 * _FIRST, -1, np.int32)
        # Pages of zeros take memory once a set is translated, and few old sets ever are.
        self._numbers: I32 = np.zeros(_FIRST, np.int32)
        all_choices = bits_of(np.arange(len(predicates)), words)
        self._number(all_choices[None], np.array([ALL]))

    def view(self, sets: I32 | None = None) -> TranslatedView:
        """Return the present translation, with these sets (if given) and with new sets. Without
        ``sets``, older sets may lack a translation."""
        with self._lock:
            self._add_new()
            if sets is not None and not self._complete:
                self._add(np.unique(sets[self._numbers[sets] == 0]).astype(np.int64))
            return TranslatedView(self._numbers, self._bits, self._count)

    def _add_new(self) -> None:
        """Add the sets numbered since the last call, unless these are many."""
        wanted = len(self._sets)
        if wanted > len(self._numbers):
            # A new array is made, since kernels may be reading the old one.
            numbers = np.zeros(2 * wanted, np.int32)
            for begin in range(0, len(self._numbers), PIECE):
                piece = self._numbers[begin : begin + PIECE]
                if piece.any():
                    numbers[begin : begin + len(piece)] = piece
            self._numbers = numbers
        if wanted - self._seen > MOST_NEW:
            self._seen, self._complete = wanted, False
        while self._seen < wanted:
            # In pieces with fixed ends, whose lists by member other translations share.
            first, end = self._seen, min((self._seen // PIECE + 1) * PIECE, wanted)
            rows = np.tile(self._free, (end - first, 1))
            add_by_member(*self._sets.by_member(first, end), self._wanted, self._choices, rows)
            self._number(rows, np.arange(first, end))
            self._seen = end

    def _add(self, sets: Ints) -> None:
        """Add sets that have no translation."""
        known = self._sets.view
        for begin in range(0, len(sets), PIECE):
            piece = sets[begin : begin + PIECE]
            rows = np.tile(self._free, (len(piece), 1))
            add_by_set(known.places, known.data, piece, self._wanted, self._choices, rows)
            self._number(rows, piece)

    def _number(self, rows: U64, sets: Ints) -> None:
        """Set the numbers of the rows of bits of ``sets``."""
        needed = self._count + len(rows)
        if needed > len(self._bits):
            self._bits = longer(self._bits, 2 * needed)
            self._slots = np.full(1 << (4 * needed).bit_length(), -1, np.int32)
            rehash(self._bits, self._count, self._slots)
        self._count = number_rows(rows, sets, self._numbers, self._bits, self._slots, self._count)


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

    def translated(self, labels: Sequence[Label]) -> list[TranslatedSets]:
        """Return the translations of the predicate sets of these labels."""
        return [self.group.translated[self.group.labels.index(label)] for label in labels]


def table_of(views: Sequence[TranslatedView]) -> Ints:
    """Return the kernels' table of translations; valid while the views live."""
    return np.array([view.row for view in views], np.int64).reshape(-1, WIDTH)


def pair_test(
    held: tuple[Ints, I32, U64], width: int, columns: Ints, translated: Sequence[TranslatedSets]
) -> PairTest:
    """Return a test of pairs, whose first attributes are given; ``translated``: the translation of
    each label of the stored row."""

    def made(views: Sequence[TranslatedView]) -> PairTest:
        def completed(lacking: Ints) -> PairTest:
            label, sets = lacking.T
            return made(
                [one.view(sets[label == j].astype(np.int32)) for j, one in enumerate(translated)]
            )

        return PairTest(*held, width, columns, table_of(views), completed, views)

    return made([one.view() for one in translated])


def bits_of(numbers: Ints, words: int) -> U64:
    """Return bits of choices as ``words`` words, in which the bits ``numbers`` are set."""
    found = np.zeros(64 * words, np.bool_)
    found[numbers] = True
    packed: U64 = np.packbits(found, bitorder="little").view(np.uint64)
    return packed
