"""Choice of the stores that a probe reads for each batch of the past. Pure functions.

A plan may create a store while older stores have earlier rows of the same relation or materialized
join (MIR); these are its *generations*. A store's *intervals* are the batches whose rows it has
completely (except expired rows). A probe over batches ``[low, now]`` is *tiled*: for every batch it
reads one store: the preferred one if that covers the batch, otherwise an older generation. Batches
of an MIR that no generation covers are *gaps*. There the join's inputs are probed one by one, and
only combinations whose last-arriving member is in a gap are kept (``semantics.md``, coverage rule).

``semantics.md`` speaks of epochs, this module of batches: every batch belongs to one epoch, so a
combination belongs to an epoch if its last member arrived in one of the epoch's batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anabranch_runtime.storage.segment import OFFSET_BITS

#: First and last batch, both included.
Interval = tuple[int, int]
#: Last batch of a growing interval: the greatest batch whose arrival numbers fit 63 bits.
OPEN = (1 << 63 - OFFSET_BITS) - 2


@dataclass(frozen=True, slots=True)
class Tile:
    """A store and the interval of batches for which a probe reads it."""

    store: str
    interval: Interval


def subtract(interval: Interval, holes: Iterable[Interval]) -> list[Interval]:
    """Return the parts of an interval of batches outside ``holes``.

    >>> subtract((0, 9), [(2, 3), (8, 20)])
    [(0, 1), (4, 7)]
    """
    remaining = [interval]
    for low, high in holes:
        cut: list[Interval] = []
        for first, last in remaining:
            if high < first or last < low:
                cut.append((first, last))
                continue
            if first < low:
                cut.append((first, low - 1))
            if high < last:
                cut.append((high + 1, last))
        remaining = cut
    return remaining


def tile(
    wanted: Iterable[Interval], stores: Sequence[tuple[str, Sequence[Interval]]]
) -> tuple[list[Tile], list[Interval]]:
    """Cover ``wanted`` with intervals of ``stores``, the preferred store first.

    Returns the tiles and the uncovered intervals.

    >>> tile([(0, 9)], [("new", [(6, 9)]), ("old", [(2, 7)])])
    ([Tile(store='new', interval=(6, 9)), Tile(store='old', interval=(2, 5))], [(0, 1)])
    """
    remaining = list(wanted)
    tiles: list[Tile] = []
    for store, intervals in stores:
        for low, high in intervals:
            left: list[Interval] = []
            for first, last in remaining:
                if high < first or last < low:
                    left.append((first, last))
                    continue
                tiles.append(Tile(store, (max(first, low), min(last, high))))
                left.extend(subtract((first, last), [(low, high)]))
            remaining = left
    return tiles, remaining


def covered_since(now: int, stores: Iterable[Sequence[Interval]]) -> int:
    """Return the first batch from which stores cover all batches up to ``now - 1``; else ``now``.

    >>> covered_since(10, [[(0, 3), (5, 7)], [(8, 9)]])
    5
    """
    spans = sorted((s for intervals in stores for s in intervals), reverse=True)
    low = now
    grown = True
    while grown:
        grown = False
        for first, last in spans:
            if first < low <= last + 1:
                low, grown = first, True
    return low


@dataclass(frozen=True, slots=True)
class Access:
    """The stores and batches that one probe rule reads in this batch.

    Attributes:
        tiles: stores with their batches (the current batch included; :data:`OPEN` if it is the
            last one).
        gaps: batches that no store of a materialized join covers; empty for a base relation.
        fill: for the gaps, per input of the join (probed instead), its tiles up to the last gap.
    """

    tiles: tuple[Tile, ...]
    gaps: tuple[Interval, ...] = ()
    fill: tuple[tuple[Tile, ...], ...] = ()
