"""Tests of idle streams: the clock, which streams are idle, and the effect on watermarks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.event_time.idleness import clock_reading, is_idle, pass_time
from anabranch_runtime.state.manifest import State, StreamState
from tests.support.cases.states import RS, R, S, T, base_store, rules
from tests.support.oracles.idle_watermarks import watermarks
from tests.support.scenarios.file import StreamEntry


def stream(
    max_tau: int | None = None,
    *,
    lateness: int | None = 0,
    timeout: int | None = None,
    tuples: int = 0,
    active_at: int | None = None,
    floor: int | None = None,
) -> StreamState:
    spec = Stream(
        StreamName("s"), (("ts", parse_type("timestamp")),), "ts", lateness, idle_timeout=timeout
    )
    return StreamState(spec, max_tau, input=tuples, active_at=active_at, floor=floor)


def test_the_clock_is_running_time_or_event_time_and_never_goes_back() -> None:
    streams = {"R": stream(7), "S": stream(9), "unplanned": StreamState(None, 99)}
    assert clock_reading(streams, 5, None) == 5
    assert clock_reading(streams, 5, 8) == 8
    assert clock_reading(streams, None, None) == 9
    assert clock_reading(streams, None, 10) == 10
    assert clock_reading({"R": stream()}, None, None) is None


def test_a_silent_stream_is_idle_from_its_time_out_on() -> None:
    silent = stream(3, timeout=10, active_at=100)
    assert not is_idle(silent, 109)
    assert is_idle(silent, 110)
    assert not is_idle(stream(3, active_at=100), 10**9)
    assert not is_idle(stream(3, timeout=10, lateness=None, active_at=0), 10**9)


def test_an_idle_streams_watermark_is_the_least_of_the_others() -> None:
    before = {
        "idle": stream(50, timeout=10, tuples=1, active_at=0),
        "slow": stream(60, tuples=1, active_at=0),
        "fast": stream(90, lateness=5, tuples=1, active_at=0),
        "untimed": stream(lateness=None, tuples=1),
    }
    after = {**before, "fast": replace(before["fast"], max_tau=95, input=2)}
    found = pass_time(before, after, 100)
    assert {n: s.watermark() for n, s in found.items()} == {
        "idle": 60, "slow": 60, "fast": 90, "untimed": None,
    }  # fmt: skip
    assert found["fast"].active_at == 100
    assert found["slow"].active_at == 0


def test_a_stream_that_never_sent_anything_moves_once_it_has_timed_out() -> None:
    never = {"R": stream(40, tuples=1, active_at=1), "S": stream(timeout=10)}
    first = pass_time(never, never, 20)
    assert (first["S"].active_at, first["S"].watermark()) == (20, None)
    assert pass_time(first, first, 29)["S"].watermark() is None
    assert pass_time(first, first, 30)["S"].watermark() == 40


def test_a_watermark_stays_where_it_was_when_the_stream_wakes_up() -> None:
    idle = {"R": stream(40, tuples=1, active_at=0), "S": stream(10, timeout=5, active_at=0)}
    moved = pass_time(idle, idle, 5)
    awake = {**moved, "S": replace(moved["S"], max_tau=15, input=1)}
    found = pass_time(moved, awake, 6)["S"]
    assert (found.watermark(), found.active_at) == (40, 6)
    assert replace(found, max_tau=50).watermark() == 50


def test_where_all_are_idle_nothing_moves() -> None:
    streams = {n: stream(10 * n, timeout=5, active_at=0) for n in (1, 2)}
    named = {str(n): s for n, s in streams.items()}
    assert pass_time(named, named, 50) == named


def test_settings_of_silence_do_not_make_another_stream() -> None:
    state = enter_epoch(State(), rules(0, {"q": RS}), 0)
    state = replace(
        state,
        next_batch=3,
        streams={n: replace(s, input=5, max_tau=9) for n, s in state.streams.items()},
    )
    patient = (replace(R, idle_timeout=60, keep_late=True), S, T)
    ruleset = rules(1, {"q": RS}, streams=patient)
    found = enter_epoch(state, ruleset, 1)
    assert found.streams["R"].input == 5
    assert found.streams["R"].spec == ruleset.streams[0]
    assert found.stores["R/1"].open_since == 0
    other = (replace(R, lateness=7), S, T)
    again = enter_epoch(state, rules(1, {"q": RS}, streams=other), 1)
    assert again.streams["R"].input == 0
    assert base_store("R", ()).is_base


_TIMES = st.lists(st.integers(0, 60), max_size=3)


@given(
    st.lists(st.fixed_dictionaries({"a": _TIMES, "b": _TIMES, "c": _TIMES}), max_size=8),
    st.fixed_dictionaries(
        {n: st.tuples(st.sampled_from([None, 0, 5]), st.sampled_from([None, 1, 10, 30]))
         for n in "abc"}
    ),
)  # fmt: skip
def test_watermarks_are_those_of_the_definition(
    batches: list[dict[str, list[int]]], settings: dict[str, tuple[int | None, int | None]]
) -> None:
    state = {n: stream(lateness=late, timeout=t) for n, (late, t) in settings.items()}
    clock: int | None = None
    found: list[dict[str, int | None]] = []
    for batch in batches:
        found.append({n: s.watermark() for n, s in state.items()})
        after = {
            n: replace(
                s,
                input=s.input + len(batch[n]),
                max_tau=max([*batch[n], *([] if s.max_tau is None else [s.max_tau])], default=None),
            )
            for n, s in state.items()
        }
        clock = clock_reading(after, None, clock)
        state = pass_time(state, after, clock)
    nowhere: Path = None  # type: ignore[assignment]
    entries = {
        n: StreamEntry(nowhere, "ts", late, 1, idle_timeout=t) for n, (late, t) in settings.items()
    }
    seen: dict[str, dict[int, int | None]] = {
        n: {k: max(b[n]) for k, b in enumerate(batches) if b[n]} for n in "abc"
    }
    wanted = watermarks(entries, seen, len(batches))
    assert found == [{n: wanted[n][k] for n in "abc"} for k in range(len(batches))]
