"""Tests that segments and stores are dropped, and that the horizons of dropped segments are
remembered.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from anabranch_contract.plans.rations import Ranking
from anabranch_contract.queries.joins import QueryId
from anabranch_runtime.epochs import retention
from anabranch_runtime.epochs.access import accesses
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.epochs.retention import (
    drop_unused,
    expire,
    needed_from,
    watermarks,
)
from anabranch_runtime.state.debt import Debt, OwedBatches, OwedGoal
from anabranch_runtime.state.manifest import State, StoreState
from tests.support.cases.states import (
    MINUTE,
    RS,
    ST,
    R,
    S,
    T,
    base_store,
    mir_store,
    rules,
    segment,
    stream,
)
from tests.support.oracles.retention import horizons, thresholds

RST = "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b"


def at(state: State, **greatest: int) -> State:
    streams = {n: replace(s, max_tau=greatest.get(n, s.max_tau)) for n, s in state.streams.items()}
    return replace(state, streams=streams, next_batch=20)


def with_segments(state: State, store: str, *spans: tuple[int, int]) -> State:
    """Return ``state`` with one segment in ``store`` per (smallest, greatest) event time."""
    found = tuple(segment(store, (i, i), tau=[span]) for i, span in enumerate(spans))
    return replace(
        state, stores={**state.stores, store: replace(state.stores[store], segments=found)}
    )


def test_a_horizon_is_the_other_streams_watermark_less_the_bound() -> None:
    one = rules(0, {"q": RS}, window=10 * MINUTE)
    assert horizons(one, {"R": 100 * MINUTE, "S": 70 * MINUTE}) == {
        ("q", "R"): 60 * MINUTE,
        ("q", "S"): 90 * MINUTE,
    }


def test_the_slowest_of_the_others_holds_a_tuple_back() -> None:
    three = rules(0, {"q": RST}, window=10 * MINUTE)
    marks = {"R": 100 * MINUTE, "S": 70 * MINUTE, "T": 30 * MINUTE}
    assert horizons(three, marks)["q", "R"] == 20 * MINUTE
    assert horizons(three, {"R": 1, "S": 1})["q", "R"] is None


def test_no_bound_and_no_watermark_keep_for_ever() -> None:
    assert set(horizons(rules(0, {"q": RS}), {"R": 9, "S": 9}).values()) == {None}
    never_late = (stream("R", "a", lateness=None), S, T)
    state = at(enter_epoch(State(), rules(0, {"q": RS}, streams=never_late), 0), R=9, S=9)
    assert watermarks(state) == {"S": 9}


def test_segments_below_the_horizon_go_and_are_remembered() -> None:
    known = rules(0, {"q": RS}, window=10 * MINUTE)
    state = at(enter_epoch(State(), known, 0), R=100 * MINUTE, S=70 * MINUTE)
    state = with_segments(state, "R/1", (0, 5), (3, 60 * MINUTE - 1), (9, 60 * MINUTE))

    found = expire(state, known).stores["R/1"]

    assert [s.first_batch for s in found.segments] == [2]
    assert found.expired_below == (60 * MINUTE,)


def test_what_one_query_keeps_is_kept() -> None:
    known = rules(0, {"q": RS}, window=10 * MINUTE)
    for_ever = rules(0, {"q": RS, "p": RS})
    state = at(enter_epoch(State(), known, 0), R=100 * MINUTE, S=70 * MINUTE)
    state = with_segments(state, "R/1", (0, 5))

    assert expire(state, for_ever) is state
    assert expire(state, known).stores["R/1"].segments == ()


def test_a_query_of_one_stream_needs_nothing_stored() -> None:
    both = rules(0, {"q": RS, "one": "SELECT R.a FROM R"}, window=10 * MINUTE)
    marks = {"R": 100 * MINUTE, "S": 70 * MINUTE}
    assert ("one", "R") not in horizons(both, marks)
    state = at(enter_epoch(State(), both, 0), **marks)
    state = with_segments(state, "R/1", (0, 5), (9, 60 * MINUTE))
    assert [s.first_batch for s in expire(state, both).stores["R/1"].segments] == [1]


def test_a_store_that_nobody_reads_is_not_expired() -> None:
    known = rules(0, {"q": RS}, window=10 * MINUTE)
    state = at(enter_epoch(State(), known, 0), R=100 * MINUTE, S=70 * MINUTE)
    unread = base_store("T", ((0, 3),), segments=[segment("T/1", (0, 0), tau=[(0, 1)])])
    state = replace(state, stores={**state.stores, "T/1": unread})

    assert expire(state, known).stores["T/1"] == unread


def test_a_combination_goes_with_its_first_member_that_is_of_no_more_use() -> None:
    known = rules(0, {"q": RST}, window=10 * MINUTE)
    state = at(enter_epoch(State(), known, 0), R=100 * MINUTE, S=100 * MINUTE, T=100 * MINUTE)
    fresh, old = (99 * MINUTE, 100 * MINUTE), (0, 80 * MINUTE)
    kept = segment("ST", (0, 0), tau=[fresh, fresh])
    gone = segment("ST", (1, 1), tau=[fresh, old])
    store = mir_store("ST", ("S", "T"), (), since=0, segments=[kept, gone])
    state = replace(state, stores={**state.stores, "ST": store})

    found = expire(state, known).stores["ST"]

    assert found.segments == (kept,)
    assert found.expired_below == (100 * MINUTE + 1, 80 * MINUTE + 1)


def test_segments_without_event_times_stay() -> None:
    streams = (stream("R", "a", timed=False), S, T)
    known = rules(0, {"q": RS}, streams=streams)
    state = at(enter_epoch(State(), known, 0), S=100 * MINUTE)
    stored = segment("R/1", (0, 0))
    state = replace(
        state, stores={**state.stores, "R/1": replace(state.stores["R/1"], segments=(stored,))}
    )
    assert expire(state, known).stores["R/1"].segments == (stored,)


def test_unused_generations_are_dropped_and_needed_ones_kept() -> None:
    state = replace(enter_epoch(State(), rules(0, {"q": RS}), 0), next_batch=4)
    past = base_store("S", ((0, 3),), partition=[["S", "b"], "bigint"])
    spare = mir_store("ST", ("S", "T"), ((0, 3),))
    older = replace(state.stores["S/1"], open_since=4)
    state = replace(state, stores={**state.stores, "S/1": older, "S[b]": past, "ST": spare})
    known = rules(1, {"q": RS})
    state = enter_epoch(state, known, 1)

    kept = drop_unused(state, known, accesses(state, known)).stores

    # The copy by b has batches that the current one lacks; no rule probes ST.
    assert set(kept) == {"R/1", "S/1", "S[b]"}
    none = rules(2, {})
    empty = drop_unused(enter_epoch(state, none, 2), none, {})
    assert empty.stores == {}


def test_two_queries_read_two_streams_each() -> None:
    known = rules(0, {"q": RS, "p": ST}, window=MINUTE)
    marks = {str(s.name): 10 * MINUTE for s in (R, S, T)}
    assert set(horizons(known, marks)) == {("q", "R"), ("q", "S"), ("p", "S"), ("p", "T")}


def test_a_ttl_bounds_what_no_window_does() -> None:
    streams = (replace(R, ttl=10 * MINUTE), S, T)
    known = rules(0, {"q": RS, "p": ST}, streams=streams)
    state = at(enter_epoch(State(), known, 0), R=100 * MINUTE, S=70 * MINUTE, T=70 * MINUTE)
    state = with_segments(state, "R/1", (0, 5), (3, 60 * MINUTE - 1), (9, 60 * MINUTE))
    state = with_segments(state, "S/1", (0, 5))

    found = expire(state, known)

    assert [s.first_batch for s in found.stores["R/1"].segments] == [2]
    assert found.stores["R/1"].expired_below == (60 * MINUTE,)
    # S has no ttl, so its stored rows may join forever.
    assert found.stores["S/1"] == state.stores["S/1"]


def test_thresholds_are_those_of_every_query_and_member_by_itself() -> None:
    drawn = Random(5)
    for _ in range(25):
        known = rules(
            0,
            {f"q{n}": _query(drawn) for n in range(drawn.randint(1, 6))},
            window=drawn.choice([None, MINUTE, 10 * MINUTE]),
            streams=(R, replace(S, ttl=drawn.choice([None, 5 * MINUTE])), T),
        )
        entered = enter_epoch(State(), known, 0)
        times = {n: drawn.randrange(100) * MINUTE for n in "RST" if drawn.random() < 0.8}
        asked = tuple(q.id for q in known.queries if drawn.random() < 0.2)
        past = OwedBatches(0, 0, tuple(map(_goal, asked)), {}, past=True)
        state = at(entered, **times)
        for debt in (Debt(), Debt((past,))):
            owing = replace(state, debt=debt)
            needed = needed_from(owing, known)
            for store in (*state.stores.values(), mir_store("ST", ("S", "T"), ())):
                found = None if needed is None else needed(store)
                assert found in (None, thresholds(owing, known, store))
                assert found is not None or set(thresholds(owing, known, store)) == {None}


def _goal(query: QueryId) -> OwedGoal:
    return OwedGoal(query, "S", 1.0, Ranking((), by_batch=True))


def _query(drawn: Random) -> str:
    joined = drawn.choice(
        [
            "R JOIN S ON R.a = S.a",
            "S JOIN T ON S.b = T.b",
            "R JOIN S ON R.a = S.a JOIN T ON S.b = T.b",
            "S",
        ]
    )
    where = drawn.choice(["", " WHERE S.b > 3", " WHERE S.b > 3 AND S.a < 5", " WHERE S.a < 5"])
    return f"SELECT S.b FROM {joined}{where}"


def test_expiry_after_batches_equals_expiry_of_every_store() -> None:
    for seed in range(40):
        draw = Random(seed)
        known = rules(0, {"q": RST, "p": RS}, window=10 * MINUTE)
        state, marks = at(enter_epoch(State(), known, 0), R=0, S=0, T=0), dict.fromkeys("RST", 0)
        for _ in range(12):
            moved = draw.sample("RST", draw.randrange(3))
            marks |= {name: marks[name] + draw.randrange(15) * MINUTE for name in moved}
            state = at(state, **marks)
            for name in draw.sample(sorted(state.stores), draw.randrange(3)):
                store = state.stores[name]
                newest = draw.randrange(-20, 5) * MINUTE + max(marks.values())
                fresh = segment(name, (3, 3), tau=[(newest - 1, newest)] * len(store.streams))
                grown = replace(store, segments=(*store.segments, fresh))
                state = replace(state, stores={**state.stores, name: grown})
            debt = Debt()
            if draw.random() < 0.2:
                debt = Debt((OwedBatches(2, 3, (), dict.fromkeys("RST", 0)),))
            state = replace(state, debt=debt)
            # An equal ruleset that is another object remembers no expiry.
            whole = expire(state, replace(known))
            state = expire(state, known)
            assert state == whole


def test_a_store_without_changes_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    known = rules(0, {"q": RS, "p": ST}, window=10 * MINUTE)
    state = at(enter_epoch(State(), known, 0), R=0, S=0, T=0)
    state = expire(with_segments(state, "R/1", (0, 5)), known)
    seen = []

    def counted(store: StoreState, *others: Any) -> StoreState:
        seen.append(store.streams)
        return store

    monkeypatch.setattr(retention, "_expire_store", counted)
    assert expire(state, known) is state
    assert not seen
    expire(at(state, T=MINUTE), known)
    # Rows of S expire by the watermarks of R and T, rows of R by that of S.
    assert seen == [("S",)]
