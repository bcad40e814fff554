"""Compaction in the background: segments are merged while batches run.

A probe reads every segment of a store, so segments are merged in a tiered LSM tree: the oldest
``fanout`` segments of a level become one of the next. A merge may take longer than several batches.
So it runs in its own thread, over segments that never change, and its output replaces them in the
manifest of the next committed batch. Before that commit, or after a crash, the output is a file
that no manifest names.

On one host the thread merges itself, in compiled code and at low priority, so that tasks go first.
On a cluster it waits for the hosts of the partitions, which merge concurrently (``spark.merges``).

The number of segments stays bounded: if a store partition has ``STALL * fanout`` segments of one
level, the next batch waits until the running merge has ended.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.measurements import Writes
from anabranch_runtime.epochs.annihilation import Boundaries, boundaries, still_right
from anabranch_runtime.epochs.layout import Layout, layouts
from anabranch_runtime.epochs.merging import LARGEST, STALL, QuietStores, backlog, merges, replaced
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


@dataclass(slots=True)
class Compactor:
    """Running merges, and finished ones that wait for a commit.

    Attributes:
        root: the state directory.
        work: does one merge. By default this process merges, several small ones into one pack.
        beside: whether merges run in a thread; otherwise :meth:`begin` does them itself, so that a
            run depends only on its input, not on timing.
        queue: returns the queue of a merge; merges of one queue are serial, queues are parallel.
        leaving: set when no more merges may begin (:meth:`close`).
    """

    root: Path
    work: Callable[[Compaction], MergedSegment] = compact
    beside: bool = False
    queue: Callable[[Compaction], str | None] = lambda _: None
    leaving: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _done: list[tuple[Merge, Segment | StateError]] = field(default_factory=list)
    #: Number of merges in ``_done`` that :meth:`settle` has seen; the thread may add more.
    _seen: int = 0
    #: Boundaries between rows that readers distinguish, at the start of the last merges.
    _boundaries: Boundaries = field(default_factory=dict)
    _quiet: QuietStores = field(default_factory=QuietStores)
    #: Bytes of the segments that were due to be merged at the last check.
    due_bytes: int = 0
    #: Finished merges that :meth:`take_spent` has not returned yet; the thread may add more.
    _spent: list[Writes] = field(default_factory=list)

    def settle(self, state: State) -> State:
        """Return ``state`` with merged segments in place of their parts (the segments merged). A
        merge is discarded if one of its parts has expired or its store was dropped meanwhile, or if
        rows have cancelled in it that readers now distinguish. The caller commits the result and
        then calls :meth:`settled`.

        Raises:
            StateError: a part that is still needed can't be read.
        """
        stores, (stored, merged) = dict[str, StoreState](), state.measured.written
        self._seen = len(self._done)
        now = boundaries(state) if self._boundaries else {}
        for merge, outcome in self._done[: self._seen]:
            name = _store(merge)
            store = stores.get(name) or state.stores.get(name)
            if store is None or not set(merge.segments) <= set(store.segments):
                continue
            if isinstance(outcome, StateError):
                raise outcome
            used = {n: b for n, b in self._boundaries.items() if n in store.streams}
            if used and not still_right(used, now, merge, outcome):
                continue
            found = replaced(store.segments, merge, outcome)
            stores[outcome.store] = replace(store, segments=found)
            merged += outcome.bytes
        measured = replace(state.measured, written=(stored, merged))
        return replace(state, stores=changed(state.stores, stores), measured=measured)

    def settled(self, state: State) -> None:
        """Forget the merges seen by :meth:`settle`, now committed; delete their unused files."""
        named = {s.path for store in state.stores.values() for s in store.segments}
        written = (o.path for _, o in self._done[: self._seen] if not isinstance(o, StateError))
        durable(self.root).discard(path for path in written if path not in named)
        del self._done[: self._seen]
        self._seen = 0

    @property
    def spent(self) -> Writes:
        """Merges since the last :meth:`take_spent`: their number, written rows, CPU seconds."""
        return sum(tuple(self._spent), Writes())

    def take_spent(self) -> Writes:
        """Return the merges since the last call (:attr:`spent`)."""
        total = Writes()
        while self._spent:
            total += self._spent.pop()
        return total

    @property
    def pending(self) -> frozenset[str]:
        """Names of packs of finished merges that no manifest names yet."""
        return frozenset(o.path for _, o in list(self._done) if not isinstance(o, StateError))

    def begin(self, state: State, ruleset: Ruleset, fanout: int, most: int | None = None) -> None:
        """Merge the due segments of ``state`` into segments of at most ``most`` bytes (None: any
        number), unless a merge is running; returns at once, unless compaction is far behind.
        """
        if self._thread is not None and self._thread.is_alive():
            if backlog(state, ruleset, fanout, most, self._quiet) < STALL * fanout:
                return
            started = time.perf_counter()
            self._thread.join()
            waited = round(time.perf_counter() - started, 3)
            _LOG.warning("a batch waited for compaction", seconds=waited)
        if self._done:
            return
        found = merges(state, ruleset, fanout, most, self._quiet)
        self.due_bytes = sum(s.bytes for merge in found for s in merge.segments)
        if not found:
            return
        layout, since = Layout(ruleset, layouts(state)), superseding(state)
        self._boundaries = boundaries(state)
        if not self.beside:
            self._run(found, layout, since)
            return
        self._thread = threading.Thread(
            target=self._run, args=(found, layout, since), name="compaction", daemon=True
        )
        self._thread.start()

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
        self._boundaries = boundaries(state)
        self._run(found, Layout(ruleset, layouts(state)), superseding(state))

    def close(self) -> None:
        """Wait for the running merge to end; its output is dropped."""
        self.leaving.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, found: Sequence[Merge], layout: Layout, since: Mapping[str, int]) -> None:
        if self.beside:
            give_way()
        root, objects = str(self.root), durable(self.root).uri
        by_queue: dict[str | None, list[Compaction]] = defaultdict(list)
        for merge in found:
            work = Compaction(root, merged_pack(), merge, layout, since, objects, self._boundaries)
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
                        self._merged(work.merge, merged)
                    continue
            for work in works:
                self._alone(work)

    def _alone(self, work: Compaction) -> None:
        try:
            merged = self.work(work)
        except StateError as error:
            self._done.append((work.merge, error))
        except Exception as error:
            if not self.beside:
                raise
            # For example an error of Spark. The state is unchanged; a later batch retries the
            # merge.
            _LOG.warning("merge failed", store=_store(work.merge), error=str(error)[:2000])
        else:
            self._merged(work.merge, merged)

    def _merged(self, merge: Merge, merged: MergedSegment) -> None:
        segment = merged.segment
        self._spent.append(Writes(1, segment.rows, merged.seconds))
        self._done.append((merge, segment))
        _LOG.info(
            "merged",
            store=segment.store,
            partition=segment.partition,
            level=segment.level,
            rows=segment.rows,
            ms=round(1e3 * merged.seconds),
        )


def _groups(queue: Sequence[Compaction]) -> list[list[Compaction]]:
    """Return groups of successive merges: of at most :data:`TOGETHER` bytes, or of one merge."""
    groups, room = list[list[Compaction]](), 0
    for work in queue:
        size = sum(segment.bytes for segment in work.merge.segments)
        if size > room:
            groups.append([])
            room = TOGETHER
        groups[-1].append(work)
        room -= size
    return groups


def _store(merge: Merge) -> str:
    return merge.segments[0].store
