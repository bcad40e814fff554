"""Maintenance of views in the background, one view after the other, while batches run.

For each view, committed joined rows are released to its Spark query; when Spark has committed the
micro-batch, the rows are deleted. Only one view is updated at a time: Spark runs one task for it,
in the slot that batches leave free. A view's Spark query runs as long as the view exists, so its
state stays loaded; it is idle while no rows are released.

A view that fails (an overflowing sum, a sink that refuses changes) is retried from Spark's
checkpoint after increasing pauses; its joined rows wait.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
import structlog
from pyspark.errors import StreamingQueryException

from anabranch_contract import codec
from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.plans.ruleset import QuerySpec, Ruleset
from anabranch_contract.protocol.activations import Activation, LeftRows, ViewRows, counted
from anabranch_contract.protocol.profile import CpuGroup
from anabranch_contract.queries.outer_joins import LEFT_SUFFIX
from anabranch_runtime.cpu import metered
from anabranch_runtime.errors import SinkError
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.sinks import view_inputs as inputs
from anabranch_runtime.sinks.delivery import Write
from anabranch_runtime.sinks.publisher import FIRST_PAUSE, first_line, pause_after
from anabranch_runtime.sources.permitted import masked
from anabranch_runtime.storage.documents import write_durably
from anabranch_runtime.views import groups
from anabranch_runtime.views.clock import clock_of
from anabranch_runtime.views.counts import all_left, all_shown, all_written
from anabranch_runtime.views.finishing import with_counts
from anabranch_runtime.views.versions import Maker, ViewPlace, place_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = structlog.get_logger("anabranch.runtime")

_SPEC = "query.json"
_LOST = (
    "the results directory does not have what the view was made of: restore it, or replace the"
    " query by itself (anabranch query replace), which begins it anew"
)
#: Default of :meth:`Views.begin`: no activations of queries.
NO_QUERIES: Mapping[str, Activation] = MappingProxyType({})


@dataclass(slots=True)
class _Running:
    """A view or outer join with its Spark query.

    Attributes:
        query: Spark's query; None: not started, or failed.
        cause: the exception from making a version; Spark passes on only its text.
    """

    place: ViewPlace
    query: StreamingQuery | None = None
    cause: Exception | None = None


@dataclass(slots=True)
class _MaintainedView:
    """A view and the state of its maintenance.

    Attributes:
        parts: its Spark queries: of the view, or of an outer join and the view over it.
        clock: the view's event time as of the last committed batch. ``reached``: of its last
            version.
        known: activations (start and counters) of the query's joins as of the last committed batch.
        lost: whether its input has been lost, so that the view does not change any more.
        ending: whether its query has ended, so that the present rows are its last.
        unsure: whether Spark may not have read all released rows.
        looked_at: number of the next batch when the view was last up to date.
    """

    place: ViewPlace
    parts: tuple[_Running, ...]
    clock: int | None = None
    known: Mapping[str, Activation] = field(default_factory=dict)
    reached: int | None = None
    lost: bool = False
    ending: bool = False
    unsure: bool = True
    problem: str | None = None
    failures: int = 0
    retry: float = 0.0
    looked_at: int = 0

    @property
    def needs_clock(self) -> bool:
        """Whether the view may change when event time advances without new rows."""
        return self.place.query.outer is not None and not self.place.looks_up

    def stop(self) -> None:
        """Stop Spark's queries."""
        for part in self.parts:
            if part.query is not None:
                with contextlib.suppress(Exception):
                    part.query.stop()
            part.query = part.cause = None


@dataclass(slots=True)
class Views:
    """All views of one pipeline.

    Attributes:
        results: the results directory.
        checkpoints: folder of the views' Spark checkpoints.
        writers: writers of external sinks.
        publish: called with a view's present rows, for the REST API.
        follow: called with the rows that a version has written, for clients that follow the query.
    """

    session: SparkSession
    results: Path
    checkpoints: Path
    writers: Mapping[SinkKind, Write]
    publish: Callable[[str, ViewRows], None]
    follow: Callable[[str, int, pa.Table, int], None] = field(default=lambda *_: None)
    _maker: Maker = field(init=False)
    _kept: dict[str, _MaintainedView] = field(init=False, default_factory=dict)
    #: View -> number of its rows; outer join -> number of rows emitted so far.
    _shown: dict[str, int] = field(init=False, default_factory=dict)
    #: View or outer join -> the last version that wrote rows, and number of rows written so far.
    _written: dict[str, tuple[int, int]] = field(init=False, default_factory=dict)
    #: Outer join -> counts of left rows that can get no more matches, emitted or not.
    _left: dict[str, LeftRows] = field(init=False, default_factory=dict)
    _next_batch: int = field(init=False, default=0)
    _changed: threading.Condition = field(init=False, default_factory=threading.Condition)
    _closing: bool = field(init=False, default=False)
    _busy: threading.Lock = field(init=False, default_factory=threading.Lock)
    _thread: threading.Thread | None = field(init=False, default=None)

    def begin(self, next_batch: int, queries: Mapping[str, Activation] = NO_QUERIES) -> None:
        """Continue the views of an earlier run; called before the first batch.

        Args:
            queries: the queries' activations, as of the batch before ``next_batch``.
        """
        session = groups.view_session(self.session)
        shown, left = self._shown.__setitem__, self._left.__setitem__
        self._maker = Maker(
            session, self.results, self.writers, self.publish, shown, left, self._wrote
        )
        self._shown.update(all_shown(self.results))
        self._written.update(all_written(self.results))
        self._left.update(all_left(self.results))
        self._next_batch = next_batch
        for spec in sorted((self.results / inputs.HOME).glob(f"*/{_SPEC}")):
            query = codec.loads(spec.read_text(), QuerySpec)
            inputs.forget_from(spec.parent, next_batch)
            kept = self._kept[str(query.id)] = self._taken_up(query, spec.parent)
            kept.known = _known(queries, str(query.id))
        self._thread = threading.Thread(target=self._keep_up, name="views", daemon=True)
        self._thread.start()

    def committed(
        self,
        next_batch: int,
        marks: Mapping[str, int],
        ruleset: Ruleset,
        queries: Mapping[str, Activation] = NO_QUERIES,
    ) -> None:
        """Schedule updates of the views to the committed batches before ``next_batch``. ``marks``
        are the streams' watermarks, ``ruleset`` has the views, ``queries`` is as in :meth:`begin`.
        """
        wanted = {str(q.id): q for q in ruleset.queries if q.has_post_join and q.left_of is None}
        with self._changed:
            for name, query in wanted.items():
                if name not in self._kept:
                    lost = self._is_lost(query, queries.get(name))
                    self._kept[name] = self._new(query)
                    self._kept[name].looked_at = next_batch
                    self._kept[name].lost = lost
                    self._kept[name].problem = _LOST if lost else None
                kept = self._kept[name]
                kept.ending, kept.clock = False, None
                if not _waits_for_past(queries.get(name)):
                    kept.clock = clock_of(query, ruleset, marks)
            for name in self._kept.keys() - wanted.keys():
                self._kept[name].ending = True
            for name, kept in self._kept.items():
                kept.known = _known(queries, name)
            self._next_batch = next_batch
            self._changed.notify()

    def problems(self) -> dict[str, str]:
        """Return, by query, why its view is not up to date."""
        with self._changed:
            return {
                name: f"view: {kept.problem}"
                for name, kept in self._kept.items()
                if kept.problem is not None
            }

    def lag(self) -> dict[str, int]:
        """Return, by view, the number of committed batches whose rows it does not include yet."""
        with self._changed:
            return {
                name: max(self._next_batch - kept.looked_at, 0) for name, kept in self._kept.items()
            }

    def shown(self) -> dict[str, int]:
        """Return the number of rows of each view, and of rows emitted by each outer join without a
        view; includes ended queries.
        """
        return self._shown.copy()

    def written(self) -> dict[str, tuple[int, int]]:
        """Return, by view or outer join, the last version with rows and the total rows written."""
        return self._written.copy()

    def left_rows(self) -> dict[str, LeftRows]:
        """Return, by outer join, counts of left rows that can get no more matches."""
        return self._left.copy()

    def drain(self) -> None:
        """Bring all views up to date.

        Raises:
            SinkError: a view can't be brought up to date.
        """
        with self._changed:
            names = [name for name, kept in self._kept.items() if not kept.lost]
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
        """Stop; unfinished views continue at the next start."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        for kept in self._kept.values():
            kept.stop()

    def _wrote(self, name: str, version: int, rows: pa.Table, total: int) -> None:
        self.follow(name, version, rows, total)
        self._written[name] = version, total

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
            with metered(CpuGroup.VIEW, name):
                self._refresh(name)

    def _due(self) -> str | None:
        """Return the view to update next: of those not up to date, the one that waits longest."""
        now = time.monotonic()
        for name, kept in self._kept.items():
            if kept.retry > now or kept.lost:
                continue
            if kept.ending or kept.unsure or inputs.waiting(kept.place.home, self._next_batch):
                return name
            if kept.needs_clock and kept.clock is not None and kept.clock != kept.reached:
                return name
            kept.looked_at = self._next_batch
        return None

    def _refresh(self, name: str) -> None:
        with self._busy:
            with self._changed:
                kept = self._kept.pop(name, None)
                if kept is None:
                    return
                # Put the view at the end of the round-robin queue.
                self._kept[name] = kept
                next_batch, clock, ending = self._next_batch, kept.clock, kept.ending
                known = kept.known
            try:
                first, *upper = kept.parts
                above: int | None = None
                if kept.place.looks_up:
                    above = clock
                    self._maker.look_up(kept.place, next_batch)
                else:
                    missing = None if kept.needs_clock else _missing(known, name)
                    self._advance(first, next_batch, clock, missing, always=kept.needs_clock)
                for part in upper:
                    missing = _missing(known, name, self._left.get(name))
                    self._advance(part, inputs.after_all(part.place.home), above, missing)
                kept.unsure, kept.problem, kept.failures = False, None, 0
                kept.reached, kept.looked_at = clock, next_batch
            except Exception as error:  # noqa: BLE001 - whatever fails, the view waits
                self._failed(name, kept, error)
                return
            if ending:
                with self._changed:
                    if kept.ending and not inputs.waiting(kept.place.home, next_batch):
                        del self._kept[name]
                        self._end(kept)

    def _advance(
        self,
        part: _Running,
        next_batch: int,
        clock: int | None,
        missing: Activation | None,
        *,
        always: bool = False,
    ) -> None:
        """Release the rows before ``next_batch``, and wait until the view includes them."""
        home = part.place.home
        if inputs.unread(home):
            # Finish an interrupted release first: every version includes exactly one release.
            self._work_in(part)
        some = inputs.release(home, next_batch, clock, always=always, missing=missing)
        if some or part.query is None:
            self._work_in(part)

    def _work_in(self, part: _Running) -> None:
        try:
            self._follow(part)
        except StreamingQueryException:
            if part.cause is not None:
                raise
            # Spark lists the released folders repeatedly, and fails if one is deleted meanwhile, so
            # none is deleted until Spark has read this release.
            part.query = None
            self._follow(part)
        inputs.read(part.place.home)

    def _follow(self, part: _Running) -> None:
        if part.query is None:
            part.query = self._start(part)
        part.query.processAllAvailable()

    def _start(self, part: _Running) -> StreamingQuery:
        work = self._maker.work(part.place)

        def apply(frame: DataFrame, number: int) -> None:
            try:
                # Spark numbers micro-batches from 0, but version 0 is the table before any row.
                with metered(CpuGroup.VIEW, part.place.query.id):
                    work.make(frame, number + 1)
                reach(Point.VIEWED)
            except Exception as error:
                part.cause = error
                raise

        # If advancing event time alone may change the view, Spark must run empty micro-batches.
        alone = part.place.query.outer is not None
        self._maker.session.conf.set(groups.WITHOUT_ROWS, str(alone).lower())
        return (
            work.rows.writeStream.outputMode(work.mode)
            .foreachBatch(apply)
            .option("checkpointLocation", str(part.place.checkpoint))
            .start()
        )

    def _failed(self, name: str, kept: _MaintainedView, error: Exception) -> None:
        cause = next((part.cause for part in kept.parts if part.cause is not None), error)
        message = masked(first_line(cause))
        kept.stop()
        kept.failures += 1
        kept.problem, kept.unsure = message, True
        kept.retry = time.monotonic() + pause_after(kept.failures)
        _LOG.warning("view failed", query=name, error=message, times=kept.failures)

    # --- beginning and end -------------------------------------------------------------------

    def _is_lost(self, query: QuerySpec, known: Activation | None) -> bool:
        """Whether joined rows of committed batches are missing in the results directory."""
        found = known is not None and known.results > 0
        return found and not inputs.home_of(self.results, query.id).exists()

    def _new(self, query: QuerySpec) -> _MaintainedView:
        if query.view is not None:
            query = replace(query, view=with_counts(query.view))
        home = inputs.home_of(self.results, query.id)
        home.mkdir(parents=True, exist_ok=True)
        write_durably(home / _SPEC, codec.dumps(query))
        return self._taken_up(query, home)

    def _taken_up(self, query: QuerySpec, home: Path) -> _MaintainedView:
        place = place_of(query, home, self.checkpoints)
        self._shown.setdefault(str(query.id), 0)
        self._written.setdefault(str(query.id), (0, 0))
        if query.outer is not None:
            self._left.setdefault(str(query.id), LeftRows(query.outer.kind))
        places = (place,) if place.upper is None else (place, place.upper)
        running = tuple(_Running(p) for p in places)
        return _MaintainedView(place, running, looked_at=inputs.released(home) + 1)

    def _end(self, kept: _MaintainedView) -> None:
        kept.stop()
        shutil.rmtree(kept.place.home, ignore_errors=True)
        for part in kept.parts:
            shutil.rmtree(part.place.checkpoint, ignore_errors=True)


def _waits_for_past(known: Activation | None) -> bool:
    """Whether past results of any age are still to be computed, so that no window may close."""
    return known is not None and known.past is not None and known.past.pending


def _known(queries: Mapping[str, Activation], name: str) -> dict[str, Activation]:
    """Return the activations of the joins of the query ``name``."""
    names = (name, name + LEFT_SUFFIX)
    return {one: found for one in names if (found := queries.get(one)) is not None}


def _missing(
    known: Mapping[str, Activation], name: str, left_rows: LeftRows | None = None
) -> Activation | None:
    """Return the query's counts of withheld rows to store with a release; None if none ever."""
    found = counted(known, name, left_rows)
    if found is None or not found.incomplete:
        return None
    return replace(found, earlier=())
