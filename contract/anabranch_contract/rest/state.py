"""Bodies of ``/v1/state``: the runtime's report of its stores, with statistics of the last epoch.

Fields and properties of the values in :mod:`anabranch_contract.protocol.state_report` are fields of
the answers.
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
        reads: the store's reads in the last ended epoch; null: not measured.
    """

    reads: Reads | None = None

    @property
    def probes(self) -> int | None:
        """Number of tuples that probed the store in the last ended epoch."""
        return None if self.reads is None else self.reads.probes

    @property
    def matches(self) -> int | None:
        """Number of matches that probes of the store found in the last ended epoch."""
        return None if self.reads is None else self.reads.matches


@dataclass(frozen=True, slots=True)
class ReaderOut(EdgeReport):
    """An edge (step of a probe order) whose probes read a store.

    Attributes:
        start: relation whose arriving tuples begin the path to the edge; null: unknown.
        mir: relation or intermediate result whose rows are probed; null: unknown.
        key: equalities of the probe, probing attribute first.
        statistics: the edge's measurements in the last ended epoch, over all stores that it probes.
    """

    start: str | None = None
    mir: str | None = None
    key: tuple[str, ...] = ()
    statistics: EdgeStatisticsOut | None = None


@dataclass(frozen=True, slots=True)
class StoreEpochOut(Body):
    """Size of a store at the end of an epoch, and its reads during the epoch.

    Attributes:
        epoch: number of the epoch.
        rows: number of rows.
        bytes: size in bytes.
        segments: number of segments.
        reads: reads during the epoch.
    """

    epoch: int
    rows: int
    bytes: int
    segments: int
    reads: Reads


@dataclass(frozen=True, slots=True)
class StoreDetailOut(StoreOut):
    """One store with its segments, its readers, and its last epochs.

    Attributes:
        next_batch: number of the pipeline's next batch when the store was reported.
        parts_batch: batch before which ``parts`` and ``readers`` were reported; null: not yet.
        parts: the store's largest segments; empty: not reported yet.
        parts_omitted: number of smaller segments omitted from the answer.
        readers: edges that read it, by name.
        readers_omitted: number of edges omitted from the answer.
        history: size and reads of the store in the last epochs, oldest first.
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
    """All stores of the pipeline, their sizes and reads.

    Attributes:
        stores: the stores, with their reads.
    """

    stores: tuple[StoreOut, ...]
