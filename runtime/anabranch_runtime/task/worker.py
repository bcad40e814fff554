"""One task of one batch: take arrivals in, store them, probe level by level, write results.

All tasks of a batch run this function side by side. What they share is immutable segments; what
they exchange, after the inserts and after every level, is the descriptors of the segments that
each has just written (``exchange``: every task's message, in task order). So at every level each
task sees all of the batch's inserts that the level's probes may need (``semantics.md``, "Exactly
once within a batch").

Tasks of one host read all that the host has. Starting tuples stay with the task that read them.
Where tasks are on several hosts, each host has some partitions of every store. Rows are sent to the
hosts that keep them, partial results to those that have what they are probed with (``courier``,
``Traffic``), in rounds that end when nobody has sent anything.
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
from anabranch_contract.plans.ruleset import StoreId, arrival_edge
from anabranch_contract.protocol.measurements import Writes
from anabranch_contract.queries.joins import AttrRef, Label, RelationId
from anabranch_runtime.epochs.freshness import oldest_starts
from anabranch_runtime.epochs.layout import Layout, base_layout
from anabranch_runtime.epochs.ownership import ownership, without
from anabranch_runtime.epochs.rationing import rationing
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.exchange.fleet import Fleet
from anabranch_runtime.exchange.partials import pack, unpack
from anabranch_runtime.exchange.traffic import Letter, Traffic
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
from anabranch_runtime.task.backfill import as_probe, merge_parts, stored_rows
from anabranch_runtime.task.catch_up import Payer
from anabranch_runtime.task.context import live_segments
from anabranch_runtime.task.courier import HOP, Courier, Work, needs_of
from anabranch_runtime.task.groups import LiveSegments
from anabranch_runtime.task.latest import Latest
from anabranch_runtime.task.memory import PrivateMemory, budget
from anabranch_runtime.task.meters import Collector
from anabranch_runtime.task.pieces import Pieces
from anabranch_runtime.task.probe import Prober, check
from anabranch_runtime.task.rations import Ranks, Wanted
from anabranch_runtime.task.rounds import Rounds
from anabranch_runtime.task.sampling import kept_by
from anabranch_runtime.task.stores import combination_rows, insert, partition_numbers
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
        StoreSpec,
    )
    from anabranch_contract.queries.joins import QueryId
    from anabranch_runtime.errors import AnabranchRuntimeError
    from anabranch_runtime.exchange.traffic import Post
    from anabranch_runtime.index.table import BatchTable
    from anabranch_runtime.sources.blocks import Block
    from anabranch_runtime.state.debt import CatchUp
    from anabranch_runtime.state.slices import Slice, Source
    from anabranch_runtime.task.arrivals import Arrivals
    from anabranch_runtime.task.context import BatchContext
    from anabranch_runtime.task.stores import KeyCache

    Exchange = Callable[..., list[str]]

#: Kinds of letters beside hops: arrived rows by relation, rows of intermediate results and of their
#: past by store, results on their way over hosts.
ARRIVED, COMBINATION, PAST, LEAVING = "arrived", "combination", "past", "leaving"
#: Results of the batch, and of earlier ones.
NOW, OWED = "now", "owed"
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
    hosts: Sequence[str] = (),
    post: Post | None = None,
) -> TaskReport:
    """Apply ``ruleset`` to a task's share of a batch.

    Args:
        context: the batch; the same for all tasks.
        ruleset: the ruleset of ``context.ruleset``.
        blocks: the tuples that this task starts with.
        task: this task's number among ``tasks``.
        exchange: gives every task's message for its own; called equally often by all. With ``post``
            it may be given a group, too (``traffic.Gather``).
        collect: False leaves out delays, sketches and samples, to see what they cost.
        sharing: of these tasks, those that share a host's memory with this one; None: all.
        advanced: called again and again, whenever the task has got further.
        hosts: where each of the tasks is; none: all are on one host.
        post: takes letters to other tasks, where these are on several hosts.
    """
    sharing = tasks if sharing is None else sharing
    fleet = Fleet(hosts or ("",) * tasks, task, context.placement)
    traffic = None if post is None or fleet.alone else Traffic(fleet, post, exchange)
    working = _Task(context, ruleset, task, tasks, exchange, collect, sharing, advanced, traffic)
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
        traffic: Traffic | None,
    ) -> None:
        self.context = context
        self.traffic = traffic
        self.ruleset = without(ruleset, context.failed)
        self.layout = Layout(self.ruleset, context.stores)
        self.task = task
        self.tasks = tasks
        self.exchange = exchange
        self.advanced = advanced
        self.durable = attach(context.root, context.objects)
        self.fetched = self.durable.fetched
        segments = live_segments(context, None if traffic is None else traffic.fleet.own)
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
            self.prober,
            context.access,
            self._deliver,
            self._probe,
        )
        self.courier = Courier(self.layout, traffic, needs_of(self.layout, context))
        self.main = Work(
            "batch",
            self.pieces,
            lambda rule: context.access[rule.out],
            self.layout.rules,
            self._guarded,
            lambda joined, rule: self._pass_on(joined, rule, self.layout.probes.get(rule.out, ())),
        )
        #: By name.
        self.works = {self.main.name: self.main}
        self.level = 0
        #: Where tasks are on several hosts: rows that this one has to write.
        self.rows: dict[tuple[str, ...], list[pa.RecordBatch]] = defaultdict(list)
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
            self.level = level
            with self._phase("probe"):
                if level == 0:
                    for start in self._starts(arrivals):
                        self._arrive(start)
                    self.rounds.run()
                for partial, rule in self.pending.pop(level, ()):
                    self._probe(partial, rule)
            self._settle()
            with self._phase("store"):
                self._store_combinations()
                self._write_rows(self._received(COMBINATION))
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
            if context.meeting is not None:
                self._put_results()
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
        """Write the base segments of what this task has to keep as one pack."""
        caches: dict[str, KeyCache] = {r: {} for r in arrivals.tables}
        found = {str(r): table.batch for r, table in sorted(arrivals.tables.items())}
        if self.traffic is not None:
            for relation, table in sorted(arrivals.tables.items()):
                specs = self.layout.inserts.get(arrival_edge(relation), ())
                self._send_rows((ARRIVED, relation), specs, table.batch, caches[relation])
                self._sketch(relation, table, caches[relation])
            self._settle()
            found, caches = self._received(ARRIVED), {}
        with self._metered(), self._pack("base") as writer:
            for name, rows in sorted(found.items()):
                relation, cache = RelationId(name), caches.setdefault(name, {})
                for spec in self.layout.inserts.get(arrival_edge(relation), ()):
                    self._insert(writer, spec, rows, cache)
                if self.traffic is None:
                    self._sketch(relation, arrivals.tables[relation], cache)
        self.report.segments += writer.segments
        return writer.segments

    def _insert(
        self, writer: PackWriter, spec: StoreSpec, rows: pa.RecordBatch, cache: KeyCache
    ) -> None:
        own = self._own(spec)
        done = insert(writer, self.layout, spec, rows, cache, self._index_failed, own)
        self.report.inserts += Writes(1, done)

    def _store_combinations(self) -> None:
        """Write the intermediate results' rows that wait, as one pack, or send them to the hosts
        that keep them.
        """
        made = {}
        for store in sorted(self.combinations):
            spec = self.layout.specs[store]
            partial = concat_partials(self.combinations[store])
            made[str(store)] = combination_rows(self.layout, spec, partial)
        self.combinations.clear()
        self.waiting = 0
        if self.traffic is None:
            self._write_rows(made)
            return
        for name, rows in made.items():
            spec = self.layout.specs[StoreId(name)]
            self._send_rows((COMBINATION, name), (spec,), rows, {})
        if sum(r.num_rows for kept in self.rows.values() for r in kept) > self.budget.combinations:
            self._write_rows(self._received(COMBINATION))

    def _write_rows(self, rows: Mapping[str, pa.RecordBatch]) -> None:
        """Write rows of intermediate results, by store, as one pack."""
        if not rows:
            return
        self.memory.glance()
        self.packs += 1
        with self._metered(), self._pack(str(self.packs)) as writer:
            for name in sorted(rows):
                spec = self.layout.specs[StoreId(name)]
                cache: KeyCache = {}
                self._insert(writer, spec, rows[name], cache)
                self.collector.stored(spec, cache)
        self.report.segments += writer.segments
        self.written += writer.segments

    def _backfill(self, work: Slice) -> None:
        # Not on the edges' meters: what is sent here is no part of what the plan costs.
        prober = Prober(self.layout, self.live, self.context.batch, self.budget.pairs)
        spec = self.layout.specs[StoreId(work.store)]
        rule, access = as_probe(spec, work)
        errors: list[AnabranchRuntimeError] = []

        def guarded(_: ProbeRule, found: Iterator[Partial]) -> Iterator[Partial]:
            try:
                yield from found
            except EVALUATION as error:
                errors.append(error)

        def store(rows: pa.RecordBatch) -> None:
            cache: KeyCache = {}
            insert(writer, self.layout, spec, rows, cache, own=self._own(spec))
            self.collector.stored(spec, cache)

        def made(found: Partial, _: ProbeRule) -> None:
            rows = combination_rows(self.layout, spec, found)
            if self.traffic is None:
                store(rows)
            else:
                self._send_rows((PAST, spec.id), (spec,), rows, {})

        self.courier.needs.keep(rule.out, spec)
        name = "backfill"
        way = Work(name, Pieces(prober), lambda _: access, {rule.out: rule}, guarded, made)
        self.works[name] = way
        try:
            with self._pack(name) as writer:
                sources, at, of = self._share_of(work.sources)
                start, root = work.rule.start, self.context.root
                for rows in stored_rows(self.layout, root, sources, start, at, of):
                    self.advanced()
                    self.courier.probe(way, rows, rule)
                self._settle()
                for found in self._received(PAST).values():
                    store(found)
                if errors:
                    raise errors[0]
                mine = [n for n, m in enumerate(work.merges) if self._owns(m.segments[0])][at::of]
                merge_parts(writer, self.layout, root, [work.merges[n] for n in mine])
        except EVALUATION as error:
            self.report.backfill_failed = error.message
        else:
            self.report.backfill_merged, self.report.backfilled = mine, writer.segments

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
            message = json.dumps(codec.to_json(written))
            share = self.exchange if self.traffic is None else self.traffic.share
            messages = share(message)
        for message in messages:
            self.live.add(codec.from_json(doc, Segment) for doc in json.loads(message))

    # --- other hosts ---------------------------------------------------------------------------

    def _own(self, spec: StoreSpec) -> NDArray[np.bool_] | None:
        """Which partitions of a store this host has; None: all."""
        return None if self.traffic is None else self.traffic.fleet.own(spec.partitions)

    def _owns(self, segment: Segment) -> bool:
        """Whether this host has a segment of a live store."""
        if self.traffic is None:
            return True
        partitions = self.context.stores[segment.store].partitions
        return bool(self.traffic.fleet.own(partitions)[segment.partition])

    def _share_of(self, sources: tuple[Source, ...]) -> tuple[tuple[Source, ...], int, int]:
        """Of stored rows those of which this task has a share: which, and of how many."""
        if self.traffic is None:
            return sources, self.task, self.tasks
        mates = self.traffic.fleet.mates
        own = tuple(s for s in sources if self._owns(s.segment))
        return own, mates.index(self.task), len(mates)

    def _send_rows(
        self,
        address: tuple[str, ...],
        specs: Iterable[StoreSpec],
        rows: pa.RecordBatch,
        cache: KeyCache,
    ) -> None:
        """Send ``rows`` to the hosts that have their partitions in one of the stores, each once;
        what stays here waits in ``rows``.
        """
        assert self.traffic is not None
        fleet = self.traffic.fleet
        wanted = np.zeros((len(fleet.names), rows.num_rows), np.bool_)
        for spec in specs:
            numbers = partition_numbers(self.layout, spec, rows, cache)
            wanted[fleet.owners(spec.partitions)[numbers], np.arange(rows.num_rows)] = True
        for host, mask in enumerate(wanted):
            if not mask.any():
                continue
            part = rows if mask.all() else rows.filter(pa.array(mask))
            if host == fleet.here:
                self.rows[address].append(part)
            else:
                self.traffic.send(fleet.peer(host), Letter(address, part, part.num_rows))

    def _received(self, kind: str) -> dict[str, pa.RecordBatch]:
        """The rows of one kind that wait to be written, by what they are of."""
        keys = [address for address in self.rows if address[0] == kind]
        return {address[1]: pa.concat_batches(self.rows.pop(address)) for address in sorted(keys)}

    def _settle(self) -> None:
        """Go on with what comes from other hosts, until nobody sends anything any more."""
        if self.traffic is None:
            return
        while True:
            with self._phase("store"):
                self._store_combinations()
            with self._phase("wait"):
                more = self.traffic.settle()
            if not more:
                return
            with self._phase("probe"):
                for letter in self.traffic.receive():
                    self.advanced()
                    self._take(letter)

    def _take(self, letter: Letter) -> None:
        """Go on with what another task has sent."""
        kind, *rest = letter.address
        if kind == HOP:
            edge, work, at = rest
            self.courier.arrived(self.works[work], edge, int(at), letter)
        elif kind == LEAVING:
            edge, query, *way = rest
            rule = next(o for o in self.layout.outputs[edge] if o.query == query)
            due, at, origin = way
            self._emit_unless_failed(unpack(letter.rows), rule, due, int(at), int(origin))
        else:
            self.rows[letter.address].append(letter.rows)

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
        together = []
        roots = self.rounds.roots(partial) if self.traffic is None else {}
        for rule in self.layout.probes.get(edge, ()):
            if rule.start == partial.start:
                oldest = self.oldest.get(rule.out)
                if oldest is None and rule.out in roots:
                    together.append(roots[rule.out])
                    continue
                start = wanted.by(self.rationing.edge(rule.out))
                if oldest is not None:
                    start = start.where(start.tau(start.start) >= oldest)
                self._probe(start, rule)
        self.rounds.add(partial, together)

    def _probe(self, partial: Partial, rule: ProbeRule) -> None:
        if not partial.length:
            return
        if rule.level > self.level:
            self.pending[rule.level].append((partial, rule))
            return
        self.courier.probe(self.main, partial, rule)

    def _guarded(self, rule: ProbeRule, found: Iterator[Partial]) -> Iterator[Partial]:
        """What a probe makes, piece by piece, as far as its expressions can be evaluated."""
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
        self._pass_on(joined, rule, children)

    def _pass_on(self, joined: Partial, rule: ProbeRule, children: Sequence[ProbeRule]) -> None:
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
            self._probe(wanted.by(self.rationing.edge(child.out)), child)

    def _output(self, found: Wanted, rule: OutputRule) -> None:
        partial = found.by(self.rationing.goal(rule.query, found.partial.start))
        self._emit_unless_failed(self._alike(partial, rule.query), rule, NOW)

    def _emit_unless_failed(
        self, partial: Partial, rule: OutputRule, due: str, at: int = 0, origin: int = -1
    ) -> None:
        """As :meth:`_emit`, unless the query has failed or fails at its results."""
        if rule.query in self.failures.found:
            return
        started = time.process_time()
        try:
            rows = self._emit(partial, rule, due, at, origin)
        except EVALUATION as error:
            self.failures.add([rule.query], error)
            return
        self.report.emitted += Writes(1, rows, time.process_time() - started)

    def _catch_up(self, work: CatchUp) -> None:
        # Not on the edges' meters: what is sent here is no part of what the plan costs.
        pieces = Pieces(Prober(self.layout, self.live, self.context.batch, self.budget.pairs))

        def emit(partial: Partial, rule: OutputRule) -> None:
            self._emit_unless_failed(partial, rule, OWED)

        access = self.context.access
        payer = Payer(self.layout, access, self.courier, pieces, self._guarded, emit)
        walks = payer.walks(work)
        self.works |= {walk.work.name: walk.work for walk in walks}
        for walk in walks:
            sources, at, of = self._share_of(walk.sources)
            start = walk.start
            for rows in stored_rows(self.layout, self.context.root, sources, start, at, of):
                self.advanced()
                walk.begin(rows)
        self._settle()

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

    def _emit(
        self, partial: Partial, rule: OutputRule, due: str, at: int = 0, origin: int = -1
    ) -> int:
        """Write the results among ``partial``, or send them where they are looked at next; how many
        have been written.

        Args:
            due: whether they are results of this batch (``NOW``) or of earlier ones (``OWED``).
            at, origin: of results on their way over hosts, as :meth:`_current` has them.
        """
        query = self.layout.queries[rule.query]
        if not at and origin < 0:
            partial = check(self.layout, partial, rule.bounds, ())
            partial = partial.where(self._visible(rule.query, partial))
            partial = partial.where(self._fresh(query, partial))
        partial = self._current(partial, rule, due, at, origin)
        partial = check(self.layout, partial, (), rule.residuals)
        if not partial.length:
            return 0
        if due == OWED:
            made = self.report.caught_up
            made[query.id] = made.get(query.id, 0) + partial.length
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
            writer.add(self._projected(query, piece, writer.schema, self._marks(due)))
            done += piece.length
        self.memory.glance()
        return partial.length

    def _marks(self, due: str) -> Mapping[str, int]:
        """Streams' watermarks, as the batch began whose results are written."""
        owed = self.context.catch_up
        return self.context.watermarks if due == NOW or owed is None else owed.watermarks

    def _current(
        self, partial: Partial, rule: OutputRule, due: str, at: int, origin: int
    ) -> Partial:
        """``partial`` less the results of which a tuple has been superseded.

        Where tasks are on several hosts, each of them knows of some later tuples only. So results
        visit all hosts, for one member after the other, and leave where they come back to.

        Args:
            at: the member, of those whose streams keep the latest, that is looked at.
            origin: the host on which that has begun; less than 0: it begins here.
        """
        query = self.layout.queries[rule.query]
        labels = self.latest.kept(label for _, label, _ in query.members)
        if self.traffic is None:
            for label in labels:
                partial = self.latest.current(partial, label)
            return partial
        fleet, here = self.traffic.fleet, self.traffic.fleet.here
        while at < len(labels) and partial.length:
            origin = here if origin < 0 else origin
            partial = self.latest.current(partial, labels[at])
            following = (here + 1) % len(fleet.names)
            if following != origin:
                if partial.length:
                    rows = pack(self.layout, partial, self.courier.needs.output(rule))
                    way = (LEAVING, rule.edge, rule.query, due, str(at), str(origin))
                    self.traffic.send(fleet.peer(following), Letter(way, rows, rows.num_rows))
                return partial.cut(0, 0)
            at, origin = at + 1, -1
        return partial

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

    def _put_results(self) -> None:
        """Put what has been staged into the object store, from where the driver takes it."""
        for files in (self.report.files, self.report.late):
            for name, file in files.items():
                files[name] = str(Path(file).relative_to(self.context.root))
                self.uploads.add(files[name])

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
        if self.traffic is not None:
            self.report.sent, self.report.sent_bytes = self.traffic.rows, self.traffic.bytes
        self.report.memory = self.memory.peak
        self.report.memory_share = self.budget.total
        self.report.edges = {edge: m.counts for edge, m in sorted(self.prober.meters.items())}
        self.report.reads = dict(self.prober.reads.found)
