"""Results of a task: checked, staged as files, and counted.

A complete result is checked by its query's own conditions (visibility, freshness, superseded
members, residuals), projected, and written to the query's staged file. After an expression of a
query has failed, no more of its results are written.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.plans.ruleset import OutputRule, QuerySpec
from anabranch_contract.protocol.measurements import Writes
from anabranch_contract.protocol.profile import CpuGroup
from anabranch_contract.queries.expressions import Expansion
from anabranch_contract.queries.joins import Label, QueryId
from anabranch_contract.queries.views import CHANGE
from anabranch_runtime.columns.arrays import Bools, Ints
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.cpu import add_time, process_seconds
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.exchange.routing import pack, unpack
from anabranch_runtime.exchange.traffic import Letter
from anabranch_runtime.expressions.evaluate import Fetch, evaluate
from anabranch_runtime.expressions.expansion import MOST_EXPANDED, expanded
from anabranch_runtime.expressions.failures import EVALUATION, Failures
from anabranch_runtime.probe.latest import Latest
from anabranch_runtime.probe.probe import FEW, check, within
from anabranch_runtime.rations.limits import RationLimits
from anabranch_runtime.rations.shares import Ranks, Wanted, kept_by
from anabranch_runtime.sinks.gathered import SUFFIX, StagedWriter
from anabranch_runtime.sinks.joined_rows import JoinedRows, column_name, rows_schema
from anabranch_runtime.sinks.outer_rows import left_row_columns
from anabranch_runtime.sinks.parquet import ResultWriter, RowBuffer, output_schema, project
from anabranch_runtime.sinks.sampling import slots, with_slots
from anabranch_runtime.storage.partial import Partial, concat_alike, fetcher, shape
from anabranch_runtime.storage.segment import PackWriter
from anabranch_runtime.tags.tags import ChosenTuples
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.memory import PrivateMemory
from anabranch_runtime.task.probe_router import ProbeRouter
from anabranch_runtime.task.shared_rows import SharedRows, feeds, shared_rows
from anabranch_runtime.task.weights import net_changes

#: Kind of messages with results sent from host to host, to find tuples that supersede members.
LEAVING = "leaving"
#: Kinds of results: of this batch, or owed since earlier batches.
NOW, OWED = "now", "owed"
#: Maximum number of results that wait to be written together.
GATHERED = 1 << 16
#: Number of results in which inserts and deletes of equal rows cancel before they are written.
CHANGES = 1 << 14
#: Maximum number of results that are expanded in one step.
EXPANDED = 1 << 12


@dataclass(slots=True)
class Emission:
    """Writer of the results of one task in one batch.

    Attributes:
        page: maximum bytes of a query's results that wait in memory.
        pack: opens a pack for joined rows, given a name.
        report, failures: records of written results and of failed queries.
    """

    context: BatchContext
    layout: Layout
    task: int
    rationing: RationLimits
    ranks: Ranks
    latest: Latest
    router: ProbeRouter
    memory: PrivateMemory
    page: int
    pack: Callable[[str], AbstractContextManager[PackWriter]]
    report: TaskReport
    failures: Failures
    #: Query -> the record of queries that share its joined rows in this batch.
    _shared: dict[QueryId, SharedRows] = field(init=False, default_factory=dict)
    _writers: dict[str, RowBuffer] = field(default_factory=dict)
    #: The open pack of joined rows, and its writer.
    _rows: tuple[AbstractContextManager[PackWriter], PackWriter] | None = None
    #: Shape key -> small sets of results that wait to be written together, and one of their rules.
    _gathered: dict[Hashable, tuple[OutputRule, list[Partial]]] = field(default_factory=dict)
    _waiting: int = 0
    #: Query -> whether its results need only be counted.
    _counts: dict[QueryId, bool] = field(init=False, default_factory=dict)
    #: Query -> number of rows made by its expansions so far.
    _expanded: dict[QueryId, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if not self.rationing.goals:
            self._shared = shared_rows(self.layout.ruleset, self.context.scope)
            self.report.feeds = feeds(self._shared.values())

    def output(self, found: Wanted, rule: OutputRule) -> None:
        """Write a probe's results that ``rule`` and the rations admit, now or in :meth:`flush`."""
        shared = self._shared.get(rule.query)
        if shared is not None and shared.queries[0] != rule.query:
            return
        partial = found.by(self.rationing.goal(rule.query, found.partial.start))
        if partial.length <= FEW and self._is_simple(rule):
            alike = shape(partial)
            if alike is not None:
                key = (rule.query, rule.bounds, alike)
                self._gathered.setdefault(key, (rule, []))[1].append(partial)
                self._waiting += partial.length
                if self._waiting > GATHERED:
                    self.flush()
                return
        self.emit(self._alike(partial, rule.query), rule, NOW)

    def output_chosen(self, wanted: Wanted, chosen: ChosenTuples) -> None:
        """Write the results ``chosen`` by tags for outputs, as :meth:`output` does. Results that
        are only counted are not copied."""
        if not chosen.exact or self.rationing.goals or self.router.traffic is not None:
            for some, rule in chosen.parts():
                self.output(wanted.among(some), rule)
            return
        started = process_seconds()
        counted, others = dict[QueryId, int](), list[tuple[Partial, OutputRule]]()
        for choice, rule, count in chosen.timely():
            if self._only_counts(rule):
                counted[rule.query] = counted.get(rule.query, 0) + count
            else:
                part = chosen.part(choice)
                others.append((part.where(within(part, rule.bounds)), rule))
        self._count(counted, process_seconds() - started)
        for part, rule in others:
            self.output(wanted.among(part), rule)

    def _only_counts(self, rule: OutputRule) -> bool:
        """Whether the rule's results within its time bounds are counted without further checks."""
        if rule.residuals or rule.query in self.failures.found:
            return False
        found = self._counts.get(rule.query)
        if found is None:
            query, scope = self.layout.queries[rule.query], self.context.scope
            found = self._counts[rule.query] = query.sink.kind is SinkKind.COUNT and not (
                query.has_outer_join
                or query.expansions
                or rule.query in self._shared
                or scope.visible.get(rule.query)
                or scope.looked_up
                or (self.context.shedding.now is not None and query.freshness)
                or self.latest.kept(query)
            )
        return found

    def _count(self, counted: Mapping[QueryId, int], seconds: float) -> None:
        """Add numbers of results per query; ``seconds``: CPU seconds for all of them together."""
        measured, total = self.report.measured, sum(counted.values())
        for query, rows in counted.items():
            name = _written_as(self.layout.queries[query])
            self.report.results[name] = self.report.results.get(name, 0) + rows
            use = CpuGroup.SINK, query
            measured.cpu[use] = measured.cpu.get(use, 0.0) + seconds * rows / total
        if counted:
            measured.emitted += Writes(len(counted), total, seconds)

    def flush(self) -> None:
        """Write the results that wait to be written together."""
        gathered, self._gathered, self._waiting = self._gathered, {}, 0
        for rule, parts in gathered.values():
            self.emit(concat_alike(parts), rule, NOW)

    def _is_simple(self, rule: OutputRule) -> bool:
        """Whether results of the rule may be written together with results of other starts."""
        query = self.layout.queries[rule.query]
        return not (
            self.rationing.goals
            or rule.residuals
            or self.router.traffic is not None
            or query.has_outer_join
            or self.latest.kept(query)
        )

    def emit(
        self, partial: Partial, rule: OutputRule, due: str, at: int = 0, origin: int = -1
    ) -> None:
        """Write the results among ``partial``, or send them to the next host that checks them.
        After a failed expression of the query, do nothing.

        Args:
            due: ``NOW`` for results of this batch, ``OWED`` for withheld ones of earlier batches.
            at, origin: progress of results that are sent to all hosts, see :meth:`_current`.
        """
        queries: tuple[QueryId, ...] = (rule.query,)
        if due == NOW and rule.query in self._shared:
            queries = self._shared[rule.query].queries
        if all(query in self.failures.found for query in queries):
            return
        started = process_seconds()
        try:
            rows = self._emit(partial, rule, due, at, origin)
        except EVALUATION as error:
            self.failures.add(queries, error)
            return
        measured = self.report.measured
        seconds = add_time(measured.cpu, CpuGroup.SINK, rule.query, started)
        measured.emitted += Writes(1, rows, seconds)

    def arrived(self, letter: Letter) -> None:
        """Continue the check of results that another host has sent."""
        _, edge, query, due, at, origin = letter.address
        rule = next(o for o in self.layout.outputs[edge] if o.query == query)
        self.emit(unpack(letter.rows), rule, due, int(at), int(origin))

    def close(self) -> None:
        """Close the files of results, and the pack of joined rows."""
        measured = self.report.measured
        for query, writer in self._writers.items():
            started = process_seconds()
            writer.close()
            # When a file is closed, its last row group is encoded: in small batches, all its rows.
            seconds = add_time(measured.cpu, CpuGroup.SINK, query, started)
            measured.emitted += Writes(seconds=seconds)
        if self._rows is not None:
            pack, rows = self._rows
            pack.__exit__(None, None, None)
            self.report.joined += rows.segments

    def _alike(self, partial: Partial, query: QueryId) -> Partial:
        """Return ``partial`` without results that a sibling member's ration withholds.

        A sibling is another member from the start's stream that arrived in this batch. Which of
        both arrived last depends only on the numbering of the batch's tuples, so both members'
        rations must admit the result.
        """
        start, layout = partial.start, self.layout
        for _, label, _ in layout.queries[query].members if self.rationing.goals else ():
            own = self.rationing.goal(query, label)
            if own is None or label == start or layout.stream(label) != layout.stream(start):
                continue
            here = partial.batch(label) == self.context.batch
            partial = partial.where(~here | self.ranks.below(partial, label, own))
        return partial

    def _emit(self, partial: Partial, rule: OutputRule, due: str, at: int, origin: int) -> int:
        """Write complete results of a query, and return their number."""
        query, report = self.layout.queries[rule.query], self.report
        if not at and origin < 0:
            partial = check(partial, rule.bounds, ())
            partial = partial.where(self._visible(rule.query, partial))
            partial = partial.where(self._of_versions(query, partial))
            partial = partial.where(self._fresh(query, partial))
        partial = self._current(partial, rule, due, at, origin)
        partial = check(partial, (), rule.residuals)
        if not partial.length:
            return 0
        made = partial.length
        shared = self._shared.get(query.id) if due == NOW else None
        if shared is not None:
            made = self._write_shared(shared, query, partial)
        elif query.sink.kind is not SinkKind.COUNT:
            made = self._written(query, partial, due)
        elif query.expansions:
            pieces = self._pieces(query.expansions, partial, lambda: EXPANDED)
            made = sum(self._read(query, piece)[1] for piece in pieces)
        if due == OWED:
            paid = report.rations.caught_up
            paid[query.id] = paid.get(query.id, 0) + made
        for one in (_written_as(query),) if shared is None else shared.queries:
            report.results[one] = report.results.get(one, 0) + made
        if self.rationing.goals:
            kept = report.rations.kept.setdefault(query.id, {})
            kept[partial.start] = kept.get(partial.start, 0) + made
        return made

    def _written(self, query: QuerySpec, partial: Partial, due: str) -> int:
        """Write results to the query's file; return their number, without changes that cancel."""
        made = 0
        if self._emits_changes(query):
            schema = output_schema(query)
            for piece in self._pieces(query.expansions, partial, lambda: CHANGES):
                rows = net_changes(self._projected(query, piece, schema, {}))
                if rows.num_rows:
                    self._writer(query, None).add(rows)
                made += rows.num_rows
        else:
            writer = self._writer(query, None)
            for piece in self._pieces(query.expansions, partial, lambda: writer.room):
                rows = self._projected(query, piece, writer.schema, self._marks(due))
                writer.add(rows)
                made += rows.num_rows
        self.memory.glance()
        return made

    def _write_shared(self, shared: SharedRows, query: QuerySpec, partial: Partial) -> int:
        """Write joined rows that several queries share, and return their number."""
        writer, made = self._writer(query, shared), 0
        for piece in self._pieces(query.expansions, partial, lambda: writer.room):
            rows = self._columns_of(shared, query, piece, writer.schema)
            writer.add(rows)
            made += rows.num_rows
        self.memory.glance()
        return made

    def _pieces(
        self, expansions: Sequence[Expansion], partial: Partial, room: Callable[[], int]
    ) -> Iterator[Partial]:
        """Cut results into pieces of at most ``room()`` rows, or of fewer if they are expanded."""
        done = 0
        while done < partial.length:
            most = min(room(), EXPANDED) if expansions else room()
            yield partial.cut(done, done + most)
            done += most

    def _read(self, query: QuerySpec, results: Partial) -> tuple[Fetch, int, Ints | None]:
        """Return a reader of the columns of expanded results, the number of expanded rows, and the
        result from which each row was made (None: row ``i`` from result ``i``)."""
        read = fetcher(results)
        if not query.expansions:
            return read, results.length, None
        before = self._expanded.get(query.id, 0)
        read, rows = expanded(query.expansions, read, results.length, MOST_EXPANDED - before)
        self._expanded[query.id] = before + len(rows)
        return read, len(rows), rows

    def _emits_changes(self, query: QuerySpec) -> bool:
        """Whether a query's results are inserts and deletes, not only inserts."""
        if query.has_post_join:
            return False
        if query.united:
            return query.projection[-1].name == CHANGE
        return self.layout.routes.has_changes(query)

    def _writer(self, query: QuerySpec, shared: SharedRows | None) -> RowBuffer:
        name = shared.name if shared is not None else _written_as(query)
        writer = self._writers.get(name)
        if writer is None:
            writer = self._writers[name] = self._opened(query, shared)
        return writer

    def _opened(self, query: QuerySpec, shared: SharedRows | None) -> RowBuffer:
        if not query.has_post_join:
            staging = Path(self.context.staging)
            if not self.report.files:
                staging.mkdir(parents=True, exist_ok=True)
            # One folder for all queries: to make and remove hundreds takes longer than a batch.
            written = _written_as(query)
            is_gathered = query.sink.gathers
            path = staging / f"{written}.{self.task}{SUFFIX if is_gathered else '.parquet'}"
            self.report.files[written] = str(path)
            writer = StagedWriter if is_gathered else ResultWriter
            return writer(path, output_schema(query), self.page)
        if self._rows is None:
            pack = self.pack("rows")
            self._rows = pack, pack.__enter__()
        schema, name = rows_schema(query), str(_written_as(query))
        if shared is not None:
            kinds = {n: arrow_type(expr.type) for n, expr in shared.columns.items()}
            schema, name = pa.schema(kinds), shared.name
        elif query.id in self.context.shedding.sampled:
            streams = (self.layout.stream(label) for _, label, _ in query.members)
            schema = with_slots(schema, slots(streams))
        return JoinedRows(self._rows[1], name, self.context.batch, schema, self.page)

    def _columns_of(
        self, shared: SharedRows, query: QuerySpec, results: Partial, schema: pa.Schema
    ) -> pa.RecordBatch:
        """Return columns of joined rows that several queries share. A column that can't be
        evaluated fails the queries that read it, and is NULL for the others."""
        (read, length, _), arrays = self._read(query, results), list[pa.Array]()
        for (name, expr), kind in zip(shared.columns.items(), schema.types, strict=True):
            readers = [q for q in shared.readers[name] if q not in self.failures.found]
            try:
                if readers:
                    arrays.append(evaluate(expr, read, length))
                    continue
            except EVALUATION as error:
                self.failures.add(readers, error)
            arrays.append(pa.nulls(length, kind))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _marks(self, due: str) -> Mapping[str, int]:
        """Return stream -> watermark at the start of the batch whose results these are."""
        owed = self.context.shedding.catch_up
        return self.context.times.watermarks if due == NOW or owed is None else owed.watermarks

    def _current(
        self, partial: Partial, rule: OutputRule, due: str, at: int, origin: int
    ) -> Partial:
        """Return ``partial`` without results that have a superseded member. With several hosts,
        each has only some of the superseding tuples: results are sent to all hosts in turn, once
        per member, and the last host writes them.

        Args:
            at: index of the checked member among the members whose streams keep the latest.
            origin: the host on which the turn began; negative: it begins here.
        """
        query, traffic = self.layout.queries[rule.query], self.router.traffic
        labels = self.latest.kept(query)
        if traffic is None:
            for label in labels:
                partial = self.latest.current(partial, label)
            return partial
        fleet, here = traffic.fleet, traffic.fleet.here
        while at < len(labels) and partial.length:
            origin = here if origin < 0 else origin
            partial = self.latest.current(partial, labels[at])
            following = (here + 1) % len(fleet.names)
            if following != origin:
                if partial.length:
                    rows = pack(self.layout, partial, self.router.needs.output(rule))
                    way = (LEAVING, rule.edge, rule.query, due, str(at), str(origin))
                    traffic.send(fleet.peer(following), Letter(way, rows, rows.num_rows))
                return partial.cut(0, 0)
            at, origin = at + 1, -1
        return partial

    def _projected(
        self, query: QuerySpec, results: Partial, schema: pa.Schema, marks: Mapping[str, int]
    ) -> pa.RecordBatch:
        """Return the output rows of complete results: the SELECT list, and the other columns of
        ``schema`` (of left rows in outer joins; sampling slots of queries with rations)."""
        if query.has_outer_join:
            outer = query.outer
            if query.left_of is not None:
                outer = self.layout.queries[query.left_of].outer
            assert outer is not None
            beside = left_row_columns(query, outer.partner, results, marks)
            return project(query, fetcher(results), results.length, schema, beside)
        read, length, rows = self._read(query, results)
        if not query.has_post_join or query.united:
            return project(query, read, length, schema, now=self.context.times.now)
        columns = {column_name(output): output.expr for output in query.projection}
        arrays = [evaluate(expr, read, length) for expr in columns.values()]
        if query.id in self.context.shedding.sampled:
            count = (len(schema) - len(arrays)) // 2
            kept = kept_by(results, query, self.layout, self.rationing, self.ranks, count)
            arrays += kept if rows is None else [one.take(pa.array(rows)) for one in kept]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _visible(self, query: str, partial: Partial) -> Bools | None:
        """Return the mask of results with only visible members (promise 4); None: all."""
        mask: Bools | None = None
        scope = self.context.scope
        activated = scope.activated[query]
        for name, (batch, event_time) in scope.visible.get(query, {}).items():
            label = Label(name)
            arrived = partial.batch(label)
            seen = arrived >= batch
            if event_time is not None:
                seen &= partial.tau(label) >= event_time
            seen |= arrived >= activated
            mask = seen if mask is None else mask & seen
        return mask

    def _of_versions(self, query: QuerySpec, partial: Partial) -> Bools | None:
        """Return the mask of results whose table rows are of current versions; None: all are."""
        mask: Bools | None = None
        versions = self.context.scope.looked_up
        for _, label, _ in query.members if versions else ():
            interval = versions.get(self.layout.stream(label))
            if interval is None:
                continue
            arrived = partial.batch(label)
            found = arrived >= interval[0]
            if interval[1] is not None:
                found &= arrived < interval[1]
            mask = found if mask is None else mask & found
        return mask

    def _fresh(self, query: QuerySpec, partial: Partial) -> Bools | None:
        """Return the mask of results with only fresh members (``semantics.md``); None: all."""
        mask: Bools | None = None
        now = self.context.shedding.now
        if now is None:
            return None
        for label, most in query.freshness:
            young = partial.tau(label) >= now - most
            mask = young if mask is None else mask & young
        return mask


def _written_as(query: QuerySpec) -> QueryId:
    """Return the query whose file has the results of ``query``: itself, or its union."""
    return query.registered if query.united else query.id
