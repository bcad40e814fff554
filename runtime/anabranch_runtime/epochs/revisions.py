"""Revisions: replacing the running ruleset (execution plan) within an epoch.

A revision changes the probe orders over the same stores. A store that the revision names continues;
one that it omits is closed before the next batch. Nothing else about the epoch may change, such as
its queries and the tuples visible to them. A backfill continues if its store does.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.partial import check_kept
from anabranch_contract.plans.ruleset import Ruleset, StoreRule, StoreSpec, arrival_edge
from anabranch_contract.protocol.measurements import JoinSample
from anabranch_runtime.epochs.lifecycle import close_store
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.state.manifest import State


def check_revision(running: Ruleset, revision: Ruleset) -> None:
    """Check that ``revision`` can replace ``running`` between two batches.

    Raises:
        PipelineError: ``revision-differs``: it revises another ruleset, or has other queries,
            streams or relations. ``revision-stores-differ``: it has a store that ``running`` lacks,
            or lacks a store for arriving tuples. ``revision-upkeep-differs``: it does not maintain
            an intermediate result exactly once from all tuples with kept values, or tuples may
            probe it for excluded values.
    """
    name = revision.id
    if name.epoch != running.epoch or name <= running.id:
        raise _refused("revision-differs", f"{name} is not a revision of {running.id}")
    for part in ("queries", "streams", "relations", "derived", "sketches", "latest_rules"):
        if getattr(revision, part) != getattr(running, part):
            raise _refused("revision-differs", f"{name} has other {part} than {running.id}")
    there = {s.id: _kept(s) for s in running.stores}
    for store in revision.stores:
        if there.get(store.id) != _kept(store):
            raise _other_stores(f"{running.id} has no such store {store.id} as {name}")
    if not set(revision.backfill_rules) <= set(running.backfill_rules):
        raise _other_stores(f"{name} has a backfill that {running.id} has not")
    if _arriving(running) != _arriving(revision):
        raise _other_stores(f"{revision.id} stores arriving tuples differently")
    try:
        check_kept(revision)
    except RulesetError as error:
        raise _refused("revision-upkeep-differs", f"{name}: {error.message}") from error


def enter_revision(state: State, ruleset: Ruleset, steps: tuple[JoinSample, ...]) -> State:
    """Return the state in which the first batch of the revision ``ruleset`` starts.

    Args:
        steps: measured input and output sizes of joins in the epoch so far.
    """
    batch, kept = state.next_batch, {str(s.id): s for s in ruleset.stores}
    stores = {
        name: replace(store, spec=kept[name]) if name in kept else close_store(store, batch)
        for name, store in state.stores.items()
    }
    measured = replace(state.measured, edges={}, epoch_steps=steps)
    return replace(state, ruleset=ruleset.id, stores=stores, measured=measured)


def _arriving(ruleset: Ruleset) -> set[StoreRule]:
    """Return the rules that store arriving tuples in base stores."""
    edges = {arrival_edge(r.id) for r in ruleset.relations}
    return {rule for rule in ruleset.store_rules if rule.edge in edges}


def _kept(store: StoreSpec) -> StoreSpec:
    """Return those parts of a store's definition that a revision may not change: all except indexes
    and hot values to spread, which affect only new rows."""
    return replace(store, indexes=(), hot=())


def _other_stores(message: str) -> PipelineError:
    return _refused("revision-stores-differ", message)


def _refused(code: str, message: str) -> PipelineError:
    return PipelineError(
        code, message, remedy="the old ruleset continues; use a service of the runtime's release"
    )
