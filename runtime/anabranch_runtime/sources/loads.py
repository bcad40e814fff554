"""Loads: the parts of a feed's input that move its stream's watermark as a whole.

A watermark that followed every batch would make rows late by accident: batches are cut by size, and
the files of a folder, the keys of a Redis Stream or the partitions of a topic are not in the order
of event times. So input is divided into *loads*. Within a load nothing is late because of other
rows of it; the greatest event time counts for the watermark when the whole load has been read.

* The first load is the backlog: all that is there when reading begins. A feed fixes its end once
  nothing more appears for a moment (``Feed.load_end``).
* Of a table and other streams without event times there are no later ones.
* Later loads begin where the one before ended, and have all that was found meanwhile, so a feed
  that has fallen behind has few large loads and one that keeps up many small ones.

A load ends with a batch: planning never lets a batch cross its end. Each feed's load is part of the
offset of all feeds, under :data:`LOADS`; so a repeated batch begins and ends the same loads. A load
whose end is only known after everything was read ends with a batch of its own, without rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from anabranch_runtime.recovery.checkpoint import source_offsets
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.unread import FeedState

#: Seconds without new files after which a load of files has all of them, and seconds after which
#: files that keep appearing belong to the next one: of a backlog, which may be copied slowly, and
#: of others.
QUIET_FIRST, LONGEST_FIRST = 1.0, 60.0
QUIET, LONGEST = 0.25, 5.0
#: Factor by which that is longer at least than the longest pause between files of the load: a
#: writer on a busy machine pauses again and again.
PAUSES = 4.0
#: Bytes per second by which files are written at least: a large one may be waited for longer.
WRITING = 50e6
#: Seconds after which a load of a source of Spark's ends that always has more to give, or fails.
LONGEST_READING = 3600.0
#: Key of an offset's entry that is no feed: id of a feed -> its load, as JSON.
LOADS = "="


@dataclass(frozen=True, slots=True)
class Load:
    """The load that the newest input of a feed belongs to.

    Attributes:
        stream: the feed's.
        number: how many loads came before it.
        is_open: whether more of it is to be read; else all that was read belongs to ended loads.
        end: the feed's offset at which it ends; None while that is not known.
        began: seconds since 1970 when it was first seen.
        version: of the table that the feed reads.
    """

    stream: str
    number: int = 0
    is_open: bool = False
    end: Any = None
    began: float = 0.0
    version: int = 1

    @property
    def is_first(self) -> bool:
        """Whether it is the backlog: no load of the feed has ended."""
        return self.number == 0 and (self.is_open or self.began == 0.0)

    def quiet(self, pause: float) -> float:
        """Seconds without new files after which it has all of them.

        Args:
            pause: seconds, the longest so far between two of its files.
        """
        quiet = QUIET_FIRST if self.is_first else QUIET
        return min(max(quiet, PAUSES * pause), self.longest)

    @property
    def longest(self) -> float:
        """Seconds after its begin when files that still appear belong to the next load."""
        return LONGEST_FIRST if self.is_first else LONGEST

    def opened(self, now: float) -> Load:
        """The load of input that is planned ``now``: this one while it is open, else the next."""
        if self.is_open:
            return self
        number = 0 if self.is_first else self.number + 1
        return replace(self, number=number, is_open=True, end=None, began=now)

    def ended(self) -> Load:
        """This load once all of it has been read."""
        return replace(self, is_open=False, end=None)


def longest_pause(times: Iterable[float]) -> float:
    """Longest pause between two of ``times``, in seconds; 0 without two."""
    return max((after - before for before, after in pairwise(sorted(times))), default=0.0)


def loads_of(offset: Mapping[str, Any]) -> dict[str, Load]:
    """Feed -> its load, in an offset of all feeds."""
    return {feed: Load(**fields) for feed, fields in offset.get(LOADS, {}).items()}


def with_loads(offset: dict[str, Any], loads: Mapping[str, Load]) -> dict[str, Any]:
    """``offset`` with these loads."""
    if not loads:
        return offset
    return {**offset, LOADS: {feed: asdict(load) for feed, load in loads.items()}}


def end_loads(state: State, upto: str | None) -> State:
    """``state`` as a batch up to ``upto`` finds it: open loads to which its input does not belong
    have ended.

    Raises:
        StateError: a text of Spark's offsets that can't be read.
    """
    first, last = loads_upto(state.offsets), loads_upto(upto)
    held = _held(state.feeds)
    ended = {
        load.stream
        for feed, load in first.items()
        if load.is_open and feed in last and last[feed].number > load.number
    }
    return state.with_loads_read(state.streams.keys() - (ended - held))


def open_loads(upto: str | None, feeds: Mapping[str, FeedState]) -> frozenset[str]:
    """Streams whose load goes on after a batch up to ``upto``, which left ``feeds`` so.

    Raises:
        StateError: a text of Spark's offsets that can't be read.
    """
    return _held(feeds) | {load.stream for load in loads_upto(upto).values() if load.is_open}


def _held(feeds: Mapping[str, FeedState]) -> frozenset[str]:
    return frozenset(feed.stream for feed in feeds.values() if feed.held is not None)


def loads_upto(text: str | None) -> dict[str, Load]:
    """Feed -> its load, in Spark's text of offsets.

    Raises:
        StateError: the text can't be read.
    """
    return loads_of(source_offsets(text).get("feeds", {}))
