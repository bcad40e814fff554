"""Removal of failed queries after a batch; the batch stays complete for all other queries.

A task that can't evaluate an expression skips the work that depends on it and reports the failed
queries (``expressions.failures``). No work is repeated, because the skipped work serves failed
queries only (``ownership``). The driver removes the failed queries' results of the batch. It closes
the stores that only failed queries need; the previous batch is their last. Both changes commit with
the batch. If a crash prevents this commit, the repeated batch has the same tuples and so the same
failures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.activations import Activation, Failure
from anabranch_contract.queries.outer_joins import registered
from anabranch_runtime.epochs.lifecycle import keep_latest
from anabranch_runtime.epochs.ownership import without
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.state.derived import Matching
from anabranch_runtime.state.manifest import State, StoreState

_failed = Matching[Activation](lambda query: query.failure is not None)


def failed(state: State) -> frozenset[str]:
    """Return the queries that failed expressions have ended, as recorded in ``state``."""
    return _failed.of(state.queries)


def surviving(ruleset: Ruleset, state: State) -> Ruleset:
    """Return ``ruleset`` without the queries that have failed so far, as recorded in ``state``."""
    return without(ruleset, failed(state))


def withdraw(reports: Sequence[TaskReport], ruleset: Ruleset) -> dict[str, Failure]:
    """Remove the results of failed queries from ``reports``; returns query -> failure.

    If several tasks report a failure of one query, the first task's is returned. All joins that
    make up an outer join fail together.
    """
    found: dict[str, Failure] = {}
    for report in reports:
        for query, failure in report.failures.items():
            found.setdefault(query, failure)
    whole = {registered(query): failure for query, failure in reversed(found.items())}
    for spec in ruleset.queries if whole else ():
        if (name := registered(spec.id)) in whole:
            found.setdefault(spec.id, whole[name])
    for report in reports:
        for query in found:
            report.results.pop(query, None)
            report.files.pop(query, None)
            report.joined = [s for s in report.joined if s.store != query]
        if found:
            report.feeds = {
                join: tuple(q for q in readers if q not in found)
                for join, readers in report.feeds.items()
            }
            report.rations.caught_up.pop(query, None)
    return found


def take_out(state: State, ruleset: Ruleset, failures: Mapping[str, Failure]) -> State:
    """Record failed queries in the state after a batch, and close stores that only these need.

    Args:
        state: the state after the batch, as computed from the task reports.
        ruleset: the batch's ruleset.
        failures: query -> its failure.
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
    """Close ``store`` before ``batch``; its rows of ``batch`` may be incomplete and are dropped."""
    since = store.open_since
    covered = ((since, batch - 1),) if since is not None and since < batch else ()
    return replace(
        store,
        intervals=(*store.intervals, *covered),
        open_since=None,
        segments=tuple(s for s in store.segments if s.last_batch < batch),
        backfill=None,
    )
