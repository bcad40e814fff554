"""One task of one batch: take arrivals in, store them, probe level by level, write results.

All tasks of a batch run this function side by side. What they share is immutable segments; what
they exchange, after the inserts and after every level, is the descriptors of the segments that
each has just written (``exchange``: every task's message, in task order). So at every level each
task sees all of the batch's inserts that the level's probes may need (``semantics.md``, "Exactly
once within a batch"). Starting tuples stay with the task that read them.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from anabranch_planner.model import AttrRef, Label
from anabranch_planner.ruleset import StoreId, arrival_edge
from anabranch_runtime.sinks.parquet import ResultWriter, output_schema, project
from anabranch_runtime.state.layout import Layout, base_layout
from anabranch_runtime.state.segment import PackWriter, Segment, SegmentReader, open_segment
from anabranch_runtime.state.stores import combination_rows, insert, merge
from anabranch_runtime.task.arrivals import take_in
from anabranch_runtime.task.partial import Partial, RowSet, concat_partials
from anabranch_runtime.task.probe import Prober, check
from anabranch_runtime.vectors.index import distinct_sketch
from anabranch_runtime.vectors.keys import key_vector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from anabranch_planner.model import RelationId
    from anabranch_planner.ruleset import OutputRule, ProbeRule, Ruleset
    from anabranch_runtime.context import BatchContext
    from anabranch_runtime.state.coverage import Interval
    from anabranch_runtime.state.manifest import EdgeCounts
    from anabranch_runtime.state.stores import KeyCache
    from anabranch_runtime.task.arrivals import Arrivals, BatchTable, Block

    Exchange = Callable[[str], list[str]]

#: Starting tuples that are sent through a probe tree together: enough to amortise the cost of a
#: call, few enough that a fan-out of a thousand still fits in memory.
CHUNK = 1 << 16


@dataclass(slots=True)
class TaskReport:
    """What one task of a batch did; travels to the driver as JSON."""

    segments: list[dict[str, Any]] = field(default_factory=list)
    merged: list[int] = field(default_factory=list)
    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    arrivals: dict[str, int] = field(default_factory=dict)
    sketches: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    edges: dict[str, EdgeCounts] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    #: Wall seconds: ``read`` (arrivals), ``store``, ``wait`` (for other tasks), ``probe`` (with
    #: projections and result pages), ``write`` (closing result files).
    phases: dict[str, float] = field(default_factory=dict)


def run_task(
    context: BatchContext,
    ruleset: Ruleset,
    blocks: Iterable[Block],
    *,
    task: int,
    tasks: int,
    exchange: Exchange,
) -> TaskReport:
    """Apply ``ruleset`` to a task's share of a batch.

    Args:
        context: the batch; the same for all tasks.
        ruleset: the ruleset of ``context.ruleset``.
        blocks: the tuples that this task starts with.
        task: this task's number among ``tasks``.
        exchange: gives every task's message; called equally often by all.
    """
    return _Task(context, ruleset, task, tasks, exchange).run(blocks)


class _LiveSegments:
    """Segments that probes may read: earlier batches' and what this batch has exchanged."""

    def __init__(self, context: BatchContext) -> None:
        self._root = context.root
        self._by_store: dict[str, list[Segment]] = {
            store: list(segments) for store, segments in context.segments.items()
        }

    def add(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            self._by_store.setdefault(segment.store, []).append(segment)

    def of(self, store: str, interval: Interval) -> Iterator[SegmentReader]:
        low, high = interval
        for segment in self._by_store.get(store, ()):
            if segment.first_batch <= high and segment.last_batch >= low:
                yield open_segment(self._root, segment)


class _Task:
    """The working state of :func:`run_task`."""

    def __init__(
        self, context: BatchContext, ruleset: Ruleset, task: int, tasks: int, exchange: Exchange
    ) -> None:
        self.context = context
        self.layout = Layout(ruleset, context.stores)
        self.task = task
        self.tasks = tasks
        self.exchange = exchange
        self.live = _LiveSegments(context)
        self.prober = Prober(self.layout, self.live, context.batch)
        self.report = TaskReport()
        self.pending: dict[int, list[tuple[Partial, ProbeRule]]] = defaultdict(list)
        self.combinations: dict[StoreId, list[Partial]] = defaultdict(list)
        self.writers: dict[str, ResultWriter] = {}

    def run(self, blocks: Iterable[Block]) -> TaskReport:
        context = self.context
        with self._phase("read"):
            arrivals = take_in(self.layout, context.batch, self.task, context.watermarks, blocks)
        with self._phase("store"):
            written = self._store_arrivals(arrivals)
        self._share(written)
        levels = max(self.layout.ruleset.levels, 1)
        for level in range(levels):
            with self._phase("probe"):
                for start in self._starts(arrivals) if level == 0 else ():
                    self._arrive(start)
                for partial, rule in self.pending.pop(level, ()):
                    self._probe(partial, rule, level)
            with self._phase("store"):
                written = self._store_combinations(level)
            if level + 1 < levels:
                self._share(written)
        with self._phase("write"):
            for writer in self.writers.values():
                writer.close()
        self._account(arrivals)
        return self.report

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Add the time that the block takes to the report."""
        started = time.perf_counter()
        yield
        known = self.report.phases.get(name, 0.0)
        self.report.phases[name] = known + time.perf_counter() - started

    # --- storing -------------------------------------------------------------------------------

    def _store_arrivals(self, arrivals: Arrivals) -> list[Segment]:
        """Write this task's base segments, and its share of the merges, as one pack."""
        with self._pack("base") as writer:
            for relation in sorted(arrivals.tables):
                rows = arrivals.tables[relation].batch
                cache: KeyCache = {}
                for spec in self.layout.inserts.get(arrival_edge(relation), ()):
                    insert(writer, self.layout, spec, rows, cache)
                self._sketch(relation, arrivals.tables[relation], cache)
            fresh = list(writer.segments)
            for number in range(self.task, len(self.context.merges), self.tasks):
                self._merge(writer, number)
        self.report.segments += [s.to_json() for s in writer.segments]
        return fresh

    def _merge(self, writer: PackWriter, number: int) -> None:
        segments = self.context.merges[number].segments
        readers = [open_segment(self.context.root, s) for s in segments]
        for reader in readers:
            reader.verify()
        merge(writer, self.layout, self.layout.specs[StoreId(segments[0].store)], readers)
        self.report.merged.append(number)

    def _store_combinations(self, level: int) -> list[Segment]:
        if not self.combinations:
            return []
        with self._pack(str(level)) as writer:
            for store in sorted(self.combinations):
                spec = self.layout.specs[store]
                partial = concat_partials(self.combinations[store])
                insert(writer, self.layout, spec, combination_rows(self.layout, spec, partial), {})
        self.combinations.clear()
        self.report.segments += [s.to_json() for s in writer.segments]
        return writer.segments

    def _pack(self, level: str) -> PackWriter:
        name = f"segments/{self.context.batch:010d}-{self.context.attempt}-{self.task}-{level}.pack"
        return PackWriter(Path(self.context.root), name)

    def _share(self, written: list[Segment]) -> None:
        with self._phase("wait"):
            messages = self.exchange(json.dumps([s.to_json() for s in written]))
        for message in messages:
            self.live.add(Segment.from_json(doc) for doc in json.loads(message))

    # --- probing -------------------------------------------------------------------------------

    def _starts(self, arrivals: Arrivals) -> Iterator[Partial]:
        for relation, labels in sorted(self.layout.starts.items()):
            table = arrivals.tables.get(relation)
            if table is None:
                continue
            for label in labels:
                for first in range(0, table.batch.num_rows, CHUNK):
                    last = min(first + CHUNK, table.batch.num_rows)
                    rows = RowSet((table,), None, np.arange(first, last, dtype=np.int64))
                    yield Partial(last - first, (rows,), {label: (0, "")}, label)

    def _arrive(self, partial: Partial) -> None:
        """Send starting tuples down their label's trees, and out for one-relation queries."""
        edge = arrival_edge(self.layout.relation_of[partial.start])
        for output in self.layout.outputs.get(edge, ()):
            if self.layout.queries[output.query].members[0][1] == partial.start:
                self._output(partial, output)
        for rule in self.layout.probes.get(edge, ()):
            if rule.start == partial.start:
                self._probe(partial, rule, 0)

    def _probe(self, partial: Partial, rule: ProbeRule, level: int) -> None:
        if rule.level > level:
            self.pending[rule.level].append((partial, rule))
            return
        joined = self.prober.probe(partial, rule, self.context.access[rule.out])
        if joined is None:
            return
        for spec in self.layout.inserts.get(rule.out, ()):
            self.combinations[spec.id].append(joined)
        for output in self.layout.outputs.get(rule.out, ()):
            self._output(joined, output)
        for child in self.layout.probes.get(rule.out, ()):
            self._probe(joined, child, level)

    def _output(self, partial: Partial, rule: OutputRule) -> None:
        partial = check(self.layout, partial, rule.bounds, rule.residuals)
        partial = partial.where(self._visible(rule.query, partial))
        if not partial.length:
            return
        query = self.layout.queries[rule.query]
        self.report.results[query.id] = self.report.results.get(query.id, 0) + partial.length
        if query.sink != "parquet":
            return
        writer = self.writers.get(query.id)
        if writer is None:
            path = Path(self.context.staging) / query.id / f"{self.task}.parquet"
            writer = self.writers[query.id] = ResultWriter(path, output_schema(query))
            self.report.files[query.id] = str(path)
        writer.add(project(query, partial))

    def _visible(self, query: str, partial: Partial) -> NDArray[np.bool_] | None:
        """Which results have visible members only (``semantics.md``, promise 4)."""
        mask: NDArray[np.bool_] | None = None
        activated = self.context.activated[query]
        for name, (batch, event_time) in self.context.visible.get(query, {}).items():
            label = Label(name)
            arrived = partial.batch(label)
            seen = arrived >= batch
            if event_time is not None:
                seen &= partial.tau(label) >= event_time
            seen |= arrived >= activated
            mask = seen if mask is None else mask & seen
        return mask

    # --- accounting ----------------------------------------------------------------------------

    def _sketch(self, relation: RelationId, table: BatchTable, cache: KeyCache) -> None:
        """Sketch the distinct keys of what arrived, from key vectors at hand where possible."""
        found = self.report.sketches.setdefault(relation, {})
        store = base_layout(relation)
        for owner, parts in self.layout.ruleset.sketches:
            if owner != relation:
                continue
            refs = tuple(AttrRef(Label(relation), a) for a, _ in parts)
            types = tuple(t for _, t in parts)
            if (refs, types) not in cache:
                rows = table.batch.num_rows
                arrays = [self.layout.stored(store, table, rows, r) for r in refs]
                cache[refs, types] = key_vector(arrays, types)
            name = ",".join(sorted(a for a, _ in parts))
            found[name] = distinct_sketch(cache[refs, types]).tolist()

    def _account(self, arrivals: Arrivals) -> None:
        self.report.streams = {s: asdict(m) for s, m in sorted(arrivals.meters.items())}
        self.report.arrivals = {r: t.batch.num_rows for r, t in sorted(arrivals.tables.items())}
        self.report.edges = {
            edge: (m.probes, m.matches, m.seconds, m.pairs, m.hits)
            for edge, m in sorted(self.prober.meters.items())
        }
