"""What withheld probes are still owed, where that is made good later (``semantics.md``, "Rations").

Tuples that a goal was not given are stored like all others, so its results can be had later: the
tuples of the batch probe what had arrived by then. A query that asks for its past is owed it in the
same way: it was given nothing of the batches before its activation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from anabranch_contract.codec import Row
from anabranch_contract.plans.rations import Ranking
from anabranch_contract.queries.joins import QueryId
from anabranch_runtime.state.slices import Source, cut


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
class Starts:
    """Stored rows from which a catch-up starts.

    Attributes:
        goals: (query, alias) of those whose last members they may be.
        sources: segments as they were when the catch-up of their batches began.
    """

    goals: tuple[tuple[QueryId, str], ...]
    sources: tuple[Source, ...]

    @property
    def rows(self) -> int:
        """How many rows there are to look at."""
        return sum(s.rows for s in self.sources)


@dataclass(frozen=True, slots=True)
class OwedBatches:
    """Batches with the same rations, one after the other, that are owed.

    Attributes:
        first, last: their numbers, both included.
        goals: sorted. All goals of a query that were rationed, or none.
        watermarks: as the first of them began: what was needed then stays stored.
        reached: stream -> the greatest event time that had arrived by the end of the last of them.
        starts: what is left of their rows; None: nothing has been paid yet.
        past: whether they are the batches before the activation of the queries, with which nothing
            was withheld.
    """

    first: int
    last: int
    goals: tuple[OwedGoal, ...]
    watermarks: dict[str, int]
    reached: dict[str, int] = field(default_factory=dict)
    starts: tuple[Starts, ...] | None = None
    past: bool = False

    @property
    def queries(self) -> frozenset[QueryId]:
        """Those that something is owed to."""
        return frozenset(goal.query for goal in self.goals)


@dataclass(frozen=True, slots=True)
class CatchUp:
    """One batch's part of what is owed: all of it is of the batches ``first`` to ``last``.

    Attributes:
        ends: whether nothing of these batches is owed afterwards.
        watermarks: as the first of them began.
        past: whether they are what the queries ask of before their activation.
    """

    first: int
    last: int
    goals: tuple[OwedGoal, ...]
    starts: tuple[Starts, ...]
    ends: bool
    watermarks: dict[str, int]
    past: bool = False

    @property
    def rows(self) -> int:
        """Rows that it looks at."""
        return sum(s.rows for s in self.starts)


@dataclass(frozen=True, slots=True)
class Debt:
    """All that is owed.

    Attributes:
        batches: the part that is paid next, then the others, oldest first. Parts of the same
            batches have different queries.
        rows: how many the next catch-up looks at; 0: there has been none.
    """

    batches: tuple[OwedBatches, ...] = ()
    rows: int = 0

    @property
    def sources(self) -> Iterator[Source]:
        """What is left of stored rows that payments have begun with."""
        for one in self.batches:
            for start in one.starts or ():
                yield from start.sources

    @property
    def withheld(self) -> tuple[OwedBatches, ...]:
        """What is owed since it was withheld."""
        return tuple(one for one in self.batches if not one.past)

    @property
    def numbers(self) -> frozenset[int]:
        """The batches of which something was withheld that is owed."""
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
    starts: tuple[Starts, ...], rows: int
) -> tuple[tuple[Starts, ...], tuple[Starts, ...]]:
    """The first ``rows`` rows of ``starts``, and the rest."""
    taken: list[Starts] = []
    for at, one in enumerate(starts):
        if one.rows > rows:
            here, left = cut(one.sources, rows)
            taken += [replace(one, sources=here)] if here else []
            return tuple(taken), (replace(one, sources=left), *starts[at + 1 :])
        taken.append(one)
        rows -= one.rows
    return tuple(taken), ()
