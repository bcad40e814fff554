"""One query's post-join part: an outer join, a view, or a view over an outer join, with its state.

Rounds (a batch's joined rows) are added one after the other. A version depends only on the state
and the round, so repeated rounds result in the same versions. After an error, the state may include
a part of the round, so it is reloaded from the checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from anabranch_contract import codec
from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_contract.protocol.activations import Activation, LeftRows, ViewRows, counted
from anabranch_contract.queries.expressions import Output
from anabranch_contract.queries.outer_joins import LEFT_SUFFIX, pairs_id
from anabranch_contract.queries.types import DataType
from anabranch_contract.queries.views import MOMENT, WEIGHT
from anabranch_runtime.columns.arrow_types import arrow_type, schema_of
from anabranch_runtime.sinks.joined_rows import JoinedBatch, column_name
from anabranch_runtime.sinks.parquet import output_schema
from anabranch_runtime.sinks.rows import json_rows
from anabranch_runtime.state.tables import Round, TableCounts
from anabranch_runtime.tables.groups import rebuild
from anabranch_runtime.tables.joins import look_ups
from anabranch_runtime.tables.joins.asof import AsOfJoin
from anabranch_runtime.tables.joins.look_ups import LookUps
from anabranch_runtime.tables.joins.outer import DecidedRows
from anabranch_runtime.tables.table import MaintainedTable
from anabranch_runtime.views import estimates
from anabranch_runtime.views.checkpoints import KeptTable
from anabranch_runtime.views.parts import VersionRows, of_part, told
from anabranch_runtime.views.rolling import RollingRows
from anabranch_runtime.views.undecided import Undecided

#: Maximum number of a view's rows that the REST API shows; number of rows up to which a table keeps
#: groups with closed windows.
MOST_SHOWN, MOST_KEPT = 1000, 10_000


@dataclass(frozen=True, slots=True)
class VersionFile:
    """A result file with the changes of a version.

    Attributes:
        rows: number of rows of all versions up to this one, as written in the file.
    """

    path: Path
    version: int
    rows: int

    def linked(self, path: Path, wanted: VersionFile) -> bool:
        """Make ``path`` a link to this file if it equals ``wanted``; return whether that is so."""
        if (self.version, self.rows) != (wanted.version, wanted.rows):
            return False
        try:
            path.hardlink_to(self.path)
        except OSError:  # The file system has no links, or no such file.
            return False
        return True


@dataclass(slots=True)
class _Once:
    """The last changes, or the error, of a table that several views read; computed once.

    Attributes:
        file: the result file that one of the views has written last. ``readers``: number of views.
    """

    readers: int = 1
    version: int = -1
    changes: pa.Table | None = None
    error: Exception | None = None
    file: VersionFile | None = None

    def of(self, version: int, apply: Callable[[], pa.Table]) -> pa.Table:
        """Return the changes of the view's ``version``, which the first caller computes."""
        if version != self.version:
            self.version, self.changes, self.error = version, None, None
            try:
                self.changes = apply()
            except Exception as error:  # noqa: BLE001 - raised for each view below
                self.error = error
        if self.error is not None:
            raise self.error
        return self.changes


@dataclass(slots=True)
class KeptView:
    """The post-join part of ``query``, with its table.

    Attributes:
        results: the results directory, with the ledger of withheld results.
        counts: output counts up to the last included round.
        batch: the last included round; -1: none.
        sources: the joins with rows of the view, in the last round with such rows.
        added: number of joined rows included since this object was made.
        common: CPU seconds of its last round's work for all views with its table or groups.
        seconds: CPU seconds of work by this object. ``grown``: whether some are unreported.
    """

    query: QuerySpec
    results: Path
    counts: TableCounts = field(default_factory=TableCounts)
    batch: int = -1
    sources: tuple[str, ...] = ()
    added: int = field(init=False, default=0)
    common: float = field(init=False, default=0.0)
    seconds: float = field(init=False, default=0.0)
    grown: bool = field(init=False, default=False)
    _table: MaintainedTable | None = field(init=False, default=None)
    #: Shared changes of the table; None if no other view reads the table.
    _once: _Once | None = field(init=False, default=None)
    #: Names of the view's columns in the joined rows that are added; None: the same names.
    _names: dict[str, str] | None = field(init=False, default=None)
    _decided: DecidedRows | None = field(init=False, default=None)
    _look_ups: LookUps | AsOfJoin | None = field(init=False, default=None)
    _undecided: Undecided | None = field(init=False, default=None)
    _rolling: RollingRows | None = field(init=False, default=None)
    #: Corrections of the view's estimates; None if there are too many groups.
    _corrections: pa.Table | None = field(init=False, default=None)
    _missing: Activation | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        query, outer = self.query, self.query.outer
        if self._is_plain:
            self._names = {output.name: column_name(output) for output in query.projection}
        if query.view is not None:
            self._table = MaintainedTable(
                query.view, self._read_by_view, deletes=self._deletes, names=self._names
            )
            self._corrections = estimates.schema_of_estimates(query.view).empty_table()
            if query.view.limits:
                self._rolling = RollingRows(query.view.limits, self._read_by_view)
        if outer is not None and not outer.look_ups:
            self._decided = DecidedRows(outer, self._pair_columns)
            self._undecided = Undecided(query, self.results)
            self.counts = TableCounts(left=LeftRows(outer.kind))
        if outer is not None and outer.kept:
            self._look_ups = (LookUps if outer.nearest is None else AsOfJoin)(outer)

    @property
    def _read_by_view(self) -> pa.Schema:
        shown = (o for o in self._below_view if o.name != WEIGHT)
        return schema_of(o for o in shown if not o.name.startswith(MOMENT))

    @property
    def _below_view(self) -> tuple[Output, ...]:
        outer = self.query.outer
        return self.query.projection if outer is None else outer.projection

    @property
    def _pair_columns(self) -> tuple[tuple[str, DataType], ...]:
        return tuple((o.name, o.expr.type) for o in self.query.projection)

    @property
    def _is_plain(self) -> bool:
        """Whether the view's input are its query's joined rows as they are, without computation."""
        query = self.query
        if query.view is None or query.outer is not None:
            return False
        return not query.united and not query.view.limits

    @property
    def _deletes(self) -> bool:
        """Whether joined rows that the view reads may be deleted."""
        rolling = self.query.view is not None and bool(self.query.view.limits)
        return rolling or any(o.name == WEIGHT for o in self._below_view)

    @property
    def _kept_rows(self) -> DecidedRows | LookUps | AsOfJoin | None:
        return self._look_ups if self._decided is None else self._decided

    @property
    def name(self) -> str:
        """Name of the view's query."""
        return str(self.query.id)

    @property
    def joins(self) -> tuple[str, ...]:
        """Names of the joins whose rows the view reads."""
        outer = self.query.outer
        if outer is None:
            return (self.name,)
        # Right rows of a full join come after the pairs.
        parts = len(look_ups.columns_of(outer)) if outer.look_ups else 0
        pairs = (pairs_id(self.name, n) for n in range(1, parts))
        return (self.name + LEFT_SUFFIX, *(pairs if outer.look_ups else (self.name,)))

    @property
    def bytes(self) -> int:
        """Approximate bytes of the view's state in memory."""
        parts = (self._table, self._decided, self._look_ups, self._rolling)
        return sum(part.bytes for part in parts if part is not None)

    @property
    def identity(self) -> int:
        """Number, equal for views over the same groups or, without groups, with one table."""
        table = self._table
        if table is None:
            return id(self)
        return id(table if table.groups is None else table.groups)

    @property
    def next(self) -> int | None:
        """The next moment, in microseconds since 1970, at which a joined row enters or leaves the
        view by its time limits; None without limits."""
        return None if self._rolling is None else self._rolling.next

    def changes_in(self, batch: Round, joined: JoinedBatch) -> bool:
        """Whether the round may change anything in the view."""
        if self.name in batch.clocks or any(join in joined for join in self.joins):
            return True
        return self._rolling is not None and self._rolling.next <= batch.now

    def first(self) -> pa.Table | None:
        """Return the changes of version 0, the table without input; None if there are none."""
        if self._table is None:
            return None
        changes = self._table.first_changes(0)
        return self._counted(changes, 0) if changes.num_rows else None

    def include(self, batch: Round, joined: JoinedBatch) -> pa.Table | None:
        """Add a round, and return the rows for the sink (a view's changes, an outer join's rows),
        or None if there are none.

        Raises:
            ExpressionError, StateError: afterwards the state is unusable until it is reloaded.
        """
        self.batch, version, self.common = batch.batch, batch.batch + 1, 0.0
        rows = self._results(batch, joined)
        if self._rolling is not None:
            changed = self._rolling.apply(rows, batch.now)
            rows = changed if changed.num_rows else None
        view = self.query.view
        self.added += 0 if rows is None else rows.num_rows
        known = counted(batch.missing, self.name, self.counts.left)
        if known is not None and known.incomplete:
            self._missing = replace(known, earlier=())
        if view is None:
            if rows is not None:
                self.counts = replace(self.counts, shown=self.counts.shown + rows.num_rows)
            return self._counted(rows, version)
        if rows is None:
            return None
        assert self._table is not None
        if estimates.are_sampled(rows):
            own = rows if self._names is None else joined.rows(self.name, self.query)
            self._corrections = estimates.after(self._corrections, self.query, view, own)
        weight = WEIGHT if self._names is None else self._names.get(WEIGHT, WEIGHT)
        weights = rows[weight].to_numpy() if self._deletes else None
        apply = partial(self._table.apply, rows, weights, version)
        groups, began = self._table.groups, time.thread_time()
        first = groups is None or groups.version != version
        changes = apply() if self._once is None else self._once.of(version, apply)
        if self._once is not None:
            self.common = time.thread_time() - began
        elif first and self._table.groups is not None:
            self.common = self._table.groups.seconds
        return told(self._counted(changes, version), self._part())

    @property
    def meaning(self) -> Hashable | None:
        """Key, equal for views whose equal tables stay equal if they get equal rows; None: none."""
        query = self.query
        if self._names is None:
            return None
        return codec.dumps(query.view), tuple((o.name, str(o.expr)) for o in query.projection)

    @property
    def table(self) -> MaintainedTable | None:
        """The table of the view; the same object for views that read a common table."""
        return self._table

    @property
    def common_file(self) -> VersionFile | None:
        """The file written last by a view with the same table; None: no other view has it."""
        return None if self._once is None else self._once.file

    @common_file.setter
    def common_file(self, file: VersionFile) -> None:
        if self._once is not None:
            self._once.file = file

    def join(self, other: KeptView) -> None:
        """From now on, read the table of ``other``, an equal view with equal contents."""
        self.leave()
        other._once = other._once or _Once()
        other._once.readers += 1
        self._table, self._once = other._table, other._once

    def part(self) -> None:
        """Continue with a copy of the table and its groups if other views read them, too."""
        view, table = self.query.view, self._table
        if table is None or view is None:
            return
        if self._once is not None and self._once.readers > 1:
            own, deletes = table.dump(), self._deletes
            self.leave()
            self._table = MaintainedTable.load(
                view, self._read_by_view, own, deletes=deletes, names=self._names
            )
            self._once = None
        elif table.groups is not None and table.reader is not None and table.groups.is_shared:
            rebuild([table.groups], [table.reader])

    def leave(self) -> None:
        """Stop reading the table, with which other views continue."""
        if self._once is not None and self._once.readers > 1:
            self._once.readers -= 1
        elif self._table is not None:
            self._table.leave()

    def forget(self, clock: int) -> None:
        """Drop groups whose windows end at ``clock`` (microseconds) or before, if the table has
        more than :data:`MOST_KEPT` rows."""
        if self._table is not None and len(self._table) > MOST_KEPT:
            self._table.forget(clock)

    def shown(self) -> ViewRows | None:
        """Return the view's first rows for the REST API; None for an outer join without a view."""
        view = self.query.view
        if self._table is None or view is None:
            return None
        first = self._table.rows(MOST_SHOWN, counts=self._missing is not None)
        wanted = {o.name for o in view.projection}
        names = [n for n in first.column_names if n in wanted]
        rows = tuple(json_rows(_together(first.select(names))).to_pylist())
        shown = ViewRows(self.counts.version, self.counts.shown, tuple(names), rows, self.batch)
        return of_part(shown, view, first, self._part(), above=self.query.outer is not None)

    def kept(self, following: int) -> KeptTable:
        """Return the table for a checkpoint that has all rounds before ``following``."""
        contents = list[pa.RecordBatch]()
        parts = [
            () if self._table is None else self._table.dump(),
            () if self._kept_rows is None else self._kept_rows.dump(),
            () if self._corrections is None else [_together(self._corrections)],
            () if self._rolling is None else self._rolling.dump(),
        ]
        missing = "" if self._missing is None else self._missing.dumps()
        sizes = [[len(part)] for part in parts]
        names = ["table", "outer", "more", "rolling", "m"]
        contents.append(pa.record_batch([*sizes, [missing]], names=names))
        contents += (batch for part in parts for batch in part)
        return KeptTable(self.query, following, self.counts, contents)

    @classmethod
    def of(cls, kept: KeptTable, results: Path) -> KeptView:
        """Restore the view from its table in a checkpoint (:meth:`kept`)."""
        found = cls(kept.query, results)
        if kept.contents is None:
            return found
        head, *rest = kept.contents
        tables, outer, corrections, _, missing = (c[0].as_py() for c in head.columns)
        found.counts, found.batch = kept.counts, kept.next - 1
        view = kept.query.view
        if view is not None:
            own = rest[:tables]
            found._table = MaintainedTable.load(
                view, found._read_by_view, own, deletes=found._deletes, names=found._names
            )
            end = tables + outer + corrections
            more, rolling = rest[tables + outer : end], rest[end:]
            found._corrections = pa.Table.from_batches(more) if more else None
            if found._rolling is not None:
                found._rolling.load(rolling)
        if found._decided is not None:
            own = rest[tables : tables + outer]
            found._decided = DecidedRows.load(found._decided.outer, found._pair_columns, own)
        if found._look_ups is not None:
            own = rest[tables : tables + outer]
            found._look_ups = found._look_ups.load(found._look_ups.outer, own)
        found._missing = Activation.loads(missing) if missing else None
        return found

    def _results(self, batch: Round, joined: JoinedBatch) -> pa.Table | None:
        """Return a round's rows that the view reads, or the rows of an outer join; or None."""
        outer = self.query.outer
        if self._names is not None:
            return joined.common(self.name)
        if outer is None:
            return joined.rows(self.name, self.query)
        if outer.look_ups:
            columns = look_ups.columns_of(outer)
            schemas = [pa.schema([(n, arrow_type(k)) for n, k in some]) for some in columns]
            found = [joined.rows(join, self.query) for join in self.joins]
            filled = [
                s.empty_table() if t is None else t for t, s in zip(found, schemas, strict=True)
            ]
            if self._look_ups is None:
                return None if found[0] is None else look_ups.results(outer, filled)
            if not any(rows.num_rows for rows in filled):
                return None
            rows = self._look_ups.apply(filled)
            return rows if rows.num_rows else None
        assert self._decided is not None
        assert self._undecided is not None
        found = [joined.rows(join, self.query) for join in self.joins]
        nothing = output_schema(self.query).empty_table()
        left, pairs = (nothing if rows is None else rows for rows in found)
        clock = batch.clocks.get(self.name)
        rows, decided = self._decided.apply(left, pairs, clock, batch.batch, self._undecided)
        if self.counts.left is not None:
            self.counts = replace(self.counts, left=self.counts.left.plus(decided))
        return rows if rows.num_rows else None

    def _part(self) -> VersionRows:
        return VersionRows(self.batch, self._missing, self._corrections)

    def _counted(self, rows: pa.Table | None, version: int) -> pa.Table | None:
        if self._table is not None:
            self.counts = replace(self.counts, shown=len(self._table) + self._table.forgotten)
        if rows is None or not rows.num_rows:
            return None
        written = self.counts.written + rows.num_rows
        self.counts = replace(self.counts, version=version, written=written)
        return rows


def _together(rows: pa.Table) -> pa.RecordBatch:
    batches: Sequence[pa.RecordBatch] = rows.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_arrays(
        [pa.nulls(0, f.type) for f in rows.schema], schema=rows.schema
    )
