"""The driver's side of maintained tables: their process, and their part of the state.

A second process adds rounds (joined rows of a batch) to the tables, so that many tables do not
delay batches. It starts with the first table, has the tables in memory, and needs neither Spark nor
answers of the driver, but only the state (``state.tables``). Sinks that only Spark can write are
written by the driver, on the process's request.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.activations import LeftRows
from anabranch_contract.protocol.keys import Keys
from anabranch_runtime.control import Control
from anabranch_runtime.cpu import CpuUses
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.errors import PipelineError, SinkError
from anabranch_runtime.sinks.delivery import Delivery, Write
from anabranch_runtime.sinks.publisher import local_writers
from anabranch_runtime.sinks.tail import Tails
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.tables import TableCost, TableCounts, TablesState
from anabranch_runtime.storage.durable import attach
from anabranch_runtime.tables.table import warm
from anabranch_runtime.views import rounds
from anabranch_runtime.views.checkpoints import write_checkpoint
from anabranch_runtime.views.keeper import Keeper, News, TablesStatus

#: Kinds of sinks that only Spark can write.
OF_SPARK = (SinkKind.FILES, SinkKind.TABLE)


class Peer(Protocol):
    """Adds rounds (batches' joined rows) to the tables: a second process; in tests this one."""

    def load(self, tables: TablesState, next_batch: int) -> None:
        """Begin with the tables of the state before ``next_batch``."""

    def hear(self, news: News) -> None:
        """Add the rounds of a committed batch to the tables, or put them into a queue."""

    def take(self) -> list[TablesStatus]:
        """Return the tables' reports of progress (statuses) since the last call."""

    def drain(self) -> None:
        """Add all waiting rounds to the tables; retry each failed table once."""

    def close(self) -> None:
        """End the maintenance of tables after the round that is being added."""


@dataclass(slots=True)
class MaintainedTables:
    """Maintained tables of one pipeline.

    Attributes:
        root: the state directory. ``peer``: adds the rounds to the tables.
        beside: called with the CPU seconds by use that the peer has spent.
    """

    root: Path
    peer: Peer
    beside: Callable[[CpuUses], None] = field(default=lambda _: None)
    _next_batch: int = field(init=False, default=0)
    #: The committed state of the tables as last passed to the peer.
    _told: TablesState = field(init=False, default_factory=TablesState)
    #: The last status of the tables, and the sum of all statuses since the last commit.
    _status: TablesStatus = field(init=False, default_factory=lambda: TablesStatus(0))
    _open: TablesStatus | None = field(init=False, default=None)
    _counts: dict[str, TableCounts] = field(init=False, default_factory=dict)
    _costs: Mapping[str, TableCost] = field(init=False, default_factory=dict)

    def begin(self, state: State) -> None:
        """Continue the tables of an earlier run; called before the first batch."""
        self._next_batch, self._told = state.next_batch, state.tables
        self._counts = dict(state.tables.counts)
        self._status = TablesStatus(state.next_batch)
        if state.tables.held:
            self._status = TablesStatus(min(held.next for held in state.tables.held.values()))
            self.peer.load(state.tables, state.next_batch)

    def entered(self, state: State, ruleset: Ruleset) -> State:
        """Return ``state``, about to be committed, with the tables of new queries of ``ruleset``,
        whose first batch is the next one."""
        return rounds.entered(state, ruleset, state.next_batch, self._write)

    def settled(self, state: State, ruleset: Ruleset, reports: list[TaskReport], now: int) -> State:
        """Return the ``state`` after a batch at ``now`` (microseconds since 1970), about to be
        committed, with the batch's round, new tables, and the progress of existing tables."""
        state = rounds.entered(state, ruleset, state.next_batch - 1, self._write)
        return rounds.with_round(self.progressed(state), ruleset, reports, now)

    def due(self, now: int) -> bool:
        """Whether time alone, without joined rows, changes a table in a batch at ``now``."""
        self._look()
        known = self._status.due
        return known is not None and known <= now and self._status.next >= self._next_batch

    def progressed(self, state: State) -> State:
        """Return ``state``, about to be committed, with the progress of the tables."""
        self._look()
        progress, self._open = self._open, None
        return state if progress is None else rounds.settled(state, progress)

    def committed(self, state: State, ruleset: Ruleset) -> None:
        """Pass the rounds of a committed state, which runs ``ruleset``, on to the peer.

        Raises:
            PipelineError: ``views-lost``: the process has ended.
        """
        before, after = self._told, state.tables
        self._next_batch, self._told = state.next_batch, after
        if not before.held and not after.held:
            return
        known = {one.batch for one in before.rounds}
        packs = {segment.path for segment in before.checkpoints}
        self.peer.hear(
            News(
                state.next_batch,
                tuple(one for one in after.rounds if one.batch not in known),
                {n: held for n, held in after.held.items() if before.held.get(n) != held},
                tuple(c for c in after.checkpoints if c.path not in packs),
                frozenset(rounds.post_joins(ruleset)),
                rounds.window_clocks(state, ruleset),
            )
        )

    def problems(self) -> dict[str, str]:
        """Return query -> reason for which its maintained table is not up to date."""
        self._look()
        return dict(self._status.problems)

    def lag(self) -> dict[str, int]:
        """Return query -> number of committed batches that its maintained table lacks."""
        self._look()
        status, end = self._status, self._next_batch
        return {
            name: max(end - status.behind.get(name, status.next), 0) for name in self._told.held
        }

    def counts(self) -> dict[str, TableCounts]:
        """Return query -> counts of its table's delivered versions; ended queries are included."""
        self._look()
        return self._counts

    def costs(self) -> Mapping[str, TableCost]:
        """Return query -> measured cost of its table; the same object while no cost changes."""
        self._look()
        return self._costs

    def written(self) -> dict[str, tuple[int, int]]:
        """Return query -> its table's last version with changes, and number of changes written."""
        return {name: (one.version, one.written) for name, one in self.counts().items()}

    def left_rows(self) -> dict[str, LeftRows]:
        """Return outer join -> counts of its left rows that can get no more partners."""
        return {name: one.left for name, one in self.counts().items() if one.left is not None}

    def drain(self) -> None:
        """Bring all maintained tables up to date.

        Raises:
            SinkError: a table can't be brought up to date.
        """
        if self._told.held:
            self.peer.drain()
        for name, problem in self.problems().items():
            raise SinkError(
                "view-failed",
                problem,
                field=f"queries.{name}",
                remedy="correct the cause and start the pipeline again: nothing is lost",
            )

    def close(self) -> None:
        """Stop the peer. The next start adds the rounds that are not in the tables yet."""
        self.peer.close()
        self._look()

    def _look(self) -> None:
        for status in self.peer.take():
            self.beside(status.cpu)
            self._counts |= status.counts
            if status.costs or self._costs.keys() & set(status.ended):
                left = {n: c for n, c in self._costs.items() if n not in status.ended}
                self._costs = {**left, **status.costs}
            self._status = status
            known = self._open
            if known is not None:
                status = replace(
                    status,
                    counts={**known.counts, **status.counts},
                    checkpoint=status.checkpoint or known.checkpoint,
                    ended=(*known.ended, *status.ended),
                )
            self._open = status

    def _write(self, batch: int, tables: Any) -> Any:
        return write_checkpoint(self.root, batch, tables)


class TablesApart:
    """Adds rounds to maintained tables in a process of its own, which starts with the first table.

    Raises (all methods): PipelineError: ``views-lost``: the process has ended.
    """

    def __init__(
        self, settings: DriverSettings, url: str, namespace: str, writers: Mapping[SinkKind, Write]
    ) -> None:
        """``writers``: writers of the sinks that only Spark writes."""
        self._arguments = settings, url, namespace
        self._writers = writers
        self._process: BaseProcess | None = None
        self._calls: Connection | None = None
        self._changed = threading.Condition()
        self._statuses: list[TablesStatus] = []
        self._drained = 0
        self._lost: BaseException | None = None
        self._reader: threading.Thread | None = None

    def load(self, tables: TablesState, next_batch: int) -> None:
        """Begin with the tables of the state, as :meth:`Peer.load`."""
        self._send(("load", tables, next_batch))

    def hear(self, news: News) -> None:
        """Pass a committed batch on to the process, as :meth:`Peer.hear`."""
        self._send(("hear", news))

    def take(self) -> list[TablesStatus]:
        """Return the tables' statuses since the last call, as :meth:`Peer.take`."""
        with self._changed:
            found, self._statuses = self._statuses, []
        return found

    def drain(self) -> None:
        """Have all waiting rounds added to the tables, as :meth:`Peer.drain`."""
        with self._changed:
            wanted = self._drained + 1
        self._send(("drain",))
        with self._changed:
            self._changed.wait_for(lambda: self._drained >= wanted or self._lost is not None)
            if self._drained < wanted:
                raise self._gone()

    def close(self) -> None:
        """End the process of tables after the running round, as :meth:`Peer.close`."""
        if self._process is None or self._calls is None:
            return
        process, self._process = self._process, None
        with suppress(OSError):
            self._calls.send(("close",))
        process.join()
        if self._reader is not None:
            self._reader.join()
        self._calls.close()

    def _send(self, message: object) -> None:
        if self._process is None:
            self._start()
        assert self._calls is not None
        if self._lost is not None:
            raise self._gone()
        try:
            self._calls.send(message)
        except OSError as cause:
            raise self._gone() from cause

    def _start(self) -> None:
        # A fork would inherit locks held by threads, and the JVM's connection, of this process.
        context = multiprocessing.get_context("spawn")
        self._calls, theirs = context.Pipe()
        self._process = context.Process(
            target=serve, args=(theirs, *self._arguments), name="tables", daemon=True
        )
        self._process.start()
        theirs.close()
        self._reader = threading.Thread(target=self._read, name="tables", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        calls = self._calls
        assert calls is not None
        while True:
            try:
                kind, content = calls.recv()
            except (EOFError, OSError) as error:
                with self._changed:
                    self._lost = self._lost or error
                    self._changed.notify_all()
                return
            if kind == "deliver":
                calls.send(("delivered", self._deliver(content)))
                continue
            with self._changed:
                if kind == "status":
                    self._statuses.append(content)
                elif kind == "drained":
                    self._drained += 1
                else:
                    self._lost = content
                self._changed.notify_all()

    def _deliver(self, delivery: Delivery) -> Exception | None:
        try:
            self._writers[delivery.sink.kind](delivery)
        except Exception as error:  # noqa: BLE001 - raised in the other process
            return picklable(error)
        return None

    def _gone(self) -> Exception:
        if isinstance(self._lost, Exception) and not isinstance(self._lost, (EOFError, OSError)):
            return self._lost
        return PipelineError(
            "views-lost",
            "the process that maintains the tables of queries has ended",
            remedy="see the log above for why; start the runtime again, nothing is lost",
        )


def serve(calls: Connection, settings: DriverSettings, url: str, namespace: str) -> None:
    """Main function of the process: add rounds to tables until the driver closes the connection."""
    attach(settings.state, settings.object_store, settings.cache_size)
    waiting: list[tuple[Any, ...]] = []

    def by_driver(delivery: Delivery) -> None:
        calls.send(("deliver", delivery))
        while (message := calls.recv())[0] != "delivered":
            waiting.append(message)
        if message[1] is not None:
            raise message[1]

    local = local_writers(
        url=url, namespace=namespace, state=settings.state, access=settings.access, role="tables"
    )
    control = Control(url, namespace)
    tails = Tails(url, Keys(namespace), settings.results)
    writers = {**local, **dict.fromkeys(OF_SPARK, by_driver)}
    keeper = Keeper(
        settings.state, settings.results, writers, control.report_views, tails.feed_versions
    )
    keeper.most = settings.memory.table or physical_memory() // 4
    warm()
    try:
        _serve(calls, keeper, waiting)
    except (EOFError, OSError):
        # The driver has ended, so nothing may be sent to it.
        os._exit(0)
    except Exception as error:  # noqa: BLE001 - raised in the driver
        calls.send(("failed", picklable(error)))


def _serve(calls: Connection, keeper: Keeper, waiting: list[tuple[Any, ...]]) -> None:
    draining = False
    while True:
        done = draining and keeper.settled
        while waiting or calls.poll(0 if done or not keeper.idle else keeper.pause):
            kind, *content = waiting.pop(0) if waiting else calls.recv()
            if kind == "close":
                keeper.publish_all()
                return
            if kind == "load":
                keeper.load(*content)
            elif kind == "hear":
                keeper.hear(*content)
            else:
                draining = done = True
                keeper.work(at_once=True)
        if not keeper.idle:
            keeper.work()
        calls.send(("status", keeper.status()))
        if draining and keeper.settled:
            keeper.publish_all()
            calls.send(("drained", None))
            draining = False


def physical_memory() -> int:
    """Return the machine's memory in bytes, from which a table's limit is computed."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def picklable(error: Exception) -> Exception:
    """Return ``error`` of the process of tables; if it can't be pickled, an error with its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - pickling runs the error's own code
        return RuntimeError(str(error))
    return error
