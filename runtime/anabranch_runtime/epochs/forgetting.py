"""Pruning of the state at the start of an epoch, so that its size is bounded by the stored rows and
the running queries, not by the pipeline's age or the number of queries that have ended.

* **Activations** (start and counters) of queries that have ended, :data:`GRACE` epochs later: by
  then the service has copies, which it keeps as long as the query is registered. An activation
  stays while results withheld by load shedding are still owed. The two activations of an outer join
  are dropped together. A failed query's activation stays, because it excludes the query from older
  rulesets, which still name the query and may continue to run if planning fails.
* **Event times and counts by batch** of a stream (``StreamState.history``, ``admitted``). They are
  needed only at the first batch of each store's interval, to find the tuples visible to an
  activation (``lifecycle``), so one entry for each of these batches is kept.
* **Counts, sketches and frequent values** of relations without rules and stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.queries.outer_joins import registered
from anabranch_runtime.state.manifest import State, StoreState, StreamState

#: Number of epochs for which an ended query's activation (start and counters) is kept.
GRACE = 8


def forget(state: State, ruleset: Ruleset) -> State:
    """Drop entries of ``state`` that will never be read again; at the start of an epoch."""
    relations = {str(r.id) for r in ruleset.relations}
    for store in state.stores.values():
        relations |= {str(r) for r in store.spec.relations}
    return replace(
        state,
        queries=_queries(state, ruleset),
        streams={name: _stream(name, one, state.stores) for name, one in state.streams.items()},
        measured=state.measured.of_relations(relations),
    )


def _queries(state: State, ruleset: Ruleset) -> dict[str, Activation]:
    if len(state.epoch_starts) < GRACE:
        return state.queries
    since = state.epoch_starts[-GRACE][1]
    needed = {registered(str(q.id)) for q in ruleset.queries}
    needed |= {registered(str(q)) for q in state.debt.queries | state.debt.past}
    for name, one in state.queries.items():
        waits = one.owed or (one.past is not None and one.past.pending)
        if one.expired_batch is None or one.expired_batch >= since or one.failure or waits:
            needed.add(registered(name))
    return {name: one for name, one in state.queries.items() if registered(name) in needed}


def _stream(name: str, stream: StreamState, stores: Mapping[str, StoreState]) -> StreamState:
    kept: set[tuple[int, int | None]] = set()
    admitted: set[tuple[int, int]] = set()
    for store in stores.values():
        if store.streams != (name,):
            continue
        starts = {first for first, _ in store.intervals}
        if store.open_since is not None:
            starts.add(store.open_since)
        for first in starts - {0}:
            # Keep the entries that StreamState.max_tau_before and admitted_before read.
            kept.update([entry for entry in stream.history if entry[0] >= first][:1])
            admitted.update([entry for entry in stream.admitted if entry[0] >= first][:1])
    return replace(
        stream,
        history=tuple(sorted(kept, key=lambda entry: entry[0])),
        admitted=tuple(sorted(admitted)),
    )
