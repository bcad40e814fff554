"""One task of one batch: take arrivals in, store them, probe level by level, write results.

All tasks of a batch run :func:`run_task` at the same time. They share immutable segments. After the
inserts and after every level, each task gets the descriptors of all newly written segments by an
all-gather (``exchange``). So at every level each task sees all inserts of the batch that the
level's probes may need (``semantics.md``, "Exactly once within a batch").

A task reads all segments of its host. Starting tuples stay with the task that read them. With
several hosts, each has some partitions of every store. Rows are sent to the hosts that store them,
and partial results to the hosts of their matches (``probe_router``, ``Traffic``), in rounds, until
a round has no messages.
"""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_contract import codec
from anabranch_contract.plans.needs import Needs
from anabranch_contract.plans.ruleset import OutputRule, ProbeRule, Ruleset, StoreId, arrival_edge
from anabranch_contract.protocol.profile import CpuGroup
from anabranch_contract.queries.joins import AttrRef, Label, RelationId
from anabranch_runtime.cpu import add_time, attribute_rest, process_seconds
from anabranch_runtime.epochs.layout import Layout, base_layout
from anabranch_runtime.epochs.ownership import ownership, without
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.errors import AnabranchRuntimeError
from anabranch_runtime.exchange.fleet import Fleet
from anabranch_runtime.exchange.traffic import Letter, Post, Traffic
from anabranch_runtime.expressions.failures import EVALUATION, Failures
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.index.gather import BatchTable
from anabranch_runtime.index.keys import key_vector
from anabranch_runtime.probe.groups import LiveSegments
from anabranch_runtime.probe.latest import Latest
from anabranch_runtime.probe.pieces import Pieces
from anabranch_runtime.probe.presence import PresenceTest
from anabranch_runtime.probe.probe import Prober
from anabranch_runtime.probe.rounds import Rounds
from anabranch_runtime.rations.freshness import oldest_starts
from anabranch_runtime.rations.limits import rationing
from anabranch_runtime.rations.shares import Ranks, Wanted
from anabranch_runtime.sinks.late import LATE, write_late
from anabranch_runtime.state.debt import CatchUp
from anabranch_runtime.state.slices import SegmentRows, Slice, SliceReport
from anabranch_runtime.storage.durable import attach
from anabranch_runtime.storage.partial import Partial, RowSet, Tables
from anabranch_runtime.storage.segment import Segment
from anabranch_runtime.storage.segment_cache import keep_open
from anabranch_runtime.tags.arrival_sets import Moment
from anabranch_runtime.tags.tags import ChosenTuples, Tags
from anabranch_runtime.task.arrivals import TaskArrivals, take_in
from anabranch_runtime.task.backfill import as_probe, stored_rows
from anabranch_runtime.task.catch_up import Payer
from anabranch_runtime.task.context import BatchContext, live_segments
from anabranch_runtime.task.emission import LEAVING, OWED, Emission
from anabranch_runtime.task.inserts import ARRIVED, PAST, Inserts, Uploads
from anabranch_runtime.task.memory import PrivateMemory, budget
from anabranch_runtime.task.meters import Collector
from anabranch_runtime.task.probe_router import HOP, ProbeRouter, ProbeWork, needs_of
from anabranch_runtime.task.replacing import REPLACING, Replacing
from anabranch_runtime.task.stores import KeyCache, combination_rows, kept_part
from anabranch_runtime.task.substreams import DividedTuples

if TYPE_CHECKING:  # its readers need more memory than a task has
    from anabranch_runtime.sources.blocks import Block

Exchange = Callable[..., list[str]]


#: Number of starting tuples that are sent through a probe tree together: so many that the cost of a
#: call hardly matters, and so few that a thousand matches of each fit in memory.
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
        blocks: this task's part of the input.
        task: this task's number among ``tasks``.
        exchange: all-gather: takes this task's message, returns all tasks' messages. All tasks call
            it equally often. With ``post`` it also takes a group (``traffic.Gather``).
        collect: whether to measure delays, sketches and samples.
        sharing: number of tasks on this task's host, itself included; None: all.
        advanced: called after each piece of work, as a sign of progress.
        hosts: host of each task; empty: all are on one host.
        post: sends messages to the tasks of other hosts; None on one host.
    """
    sharing = tasks if sharing is None else sharing
    fleet = Fleet(hosts or ("",) * tasks, task, context.hosts.placement)
    traffic = None if post is None or fleet.alone else Traffic(fleet, post, exchange)
    working = _Task(context, ruleset, task, tasks, exchange, collect, sharing, advanced, traffic)
    with closing(working.uploads):
        return working.run(blocks)


@dataclass(eq=False)
class _Task:
    """The arguments and the working state of :func:`run_task`."""

    context: BatchContext
    given: Ruleset
    task: int
    tasks: int
    exchange: Exchange
    collect: bool
    sharing: int
    advanced: Callable[[], None]
    traffic: Traffic | None

    def __post_init__(self) -> None:
        context, task, traffic = self.context, self.task, self.traffic
        self.ruleset = without(self.given, context.scope.failed)
        self.layout = Layout(self.ruleset, context.stores)
        self.durable = attach(context.root, context.objects)
        self.fetched = self.durable.fetched
        segments = live_segments(context, None if traffic is None else traffic.fleet.own)
        keep_open(context.root, segments)
        counted = None if traffic is None else {n: s.partitions for n, s in context.stores.items()}
        given = segments, counted, self.layout.changed
        self.live = LiveSegments(context.root, context.batch, *given)
        self.budget = budget(context.memory_limit, self.sharing)
        self.memory = PrivateMemory()
        self.rationing = rationing(self.ruleset, context.shedding.rations)
        self.oldest = oldest_starts(self.ruleset, context.shedding.now)
        self.ranks = Ranks(self.layout, context.batch)
        moment = Moment(context.scope.start, context.batch)
        self.tags = Tags(self.layout, traffic is None, moment)
        self.prober = Prober(
            self.layout,
            self.live,
            context.batch,
            self.budget.pairs,
            by_stream=bool(self.rationing.goals),
            tags=self.tags,
        )
        self.pieces = Pieces(self.prober)
        access = context.scope.access
        self.presence = PresenceTest(self.prober, access)
        self.rounds = Rounds(
            self.prober,
            access,
            self._deliver,
            self._output,
            self._alone,
            self._failed,
            follows=traffic is None and not self.rationing.edges,
            tags=self.tags,
        )
        needs = Needs(self.layout.routes) if traffic is None else needs_of(self.layout, context)
        self.router = ProbeRouter(self.layout, traffic, needs, self.tags)
        self.main = ProbeWork(
            "batch",
            self.pieces,
            lambda rule: access[rule.out],
            self.layout.rules,
            self._guarded,
            lambda joined, rule: self._pass_on(joined, rule, self.layout.probes.get(rule.out, ())),
            self.rounds,
        )
        #: Name -> work of the probe router; each message from another host names its work.
        self.works = {self.main.name: self.main}
        self.level = 0
        self.report = TaskReport()
        self.collector = Collector(context.bounds, context.batch, self.collect)
        self.pending: dict[int, list[tuple[Partial, ProbeRule]]] = defaultdict(list)
        self.uploads = Uploads(context.root)
        #: Wall and CPU seconds of the phases that are nested in the running phase.
        self.inner = 0.0, 0.0
        #: Phase -> CPU seconds.
        self.cpu: dict[str, float] = {}
        self.failures = Failures(context.batch, self.report.failures)
        self.inserts = Inserts(
            context,
            self.layout,
            task,
            traffic,
            self.budget.combinations,
            self.collector,
            self.report,
            self.failures,
            self.uploads,
            self.memory,
        )
        self.replacing = Replacing(self.prober, context.scope.replaced, traffic, self.tasks)
        self.emission = Emission(
            context,
            self.layout,
            task,
            self.rationing,
            self.ranks,
            Latest(self.prober, context.scope.latest),
            self.router,
            self.memory,
            self.budget.page,
            self.inserts.pack,
            self.report,
            self.failures,
        )

    def run(self, blocks: Iterable[Block]) -> TaskReport:
        context = self.context
        with self._phase("read"):
            arrivals = take_in(
                self.layout,
                context.batch,
                self.task,
                context.times.watermarks,
                self._read(blocks),
                self.collector,
                self._filter_failed,
                context.times.newest_allowed,
                context.input.redefined,
                self.tasks,
            )
        self.memory.give_back(self.budget)
        with self._phase("store"):
            written = self._store_arrivals(arrivals)
        self.memory.give_back(self.budget)
        reach(Point.STORED)
        self._share(written)
        if self.replacing.rules:
            self._replace(arrivals)
        levels = max(self.layout.levels, 1)
        for level in range(levels):
            self.level = level
            with self._phase("probe"):
                if level == 0:
                    for start in self._starts(arrivals):
                        self._arrive(start)
                for partial, rule in self.pending.pop(level, ()):
                    self._probe(partial, rule)
                self.rounds.run()
            self._settle()
            with self._phase("store"):
                written = self.inserts.end_level()
            if level + 1 < levels:
                self._share(written)
        with self._phase("probe"):
            self.emission.flush()
        if context.shedding.catch_up is not None:
            with self._phase("catch-up"):
                self._catch_up(context.shedding.catch_up)
        with self._phase("write"):
            reach(Point.STAGING)
            self.emission.close()
            self._write_late(arrivals)
            if context.hosts.apart:
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
        pieces, spent = iter(blocks), self.report.measured.cpu
        while True:
            began = process_seconds()
            block = next(pieces, None)
            if block is None:
                return
            add_time(spent, CpuGroup.SOURCE, block.stream, began)
            self.advanced()
            yield block

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Add the time of the ``with`` block, without nested phases, to the task's phase."""
        self.advanced()
        outer, self.inner = self.inner, (0.0, 0.0)
        started = time.perf_counter(), process_seconds()
        yield
        spent = time.perf_counter() - started[0], process_seconds() - started[1]
        for n, known in enumerate((self.report.phases, self.cpu)):
            known[name] = known.get(name, 0.0) + spent[n] - self.inner[n]
        self.inner = outer[0] + spent[0], outer[1] + spent[1]

    # --- storing -------------------------------------------------------------------------------

    def _store_arrivals(self, arrivals: TaskArrivals, part: str = "base") -> list[Segment]:
        """Write this task's arrived rows to base stores, as segments of one pack."""
        caches: dict[str, KeyCache] = {r: {} for r in arrivals.tables}
        tables = sorted(arrivals.tables.items())
        if self.traffic is None:
            written = self.inserts.arrivals({r: t.batch for r, t in tables}, caches, part)
        else:
            for relation, table in tables:
                specs = self.layout.inserts.get(arrival_edge(relation), ())
                self.inserts.send((ARRIVED, relation), specs, table.batch, caches[relation])
            self._settle()
            written = self.inserts.arrivals(self.inserts.received(ARRIVED), {}, part)
        for relation, table in tables:
            self._sketch(relation, table, caches[relation])
        return written

    def _replace(self, arrivals: TaskArrivals) -> None:
        """Add the deletes of rows that ``arrivals`` replace to them, and store the deletes."""
        with self._phase("probe"):
            self.replacing.begin(arrivals)
        self._settle()
        made = self.replacing.deletes(arrivals, self._filter_failed)
        tables = {relation: BatchTable(rows) for relation, rows in made.items()}
        with self._phase("store"):
            written = self._store_arrivals(TaskArrivals(tables), "replaced")
        self._share(written)
        for relation, rows in made.items():
            known = arrivals.tables.get(relation)
            if known is not None:
                rows = pa.concat_batches([known.batch, rows.select(known.batch.schema.names)])
            arrivals.tables[relation] = BatchTable(rows)

    def _backfill(self, work: Slice) -> None:
        # A prober with meters of its own, since the plan's measured cost excludes backfills.
        prober = Prober(self.layout, self.live, self.context.batch, self.budget.pairs)
        spec = self.layout.specs[StoreId(work.store)]
        rule, access = as_probe(spec, work)
        errors: list[AnabranchRuntimeError] = []

        def guarded(_: ProbeRule, found: Iterator[Partial]) -> Iterator[Partial]:
            try:
                yield from found
            except EVALUATION as error:
                errors.append(error)

        def made(found: Partial, _: ProbeRule) -> None:
            rows = combination_rows(self.layout, spec, kept_part(self.layout, spec, found))
            if self.traffic is None:
                self.inserts.insert_past(writer, spec, rows)
            else:
                self.inserts.send((PAST, spec.id), (spec,), rows, {})

        self.router.needs.keep(rule.out, spec)
        name = "backfill"
        way = ProbeWork(name, Pieces(prober), lambda _: access, {rule.out: rule}, guarded, made)
        self.works[name] = way
        try:
            with self.inserts.pack(name) as writer:
                sources, at, of = self._share_of(work.sources)
                start, root = work.rule.start, self.context.root
                for rows in stored_rows(self.layout, root, sources, start, at, of):
                    self.advanced()
                    self.router.probe(way, rows, rule)
                self._settle()
                for found in self.inserts.received(PAST).values():
                    self.inserts.insert_past(writer, spec, found)
                if errors:
                    raise errors[0]
        except EVALUATION as error:
            self.report.backfill.failed = error.message
        else:
            self.report.backfill = SliceReport(writer.segments)

    def _share(self, written: list[Segment]) -> None:
        with self._phase("wait"):
            share = self.exchange if self.traffic is None else self.traffic.share
            messages = share(codec.dumps(written))
        for message in messages:
            self.live.add(codec.loads(message, list[Segment]))

    # --- other hosts ---------------------------------------------------------------------------

    def _owns(self, segment: Segment) -> bool:
        """Whether the partition of ``segment`` (of a live store) is on this host."""
        if self.traffic is None:
            return True
        partitions = self.context.stores[segment.store].partitions
        return bool(self.traffic.fleet.own(partitions)[segment.partition])

    def _share_of(
        self, sources: tuple[SegmentRows, ...]
    ) -> tuple[tuple[SegmentRows, ...], int, int]:
        """Return this task's share of stored rows: its host's sources, index, number of shares."""
        if self.traffic is None:
            return sources, self.task, self.tasks
        mates = self.traffic.fleet.mates
        own = tuple(s for s in sources if self._owns(s.segment))
        return own, mates.index(self.task), len(mates)

    def _settle(self) -> None:
        """Process messages from other hosts, round after round, until a round has none."""
        if self.traffic is None:
            return
        while True:
            with self._phase("store"):
                self.inserts.flush()
            with self._phase("wait"):
                more = self.traffic.settle()
            if not more:
                return
            with self._phase("probe"):
                for letter in self.traffic.receive():
                    self.advanced()
                    self._take(letter)
                self.rounds.run()

    def _take(self, letter: Letter) -> None:
        """Process a message from a task of another host."""
        kind = letter.address[0]
        if kind == HOP:
            _, edge, work, at = letter.address
            self.router.arrived(self.works[work], edge, int(at), letter)
        elif kind == LEAVING:
            self.emission.arrived(letter)
        elif kind == REPLACING:
            self.replacing.arrived(letter)
        else:
            self.inserts.arrived(letter)

    # --- probing -------------------------------------------------------------------------------

    def _starts(self, arrivals: TaskArrivals) -> Iterator[Partial]:
        for relation, table in sorted(arrivals.tables.items()):
            tables = Tables([table])
            for label in self.layout.starts.get(relation, ()):
                for first in range(0, table.batch.num_rows, CHUNK):
                    last = min(first + CHUNK, table.batch.num_rows)
                    rows = RowSet(tables, None, np.arange(first, last, dtype=np.int32))
                    yield Partial(last - first, (rows,), {label: (0, "")}, label)

    def _arrive(self, partial: Partial) -> None:
        """Send starting tuples down their label's probe trees, and to one-relation outputs."""
        edge = arrival_edge(self.layout.relation_of[partial.start])
        divided = DividedTuples(self.layout, partial)
        parts: dict[tuple[int, ...], Wanted] = {(): Wanted(partial, None, self.ranks)}
        wanted = parts[()]
        for some, output in self.tags.divided(partial, edge):
            if self.layout.queries[output.query].members[0][1] == partial.start:
                self.emission.output(wanted.among(some), output)
        for rule in self.layout.probes.get(edge, ()):
            if rule.start == partial.start:
                oldest = self.oldest.get(rule.out)
                if rule.substreams not in parts:
                    some = divided.of(rule.substreams)
                    parts[rule.substreams] = Wanted(some, None, self.ranks)
                start = parts[rule.substreams].by(self.rationing.edge(rule.out))
                if oldest is not None:
                    start = start.where(start.tau(start.start) >= oldest)
                self._probe(start, rule)

    def _probe(self, partial: Partial, rule: ProbeRule) -> None:
        if not partial.length:
            return
        if rule.level > self.level:
            self.pending[rule.level].append((partial, rule))
            return
        if rule.ahead and self.traffic is None:
            partial = self.presence.passing(partial, rule)
            if not partial.length:
                return
        self.router.probe(self.main, partial, rule)

    def _alone(self, partial: Partial, rule: ProbeRule, of: int) -> None:
        self.router.alone(self.main, partial, rule, of)

    def _failed(self, rule: ProbeRule, error: AnabranchRuntimeError) -> None:
        self.failures.add(ownership(self.ruleset).of_edge(rule.out), error)

    def _guarded(self, rule: ProbeRule, found: Iterator[Partial]) -> Iterator[Partial]:
        """Yield a probe's results ``found`` until an expression fails; record the failure."""
        while True:
            try:
                joined = next(found, None)
            except EVALUATION as error:
                self._failed(rule, error)
                return
            if joined is None:
                return
            self.advanced()
            self.memory.glance()
            yield joined

    def _deliver(self, joined: Partial, rule: ProbeRule, children: Sequence[ProbeRule]) -> None:
        """Pass an edge's results from a round (``probe.rounds``) on to stores and next probes."""
        self.advanced()
        self.memory.glance()
        # The round has already written the results for outputs with tags.
        self._send(joined, rule, children, ())

    def _output(self, found: Partial, rule: ProbeRule, output: OutputRule) -> None:
        """Write results, found in a round, of the output rule ``output``."""
        self.emission.output(Wanted(found, self.rationing.edge(rule.out), self.ranks), output)

    def _pass_on(self, joined: Partial, rule: ProbeRule, children: Sequence[ProbeRule]) -> None:
        """Send the results of a probe to stores, outputs and the next probes."""
        self._send(joined, rule, children, self.tags.chosen(joined, rule.out))

    def _send(
        self,
        joined: Partial,
        rule: ProbeRule,
        children: Sequence[ProbeRule],
        tagged: Iterable[ChosenTuples],
    ) -> None:
        for spec in self.layout.inserts.get(rule.out, ()):
            self.inserts.combination(spec.id, joined)
        if self.inserts.waiting > self.budget.combinations:
            with self._phase("store"):
                self.inserts.flush()
        wanted = Wanted(joined, self.rationing.edge(rule.out), self.ranks)
        for output in self.tags.untagged(rule.out):
            self.emission.output(wanted, output)
        for chosen in tagged:
            self.emission.output_chosen(wanted, chosen)
        for child in children:
            self._probe(wanted.by(self.rationing.edge(child.out)), child)

    def _catch_up(self, work: CatchUp) -> None:
        # A prober with meters of its own, since the plan's measured cost excludes catch-ups.
        pieces = Pieces(Prober(self.layout, self.live, self.context.batch, self.budget.pairs))

        def emit(partial: Partial, rule: OutputRule) -> None:
            self.emission.emit(partial, rule, OWED)

        access = self.context.scope.access
        payer = Payer(self.layout, access, self.router, pieces, self._guarded, emit)
        walks = payer.walks(work)
        self.works |= {walk.work.name: walk.work for walk in walks}
        for walk in walks:
            sources, at, of = self._share_of(walk.sources)
            start = walk.start
            for rows in stored_rows(self.layout, self.context.root, sources, start, at, of):
                self.advanced()
                walk.begin(rows)
        self._settle()

    # --- failures --------------------------------------------------------------------------------

    def _filter_failed(self, relation: RelationId, error: AnabranchRuntimeError) -> None:
        self.failures.add(ownership(self.ruleset).of_relation(relation), error)

    def _write_late(self, arrivals: TaskArrivals) -> None:
        """Stage files with the rejected rows of streams that quarantine them."""
        for stream, pieces in sorted(arrivals.aside.items()):
            path = Path(self.context.staging) / LATE / stream / f"{self.task}.parquet"
            write_late(path, pieces)
            self.report.late[stream] = str(path)

    def _put_results(self) -> None:
        """Upload the staged result files to the object store, from which the driver reads them."""
        for files in (self.report.files, self.report.late):
            for name, file in files.items():
                files[name] = str(Path(file).relative_to(self.context.root))
                self.uploads.add(files[name])

    # --- accounting ----------------------------------------------------------------------------

    def _sketch(self, relation: RelationId, table: BatchTable, cache: KeyCache) -> None:
        """Add the distinct keys of arrivals to sketches, by existing key vectors where possible."""
        if not self.collector.enabled:
            return
        store = base_layout(relation)
        for parts in self.layout.sketches.get(relation, ()):
            refs = tuple(AttrRef(Label(relation), a) for a, _ in parts)
            types = tuple(t for _, t in parts)
            rows = table.batch.num_rows
            if (refs, types) not in cache:
                try:
                    arrays = [self.layout.stored(store, table, rows, r) for r in refs]
                    cache[refs, types] = key_vector(arrays, types)
                except EVALUATION:
                    # A failed measurement must not fail a query: a rule with this key fails anyway.
                    continue
            name = ",".join(sorted(a for a, _ in parts))
            self.collector.keys(relation, name, cache[refs, types])
            if len(parts) == 1:
                stored = functools.partial(self.layout.stored, store, table, rows, refs[0])
                self.collector.frequent(relation, name, cache[refs, types], stored)

    def _load(self) -> dict[int, list[float]]:
        """Return number of partitions -> CPU seconds of probes by partition, from their work."""
        work: dict[int, NDArray[np.int64]] = {}
        for counts in self.live.work().values():
            work[len(counts)] = work.get(len(counts), 0) + counts
        total = sum(int(counts.sum()) for counts in work.values())
        seconds = sum(m.seconds for m in self.prober.meters.values())
        return {n: (counts * (seconds / max(total, 1))).tolist() for n, counts in work.items()}

    def _account(self, arrivals: TaskArrivals) -> None:
        measured, host = self.report.measured, self.report.host
        measured.streams = dict(sorted(arrivals.meters.items()))
        measured.arrivals = {r: t.batch.num_rows for r, t in sorted(arrivals.tables.items())}
        measured.sketches = self.collector.sketches
        measured.samples = self.collector.sampled()
        measured.latest = self.collector.latest()
        measured.values = self.collector.values
        measured.edges = dict(sorted(self.prober.meters.items()))
        measured.reads = dict(self.prober.reads.found)
        self.report.fetched_bytes = self.durable.fetched - self.fetched
        if self.traffic is not None:
            measured.sent, measured.sent_bytes = self.traffic.rows, self.traffic.bytes
            host.load = self._load()
            host.demand = {n: b.tolist() for n, b in self.traffic.demand.items()}
        self.report.memory = self.memory.peak
        self.report.memory_share = self.budget.total
        measured.cpu |= {
            (CpuGroup.PROBE, edge): counts.seconds for edge, counts in measured.edges.items()
        }
        attribute_rest(measured.cpu, self.cpu)
