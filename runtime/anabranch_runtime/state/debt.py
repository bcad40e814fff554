"""Results owed to rationed queries until a catch-up delivers them (``semantics.md``, "Rations").

Tuples withheld from a goal are stored like all others, so its results can be computed later: the
tuples of the batch probe the rows that had arrived by then. A query that requests its past is owed
it in the same way, for the batches before its activation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from anabranch_contract.codec import Row
from anabranch_contract.plans.rations import Ranking
from anabranch_contract.queries.joins import QueryId
from anabranch_runtime.state.slices import SegmentRows, cut


class OwedGoal(Row, frozen=True):
    """A goal that some tuples were withheld from.

    Attributes:
        alias: of the member that arrived last. Other than its label, it never changes.
        share: of the tuples that the goal was given: those with ranks below it.
    """

    query: QueryId
    alias: str
    share: float
    ranking: Ranking


@dataclass(frozen=True, slots=True)
class CatchUpStarts:
    """Stored rows from which a catch-up starts.

    Attributes:
        goals: (query, alias) of those whose last members they may be.
        sources: segments as they were when the catch-up of their batches began.
    """

    goals: tuple[tuple[QueryId, str], ...]
    sources: tuple[SegmentRows, ...]

    @property
    def rows(self) -> int:
        """Number of stored rows."""
        return sum(s.rows for s in self.sources)


@dataclass(frozen=True, slots=True)
class OwedBatches:
    """Consecutive batches with the same rations and results still owed.

    Attributes:
        first, last: batch numbers, both included.
        goals: sorted. All goals of a query that were rationed, or none.
        watermarks: at the start of the first batch: rows needed then stay stored.
        reached: stream -> the greatest event time that had arrived by the end of the last batch.
        starts: remaining rows to catch up from; None: no catch-up has begun.
        past: whether these are the batches before the activation of the queries, when nothing was
            withheld.
    """

    first: int
    last: int
    goals: tuple[OwedGoal, ...]
    watermarks: dict[str, int]
    reached: dict[str, int] = field(default_factory=dict)
    starts: tuple[CatchUpStarts, ...] | None = None
    past: bool = False

    @property
    def queries(self) -> frozenset[QueryId]:
        """Queries with results owed."""
        return frozenset(goal.query for goal in self.goals)


@dataclass(frozen=True, slots=True)
class CatchUp:
    """One batch's catch-up, all of it of the batches ``first`` to ``last``.

    Attributes:
        ends: whether nothing of these batches is owed afterwards.
        watermarks: at the start of the first of them.
        past: whether these are batches before the activation of the queries.
    """

    first: int
    last: int
    goals: tuple[OwedGoal, ...]
    starts: tuple[CatchUpStarts, ...]
    ends: bool
    watermarks: dict[str, int]
    past: bool = False

    @property
    def rows(self) -> int:
        """Stored rows to start from."""
        return sum(s.rows for s in self.starts)


@dataclass(frozen=True, slots=True)
class Debt:
    """All results owed.

    Attributes:
        batches: the part that is paid next, then the others, oldest first. Parts of the same
            batches have different queries.
        rows: size of the next catch-up in rows; 0: there has been none.
    """

    batches: tuple[OwedBatches, ...] = ()
    rows: int = 0

    @property
    def sources(self) -> Iterator[SegmentRows]:
        """Remaining stored rows of catch-ups that have begun."""
        for one in self.batches:
            for start in one.starts or ():
                yield from start.sources

    @property
    def withheld(self) -> tuple[OwedBatches, ...]:
        """Batches owed because of rations, without those before an activation."""
        return tuple(one for one in self.batches if not one.past)

    @property
    def numbers(self) -> frozenset[int]:
        """Numbers of batches with withheld results still owed."""
        return frozenset(n for one in self.withheld for n in range(one.first, one.last + 1))

    @property
    def queries(self) -> frozenset[QueryId]:
        """The queries that something was withheld from which is owed."""
        return frozenset().union(*(one.queries for one in self.withheld))

    @property
    def past(self) -> frozenset[QueryId]:
        """The queries that results of the past are owed to."""
        return frozenset().union(*(one.queries for one in self.batches if one.past))


def cut_starts(
    starts: tuple[CatchUpStarts, ...], rows: int
) -> tuple[tuple[CatchUpStarts, ...], tuple[CatchUpStarts, ...]]:
    """The first ``rows`` rows of ``starts``, and the rest."""
    taken: list[CatchUpStarts] = []
    for at, one in enumerate(starts):
        if one.rows > rows:
            here, left = cut(one.sources, rows)
            taken += [replace(one, sources=here)] if here else []
            return tuple(taken), (replace(one, sources=left), *starts[at + 1 :])
        taken.append(one)
        rows -= one.rows
    return tuple(taken), ()
