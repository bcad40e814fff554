"""Rations (load shedding): the share of a goal's tuples that probe in a batch.

When input exceeds the machine's capacity, only a share of the tuples probe (``semantics.md``,
"Rations"); every tuple is stored. A *goal* is a query and the alias whose tuple arrives last. Its
ration is fixed before a batch begins, recorded in the journal, and written beside the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from anabranch_contract.codec import Message, Row
from anabranch_contract.queries.joins import Label, QueryId


class Overload(StrEnum):
    """Policy for input beyond the machine's capacity: let input wait, ration probes (load
    shedding), or ration probes and compute the withheld results later, when capacity is free."""

    WAIT = "wait"
    RATION = "ration"
    CATCH_UP = "ration-with-catch-up"


class Allocation(StrEnum):
    """The objective by which load shedding chooses rations.

    ``FAIR`` maximises the completeness of the least complete query, ``RESULTS`` the number of
    results. ``JAQPOT`` allocates CPU time as the paper does: first to meet floors, then to input
    paths by descending productivity.
    """

    FAIR = "fair"
    RESULTS = "results"
    JAQPOT = "jaqpot"


#: (column, key type) pairs of a stream.
Columns = tuple[tuple[str, str], ...]


class Ranking(Row, frozen=True):
    """Ranking of one stream's tuples: each tuple's rank in [0, 1) is a hash of its values.

    Attributes:
        columns: columns to hash, in this order; empty if no tuple of the goal probes, so that ranks
            are not needed.
        by_batch: whether the batch number is hashed as well. If so, tuples with a key that is
            withheld in one batch may probe in the next (*uniform*); if not, the same keys probe in
            all streams and batches (*universe*).
    """

    columns: Columns
    by_batch: bool


class Ration(Row, frozen=True):
    """The ration of one goal in a batch: the share of its tuples that probe.

    Attributes:
        start: the label of the member that arrives last.
        share: in [0, 1]; the tuples with a rank below ``share`` probe.
    """

    query: QueryId
    start: Label
    share: float
    ranking: Ranking


@dataclass(frozen=True, slots=True)
class RationedBatches:
    """Consecutive batches with equal rations.

    Attributes:
        first, last: numbers of batches, both included.
        rations: the rations below 1, sorted; goals without an entry have ration 1.
        watermarks: stream -> its watermark in microseconds at the beginning of the first batch; in
            the ledger only.
        now: reference time for freshness, in microseconds; in the ledger only. None: unknown.
    """

    first: int
    last: int
    rations: tuple[Ration, ...]
    watermarks: dict[str, int] = field(default_factory=dict)
    now: int | None = None


@dataclass(frozen=True, slots=True)
class PaidBatches:
    """Batches for which the withheld results of some goals have been computed (catch-up).

    Attributes:
        first, last: numbers of batches, both included.
        goals: (query, alias of the member that arrives last), sorted.
    """

    first: int
    last: int
    goals: tuple[tuple[QueryId, str], ...]


class RationedGoal(Row, frozen=True):
    """A goal whose tuples load shedding may withhold, and the ranking of these tuples."""

    query: QueryId
    start: Label
    ranking: Ranking


class Floor(Row, frozen=True):
    """The share of its results that a query needs, and the CPU time for it.

    Attributes:
        completeness: the least allowed share of results, in (0, 1].
        needs: the least budget (share of the goals' CPU time) that suffices for the completeness.
    """

    query: QueryId
    completeness: float
    needs: float

    def broken(self, budget: float) -> bool:
        """Whether ``budget``, a share of CPU time, is too small for the query's floor."""
        return budget < self.needs - 1e-6


class SchedulePoint(Row, frozen=True):
    """A point of a schedule: a CPU budget, and the best rations that use it exactly.

    Attributes:
        used: the budget, in [0, 1]: a share of the CPU time of the goals' probes without rations.
        shares: each goal's ration, in [0, 1], in the order of the schedule's goals.
    """

    used: float
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RationSchedule(Message):
    """The best rations of a ruleset's goals for every budget, as planned by the service
    (``Keys.rations``; absent under the policy ``wait``).

    Rations between two points are interpolated. They never use more than the interpolated budget: a
    step runs for the maximum ration of all goals that need it, which is a convex function.

    Attributes:
        epoch, revision: the schedule's ruleset. Revisions of the same epoch have the same goals.
        goals: in the order of every point's shares. Queries that can't be rationed have no goal.
        points: by ascending ``used``; never empty; all shares of the last point are 1.
        allocation: the objective of the rations.
        latency: promised maximum of seconds from a tuple's arrival to the commit of its results.
        rationable: share of all probes' CPU time that the goals' probes take without rations.
        budget: the operator's limit on the budget; None: only the machine's capacity limits it.
        catch_up: whether withheld results are computed later.
        floors: floors of the queries that have one and may be rationed.
    """

    epoch: int
    revision: int
    goals: tuple[RationedGoal, ...]
    points: tuple[SchedulePoint, ...]
    allocation: Allocation = Allocation.FAIR
    latency: float = 2.0
    rationable: float = 1.0
    budget: float | None = None
    catch_up: bool = False
    floors: tuple[Floor, ...] = ()

    def rations(self, budget: float) -> tuple[Ration, ...]:
        """Return the rations below 1 for a budget, sorted.

        Args:
            budget: the usable share of the goals' CPU time. A budget below the first point's
                ``used`` has the first point's rations.
        """
        shares = shares_at(self.points, budget)
        found = (
            Ration(goal.query, goal.start, share, goal.ranking)
            for goal, share in zip(self.goals, shares, strict=True)
            if share < 1
        )
        return tuple(sorted(found))


def shares_at(points: Sequence[SchedulePoint], budget: float) -> tuple[float, ...]:
    """Return each goal's ration for a budget, interpolated between two points of a schedule.

    Args:
        points: by ascending ``used``; never empty; all shares of the last point are 1.
        budget: the usable share of the goals' CPU time.
    """
    before = points[0]
    if budget >= 1:
        return (1.0,) * len(before.shares)
    for point in points:
        if budget < point.used:
            part = max(budget - before.used, 0.0) / (point.used - before.used or 1.0)
            pairs = zip(before.shares, point.shares, strict=True)
            return tuple(a + part * (b - a) for a, b in pairs)
        before = point
    return before.shares
