"""Tests that the state forgets ended queries and old counts when epochs begin, and nothing still
needed.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from anabranch_contract.protocol.activations import Activation, Failure, PastResults
from anabranch_runtime.epochs.forgetting import GRACE, forget
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.state.manifest import State, StoreState
from anabranch_runtime.state.values import KeyValues
from tests.support.cases.states import MINUTE, RS, ST, measuring, rules

ENDED = Activation(0, {}, expired_batch=1)
#: Epoch and its first batch: one batch per epoch, with equal numbers.
STARTS = tuple((n, n) for n in range(20))


def state_of(**queries: Activation) -> State:
    return replace(State(next_batch=20, epoch=19, epoch_starts=STARTS), queries=queries)


def test_activations_go_some_epochs_after_they_have_ended() -> None:
    known = {f"q{n}": replace(ENDED, expired_batch=n) for n in range(20)}
    found = forget(state_of(**known), rules(19, {"p": RS})).queries
    assert sorted(found) == sorted(f"q{n}" for n in range(20 - GRACE, 20))
    few = replace(state_of(**known), epoch_starts=STARTS[: GRACE - 1])
    assert len(forget(few, rules(19, {"p": RS})).queries) == 20


@pytest.mark.parametrize(
    "one",
    [
        replace(ENDED, expired_batch=None),
        replace(ENDED, owed=0.5),
        replace(ENDED, past=PastResults()),
        replace(ENDED, failure=Failure("code", "message", "1/0", 1)),
    ],
    ids=["active", "owed", "past", "failed"],
)
def test_activations_stay_while_they_are_needed(one: Activation) -> None:
    assert forget(state_of(q=one), rules(19, {"p": RS})).queries == {"q": one}


def test_what_is_planned_stays_and_joins_of_an_outer_join_go_together() -> None:
    assert list(forget(state_of(q=ENDED), rules(19, {"q": RS})).queries) == ["q"]
    pair = {"q": replace(ENDED, owed=1.0), "q+left": ENDED}
    assert list(forget(state_of(**pair), rules(19, {"p": RS})).queries) == ["q", "q+left"]


def test_counts_of_relations_that_nothing_is_about_go() -> None:
    state = enter_epoch(State(), rules(0, {"q": RS}), 0)
    relations = {str(r) for store in state.stores.values() for r in store.spec.relations}
    known = dict.fromkeys([*relations, "elsewhere"], 3)
    sketches: dict[str, dict[str, str]] = {name: {"a": ""} for name in [*known, "store:R/1"]}
    values = {name: {"a": KeyValues(3)} for name in known}
    state = measuring(state, arrivals=known, sketches=sketches, values=values)
    found = forget(state, rules(1, {})).measured
    # Their stores still exist.
    assert found.arrivals == dict.fromkeys(relations, 3)
    assert set(found.sketches) == {*relations, "store:R/1"}
    assert set(found.values) == relations
    assert forget(replace(state, stores={}), rules(1, {})).measured.arrivals == {}


@pytest.mark.parametrize("seed", range(10))
def test_what_later_queries_see_is_the_same(seed: int) -> None:
    """Queries come and go at random; the pruned state answers as the complete one does."""
    chance = random.Random(seed)
    whole = kept = State()
    names: dict[str, str] = {}
    for epoch in range(40):
        for name in [n for n in names if chance.random() < 0.4]:
            del names[name]
        if chance.random() < 0.6:
            names[f"q{epoch}"] = chance.choice([RS, ST])
        ruleset = rules(epoch, names)
        whole = _going_on(enter_epoch(whole, ruleset, epoch), 100 * seed + epoch)
        entered = forget(enter_epoch(kept, ruleset, epoch), ruleset)
        kept = _going_on(entered, 100 * seed + epoch)
        assert kept.queries.items() <= whole.queries.items()
        assert all(kept.queries[name] == whole.queries[name] for name in names)
        for name, stream in kept.streams.items():
            stores = [store for store in kept.stores.values() if store.streams == (name,)]
            firsts = {first for s in stores for first, _ in s.covers(kept.next_batch)} - {0}
            # One entry of each store that existed when the epoch began.
            assert len(stream.history) <= sum(
                len(s.covers(entered.next_batch)) for s in entered.stores.values()
            )
            for first in firsts:
                found = stream.max_tau_before(first)
                assert found == whole.streams[name].max_tau_before(first)
    assert len(kept.queries) < len(whole.queries)


def _going_on(state: State, seed: int) -> State:
    """Return ``state`` some batches later; closed stores are sometimes dropped, or expire."""
    chance = random.Random(seed)
    batches = chance.randint(0, 3)
    streams = {
        name: replace(
            s,
            max_tau=max(s.max_tau or 0, chance.randint(0, seed % 100) * MINUTE),
            input=s.input + 5,
            began=s.began if s.input else state.next_batch,
        )
        for name, s in state.streams.items()
        if batches
    }

    def aged(store: StoreState) -> StoreState:
        if chance.random() < 0.8:
            return store
        return replace(store, expired_below=(chance.randint(1, 30) * MINUTE,))

    stores = {
        name: aged(store)
        for name, store in sorted(state.stores.items())
        if store.open_since is not None or chance.random() < 0.7
    }
    state = replace(
        state, next_batch=state.next_batch + batches, streams={**state.streams, **streams}
    )
    return state.with_stores(stores)
