"""Tests of backfills in the state: begun, divided into slices, ended, dropped; and their speed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.plans.plan import Backfilling, Plan
from anabranch_contract.plans.ruleset import Ruleset, StoreSpec
from anabranch_contract.protocol.merging import FANOUT
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import parse_sql
from anabranch_planner.plans.backfill import decide
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_runtime.epochs.access import accesses
from anabranch_runtime.epochs.backfill import advance, begin, gaps, next_slice, progress
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.epochs.merging import has_parts, merges, with_merged
from anabranch_runtime.epochs.retention import drop_unused, expire
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.state.coverage import OPEN, Tile
from anabranch_runtime.state.manifest import Manifests, State
from anabranch_runtime.state.slices import Backfill, SegmentRows, Slice, SliceReport, Throttle, cut
from tests.support.cases.random_plans import random_plan
from tests.support.cases.states import MINUTE, R, S, T, base_store, mir_store, segment
from tests.support.oracles.invariants import check_state

RST = "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b"
#: Segments of ``states.segment`` have ten rows, so slices are small.
SLOW = Throttle(first=15, least=15, most=15)


@cache
def plan(mir: bool, window: int | None, copies: int = 1) -> Plan:
    """Return a plan: R, S, T one by one, or R by way of an S-T in so many copies."""
    query = parse_sql("q", RST, {s.name: s for s in (R, S, T)}, window)
    for seed in range(3000):
        found = random_plan([query], Random(seed), mirs=0.5 if mir else 0.0)
        kept = [m for m in found.mirs if not m.is_base]
        bases = [c for c in found.copies if any(m.is_base and m.id == c.mir for m in found.mirs)]
        if found.orders[0].owner or len(bases) > 3:
            continue
        wanted = [(kept[0].members, len(found.copies) - 3)] if kept else []
        if wanted == ([(("S", "T"), copies)] if mir else []):
            return found
    raise AssertionError("no such plan")


def rules(
    epoch: int,
    *,
    mir: bool = True,
    backfill: bool = True,
    window: int | None = None,
    copies: int = 1,
) -> Ruleset:
    query = parse_sql("q", RST, {s.name: s for s in (R, S, T)}, window)
    chosen = plan(mir, window, copies)
    setting = Backfilling.ALWAYS if backfill else Backfilling.NEVER
    return compile_ruleset(
        chosen,
        [query],
        [R, S, T],
        epoch=epoch,
        parallelism=1,
        sinks={},
        backfills=decide(chosen, [query], CostModel(Statistics()), setting=setting),
    )


def mir_of(ruleset: Ruleset) -> StoreSpec:
    return next(s for s in ruleset.stores if len(s.members) > 1)


def stores_of(ruleset: Ruleset, relation: str) -> list[str]:
    return [s.id for s in ruleset.stores if s.mir == relation]


def stored(state: State, ruleset: Ruleset, batches: int) -> State:
    """Return ``state`` after ``batches`` batches, each with ten rows for every base store."""
    first = state.next_batch
    stores = {
        name: replace(
            store,
            segments=(
                *store.segments,
                *(
                    segment(name, (b, b), tau=[(b * MINUTE, b * MINUTE)])
                    for b in range(first, first + batches)
                ),
            ),
        )
        if store.is_base and any(s.id == name for s in ruleset.stores)
        else store
        for name, store in state.stores.items()
    }
    return replace(state, stores=stores, next_batch=first + batches)


def introduced(**how: object) -> tuple[State, Ruleset]:
    """The state after three batches without an intermediate result, when S-T is introduced."""
    plain = rules(0, mir=False, window=how.get("window"))  # type: ignore[arg-type]
    state = stored(enter_epoch(State(), plain, 0), plain, 3)
    ruleset = rules(1, **how)  # type: ignore[arg-type]
    return enter_epoch(state, ruleset, 1), ruleset


def pending(state: State, ruleset: Ruleset) -> Backfill:
    found = state.stores[mir_of(ruleset).id].backfill
    assert found is not None
    return found


def one_batch(state: State, ruleset: Ruleset, rows: int = 1) -> tuple[State, Slice]:
    """Return the state after a batch that finds ``rows`` combinations in its slice."""
    state = begin(state, ruleset, SLOW)
    work = next_slice(state, ruleset)
    assert work is not None
    found = replace(
        segment(work.store, (0, 2), tau=[(0, 0), (0, 0)], name=str(state.next_batch)), rows=rows
    )
    report = TaskReport(backfill=SliceReport([found]), phases={"backfill": 0.1})
    state = stored(state, ruleset, 1)
    state = advance(state, work, [report, TaskReport()], 1.0, SLOW)
    check_state(state)
    return state, work


def test_the_gap_is_filled_slice_by_slice_and_then_all_at_once(tmp_path: Path) -> None:
    state, ruleset = introduced()
    mir = mir_of(ruleset).id
    edge = next(p.out for p in ruleset.probe_rules if p.mir == mir_of(ruleset).mir)
    assert [r.store for r in ruleset.backfill_rules] == [mir]

    state, first = one_batch(state, ruleset)
    assert first.gaps == ((0, 2),)
    assert [(s.segment.first_batch, s.first, s.last) for s in first.sources] == [
        (0, 0, 10),
        (1, 0, 5),
    ]
    (tiles,) = first.fill
    assert tiles == (Tile(tiles[0].store, (0, 2)),)
    assert pending(state, ruleset).done == 0.5
    assert progress(state) == {mir: 0.5}
    # No probe reads the slice yet, and a restart continues here.
    assert state.stores[mir].segments == ()
    assert state.stores[mir].covers(state.next_batch) == ((3, 4),)
    assert accesses(state, ruleset)[edge].gaps == ((0, 2),)
    manifests = Manifests(tmp_path)
    manifests.commit(state)
    again = Manifests(tmp_path).load()
    assert again == state
    assert next_slice(again, ruleset) == next_slice(state, ruleset)

    state, second = one_batch(state, ruleset)
    assert [(s.segment.first_batch, s.first, s.last) for s in second.sources] == [
        (1, 5, 10),
        (2, 0, 10),
    ]
    done = state.stores[mir]
    assert (done.backfill, len(done.segments), done.open_since, done.intervals) == (None, 2, 0, ())
    assert accesses(state, ruleset)[edge].gaps == ()
    assert accesses(state, ruleset)[edge].tiles == (Tile(mir, (0, OPEN)),)
    assert progress(state) == {}
    assert begin(state, ruleset, SLOW) == state


def test_without_a_rule_nothing_begins_and_what_has_begun_is_dropped() -> None:
    state, ruleset = introduced(backfill=False)
    assert begin(state, ruleset, SLOW) == state
    assert next_slice(state, ruleset) is None

    state, ruleset = introduced()
    state, _ = one_batch(state, ruleset)
    assert pending(state, ruleset).segments
    never = rules(2, backfill=False)
    state = begin(enter_epoch(state, never, 2), never, SLOW)
    assert state.stores[mir_of(never).id].backfill is None
    assert state.stores[mir_of(never).id].segments == ()


def test_a_store_that_closes_forgets_its_backfill_and_begins_anew() -> None:
    state, ruleset = introduced()
    state, _ = one_batch(state, ruleset)
    mir = mir_of(ruleset).id
    plain = rules(2, mir=False)
    closed = enter_epoch(state, plain, 2)
    assert (closed.stores[mir].backfill, closed.stores[mir].intervals) == (None, ((3, 3),))

    state = stored(begin(closed, plain, SLOW), plain, 2)
    again = rules(3)
    state = begin(enter_epoch(state, again, 3), again, SLOW)
    assert pending(state, again).gaps == ((0, 2), (4, 5))
    assert pending(state, again).total == 60
    for _ in range(4):
        state, work = one_batch(state, again)
        covered = [t.interval for t in work.fill[0]]
        assert (min(covered)[0], max(covered)[1]) == (0, 5)
    assert state.stores[mir].covers(9) == ((0, 9),)


def test_what_other_containers_have_is_not_computed_again() -> None:
    state, ruleset = introduced()
    spec = mir_of(ruleset)
    old = replace(
        mir_store(spec.mir, spec.members, ((1, 1),), columns=[(m, c) for m, c in spec.columns]),
    )
    state = replace(state, stores={**state.stores, "old": old})
    relations = {r.id: r for r in ruleset.relations}
    assert gaps(state, spec.id, relations) == ((0, 0), (2, 2))
    assert pending(begin(state, ruleset, SLOW), ruleset).gaps == ((0, 0), (2, 2))


def test_one_copy_is_filled_and_serves_the_others() -> None:
    state, ruleset = introduced(copies=2)
    names: set[str] = {r.store for r in ruleset.backfill_rules}
    assert len(names) == 2
    state, first = one_batch(state, ruleset)
    assert [n for n in names if state.stores[n].backfill is not None] == [first.store]
    state, _ = one_batch(state, ruleset)
    relations = {r.id: r for r in ruleset.relations}
    kept = {n: {tuple(c) for c in state.stores[n].spec.columns} for n in names}
    (other,) = names - {first.store}
    # Unless the copy lacks a column that the other copy keeps.
    assert bool(gaps(state, other, relations)) == (not kept[other] <= kept[first.store])


def test_a_gap_without_rows_needs_no_work() -> None:
    state, ruleset = introduced()
    empty = {n: replace(s, segments=()) if s.is_base else s for n, s in state.stores.items()}
    state = begin(replace(state, stores=empty), ruleset, SLOW)
    assert state.stores[mir_of(ruleset).id].covers(3) == ((0, 3),)
    assert next_slice(state, ruleset) is None


def test_rows_of_later_batches_are_passed_over() -> None:
    late, wanted = introduced(backfill=False)
    late = stored(late, wanted, 4)
    merged = {
        n: replace(s, segments=(segment(n, (0, 6), tau=[(0, 0)]),)) if s.is_base else s
        for n, s in late.stores.items()
    }
    ruleset = rules(2)
    state = begin(enter_epoch(replace(late, stores=merged), ruleset, 2), ruleset, SLOW)
    (source,) = pending(state, ruleset).sources
    assert (source.interval, source.rows) == ((0, 2), 10)


def test_what_is_gone_through_is_kept_to_the_end(tmp_path: Path) -> None:
    state, ruleset = introduced()
    state = begin(state, ruleset, SLOW)
    sources = pending(state, ruleset).sources
    start = sources[0].store
    # The store is merged and replaced by another layout meanwhile.
    other = base_store(start.split("/")[0], ((0, 2),), since=3)
    gone = replace(state.stores[start], segments=(), intervals=(), open_since=None)
    state = replace(state, stores={**state.stores, start: gone, "aaa": other})
    smaller = replace(ruleset, stores=tuple(s for s in ruleset.stores if s.id != start))
    state = drop_unused(state, smaller, {})
    assert start in state.stores
    assert {s.segment.path for s in sources} <= {
        s.path for store in state.stores.values() for s in store.kept
    }
    manifests = Manifests(tmp_path)
    manifests.commit(replace(state, stores={n: s for n, s in state.stores.items() if n != start}))
    assert {s.segment.path for s in sources} <= manifests.named


def test_expiry_reaches_what_has_been_computed_and_later_queries_know() -> None:
    window = 5 * MINUTE
    state, ruleset = introduced(window=window)
    state, _ = one_batch(state, ruleset)
    mir = mir_of(ruleset).id
    streams = {n: replace(s, max_tau=60 * MINUTE, input=9) for n, s in state.streams.items()}
    state = expire(replace(state, streams=streams), ruleset)
    assert pending(state, ruleset).segments == ()
    assert state.stores[mir].expired_below == (1, 1)

    # A query with a longer window: the intermediate result's past is computed again from the stored
    # rows.
    query = parse_sql("p", RST, {s.name: s for s in (R, S, T)}, 50 * MINUTE)
    wider = replace(
        ruleset,
        queries=(
            *ruleset.queries,
            replace(ruleset.queries[0], id=query.id, retention=query.bounds),
        ),
    )
    state = enter_epoch(state, wider, 2)
    assert state.stores[mir].backfill is None
    assert state.stores[mir].open_since == state.next_batch
    relations = {r.id: r for r in wider.relations}
    assert gaps(state, mir, relations) == ((0, state.next_batch - 1),)
    assert begin(state, wider, SLOW).stores[mir].open_since == 0


def test_a_backfill_that_fails_is_given_up_until_the_store_opens_again() -> None:
    state, ruleset = introduced()
    state, work = one_batch(state, ruleset)
    broken = [TaskReport(backfill=SliceReport(failed="1/0")), TaskReport()]
    state = advance(state, work, broken, 1.0, SLOW)
    found = pending(state, ruleset)
    assert (found.failed, found.segments, found.sources) == ("1/0", (), ())
    assert next_slice(begin(state, ruleset, SLOW), ruleset) is None
    assert progress(state) == {}
    plain, again = rules(2, mir=False), rules(3)
    state = enter_epoch(stored(enter_epoch(state, plain, 2), plain, 1), again, 3)
    assert next_slice(begin(state, again, SLOW), again) is not None


def test_its_segments_are_merged_among_themselves() -> None:
    state, ruleset = introduced()
    mir = mir_of(ruleset).id
    state = begin(state, ruleset, SLOW)
    parts = tuple(segment(mir, (0, 2), name=str(i)) for i in range(FANOUT + 1))
    store = replace(state.stores[mir], backfill=replace(pending(state, ruleset), segments=parts))
    state = replace(state, stores={**state.stores, mir: store})
    (due,) = merges(state, ruleset)
    assert (due.segments, due.behind) == (parts[:FANOUT], 0)
    assert merges(state, ruleset, taken=parts[:3]) == ()
    whole = segment(mir, (0, 2), level=1)
    merged = with_merged(store, due, whole)
    assert merged.pending == (whole, parts[-1])
    # The backfill may end, or drop its segments, while they are merged.
    ended = replace(store, segments=parts, backfill=None)
    assert [has_parts(s, due) for s in (store, ended, merged)] == [True, True, False]
    assert with_merged(ended, due, whole).segments == merged.pending


@given(
    st.builds(Throttle, share=st.floats(0.01, 1), floor=st.floats(0, 1)),
    st.integers(16, 1 << 20),
    st.floats(0, 100),
    st.floats(0, 100),
)
def test_a_slice_that_takes_too_long_is_followed_by_a_smaller_one(
    throttle: Throttle, rows: int, taken: float, rest: float
) -> None:
    after = throttle.rows(rows, taken, rest)
    wanted = max(throttle.share * rest, throttle.floor)
    assert throttle.least <= after <= throttle.most
    assert after <= 4 * rows
    if taken > wanted:
        assert after <= rows
        assert after * taken <= max(rows * wanted, rows * taken / 4, throttle.least * taken) * 1.01
    else:
        assert after >= min(rows, throttle.most)


@given(st.lists(st.integers(1, 30), max_size=6), st.lists(st.integers(1, 40), min_size=1))
def test_slices_are_disjoint_and_leave_nothing_out(sizes: list[int], rows: list[int]) -> None:
    left: tuple[SegmentRows, ...] = tuple(
        SegmentRows("s", segment("s", (i, i)), (0, 9), 0, size) for i, size in enumerate(sizes)
    )
    seen: list[tuple[str, int]] = []
    for number in range(1000):
        if not left:
            break
        whole = sum(s.rows for s in left)
        part, left = cut(left, rows[number % len(rows)])
        assert sum(s.rows for s in part) == min(rows[number % len(rows)], whole)
        seen += [(s.segment.path, row) for s in part for row in range(s.first, s.last)]
    assert seen == [
        (segment("s", (i, i)).path, row) for i, size in enumerate(sizes) for row in range(size)
    ]
