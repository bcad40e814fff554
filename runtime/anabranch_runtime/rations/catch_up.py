"""Catch-up: computing results that load shedding has withheld. Pure functions of the state.

*Debt* is the set of withheld results still to be computed. Under overload a batch withholds part of
the arriving tuples from probing (by *rations*, shares per goal: query and last-arriving alias). If
the overload policy is to catch up, the results of withheld tuples are owed, and batches without
rations compute them. The last member of an owed result arrived in an owed batch. So a catch-up
reads the withheld stored rows of that batch, and probes the rows that had arrived by its end, with
the running ruleset. Each owed result is computed from one member only (``task.catch_up``), and each
stored row is in one catch-up, so each result is found once.

**Order.** The debt with the earliest deadline is paid first. Let ``t`` be the greatest event time
that had arrived by the end of a batch. No member of a result owed since this batch is later than
``t``, so after ``t`` plus the query's freshness limit no such result is fresh (``freshness``). This
is the deadline of the query's debt. It is the same for all goals of the query, which are paid
together, since a result with two withheld members is computed from the first of them. Deadlines of
a query never fall from batch to batch, so batches of one query are paid in order; the order of
batches differs only among queries with different limits. Debts without a deadline come last.
Queries that are neighbours in this order and owe results of the same batches are paid together and
share probes. Newer debt with an earlier deadline interrupts a catch-up that has begun; the manifest
keeps the remainder.

**The past.** A query that requests results from before its activation is owed all batches before
it as one debt, in which every goal has the ration 0 (:func:`owe_past`).

Rows that an owed batch needed at its beginning stay stored until the debt is paid (``retention``);
for a query with past results owed, all rows visible to it stay. Debt is forgiven if it can't be
paid: its query has ended or restarted, its query reads a stream that keeps the latest per key and
so lacks rows, or its deadline has passed.

All inputs of a catch-up are in the manifest, so a repeated batch does the same.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch_contract.plans.rations import PaidBatches, Ranking, Ration
from anabranch_contract.plans.ruleset import QuerySpec, Ruleset
from anabranch_contract.protocol.activations import Activation, LeftOut, PastResults, PastStatus
from anabranch_contract.queries.joins import QueryId, RelationId, StreamName
from anabranch_runtime.epochs.access import stored_in
from anabranch_runtime.epochs.layout import routes
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.rations.freshness import fresh_until, present
from anabranch_runtime.state.coverage import Access, Tile
from anabranch_runtime.state.debt import (
    CatchUp,
    CatchUpStarts,
    Debt,
    OwedBatches,
    OwedGoal,
    cut_starts,
)
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.measured import added
from anabranch_runtime.state.slices import Throttle

#: Seconds that a batch without input may spend on computing withheld results (catch-up).
IDLE = 1.0
#: Maximum number of consecutive batches in one record of owed results (debt).
LONGEST = 32
#: Rank by which goals are owed that withheld all tuples: all results of the batches are owed.
_ALL = Ranking((), by_batch=True)
#: Maximum number of records of owed results; beyond it the oldest are dropped.
MOST = 1 << 14


def owing(ruleset: Ruleset) -> frozenset[QueryId]:
    """Return the queries whose withheld results a catch-up can compute: of an outer join, all joins
    or none; of a union, possibly only some branches."""
    latest = {s.name for s in ruleset.streams if s.latest and not s.is_table}
    streams = {r.id: r.stream for r in ruleset.relations}
    stored = {r for q in ruleset.queries if len(q.members) > 1 for _, _, r in q.members}
    retained = {stream.name for stream in ruleset.streams if stream.is_retained}
    whole = {r.id for r in ruleset.relations if r.stream in retained and not r.filter}
    unable: set[QueryId] = set()
    for query in ruleset.queries:
        relations = {r for _, _, r in query.members}
        # Withheld rows can be read again if they are stored: for a join, or as a retained stream.
        kept = len(query.members) > 1 or relations <= whole
        kept = kept or (query.left_of is not None and relations <= stored)
        if not kept or query.looked_up or any(streams[r] in latest for r in relations):
            unable.add(_unit(query))
    return frozenset(q.id for q in ruleset.queries if _unit(q) not in unable)


def _unit(query: QuerySpec) -> QueryId:
    return query.id if query.united else query.registered


def incur(
    before: State, state: State, ruleset: Ruleset, rations: Sequence[Ration], marks: dict[str, int]
) -> State:
    """Record as owed the results that a batch (from state ``before`` to ``state``) has withheld.

    Args:
        rations: share of probing tuples per goal. ``marks``: stream -> watermark before the batch.
    """
    batch, able = before.next_batch, owing(ruleset)
    alias_of = {(q.id, label): alias for q in ruleset.queries for alias, label, _ in q.members}
    goals = tuple(
        sorted(
            OwedGoal(r.query, alias_of[r.query, r.start], r.share, r.ranking)
            for r in rations
            if r.query in able and (r.query, r.start) in alias_of
        )
    )
    if not goals:
        return state
    known = state.debt.batches
    last = known[-1] if known and not known[-1].past else None
    times = {name: stream.newest for name, stream in state.streams.items()}
    reached = {name: tau for name, tau in times.items() if tau is not None}
    if (
        last is not None
        and (last.last, last.goals, last.starts) == (batch - 1, goals, None)
        and last.last - last.first + 1 < LONGEST
        and before.epoch_starts[-1][1] != batch
    ):
        owed = (*known[:-1], replace(last, last=batch, reached=reached))
    else:
        owed = (*known, OwedBatches(batch, batch, goals, marks, reached))
    return replace(state, debt=replace(state.debt, batches=owed))


def forgive(state: State, ruleset: Ruleset, now: int | None = None) -> State:
    """Drop owed results that ``ruleset`` can't compute, or whose records exceed :data:`MOST`.

    Args:
        now: reference time of the next batch (``freshness.present``), microseconds.
    """
    debt = state.debt
    if not debt.batches:
        return state
    able, deadlines = owing(ruleset), _Deadlines.of(ruleset)
    since = {
        name: one.activated_batch
        for name, one in state.queries.items()
        if name in able and one.expired_batch is None
    }
    kept, room = dict[int, OwedBatches](), MOST
    for at, one in sorted(enumerate(debt.batches), key=lambda pair: -pair[1].first):
        stale = () if now is None else {q for q, end in deadlines.of_owed(one).items() if end < now}
        goals = tuple(
            g for g in one.goals if g.query not in stale and _is_of(one, since.get(g.query))
        )
        room -= 0 if one.past else len(goals)
        if goals and room >= 0:
            kept[at] = one if goals == one.goals else _narrowed(one, goals)
    owed = tuple(kept[at] for at in sorted(kept))
    if owed == debt.batches:
        return state
    after = replace(debt, batches=owed)
    return replace(state, debt=after, queries=_forgiven(state.queries, debt, after))


def begin(state: State, ruleset: Ruleset, throttle: Throttle) -> State:
    """Begin to compute the owed results with the earliest deadline: select their stored input rows.

    Args:
        state: a state after :func:`forgive`.
    """
    debt = state.debt
    if not debt.batches:
        return state
    owed, *others = _in_order(debt.batches, _Deadlines.of(ruleset))
    others.sort(key=lambda one: (one.first, one.last))
    if owed.starts is None:
        owed = replace(owed, starts=_starts(state, ruleset, owed))
    rows = debt.rows or throttle.first
    return replace(state, debt=Debt((owed, *others), rows))


def _starts(state: State, ruleset: Ruleset, owed: OwedBatches) -> tuple[CatchUpStarts, ...]:
    relations, specs = {r.id: r for r in ruleset.relations}, {q.id: q for q in ruleset.queries}
    of: dict[RelationId, list[tuple[QueryId, str]]] = defaultdict(list)
    for goal in owed.goals:
        of[_relation(specs[goal.query], goal.alias)].append((goal.query, goal.alias))
    return tuple(
        CatchUpStarts(tuple(goals), stored_in(state, relations[relation], (owed.first, owed.last)))
        for relation, goals in sorted(of.items())
    )


@dataclass(frozen=True, slots=True)
class _Deadlines:
    """Deadlines of owed results: times after which none of them is fresh.

    Attributes:
        fresh: the queries with freshness limits. ``streams``: relation -> stream.
    """

    fresh: Mapping[QueryId, QuerySpec]
    streams: Mapping[RelationId, StreamName]

    @classmethod
    def of(cls, ruleset: Ruleset) -> _Deadlines:
        fresh = {query.id: query for query in ruleset.queries if query.freshness}
        return cls(fresh, {r.id: r.stream for r in ruleset.relations} if fresh else {})

    def of_owed(self, owed: OwedBatches) -> dict[QueryId, int]:
        """Return, for each query with a freshness limit, the last time at which one of its owed
        results may be fresh (microseconds)."""
        if not self.fresh:
            return {}
        ends = {
            query: fresh_until(self.fresh[query], self.streams, owed.reached)
            for query in owed.queries
            if query in self.fresh
        }
        return {query: end for query, end in ends.items() if end is not None}


def _in_order(batches: Sequence[OwedBatches], deadlines: _Deadlines) -> list[OwedBatches]:
    """Order owed results by deadline, earliest first.

    If the catch-up of the first record has not begun, the record keeps only queries whose deadlines
    precede all other records' deadlines. Queries without a deadline may wait for later batches.
    """
    ends = [deadlines.of_owed(one) for one in batches]

    def due(at: int) -> tuple[float, int]:
        return (min(ends[at].values(), default=math.inf), batches[at].first)

    chosen, *rest = sorted(range(len(batches)), key=due)
    owed, others = batches[chosen], [batches[at] for at in rest]
    if owed.starts is None:
        limit = due(rest[0]) if rest else (math.inf, owed.first)
        soon = {q for q, end in ends[chosen].items() if (end, owed.first) <= limit}
        now = tuple(g for g in owed.goals if g.query in soon)
        if now and len(now) < len(owed.goals):
            later = tuple(g for g in owed.goals if g.query not in soon)
            return [replace(owed, goals=now), replace(owed, goals=later), *others]
    return [owed, *others]


def _narrowed(owed: OwedBatches, goals: tuple[OwedGoal, ...]) -> OwedBatches:
    """Restrict owed results to ``goals``: pairs of a query and its last-arriving alias."""
    starts = owed.starts
    if starts is not None:
        left = {(g.query, g.alias) for g in goals}
        rest = ((s, tuple(g for g in s.goals if g in left)) for s in starts)
        starts = tuple(replace(s, goals=found) for s, found in rest if found)
    return replace(owed, goals=goals, starts=starts)


def next_catch_up(state: State) -> CatchUp | None:
    """Return the owed results that the next batch computes; None if nothing is owed."""
    debt = state.debt
    if not debt.batches or debt.batches[0].starts is None:
        return None
    owed, starts = debt.batches[0], debt.batches[0].starts
    taken, left = cut_starts(starts, debt.rows)
    ends = not left
    return CatchUp(owed.first, owed.last, owed.goals, taken, ends, owed.watermarks, owed.past)


def advance(
    state: State,
    done: CatchUp | None,
    reports: Sequence[TaskReport],
    seconds: float,
    throttle: Throttle,
) -> State:
    """Remove from the debt the results that ``done`` computed, in a batch of ``seconds``."""
    debt = state.debt
    if done is None or not debt.batches or debt.batches[0].starts is None:
        return state
    owed, *others = debt.batches
    starts = debt.batches[0].starts
    taken = max((r.phases.get("catch-up", 0.0) for r in reports), default=0.0)
    if not any(r.tuples for r in reports):
        throttle = replace(throttle, floor=max(throttle.floor, IDLE))
    rows = throttle.rows(debt.rows, taken, max(seconds - taken, 0.0))
    if done.ends:
        after = Debt(tuple(others), rows)
    else:
        left = replace(owed, starts=cut_starts(starts, done.rows)[1])
        after = Debt((left, *others), rows)
    made = defaultdict(int, added({}, (r.rations.caught_up for r in reports)))
    if done.past:
        remaining = None if done.ends else sum(s.rows for s in after.batches[0].starts or ())
        queries = {
            name: _further(one, made[name], remaining) if name in owed.queries else one
            for name, one in state.queries.items()
        }
        return replace(state, debt=after, queries=queries)
    still = after.queries
    queries = {
        name: replace(
            one,
            caught_up=one.caught_up + made[name],
            owed=max(one.owed - made[name], 0.0) if name in still else 0.0,
        )
        if one.owed or made[name]
        else one
        for name, one in state.queries.items()
    }
    return replace(state, debt=after, queries=queries)


def owe_past(state: State, ruleset: Ruleset) -> State:
    """Record past results as owed for queries that start with the next batch and request these; not
    for queries that restart with other time bounds."""
    wanted = [query for query in ruleset.queries if query.past and _begins(state, query.id)]
    if not wanted:
        return state
    able, changing = owing(ruleset), _with_changes(ruleset)
    queries, owed = dict(state.queries), list(state.debt.batches)
    reached = {n: s.newest for n, s in state.streams.items() if s.newest is not None}
    for query in wanted:
        known = state.queries[query.id]
        if query.id not in able:
            continue
        first = min(seen.batch for seen in known.visible_from.values())
        last = known.activated_batch - 1
        if first > last:
            queries[query.id] = replace(known, past=PastResults(PastStatus.EMITTED, rows=0))
            continue
        # Copies of a store may have cancelled different pairs of insert and delete. So results over
        # streams of changes are all computed from one alias, whichever member arrived last.
        starts = query.members[:1] if query.id in changing else query.members
        goals = tuple(OwedGoal(query.id, alias, 0.0, _ALL) for alias, _, _ in starts)
        owed.append(OwedBatches(first, last, tuple(sorted(goals)), {}, reached, past=True))
        queries[query.id] = replace(known, past=PastResults())
    return replace(state, queries=queries, debt=replace(state.debt, batches=tuple(owed)))


def _begins(state: State, query: QueryId) -> bool:
    """Whether ``query`` starts with the next batch for the first time, and owes no past results."""
    known = state.queries[query]
    begins = known.activated_batch == state.next_batch
    return begins and not known.earlier and known.past is None


def _with_changes(ruleset: Ruleset) -> frozenset[QueryId]:
    """Return queries that read streams of changes, so that tuples may delete their results."""
    found = routes(ruleset)
    return frozenset(query.id for query in ruleset.queries if found.has_changes(query))


def until(access: Access, last: int) -> Access:
    """Restrict a probe's ``access`` in a catch-up to rows that arrived by the end of ``last``."""
    gaps = tuple((low, min(high, last)) for low, high in access.gaps if low <= last)
    fill = tuple(_until(tiles, last) for tiles in access.fill) if gaps else ()
    return Access(_until(access.tiles, last), gaps, fill)


def _until(tiles: Iterable[Tile], last: int) -> tuple[Tile, ...]:
    return tuple(
        Tile(t.store, (t.interval[0], min(t.interval[1], last)))
        for t in tiles
        if t.interval[0] <= last
    )


def _is_of(owed: OwedBatches, activated: int | None) -> bool:
    """Whether ``owed`` results belong to the query's run that was activated in that batch."""
    if activated is None:
        return False
    return activated == owed.last + 1 if owed.past else activated <= owed.first


def _further(known: Activation, made: int, rows: int | None) -> Activation:
    """Count ``made`` more results of a catch-up on the past; ``rows``: input left to read."""
    past = known.past or PastResults()
    status = PastStatus.EMITTED if rows is None else PastStatus.PENDING
    return replace(known, past=PastResults(status, past.results + made, rows or 0))


def _relation(query: QuerySpec, alias: str) -> RelationId:
    return next(relation for name, _, relation in query.members if name == alias)


def _forgiven(
    queries: Mapping[str, Activation], before: Debt, after: Debt
) -> dict[str, Activation]:
    """Count owed results that are in ``before`` but not ``after`` as withheld permanently."""
    queries = {
        name: replace(one, past=PastResults(PastStatus.GIVEN_UP, one.past.results, one.past.rows))
        if one.past is not None and name in before.past - after.past
        else one
        for name, one in queries.items()
    }
    known = {(one.first, goal) for one in after.withheld for goal in one.goals}
    blind: dict[str, int] = defaultdict(int)
    # Counts of withheld results are estimated per query; the dropped part of the count is in
    # proportion to the withheld shares of the query's goals and batches.
    every: dict[str, float] = defaultdict(float)
    gone: dict[str, float] = defaultdict(float)
    for one in before.withheld:
        for goal in one.goals:
            batches = one.last - one.first + 1
            weight = batches * (1 - goal.share) if goal.share else 0.0
            every[goal.query] += weight
            if (one.first, goal) not in known:
                gone[goal.query] += weight
                blind[goal.query] += 0 if goal.share else batches
    still = after.queries
    return {
        name: _written_off(
            one, gone[name] / every[name] if name in still and every[name] else 1.0, blind[name]
        )
        if name in gone
        else one
        for name, one in queries.items()
    }


def _written_off(known: Activation, part: float, blind: int) -> Activation:
    """Give up a fraction of a query's owed results, which count as withheld permanently."""
    lost, gap = part * known.owed, LeftOut()
    return replace(
        known,
        withheld=known.withheld + lost,
        owed=known.owed - lost,
        blind=known.blind + blind,
        # Results of owed batches have no inclusion probabilities from which to estimate the rest.
        left_out=known.left_out if gap in known.left_out else (*known.left_out, gap),
    )


def paid(done: CatchUp | None, failed: Collection[str]) -> PaidBatches | None:
    """Return goals and batches whose owed results the catch-up ``done`` has completed, or None.

    Args:
        failed: failed queries, which are excluded.
    """
    if done is None or not done.ends or done.past:
        return None
    goals = tuple((g.query, g.alias) for g in done.goals if g.query not in failed)
    return PaidBatches(done.first, done.last, goals) if goals else None


@dataclass(frozen=True, slots=True)
class Shedding:
    """Load shedding and catch-up in one batch.

    Attributes:
        rations: share of probing tuples per goal (query, last-arriving alias), if below 1.
        sampled: queries whose results have columns with inclusion probabilities.
        catch_up: catch-up work of the batch, if any.
        now: reference time for tuple ages (``rations.freshness``), microseconds.
    """

    rations: tuple[Ration, ...] = ()
    sampled: frozenset[str] = frozenset()
    catch_up: CatchUp | None = None
    now: int | None = None

    @classmethod
    def of(
        cls, state: State, rations: tuple[Ration, ...], sampled: frozenset[str], planned: int | None
    ) -> Shedding:
        """Return the load shedding of the batch that starts in ``state``."""
        owed = None if rations else next_catch_up(state)
        return cls(rations, sampled, owed, present(state, planned))
