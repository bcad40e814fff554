"""Bringing views up to date, one after the other, beside the batches.

A view whose joined rows have committed has them released, waits until Spark has committed what
follows from them, and lets them go. One view at a time: Spark runs one task for it, in the slot
that batches leave free. A view's Spark query lives as long as the view, so its state stays loaded;
while nothing is released to it, it does nothing.

A view that fails (a sum that overflows, a sink that does not take its changes) is tried again, with
longer and longer pauses, from where Spark's checkpoint says; its joined rows wait.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from anabranch_planner.exchange import ViewRows
from anabranch_planner.ruleset import query_from_json, query_to_json
from anabranch_planner.sinks import SinkKind
from anabranch_planner.view import Function
from anabranch_runtime.errors import SinkError
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.sinks.delivery import Delivery, with_secrets, without_secrets
from anabranch_runtime.sinks.durable import sync_filesystem
from anabranch_runtime.sinks.publisher import FIRST_PAUSE, LONGEST_PAUSE, first_line
from anabranch_runtime.sinks.rows import json_rows
from anabranch_runtime.vectors.arrow_types import arrow_type
from anabranch_runtime.views import groups, inputs, partners
from anabranch_runtime.views.clock import clock_of
from anabranch_runtime.views.finishing import finished, finished_schema
from anabranch_runtime.views.ranking import top_groups, top_rows
from anabranch_runtime.views.table import (
    Tables,
    in_order,
    replaced,
    row_schema,
    updated,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from anabranch_planner.ruleset import QuerySpec, Ruleset
    from anabranch_planner.view import View
    from anabranch_runtime.sinks.delivery import Write

    #: Makes a version of a view of what Spark gives.
    Make = Callable[[DataFrame, int], None]

_LOG = structlog.get_logger("anabranch.runtime")

#: Rows of a view that are told to whoever asks over REST.
MOST_TOLD = 1000
_SPEC = "query.json"
#: What the checkpoint of a view over an outer join ends with.
_ABOVE = "+above"


@dataclass(slots=True)
class _Kept:
    """A view that is kept up to date."""

    query: QuerySpec
    home: Path
    #: Spark's checkpoint of it.
    checkpoint: Path
    #: The view over the rows of an outer join.
    above: _Kept | None = None
    clock: int | None = None
    #: The clock that it has been brought up to.
    told: int | None = None
    #: No ruleset has it any more: it ends with what has been found for it.
    ending: bool = False
    #: Whether what is in ``input`` may not have been read by Spark.
    unsure: bool = True
    running: StreamingQuery | None = None
    problem: str | None = None
    #: What was raised while a version was made.
    cause: Exception | None = None
    failures: int = 0
    retry: float = 0.0

    @property
    def tells(self) -> bool:
        """Whether something may follow from the clock alone."""
        return self.query.outer is not None


@dataclass(slots=True)
class Views:
    """All views of one pipeline.

    Attributes:
        results: the results directory.
        checkpoints: where Spark's checkpoints of views are.
        writers: who writes sinks outside.
        tell: takes what a view's rows are now.
        refusal: why no view can be kept here; empty: they can.
    """

    session: SparkSession
    results: Path
    checkpoints: Path
    writers: Mapping[SinkKind, Write]
    tell: Callable[[str, ViewRows], None]
    refusal: str = ""
    _kept: dict[str, _Kept] = field(init=False, default_factory=dict)
    _next_batch: int = field(init=False, default=0)
    _changed: threading.Condition = field(init=False, default_factory=threading.Condition)
    _closing: bool = field(init=False, default=False)
    _busy: threading.Lock = field(init=False, default_factory=threading.Lock)
    _thread: threading.Thread | None = field(init=False, default=None)

    def begin(self, next_batch: int) -> None:
        """Take up what an earlier run has left; before the first batch."""
        self.session = groups.view_session(self.session)
        self._next_batch = next_batch
        for spec in sorted((self.results / inputs.HOME).glob(f"*/{_SPEC}")):
            query = query_from_json(json.loads(spec.read_text()))
            inputs.forget_from(spec.parent, next_batch)
            self._kept[str(query.id)] = self._made(query, spec.parent)
        self._thread = threading.Thread(target=self._keep_up, name="views", daemon=True)
        self._thread.start()

    def committed(self, next_batch: int, marks: Mapping[str, int], ruleset: Ruleset) -> None:
        """The batches before ``next_batch`` have committed, streams' watermarks are ``marks``, and
        ``ruleset`` says which views there are.
        """
        wanted = {str(q.id): q for q in ruleset.queries if q.above and q.left_of is None}
        with self._changed:
            for name, query in wanted.items():
                if name not in self._kept:
                    self._kept[name] = self._new(query)
                    self._kept[name].problem = self.refusal or None
                kept = self._kept[name]
                kept.ending, kept.clock = False, clock_of(query, ruleset, marks)
            for name in self._kept.keys() - wanted.keys():
                self._kept[name].ending = True
            self._next_batch = next_batch
            self._changed.notify()

    def problems(self) -> dict[str, str]:
        """Query -> why its view is not up to date."""
        with self._changed:
            return {
                name: f"view: {kept.problem}"
                for name, kept in self._kept.items()
                if kept.problem is not None
            }

    def drain(self) -> None:
        """Bring all views up to date.

        Raises:
            SinkError: one can't be.
        """
        with self._changed:
            names = [] if self.refusal else list(self._kept)
        for name in names:
            self._refresh(name)
        for name, problem in self.problems().items():
            raise SinkError(
                "view-failed",
                problem,
                field=f"queries.{name}",
                remedy="correct it and start the pipeline again: nothing is lost",
            )

    def close(self) -> None:
        """Stop; what is not up to date goes on at the next start."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        for kept in self._kept.values():
            _stop(kept)

    # --- in turns ----------------------------------------------------------------------------

    def _keep_up(self) -> None:
        while True:
            with self._changed:
                name = self._due()
                while name is None and not self._closing:
                    self._changed.wait(timeout=FIRST_PAUSE)
                    name = self._due()
                if self._closing:
                    return
            assert name is not None
            self._refresh(name)

    def _due(self) -> str | None:
        """The view that has waited longest for its turn."""
        if self.refusal:
            return None
        now = time.monotonic()
        for name, kept in self._kept.items():
            if kept.retry > now:
                continue
            if kept.ending or kept.unsure or inputs.waiting(kept.home, self._next_batch):
                return name
            if kept.tells and kept.clock is not None and kept.clock != kept.told:
                return name
        return None

    def _refresh(self, name: str) -> None:
        with self._busy:
            with self._changed:
                kept = self._kept.pop(name, None)
                if kept is None:
                    return
                # To the end of the queue.
                self._kept[name] = kept
                next_batch, clock, ending = self._next_batch, kept.clock, kept.ending
            try:
                self._advance(kept, next_batch, clock)
                if kept.above is not None:
                    self._advance(kept.above, inputs.after_all(kept.above.home), None)
                kept.unsure, kept.problem, kept.failures = False, None, 0
                kept.told = clock
            except Exception as error:  # noqa: BLE001 - whatever fails, the view waits
                self._failed(name, kept, error)
                return
            if ending:
                with self._changed:
                    if kept.ending and not inputs.waiting(kept.home, next_batch):
                        del self._kept[name]
                        self._end(kept)

    def _advance(self, kept: _Kept, next_batch: int, clock: int | None) -> None:
        """Release what there is before ``next_batch``, and wait until it has been worked in."""
        some = inputs.release(kept.home, next_batch, clock, tell=kept.tells)
        if some or kept.running is None:
            if kept.running is None:
                kept.running = self._start(kept)
            kept.running.processAllAvailable()
        inputs.read(kept.home)

    def _failed(self, name: str, kept: _Kept, error: Exception) -> None:
        cause = kept.cause or (None if kept.above is None else kept.above.cause)
        message = without_secrets(first_line(cause or error), kept.query.sink)
        _stop(kept)
        kept.failures += 1
        kept.problem, kept.unsure = message, True
        kept.retry = time.monotonic() + min(FIRST_PAUSE * 2 ** (kept.failures - 1), LONGEST_PAUSE)
        _LOG.warning("view failed", query=name, error=message, times=kept.failures)

    def _new(self, query: QuerySpec) -> _Kept:
        home = inputs.home_of(self.results, query.id)
        home.mkdir(parents=True, exist_ok=True)
        inputs.write_text(home / _SPEC, json.dumps(query_to_json(query)))
        return self._made(query, home)

    def _made(self, query: QuerySpec, home: Path) -> _Kept:
        made = _Kept(query, home, self.checkpoints / query.id)
        if query.outer is not None and query.view is not None:
            upper = replace(query, projection=query.outer.projection, outer=None)
            checkpoint = self.checkpoints / f"{query.id}{_ABOVE}"
            made.above = _Kept(upper, home / "above", checkpoint)
        return made

    def _end(self, kept: _Kept) -> None:
        _stop(kept)
        shutil.rmtree(kept.home, ignore_errors=True)
        for part in (kept, kept.above):
            if part is not None:
                shutil.rmtree(part.checkpoint, ignore_errors=True)

    # --- one view ----------------------------------------------------------------------------

    def _start(self, kept: _Kept) -> StreamingQuery:
        source = kept.home / "input"
        source.mkdir(parents=True, exist_ok=True)
        rows, mode, make = self._plan(kept, source)

        def apply(frame: DataFrame, number: int) -> None:
            try:
                # Version 0 is the table before any row.
                make(frame, number + 1)
                reach(Point.VIEWED)
            except Exception as error:
                # Spark would only hand on its text.
                kept.cause = error
                raise

        # Where something follows from the clock alone, Spark has to look again without new rows.
        self.session.conf.set(groups.WITHOUT_ROWS, str(kept.tells).lower())
        return (
            rows.writeStream.outputMode(mode)
            .foreachBatch(apply)
            .option("checkpointLocation", str(kept.checkpoint))
            .start()
        )

    def _plan(self, kept: _Kept, source: Path) -> tuple[DataFrame, str, Make]:
        """What Spark has to do, how it gives what, and what is made of that."""
        query, view = kept.query, kept.query.view
        outer = query.outer
        if outer is not None:

            def add(frame: DataFrame, version: int) -> None:
                rows = partners.results(outer, frame.toArrow())
                if kept.above is None:
                    self._write(kept, version, rows)
                elif rows.num_rows:
                    staged = kept.home / "rows.parquet"
                    pq.write_table(rows, staged)
                    inputs.stage(kept.above.home, version, [staged])

            return partners.decided(self.session, query, source), "append", add
        assert view is not None
        tables = Tables(kept.home / "table", view)
        if view.grouped and not view.group_keys:
            self._write_first(kept, tables)
        rows = groups.joined_rows(self.session, query, source)
        mode = "append" if not view.grouped else "complete" if view.whole else "update"
        shown = groups.grouped(rows, query) if view.grouped else rows
        return shown, mode, partial(self._make, kept, tables)

    def _make(self, kept: _Kept, tables: Tables, frame: DataFrame, version: int) -> None:
        """A version of the view: of groups that have changed, of all, or of new joined rows."""
        view, before = kept.query.view, tables.before(version)
        assert view is not None
        if view.grouped and not view.whole:
            found = _finished(view, frame.toArrow())
            changes, after = updated(view, before, found, version)
        else:
            # Their tables are always kept.
            assert before is not None
            after = top_groups(frame, view) if view.grouped else top_rows(frame, view, before)
            changes = replaced(view, visible(view, before), visible(view, after), version)
        self._write(kept, version, changes)
        if after is not None:
            tables.keep(version, after)
            self._tell(kept, version, after)

    def _write_first(self, kept: _Kept, tables: Tables) -> None:
        """Aggregates of no rows at all are a row, too."""
        view = kept.query.view
        assert view is not None
        if (kept.checkpoint / "commits").exists():
            return
        nothing = pa.RecordBatch.from_arrays(
            [
                pa.array([0 if a.function is Function.COUNT else None], arrow_type(a.type))
                for a in view.aggregates
            ],
            names=[a.name for a in view.aggregates],
        )
        found = _finished(view, pa.Table.from_batches([nothing]))
        before = tables.before(0)
        changes, after = updated(view, before, found, 0)
        self._write(kept, 0, changes)
        if after is not None:
            tables.keep(0, after)
            self._tell(kept, 0, after)

    def _write(self, kept: _Kept, version: int, changes: pa.Table) -> None:
        """Hand a version's changes to the sink; again, if the version is made again."""
        query = kept.query
        folder = self.results / query.id
        staged = kept.home / "changes.parquet"
        target = folder / f"{version:010d}-00000.parquet"
        if query.sink.kind is SinkKind.PARQUET:
            target.unlink(missing_ok=True)
        if not changes.num_rows:
            return
        pq.write_table(changes, staged)
        if query.sink.kind is SinkKind.PARQUET:
            folder.mkdir(parents=True, exist_ok=True)
            staged.rename(target)
            sync_filesystem(self.results)
            return
        writer = self.writers.get(query.sink.kind)
        if writer is None:
            raise SinkError("no-writer", f"nothing here writes {query.sink.format}")
        writer(Delivery(str(query.id), with_secrets(query.sink), version, (staged,)))

    def _tell(self, kept: _Kept, version: int, table: pa.Table) -> None:
        view = kept.query.view
        assert view is not None
        names = [n for n in row_schema(view).names if n in {o.name for o in view.projection}]
        table = visible(view, table)
        rows = in_order(view, table).select(names).slice(0, MOST_TOLD)
        batches = rows.combine_chunks().to_batches()
        texts = json_rows(batches[0]).to_pylist() if batches else []
        told = ViewRows(version, table.num_rows, tuple(names), tuple(texts))
        self.tell(str(kept.query.id), told)


def _finished(view: View, table: pa.Table) -> pa.Table:
    batches = [finished(view, b) for b in table.to_batches() if b.num_rows]
    return pa.Table.from_batches(batches, finished_schema(view))


def _stop(kept: _Kept) -> None:
    for part in (kept, kept.above):
        if part is None:
            continue
        if part.running is not None:
            with contextlib.suppress(Exception):
                part.running.stop()
        part.running = part.cause = None
