"""Tests of the choice of segments to be merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.merging import FANOUT, SPANS, rewrites
from anabranch_runtime.epochs import merging
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.epochs.merging import LARGEST, QuietStores, go_together, merges
from anabranch_runtime.epochs.retention import expire
from anabranch_runtime.state.manifest import State
from anabranch_runtime.storage.segment import Segment
from tests.support.cases.states import MINUTE, RS, rules, segment


def test_full_levels_are_merged_smallest_first_and_by_partition() -> None:
    known = rules(0, {"q": RS})
    state = replace(enter_epoch(State(), known, 0), next_batch=50)
    many = [segment("R/1", (i, i)) for i in range(FANOUT + 2)]
    few = [segment("S/1", (i, i), partition=i % 2) for i in range(2 * FANOUT - 1)]
    high = [segment("S/1", (i, i), level=1, name="h") for i in range(FANOUT - 1)]
    stores = {
        **state.stores,
        "R/1": replace(state.stores["R/1"], segments=tuple(many)),
        "S/1": replace(state.stores["S/1"], segments=(*few, *high)),
    }
    found = merges(replace(state, stores=stores), known)

    assert {tuple(s.first_batch for s in m.segments) for m in found} == {
        tuple(range(FANOUT)),
        tuple(range(0, 2 * FANOUT, 2)),
    }
    assert all(len({(s.store, s.partition, s.level) for s in m.segments}) == 1 for m in found)


def test_segments_of_running_merges_are_passed_over() -> None:
    known = rules(0, {"q": RS})
    state = replace(enter_epoch(State(), known, 0), next_batch=50)
    parts = tuple(segment("R/1", (i, i)) for i in range(11))
    stores = {**state.stores, "R/1": replace(state.stores["R/1"], segments=parts)}
    state, quiet = replace(state, stores=stores), QuietStores()

    def due(*taken: int) -> list[tuple[int, ...]]:
        found = merges(state, known, 3, quiet=quiet, taken={parts[n] for n in taken})
        assert all(merge.behind == len(parts) for merge in found)
        return [tuple(s.first_batch for s in merge.segments) for merge in found]

    assert due() == [(0, 1, 2)]
    assert due(0, 1, 2) == [(3, 4, 5)]
    # Only neighbours are merged, so the two before the running merge wait for it.
    assert due(2, 3, 4) == [(5, 6, 7)]
    assert due(2, 5, 8) == []
    assert due(9) == [(0, 1, 2)]


def test_large_segments_are_left_as_they_are() -> None:
    known = rules(0, {"q": RS})
    state = replace(enter_epoch(State(), known, 0), next_batch=50)
    large = [replace(segment("R/1", (i, i)), rows=LARGEST // 2) for i in range(FANOUT)]
    some = [replace(segment("R/1", (i, i)), rows=LARGEST // 3) for i in range(10, 13)]
    stores = {**state.stores, "R/1": replace(state.stores["R/1"], segments=(*large, *some))}
    assert merges(replace(state, stores=stores), known, FANOUT) == ()
    (found,) = merges(replace(state, stores=stores), known, 3)
    assert found.segments == tuple(some)


def merged(parts: Sequence[Segment], name: str) -> Segment:
    """Return the segment that a merge of ``parts`` writes."""
    times = [(p.tau_min[0], p.tau_max[0]) for p in parts]
    tau = (min(a for a, _ in times if a is not None), max(b for _, b in times if b is not None))
    first, last = parts[0].first_batch, parts[-1].last_batch
    made = segment(parts[0].store, (first, last), tau=[tau], level=parts[0].level + 1, name=name)
    return replace(made, rows=sum(p.rows for p in parts))


@dataclass
class Life:
    """History of a store: its segments per batch, and the total of written rows."""

    stored: list[tuple[Segment, ...]]
    written: int


def live(known: Ruleset, batches: int, delay: int = 0) -> Life:
    """Run a batch per minute: add a segment of ten rows of the last ``delay`` minutes, expire
    segments, and do all due merges.
    """
    state, life, quiet = enter_epoch(State(), known, 0), Life([], 0), QuietStores()
    for batch in range(batches):
        now = batch * MINUTE
        streams = {n: replace(s, max_tau=now) for n, s in state.streams.items()}
        fresh = segment("R/1", (batch, batch), tau=[(max(now - delay * MINUTE, 0), now)])
        segments = (*state.stores["R/1"].segments, fresh)
        stores = {**state.stores, "R/1": replace(state.stores["R/1"], segments=segments)}
        state = expire(replace(state, streams=streams, stores=stores, next_batch=batch + 1), known)
        life.written += fresh.rows
        while found := merges(state, known):
            assert merges(state, known, quiet=quiet) == found
            parts = found[0].segments
            made = merged(parts, str(life.written))
            kept = state.stores["R/1"].segments
            at = kept.index(parts[0])
            kept = (*kept[:at], made, *(s for s in kept[at:] if s not in parts))
            store = replace(state.stores["R/1"], segments=kept)
            state = replace(state, stores={**state.stores, "R/1": store})
            life.written += made.rows
        assert merges(state, known, quiet=quiet) == merges(state, known) == ()
        life.stored.append(state.stores["R/1"].segments)
    return life


@pytest.mark.parametrize("window", [3, 20, 200, 1500])
@pytest.mark.parametrize("delay", [0, 10])
def test_a_store_with_a_window_keeps_little_more_than_its_window(window: int, delay: int) -> None:
    batches = 3 * window + 50
    life = live(rules(0, {"q": RS}, window=window * MINUTE), batches, delay)
    steady = life.stored[2 * window :]
    rows = [sum(s.rows for s in segments) for segments in steady]
    assert max(rows) <= 10 * (window + 2) * (1 + 1 / SPANS)
    # Merged levels have fewer than FANOUT segments, the last one as many as spans in the window.
    levels = {s.level for segments in steady for s in segments}
    most = SPANS * FANOUT + (FANOUT - 1) * len(levels) + 1
    assert max(len(segments) for segments in steady) <= most
    assert life.written <= 10 * batches * len(levels)


@pytest.mark.parametrize("batches", [60, 200, 1000])
def test_plans_expect_as_many_rewrites_as_there_are(batches: int) -> None:
    """Per row, over the second half of a store's life; merges of whole levels are sudden."""
    known = rules(0, {"q": RS})
    half, whole = (live(known, n).written / 10 for n in (batches // 2, batches))
    rows = batches - batches // 2
    assert (whole - half - rows) / rows == pytest.approx(rewrites(batches), abs=1.0)


@pytest.mark.parametrize("window", [12, 19, 25, 100, 150, 800])
def test_plans_expect_as_many_rewrites_of_rows_that_expire(window: int) -> None:
    batches = 6 * window + 300
    life = live(rules(0, {"q": RS}, window=window * MINUTE), batches)
    rewritten = life.written / 10 / batches - 1
    assert rewritten == pytest.approx(rewrites(batches, window), abs=0.35)


def test_segments_that_live_for_a_few_batches_are_never_merged() -> None:
    life = live(rules(0, {"q": RS}, window=12 * MINUTE), 100)
    assert {s.level for segments in life.stored for s in segments} == {0}
    assert max(map(len, life.stored)) <= 14


def test_without_a_window_every_level_is_merged() -> None:
    life = live(rules(0, {"q": RS}), 500)
    assert max(s.level for s in life.stored[-1]) == 3
    assert max(map(len, life.stored)) <= (FANOUT - 1) * 4


def test_a_store_without_new_segments_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known, looked = rules(0, {"q": RS}), list[int]()
    levels = merging._levels

    def counted(segments: Sequence[Segment], *by: Any) -> list[list[Segment]]:
        looked.append(len(segments))
        return levels(segments, *by)

    monkeypatch.setattr(merging, "_levels", counted)
    state, quiet = enter_epoch(State(), known, 0), QuietStores()
    segments = tuple(
        replace(segment("R/1", (i, i), tau=[(i, i)]), level=i % 2) for i in range(FANOUT)
    )
    for batch in range(9):
        if batch == 6:
            segments = (*segments, replace(segments[0], first_batch=9, last_batch=9))
        stores = {**state.stores, "R/1": replace(state.stores["R/1"], segments=segments)}
        state = replace(state, stores=stores, next_batch=10 + batch)
        assert merges(state, known, quiet=quiet) == merges(state, known) == ()
    # One search looks in every batch, the other at first and after the change.
    assert looked == [FANOUT, FANOUT, *[FANOUT] * 5, *[FANOUT + 1] * 4]


def test_neighbours_beyond_a_gap_are_merged() -> None:
    known = rules(0, {"q": RS}, window=100 * MINUTE)
    state = enter_epoch(State(), known, 0)
    times = [0, *(60 + n for n in range(FANOUT))]
    found = tuple(
        segment("R/1", (i, i), tau=[(t * MINUTE, t * MINUTE)]) for i, t in enumerate(times)
    )
    streams = {n: replace(s, max_tau=90 * MINUTE) for n, s in state.streams.items()}
    stores = {**state.stores, "R/1": replace(state.stores["R/1"], segments=found)}
    (one,) = merges(replace(state, streams=streams, stores=stores, next_batch=10), known)
    assert one.segments == found[1:]


def test_combinations_go_together_by_one_member_that_expires() -> None:
    def parts(*ends: tuple[int | None, int | None]) -> list[Segment]:
        return [segment("RS", (i, i), tau=[(None, a), (None, b)]) for i, (a, b) in enumerate(ends)]

    near, far = parts((0, 0), (SPANS, 900)), parts((0, 0), (SPANS * 100, 900))
    assert go_together(far, ())
    assert go_together(far, (None, None))
    assert go_together(near, (SPANS * SPANS, None))
    assert go_together(near, (SPANS * SPANS, 100))
    assert not go_together(near, (SPANS * SPANS - 1, 100))
    assert not go_together(far, (SPANS * SPANS, None))
    # A member without event times never expires by them.
    assert go_together(parts((None, 0), (None, 900)), (100, None))
