"""Tests of entering epochs: stores open, close and open again; which tuples queries may see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.activations import Failure, Visibility
from anabranch_contract.queries.joins import QueryId, Stream
from anabranch_contract.queries.outer_joins import JoinKind, LookUp, OuterJoin
from anabranch_runtime.epochs import lifecycle
from anabranch_runtime.epochs.lifecycle import enter_epoch, serves
from anabranch_runtime.measure.state_report import state_report
from anabranch_runtime.sources.loads import Load, end_loads, with_loads
from anabranch_runtime.state.manifest import State, StreamState
from anabranch_runtime.state.offsets import Offsets
from tests.support.cases.states import (
    MINUTE,
    RS,
    ST,
    R,
    S,
    T,
    base_store,
    measuring,
    mir_store,
    rules,
    stream,
)
from tests.support.oracles.invariants import check_state


def after(state: State, batches: int, **greatest: int) -> State:
    """``state`` some batches later, in which streams had tuples up to the given event times."""
    streams = {
        name: replace(
            s,
            max_tau=greatest[name],
            input=s.input + 5,
            began=s.began if s.input else state.next_batch,
        )
        if name in greatest
        else s
        for name, s in state.streams.items()
    }
    state = replace(state, next_batch=state.next_batch + batches, streams=streams)
    check_state(state)
    return state


def test_a_store_opens_closes_and_opens_again() -> None:
    state = after(enter_epoch(State(), rules(0, {"q": RS}), 0), 3)
    assert state.stores["R/1"].covers(2) == ((0, 2),)

    state = after(enter_epoch(state, rules(1, {"p": ST}), 1), 2)
    assert state.stores["R/1"].covers(4) == ((0, 2),)
    assert state.stores["S/1"].covers(4) == ((0, 4),)
    assert state.stores["T/1"].covers(4) == ((3, 4),)

    state = after(enter_epoch(state, rules(2, {"p": ST, "q": RS}), 2), 1)
    assert state.stores["R/1"].covers(5) == ((0, 2), (5, 5))
    assert state.epoch_starts == ((0, 0), (1, 3), (2, 5))


def test_epochs_without_a_batch_leave_no_interval() -> None:
    state = enter_epoch(State(), rules(0, {"q": RS}), 0)
    state = enter_epoch(state, rules(1, {}), 1)
    state = enter_epoch(state, rules(2, {"p": RS}), 2)

    assert state.stores["R/1"].covers(0) == ((0, 0),)
    assert (state.queries["q"].activated_batch, state.queries["q"].expired_batch) == (0, 0)
    assert state.queries["p"].activated_batch == 0


def test_a_query_is_active_from_the_epoch_that_has_it_to_the_first_that_has_not() -> None:
    state = after(enter_epoch(State(), rules(0, {"q": RS}), 0), 2)
    state = after(enter_epoch(state, rules(1, {"q": RS, "p": RS}), 1), 2)
    first = state.queries["q"]
    state = enter_epoch(state, rules(2, {"p": RS}), 2)

    assert (first.activated_batch, first.expired_batch) == (0, None)
    assert state.queries["q"] == replace(first, expired_batch=4)
    assert (state.queries["p"].activated_batch, state.queries["p"].expired_batch) == (2, None)


def test_a_new_query_sees_what_is_stored_without_a_gap_up_to_now() -> None:
    state = after(enter_epoch(State(), rules(0, {"q": RS}), 0), 3, R=MINUTE, S=MINUTE, T=MINUTE)
    state = after(enter_epoch(state, rules(1, {"q": RS, "p": ST}), 1), 2)

    seen = state.queries["p"].visible_from
    assert seen == {"S": Visibility(0, None), "T": Visibility(3, None)}


def test_a_gap_hides_what_lies_before_it() -> None:
    state = after(enter_epoch(State(), rules(0, {"q": RS}), 0), 3, R=MINUTE, S=MINUTE)
    state = after(enter_epoch(state, rules(1, {}), 1), 2, R=2 * MINUTE, S=2 * MINUTE)
    state = after(enter_epoch(state, rules(2, {"q2": RS}), 2), 1, R=3 * MINUTE, S=3 * MINUTE)
    state = enter_epoch(state, rules(3, {"q2": RS, "q3": RS}), 3)

    assert {v.batch for v in state.queries["q2"].visible_from.values()} == {5}
    assert {v.batch for v in state.queries["q3"].visible_from.values()} == {5}


def test_what_has_been_expired_is_not_promised() -> None:
    state = after(enter_epoch(State(), rules(0, {"q": RS}), 0), 3, R=MINUTE, S=MINUTE)
    expired = replace(state.stores["R/1"], expired_below=(700,))
    state = replace(state, stores={**state.stores, "R/1": expired})

    state = enter_epoch(state, rules(1, {"q": RS, "p": RS}), 1)

    seen = state.queries["p"].visible_from
    assert seen == {"R": Visibility(0, 700), "S": Visibility(0, None)}


def test_complete_from_the_first_answer_where_nothing_is_out_of_sight() -> None:
    state = after(enter_epoch(State(), rules(0, {"q": RS}), 0), 3, R=MINUTE, S=MINUTE)
    state = enter_epoch(state, rules(1, {"q": RS, "p": RS}), 1)

    assert state.queries["q"].complete == "always"
    assert state.queries["p"].complete == "always"


def test_complete_once_windows_have_left_behind_what_was_missed() -> None:
    window = 10 * MINUTE
    state = after(enter_epoch(State(), rules(0, {}), 0), 3, R=5 * MINUTE, S=7 * MINUTE)
    state = enter_epoch(state, rules(1, {"p": RS}, window=window), 1)

    assert state.queries["p"].complete == "from"
    assert state.queries["p"].complete_from == 7 * MINUTE + window + 1


@pytest.mark.parametrize("why", ["no window", "no event time"])
def test_never_complete_where_what_was_missed_matters_for_ever(why: str) -> None:
    streams = (stream("R", "a", timed=why != "no event time"), S, T)
    window = None
    state = enter_epoch(State(), rules(0, {}, streams=streams), 0)
    state = after(state, 3, R=5 * MINUTE, S=7 * MINUTE)
    state = enter_epoch(state, rules(1, {"p": RS}, streams=streams, window=window), 1)

    assert (state.queries["p"].complete, state.queries["p"].complete_from) == ("never", None)


@pytest.mark.parametrize("timed", [True, False])
def test_a_stream_that_is_stored_since_it_began_is_all_in_sight(timed: bool) -> None:
    streams = (stream("R", "a", timed=timed), S, T)
    state = after(enter_epoch(State(), rules(0, {}, streams=streams), 0), 3)
    state = enter_epoch(state, rules(1, {"q": RS}, streams=streams), 1)
    state = after(state, 2, R=MINUTE, S=MINUTE)
    assert state.streams["R"].began == 3
    copy = enter_epoch(state, rules(2, {"q": RS, "p": RS}, streams=streams), 2)
    assert copy.queries["p"].visible_from["R"] == Visibility(3, None)
    assert copy.queries["p"].complete == "always"
    # Without a store there is a gap.
    state = after(enter_epoch(state, rules(2, {}, streams=streams), 2), 1, R=MINUTE, S=MINUTE)
    late = enter_epoch(state, rules(3, {"p": RS}, streams=streams), 3)
    assert late.queries["p"].complete == "never"


def test_a_query_over_streams_that_had_nothing_is_complete() -> None:
    state = after(enter_epoch(State(), rules(0, {}), 0), 3)
    state = enter_epoch(state, rules(1, {"p": RS}), 1)

    assert state.queries["p"].visible_from["R"] == Visibility(3, None)
    assert state.queries["p"].complete == "always"


def test_a_stream_that_is_defined_anew_starts_from_nothing() -> None:
    state = after(enter_epoch(State(), rules(0, {"q": RS}), 0), 3, R=MINUTE, S=MINUTE)
    wider = stream("R", "a", "c")
    state = enter_epoch(state, rules(1, {"q": RS, "p": RS}, streams=(wider, S, T)), 1)

    assert state.stores["R/1"].covers(3) == ((3, 3),)
    assert state.stores["S/1"].covers(3) == ((0, 3),)
    assert (state.streams["R"].max_tau, state.streams["R"].input) == (None, 0)
    assert state.streams["S"].max_tau == MINUTE
    seen = state.queries["p"].visible_from
    assert (seen["R"].batch, seen["S"].batch) == (3, 0)


def test_what_was_read_before_its_stream_was_planned_stays_counted() -> None:
    state = replace(State(next_batch=2), streams={"R": StreamState(input=9)})
    state = enter_epoch(state, rules(0, {"q": RS}), 0)

    assert state.streams["R"].input == 9
    spec = state.streams["R"].spec
    assert spec is not None
    assert spec.name == "R"
    # The event times of those nine rows were never observed.
    assert state.queries["q"].complete == "never"


def test_what_was_read_of_a_stream_stays_counted_through_epochs_that_do_not_name_it() -> None:
    read = reading({"R-1": Load("R"), "S-1": Load("S")})
    unnamed = {n: StreamState(input=9, max_tau=MINUTE, began=1) for n in "RST"}
    state = replace(State(next_batch=2, offsets=read), streams=unnamed)
    state = enter_epoch(state, rules(0, {}, streams=()), 0)
    # No query reads T any more.
    assert sorted(state.streams) == ["R", "S"]

    state = enter_epoch(state, rules(1, {"q": RS}), 1)
    assert {n: s.input for n, s in state.streams.items()} == {"R": 9, "S": 9, "T": 0}
    assert state.streams["R"].newest == MINUTE
    assert state.queries["q"].missed == {"R": 9, "S": 9}


def test_rows_of_before_a_query_that_another_reads_are_counted_once() -> None:
    """Another query reads the query if there is a stream of its name; with its past it lacks no
    row.
    """
    state = replace(State(next_batch=2), streams={n: StreamState(input=9) for n in "RS"})
    for read, past in ((True, False), (True, True), (False, False)):
        first = rules(0, {"q": RS})
        own = (replace(first.queries[0], past=past), *first.queries[1:])
        names = (*first.streams, stream("q")) if read else first.streams
        begun = enter_epoch(state, replace(first, queries=own, streams=names), 0)
        rows = {"R": 9, "S": 9} if read and not past else {}
        assert begun.queries["q"].before == rows


def test_a_changed_ttl_leaves_the_rows_of_before_a_query() -> None:
    state = replace(State(next_batch=2), streams={n: StreamState(input=9) for n in "RS"})
    for epoch, ttl in enumerate((None, 5 * MINUTE)):
        names = (*living(ttl), stream("q"))
        state = after(
            enter_epoch(state, rules(epoch, {"q": RS}, streams=names), epoch), 2, R=1, S=1
        )
    assert len(state.queries["q"].earlier) == 1
    assert state.queries["q"].before == {"R": 9, "S": 9}


def test_a_stream_that_is_registered_again_before_an_epoch_names_it_is_counted_anew() -> None:
    before = reading({"R-1": Load("R"), "S-1": Load("S")})
    unnamed = {n: StreamState(input=9, max_tau=MINUTE, began=1) for n in "RS"}
    state = replace(State(next_batch=2, offsets=before), streams=unnamed)
    assert end_loads(state, reading({"R-1": Load("R", 1), "S-1": Load("S")})).streams == unnamed
    reread = {"R-1": Load("R"), "S-1.2": Load("S", version=2)}
    assert end_loads(state, reading(reread)).streams == unnamed
    again = reading({"R-2": Load("R"), "S-1": Load("S")})
    assert list(end_loads(state, again).streams) == ["S"]


def reading(loads: dict[str, Load]) -> Offsets:
    """Return the end of a batch that reads feeds with these loads."""
    return Offsets(1, {"feeds": with_loads({}, loads)})


def test_bounds_of_earlier_event_times_do_not_grow_with_idle_epochs() -> None:
    state = enter_epoch(State(), rules(0, {"q": RS}), 0)
    for epoch in range(1, 30):
        tau = MINUTE * (1 + epoch // 10)
        state = after(enter_epoch(state, rules(epoch, {"q": RS}), epoch), 1, R=tau, S=tau)

    found = state.streams["R"]
    assert len(found.history) <= 4
    for batch in range(1, 29):
        bound = found.max_tau_before(batch)
        # Rows of batch b arrived in epoch b + 1.
        assert bound is not None
        assert bound >= MINUTE * (1 + batch // 10)
    assert found.max_tau_before(5) == MINUTE


def test_epochs_are_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "REMEMBERED_EPOCHS", 3)
    state = State()
    for epoch in range(6):
        state = enter_epoch(replace(state, next_batch=2 * epoch), rules(epoch, {"q": RS}), epoch)
        state = measuring(state, probes={**state.measured.probes, str(epoch): 7})

    assert state.epoch_starts == ((3, 6), (4, 8), (5, 10))
    assert state.measured.probes == {"3": 7, "4": 7, "5": 7}


def test_an_mirs_past_is_forgotten_where_a_new_query_may_need_what_was_dropped() -> None:
    state = after(enter_epoch(State(), rules(0, {"q": RS}), 0), 3, R=MINUTE, S=MINUTE)
    whole = mir_store("RS", ("R", "S"), ((0, 2),))
    cut = mir_store("RS2", ("R", "S"), ((0, 2),), expired_below=(50, 60))
    other = mir_store("ST", ("S", "T"), ((0, 2),), expired_below=(50, 60))
    added = {"whole": whole, "cut": cut, "other": other}
    state = replace(state, stores={**state.stores, **added})

    same = enter_epoch(state, rules(1, {"q": RS}), 1)
    state = enter_epoch(state, rules(1, {"q": RS, "p": RS}), 1)

    assert same.stores["cut"].intervals == ((0, 2),)
    assert state.stores["cut"].intervals == ()
    assert state.stores["whole"].intervals == ((0, 2),)
    assert state.stores["other"].intervals == ((0, 2),)


def test_a_store_serves_relations_that_are_filtered_at_least_as_hard() -> None:
    filtered = rules(0, {"q": RS + " WHERE S.b > 3"})
    hard = next(r for r in filtered.relations if r.stream == "S")
    free = next(r for r in rules(0, {"q": RS}).relations if r.stream == "S")
    everything = base_store("S", ((0, 1),))
    some = base_store("S[x]", ((0, 1),), filter=[str(f) for f in hard.filter])

    assert serves(everything, free)
    assert serves(everything, hard)
    assert serves(some, hard)
    assert not serves(some, free)
    assert not serves(base_store("R", ((0, 1),)), free)
    assert not serves(mir_store("RS", ("R", "S"), ((0, 1),)), free)


def test_streams_are_the_planners() -> None:
    state = enter_epoch(State(), rules(0, {}), 0)
    assert set(state.streams) == {str(s.name) for s in (R, S, T)}


def living(ttl: int | None) -> tuple[Stream, ...]:
    """Return the streams, R with a ttl."""
    return replace(R, ttl=ttl), S, T


def with_ttl(state: State, epoch: int, ttl: int | None, window: int | None = None) -> State:
    """Return ``state`` at the start of an epoch in which R has the ttl."""
    known = rules(epoch, {"q": RS, "p": ST}, streams=living(ttl), window=window)
    return enter_epoch(state, known, epoch)


def test_a_changed_ttl_ends_one_activation_and_begins_the_next(tmp_path: Path) -> None:
    state = after(with_ttl(State(), 0, None), 3, R=MINUTE, S=MINUTE)
    counted = replace(state.queries["q"], results=7)
    state = replace(state, queries={**state.queries, "q": counted})
    dropped = replace(state.stores["R/1"], expired_below=(700,))
    state = replace(state, stores={**state.stores, "R/1": dropped})

    found = with_ttl(state, 1, 5 * MINUTE)

    query = found.queries["q"]
    assert (query.activated_batch, query.expired_batch, query.results) == (3, None, 7)
    assert query.retention == ((0, 5 * MINUTE), (None, 0))
    assert query.visible_from == {"R": Visibility(0, 700), "S": Visibility(0, None)}
    assert query.complete == "from"
    assert query.earlier == (replace(counted, expired_batch=3),)
    assert query.earlier[0].visible_from["R"] == Visibility(0, None)
    # The query does not read R.
    assert found.queries["p"] == state.queries["p"]
    reported = {s.store: s.ttl for s in state_report(tmp_path, found, None).stores}
    assert reported == {"R/1": (5 * MINUTE,), "S/1": (None,), "T/1": (None,)}
    # The stream's stored rows stay.
    assert found.streams["R"].input == state.streams["R"].input
    assert found.stores["R/1"].covers(3) == ((0, 3),)

    again = with_ttl(after(found, 2), 2, None)
    assert [a.activated_batch for a in again.queries["q"].earlier] == [0, 3]
    assert [a.expired_batch for a in again.queries["q"].earlier] == [3, 5]
    assert all(a.earlier == () for a in again.queries["q"].earlier)
    assert again.queries["q"].retention == ((0, None), (None, 0))


def test_a_ttl_that_changes_no_bound_changes_nothing() -> None:
    window = 4 * MINUTE
    state = after(with_ttl(State(), 0, None, window), 3, R=MINUTE, S=MINUTE)
    wide = after(with_ttl(state, 1, 5 * MINUTE, window), 1)
    assert wide.queries == state.queries
    tight = with_ttl(wide, 2, 3 * MINUTE, window)
    assert tight.queries["q"].activated_batch == 4
    assert tight.queries["p"] == state.queries["p"]


def test_a_query_that_has_ended_is_not_activated_by_a_ttl() -> None:
    state = after(with_ttl(State(), 0, None), 3, R=MINUTE, S=MINUTE)
    failure = Failure("bad", "bad", "x", 2)
    ended = replace(state.queries["q"], expired_batch=2, failure=failure)
    state = replace(state, queries={**state.queries, "q": ended})
    known = rules(1, {"p": ST}, streams=living(MINUTE))
    assert enter_epoch(state, known, 1).queries["q"] == ended


def test_an_mirs_past_is_forgotten_where_a_looser_ttl_may_need_what_was_dropped() -> None:
    state = after(with_ttl(State(), 0, MINUTE), 3, R=MINUTE, S=MINUTE)
    cut = mir_store("RS", ("R", "S"), ((0, 2),), expired_below=(50, None))
    state = replace(state, stores={**state.stores, "RS": cut})
    assert with_ttl(state, 1, MINUTE).stores["RS"].intervals == ((0, 2),)
    assert with_ttl(state, 1, 2 * MINUTE).stores["RS"].intervals == ()


def test_so_many_activations_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "REMEMBERED_ACTIVATIONS", 3)
    state = State()
    for epoch in range(6):
        state = after(with_ttl(state, epoch, epoch * MINUTE), 1)
    assert [a.activated_batch for a in state.queries["q"].earlier] == [2, 3, 4]


def test_all_joins_of_an_outer_join_restart_together() -> None:
    """The time bounds of one of them change: with other activations the joins would see different
    tuples.
    """

    def of(epoch: int, changed: str | None = None) -> Ruleset:
        known = rules(epoch, {"q": RS, "q+left": RS, "q+2": RS, "p": RS})
        queries = tuple(
            replace(
                q,
                left_of=QueryId("q") if "+" in q.id else None,
                retention=((0, MINUTE), (None, 0)) if q.id == changed else q.retention,
            )
            for q in known.queries
        )
        return replace(known, queries=queries)

    began = after(enter_epoch(State(), of(0), 0), 3)
    assert enter_epoch(began, of(1), 1).queries == began.queries
    for changed in ("q", "q+left", "q+2"):
        found = enter_epoch(began, of(1, changed), 1).queries
        assert {name: q.activated_batch for name, q in found.items()} == {
            "q": 3,
            "q+left": 3,
            "q+2": 3,
            "p": 0,
        }


def test_a_kept_outer_join_without_its_past_sees_nothing_from_before() -> None:
    """Left rows of stored tuples are unknown, so pairs with them would have no left row."""
    outer = OuterJoin(JoinKind.LEFT, (), (), "S", (), (LookUp(JoinKind.LEFT, "S", ()),), kept=True)

    def of(epoch: int, *, past: bool = False, bound: bool = False) -> Ruleset:
        known = rules(epoch, {"p": RS, **({"q": RS, "q+left": RS} if epoch else {})})
        queries = tuple(
            replace(
                q,
                left_of=QueryId("q") if "+" in q.id else None,
                outer=outer if q.id == "q" else None,
                past=past and q.id != "p",
                retention=((0, MINUTE), (None, 0)) if bound else q.retention,
            )
            for q in known.queries
        )
        return replace(known, queries=queries)

    began = after(enter_epoch(State(), of(0), 0), 3, R=MINUTE, S=MINUTE)
    for past, first in ((False, 3), (True, 0)):
        state = after(enter_epoch(began, of(1, past=past), 1), 2)
        for name in ("q", "q+left"):
            assert state.queries[name].visible_from == {
                alias: Visibility(first, None) for alias in "RS"
            }
        again = enter_epoch(state, of(2, past=past, bound=True), 2)
        assert again.queries["q"].activated_batch == 5
        assert again.queries["q"].visible_from == state.queries["q"].visible_from


@pytest.mark.parametrize(
    ("latest", "left", "first"),
    [
        ("S", "R", {"R": 3, "S": 0}),
        ("R", "R", {"R": 3, "S": 3}),
        ("RS", "R", {"R": 3, "S": 0}),
        ("R", "RS", {"R": 0, "S": 3}),
        ("RS", "RS", {"R": 3, "S": 3}),
    ],
)
def test_stored_versions_are_partners_of_kept_left_rows(
    latest: str, left: str, first: dict[str, int]
) -> None:
    """Unless left rows consist of such versions only: then the earlier left rows would
    be missing.
    """
    outer = OuterJoin(JoinKind.LEFT, (), (), "S", (), (LookUp(JoinKind.LEFT, "S", ()),), kept=True)

    def of(epoch: int) -> Ruleset:
        known = rules(epoch, {"p": RS, **({"q": RS, "q+left": RS} if epoch else {})})
        queries = tuple(
            replace(
                q,
                left_of=QueryId("q") if "+" in q.id else None,
                outer=outer if q.id == "q" else None,
                members=tuple(m for m in q.members if "+" not in q.id or m[0] in left),
            )
            for q in known.queries
        )
        streams = tuple(
            replace(s, latest=(s.columns[0][0],)) if s.name in latest else s for s in known.streams
        )
        return replace(known, queries=queries, streams=streams)

    began = after(enter_epoch(State(), of(0), 0), 3, R=MINUTE, S=MINUTE)
    found = enter_epoch(began, of(1), 1).queries
    assert {a: seen.batch for a, seen in found["q"].visible_from.items()} == first
    own = {a: seen.batch for a, seen in found["q+left"].visible_from.items()}
    assert own == {alias: first[alias] for alias in left}
