"""Compaction's work: some segments of one store partition written anew as one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch_planner.ruleset import StoreId
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.state.segment import PackWriter, read_segment
from anabranch_runtime.state.stores import merge

if TYPE_CHECKING:
    from anabranch_runtime.state.layout import Layout
    from anabranch_runtime.state.segment import Merge, Segment


@dataclass(frozen=True, slots=True)
class Compaction:
    """One merge, for whoever does it.

    Attributes:
        root: the state directory. ``pack``: the file to write, below it.
        layout: the epoch's, which says what indexes the segment gets.
    """

    root: str
    pack: str
    merge: Merge
    layout: Layout


def compact(work: Compaction) -> Segment:
    """Do it; the result holds the rows of its parts and may take their place.

    Raises:
        StateError: a part is damaged, or no longer there.
    """
    reach(Point.MERGING)
    parts = work.merge.segments
    readers = [read_segment(work.root, s) for s in parts]
    for reader in readers:
        reader.verify()
    with PackWriter(Path(work.root), work.pack) as writer:
        merge(writer, work.layout, work.layout.specs[StoreId(parts[0].store)], readers)
    reach(Point.MERGED)
    return writer.segments[0]
