"""A PostgreSQL table that a test follows: its landed batches, and the resulting rows."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.errors import StructuredError
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_contract.queries.joins import StreamKind
from anabranch_runtime.expressions.added_columns import added_values
from anabranch_runtime.sources.blocks import read_piece
from anabranch_runtime.sources.ingest.feed import LandedFeed
from anabranch_runtime.sources.postgres.following import TableSource
from scripts.postgres import Server
from tests.support.surroundings.postgres import rows


def table_record(
    server: Server,
    table: str,
    columns: Mapping[str, str],
    key: tuple[str, ...] = ("id",),
    /,
    **options: str,
) -> StreamRecord:
    """Return the record of a table's stream; without a key its kind is changes."""
    return StreamRecord(
        name=table,
        columns=tuple(ColumnRecord(name=n, type=t) for n, t in {**columns, "op": "string"}.items()),
        kind=StreamKind.UPSERT if key else StreamKind.CHANGES,
        changes=ChangeFormat(key=key),
        retain=None,
        source=SourceRecord(
            format="postgres", options={"url": server.url, "table": table, **options}
        ),
    )


@dataclass
class Followed:
    """A PostgreSQL table that is followed.

    Attributes:
        current: the rows that all batches read so far amount to.
        unread: codes of recorded losses.
    """

    record: StreamRecord
    home: Path
    current: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    invalid: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    source: TableSource = field(init=False)
    offset: Any = None

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Follow the table, from the last position."""
        reached = self.offset[0] if self.offset else 0
        self.source = TableSource(self.record, self.home, reached, access=AccessPolicy())

    def change(self, record: StreamRecord) -> None:
        """Change the stream's columns while it is followed; return when they are landed."""
        before = [name for name, _ in self.record.tuple_columns]
        values = {n: v.as_py() for n, v in added_values(record.to_stream()).items()}
        changed = Counter[tuple[Any, ...]]()
        for row, count in self.current.items():
            known = values | dict(zip(before, row, strict=True))
            changed[tuple(known[name] for name, _ in record.tuple_columns)] += count
        self.record, self.current = record, changed
        now, source = time.time(), self.source
        source.record = record
        wait(lambda: source.status.state == "reading" and source.status.since > now, self)

    def stop(self) -> None:
        """Stop the thread."""
        self.source.join()

    def batch(self, most: int = 1000) -> int:
        """Read a batch of about ``most`` rows, twice; return its number of rows."""
        feed = LandedFeed(self.record, self.home, "x")
        if not feed.waiting(self.offset).rows:
            return 0
        end = json.loads(json.dumps(feed.advance(self.offset, most)))
        read, again = (self._rows(feed, end) for _ in range(2))
        assert repr(read) == repr(again)
        for row in read:
            self._apply(dict(row))
        self.offset = end
        self.source.reached = end[0]
        return len(read)

    def _rows(self, feed: LandedFeed, end: Any) -> list[tuple[tuple[str, Any], ...]]:
        found, self.unread = list[tuple[tuple[str, Any], ...]](), list(self.unread)
        for piece in feed.pieces(self.offset, end, 2):
            if piece.gone is not None:
                self.unread.append(piece.gone.code)
                continue
            for good, bad in read_piece(piece):
                found += [tuple(row.items()) for row in good.to_pylist()]
                if bad is not None:
                    self.invalid += [str(row["#arrived"]) for row in bad.to_pylist()]
        return found

    def _apply(self, row: dict[str, Any]) -> None:
        operation = row.pop("op")
        changes = self.record.changes
        assert changes is not None
        values = tuple(row.values())
        if not changes.key:
            self.current[values] += 1 if operation == "i" else -1
            return
        names = list(row)
        at = [names.index(name) for name in changes.key]
        key = [values[i] for i in at]
        for known in [k for k in self.current if [k[i] for i in at] == key]:
            del self.current[known]
        if operation == "i":
            self.current[values] = 1

    def read(self) -> list[tuple[Any, ...]]:
        """Read all committed changes; return the current rows, sorted."""
        self.source.drain()
        if self.source.error is not None:
            raise self.source.error
        return self.rest()

    def rest(self) -> list[tuple[Any, ...]]:
        """Read all landed changes; return the current rows, sorted."""
        while self.batch():
            pass
        assert min(self.current.values(), default=1) >= 0
        return sorted(self.current.elements(), key=repr)

    def expected(self, server: Server) -> list[tuple[Any, ...]]:
        """Return the rows of the table itself, sorted."""
        names = ", ".join(f'"{name}"' for name, _ in self.record.tuple_columns)
        return rows(server, f"SELECT {names} FROM {self.record.source.options['table']}")

    def error(self, code: str) -> StructuredError:
        """Wait until the source has failed, and return the error."""
        wait(lambda: self.source.error is not None and self.source.error.code == code, self)
        assert self.source.error is not None
        return self.source.error


def wait(
    condition: Callable[[], bool], about: Followed | None = None, seconds: float = 120
) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, about and about.source.error
        time.sleep(0.01)
