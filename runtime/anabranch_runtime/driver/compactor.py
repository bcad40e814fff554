"""Compaction in the background: segments are merged while batches run.

A probe reads every segment of a store, so segments are merged in a tiered LSM tree: the oldest
``fanout`` segments of a level become one of the next. A merge may take longer than several batches.
So it runs in its own thread, over segments that never change, and its output replaces them in the
manifest of the next committed batch. Before that commit, or after a crash, the output is a file
that no manifest names. Segments of batches are merged in one thread, merged segments in another, so
that a large merge does not delay merges of the last batches' segments (ADR 0124).

On one host these threads merge in compiled code and at low priority, so that tasks have precedence.
On a cluster the threads wait while the hosts of the partitions merge concurrently
(``spark.merges``).

The number of segments stays bounded: if a store partition has ``STALL * fanout`` segments of one
level, the next batch waits until the merges of this thread have ended.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.measurements import Writes
from anabranch_runtime.epochs.annihilation import boundaries, still_right
from anabranch_runtime.epochs.layout import Layout, layouts
from anabranch_runtime.epochs.merging import (
    LARGEST,
    STALL,
    QuietStores,
    has_parts,
    merges,
    with_merged,
)
from anabranch_runtime.epochs.table_versions import sides, superseding
from anabranch_runtime.errors import StateError
from anabranch_runtime.state.manifest import State, StoreState
from anabranch_runtime.storage.ahead import give_way
from anabranch_runtime.storage.durable import durable
from anabranch_runtime.storage.segment import Merge, Segment
from anabranch_runtime.task.compact import (
    Compaction,
    MergedSegment,
    compact,
    compact_together,
    merged_pack,
)
from anabranch_runtime.traced import changed

_LOG = structlog.get_logger("anabranch.runtime")
#: Greatest bytes of segments that are merged into one pack.
TOGETHER = 1 << 20


@dataclass(frozen=True, slots=True)
class _Ended:
    """An ended merge of segments; without an outcome it has failed and may be tried again."""

    work: Compaction
    outcome: Segment | StateError | None


@dataclass(slots=True)
class Compactor:
    """Running merges, and finished ones that wait for a commit.

    Attributes:
        root: the state directory.
        work: does one merge. By default this process merges, several small ones into one pack.
        beside: whether merges run in a thread; otherwise :meth:`begin` does them itself, so that a
            run depends only on its input, not on timing.
        queue: returns the queue of a merge. Merges of a queue run one by one, queues in parallel.
        leaving: set when no more merges may begin (:meth:`close`).
    """

    root: Path
    work: Callable[[Compaction], MergedSegment] = compact
    beside: bool = False
    queue: Callable[[Compaction], str | None] = lambda _: None
    leaving: threading.Event = field(default_factory=threading.Event)
    #: Running merges -> their thread, and bytes of the largest merge. Key True: of segments written
    #: by batches; False: of merged segments.
    _threads: dict[bool, tuple[threading.Thread, int]] = field(default_factory=dict)
    _ended: list[_Ended] = field(default_factory=list)
    #: Number of merges in ``_ended`` that :meth:`settle` has seen; threads may add more.
    _seen: int = 0
    #: Segments of merges that have begun and are not settled.
    _taken: set[Segment] = field(default_factory=set)
    _quiet: QuietStores = field(default_factory=QuietStores)
    #: Bytes of segments that were due to be merged, or being merged, at the last check.
    due_bytes: int = 0
    #: Finished merges that :meth:`take_spent` has not returned yet; threads may add more.
    _spent: list[Writes] = field(default_factory=list)

    def settle(self, state: State) -> State:
        """Return ``state`` with merged segments in place of their parts (the segments merged). A
        merge is discarded if one of its parts has expired or its store was dropped meanwhile, or if
        inserts and deletes have cancelled out in it that readers may now see separately. The caller
        commits the result and then calls :meth:`settled`.

        Raises:
            StateError: a part that is still needed can't be read.
        """
        stores, (stored, merged) = dict[str, StoreState](), state.measured.written
        self._seen = len(self._ended)
        ended = self._ended[: self._seen]
        now = boundaries(state) if any(one.work.boundaries for one in ended) else {}
        for work, outcome in ((one.work, one.outcome) for one in ended):
            merge, name = work.merge, _store(work.merge)
            store = stores.get(name) or state.stores.get(name)
            if store is None or outcome is None or not has_parts(store, merge):
                continue
            if isinstance(outcome, StateError):
                raise outcome
            used = {n: b for n, b in work.boundaries.items() if n in store.streams}
            if used and not still_right(used, now, merge, outcome):
                continue
            stores[outcome.store] = with_merged(store, merge, outcome)
            merged += outcome.bytes
        measured = replace(state.measured, written=(stored, merged))
        return replace(state, stores=changed(state.stores, stores), measured=measured)

    def settled(self, state: State) -> None:
        """Forget the merges seen by :meth:`settle`, now committed; delete their unused files."""
        named = {s.path for store in state.stores.values() for s in store.kept}
        ended = self._ended[: self._seen]
        durable(self.root).discard(path for path in _packs(ended) if path not in named)
        self._taken.difference_update(s for one in ended for s in one.work.merge.segments)
        del self._ended[: self._seen]
        self._seen = 0

    @property
    def spent(self) -> Writes:
        """Number, written rows and CPU seconds of the merges since the last :meth:`take_spent`."""
        return sum(tuple(self._spent), Writes())

    def take_spent(self) -> Writes:
        """Return the cost of the merges since the last call (:attr:`spent`), and reset it."""
        total = Writes()
        while self._spent:
            total += self._spent.pop()
        return total

    @property
    def pending(self) -> frozenset[str]:
        """Names of the pack files of finished merges that no manifest names yet."""
        return _packs(list(self._ended))

    def begin(self, state: State, ruleset: Ruleset, fanout: int, most: int | None = None) -> None:
        """Merge the due segments of ``state`` into segments of at most ``most`` bytes (None: any
        number) in the threads that are free; returns at once, unless compaction is far behind."""
        found = merges(state, ruleset, fanout, most, self._quiet, self._taken)
        self.due_bytes = sum(due.bytes for due in found) + sum(s.bytes for s in self._taken)
        # Merged segments go first. New ones are merged meanwhile if the memory suffices for both.
        for lowest in (False, True):
            some = [due for due in found if (due.segments[0].level == 0) is lowest]
            far_behind = any(due.behind >= STALL * fanout for due in some)
            if far_behind:
                self._wait(lowest)
            if not some or self._bytes(lowest) is not None:
                continue
            beside = self._bytes(not lowest)
            if beside is not None and most is not None:
                fit = [due for due in some if beside + due.bytes <= most]
                if far_behind and not fit:
                    self._wait(not lowest)
                else:
                    some = fit
            if some:
                self._merge(lowest, some, state, ruleset)

    def _bytes(self, lowest: bool) -> int | None:
        """Return the bytes of the largest merge that runs in the thread for segments of batches
        (``lowest``) or in the one for merged segments; None if the thread is free."""
        thread, largest = self._threads.get(lowest, (None, 0))
        return largest if thread is not None and thread.is_alive() else None

    def _wait(self, lowest: bool) -> None:
        if self._bytes(lowest) is None:
            return
        started = time.perf_counter()
        self._threads[lowest][0].join()
        waited = round(time.perf_counter() - started, 3)
        _LOG.warning("a batch waited for compaction", seconds=waited)

    def _merge(self, lowest: bool, found: Sequence[Merge], state: State, ruleset: Ruleset) -> None:
        works = self._works(found, state, ruleset)
        if not self.beside:
            self._run(works)
            return
        thread = threading.Thread(target=self._run, args=(works,), name="compaction", daemon=True)
        self._threads[lowest] = thread, max(merge.bytes for merge in found)
        thread.start()

    def _works(self, found: Sequence[Merge], state: State, ruleset: Ruleset) -> list[Compaction]:
        """Return the merges ``found`` as work, with their segments marked as being merged."""
        root, objects = str(self.root), durable(self.root).uri
        layout, since, seen = Layout(ruleset, layouts(state)), superseding(state), boundaries(state)
        self._taken.update(s for merge in found for s in merge.segments)

        def work(merge: Merge) -> Compaction:
            # A backfill's results keep superseded rows; a later merge of the store drops them.
            past = merge.segments[0] in state.stores[_store(merge)].pending
            if past:
                return Compaction(root, merged_pack(), merge, layout, objects=objects, past=True)
            return Compaction(root, merged_pack(), merge, layout, since, objects, seen)

        return [work(merge) for merge in found]

    def rewrite(self, state: State, ruleset: Ruleset) -> None:
        """Merge the segments of each store partition into as few as possible, synchronously."""
        parts: dict[tuple[str, int, int], list[list[Segment]]] = {}
        for spec in ruleset.stores:
            side = sides(state, state.stores[spec.id])
            for segment in state.stores[spec.id].segments:
                runs = parts.setdefault((spec.id, segment.partition, side(segment)), [[]])
                if sum(s.rows for s in runs[-1]) + segment.rows > LARGEST:
                    runs.append([])
                runs[-1].append(segment)
        found = [Merge(tuple(run)) for runs in parts.values() for run in runs if len(run) > 1]
        self._run(self._works(found, state, ruleset))

    def close(self) -> None:
        """Wait for the running merges to end; their output is dropped."""
        self.leaving.set()
        for thread, _ in self._threads.values():
            thread.join()

    def _run(self, works: Sequence[Compaction]) -> None:
        if self.beside:
            give_way()
        by_queue: dict[str | None, list[Compaction]] = defaultdict(list)
        for work in works:
            by_queue[self.queue(work)].append(work)
        queues = list(by_queue.values())
        threads = [threading.Thread(target=self._each, args=(one,)) for one in queues[1:]]
        for thread in threads:
            thread.start()
        for one in queues[:1]:
            self._each(one)
        for thread in threads:
            thread.join()

    def _each(self, queue: Sequence[Compaction]) -> None:
        for works in _groups(queue) if self.work is compact else [[work] for work in queue]:
            if self.leaving.is_set():
                return
            if len(works) > 1:
                # If a merge of the group fails, each runs on its own, to find the damaged segment.
                with suppress(StateError):
                    for work, merged in zip(works, compact_together(works), strict=True):
                        self._merged(work, merged)
                    continue
            for work in works:
                self._alone(work)

    def _alone(self, work: Compaction) -> None:
        try:
            merged = self.work(work)
        except StateError as error:
            self._ended.append(_Ended(work, error))
        except Exception as error:
            if not self.beside:
                raise
            # For example an error of Spark. The state is unchanged; a later batch retries the
            # merge.
            _LOG.warning("merge failed", store=_store(work.merge), error=str(error)[:2000])
            self._ended.append(_Ended(work, None))
        else:
            self._merged(work, merged)

    def _merged(self, work: Compaction, merged: MergedSegment) -> None:
        segment = merged.segment
        if not work.past:
            self._spent.append(Writes(1, segment.rows, merged.seconds))
        self._ended.append(_Ended(work, segment))
        _LOG.info(
            "merged",
            store=segment.store,
            partition=segment.partition,
            level=segment.level,
            rows=segment.rows,
            ms=round(1e3 * merged.seconds),
        )


def _groups(queue: Sequence[Compaction]) -> list[list[Compaction]]:
    """Group small merges that write one pack together: up to :data:`TOGETHER` bytes a group."""
    groups, room = list[list[Compaction]](), 0
    for work in queue:
        size = work.merge.bytes
        if size > room:
            groups.append([])
            room = TOGETHER
        groups[-1].append(work)
        room -= size
    return groups


def _packs(ended: Iterable[_Ended]) -> frozenset[str]:
    """Return the names of the packs of ``ended`` merges."""
    return frozenset(one.outcome.path for one in ended if isinstance(one.outcome, Segment))


def _store(merge: Merge) -> str:
    return merge.segments[0].store
