"""Bodies of ``/v1/state``: the runtime's report of its stores, with statistics of the last epoch.

Fields and properties of :mod:`anabranch_contract.protocol.state_report` are fields of the answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch_contract.body import Body
from anabranch_contract.protocol.reads import Reads
from anabranch_contract.protocol.state_report import (
    EdgeReport,
    SegmentReport,
    StateReport,
    StoreReport,
)
from anabranch_contract.rest.planning.statistics import EdgeStatisticsOut


@dataclass(frozen=True, slots=True)
class StoreOut(StoreReport):
    """One store as of the newest batch that the runtime has reported.

    Attributes:
        reads: of the last ended epoch; null: not measured.
    """

    reads: Reads | None = None

    @property
    def probes(self) -> int | None:
        """Probes of ``reads``."""
        return None if self.reads is None else self.reads.probes

    @property
    def matches(self) -> int | None:
        """Matches of ``reads``."""
        return None if self.reads is None else self.reads.matches


@dataclass(frozen=True, slots=True)
class ReaderOut(EdgeReport):
    """An edge whose probes read a store: tuples of ``start`` that have come as far as ``edge`` says
    look ``mir`` up by ``key``.

    Attributes:
        statistics: of the last ended epoch, over all stores that the edge probes.
    """

    start: str | None = None
    mir: str | None = None
    key: tuple[str, ...] = ()
    statistics: EdgeStatisticsOut | None = None


@dataclass(frozen=True, slots=True)
class StoreEpochOut(Body):
    """A store at the end of an epoch, and its reads meanwhile."""

    epoch: int
    rows: int
    bytes: int
    segments: int
    reads: Reads


@dataclass(frozen=True, slots=True)
class StoreDetailOut(StoreOut):
    """One store with its segments, its readers, and its last epochs.

    Attributes:
        parts: its largest segments, as of before ``parts_batch``; null: not reported yet.
        parts_omitted, readers_omitted: segments and readers left out to bound the answer.
        history: its last epochs, oldest first.
    """

    next_batch: int = 0
    parts_batch: int | None = None
    parts: tuple[SegmentReport, ...] = ()
    parts_omitted: int = 0
    readers: tuple[ReaderOut, ...] = ()
    readers_omitted: int = 0
    history: tuple[StoreEpochOut, ...] = ()


@dataclass(frozen=True, slots=True)
class StateOut(StateReport):
    """The contents of the stores."""

    stores: tuple[StoreOut, ...]
