"""A PostgreSQL table as a source: its rows at one moment, then its changes, as landed batches.

The first landed batch is a copy of the table, in the snapshot at which the replication slot begins;
the others have whole transactions, in the order of their commits, or parts of large ones. A landed
batch has the position in the server's log at which it ends (:class:`~.position.Position`), and the
slot is advanced only after this position is durable. So after any failure the server sends exactly
the changes after the position again, and batches of the pipeline are repeated without the server.

Changes are lost if the slot is lost, or if others advance it: then its position is beyond the last
durable one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import select
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from io import BufferedReader, FileIO
from typing import Any

import psycopg2
import pyarrow as pa
import structlog
from psycopg2.errorcodes import OBJECT_IN_USE
from pyarrow import csv

from anabranch_contract.connectors.check import check_source_access
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.postgres.catalog import (
    DatabaseTable,
    check_table,
    quoted,
    read_table,
    type_names,
    typed,
)
from anabranch_contract.connectors.postgres.options import PostgresOptions, postgres_options
from anabranch_contract.connectors.sources import OnLoss
from anabranch_contract.errors import PlannerError, StructuredError
from anabranch_contract.protocol.profile import CpuGroup
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_runtime.cpu import metered
from anabranch_runtime.errors import PipelineError, SourceError
from anabranch_runtime.sources.ingest import landing
from anabranch_runtime.sources.ingest.source import LOOK, IngestSource
from anabranch_runtime.sources.ingest.spark_stream import refused
from anabranch_runtime.sources.permitted import masked, resolve
from anabranch_runtime.sources.postgres.catalog import (
    check_layout,
    columns_there,
    ensure_publication,
    read_slot,
)
from anabranch_runtime.sources.postgres.changes import (
    RowLayout,
    relation,
    rows_of,
    truncated,
    typed_rows,
)
from anabranch_runtime.sources.postgres.client import connect, connected, failure, lsn, lsn_text
from anabranch_runtime.sources.postgres.position import Position
from anabranch_runtime.storage.documents import write_durably

_LOG = structlog.get_logger("anabranch.runtime")

#: Maximum number of changes, and of their bytes, that land together.
MOST_CHANGES, MOST_SIZE = 50_000, 32 << 20
#: Seconds between two landed batches with few changes: each batch costs some writes to disk.
LAND_EVERY = 0.05
#: Seconds between two requests for the server's position, and between two durable records of a
#: position since which the table has not changed.
REPORT_EVERY, NOTE_EVERY = 2, 5.0
#: Seconds between reports by the client's library: in effect, it makes none.
NEVER = 1e6
#: Seconds to wait for the end of the process that reads a slot.
ENDING = 5.0
#: Bytes of a table's copy that are converted together; no row may have more.
BLOCK = 1 << 25
#: Microseconds from 1970 to 2000, the epoch of PostgreSQL's times.
_EPOCH = 946_684_800_000_000
_INSERT, _UPDATE, _DELETE, _TRUNCATE = ord("I"), ord("U"), ord("D"), ord("T")
_BEGIN, _COMMIT, _RELATION = ord("B"), ord("C"), ord("R")


@dataclass(slots=True)
class _Received:
    """Received changes that have not landed: messages, grouped by the table's layout."""

    parts: list[tuple[RowLayout, list[bytes]]] = field(default_factory=list)
    count: int = 0
    size: int = 0
    #: Time of the first commit among the changes, microseconds since 1970.
    committed: int = 0

    def add(self, layout: RowLayout, message: bytes) -> None:
        if not self.parts or self.parts[-1][0] != layout:
            self.parts.append((layout, []))
        self.parts[-1][1].append(message)
        self.count += 1
        self.size += len(message)

    def move(self, to: _Received) -> None:
        """Move all received changes of the table to the end of ``to``."""
        for layout, messages in self.parts:
            for message in messages:
                to.add(layout, message)
        to.committed = to.committed or self.committed
        self.parts, self.count, self.size = [], 0, 0


@dataclass(slots=True, eq=False)
class TableSource(IngestSource):
    """A PostgreSQL table as a source, and the thread that follows its changes."""

    access: AccessPolicy = field(kw_only=True)
    apart: landing.Apart | None = field(kw_only=True, default=None)
    #: Position up to which all changes have been received and have landed.
    _landed_upto: int = 0
    #: Registration whose columns land now; :attr:`record` may have other columns, which land next.
    _landing: StreamRecord = field(init=False)

    @property
    def _place(self) -> str:
        options = postgres_options(self.record.source.options)
        return f"{options.schema}.{options.table}"

    @property
    def _own(self) -> str:
        """Name for slot and publication that no other registration of a stream has."""
        name = re.sub(r"[^a-z0-9_]", "_", self.record.name.lower())[:30]
        made_of = repr((self.record.name, self.record.registration))
        return f"anabranch_{name}_{hashlib.sha256(made_of.encode()).hexdigest()[:8]}"

    def _judged(self, error: Exception) -> StructuredError | None:
        if isinstance(error, psycopg2.Error):
            found = failure(error, self._place)
            return SourceError(
                found.code, masked(found.message), field=found.field, remedy=found.remedy
            )
        return self._source_error(masked(str(error) or repr(error)))

    def _failed(self, error: StructuredError) -> None:
        if not self._leaving.is_set():
            IngestSource._failed(self, error)

    @property
    def is_current(self) -> bool:
        """Whether the columns that land now are the present registration's columns."""
        if self._landing is not self.record:
            if _columns(self._landing) != _columns(self.record):
                return False
            self._landing = self.record
        return True

    def _note_columns(self, names: Iterable[str]) -> None:
        """Report columns that the table has got since its copy and that the stream lacks."""
        path, record = self.home / "columns", self._landing
        if not path.exists():
            write_durably(path, json.dumps([*names]))
        known = {*json.loads(path.read_text()), *(c.name for c in record.columns)}
        known.update(name for name, _ in record.dropped)
        found = tuple(name for name in names if name not in known)
        if found != self.status.new_columns:
            _LOG.warning("columns of the table not read", stream=record.name, columns=found)
            self.status = replace(self.status, new_columns=found)

    def _read(self) -> None:
        self._landing = self.record
        self.home.mkdir(parents=True, exist_ok=True)
        self._list_landed()
        if self.reached > self._next:
            raise SourceError(
                "ingest-lost",
                f"{self.home} has {self._next} landed batches, and {self.reached} have been read",
                remedy="restore the state directory from a backup; or delete the stream, and"
                " register it again",
            )
        source = self.record.source
        try:
            check_source_access(source.format, None, source.options, self.access, resolve)
            options = postgres_options(source.options)
        except PlannerError as cause:
            raise refused(self.record, cause) from cause
        slot, publication = options.slot or self._own, options.publication or self._own
        with connected(source.options) as cursor, closing(self._replication(cursor)) as replication:
            table = self._table(cursor, options)
            with closing(replication.cursor()) as asking:
                asking.execute("IDENTIFY_SYSTEM")
                system = str(asking.fetchone()[0])
            lost = ""
            if self._last is not None:
                lost = self._loss(cursor, slot, system, table)
                if lost and options.on_loss is OnLoss.STOP:
                    raise SourceError(
                        "changes-lost",
                        lost,
                        field=slot,
                        remedy="delete the stream with its queries, and register it again; or set"
                        " the source's option on_loss to skip to go on without the lost changes",
                    )
            wanted = [name for name, _ in columns_there(table.columns, self._landing)]
            ensure_publication(cursor, options, publication, wanted)
            if self._last is None or lost:
                begun = Position(0, system, table.oid, lost=lost)
                self._begin(cursor, replication, options, slot, publication, table, begun)
                # A connection that exports a snapshot can't be used for anything else.
                replication.close()
                replication = self._replication(cursor)
            with closing(replication), closing(replication.cursor()) as stream:
                _Following(self, cursor, replication, stream, table, slot, publication).run()

    def _table(self, cursor: Any, options: PostgresOptions) -> DatabaseTable:
        """Read the description of the PostgreSQL table, and check the stream against it."""
        record, changes = self._landing, self._landing.changes
        assert changes is not None
        try:
            table = read_table(cursor, options.schema, options.table)
            if self._last is not None:
                check_layout(table.columns, record, self._place)
            there = columns_there(table.columns, record)
            check_table(table, there, changes, self._place)
        except PlannerError as cause:
            raise refused(record, cause) from cause
        return table

    def _replication(self, cursor: Any) -> Any:
        """Open a connection to PostgreSQL for logical replication."""
        try:
            return connect(self.record.source.options, replication=True)
        except psycopg2.OperationalError as cause:
            cursor.execute(
                "SELECT rolname FROM pg_roles"
                " WHERE rolname = current_user AND NOT rolreplication AND NOT rolsuper"
            )
            poor = cursor.fetchone()
            if poor is None:
                raise
            raise SourceError(
                "no-permission",
                masked(f"PostgreSQL: {' '.join(str(cause).split())}"),
                field="source.options.url",
                remedy=f"ALTER ROLE {quoted(poor[0])} REPLICATION",
            ) from cause

    def _loss(self, cursor: Any, slot: str, system: str, table: DatabaseTable) -> str:
        """Return why changes of the table were lost; empty if none were lost."""
        assert self._last is not None
        at = Position.of(self._last)
        found = read_slot(cursor, slot)
        if system != at.system:
            return f"the server's data are others than those that were read (system {system})"
        if table.oid != at.table:
            return "the table was dropped and created again"
        if found is None:
            return f"the replication slot {slot!r} was dropped"
        if found.is_lost:
            return (
                f"the server has removed the log that the replication slot {slot!r} needs"
                " (max_slot_wal_keep_size)"
            )
        if found.confirmed > self.confirmed:
            return (
                f"the replication slot {slot!r} was advanced to {lsn_text(found.confirmed)},"
                f" beyond {lsn_text(self.confirmed)}: by another reader, or the state is an older"
                " copy"
            )
        return ""

    @property
    def confirmed(self) -> int:
        """Position up to which no change is missing: all have landed, or concern other tables."""
        assert self._last is not None
        at = Position.of(self._last).lsn
        with suppress(OSError, ValueError):
            at = max(at, int((self.home / "confirmed").read_text()))
        return at

    def _begin(
        self,
        cursor: Any,
        replication: Any,
        options: PostgresOptions,
        slot: str,
        publication: str,
        table: DatabaseTable,
        begun: Position,
    ) -> None:
        """Create the slot, and land a copy of the table as of the slot's beginning.

        After a loss, rows without a key are not copied again, as they would exist twice.
        """
        note = self.home / "slot"
        if read_slot(cursor, slot) is not None:
            if not note.exists():
                raise SourceError(
                    "slot-exists",
                    f"there is a replication slot {slot!r}, and its beginning is not known",
                    field="source.options.slot",
                    remedy="drop the slot (SELECT pg_drop_replication_slot), or name another",
                )
            self._drop_slot(cursor, slot)
        made = "" if options.publication else publication
        write_durably(note, json.dumps({"slot": slot, "publication": made}))
        with closing(replication.cursor()) as making:
            making.execute(f'CREATE_REPLICATION_SLOT "{slot}" LOGICAL pgoutput EXPORT_SNAPSHOT')
            _, start, snapshot, _ = making.fetchone()
            at = replace(begun, lsn=lsn(start), committed=time.time_ns() // 1000, copied=True)
            self._reads()
            names = [name for name, _ in columns_there(table.columns, self._landing)]
            rows = self._copy(snapshot, options, names)
            if at.lost and not self._landing.key:
                rows = iter(())
            folder = landing.begin(self.home)
            try:
                with metered(CpuGroup.SOURCE, self.record.name):
                    self._land(folder, rows, at)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        if self._next == 1:
            landing.note_caught_up(self.home, 1, 0.0)

    def _copy(
        self, snapshot: str, options: PostgresOptions, names: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a snapshot of the table, with columns ``names``, as they land."""
        asked = (
            f"COPY (SELECT {', '.join(map(quoted, names))}"
            f" FROM {quoted(options.schema)}.{quoted(options.table)})"
            " TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
        )
        failed: list[Exception] = []
        with closing(connect(self.record.source.options)) as connection:
            connection.autocommit = False
            cursor = connection.cursor()
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute("SET TRANSACTION SNAPSHOT %s", (snapshot,))
            out, into = os.pipe()

            def fill() -> None:
                try:
                    with os.fdopen(into, "wb", buffering=1 << 20) as sink:
                        cursor.copy_expert(asked, sink)
                except Exception as error:  # noqa: BLE001 - raised by the reader
                    failed.append(error)

            filler = threading.Thread(target=fill, name=f"copy {self.record.name}", daemon=True)
            filler.start()
            try:
                with BufferedReader(FileIO(out), 1 << 20) as source:
                    if source.peek(1):
                        yield from self._parsed(source, names)
            finally:
                filler.join()
            if failed:
                raise failed[0]

    def _parsed(self, source: Any, names: list[str]) -> Iterator[pa.RecordBatch]:
        reader = csv.open_csv(
            source,
            read_options=csv.ReadOptions(column_names=names, block_size=BLOCK),
            parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        for batch in reader:
            if self._leaving.is_set():
                raise PipelineError("stopped", "asked to stop during the copy")
            texts = dict(zip(names, batch.columns, strict=True))
            yield typed_rows(texts, pa.repeat(True, len(batch)).to_numpy(False), self._landing)

    def _land(self, folder: Any, rows: Iterator[pa.RecordBatch], at: Position) -> None:
        schema = landing.landed_schema([(c.name, c.type) for c in self._landing.columns])
        written = landing.write_file(folder, schema, rows, self.apart)
        files = () if written is None else (written,)
        self._finish(folder, landing.Landed(self._next, at.text, files, {}))

    def drain(self) -> None:
        """Wait until all changes of the table that were committed before this call have landed."""
        with connected(self.record.source.options) as cursor:
            cursor.execute("SELECT pg_logical_emit_message(false, 'anabranch', '')::text")
            wanted = lsn(cursor.fetchone()[0])
            # This commit makes the server write its log.
            cursor.execute("SELECT pg_logical_emit_message(true, 'anabranch', '')")
        while self._landed_upto < wanted and self.error is None and not self._leaving.is_set():
            time.sleep(0.01)

    def retire(self) -> None:
        """Drop the slot and the publication that were created for the stream, without waiting."""
        name = f"drop slot of {self.record.name}"
        threading.Thread(target=self.drop, name=name, daemon=True).start()

    def drop(self) -> None:
        """Drop the slot and the publication that were created for the stream."""
        try:
            made = json.loads((self.home / "slot").read_text())
        except (OSError, ValueError):
            return
        try:
            with connected(self.record.source.options) as cursor:
                self._drop_slot(cursor, made["slot"])
                if made["publication"]:
                    cursor.execute(f"DROP PUBLICATION IF EXISTS {quoted(made['publication'])}")
        except (psycopg2.Error, PlannerError) as cause:
            _LOG.warning(
                "replication slot kept",
                slot=made["slot"],
                stream=self.record.name,
                reason=masked(str(cause)),
                remedy="drop the slot: until then the server keeps its log for it",
            )

    def _drop_slot(self, cursor: Any, slot: str) -> None:
        """Drop a slot; the server may keep it in use for a while after the connection has ended."""
        deadline = time.monotonic() + ENDING
        while True:
            try:
                cursor.execute(
                    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
                    " WHERE slot_name = %s",
                    (slot,),
                )
            except psycopg2.Error as cause:
                if cause.pgcode != OBJECT_IN_USE or time.monotonic() > deadline:
                    raise
                time.sleep(LOOK)
            else:
                return


def _columns(record: StreamRecord) -> tuple[object, ...]:
    return record.columns, record.added, record.widened, record.dropped


class _Following:
    """A connection that receives changes of a PostgreSQL table."""

    def __init__(
        self,
        source: TableSource,
        cursor: Any,
        connection: Any,
        stream: Any,
        table: DatabaseTable,
        slot: str,
        publication: str,
    ) -> None:
        assert source._last is not None
        self._source, self._cursor, self._connection = source, cursor, connection
        self._stream, self._table = stream, table
        self._at, self._confirmed = Position.of(source._last), source.confirmed
        self._whole, self._open = _Received(), _Received()
        self._layout: RowLayout | None = None
        #: Id of the transaction that is being received (0: none), number of its received changes,
        #: and number of its changes that had landed before.
        self._xid, self._seen, self._skipped = 0, 0, 0
        self._end, self._time = self._confirmed, 0
        self._landed = self._noted = self._looked = time.monotonic()
        names = f'"{publication}"'
        stream.start_replication(
            slot_name=slot,
            decode=False,
            start_lsn=self._confirmed,
            options={"proto_version": "1", "publication_names": names},
            status_interval=NEVER,
        )

    def run(self) -> None:
        """Land changes of the table until the source shall end, or the stream has other columns.

        Raises:
            SourceError: a change can't be followed.
            psycopg2.Error: the connection has ended.
        """
        source = self._source
        source._reads()
        source._note_columns(self._table.columns)
        self._confirm()
        while not source._leaving.is_set() and source.is_current:
            source._tidy()
            self._look()
            if source._is_full():
                self._note()
                source._leaving.wait(LOOK)
                continue
            with metered(CpuGroup.SOURCE, source.record.name):
                self._receive()

    def _receive(self) -> None:
        """Receive the messages that PostgreSQL has sent, and land their changes."""
        try:
            while (message := self._stream.read_message()) is not None:
                self._take(message.payload)
                if max(self._whole.count, self._open.count) >= MOST_CHANGES or (
                    self._whole.size + self._open.size >= MOST_SIZE
                ):
                    break
            else:
                self._wait()
        except SourceError:
            # Transactions before the change that can't be followed have to land nevertheless.
            self._land()
            raise
        if self._open.count >= MOST_CHANGES or self._open.size >= MOST_SIZE:
            self._open.committed = self._time
            self._open.move(self._whole)
            self._land(self._xid, self._seen)
        elif self._whole.count and (
            self._whole.count >= MOST_CHANGES
            or self._whole.size >= MOST_SIZE
            or time.monotonic() - self._landed >= LAND_EVERY
        ):
            self._land()

    def _wait(self) -> None:
        """Wait for messages. If all changes have landed, the server's position is reached."""
        pause = LOOK if not self._whole.count else LAND_EVERY
        if not (self._whole.count or self._xid):
            self._end = max(self._end, self._stream.wal_end)
            self._source._landed_upto = max(self._source._landed_upto, self._end)
        select.select([self._connection], [], [], pause)
        self._note()

    def _note(self) -> None:
        """Report the position to the server from time to time, and that the source is alive.

        If everything received is confirmed, the library reports the server's own position. It has
        to be durable before, or the slot would be beyond it after a failure.
        """
        if time.monotonic() - self._noted < NOTE_EVERY:
            return
        if self._whole.count:
            self._land()
        elif self._end > self._confirmed:
            write_durably(self._source.home / "confirmed", str(self._end))
            self._confirmed = self._end
        self._noted = time.monotonic()
        self._confirm()

    def _take(self, message: bytes) -> None:
        kind = message[0]
        if kind == _BEGIN:
            self._time = _EPOCH + int.from_bytes(message[9:17], "big", signed=True)
            self._xid, self._seen = int.from_bytes(message[17:21], "big"), 0
            self._skipped = self._at.done if self._at.xid == self._xid else 0
        elif kind == _COMMIT:
            self._end = int.from_bytes(message[10:18], "big")
            self._xid = 0
            self._open.committed = self._time
            if self._open.count:
                self._open.move(self._whole)
            elif not self._whole.count:
                self._source._landed_upto = max(self._source._landed_upto, self._end)
        elif kind == _RELATION:
            self._described(relation(message))
        elif kind in (_INSERT, _UPDATE, _DELETE):
            if self._layout and int.from_bytes(message[1:5], "big") == self._layout.oid:
                self._seen += 1
                if self._seen > self._skipped:
                    self._open.add(self._layout, message)
        elif kind == _TRUNCATE and self._table.oid in truncated(message):
            raise SourceError(
                "table-truncated",
                "the table was truncated, which does not say which rows it had",
                field=self._source._place,
                remedy="delete the stream with its queries, and register it again; delete rows by"
                " DELETE",
            )

    def _described(self, layout: RowLayout) -> None:
        """Take into account a new layout, that of the table's next changes."""
        source = self._source
        if layout.oid != self._table.oid:
            if ".".join(layout.name) == source._place:
                raise SourceError(
                    "table-replaced",
                    "the table was dropped and created again",
                    field=source._place,
                    remedy="delete the stream with its queries, and register it again",
                )
            return
        if layout == self._layout:
            return
        types = type_names(self._cursor, [oid for _, oid, _ in layout.columns])
        columns = {name: typed(types, oid, m) for name, oid, m in layout.columns}
        check_layout(columns, source._landing, source._place)
        source._note_columns(columns)
        self._layout = layout

    def _land(self, xid: int = 0, done: int = 0) -> None:
        """Land complete transactions, and ``done`` changes of the transaction ``xid``, if any."""
        whole, source = self._whole, self._source
        if not whole.count:
            return
        self._at = replace(
            self._at,
            lsn=self._end,
            xid=xid,
            done=done,
            committed=whole.committed,
            copied=False,
            lost="",
        )
        rows = (rows_of(messages, layout, source._landing) for layout, messages in whole.parts)
        folder = landing.begin(source.home)
        try:
            source._land(folder, rows, self._at)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._whole = _Received()
        self._landed = time.monotonic()
        self._confirmed = max(self._confirmed, self._end)
        source._landed_upto = max(source._landed_upto, self._end)
        self._confirm()

    def _confirm(self) -> None:
        at = self._confirmed
        self._stream.send_feedback(write_lsn=at, flush_lsn=at, apply_lsn=at, force=True)

    def _look(self) -> None:
        """Record how far the source is behind the PostgreSQL server."""
        now = time.monotonic()
        if now - self._looked >= REPORT_EVERY or self._source.status.behind is None:
            self._looked = now
            self._cursor.execute("SELECT pg_current_wal_flush_lsn()::text")
            behind = max(lsn(self._cursor.fetchone()[0]) - self._end, 0)
            self._source.status = replace(self._source.status, behind=behind)
