"""Updates of the maintained tables in the durable state; pure functions, except that
:func:`entered` writes a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from anabranch_contract.plans.ruleset import QuerySpec, Ruleset
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.queries.outer_joins import registered
from anabranch_runtime.epochs.per_ruleset import per_ruleset
from anabranch_runtime.epochs.retention import clocks
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.expressions.finishing import with_counts
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.tables import HeldTable, Round, TablesState
from anabranch_runtime.storage.segment import Segment
from anabranch_runtime.views.checkpoints import KeptTable
from anabranch_runtime.views.clock import branches, clock_of
from anabranch_runtime.views.keeper import TablesStatus

#: Function that writes a checkpoint of tables (``checkpoints.write_checkpoint``).
Write = Callable[[int, Sequence[KeptTable]], Segment]


@per_ruleset
def post_joins(ruleset: Ruleset) -> dict[str, QuerySpec]:
    """Return the ruleset's queries with post-join parts, by name."""
    return {str(q.id): q for q in ruleset.queries if q.has_post_join and q.registered == q.id}


def entered(state: State, ruleset: Ruleset, first: int, write: Write) -> State:
    """Return ``state`` with a table for each new query of ``ruleset`` that has a post-join part;
    the tables are in a new checkpoint.

    Args:
        first: the first batch whose joined rows the new tables include.
    """
    tables = state.tables
    fresh = [q for name, q in post_joins(ruleset).items() if name not in tables.held]
    if not fresh:
        return state
    begun = [KeptTable(_with_counts(q), first) for q in fresh]
    checkpoint = write(first, begun)
    names = [str(q.id) for q in fresh]
    held = tables.held | dict.fromkeys(names, HeldTable(checkpoint.path, first))
    counts = {name: known for name, known in tables.counts.items() if name not in names}
    checkpoints = (*tables.checkpoints, checkpoint)
    return replace(state, tables=replace(tables, checkpoints=checkpoints, held=held, counts=counts))


def with_round(state: State, ruleset: Ruleset, reports: Iterable[TaskReport], now: int) -> State:
    """Return ``state`` (after a batch) with the batch's round (its joined rows) added, if any.

    Args:
        ruleset: the batch's ruleset, without queries that have failed.
        now: the batch's time, in microseconds since 1970.
        reports: the task reports of the batch, without results of queries that have failed.
    """
    queries = post_joins(ruleset)
    if not queries:
        return state
    marks, known = clocks(state), state.queries
    moved = {
        name: clock
        for name, query in queries.items()
        if query.outer is not None and not query.outer.look_ups
        if not _waits_for_past(known.get(name))
        if (clock := clock_of(query, ruleset, marks)) is not None
    }
    rows, feeds = list[Segment](), dict[str, tuple[str, ...]]()
    for report in reports:
        rows += report.joined
        feeds |= report.feeds
    last = state.tables.rounds[-1] if state.tables.rounds else None
    rolling = any(q.view is not None and q.view.limits for q in queries.values())
    now = max(now, state.tables.now) if rolling else 0
    if not rows and not rolling and (not moved or (last is not None and last.clocks == moved)):
        return state
    partial = {registered(name) for name, one in known.items() if one.incomplete}
    missing = {
        name: replace(one, earlier=())
        for name, one in known.items()
        if (whole := registered(name)) in partial and whole in queries
    }
    batch = Round(state.next_batch - 1, tuple(rows), feeds, moved, missing, now)
    tables = replace(state.tables, now=max(now, state.tables.now))
    return _with(state, replace(tables, rounds=(*tables.rounds, batch)))


def window_clocks(state: State, ruleset: Ruleset) -> dict[str, int]:
    """Return view -> lower limit of the event times of future joined rows, in microseconds."""
    marks = clocks(state)
    return {
        name: clock
        for name, query in post_joins(ruleset).items()
        if query.view is not None and query.view.window is not None
        if query.outer is None or query.outer.look_ups
        if not any(_waits_for_past(state.queries.get(q.id)) for q in branches(query, ruleset))
        if (clock := clock_of(query, ruleset, marks)) is not None
    }


def settled(state: State, status: TablesStatus) -> State:
    """Return ``state`` updated by the keeper's ``status``: with output counts and a new checkpoint,
    without tables of ended queries. Rounds that all tables' checkpoints include are dropped."""
    tables = state.tables
    counts = {n: c for n, c in status.counts.items() if tables.counts.get(n) != c}
    found = replace(tables, counts=tables.counts | counts) if counts else tables
    made = status.checkpoint
    if made is not None:
        held = dict(found.held)
        held |= {n: HeldTable(made.segment.path, made.next) for n in made.written if n in held}
        held |= {n: replace(held[n], next=made.next) for n in made.unchanged if n in held}
        found = replace(found, held=held, checkpoints=(*found.checkpoints, made.segment))
    if status.ended:
        held = {n: one for n, one in found.held.items() if n not in status.ended}
        found = replace(found, held=held)
    return state if found is tables else _with(state, _without_spent(found))


def _without_spent(tables: TablesState) -> TablesState:
    named = {held.pack for held in tables.held.values()}
    oldest = min((held.next for held in tables.held.values()), default=None)
    return replace(
        tables,
        checkpoints=tuple(c for c in tables.checkpoints if c.path in named),
        rounds=tuple(r for r in tables.rounds if oldest is not None and r.batch >= oldest),
    )


def _with(state: State, tables: TablesState) -> State:
    return replace(state, tables=tables)


def _with_counts(query: QuerySpec) -> QuerySpec:
    return query if query.view is None else replace(query, view=with_counts(query.view))


def _waits_for_past(known: Activation | None) -> bool:
    """Whether past results of any age are still to be computed, so that no window can close."""
    return known is not None and known.past is not None and known.past.pending
