"""Removal of failed queries after a batch, which stays complete for all others.

A task that can't evaluate an expression skips the work that depends on it and reports the failed
queries (``expressions.failures``). Nothing has to be run again: the skipped work serves failed
queries only (``ownership``). So the driver withdraws their results of the batch, closes the stores
that only they need as of the batch before, and commits both with the batch. A crash before that
leaves nothing behind, and the repeated batch meets the same tuples and so the same failures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.activations import Failure
from anabranch_contract.queries.outer_joins import registered
from anabranch_runtime.epochs.lifecycle import keep_latest
from anabranch_runtime.epochs.ownership import without
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.state.manifest import State, StoreState


def failed(state: State) -> frozenset[str]:
    """The queries that have failed so far."""
    return frozenset(name for name, q in state.queries.items() if q.failure is not None)


def surviving(ruleset: Ruleset, state: State) -> Ruleset:
    """``ruleset`` as ``state`` has stores for it: less the queries that have failed so far."""
    return without(ruleset, failed(state))


def withdraw(reports: Sequence[TaskReport], ruleset: Ruleset) -> dict[str, Failure]:
    """Take the results of failed queries out of ``reports``; why they failed, by query.

    Where tasks have met several failures of one query, the first task's counts. All joins that an
    outer join is made of fail together.
    """
    found: dict[str, Failure] = {}
    for report in reports:
        for query, failure in report.failures.items():
            found.setdefault(query, failure)
    whole = {registered(query): failure for query, failure in reversed(found.items())}
    for spec in ruleset.queries:
        if (name := registered(spec.id)) in whole:
            found.setdefault(spec.id, whole[name])
    for report in reports:
        for query in found:
            report.results.pop(query, None)
            report.files.pop(query, None)
            report.rations.caught_up.pop(query, None)
    return found


def take_out(state: State, ruleset: Ruleset, failures: Mapping[str, Failure]) -> State:
    """The state after a batch in which queries failed.

    Args:
        state: after the batch, as its reports had it.
        ruleset: the batch's ruleset.
        failures: query -> why.
    """
    batch = state.next_batch - 1
    rest = without(ruleset, frozenset(failures))
    gone = {s.id for s in ruleset.stores} - {s.id for s in rest.stores}
    return replace(
        keep_latest(state, rest),
        queries={
            name: replace(q, expired_batch=batch, failure=failures[name]) if name in failures else q
            for name, q in state.queries.items()
        },
        stores={
            name: _closed(store, batch) if name in gone else store
            for name, store in state.stores.items()
        },
    )


def _closed(store: StoreState, batch: int) -> StoreState:
    """``store`` as it was before ``batch``, whose rows may be incomplete."""
    since = store.open_since
    covered = ((since, batch - 1),) if since is not None and since < batch else ()
    return replace(
        store,
        intervals=(*store.intervals, *covered),
        open_since=None,
        segments=tuple(s for s in store.segments if s.last_batch < batch),
        backfill=None,
    )
