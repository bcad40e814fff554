"""Debt: results that load shedding has withheld, owed until a catch-up computes them
(``semantics.md``, "Rations").

A *goal* is a query and the alias whose tuple arrives last; its *ration* is the share of such tuples
that probe. Tuples withheld from probing are stored like all others. So the results can be computed
later, by probes of withheld tuples in the rows that had arrived by the end of the tuples' batch.
Results from before a query's activation, if the query requests them, are owed in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from anabranch_contract.codec import Row
from anabranch_contract.plans.rations import Ranking
from anabranch_contract.queries.joins import QueryId
from anabranch_runtime.state.slices import SegmentRows, cut


class OwedGoal(Row, frozen=True):
    """A goal (query and last-arriving alias) with withheld tuples.

    Attributes:
        alias: the last-arriving tuple's alias; unlike its canonical name (label) it never changes.
        share: share of tuples that are not withheld: tuples with ranks (hashes in [0, 1)) below it.
    """

    query: QueryId
    alias: str
    share: float
    ranking: Ranking


@dataclass(frozen=True, slots=True)
class CatchUpStarts:
    """Stored rows whose withheld results are still to be computed.

    Attributes:
        goals: (query, alias) of the goals for which these rows are last-arriving tuples.
        sources: row ranges of segments, as of the beginning of the catch-up.
    """

    goals: tuple[tuple[QueryId, str], ...]
    sources: tuple[SegmentRows, ...]

    @property
    def rows(self) -> int:
        """Number of stored rows that are still to be caught up."""
        return sum(s.rows for s in self.sources)


@dataclass(frozen=True, slots=True)
class OwedBatches:
    """Consecutive batches with equal load shedding, whose withheld results are still owed.

    Attributes:
        first, last: batch numbers, both included.
        goals: goals with withheld tuples, sorted; either all goals of a query or none.
        watermarks: watermarks at the start of the first batch; the rows needed then stay stored.
        reached: stream -> greatest event time that had arrived by the end of the last batch.
        starts: remaining rows whose results are to be computed; None: no catch-up has begun.
        past: whether the batches precede the activation of the queries, so all results are owed.
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
        """Queries whose results of these batches are still owed."""
        return frozenset(goal.query for goal in self.goals)


@dataclass(frozen=True, slots=True)
class CatchUp:
    """The catch-up work of one batch, for withheld results of the batches ``first`` to ``last``.

    Attributes:
        ends: whether this work completes the catch-up of these batches.
        watermarks: watermarks at the start of batch ``first``.
        past: whether these batches precede the activation of the queries.
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
        """Number of stored rows whose results the catch-up computes."""
        return sum(s.rows for s in self.starts)


@dataclass(frozen=True, slots=True)
class Debt:
    """All results withheld by load shedding that are still to be computed (owed).

    Attributes:
        batches: the results to compute next, then the others, oldest first. Elements for the same
            batches have different queries.
        rows: number of input rows of the next batch's catch-up; 0 before the first catch-up.
    """

    batches: tuple[OwedBatches, ...] = ()
    rows: int = 0

    @property
    def sources(self) -> Iterator[SegmentRows]:
        """Yield the remaining input rows of catch-ups that have begun, as ranges of segments."""
        for one in self.batches:
            for start in one.starts or ():
                yield from start.sources

    @property
    def withheld(self) -> tuple[OwedBatches, ...]:
        """Results owed because load shedding withheld them, not those from before an activation."""
        return tuple(one for one in self.batches if not one.past)

    @property
    def numbers(self) -> frozenset[int]:
        """Numbers of the batches whose withheld results are still owed."""
        return frozenset(n for one in self.withheld for n in range(one.first, one.last + 1))

    @property
    def queries(self) -> frozenset[QueryId]:
        """Queries with results that load shedding has withheld and that are still owed."""
        return frozenset().union(*(one.queries for one in self.withheld))

    @property
    def past(self) -> frozenset[QueryId]:
        """Queries with results from before their activation that are still owed."""
        return frozenset().union(*(one.queries for one in self.batches if one.past))


@dataclass(slots=True)
class RationReport:
    """One task's result counts in batches with load shedding or catch-up.

    Attributes:
        kept: query -> last-arriving label -> number of result rows, under load shedding.
        caught_up: query -> number of result rows withheld by earlier batches.
    """

    kept: dict[str, dict[str, int]] = field(default_factory=dict)
    caught_up: dict[str, int] = field(default_factory=dict)


def cut_starts(
    starts: tuple[CatchUpStarts, ...], rows: int
) -> tuple[tuple[CatchUpStarts, ...], tuple[CatchUpStarts, ...]]:
    """Split the rows of a catch-up in two: the first ``rows`` rows, and the rest."""
    taken: list[CatchUpStarts] = []
    for at, one in enumerate(starts):
        if one.rows > rows:
            here, left = cut(one.sources, rows)
            taken += [replace(one, sources=here)] if here else []
            return tuple(taken), (replace(one, sources=left), *starts[at + 1 :])
        taken.append(one)
        rows -= one.rows
    return tuple(taken), ()
