"""Planned sources: the driver fixes the offsets of a batch's input, tasks read the input.

A planned source chooses the end offset of the next batch's input. The driver records the offsets in
its journal before the batch starts, so a repeated batch has the same input. The driver derives a
batch's pieces from the offsets before and after it (``batch_input``), and each task reads its share
of the pieces (``blocks.read_pieces``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from anabranch_contract.protocol.intake import StreamIntake
from anabranch_runtime.sources.awaited import Mark
from anabranch_runtime.sources.feed import Feed, Piece
from anabranch_runtime.state.offsets import Offsets

#: Key in the offset of all feeds: its value maps a held feed's id to its number of trials.
TRIALS = "~"


@dataclass(slots=True)
class InputControl:
    """Values that driver and sources exchange about the next batch's input.

    Attributes:
        limit: maximum number of rows of feeds; None: no limit.
        pace: maximum rows of snapshots in a batch while there are live streams; None: no limit.
        paced: number of rows of snapshots in the last planned batch, set by the sources.
        held: feed with temporarily unreadable input -> number of failed attempts, and the offset up
            to which it has been read.
        owed: number of the next batch while withheld results are to be computed; else None.
        definitions: stream of the running epoch -> its definition (``awaited``).
        streams: stream -> progress of its input, set by the sources.
        planned: Unix time at which the last batch with rows of feeds was planned; 0: never.
    """

    limit: int | None = None
    pace: int | None = None
    paced: int = 0
    held: Mapping[str, tuple[int, Any]] = field(default_factory=dict)
    owed: int | None = None
    definitions: Mapping[str, Mark] = field(default_factory=dict)
    streams: Mapping[str, StreamIntake] = field(default_factory=dict)
    planned: float = 0.0

    @property
    def reads_snapshot(self) -> bool:
        """Whether any stream reads a snapshot."""
        return any(stream.snapshot is not None for stream in self.streams.values())


class PlannedSource(Protocol):
    """A source with exact offsets, which are JSON objects."""

    def plan(self, start: dict[str, Any]) -> dict[str, Any]:
        """Return the end offset of a batch's input that begins at ``start``; equal to ``start`` if
        there is no input. ``start`` is not changed."""

    @property
    def waking(self) -> frozenset[str]:
        """Keys of the pipeline's Redis whose change may mean that input has arrived."""

    def feeds_of(self, offset: dict[str, Any]) -> Mapping[str, Feed]:
        """Return the feeds in ``offset`` by id, including feeds of earlier table versions."""

    def shares(self, start: dict[str, Any], end: dict[str, Any]) -> list[list[Piece]]:
        """Return the input between two offsets that belongs to no feed, as one share per task.

        Every call returns the same shares, except that a removed stream has no pieces, since no
        query reads it any more.

        Raises:
            SourceError: some of the input no longer exists.
        """


def next_offsets(sources: Mapping[str, PlannedSource], before: Offsets | None) -> Offsets | None:
    """Return the end of the next batch's input; None if no source has any.

    The offset of a source that is no longer read stays the same.

    Args:
        before: end of the last batch's input; None before the first batch.
    """
    start = {} if before is None else before.sources
    planned = time.time_ns() // 1000
    found = {}
    for name, source in sources.items():
        first = start.get(name, {})
        last = source.plan(first)
        if last != first:
            # Converted as the journal converts it: tuples become lists, for example.
            found[name] = json.loads(json.dumps(last))
    return Offsets(planned, {**start, **found}) if found else None
