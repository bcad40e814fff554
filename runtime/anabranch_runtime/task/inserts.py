"""A task's writes to stores: arrived rows and rows of intermediate results.

Rows go to the stores' partitions as segments, all segments of one step of a batch in one pack.
With several hosts, each row is sent once to the host of its partition, and queued there until it
is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_contract.plans.ruleset import IndexSpec, StoreId, StoreSpec, arrival_edge
from anabranch_contract.protocol.measurements import Writes
from anabranch_contract.protocol.profile import CpuGroup
from anabranch_contract.queries.joins import RelationId
from anabranch_runtime.cpu import add_time, process_seconds
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.epochs.ownership import ownership
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.errors import AnabranchRuntimeError
from anabranch_runtime.exchange.traffic import Letter, Traffic
from anabranch_runtime.expressions.failures import Failures
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.storage.durable import durable
from anabranch_runtime.storage.partial import Partial, concat_partials
from anabranch_runtime.storage.segment import PackWriter, Segment
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.memory import PrivateMemory
from anabranch_runtime.task.meters import Collector
from anabranch_runtime.task.stores import (
    KeyCache,
    combination_rows,
    insert,
    kept_part,
    partition_numbers,
)


@cache
def _uploader() -> ThreadPoolExecutor:
    """Return this process's thread that uploads packs, which stays from batch to batch."""
    return ThreadPoolExecutor(1, thread_name_prefix="upload")


@dataclass(slots=True)
class Uploads:
    """Makes packs below ``root`` durable, in the background and one after the other: uploads them
    to the object store or, if there is none, syncs them to the disk."""

    root: str
    _begun: list[Future[None]] = field(default_factory=list)

    def add(self, pack: str) -> None:
        """Begin to upload a written pack, or to sync it to disk."""
        self._begun.append(_uploader().submit(durable(self.root).upload, pack))

    def finish(self) -> None:
        """Wait until all packs that the task has written are durable.

        Raises:
            OSError, StateError: a pack can't be synced or uploaded.
        """
        for upload in self._begun:
            upload.result()
        if self._begun and durable(self.root).uri is not None:
            reach(Point.UPLOADED)

    def close(self) -> None:
        """Cancel the uploads of packs that have not begun; wait for the others."""
        for upload in self._begun:
            upload.cancel()
        wait(self._begun)


#: Kinds of messages with rows to store: arrived rows of a relation, and new or backfilled rows of a
#: store of intermediate results.
ARRIVED, COMBINATION, PAST = "arrived", "combination", "past"


@dataclass(slots=True)
class Inserts:
    """Writer of the rows that one task stores in one batch.

    Attributes:
        most: maximum number of rows of intermediate results that wait in memory.
        traffic: messages to other hosts; None on a single host.
        waiting: number of rows of intermediate results that are neither written nor sent yet.
    """

    context: BatchContext
    layout: Layout
    task: int
    traffic: Traffic | None
    most: int
    collector: Collector
    report: TaskReport
    failures: Failures
    uploads: Uploads
    memory: PrivateMemory
    waiting: int = 0
    _made: dict[StoreId, list[Partial]] = field(default_factory=lambda: defaultdict(list))
    #: With several hosts: address of messages -> rows that this task has yet to write.
    _rows: dict[tuple[str, ...], list[pa.RecordBatch]] = field(
        default_factory=lambda: defaultdict(list)
    )
    #: Segments of intermediate results written so far at this level of the probe trees.
    _written: list[Segment] = field(default_factory=list)
    _packs: int = 0

    def arrivals(
        self, tables: Mapping[str, pa.RecordBatch], caches: dict[str, KeyCache], part: str = "base"
    ) -> list[Segment]:
        """Write arrived rows, by relation, as one pack.

        Args:
            caches: relation -> key vectors of its rows; newly computed ones are added.
            part: name of the pack, unique in the batch.
        """
        with self._metered(), self.pack(part) as writer:
            for name, rows in sorted(tables.items()):
                cache = caches.setdefault(name, {})
                for spec in self.layout.inserts.get(arrival_edge(RelationId(name)), ()):
                    self._insert(writer, spec, rows, cache)
        self.report.segments += writer.segments
        return writer.segments

    def combination(self, store: StoreId, made: Partial) -> None:
        """Queue rows of an intermediate result to be written to its store."""
        kept = kept_part(self.layout, self.layout.specs[store], made)
        if kept.length:
            self._made[store].append(kept)
            self.waiting += kept.length

    def flush(self) -> None:
        """Write waiting rows of intermediate results as one pack, or send them to their hosts."""
        made = {}
        for store in sorted(self._made):
            spec = self.layout.specs[store]
            made[str(store)] = combination_rows(
                self.layout, spec, concat_partials(self._made[store])
            )
        self._made.clear()
        self.waiting = 0
        if self.traffic is None:
            self._write(made)
            return
        for name, rows in made.items():
            self.send((COMBINATION, name), (self.layout.specs[StoreId(name)],), rows, {})
        if sum(r.num_rows for kept in self._rows.values() for r in kept) > self.most:
            self._write(self.received(COMBINATION))

    def end_level(self) -> list[Segment]:
        """Write all waiting rows of the level; return the segments written since the last call."""
        self.flush()
        self._write(self.received(COMBINATION))
        written, self._written = self._written, []
        return written

    def insert_past(self, writer: PackWriter, spec: StoreSpec, rows: pa.RecordBatch) -> None:
        """Write backfilled rows of an intermediate result."""
        cache: KeyCache = {}
        insert(writer, self.layout, spec, rows, cache, own=self._own(spec), past=True)
        self.collector.stored(spec, cache)

    @contextmanager
    def pack(self, part: str) -> Iterator[PackWriter]:
        """Yield a writer of a new pack; the pack is completed, and its upload begun, at the end."""
        name = f"segments/{self.context.batch:010d}-{self.context.attempt}-{self.task}-{part}.pack"
        with PackWriter(Path(self.context.root), name) as writer:
            yield writer
        if writer.segments:
            self.uploads.add(name)

    def send(
        self,
        address: tuple[str, ...],
        specs: Iterable[StoreSpec],
        rows: pa.RecordBatch,
        cache: KeyCache,
    ) -> None:
        """Send each of ``rows`` once to every host with its partition in one of the stores
        ``specs``. Rows for this host are queued."""
        assert self.traffic is not None
        fleet = self.traffic.fleet
        wanted = np.zeros((len(fleet.names), rows.num_rows), np.bool_)
        counted = set()
        for spec in specs:
            past = address[0] == PAST
            numbers = partition_numbers(self.layout, spec, rows, cache, past=past)
            way = spec.partition, spec.partitions
            if address[0] == ARRIVED and spec.partition is not None and way not in counted:
                counted.add(way)
                tuples = np.bincount(numbers, minlength=spec.partitions)
                self.traffic.add_demand(tuples, rows.nbytes / max(rows.num_rows, 1))
            wanted[fleet.owners(spec.partitions)[numbers], np.arange(rows.num_rows)] = True
        for host, mask in enumerate(wanted):
            if not mask.any():
                continue
            part = rows if mask.all() else rows.filter(pa.array(mask))
            letter = Letter(address, part, part.num_rows)
            if host == fleet.here:
                self.arrived(letter)
            else:
                self.traffic.send(fleet.peer(host), letter)

    def arrived(self, letter: Letter) -> None:
        """Queue rows from another host that this task has to write to stores."""
        self._rows[letter.address].append(letter.rows)

    def received(self, kind: str) -> dict[str, pa.RecordBatch]:
        """Return the queued rows of one kind of message, by relation or store; empty the queue."""
        keys = [address for address in self._rows if address[0] == kind]
        return {address[1]: pa.concat_batches(self._rows.pop(address)) for address in sorted(keys)}

    def _write(self, rows: Mapping[str, pa.RecordBatch]) -> None:
        """Write rows of intermediate results, by store, as one pack."""
        if not rows:
            return
        self.memory.glance()
        self._packs += 1
        with self._metered(), self.pack(str(self._packs)) as writer:
            for name in sorted(rows):
                spec = self.layout.specs[StoreId(name)]
                cache: KeyCache = {}
                self._insert(writer, spec, rows[name], cache)
                self.collector.stored(spec, cache)
        self.report.segments += writer.segments
        self._written += writer.segments

    def _insert(
        self, writer: PackWriter, spec: StoreSpec, rows: pa.RecordBatch, cache: KeyCache
    ) -> None:
        own, began = self._own(spec), process_seconds()
        done = insert(writer, self.layout, spec, rows, cache, self._index_failed, own)
        self.report.measured.inserts += Writes(1, done)
        add_time(self.report.measured.cpu, CpuGroup.INSERT, spec.id, began)

    def _own(self, spec: StoreSpec) -> NDArray[np.bool_] | None:
        """Return the mask of this host's partitions of a store; None if this is the only host."""
        return None if self.traffic is None else self.traffic.fleet.own(spec.partitions)

    @contextmanager
    def _metered(self) -> Iterator[None]:
        """Count the CPU time of the ``with`` block as the task's time of inserts."""
        started = process_seconds()
        yield
        self.report.measured.inserts += Writes(seconds=process_seconds() - started)

    def _index_failed(self, store: StoreId, index: IndexSpec, error: AnabranchRuntimeError) -> None:
        self.failures.add(ownership(self.layout.ruleset).of_index(store, index), error)
