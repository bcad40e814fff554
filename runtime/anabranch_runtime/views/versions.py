"""Versions of a view: their computation by Spark, and their conversion to rows and changes.

A version is computed from Spark's micro-batch of the same number and from the table before it. A
repeated micro-batch gives the same version, which replaces its first attempt in the sink.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.protocol.activations import ViewRows
from anabranch_contract.queries.views import AggregateFunction
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import SinkError
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.sinks import view_inputs as inputs
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.parquet import version_file
from anabranch_runtime.storage.documents import sync_filesystem
from anabranch_runtime.views import groups, look_ups, outer_joins
from anabranch_runtime.views.counts import add, add_left, put, shown_file, written_file
from anabranch_runtime.views.estimates import Estimates
from anabranch_runtime.views.finishing import finished, finished_schema
from anabranch_runtime.views.parts import VersionRows, of_part, told
from anabranch_runtime.views.ranking import top_groups, top_rows
from anabranch_runtime.views.table import (
    ViewTables,
    in_order,
    replaced,
    row_schema,
    texts,
    updated,
    visible,
)
from anabranch_runtime.views.undecided import Undecided

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from anabranch_contract.plans.ruleset import QuerySpec
    from anabranch_contract.protocol.activations import LeftRows
    from anabranch_contract.queries.outer_joins import OuterJoin
    from anabranch_contract.queries.views import View
    from anabranch_runtime.sinks.delivery import Write

    #: Function of a micro-batch's frame and the version's number, which makes the version.
    Make = Callable[[DataFrame, int], None]

#: Maximum number of a view's rows that the REST API shows.
MOST_SHOWN = 1000
#: Suffix of the checkpoint of a view over an outer join.
_OVER_OUTER = "+above"


@dataclass(frozen=True, slots=True)
class ViewPlace:
    """A maintained view or outer join, and its folders.

    Attributes:
        home: folder of its joined rows (``sinks.view_inputs``).
        checkpoint: folder of Spark's checkpoint.
        upper: the view over the rows of an outer join, if any.
        above: whether this is the view whose input is an outer join.
    """

    query: QuerySpec
    home: Path
    checkpoint: Path
    upper: ViewPlace | None = None
    above: bool = False

    @property
    def looks_up(self) -> bool:
        """Whether this is an outer join with tables: its rows never wait and don't need Spark."""
        return self.query.outer is not None and bool(self.query.outer.look_ups)


def place_of(query: QuerySpec, home: Path, checkpoints: Path) -> ViewPlace:
    """Return the folders of a query, including the view over its outer join, if any."""
    place = ViewPlace(query, home, checkpoints / query.id)
    if query.outer is None or query.view is None:
        return place
    over = replace(query, projection=query.outer.projection, outer=None)
    checkpoint = checkpoints / f"{query.id}{_OVER_OUTER}"
    return replace(place, upper=ViewPlace(over, home / "above", checkpoint, above=True))


@dataclass(frozen=True, slots=True)
class ViewFrame:
    """Streaming query to start: Spark's frame, its output mode, and the sink of micro-batches."""

    rows: DataFrame
    mode: str
    make: Make


@dataclass(frozen=True, slots=True)
class Maker:
    """Computes versions of views and outer joins, and writes their rows and changes to sinks.

    Attributes:
        results: the results directory.
        writers: writers of external sinks.
        publish: called with a view's present rows.
        show: called with the number of rows that an outer join has emitted, or that a view has.
        left: called with the counts of an outer join's left rows so far.
        follow: called with the rows that a version has written to its sink, and the total number
            written so far.
    """

    session: SparkSession
    results: Path
    writers: Mapping[SinkKind, Write]
    publish: Callable[[str, ViewRows], None]
    show: Callable[[str, int], None]
    left: Callable[[str, LeftRows], None]
    follow: Callable[[str, int, pa.Table, int], None]

    def work(self, place: ViewPlace) -> ViewFrame:
        """Return the streaming query that maintains the view or outer join in ``place``."""
        source = place.home / "input"
        query, view, outer = place.query, place.query.view, place.query.outer
        if outer is not None:
            rows = outer_joins.decided(self.session, query, source)
            undecided = Undecided(query, self.results)
            return ViewFrame(rows, "append", partial(self._decided, place, outer, undecided))
        assert view is not None
        tables = ViewTables(place.home / "table", view)
        # Not with totals (aggregates over all groups), which only Spark computes.
        if view.grouped and not view.group_keys and not view.totals:
            self._first(place, view, tables)
        rows = groups.joined_rows(self.session, query, source)
        mode = "append" if not view.grouped else "complete" if view.whole else "update"
        shown = groups.grouped(rows, query) if view.grouped else rows
        return ViewFrame(shown, mode, partial(self._made, place, view, tables))

    def look_up(self, place: ViewPlace, next_batch: int) -> None:
        """Emit the results of joins with tables for the batches before ``next_batch``, each batch
        as a version, as matches are in the same batch. A repeated batch is the same version.
        """
        home = place.home
        if inputs.unread(home):
            # Left by an interrupted attempt.
            self._look_up_released(place)
        for batch in inputs.pending(home, next_batch):
            if inputs.release(home, batch + 1, None):
                self._look_up_released(place)

    def _look_up_released(self, place: ViewPlace) -> None:
        outer, home = place.query.outer, place.home
        assert outer is not None
        files = [inputs.files_of(home, part) for part in range(len(outer.look_ups) + 1)]
        if files[0]:
            self._give(place, inputs.last_batch(home) + 1, look_ups.results(outer, files))
        reach(Point.VIEWED)
        inputs.read(home)

    def _decided(
        self,
        place: ViewPlace,
        outer: OuterJoin,
        undecided: Undecided | None,
        frame: DataFrame,
        version: int,
    ) -> None:
        """Make a version of an outer join's rows, for its sink or for the view over it."""
        found, query = outer_joins.grouped(outer, frame.toArrow()), str(place.query.id)
        if undecided is not None:
            found, left_rows = outer_joins.without_undecided(outer, found, undecided)
            self.left(query, add_left(self.results, query, version, left_rows))
        self._give(place, version, outer_joins.results(outer, found))

    def _give(self, place: ViewPlace, version: int, rows: pa.Table) -> None:
        """Write rows of an outer join to its sink, or stage them as input of the view over it."""
        query = str(place.query.id)
        if place.upper is None:
            self._write(place, version, rows)
            self.show(query, add(shown_file(self.results, query), version, rows.num_rows))
        elif rows.num_rows:
            staged = place.home / "rows.parquet"
            pq.write_table(rows, staged)
            inputs.stage(place.upper.home, version, {1: [staged]})

    def _made(
        self, place: ViewPlace, view: View, tables: ViewTables, frame: DataFrame, version: int
    ) -> None:
        """Make a view's version from changed groups, from all groups, or from new joined rows."""
        before = tables.before(version)
        part = self._part(place, view, version, shown=before is not None)
        if view.grouped and not view.whole:
            found = _finished(view, frame.toArrow())
            changes, after = updated(view, before, found, version)
        else:
            # Views of these kinds always keep the table of the last version.
            assert before is not None
            after = top_groups(frame, view) if view.grouped else top_rows(frame, view, before)
            changes = replaced(view, visible(view, before), visible(view, after), version)
        self._keep(place, view, tables, version, changes, after, part)

    def _part(self, place: ViewPlace, view: View, version: int, *, shown: bool) -> VersionRows:
        """Describe the joined rows included in a version; with corrections if ``shown``."""
        found = VersionRows(inputs.last_batch(place.home), inputs.missing(place.home))
        batches = inputs.sampled(place.home)
        if not shown or (found.missing is None and not batches):
            return found
        estimates = Estimates(place.home / "estimates", view)
        return replace(found, corrections=estimates.after(version, place.query, batches))

    def _first(self, place: ViewPlace, view: View, tables: ViewTables) -> None:
        """Write version 0: aggregates without GROUP BY have one row even without input."""
        if (place.checkpoint / "commits").exists():
            return
        nothing = pa.RecordBatch.from_arrays(
            [
                pa.array([0 if a.function is AggregateFunction.COUNT else None], arrow_type(a.type))
                for a in view.aggregates
            ],
            names=[a.name for a in view.aggregates],
        )
        found = _finished(view, pa.Table.from_batches([nothing]))
        changes, after = updated(view, tables.before(0), found, 0)
        self._keep(place, view, tables, 0, changes, after, VersionRows(-1))

    def _keep(
        self,
        place: ViewPlace,
        view: View,
        tables: ViewTables,
        version: int,
        changes: pa.Table,
        after: pa.Table | None,
        part: VersionRows,
    ) -> None:
        self._write(place, version, told(changes, part))
        if after is None:
            return
        tables.keep(version, after)
        shown = visible(view, after)
        wanted = {o.name for o in view.projection}
        names = [n for n in row_schema(view).names if n in wanted]
        first = in_order(view, shown).slice(0, MOST_SHOWN)
        rows = tuple(texts(first.select(names)).to_pylist())
        query, total = str(place.query.id), shown.num_rows
        self.show(query, put(shown_file(self.results, query), version, total))
        shown_rows = ViewRows(version, total, tuple(names), rows, part.batch)
        self.publish(query, of_part(shown_rows, view, first, part, above=place.above))

    def _write(self, place: ViewPlace, version: int, changes: pa.Table) -> None:
        """Write a version's changes to the sink; a repeated version is written again."""
        query = place.query
        folder = self.results / query.id
        staged = place.home / "changes.parquet"
        target = version_file(folder, version)
        if query.sink.kind is SinkKind.PARQUET:
            target.unlink(missing_ok=True)
        if not changes.num_rows:
            return
        pq.write_table(changes, staged)
        if query.sink.kind is SinkKind.PARQUET:
            folder.mkdir(parents=True, exist_ok=True)
            staged.rename(target)
            sync_filesystem(self.results)
        else:
            writer = self.writers.get(query.sink.kind)
            if writer is None:
                raise SinkError("no-writer", f"no writer for sinks of format {query.sink.format}")
            writer(Delivery(str(query.id), query.sink, version, (staged,)))
        total = add(written_file(self.results, query.id), version, changes.num_rows)
        self.follow(str(query.id), version, changes, total)


def _finished(view: View, table: pa.Table) -> pa.Table:
    batches = [finished(view, b) for b in table.to_batches() if b.num_rows]
    return pa.Table.from_batches(batches, finished_schema(view))
