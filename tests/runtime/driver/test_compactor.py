"""Tests of compaction (merges of segments) beside the batches: what replaces what, and when it does
not.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from anabranch_contract.plans.ruleset import BackfillRule, StoreId
from anabranch_contract.protocol.measurements import Writes
from anabranch_contract.queries.joins import Label
from anabranch_runtime.driver import compactor as compactors
from anabranch_runtime.driver.compactor import Compactor
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.epochs.merging import LARGEST, STALL
from anabranch_runtime.errors import StateError
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.slices import Backfill
from anabranch_runtime.storage.segment import Segment
from anabranch_runtime.task.compact import Compaction, MergedSegment
from tests.support.cases.states import RS, rules, segment
from tests.support.worlds.driven import driver, expected, job, publish, results

RULES = rules(0, {"q": RS})
PATIENCE = 120


def stored(numbers: Iterable[int], store: str = "R/1") -> State:
    """Return a state whose ``store`` has a segment for each of these batches."""
    state = replace(enter_epoch(State(), RULES, 0), next_batch=100)
    return holding(state, *(segment(store, (n, n)) for n in numbers), store=store)


def holding(state: State, *segments: Segment, store: str = "R/1") -> State:
    """Return ``state`` with these segments in ``store``."""
    found = replace(state.stores[store], segments=segments)
    return replace(state, stores={**state.stores, store: found})


def spans(state: State, store: str = "R/1") -> list[tuple[int, int]]:
    """Return the first and last batch of each segment."""
    return [(s.first_batch, s.last_batch) for s in state.stores[store].segments]


@dataclass
class Worker:
    """Merges by writing an empty file; blocks while it is not ``free``."""

    root: Path
    free: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    done: list[Compaction] = field(default_factory=list)
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __call__(self, work: Compaction) -> MergedSegment:
        self.begun.release()
        assert self.free.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        parts = work.merge.segments
        (self.root / work.pack).parent.mkdir(exist_ok=True)
        (self.root / work.pack).touch()
        self.done.append(work)
        span = (parts[0].first_batch, parts[-1].last_batch)
        found = segment(parts[0].store, span, level=1 + parts[0].level)
        return MergedSegment(replace(found, path=work.pack), 0.5)


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


def packs(root: Path) -> int:
    return len(list((root / "segments").glob("*")))


def ended() -> None:
    """Wait until no compaction is running."""
    for thread in threading.enumerate():
        if thread.name == "compaction":
            thread.join(PATIENCE)


def begin(compactor: Compactor, state: State, most: int | None = None) -> None:
    compactor.begin(state, RULES, 3, most)


def begin_waits(
    compactor: Compactor, worker: Worker, state: State, most: int | None = None
) -> None:
    """Check that :func:`begin` waits for ``worker``, and release it."""
    waiting = threading.Thread(target=begin, args=(compactor, state, most))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    worker.free.set()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def commit(compactor: Compactor, state: State) -> State:
    """Return the state after a committed batch without new segments."""
    found = compactor.settle(state)
    compactor.settled(found)
    return found


def test_batches_go_on_while_segments_are_merged(worker: Worker, tmp_path: Path) -> None:
    compactor = Compactor(tmp_path, worker, beside=True)
    state = stored(range(4))
    begin(compactor, state)
    assert worker.begun.acquire(timeout=PATIENCE)
    for batch in range(4, 7):
        newer = segment("R/1", (batch, batch))
        state = commit(compactor, holding(state, *state.stores["R/1"].segments, newer))
        begin(compactor, state)
    assert spans(state) == [(n, n) for n in range(7)]
    worker.free.set()
    compactor.close()
    state = commit(compactor, state)
    # Only one merge was running, of the oldest segments; the result has their place.
    assert spans(state) == [(0, 2), (3, 3), (4, 4), (5, 5), (6, 6)]
    assert [s.level for s in state.stores["R/1"].segments] == [1, 0, 0, 0, 0]
    assert packs(tmp_path) == 1


def test_without_a_thread_a_merge_is_done_at_once(worker: Worker, tmp_path: Path) -> None:
    worker.free.set()
    compactor = Compactor(tmp_path, worker)
    begin(compactor, stored(range(3)))
    assert spans(commit(compactor, stored(range(5)))) == [(0, 2), (3, 3), (4, 4)]


def test_merges_are_counted_once(worker: Worker, tmp_path: Path) -> None:
    worker.free.set()
    compactor = Compactor(tmp_path, worker)
    state = stored(range(6))
    begin(compactor, state)
    begin(compactor, commit(compactor, state))
    rows = segment("R/1", (0, 2)).rows
    assert compactor.take_spent() == Writes(2, 2 * rows, 1.0)
    assert compactor.take_spent() == Writes()


@pytest.mark.parametrize("gone", [0, 2])
def test_a_merge_of_what_has_gone_counts_for_nothing(
    gone: int, worker: Worker, tmp_path: Path
) -> None:
    worker.free.set()
    compactor = Compactor(tmp_path, worker)
    state = stored(range(3))
    begin(compactor, state)
    assert packs(tmp_path) == 1
    left = [s for s in state.stores["R/1"].segments if s.first_batch != gone]
    state = commit(compactor, holding(state, *left))
    assert spans(state) == [(n, n) for n in range(3) if n != gone]
    assert packs(tmp_path) == 0


def test_a_merge_of_a_store_that_was_dropped_counts_for_nothing(
    worker: Worker, tmp_path: Path
) -> None:
    worker.free.set()
    compactor = Compactor(tmp_path, worker)
    state = stored(range(3))
    begin(compactor, state)
    commit(compactor, replace(state, stores={}))
    assert packs(tmp_path) == 0


def test_what_was_not_committed_is_offered_again(worker: Worker, tmp_path: Path) -> None:
    worker.free.set()
    compactor = Compactor(tmp_path, worker)
    state = stored(range(3))
    begin(compactor, state)
    for _ in range(3):
        assert spans(compactor.settle(state)) == [(0, 2)]
    assert spans(commit(compactor, state)) == [(0, 2)]
    assert packs(tmp_path) == 1


def test_what_is_done_while_a_batch_commits_waits_for_the_next(
    worker: Worker, tmp_path: Path
) -> None:
    compactor = Compactor(tmp_path, worker, beside=True)
    state = stored(range(3))
    begin(compactor, state)
    assert worker.begun.acquire(timeout=PATIENCE)
    committed = compactor.settle(state)
    worker.free.set()
    compactor.close()
    compactor.settled(committed)
    assert packs(tmp_path) == 1
    begin(compactor, committed)
    assert spans(commit(compactor, committed)) == [(0, 2)]
    assert packs(tmp_path) == 1


def test_a_damaged_part_is_an_error_where_it_is_still_needed(
    worker: Worker, tmp_path: Path
) -> None:
    worker.free.set()
    worker.error = StateError("damaged-segment", "it is damaged")
    state = stored(range(3))
    compactor = Compactor(tmp_path, worker)
    begin(compactor, state)
    with pytest.raises(StateError, match="it is damaged"):
        compactor.settle(state)
    expired = holding(state, *state.stores["R/1"].segments[1:])
    assert spans(commit(compactor, expired)) == [(1, 1), (2, 2)]
    worker.error = None
    begin(compactor, state)
    assert spans(commit(compactor, state)) == [(0, 2)]


def test_what_failed_for_other_reasons_is_tried_again(worker: Worker, tmp_path: Path) -> None:
    worker.free.set()
    worker.error = ConnectionError("the executor has gone")
    state = stored(range(3))
    compactor = Compactor(tmp_path, worker, beside=True)
    begin(compactor, state)
    ended()
    assert spans(commit(compactor, state)) == [(n, n) for n in range(3)]
    worker.error = None
    begin(compactor, state)
    ended()
    assert spans(commit(compactor, state)) == [(0, 2)]


def test_a_batch_waits_for_compaction_that_is_far_behind(worker: Worker, tmp_path: Path) -> None:
    compactor = Compactor(tmp_path, worker, beside=True)
    begin(compactor, stored(range(3)))
    assert worker.begun.acquire(timeout=PATIENCE)
    begin(compactor, stored(range(3 * STALL - 1)))

    begin_waits(compactor, worker, stored(range(3 * STALL)))
    assert spans(commit(compactor, stored(range(3 * STALL))))[0] == (0, 2)


def test_results_of_a_backfill_are_merged_though_no_batch_waits(
    worker: Worker, tmp_path: Path
) -> None:
    compactor = Compactor(tmp_path, worker, beside=True)
    parts = tuple(segment("R/1", (n, n)) for n in range(3 * STALL))
    rule = BackfillRule(store=StoreId("R/1"), start=Label("r"), steps=())
    state = stored(())
    backfill = Backfill(rule, ((0, 9),), (), 10, 5, parts)
    running = replace(state.stores["R/1"], backfill=backfill)
    state = replace(state, stores={**state.stores, "R/1": running})
    for _ in range(2):
        begin(compactor, state)
    worker.free.set()
    ended()
    (work,) = worker.done
    assert (work.past, work.merge.segments) == (True, parts[:3])
    # The second commit comes after the end of the backfill.
    over = holding(state, *parts)
    over = replace(over, stores={"R/1": replace(over.stores["R/1"], backfill=None)})
    assert spans(compactor.settle(over))[:2] == [(0, 2), (3, 3)]
    state = commit(compactor, state)
    assert [s.level for s in state.stores["R/1"].pending] == [1] + [0] * (3 * STALL - 3)
    assert spans(state) == []
    # The result's file is kept, and the costs are not the plan's.
    assert packs(tmp_path) == 1
    assert compactor.spent == Writes()


def upper(first: int, count: int) -> list[Segment]:
    """Return ``count`` merged segments, of three batches each, from the batch ``first``."""
    starts = range(first, first + 3 * count, 3)
    return [segment("R/1", (n, n + 2), level=1, name="m") for n in starts]


def test_segments_of_batches_are_merged_beside_a_large_merge(
    worker: Worker, tmp_path: Path
) -> None:
    slow, quick = worker, Worker(tmp_path)
    quick.free.set()

    def work(one: Compaction) -> MergedSegment:
        return (slow if one.merge.segments[0].level else quick)(one)

    compactor = Compactor(tmp_path, work, beside=True)
    state = holding(stored(()), *upper(0, 4), segment("R/1", (12, 12)))
    begin(compactor, state)
    assert slow.begun.acquire(timeout=PATIENCE)
    for batch in range(13, 13 + 3 * STALL):
        newer = segment("R/1", (batch, batch))
        state = commit(compactor, holding(state, *state.stores["R/1"].segments, newer))
        begin(compactor, state)
        for thread in threading.enumerate():
            # The other thread is blocked: no batch of this loop may wait for it.
            if thread.name == "compaction" and thread is not compactor._threads[False][0]:
                thread.join(PATIENCE)
    state = commit(compactor, state)
    lengths = [1 + last - first for first, last in spans(state)]
    assert lengths == [3] * (4 + STALL) + [1]
    assert not slow.done
    slow.free.set()
    compactor.close()
    state = commit(compactor, state)
    assert spans(state)[0] == (0, 8)
    assert [s.level for s in state.stores["R/1"].segments] == [2] + [1] * (1 + STALL) + [0]


def test_a_batch_waits_only_for_merges_of_the_level_that_is_far_behind(
    worker: Worker, tmp_path: Path
) -> None:
    compactor = Compactor(tmp_path, worker, beside=True)
    begin(compactor, holding(stored(()), *upper(0, 3)))
    assert worker.begun.acquire(timeout=PATIENCE)
    begin(compactor, holding(stored(()), *upper(0, 3 * STALL - 1)))
    full = holding(stored(()), *upper(0, 3 * STALL))
    begin_waits(compactor, worker, full)


def test_merges_that_run_together_keep_the_limit_of_memory(worker: Worker, tmp_path: Path) -> None:
    compactor = Compactor(tmp_path, worker, beside=True)
    large, small = upper(0, 3), [segment("R/1", (n, n)) for n in range(9, 12)]
    state = holding(stored(()), *large, *small)
    least = sum(s.bytes for s in (*large, *small))
    compactor.begin(state, RULES, 3, least - 1)
    assert worker.begun.acquire(timeout=PATIENCE)
    compactor.begin(state, RULES, 3, least - 1)
    assert not worker.begun.acquire(timeout=0.2)
    compactor.begin(state, RULES, 3, least)
    assert worker.begun.acquire(timeout=PATIENCE)
    worker.free.set()
    compactor.close()
    assert spans(commit(compactor, state)) == [(0, 8), (9, 11)]


def test_a_batch_waits_for_the_memory_of_merges_where_it_is_far_behind(
    worker: Worker, tmp_path: Path
) -> None:
    compactor = Compactor(tmp_path, worker, beside=True)
    large, small = upper(0, 3), [segment("R/1", (n, n)) for n in range(9, 9 + 3 * STALL)]
    most = 3 * max(s.bytes for s in (*large, *small))
    begin(compactor, holding(stored(()), *large), most)
    assert worker.begun.acquire(timeout=PATIENCE)
    begin(compactor, holding(stored(()), *large, *small[1:]), most)
    full = holding(stored(()), *large, *small)
    begin_waits(compactor, worker, full, most)
    compactor.close()
    assert spans(commit(compactor, full))[:2] == [(0, 8), (9, 11)]


def test_a_rewrite_makes_segments_as_large_as_may_be(worker: Worker, tmp_path: Path) -> None:
    worker.free.set()
    compactor = Compactor(tmp_path, worker)
    rows = (LARGEST // 2, LARGEST // 4, LARGEST // 2, LARGEST, 1, 1)
    sized = (replace(segment("R/1", (n, n)), rows=r) for n, r in enumerate(rows))
    state = holding(stored(()), *sized)
    compactor.rewrite(state, RULES)
    assert spans(commit(compactor, state)) == [(0, 1), (2, 2), (3, 3), (4, 5)]
    compactor.rewrite(stored([0]), RULES)
    assert not compactor.pending


def test_nobody_waits_for_segments_that_are_not_merged(worker: Worker, tmp_path: Path) -> None:
    compactor = Compactor(tmp_path, worker, beside=True)
    begin(compactor, stored(range(3)))
    assert worker.begun.acquire(timeout=PATIENCE)
    large = (replace(segment("R/1", (n, n)), rows=LARGEST) for n in range(3 * STALL))
    begin(compactor, holding(stored(()), *large))
    worker.free.set()
    ended()


def test_who_leaves_begins_nothing_more(worker: Worker, tmp_path: Path) -> None:
    state = stored(range(3))
    both = stored(range(3), "S/1").stores["S/1"]
    state = replace(state, stores={**state.stores, "S/1": both})
    compactor = Compactor(tmp_path, worker, beside=True)
    begin(compactor, state)
    assert worker.begun.acquire(timeout=PATIENCE)
    closing = threading.Thread(target=compactor.close)
    closing.start()
    assert compactor.leaving.wait(PATIENCE)
    worker.free.set()
    closing.join(PATIENCE)
    assert len(worker.done) == 1


def test_merges_of_several_hosts_go_on_side_by_side(worker: Worker, tmp_path: Path) -> None:
    state = stored(range(3))
    both = stored(range(3), "S/1").stores["S/1"]
    state = replace(state, stores={**state.stores, "S/1": both})
    compactor = Compactor(
        tmp_path, worker, beside=True, queue=lambda work: work.merge.segments[0].store
    )
    begin(compactor, state)
    for _ in range(2):
        assert worker.begun.acquire(timeout=PATIENCE)
    worker.free.set()
    ended()
    found = commit(compactor, state)
    assert spans(found) == spans(found, "S/1") == [(0, 2)]


def merging(url: str, folder: Path, damage: bool) -> Driver:
    """Return a driver after the first batch that merges; ``damage``: with a damaged pack of R's
    segments.
    """
    publish(url, 0)
    one = driver(url, folder, every=1000, fanout=3)
    for number in range(2):
        one.run(job(number))
    if damage:
        part = one.state.stores["R/1"].segments[0]
        path = folder / "state" / part.path
        content = bytearray(path.read_bytes())
        content[part.data[0] + part.data[1] // 2] ^= 1
        path.write_bytes(content)
    one.run(job(2))
    return one


def test_small_merges_share_a_pack(url: str, tmp_path: Path) -> None:
    one = merging(url, tmp_path, damage=False)
    (pack,) = one.compactor.pending
    one.run(job(3))
    merged = [s for store in one.state.stores.values() for s in store.segments if s.level]
    assert [(s.store[0], s.path, s.rows) for s in merged] == [("R", pack, 3), ("S", pack, 3)]
    assert results(tmp_path) == expected(4)


def test_a_damaged_part_fails_its_own_merge_only(url: str, tmp_path: Path) -> None:
    one = merging(url, tmp_path, damage=True)
    outcomes = {e.work.merge.segments[0].store: e.outcome for e in one.compactor._ended}
    error = outcomes.pop("R/1")
    assert isinstance(error, StateError)
    assert error.code == "damaged-segment"
    (merged,) = outcomes.values()
    assert isinstance(merged, Segment)
    assert merged.rows == 3


def test_large_merges_have_packs_of_their_own(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compactors, "TOGETHER", 1)
    assert len(merging(url, tmp_path, damage=False).compactor.pending) == 2
