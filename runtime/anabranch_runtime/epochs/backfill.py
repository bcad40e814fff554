"""Backfill of a materialized join (MIR): computing its rows for batches before its store existed.

These batches are its *gaps*. A joined row (combination) belongs to a gap if its last-arriving
member does (``semantics.md``, coverage rule). All its members arrived up to the last gap's end,
before the backfill began. So one member is chosen as the start, and its stored rows probe the other
members' rows of these batches, in any order of arrival. Each combination has one tuple of the
start, and each row of the start is in one slice, so each combination is found once.

Until the last slice has committed, probes still join the MIR's inputs for the gaps. The computed
segments are kept separate from the store's, so that nothing reads them, and are added to the store
all at once. Meanwhile they are merged among themselves, beside the batches (``driver.compactor``).
They are dropped if the store closes before, or if the ruleset no longer has the backfill. Input
rows that expire during a backfill are neither needed by an active query nor visible to a later one
(``lifecycle._activate``). The expiry of combinations is recorded as in any store
(``expired_below``).

All inputs of a slice are in the manifest, so a repeated batch computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch_contract.plans.ruleset import BackfillRule, Ruleset
from anabranch_contract.queries.joins import Relation, RelationId
from anabranch_runtime.epochs.access import (
    Generations,
    containers,
    known_attributes,
    relation_tiles,
    stored_in,
)
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.state.coverage import Interval, tile
from anabranch_runtime.state.derived import Matching
from anabranch_runtime.state.manifest import State, StoreState
from anabranch_runtime.state.slices import Backfill, Slice, Throttle, cut
from anabranch_runtime.traced import changed

#: The stores with a backfill, running or failed.
_backfilled = Matching[StoreState](lambda store: store.backfill is not None)


def begin(state: State, ruleset: Ruleset, throttle: Throttle) -> State:
    """Begin a backfill that the ruleset requests, unless one is running.

    Only one store is backfilled at a time, the join with the fewest inputs first, because backfills
    of larger joins can then use it.
    """
    rules = {rule.store: rule for rule in ruleset.backfill_rules}
    ended = {
        name: replace(state.stores[name], backfill=None)
        for name in _backfilled.of(state.stores)
        if name not in rules or state.stores[name].open_since is None
    }
    state = replace(state, stores=changed(state.stores, ended))
    if _running(state) is not None:
        return state
    relations = {r.id: r for r in ruleset.relations}
    # Valid for the whole loop, as it has base stores only, and only stores of joins change below.
    generations = Generations(state)
    for rule in sorted(rules.values(), key=lambda r: (len(r.steps), r.store)):
        if state.stores[rule.store].backfill is not None:
            continue
        begun = _begun(state, rule, relations, throttle, generations)
        if begun is None:
            continue
        state = replace(state, stores=changed(state.stores, {rule.store: begun}))
        if begun.backfill is not None:
            break
    return state


def gaps(
    state: State,
    store: str,
    relations: dict[RelationId, Relation],
    generations: Generations | None = None,
) -> tuple[Interval, ...]:
    """Return the batches for which the inputs of a materialized join all have stored rows, but
    ``store`` has none.

    ``generations``: an index over ``state`` that callers with many stores pass.
    """
    spec = state.stores[store].spec
    now = state.next_batch
    known = generations or Generations(state)
    first = max(known.first_batch(relations[r]) for r in spec.relations)
    covers = [(name, one.covers(now)) for name, one in containers(state, store)]
    _, left = tile([(first, now)] if first <= now else [], covers)
    return tuple(sorted(left))


def next_slice(state: State, ruleset: Ruleset) -> Slice | None:
    """Return the next batch's slice of the running backfill; None if none is running."""
    running = _running(state)
    if running is None:
        return None
    name, found = running
    relations = {r.id: r for r in ruleset.relations}
    rule = found.rule
    reach = (0, found.gaps[-1][1])
    return Slice(
        store=name,
        rule=rule,
        gaps=found.gaps,
        sources=cut(found.sources, found.rows)[0],
        fill=tuple(
            relation_tiles(
                state, relations[step.relation], reach, step.store, known_attributes(step.key)
            )
            for step in rule.steps
        ),
    )


def advance(
    state: State,
    done: Slice | None,
    reports: Sequence[TaskReport],
    seconds: float,
    throttle: Throttle,
) -> State:
    """Update the backfill by the slice ``done`` that a batch of ``seconds`` has computed."""
    if done is None:
        return state
    store = state.stores[done.store]
    before = store.backfill
    if before is None:
        raise ValueError(f"store {done.store} has no backfill to advance")
    failed = next((r.backfill.failed for r in reports if r.backfill.failed), "")
    if failed:
        given_up = replace(before, sources=(), segments=(), failed=failed)
        return replace(
            state, stores=changed(state.stores, {done.store: replace(store, backfill=given_up)})
        )
    fresh = [s for r in reports for s in r.backfill.segments]
    taken = max((r.phases.get("backfill", 0.0) for r in reports), default=0.0)
    after = replace(
        before,
        sources=cut(before.sources, done.rows)[1],
        rows=throttle.rows(before.rows, taken, max(seconds - taken, 0.0)),
        segments=(*before.segments, *fresh),
    )
    ended = replace(store, backfill=after) if after.sources else _ended(store, after)
    return replace(state, stores=changed(state.stores, {done.store: ended}))


def progress(state: State) -> dict[str, float]:
    """Return store -> completed fraction of its backfill; empty if none is running."""
    running = _running(state)
    return {} if running is None else {running[0]: running[1].done}


def _running(state: State) -> tuple[str, Backfill] | None:
    """Return the running backfill and its store's name; None if none is running."""
    for name in _backfilled.of(state.stores):
        backfill = state.stores[name].backfill
        if backfill is not None and not backfill.failed:
            return name, backfill
    return None


def _begun(
    state: State,
    rule: BackfillRule,
    relations: dict[RelationId, Relation],
    throttle: Throttle,
    generations: Generations,
) -> StoreState | None:
    """Return the store with a backfill begun, or complete if no rows are missing; None: no gaps."""
    store = state.stores[rule.store]
    found = gaps(state, rule.store, relations, generations)
    if not found:
        return None
    at = store.spec.members.index(rule.start)
    start = relations[store.spec.relations[at]]
    sources = stored_in(state, start, (0, found[-1][1]))
    rows = sum(s.rows for s in sources)
    backfill = Backfill(rule, found, sources, rows, throttle.first)
    return replace(store, backfill=backfill) if sources else _ended(store, backfill)


def _ended(store: StoreState, backfill: Backfill) -> StoreState:
    """Return the store with the segments and batches of its finished backfill added."""
    intervals: list[Interval] = []
    for low, high in sorted((*store.intervals, *backfill.gaps)):
        if intervals and intervals[-1][1] + 1 == low:
            intervals[-1] = (intervals[-1][0], high)
        else:
            intervals.append((low, high))
    since = store.open_since
    if intervals and since is not None and intervals[-1][1] + 1 == since:
        since = intervals.pop()[0]
    return replace(
        store,
        intervals=tuple(intervals),
        open_since=since,
        segments=(*store.segments, *backfill.segments),
        backfill=None,
    )
