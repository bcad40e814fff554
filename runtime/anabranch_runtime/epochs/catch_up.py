"""Making good what probes were withheld from: pure functions of the state.

Debt is incurred by a batch with rations where the policy says so, and paid by batches without, the
oldest first. A result that is owed has its last member in an owed batch. So it is found by going
through the stored rows of that member's alias that were withheld then, and probing with them what
had arrived by the end of that batch: the rules are those of the ruleset that runs now, their
answers are cut off at that batch. Each owed result has one such member that counts
(``task.catch_up``), and each stored row is in one catch-up, so it is found once.

While something is owed, what was needed when its batch began stays stored (``retention``). A debt
that can't be paid any more is forgiven: its query has ended or has begun anew, or reads a stream
that keeps the latest per key, of which rows are missing.

Everything that a catch-up depends on is in the manifest, so a batch that is repeated does the same.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch_contract.plans.rations import PaidBatches
from anabranch_runtime.epochs.access import stored_in
from anabranch_runtime.state.coverage import Access, Tile
from anabranch_runtime.state.debt import (
    CatchUp,
    Debt,
    OwedBatches,
    OwedGoal,
    Starts,
    cut_starts,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from anabranch_contract.plans.rations import Ration
    from anabranch_contract.plans.ruleset import QuerySpec, Ruleset
    from anabranch_contract.protocol.activations import Activation
    from anabranch_contract.queries.joins import QueryId, RelationId
    from anabranch_runtime.epochs.task_report import TaskReport
    from anabranch_runtime.state.manifest import State
    from anabranch_runtime.state.slices import Throttle

#: Seconds that it may take in a batch without input.
IDLE = 1.0
#: Batches that are owed as one.
LONGEST = 32
#: Goals of all owed batches; what is more is forgiven, oldest first.
MOST = 1 << 14


def owing(ruleset: Ruleset) -> frozenset[QueryId]:
    """The queries whose withheld results can be made good. Of an outer join both or none can."""
    latest = {stream.name for stream in ruleset.streams if stream.latest}
    streams = {r.id: r.stream for r in ruleset.relations}
    stored = {r for q in ruleset.queries if len(q.members) > 1 for _, _, r in q.members}
    unable: set[QueryId] = set()
    for query in ruleset.queries:
        relations = {r for _, _, r in query.members}
        # Rows of one stream are stored where somebody joins them.
        kept = len(query.members) > 1 or (query.left_of is not None and relations <= stored)
        if not kept or any(streams[r] in latest for r in relations):
            unable.add(query.left_of or query.id)
    return frozenset(q.id for q in ruleset.queries if (q.left_of or q.id) not in unable)


def incur(
    before: State, state: State, ruleset: Ruleset, rations: Sequence[Ration], marks: dict[str, int]
) -> State:
    """``state`` with what the batch has withheld that led to it from ``before``.

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
    last = known[-1] if known and (len(known) > 1 or state.debt.starts is None) else None
    if (
        last is not None
        and (last.last, last.goals) == (batch - 1, goals)
        and last.last - last.first + 1 < LONGEST
        and before.epoch_starts[-1][1] != batch
    ):
        owed = (*known[:-1], replace(last, last=batch))
    else:
        owed = (*known, OwedBatches(batch, batch, goals, marks))
    return replace(state, debt=replace(state.debt, batches=owed))


def forgive(state: State, ruleset: Ruleset) -> State:
    """``state`` without what can't be paid any more by ``ruleset``, or is too much to remember."""
    debt = state.debt
    if not debt.batches:
        return state
    able = owing(ruleset)
    since = {
        name: one.activated_batch
        for name, one in state.queries.items()
        if name in able and one.expired_batch is None
    }
    kept, room = list[OwedBatches](), MOST
    for one in reversed(debt.batches):
        goals = tuple(g for g in one.goals if since.get(g.query, one.last + 1) <= one.first)
        room -= len(goals)
        if goals and room >= 0:
            kept.append(one if goals == one.goals else replace(one, goals=goals))
    kept.reverse()
    if kept == list(debt.batches):
        return state
    starts = debt.starts
    if not kept or kept[0].first != debt.batches[0].first:
        starts = None
    elif starts is not None:
        left = {(g.query, g.alias) for g in kept[0].goals}
        rest = ((s, tuple(g for g in s.goals if g in left)) for s in starts)
        starts = tuple(replace(s, goals=found) for s, found in rest if found)
    after = replace(debt, batches=tuple(kept), starts=starts)
    return replace(state, debt=after, queries=_forgiven(state.queries, debt, after))


def begin(state: State, ruleset: Ruleset, throttle: Throttle) -> State:
    """``state`` with the rows from which the oldest owed batches are made good.

    Args:
        state: without what can't be paid by ``ruleset`` (:func:`forgive`).
    """
    debt = state.debt
    if not debt.batches or debt.starts is not None:
        return state
    owed, relations = debt.batches[0], {r.id: r for r in ruleset.relations}
    specs = {q.id: q for q in ruleset.queries}
    of: dict[RelationId, list[tuple[QueryId, str]]] = defaultdict(list)
    for goal in owed.goals:
        of[_relation(specs[goal.query], goal.alias)].append((goal.query, goal.alias))
    starts = tuple(
        Starts(tuple(goals), stored_in(state, relations[relation], (owed.first, owed.last)))
        for relation, goals in sorted(of.items())
    )
    return replace(state, debt=replace(debt, starts=starts, rows=debt.rows or throttle.first))


def next_catch_up(state: State) -> CatchUp | None:
    """The next batch's part of what is owed; None: nothing is."""
    debt = state.debt
    if not debt.batches or debt.starts is None:
        return None
    owed = debt.batches[0]
    taken, left = cut_starts(debt.starts, debt.rows)
    ends = not left
    return CatchUp(owed.first, owed.last, owed.goals, taken, ends, owed.watermarks)


def advance(
    state: State,
    done: CatchUp | None,
    reports: Sequence[TaskReport],
    seconds: float,
    throttle: Throttle,
) -> State:
    """The state after a batch that took ``seconds`` and did ``done`` beside its normal work."""
    debt, starts = state.debt, state.debt.starts
    if done is None or starts is None:
        return state
    taken = max((r.phases.get("catch-up", 0.0) for r in reports), default=0.0)
    if not any(r.tuples for r in reports):
        throttle = replace(throttle, floor=max(throttle.floor, IDLE))
    rows = throttle.rows(debt.rows, taken, max(seconds - taken, 0.0))
    if done.ends:
        after = Debt(debt.batches[1:], None, rows)
    else:
        after = replace(debt, starts=cut_starts(starts, done.rows)[1], rows=rows)
    made: dict[str, int] = defaultdict(int)
    for report in reports:
        for query, found in report.caught_up.items():
            made[query] += found
    owed = after.queries
    queries = {
        name: replace(
            one,
            caught_up=one.caught_up + made[name],
            owed=max(one.owed - made[name], 0.0) if name in owed else 0.0,
        )
        if one.owed or made[name]
        else one
        for name, one in state.queries.items()
    }
    return replace(state, debt=after, queries=queries)


def until(access: Access, last: int) -> Access:
    """How a probe is answered by what had arrived by the end of batch ``last``."""
    gaps = tuple((low, min(high, last)) for low, high in access.gaps if low <= last)
    fill = tuple(_until(tiles, last) for tiles in access.fill) if gaps else ()
    return Access(_until(access.tiles, last), gaps, fill)


def _until(tiles: Iterable[Tile], last: int) -> tuple[Tile, ...]:
    return tuple(
        Tile(t.store, (t.interval[0], min(t.interval[1], last)))
        for t in tiles
        if t.interval[0] <= last
    )


def _relation(query: QuerySpec, alias: str) -> RelationId:
    return next(relation for name, _, relation in query.members if name == alias)


def _forgiven(
    queries: Mapping[str, Activation], before: Debt, after: Debt
) -> dict[str, Activation]:
    """``queries`` with what was owed in ``before`` and is not in ``after`` as withheld for good."""
    known = {(one.first, goal) for one in after.batches for goal in one.goals}
    blind: dict[str, int] = defaultdict(int)
    gone: set[str] = set()
    for one in before.batches:
        for goal in one.goals:
            if (one.first, goal) not in known:
                gone.add(goal.query)
                blind[goal.query] += 0 if goal.share else one.last - one.first + 1
    return {
        name: _written_off(one, blind[name]) if name in gone else one
        for name, one in queries.items()
    }


def _written_off(known: Activation, blind: int) -> Activation:
    return replace(known, withheld=known.withheld + known.owed, owed=0.0, blind=known.blind + blind)


def paid(done: CatchUp | None, failed: Collection[str]) -> PaidBatches | None:
    """The goals to which nothing of their batches is owed after ``done``; None: there are none.

    Args:
        failed: queries that have failed meanwhile.
    """
    if done is None or not done.ends:
        return None
    goals = tuple((g.query, g.alias) for g in done.goals if g.query not in failed)
    return PaidBatches(done.first, done.last, goals) if goals else None
