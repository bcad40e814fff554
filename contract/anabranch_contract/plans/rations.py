"""Rations: what share of the tuples that arrive last for a query its probes get in a batch.

Where input outruns the machine, probes are rationed (``semantics.md``, "Rations"). Every tuple is
stored all the same. A *goal* is a query and the alias whose tuple arrives last; its ration is fixed
before a batch begins, recorded in the journal, and written beside the batch's results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from anabranch_contract.codec import Message, Row
from anabranch_contract.queries.joins import Label, QueryId


class Overload(StrEnum):
    """Policy for input beyond the machine's capacity: let batches wait, ration probes (load
    shedding), or ration them and make withheld results good once there is capacity.
    """

    WAIT = "wait"
    RATION = "ration"
    CATCH_UP = "ration-with-catch-up"


class Allocation(StrEnum):
    """The objective of rations.

    ``FAIR``: the completeness of the least complete query. ``RESULTS``: the number of results.
    ``JAQPOT``: the number of results as the JAQPOT paper allocates CPU time, floors first and then
    paths by productivity.
    """

    FAIR = "fair"
    RESULTS = "results"
    JAQPOT = "jaqpot"


#: Columns of a stream, each with the key type that its values are read as.
Columns = tuple[tuple[str, str], ...]


class Ranking(Row, frozen=True):
    """Ranking of one stream's tuples: a number in [0, 1) computed from values alone.

    Attributes:
        columns: columns to hash, in this order; empty where nothing is kept, so that no rank
            matters.
        by_batch: whether the batch number is hashed as well. If so, a key withheld in one batch may
            be kept in the next (*uniform*); if not, the same keys are kept in all streams and
            batches (*universe*).
    """

    columns: Columns
    by_batch: bool


class Ration(Row, frozen=True):
    """The ration of one goal.

    Attributes:
        start: the label of the member that arrives last.
        share: of the tuples: in [0, 1]. Those are kept whose rank is below it.
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
        rations: of goals with a share below 1, sorted; all others have 1.
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
    """Batches whose withheld results of some goals have been made good.

    Attributes:
        first, last: numbers of batches, both included.
        goals: (query, alias of the member that arrives last), sorted.
    """

    first: int
    last: int
    goals: tuple[tuple[QueryId, str], ...]


class RationedGoal(Row, frozen=True):
    """A goal that may be rationed, and the ranking of the tuples that arrive last for it."""

    query: QueryId
    start: Label
    ranking: Ranking


class Floor(Row, frozen=True):
    """The completeness that a query needs, and the CPU time for it.

    Attributes:
        completeness: the least, above 0 to 1.
        needs: the least share of the goals' CPU time with which the schedule keeps it.
    """

    query: QueryId
    completeness: float
    needs: float

    def broken(self, budget: float) -> bool:
        """Whether ``budget``, a share of the goals' CPU time, does not suffice."""
        return budget < self.needs - 1e-6


class SchedulePoint(Row, frozen=True):
    """Rations that take a share of what could be saved by rations.

    Attributes:
        used: in [0, 1], the share of the CPU time that probes for goals take with all rations 1.
        shares: of each goal of the schedule, in [0, 1].
    """

    used: float
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RationSchedule(Message):
    """The best rations of a ruleset's goals for every budget, as planned by the service
    (``Keys.rations``; absent under the policy ``wait``).

    Between two points rations are interpolated, which never takes more than the interpolated share:
    a step takes the largest ration of the goals behind it, which is convex.

    Attributes:
        epoch, revision: the ruleset of the schedule. A revision of the same epoch has the same
            goals.
        goals: in the order of every point's shares; queries that can't be rationed have none.
        points: by ascending use, the last with all shares 1; never empty.
        allocation: their objective.
        latency: promised seconds from a tuple's arrival to the commit of its results.
        rationable: the share of all probing time that these goals take with all rations 1.
        budget: the operator's limit; None: as much as the machine allows.
        catch_up: whether withheld results are made good later.
        floors: of the queries that need a completeness and may be rationed.
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
        """The rations of goals that do not get everything, sorted.

        Args:
            budget: the share of the CPU time that may be used. What lies below the first point's
                use, which nothing can be taken from, gives that point's rations.
        """
        shares = shares_at(self.points, budget)
        found = (
            Ration(goal.query, goal.start, share, goal.ranking)
            for goal, share in zip(self.goals, shares, strict=True)
            if share < 1
        )
        return tuple(sorted(found))


def shares_at(points: Sequence[SchedulePoint], budget: float) -> tuple[float, ...]:
    """The rations for a budget, interpolated.

    Args:
        points: by ascending use, the last with all shares 1; never empty.
        budget: the share of the CPU time that may be used.
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
