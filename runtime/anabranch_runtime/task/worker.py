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
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from anabranch_contract import codec
from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.plans.ruleset import arrival_edge
from anabranch_contract.protocol.measurements import Writes
from anabranch_contract.queries.joins import AttrRef, Label
from anabranch_runtime.epochs.freshness import oldest_starts
from anabranch_runtime.epochs.layout import Layout, base_layout
from anabranch_runtime.epochs.ownership import ownership, without
from anabranch_runtime.epochs.rationing import rationing
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.expressions.failures import EVALUATION, Failures
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.index.keys import key_vector
from anabranch_runtime.sinks.late import LATE, write_late
from anabranch_runtime.sinks.outer_rows import left_row_columns
from anabranch_runtime.sinks.parquet import ResultWriter, output_schema, project
from anabranch_runtime.sinks.sampling import slots, with_slots
from anabranch_runtime.storage.durable import attach
from anabranch_runtime.storage.partial import Partial, RowSet, Tables, concat_partials
from anabranch_runtime.storage.segment import PackWriter, Segment
from anabranch_runtime.storage.segment_cache import keep_open
from anabranch_runtime.task.arrivals import take_in
from anabranch_runtime.task.backfill import fill_slice
from anabranch_runtime.task.catch_up import Payer
from anabranch_runtime.task.context import live_segments
from anabranch_runtime.task.groups import LiveSegments
from anabranch_runtime.task.latest import Latest
from anabranch_runtime.task.memory import PrivateMemory, budget
from anabranch_runtime.task.meters import Collector
from anabranch_runtime.task.pieces import Pieces
from anabranch_runtime.task.probe import Prober, check
from anabranch_runtime.task.rations import Ranks, Wanted
from anabranch_runtime.task.rounds import Rounds
from anabranch_runtime.task.sampling import kept_by
from anabranch_runtime.task.stores import combination_rows, insert
from anabranch_runtime.task.uploads import Uploads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from anabranch_contract.plans.ruleset import (
        IndexSpec,
        OutputRule,
        ProbeRule,
        QuerySpec,
        Ruleset,
        StoreId,
    )
    from anabranch_contract.queries.joins import QueryId, RelationId
    from anabranch_runtime.errors import AnabranchRuntimeError
    from anabranch_runtime.index.table import BatchTable
    from anabranch_runtime.sources.blocks import Block
    from anabranch_runtime.state.coverage import Access
    from anabranch_runtime.state.debt import CatchUp
    from anabranch_runtime.state.slices import Slice
    from anabranch_runtime.task.arrivals import Arrivals
    from anabranch_runtime.task.context import BatchContext
    from anabranch_runtime.task.stores import KeyCache

    Exchange = Callable[[str], list[str]]

#: Starting tuples that are sent through a probe tree together: enough to amortise the cost of a
#: call, few enough that a fan-out of a thousand still fits in memory.
CHUNK = 1 << 16


def run_task(
    context: BatchContext,
    ruleset: Ruleset,
    blocks: Iterable[Block],
    *,
    task: int,
    tasks: int,
    exchange: Exchange,
    collect: bool = True,
    sharing: int | None = None,
    advanced: Callable[[], None] = lambda: None,
) -> TaskReport:
    """Apply ``ruleset`` to a task's share of a batch.

    Args:
        context: the batch; the same for all tasks.
        ruleset: the ruleset of ``context.ruleset``.
        blocks: the tuples that this task starts with.
        task: this task's number among ``tasks``.
        exchange: gives every task's message; called equally often by all.
        collect: False leaves out delays, sketches and samples, to see what they cost.
        sharing: of these tasks, those that share a host's memory with this one; None: all.
        advanced: called again and again, whenever the task has got further.
    """
    sharing = tasks if sharing is None else sharing
    working = _Task(context, ruleset, task, tasks, exchange, collect, sharing, advanced)
    return working.run(blocks)


class _Task:
    """The working state of :func:`run_task`."""

    def __init__(
        self,
        context: BatchContext,
        ruleset: Ruleset,
        task: int,
        tasks: int,
        exchange: Exchange,
        collect: bool,
        sharing: int,
        advanced: Callable[[], None],
    ) -> None:
        self.context = context
        self.ruleset = without(ruleset, context.failed)
        self.layout = Layout(self.ruleset, context.stores)
        self.task = task
        self.tasks = tasks
        self.exchange = exchange
        self.advanced = advanced
        self.durable = attach(context.root, context.objects)
        self.fetched = self.durable.fetched
        segments = live_segments(context)
        keep_open(context.root, segments)
        self.live = LiveSegments(context.root, context.batch, segments)
        self.budget = budget(context.memory_limit, sharing)
        self.memory = PrivateMemory()
        self.rationing = rationing(self.ruleset, context.rations)
        self.oldest = oldest_starts(self.ruleset, context.now)
        self.ranks = Ranks(self.layout, context.batch)
        self.prober = Prober(
            self.layout,
            self.live,
            context.batch,
            self.budget.pairs,
            by_stream=bool(self.rationing.goals),
        )
        self.pieces = Pieces(self.prober)
        self.rounds = Rounds(
            self.prober, context.access, self._deliver, lambda p, rule: self._probe(p, rule, 0)
        )
        self.latest = Latest(self.prober, context.latest)
        self.report = TaskReport()
        self.collector = Collector(context.bounds, context.batch, collect)
        self.pending: dict[int, list[tuple[Partial, ProbeRule]]] = defaultdict(list)
        self.combinations: dict[StoreId, list[Partial]] = defaultdict(list)
        #: Their tuples.
        self.waiting = 0
        #: Segments of combinations that the level has written so far.
        self.written: list[Segment] = []
        self.packs = 0
        self.uploads = Uploads(context.root)
        #: Seconds of phases within the one that runs.
        self.inner = 0.0
        self.writers: dict[str, ResultWriter] = {}
        self.failures = Failures(context.batch, self.report.failures)

    def run(self, blocks: Iterable[Block]) -> TaskReport:
        with closing(self.uploads):
            return self._run(blocks)

    def _run(self, blocks: Iterable[Block]) -> TaskReport:
        context = self.context
        with self._phase("read"):
            arrivals = take_in(
                self.layout,
                context.batch,
                self.task,
                context.watermarks,
                self._read(blocks),
                self.collector,
                self._filter_failed,
                context.newest_allowed,
                context.redefined,
            )
        self.memory.look()
        with self._phase("store"):
            written = self._store_arrivals(arrivals)
        reach(Point.STORED)
        self._share(written)
        levels = max(self.layout.levels, 1)
        for level in range(levels):
            with self._phase("probe"):
                if level == 0:
                    for start in self._starts(arrivals):
                        self._arrive(start)
                    self.rounds.run()
                for partial, rule in self.pending.pop(level, ()):
                    self._probe(partial, rule, level)
            with self._phase("store"):
                self._store_combinations()
            written, self.written = self.written, []
            if level + 1 < levels:
                self._share(written)
        if context.catch_up is not None:
            with self._phase("catch-up"):
                self._catch_up(context.catch_up)
        with self._phase("write"):
            reach(Point.STAGING)
            started = time.process_time()
            for writer in self.writers.values():
                writer.close()
            # Rows of the last row group are encoded here: results of small batches all are.
            self.report.emitted += Writes(seconds=time.process_time() - started)
            self._write_late(arrivals)
        if context.backfill is not None:
            with self._phase("backfill"):
                self._backfill(context.backfill)
        with self._phase("upload"):
            self.uploads.finish()
        self._account(arrivals)
        self.memory.give_back(self.budget)
        return self.report

    def _read(self, blocks: Iterable[Block]) -> Iterator[Block]:
        for block in blocks:
            self.advanced()
            yield block

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Add the time that the block takes, less that of phases in it, to the report."""
        self.advanced()
        started, outer, self.inner = time.perf_counter(), self.inner, 0.0
        yield
        spent = time.perf_counter() - started
        known = self.report.phases.get(name, 0.0)
        self.report.phases[name] = known + spent - self.inner
        self.inner = outer + spent

    # --- storing -------------------------------------------------------------------------------

    def _store_arrivals(self, arrivals: Arrivals) -> list[Segment]:
        """Write this task's base segments as one pack."""
        with self._metered(), self._pack("base") as writer:
            for relation in sorted(arrivals.tables):
                rows = arrivals.tables[relation].batch
                cache: KeyCache = {}
                for spec in self.layout.inserts.get(arrival_edge(relation), ()):
                    insert(writer, self.layout, spec, rows, cache, self._index_failed)
                    self.report.inserts += Writes(1, rows.num_rows)
                self._sketch(relation, arrivals.tables[relation], cache)
        self.report.segments += writer.segments
        return writer.segments

    def _store_combinations(self) -> None:
        """Write the intermediate results' rows that wait, as one pack."""
        if not self.combinations:
            return
        self.memory.glance()
        self.packs += 1
        with self._metered(), self._pack(str(self.packs)) as writer:
            for store in sorted(self.combinations):
                spec = self.layout.specs[store]
                partial = concat_partials(self.combinations[store])
                cache: KeyCache = {}
                rows = combination_rows(self.layout, spec, partial)
                insert(writer, self.layout, spec, rows, cache, self._index_failed)
                self.report.inserts += Writes(1, rows.num_rows)
                self.collector.stored(spec, cache)
        self.combinations.clear()
        self.waiting = 0
        self.report.segments += writer.segments
        self.written += writer.segments

    def _backfill(self, work: Slice) -> None:
        # Not on the edges' meters: what is sent here is no part of what the plan costs.
        prober = Prober(self.layout, self.live, self.context.batch, self.budget.pairs)
        try:
            with self._pack("backfill") as writer:
                self.report.backfill_merged = fill_slice(
                    writer,
                    prober,
                    self.collector,
                    self.context.root,
                    work,
                    self.task,
                    self.tasks,
                    self.advanced,
                )
        except EVALUATION as error:
            self.report.backfill_failed = error.message
        else:
            self.report.backfilled = writer.segments

    @contextmanager
    def _metered(self) -> Iterator[None]:
        """Count the CPU time of the block as that of inserts."""
        started = time.process_time()
        yield
        self.report.inserts += Writes(seconds=time.process_time() - started)

    @contextmanager
    def _pack(self, part: str) -> Iterator[PackWriter]:
        """A pack to write; it is uploaded once it is complete."""
        name = f"segments/{self.context.batch:010d}-{self.context.attempt}-{self.task}-{part}.pack"
        with PackWriter(Path(self.context.root), name) as writer:
            yield writer
        if writer.segments:
            self.uploads.add(name)

    def _share(self, written: list[Segment]) -> None:
        with self._phase("wait"):
            messages = self.exchange(json.dumps(codec.to_json(written)))
        for message in messages:
            self.live.add(codec.from_json(doc, Segment) for doc in json.loads(message))

    # --- probing -------------------------------------------------------------------------------

    def _starts(self, arrivals: Arrivals) -> Iterator[Partial]:
        for relation, table in sorted(arrivals.tables.items()):
            tables = Tables([table])
            for label in self.layout.starts.get(relation, ()):
                for first in range(0, table.batch.num_rows, CHUNK):
                    last = min(first + CHUNK, table.batch.num_rows)
                    rows = RowSet(tables, None, np.arange(first, last, dtype=np.int32))
                    yield Partial(last - first, (rows,), {label: (0, "")}, label)

    def _arrive(self, partial: Partial) -> None:
        """Send starting tuples down their label's trees, and out for one-relation queries."""
        edge = arrival_edge(self.layout.relation_of[partial.start])
        wanted = Wanted(partial, None, self.ranks)
        for output in self.layout.outputs.get(edge, ()):
            if self.layout.queries[output.query].members[0][1] == partial.start:
                self._output(wanted, output)
        together, roots = [], self.rounds.roots(partial)
        for rule in self.layout.probes.get(edge, ()):
            if rule.start == partial.start:
                oldest = self.oldest.get(rule.out)
                if oldest is None and rule.out in roots:
                    together.append(roots[rule.out])
                    continue
                start = wanted.by(self.rationing.edge(rule.out))
                if oldest is not None:
                    start = start.where(start.tau(start.start) >= oldest)
                self._probe(start, rule, 0)
        self.rounds.add(partial, together)

    def _probe(self, partial: Partial, rule: ProbeRule, level: int) -> None:
        if not partial.length:
            return
        if rule.level > level:
            self.pending[rule.level].append((partial, rule))
            return
        for joined in self._joined(self.pieces, partial, rule, self.context.access[rule.out]):
            self._pass_on(joined, rule, level, self.layout.probes.get(rule.out, ()))

    def _joined(
        self, pieces: Pieces, partial: Partial, rule: ProbeRule, access: Access
    ) -> Iterator[Partial]:
        """What a probe makes, piece by piece, as far as its expressions can be evaluated."""
        found = pieces.probe(partial, rule, access)
        while True:
            try:
                joined = next(found, None)
            except EVALUATION as error:
                self.failures.add(ownership(self.ruleset).of_edge(rule.out), error)
                return
            if joined is None:
                return
            self.advanced()
            self.memory.glance()
            yield joined

    def _deliver(self, joined: Partial, rule: ProbeRule, children: Sequence[ProbeRule]) -> None:
        """Send what a round has made (``rounds``) where it is wanted."""
        self.advanced()
        self.memory.glance()
        self._pass_on(joined, rule, 0, children)

    def _pass_on(
        self, joined: Partial, rule: ProbeRule, level: int, children: Sequence[ProbeRule]
    ) -> None:
        """Send what a probe has made to stores, outputs and the next probes."""
        for spec in self.layout.inserts.get(rule.out, ()):
            self.combinations[spec.id].append(joined)
            self.waiting += joined.length
        if self.waiting > self.budget.combinations:
            with self._phase("store"):
                self._store_combinations()
        wanted = Wanted(joined, self.rationing.edge(rule.out), self.ranks)
        for output in self.layout.outputs.get(rule.out, ()):
            self._output(wanted, output)
        for child in children:
            self._probe(wanted.by(self.rationing.edge(child.out)), child, level)

    def _output(self, found: Wanted, rule: OutputRule) -> None:
        partial = found.by(self.rationing.goal(rule.query, found.partial.start))
        marks = self.context.watermarks
        self._emit_unless_failed(self._alike(partial, rule.query), rule, marks)

    def _emit_unless_failed(
        self, partial: Partial, rule: OutputRule, marks: Mapping[str, int]
    ) -> int:
        """Write the results among ``partial``, unless the query has failed or fails at them; how
        many there are.

        Args:
            marks: streams' watermarks, as the batch began that these are results of.
        """
        if rule.query in self.failures.found:
            return 0
        started = time.process_time()
        try:
            rows = self._emit(partial, rule, marks)
        except EVALUATION as error:
            self.failures.add([rule.query], error)
            return 0
        self.report.emitted += Writes(1, rows, time.process_time() - started)
        return rows

    def _catch_up(self, work: CatchUp) -> None:
        # Not on the edges' meters: what is sent here is no part of what the plan costs.
        prober = Prober(self.layout, self.live, self.context.batch, self.budget.pairs)
        pieces, made = Pieces(prober), self.report.caught_up

        def probe(found: Partial, rule: ProbeRule, access: Access) -> Iterator[Partial]:
            return self._joined(pieces, found, rule, access)

        def emit(partial: Partial, rule: OutputRule) -> None:
            rows = self._emit_unless_failed(partial, rule, work.watermarks)
            made[rule.query] = made.get(rule.query, 0) + rows

        payer = Payer(
            self.layout,
            self.context.root,
            self.context.access,
            probe,
            emit,
            self.advanced,
        )
        payer.pay(work, self.task, self.tasks)

    def _alike(self, partial: Partial, query: QueryId) -> Partial:
        """``partial`` less the results of which another member of this batch, of the stream of the
        one that arrived last, is not below its own ration: which of the two is the last depends on
        how the batch's tuples happen to be numbered.
        """
        start, layout = partial.start, self.layout
        for _, label, _ in layout.queries[query].members if self.rationing.goals else ():
            own = self.rationing.goal(query, label)
            if own is None or label == start or layout.stream(label) != layout.stream(start):
                continue
            here = partial.batch(label) == self.context.batch
            partial = partial.where(~here | self.ranks.below(partial, label, own))
        return partial

    def _emit(self, partial: Partial, rule: OutputRule, marks: Mapping[str, int]) -> int:
        """Write the results among ``partial``; how many there are."""
        partial = check(self.layout, partial, rule.bounds, ())
        partial = partial.where(self._visible(rule.query, partial))
        query = self.layout.queries[rule.query]
        partial = partial.where(self._fresh(query, partial))
        partial = self.latest.current(partial, [label for _, label, _ in query.members])
        partial = check(self.layout, partial, (), rule.residuals)
        if not partial.length:
            return 0
        self.report.results[query.id] = self.report.results.get(query.id, 0) + partial.length
        if self.rationing.goals:
            kept = self.report.kept.setdefault(query.id, {})
            kept[partial.start] = kept.get(partial.start, 0) + partial.length
        if query.sink.kind is SinkKind.COUNT:
            return partial.length
        writer = self.writers.get(query.id)
        if writer is None:
            if not self.writers:
                Path(self.context.staging).mkdir(parents=True, exist_ok=True)
            # No folder per query: making and removing hundreds of them takes longer than a batch.
            path = Path(self.context.staging) / f"{query.id}.{self.task}.parquet"
            schema = output_schema(query)
            if query.id in self.context.sampled:
                streams = (self.layout.stream(label) for _, label, _ in query.members)
                schema = with_slots(schema, slots(streams))
            writer = self.writers[query.id] = ResultWriter(path, schema, self.budget.page)
            self.report.files[query.id] = str(path)
        done = 0
        while done < partial.length:
            piece = partial.cut(done, done + writer.room)
            writer.add(self._projected(query, piece, writer.schema, marks))
            done += piece.length
        self.memory.glance()
        return partial.length

    def _projected(
        self, query: QuerySpec, results: Partial, schema: pa.Schema, marks: Mapping[str, int]
    ) -> pa.RecordBatch:
        """The rows of complete results, with what ``schema`` has beside the projection: of outer
        joins the columns of left rows, of sampled queries those of slots.
        """
        if query.has_outer_join:
            outer = query.outer
            if query.left_of is not None:
                outer = self.layout.queries[query.left_of].outer
            assert outer is not None
            beside = left_row_columns(query, outer.partner, results, marks)
            return project(query, results, schema, beside)
        if query.id not in self.context.sampled:
            return project(query, results, schema)
        rows = project(query, results, output_schema(query))
        count = (len(schema) - rows.num_columns) // 2
        kept = kept_by(results, query, self.layout, self.rationing, self.ranks, count)
        return pa.RecordBatch.from_arrays([*rows.columns, *kept], schema=schema)

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

    def _fresh(self, query: QuerySpec, partial: Partial) -> NDArray[np.bool_] | None:
        """Which results have no member that is too old (``semantics.md``, "Freshness")."""
        mask: NDArray[np.bool_] | None = None
        now = self.context.now
        if now is None:
            return None
        for label, most in query.freshness:
            young = partial.tau(label) >= now - most
            mask = young if mask is None else mask & young
        return mask

    # --- what can't be had ---------------------------------------------------------------------

    def _filter_failed(self, relation: RelationId, error: AnabranchRuntimeError) -> None:
        self.failures.add(ownership(self.ruleset).of_relation(relation), error)

    def _index_failed(self, store: StoreId, index: IndexSpec, error: AnabranchRuntimeError) -> None:
        self.failures.add(ownership(self.ruleset).of_index(store, index), error)

    def _write_late(self, arrivals: Arrivals) -> None:
        """Stage what has been set aside of streams that keep it."""
        for stream, pieces in sorted(arrivals.aside.items()):
            path = Path(self.context.staging) / LATE / stream / f"{self.task}.parquet"
            write_late(path, pieces)
            self.report.late[stream] = str(path)

    # --- accounting ----------------------------------------------------------------------------

    def _sketch(self, relation: RelationId, table: BatchTable, cache: KeyCache) -> None:
        """Sketch the distinct keys of what arrived, from key vectors at hand where possible."""
        if not self.collector.enabled:
            return
        store = base_layout(relation)
        for parts in self.layout.sketches.get(relation, ()):
            refs = tuple(AttrRef(Label(relation), a) for a, _ in parts)
            types = tuple(t for _, t in parts)
            if (refs, types) not in cache:
                rows = table.batch.num_rows
                try:
                    arrays = [self.layout.stored(store, table, rows, r) for r in refs]
                    cache[refs, types] = key_vector(arrays, types)
                except EVALUATION:
                    # Statistics fail nobody; whoever needs the key finds out by itself.
                    continue
            name = ",".join(sorted(a for a, _ in parts))
            self.collector.keys(relation, name, cache[refs, types])

    def _account(self, arrivals: Arrivals) -> None:
        delays = self.collector.delays
        self.report.streams = {
            s: replace(m, delays=delays.get(s, ())) for s, m in sorted(arrivals.meters.items())
        }
        self.report.arrivals = {r: t.batch.num_rows for r, t in sorted(arrivals.tables.items())}
        self.report.sketches = self.collector.sketches
        self.report.samples = self.collector.sampled()
        self.report.fetched_bytes = self.durable.fetched - self.fetched
        self.report.memory = self.memory.peak
        self.report.memory_share = self.budget.total
        self.report.edges = {edge: m.counts for edge, m in sorted(self.prober.meters.items())}
        self.report.reads = dict(self.prober.reads.found)
