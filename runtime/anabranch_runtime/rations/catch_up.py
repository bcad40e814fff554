"""Catch-up: delivery of withheld results. Pure functions of the state.

Debt is incurred by a batch with rations where the policy says so, and paid by batches without. The
last member of an owed result is in an owed batch. The catch-up therefore goes through the stored
rows of that member's alias that were withheld then, and probes the rows that had arrived by the end
of that batch: with the rules of the running ruleset, cut off at that batch. Each owed result has
one such member that counts (``task.catch_up``), and each stored row is in one catch-up, so it is
found once.

**Order.** The debt that goes stale first is paid first. No member of a result owed since batch
``b`` has a greater event time than the greatest that had arrived by the end of ``b``, so after that
time plus its query's limit none of them is fresh (``freshness``): this is the deadline of the
query's debt of these batches. It is the same for all of its goals, which are paid together, since a
result with two withheld members is made from the first of them. Deadlines of one query never fall
from batch to batch, as event times reached never do. So for one limit, and without limits, the
order is that of batches, and it differs from that only among queries with different limits. Debts
without a deadline come last. Queries of the same batches that follow each other in this order are
paid together, with the steps that they share. A payment that has begun waits for newer debt with an
earlier deadline; its remainder is in the manifest.

**The past.** A query that requests results from before its activation is owed these batches from
then on, all of them together: every goal of it was given nothing (:func:`owe_past`).

Rows that an owed batch needed at its beginning stay stored while the debt lasts (``retention``);
for a query that is owed its past, all rows that it sees. A debt is forgiven once it can't be paid:
its query has ended or has restarted, or reads a stream that keeps the latest per key and lacks
rows, or its deadline has passed.

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
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.rations.freshness import fresh_until
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
from anabranch_runtime.state.slices import Throttle

#: Seconds that it may take in a batch without input.
IDLE = 1.0
#: Batches that are owed as one.
LONGEST = 32
#: Of goals to which all of a batch is owed.
_ALL = Ranking((), by_batch=True)
#: Greatest number of goals over all owed batches; the oldest beyond it are forgiven.
MOST = 1 << 14


def owing(ruleset: Ruleset) -> frozenset[QueryId]:
    """The queries whose withheld results a catch-up can deliver. Of an outer join both or none."""
    latest = {stream.name for stream in ruleset.streams if stream.latest}
    streams = {r.id: r.stream for r in ruleset.relations}
    stored = {r for q in ruleset.queries if len(q.members) > 1 for _, _, r in q.members}
    unable: set[QueryId] = set()
    for query in ruleset.queries:
        relations = {r for _, _, r in query.members}
        # Rows of one stream are stored where a query joins them.
        kept = len(query.members) > 1 or (query.left_of is not None and relations <= stored)
        if not kept or any(streams[r] in latest for r in relations):
            unable.add(query.left_of or query.id)
    return frozenset(q.id for q in ruleset.queries if (q.left_of or q.id) not in unable)


def incur(
    before: State, state: State, ruleset: Ruleset, rations: Sequence[Ration], marks: dict[str, int]
) -> State:
    """``state`` with the debt of the batch that led to it from ``before``.

    Args:
        marks: stream -> watermark, as the batch began.
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
    """``state`` without debt that can't be paid any more by ``ruleset``, or exceeds the limit.

    Args:
        now: of the next batch (``freshness.present``).
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
    """``state`` with the first part of the debt to go stale in front, and the rows to start from.

    Args:
        state: without debt that can't be paid by ``ruleset`` (:func:`forgive`).
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
    """Times at which debts go stale.

    Attributes:
        fresh: the queries with limits. ``streams``: relation -> its stream.
    """

    fresh: Mapping[QueryId, QuerySpec]
    streams: Mapping[RelationId, StreamName]

    @classmethod
    def of(cls, ruleset: Ruleset) -> _Deadlines:
        fresh = {query.id: query for query in ruleset.queries if query.freshness}
        return cls(fresh, {r.id: r.stream for r in ruleset.relations} if fresh else {})

    def of_owed(self, owed: OwedBatches) -> dict[QueryId, int]:
        """Query -> the last time at which a result of it that is owed may be fresh; those are left
        out that have no such time.
        """
        if not self.fresh:
            return {}
        ends = {
            query: fresh_until(self.fresh[query], self.streams, owed.reached)
            for query in owed.queries
            if query in self.fresh
        }
        return {query: end for query, end in ends.items() if end is not None}


def _in_order(batches: Sequence[OwedBatches], deadlines: _Deadlines) -> list[OwedBatches]:
    """``batches`` with the first part to go stale first.

    A part whose payment has not begun comprises the queries that go stale before any other batches
    do. Queries that never go stale are excluded, since later debt may go before them.
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
    """``owed`` with these ``goals`` only."""
    starts = owed.starts
    if starts is not None:
        left = {(g.query, g.alias) for g in goals}
        rest = ((s, tuple(g for g in s.goals if g in left)) for s in starts)
        starts = tuple(replace(s, goals=found) for s, found in rest if found)
    return replace(owed, goals=goals, starts=starts)


def next_catch_up(state: State) -> CatchUp | None:
    """The next batch's part of the debt; None: nothing is owed."""
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
    """The state after a batch that took ``seconds`` and did ``done`` beside its normal work."""
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
    made: dict[str, int] = defaultdict(int)
    for report in reports:
        for query, found in report.caught_up.items():
            made[query] += found
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
    """``state`` with the past that is owed to queries that begin with the next batch and ask for
    it. A query whose time bounds have changed has had its own.
    """
    able = owing(ruleset)
    queries, owed = dict(state.queries), list(state.debt.batches)
    reached = {n: s.newest for n, s in state.streams.items() if s.newest is not None}
    for query in ruleset.queries:
        known = state.queries[query.id]
        begins = known.activated_batch == state.next_batch and not known.earlier
        if not (query.past and begins and known.past is None and query.id in able):
            continue
        first = min(seen.batch for seen in known.visible_from.values())
        last = known.activated_batch - 1
        if first > last:
            queries[query.id] = replace(known, past=PastResults(PastStatus.EMITTED, rows=0))
            continue
        goals = tuple(OwedGoal(query.id, alias, 0.0, _ALL) for alias, _, _ in query.members)
        owed.append(OwedBatches(first, last, tuple(sorted(goals)), {}, reached, past=True))
        queries[query.id] = replace(known, past=PastResults())
    return replace(state, queries=queries, debt=replace(state.debt, batches=tuple(owed)))


def until(access: Access, last: int) -> Access:
    """``access`` restricted to rows that had arrived by the end of batch ``last``."""
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
    """Whether a query that was ``activated`` then is the one that something is owed to."""
    if activated is None:
        return False
    return activated == owed.last + 1 if owed.past else activated <= owed.first


def _further(known: Activation, made: int, rows: int | None) -> Activation:
    """``known`` with ``made`` more results of the past and ``rows`` left to go through."""
    past = known.past or PastResults()
    status = PastStatus.EMITTED if rows is None else PastStatus.PENDING
    return replace(known, past=PastResults(status, past.results + made, rows or 0))


def _relation(query: QuerySpec, alias: str) -> RelationId:
    return next(relation for name, _, relation in query.members if name == alias)


def _forgiven(
    queries: Mapping[str, Activation], before: Debt, after: Debt
) -> dict[str, Activation]:
    """``queries`` with debt of ``before`` that ``after`` lacks counted as withheld for good."""
    queries = {
        name: replace(one, past=PastResults(PastStatus.GIVEN_UP, one.past.results, one.past.rows))
        if one.past is not None and name in before.past - after.past
        else one
        for name, one in queries.items()
    }
    known = {(one.first, goal) for one in after.withheld for goal in one.goals}
    blind: dict[str, int] = defaultdict(int)
    # Debt of a goal in a batch, as a share of its tuples: estimates have a sum per query only.
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
    """``known`` with ``part`` of its debt withheld for good."""
    lost, gap = part * known.owed, LeftOut()
    return replace(
        known,
        withheld=known.withheld + lost,
        owed=known.owed - lost,
        blind=known.blind + blind,
        # Rows of owed batches carry no inclusion probabilities.
        left_out=known.left_out if gap in known.left_out else (*known.left_out, gap),
    )


def paid(done: CatchUp | None, failed: Collection[str]) -> PaidBatches | None:
    """The goals to which nothing of their batches is owed after ``done``; None: there are none.

    Args:
        failed: queries that have failed meanwhile.
    """
    if done is None or not done.ends or done.past:
        return None
    goals = tuple((g.query, g.alias) for g in done.goals if g.query not in failed)
    return PaidBatches(done.first, done.last, goals) if goals else None
