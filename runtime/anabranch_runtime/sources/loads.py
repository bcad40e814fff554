"""Loads: parts of a feed's input. Each advances the stream's watermark once, when read completely.

A watermark that followed every batch would make rows late by accident. Batches are cut by size, and
the files of a folder, the keys of a Redis Stream or the partitions of a topic are not in the order
of event times. So input is divided into *loads*. No row is late because of other rows of its load:
the load's greatest event time affects the watermark only after the whole load has been read.

* The first load is the backlog: all input that exists when reading begins. A feed fixes its end
  once no more input has appeared for a while (``Feed.load_end``).
* Tables, and other streams without event times, have no further loads.
* A later load begins where the previous load ended, and contains all input found until then. So a
  feed that has fallen behind has few large loads, and a feed that keeps up has many small loads.

A load ends at the end of a batch: planning never lets a batch cross its end. The loads are part of
the offset of all feeds, under :data:`LOADS`, so a repeated batch begins and ends the same loads. If
a load's end becomes known only after all its rows were read, an extra batch without rows ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.offsets import Offsets
from anabranch_runtime.state.unread import FeedState

#: Seconds without new files after which a load of files is complete, and greatest duration of a
#: load, after which new files belong to the next: for a backlog, which may be copied slowly, and
#: for later loads.
QUIET_FIRST, LONGEST_FIRST = 1.0, 60.0
QUIET, LONGEST = 0.25, 5.0
#: The seconds without new files must be at least this multiple of the longest pause between files
#: of the load, since a writer on a busy machine pauses again and again.
PAUSES = 4.0
#: Assumed least speed of writing files, bytes per second: loads wait longer for large files.
WRITING = 50e6
#: Seconds after which a load from one of Spark's sources ends even if more input follows, or
#: reading fails; else it ends when the source has no more input.
LONGEST_READING = 3600.0
#: Key in the offset of all feeds for loads: their value maps a feed's id to its load, as JSON.
LOADS = "="


@dataclass(frozen=True, slots=True)
class Load:
    """The load to which the newest input of a feed belongs.

    Attributes:
        stream: the feed's stream.
        number: number of earlier loads of the feed.
        is_open: whether some of the load's input may be unread; if not, the load has ended.
        end: the feed's offset at which the load ends; None: not known yet.
        began: time at which the load began, seconds since 1970.
        version: version of the table that the feed reads.
    """

    stream: str
    number: int = 0
    is_open: bool = False
    end: Any = None
    began: float = 0.0
    version: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this load is the backlog (the feed's first load), and has not ended."""
        return self.number == 0 and (self.is_open or self.began == 0.0)

    def quiet(self, pause: float) -> float:
        """Return the seconds without new files after which the load is complete.

        Args:
            pause: longest pause so far between two files of the load, in seconds.
        """
        quiet = QUIET_FIRST if self.is_first else QUIET
        return min(max(quiet, PAUSES * pause), self.longest)

    @property
    def longest(self) -> float:
        """Greatest duration in seconds, after which files that appear belong to the next load."""
        return LONGEST_FIRST if self.is_first else LONGEST

    def opened(self, now: float) -> Load:
        """Return the load of input planned at ``now``: this load if it is open, else a new one."""
        if self.is_open:
            return self
        number = 0 if self.is_first else self.number + 1
        return replace(self, number=number, is_open=True, end=None, began=now)

    def ended(self) -> Load:
        """Return this load as one that has ended."""
        return replace(self, is_open=False, end=None)


def longest_pause(times: Iterable[float]) -> float:
    """Return the longest pause between successive ``times``, in seconds; 0 for a single time."""
    return max((after - before for before, after in pairwise(sorted(times))), default=0.0)


def loads_of(offset: Mapping[str, Any]) -> dict[str, Load]:
    """Return each feed's load in an offset of all feeds."""
    return {feed: Load(**fields) for feed, fields in offset.get(LOADS, {}).items()}


def with_loads(offset: dict[str, Any], loads: Mapping[str, Load]) -> dict[str, Any]:
    """Return the offset of all feeds with ``loads`` (feed id -> load) in it."""
    if not loads:
        return offset
    return {**offset, LOADS: {feed: asdict(load) for feed, load in loads.items()}}


def end_loads(state: State, upto: Offsets | None) -> State:
    """Return ``state`` as it is before the batch up to ``upto``: watermarks take into account the
    loads that end before the batch's input.

    If a stream that no ruleset names yet has a new feed, it was registered again, so its state is
    dropped.
    """
    first, last = loads_upto(state.offsets), loads_upto(upto)
    anew = {load.stream for feed, load in last.items() if load.version == 1 and feed not in first}
    state = replace(
        state,
        streams={
            name: stream
            for name, stream in state.streams.items()
            if stream.spec is not None or name not in anew
        },
    )
    held = _held(state.feeds)
    ended = {
        load.stream
        for feed, load in first.items()
        if load.is_open and feed in last and last[feed].number > load.number
    }
    return state.with_loads_read(state.streams.keys() - (ended - held))


def open_loads(upto: Offsets | None, feeds: Mapping[str, FeedState]) -> frozenset[str]:
    """Return the streams whose load continues after the batch up to ``upto``.

    Args:
        feeds: states of the feeds after the batch; the load of a held feed continues.
    """
    return _held(feeds) | {load.stream for load in loads_upto(upto).values() if load.is_open}


def _held(feeds: Mapping[str, FeedState]) -> frozenset[str]:
    return frozenset(feed.stream for feed in feeds.values() if feed.held is not None)


def streams_read(offsets: Offsets | None) -> frozenset[str]:
    """Return the streams that have a feed in ``offsets``."""
    return frozenset(load.stream for load in loads_upto(offsets).values())


def loads_upto(offsets: Offsets | None) -> dict[str, Load]:
    """Return feed -> its load at ``offsets``."""
    return {} if offsets is None else loads_of(offsets.feeds)
