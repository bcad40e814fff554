"""Maintenance of the tables of all post-join parts, concurrent with batches: its input are rounds
(joined rows of a batch), its output versions of the tables.

A round is added to all tables before the next one. A table that fails (a sum overflows, its sink
refuses rows) is retried after growing pauses, while the others go on; its rounds wait in the state.
Now and then the changed tables are written as a checkpoint, so that earlier rounds can be dropped.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.protocol.activations import ViewRows
from anabranch_contract.protocol.profile import CpuGroup
from anabranch_runtime.cpu import CpuUses, add_metered, divide, take_metered, thread_seconds
from anabranch_runtime.errors import SinkError, SinkUnderway, StateError
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.sinks.delivery import Delivery, Write, WrittenVersion
from anabranch_runtime.sinks.joined_rows import JoinedBatch
from anabranch_runtime.sinks.parquet import version_file, write_version
from anabranch_runtime.sinks.publisher import FIRST_PAUSE, first_line, pause_after
from anabranch_runtime.sources.permitted import masked
from anabranch_runtime.state.tables import HeldTable, Round, TableCost, TableCounts, TablesState
from anabranch_runtime.storage.documents import sync_filesystem
from anabranch_runtime.storage.segment import Segment
from anabranch_runtime.views.checkpoints import read_checkpoint, write_checkpoint
from anabranch_runtime.views.common import join_equal, share
from anabranch_runtime.views.kept import KeptView, VersionFile

_LOG = structlog.get_logger("anabranch.runtime")

#: A checkpoint is due once the rounds since the last one have taken ``SECONDS`` and ``RATIO`` times
#: its duration, have more bytes than ``BYTES`` and the tables, or number ``ROUNDS``.
SECONDS, RATIO, BYTES, ROUNDS = 2.0, 10.0, 1 << 25, 1024
#: Seconds after which changed rows are published even if more rounds wait; greatest share of time
#: for publishing; longest pause in seconds that this share causes.
STALE, SHARE, RARELY = 0.5, 0.2, 5.0
#: Seconds below which time for work on common tables is not divided, but the first view's.
SHORT = 2e-5
#: Number of views that one call publishes; bytes of rows from which on followers get them before
#: the end of the round.
TOGETHER, MUCH = 16, 1 << 24
#: Folder in the results directory for files of versions that are about to be delivered.
STAGING = ".views"


@dataclass(frozen=True, slots=True)
class News:
    """Effect of a committed batch on the maintained tables.

    Attributes:
        next_batch: number of the next batch. ``rounds``: new rounds before it.
        held, checkpoints: query -> its table's last checkpoint, if that is new; these checkpoints.
        wanted: the queries whose tables are still maintained; None: unknown.
        clocks: view -> lower limit of the event times of future joined rows (microseconds).
    """

    next_batch: int
    rounds: tuple[Round, ...] = ()
    held: Mapping[str, HeldTable] = field(default_factory=dict)
    checkpoints: tuple[Segment, ...] = ()
    wanted: frozenset[str] | None = None
    clocks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint of tables that no manifest names yet.

    Attributes:
        next: first round that the checkpoint's tables do not include.
        written: queries with a table in the checkpoint. ``unchanged``: queries whose tables have
            not changed since their last checkpoints.
    """

    segment: Segment
    next: int
    written: tuple[str, ...]
    unchanged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TablesStatus:
    """Progress of the maintenance of tables.

    Attributes:
        next: first round that some table does not include, apart from the tables in ``behind``.
        behind: query whose table has failed -> first round that the table does not include.
        problems: query -> error of its table.
        counts: query -> output counts of its table, if changed since the last status.
        checkpoint: the checkpoint written since the last status, if any.
        ended: queries whose tables have been dropped since the last status.
        cpu: CPU seconds since the last status, by use (group and name).
        costs: query -> cost of its table, if it has changed since the last status.
        due: the next moment at which a row enters or leaves a view by the view's time limits, in
            microseconds since 1970; None: there are no such views.
    """

    next: int
    behind: Mapping[str, int] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, TableCounts] = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
    ended: tuple[str, ...] = ()
    cpu: CpuUses = field(default_factory=dict)
    due: int | None = None
    costs: Mapping[str, TableCost] = field(default_factory=dict)


@dataclass(slots=True)
class _Aside:
    """A failed table, to be retried, or a table whose sink is still writing a version.

    Attributes:
        failures: 0 while the sink writes the version for the first time.
        next: first round that the table does not include.
        version, rows: version that its sink has not accepted; None: the table has failed.
    """

    next: int
    problem: str
    failures: int = 1
    retry: float = 0.0
    version: int = -1
    rows: pa.Table | None = None


@dataclass(slots=True)
class _Unshown:
    """Changes of tables that have not been passed on to the REST API and to followers yet.

    Attributes:
        changed: view with unpublished changes -> time of the oldest one.
        publish_after: time of the next publication, at the earliest.
        written: versions for followers. ``bytes``: bytes of their rows.
    """

    changed: dict[str, float] = field(default_factory=dict)
    publish_after: float = 0.0
    written: list[WrittenVersion] = field(default_factory=list)
    bytes: int = 0


@dataclass(slots=True)
class _Checkpoints:
    """Progress towards the next checkpoint.

    Attributes:
        dirty: queries whose tables have changed since the last checkpoint.
        spent: seconds of rounds since that checkpoint. ``length``: seconds that it took to write.
        made: a checkpoint that :meth:`Keeper.status` has not reported yet.
        unnamed: the pack of a checkpoint that no manifest names yet.
    """

    dirty: set[str] = field(default_factory=set)
    spent: float = 0.0
    length: float = 0.0
    made: Checkpoint | None = None
    unnamed: str | None = None


@dataclass(slots=True)
class Keeper:
    """Keeps the maintained tables of one pipeline up to date.

    Attributes:
        root: the state directory. ``results``: the results directory.
        writers: writers of external sinks.
        publish: called with the present rows of some views, for the REST API.
        follow: called with the versions that have been written, for clients that follow queries.
        most: bytes that one table may take in memory; None: any number.
        delivered: query -> output counts of its table, including those from an earlier run.
        next: the next round, by batch number.
    """

    root: Path
    results: Path
    writers: Mapping[SinkKind, Write]
    publish: Callable[[Mapping[str, ViewRows]], None]
    follow: Callable[[Sequence[WrittenVersion]], None] = field(default=lambda _: None)
    most: int | None = field(init=False, default=None)
    delivered: dict[str, TableCounts] = field(init=False, default_factory=dict)
    next: int = field(init=False, default=0)
    _views: dict[str, KeptView] = field(init=False, default_factory=dict)
    _held: dict[str, HeldTable] = field(init=False, default_factory=dict)
    _packs: dict[str, Segment] = field(init=False, default_factory=dict)
    _rounds: dict[int, Round] = field(init=False, default_factory=dict)
    _next_batch: int = field(init=False, default=0)
    _wanted: frozenset[str] | None = field(init=False, default=None)
    _aside: dict[str, _Aside] = field(init=False, default_factory=dict)
    #: Query -> output counts that :meth:`status` has not reported yet.
    _counts: dict[str, TableCounts] = field(init=False, default_factory=dict)
    _unshown: _Unshown = field(init=False, default_factory=_Unshown)
    _kept: _Checkpoints = field(init=False, default_factory=_Checkpoints)
    _clocks: Mapping[str, int] = field(init=False, default_factory=dict)

    def load(self, tables: TablesState, next_batch: int) -> None:
        """Load the maintained tables of the state as of the start of ``next_batch``.

        Raises:
            StateError: a checkpoint can't be read.
        """
        self.delivered = dict(tables.counts)
        self._hear(News(next_batch, tables.rounds, tables.held, tables.checkpoints))

    def hear(self, news: News) -> None:
        """Take the rounds and the ended queries of a committed batch into account.

        Raises:
            StateError: a checkpoint can't be read.
        """
        for name in news.held:
            if name not in self._views:
                self.delivered.pop(name, None)
        self._hear(news)

    def _hear(self, news: News) -> None:
        self._packs |= {segment.path: segment for segment in news.checkpoints}
        fresh = [n for n in news.held if n not in self._views]
        self._held |= news.held
        self._next_batch, self._wanted = news.next_batch, news.wanted
        if self._kept.unnamed is not None and any(
            h.pack == self._kept.unnamed for h in news.held.values()
        ):
            self._kept.unnamed = None
        needed = {held.pack for held in self._held.values()}
        self._packs = {path: segment for path, segment in self._packs.items() if path in needed}
        if not self._views and fresh:
            # After a restart, rounds are repeated that some checkpoints already include.
            self.next = min(self._held[name].next for name in fresh)
        self._rounds |= {one.batch: one for one in news.rounds}
        self._clocks = news.clocks
        self._read(fresh)
        for name in fresh:
            self._begin(name)
        self._follow()
        self._join(fresh)
        oldest = min((held.next for held in self._held.values()), default=self.next)
        self._rounds = {batch: one for batch, one in self._rounds.items() if batch >= oldest}
        self._end()

    def _join(self, fresh: Sequence[str]) -> None:
        """Give common tables to the ``fresh`` views, and to older views that are equal to these."""
        alike: dict[int, list[KeptView]] = {}
        for name, view in self._views.items() if fresh else ():
            if name not in self._aside:
                following = self._held[name].next
                following = following if name in fresh else max(following, self.next)
                alike.setdefault(following, []).append(view)
        for some in alike.values():
            join_equal(some)

    @property
    def up_to_date(self) -> bool:
        """Whether all tables, except failed ones, include all rounds."""
        return self.next >= self._next_batch

    @property
    def settled(self) -> bool:
        """Whether :attr:`up_to_date` holds, and no sink is writing a version."""
        return self.up_to_date and all(one.failures for one in self._aside.values())

    @property
    def idle(self) -> bool:
        """Whether the maintenance of tables has nothing to do now."""
        now = time.monotonic()
        waiting = any(one.retry <= now for one in self._aside.values())
        shown = not self._unshown.changed or now < self._unshown.publish_after
        return self.up_to_date and not waiting and shown

    @property
    def pause(self) -> float:
        """Seconds until the next retry or publication of a table, unless a batch commits; <= 60."""
        now = time.monotonic()
        times = [one.retry for one in self._aside.values()]
        times += [self._unshown.publish_after] if self._unshown.changed else []
        return max(0.0, min((at - now for at in times), default=60.0))

    def work(self, *, at_once: bool = False) -> None:
        """Add the next round to all tables, and retry failed tables whose pauses are over.

        Args:
            at_once: whether to retry all failed tables now.
        """
        for name in list(self._aside):
            if at_once or self._aside[name].retry <= time.monotonic():
                self._retry(name)
        if not self.up_to_date:
            one = self._rounds.get(self.next)
            self.next += 1
            if one is not None:
                self._include(one)
        self._follow()
        if self.up_to_date:
            clocks, self._clocks = self._clocks, {}
            for name, clock in clocks.items():
                if name in self._views and name not in self._aside:
                    self._views[name].forget(clock)
        self._end()
        self._publish()
        if self._is_due():
            self._write_checkpoint()

    def status(self) -> TablesStatus:
        """Return the tables' progress; changed counts, a checkpoint, CPU time are reported once."""
        counts, self._counts = self._counts, {}
        checkpoint, self._kept.made = self._kept.made, None
        ended = tuple(name for name in self._held if name not in self._views)
        for name in ended:
            del self._held[name]
        views = (view for name, view in self._views.items() if name not in self._aside)
        moments = [moment for view in views if (moment := view.next) is not None]
        return TablesStatus(
            self.next,
            {name: one.next for name, one in self._aside.items()},
            {name: f"view: {one.problem}" for name, one in self._aside.items() if one.failures},
            counts,
            checkpoint,
            ended,
            take_metered(),
            min(moments, default=None),
            self._costs(),
        )

    def _costs(self) -> dict[str, TableCost]:
        """Return the costs of tables that have changed since the last call, by query."""
        found, first = dict[str, TableCost](), dict[int, str]()
        for name, view in self._views.items():
            common = first.setdefault(view.identity, name)
            if view.grown:
                view.grown = False
                found[name] = TableCost(view.added, view.seconds, view.bytes, common)
        return found

    # --- rounds ------------------------------------------------------------------------------

    def _include(self, one: Round) -> None:
        began = time.monotonic()
        joined, wrote = JoinedBatch(str(self.root), one.rows, one.feeds), False
        names = [n for n in self._views if n not in self._aside]
        views = {n: self._views[n] for n in names if one.batch >= self._held[n].next}
        share(list(views.values()), joined)
        changed = {n: view for n, view in views.items() if view.changes_in(one, joined)}
        for name, view in changed.items():
            wrote |= self._include_in(name, view, one, joined)
        self._divide(changed.values())
        if wrote:
            sync_filesystem(self.results)
        self._kept.spent += time.monotonic() - began

    def _include_in(self, name: str, view: KeptView, one: Round, joined: JoinedBatch) -> bool:
        """Add a round to one table; return whether result files were written."""
        self._kept.dirty.add(name)
        try:
            with _metered(view):
                rows = view.include(one, joined)
            self._check_size(view)
        except Exception as error:  # noqa: BLE001 - whatever fails, the others go on
            self._fail(name, one.batch, error)
            if isinstance(error, StateError) and error.code == "table-too-large":
                # Reload the table from its checkpoint if that can be read now, since it then takes
                # less memory.
                with suppress(Exception):
                    self._read([name])
            return False
        return self._deliver(name, one.batch + 1, rows)

    def _divide(self, views: Iterable[KeptView]) -> None:
        """Divide the CPU time of a round's work for common groups and tables among the ``views``
        that read them, except for times too short to matter."""
        alike = defaultdict[int, list[KeptView]](list)
        for view in views:
            if view.name not in self._aside:
                alike[view.identity].append(view)
        for among in alike.values():
            names = [one.name for one in among]
            for view in among if len(among) > 1 else ():
                if view.common >= SHORT:
                    divide(CpuGroup.VIEW, view.name, names, view.common)
                    view.seconds -= view.common
                    for one in among:
                        one.seconds += view.common / len(among)
                        one.grown = True

    def _check_size(self, view: KeptView) -> None:
        """Raise an error if a view's table takes more memory than it may."""
        if self.most is None or view.bytes <= self.most:
            return
        # Common groups may be larger than groups for this view only.
        view.part()
        if view.bytes <= self.most:
            return
        raise StateError(
            "table-too-large",
            f"its groups and rows take {view.bytes >> 20} MiB, more than {self.most >> 20} MiB",
            field=f"queries.{view.name}",
            remedy="group by fewer columns, by time windows or streams with a bound, or start the "
            "runtime with more --table-memory",
        )

    def _deliver(self, name: str, version: int, rows: pa.Table | None) -> bool:
        """Write a version's rows to the query's sink; return whether result files were written."""
        view = self._views[name]
        earlier = self.delivered.get(name)
        self._unshown.changed.setdefault(name, time.monotonic())
        if rows is None or (earlier is not None and version <= earlier.version):
            self._note(name, view.counts)
            return False
        try:
            with _metered(view):
                self._write(view, version, rows)
                reach(Point.VIEWED)
        except Exception as error:  # noqa: BLE001 - whatever a connector raises, rows wait
            self._fail(name, version, error, (version, rows))
            return False
        self._unshown.written.append(WrittenVersion(name, version, rows, view.counts.written))
        self._unshown.bytes += rows.nbytes
        if self._unshown.bytes > MUCH:
            self._follow()
        self._note(name, view.counts)
        return view.query.sink.kind is SinkKind.PARQUET

    def _follow(self) -> None:
        """Pass the rows of written versions on to clients that follow queries."""
        written, self._unshown.written, self._unshown.bytes = self._unshown.written, [], 0
        if written:
            known = (self._views.get(one.query) for one in written)
            with _metered(*(view for view in known if view is not None)):
                self.follow(written)

    def _write(self, view: KeptView, version: int, rows: pa.Table) -> None:
        query = view.query
        folder = self.results / query.id
        if query.sink.kind is SinkKind.PARQUET:
            folder.mkdir(parents=True, exist_ok=True)
            target = version_file(folder, version)
            fresh = target.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            known, written = view.common_file, VersionFile(target, version, view.counts.written)
            is_link = known is not None and known.linked(fresh, written)
            if not is_link:
                write_version(rows, fresh, written.rows)
            fresh.rename(target)
            if is_link:
                # A rename has no effect if both names are links to the same file.
                fresh.unlink(missing_ok=True)
            view.common_file = written
            return
        writer = self.writers.get(query.sink.kind)
        if writer is None:
            raise SinkError("no-writer", f"no writer for sinks of format {query.sink.format}")
        staged = self.results / STAGING / f"{query.id}.parquet"
        staged.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, staged)
        writer(Delivery(view.name, query.sink, version, (staged,)))
        staged.unlink()

    def _note(self, name: str, counts: TableCounts) -> None:
        known = self.delivered.get(name)
        if known is not None and counts.version < known.version:
            # An earlier run has already delivered a later version.
            return
        if counts != known:
            self.delivered[name] = self._counts[name] = counts

    def publish_all(self) -> None:
        """Publish the present rows of all changed views now."""
        self._unshown.publish_after = 0.0
        self._publish()

    def _publish(self) -> None:
        """Publish the present rows of changed views (while rounds wait, only of views changed over
        :data:`STALE` seconds ago), in at most :data:`SHARE` of the time."""
        now = began = time.monotonic()
        if now < self._unshown.publish_after:
            return
        due = [
            name
            for name, since in self._unshown.changed.items()
            if name in self._aside or self.up_to_date or now >= since + STALE
        ]
        for first in range(0, len(due), TOGETHER):
            if not self._publish_some(due[first : first + TOGETHER]):
                self._unshown.publish_after = now + FIRST_PAUSE
                return
        spent = time.monotonic() - began
        self._unshown.publish_after = now + min(RARELY, spent / SHARE)

    def _publish_some(self, names: Sequence[str]) -> bool:
        """Publish the present rows of views; return whether all these views are published."""
        since = {name: self._unshown.changed.pop(name) for name in names}
        views = [v for n in names if n not in self._aside and (v := self._views.get(n)) is not None]
        shown, failed = dict[str, ViewRows](), dict[str, Exception]()
        for view in views:
            try:
                with _metered(view):
                    rows = view.shown()
            except Exception as error:  # noqa: BLE001 - an expression fails
                failed[view.name] = error
            else:
                shown |= {} if rows is None else {view.name: rows}
        try:
            if shown:
                with _metered(*(self._views[name] for name in shown)):
                    self.publish(shown)
        except Exception as error:  # noqa: BLE001 - Redis is away
            failed |= dict.fromkeys(shown, error)
        for name, cause in failed.items():
            _LOG.warning("view not shown", query=name, error=masked(first_line(cause)))
            self._unshown.changed[name] = since[name]
        return not failed

    # --- failures ----------------------------------------------------------------------------

    def _fail(
        self,
        name: str,
        following: int,
        error: Exception,
        waiting: tuple[int, pa.Table] | None = None,
    ) -> None:
        # While this view waits, other views continue with the table or groups shared with it.
        if waiting is not None:
            self._views[name].part()
        elif name in self._views:
            self._views[name].leave()
        known, message = self._aside.get(name), masked(first_line(error))
        failures = 0 if known is None else known.failures
        if not isinstance(error, SinkUnderway):
            failures += 1
            _LOG.warning("view failed", query=name, error=message, times=failures)
        elif known is not None and failures:
            message = known.problem
        version, rows = waiting or (-1, None)
        self._aside[name] = _Aside(
            following,
            message,
            failures,
            time.monotonic() + pause_after(failures, error),
            version,
            rows,
        )

    def _retry(self, name: str) -> None:
        """Deliver the rows that a table's sink has refused, or reload the table; then catch up."""
        aside = self._aside[name]
        if aside.rows is not None:
            if not self._try_again(name, aside):
                return
            following = aside.next
        else:
            try:
                self._read([name])
                self._begin(name)
            except Exception as error:  # noqa: BLE001 - an object store may be away
                self._fail(name, aside.next, error)
                return
            if self._aside[name] is not aside:
                return
            following = self._held[name].next
        view = self._views[name]
        while following < self.next:
            one = self._rounds.get(following)
            following += 1
            if one is None:
                continue
            joined = JoinedBatch(str(self.root), one.rows, one.feeds)
            if view.changes_in(one, joined):
                aside = self._aside[name]
                self._include_in(name, view, one, joined)
                if self._aside[name] is not aside:
                    return
        del self._aside[name]
        sync_filesystem(self.results)
        _LOG.info("view works again", query=name)

    def _try_again(self, name: str, aside: _Aside) -> bool:
        self._deliver(name, aside.version, aside.rows)
        return self._aside[name] is aside

    # --- beginning and end -------------------------------------------------------------------

    def _read(self, names: Iterable[str]) -> None:
        """Read maintained tables from their checkpoints."""
        by_pack: dict[str, list[str]] = {}
        for name in names:
            by_pack.setdefault(self._held[name].pack, []).append(name)
        for pack, some in by_pack.items():
            for kept in read_checkpoint(self.root, self._packs[pack], some):
                view = self._views[str(kept.query.id)] = KeptView.of(kept, self.results)
                self._unshown.changed.setdefault(view.name, time.monotonic())

    def _begin(self, name: str) -> None:
        """Deliver version 0 of a new table, whose checkpoint has no contents."""
        if self._views[name].batch >= 0:
            return
        self._kept.dirty.add(name)
        try:
            changes = self._views[name].first()
        except Exception as error:  # noqa: BLE001 - an expression over aggregates of nothing
            self._fail(name, self._held[name].next, error)
            return
        if self._deliver(name, 0, changes):
            sync_filesystem(self.results)

    def _end(self) -> None:
        """Drop the tables of queries that have ended and whose rounds are all included."""
        if self._wanted is None or not self.up_to_date:
            return
        for name in [n for n in self._views if n not in self._wanted and n not in self._aside]:
            self.publish_all()
            self._views.pop(name).leave()
            self._unshown.changed.pop(name, None)
            self._kept.dirty.discard(name)

    # --- checkpoints -------------------------------------------------------------------------

    def _is_due(self) -> bool:
        if self._kept.unnamed is not None or not self._kept.dirty:
            return False
        waiting = [one for batch, one in self._rounds.items() if batch < self.next]
        size = sum(segment.bytes for one in waiting for segment in one.rows)
        state = sum(view.bytes for view in self._views.values())
        return (
            self._kept.spent > max(SECONDS, RATIO * self._kept.length)
            or size > max(BYTES, state)
            or len(waiting) > ROUNDS
        )

    def _write_checkpoint(self) -> None:
        began = time.monotonic()
        some = [n for n in self._views if n in self._kept.dirty and n not in self._aside]
        if not some:
            return
        tables = [self._views[name].kept(self.next) for name in some]
        segment = write_checkpoint(self.root, self._next_batch, tables)
        # After a restart, some tables may already include the rounds that are repeated.
        behind = (n for n in self._views if self._held[n].next <= self.next)
        others = [n for n in behind if n not in self._aside and n not in some]
        self._kept.made = Checkpoint(segment, self.next, tuple(some), tuple(others))
        self._kept.unnamed = segment.path
        self._kept.dirty.difference_update(some)
        self._kept.length, self._kept.spent = time.monotonic() - began, 0.0
        reach(Point.KEEPING)


@contextmanager
def _metered(*views: KeptView) -> Iterator[None]:
    """Count this thread's CPU time in the ``with`` block for ``views``, in equal parts."""
    began = thread_seconds()
    try:
        yield
    finally:
        spent = (thread_seconds() - began) / max(len(views), 1)
        for view in views:
            add_metered(CpuGroup.VIEW, view.name, spent)
            view.seconds += spent
            view.grown = True
