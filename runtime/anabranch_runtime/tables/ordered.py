"""Ordered multisets of tuples, one per slot, with net weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch_contract.queries.views import RankFunction
from anabranch_runtime.columns.arrays import I32, Bools, Ints
from anabranch_runtime.tables import trees
from anabranch_runtime.tables.kernels import NONE
from anabranch_runtime.tables.words import TupleLayout, grown

_FEW = 64
_RANKINGS = {
    RankFunction.ROW_NUMBER: trees.ROW_NUMBER,
    RankFunction.RANK: trees.RANK,
    RankFunction.DENSE_RANK: trees.DENSE_RANK,
}
_NOTHING = np.empty(0, np.int64)


class FirstNodes(NamedTuple):
    """The first nodes of several multisets, in order; arrays have one element per listed node.

    Attributes:
        nodes: node numbers. ``places``: place (row number or rank) of a node's first tuple.
        times: number of a node's tuples. ``ends``: per slot, end of its nodes in the arrays.
    """

    nodes: Ints
    places: Ints
    times: Ints
    ends: Ints

    @property
    def totals(self) -> Ints:
        """Return, by multiset, the number of listed tuples."""
        sums = np.concatenate([[0], np.cumsum(self.times)])
        return np.diff(sums[self.ends], prepend=0)


class Ordered:
    """Multisets of tuples in ``layout``: one per slot (group), in the order of the tuples' words.

    Attributes:
        words: tuple of each node.
        sizes: per node, its net weight, and the sum of the positive net weights in its subtree.
    """

    __slots__ = ("_counts", "_free", "_links", "layout", "roots", "sizes", "words")

    def __init__(self, layout: TupleLayout) -> None:
        self.layout = layout
        self.roots: I32 = np.full(_FEW, NONE, np.int32)
        self.words: Ints = np.empty((_FEW, layout.width), np.int64)
        self.sizes: Ints = np.empty((_FEW, 2), np.int64)
        self._links: I32 = np.empty((_FEW, 2), np.int32)
        self._free: Ints = np.empty(_FEW, np.int64)
        #: Highest node used so far plus 1; number of free nodes; number of nodes in trees.
        self._counts: Ints = np.zeros(3, np.int64)

    def __len__(self) -> int:
        return int(self._counts[2])

    def make_room(self, slots: int) -> None:
        """Make room for the multisets of slots below ``slots``."""
        if len(self.roots) < slots:
            roots = np.full(max(slots, 2 * len(self.roots)), NONE, np.int32)
            roots[: len(self.roots)] = self.roots
            self.roots = roots

    def add(
        self,
        slots: Ints,
        tuples: Ints,
        weights: Ints,
        *,
        crossings: bool = False,
        changes: bool = False,
    ) -> Ints:
        """Add weighted tuples to their slots' multisets; negative slots are skipped.

        Returns:
            With ``crossings``, per tuple: 1 if its net weight becomes positive, -1 if it ceases to
                be, else 0. With ``changes``, per tuple: the change of its net weight, where
                negative net weights count as 0. Otherwise an empty array.
        """
        changed = np.empty(len(slots), np.int64) if crossings or changes else _NOTHING
        pool = self.layout.pool
        done = 0
        while True:
            done = trees.add(
                self.roots,
                slots,
                tuples,
                weights,
                done,
                self.words,
                self._links,
                self.sizes,
                self._free,
                self._counts,
                self.layout.texts,
                pool.data,
                pool.ends,
                changed,
                crossings,
            )
            if done == len(slots):
                return changed
            room = 2 * len(self.words)
            self.words = grown(self.words, room)
            self.sizes = grown(self.sizes, room)
            self._links = grown(self._links, room)
            self._free = grown(self._free, room)

    def clear(self, slots: Ints) -> None:
        """Remove all tuples from the multisets of ``slots``."""
        trees.clear(self.roots, slots, self._links, self._free, self._counts)

    def totals(self, slots: Ints) -> Ints:
        """Return the number of tuples per slot's multiset; net weights below 0 count as 0."""
        out = np.empty(len(slots), np.int64)
        trees.totals(self.roots, slots, self.sizes, out)
        return out

    def empty(self, slots: Ints) -> Bools:
        """Return the mask of slots whose multisets have no tuple of any net weight."""
        found: Bools = self.roots[slots] < 0
        return found

    def at(self, slots: Ints, ranks: Ints) -> Ints:
        """Return each multiset's node at a rank, from 0 (negative: from the end); -1: none."""
        out = np.empty(len(slots), np.int64)
        trees.at_ranks(self.roots, slots, ranks, self._links, self.sizes, out)
        return out

    def ranks(self, slots: Ints, values: Ints, *, inclusive: bool) -> Ints:
        """Return, per slot, the number of tuples (net weights below 0 count as 0) whose first word
        is less than the slot's value in ``values``, or, if ``inclusive``, equal to it."""
        out = np.empty(len(slots), np.int64)
        trees.ranks(self.roots, slots, values, inclusive, self._links, self.sizes, self.words, out)
        return out

    def walk(
        self,
        slots: Ints,
        most: int | None = None,
        ranking: RankFunction = RankFunction.ROW_NUMBER,
        sorts: int = 0,
        *,
        everything: bool = False,
    ) -> FirstNodes:
        """Return the nodes of each slot's multiset with a place by ``ranking`` up to ``most``.

        Args:
            sorts: number of first words that are sort keys.
            everything: whether to include net weights below 1.
        """
        pool = self.layout.pool
        return FirstNodes(
            *trees.walk(
                self.roots,
                slots,
                self._links,
                self.sizes,
                self.words,
                sorts,
                self.layout.texts,
                pool.data,
                pool.ends,
                -1 if most is None else most,
                _RANKINGS[ranking],
                everything,
            )
        )

    def between(
        self, slots: Ints, lows: Ints, highs: Ints, low_word: int = 0, high_word: int = 0
    ) -> tuple[Ints, Ints]:
        """Return, in order, the nodes of each slot whose word ``low_word`` is at least the slot's
        low and whose ``high_word`` is at most its high; and each node's position in ``slots``."""
        nodes, ends = trees.between(
            self.roots, slots, lows, highs, low_word, high_word, self._links, self.words
        )
        return nodes, np.repeat(np.arange(len(slots)), np.diff(ends, prepend=0))

    def cut(self, slots: Ints, most: Ints) -> None:
        """Remove the last tuples of each slot's multiset, so that at most ``most`` remain."""
        trees.cut(self.roots, slots, most, self._links, self.sizes, self._free, self._counts)

    def among_first(
        self, slots: Ints, index: Ints, tuples: Ints, weights: Ints, most: int
    ) -> Bools:
        """Return the mask of ``tuples`` that may be among the first ``most`` in the order of their
        slot (group), once all ``tuples`` have been added to the table.

        Args:
            slots: distinct slots. ``index``: position of each tuple's slot in ``slots``.
            tuples: all words of the tuples, or the first words only.
            weights: weights of the tuples; none is negative.
        """
        out = np.empty(len(index), np.bool_)
        pool = self.layout.pool
        trees.among_first(
            self.roots,
            slots,
            index,
            tuples,
            weights,
            most,
            self.words,
            self._links,
            self.sizes,
            self.layout.texts,
            pool.data,
            pool.ends,
            out,
        )
        return out

    def mark_texts(self, used: Bools) -> None:
        """Set ``used`` to True at the numbers of all texts that some tuple has."""
        nodes, free = self._counts[:2]
        live = np.ones(nodes, np.bool_)
        live[self._free[:free]] = False
        for at in np.flatnonzero(self.layout.texts):
            used[self.words[:nodes, at][live]] = True

    @property
    def bytes(self) -> int:
        """Return the bytes of the multisets in memory."""
        arrays = (self.roots, self.words, self.sizes, self._links, self._free)
        return sum(a.nbytes for a in arrays)


def least_tuples(tuples: Ints, texts: Ints, most: int) -> Ints:
    """Return the positions of the ``most`` least ``tuples``, and possibly of further tuples.

    Args:
        texts: as of ``TupleLayout``; words after the first text are not compared.
    """
    least, rest = list[Ints](), np.arange(len(tuples))
    for at in range(tuples.shape[1]):
        if len(rest) <= most or texts[at]:
            break
        words = tuples[rest, at]
        last = np.partition(words, most - 1)[most - 1] if most else words.min()
        least.append(rest[words < last])
        rest, most = rest[words == last], most - len(least[-1])
    return np.concatenate([*least, rest])
