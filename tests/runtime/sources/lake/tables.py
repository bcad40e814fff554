"""Feeds over Delta tables written by other programs, and the rows that they read."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_runtime.sources.blocks import read_piece
from anabranch_runtime.sources.lake.feed import TableFeed, table_feed
from anabranch_runtime.task.weights import weights_of
from tests.support.surroundings.policy import OPEN

CHANGES, UPSERTS = ChangeFormat(), ChangeFormat(key=("a",))
FEED = {"delta.enableChangeDataFeed": "true"}


def feed(home: Path, changes: ChangeFormat | None = None, **options: str) -> TableFeed:
    """Return a new feed over ``home/t``, as after a restart."""
    columns = [ColumnRecord(name="a", type="bigint"), ColumnRecord(name="p", type="string")]
    if changes is not None:
        columns.append(ColumnRecord(name="op", type="string"))
    record = StreamRecord(
        name="s",
        columns=tuple(columns),
        changes=changes,
        source=SourceRecord(format="delta", path=str(home / "t"), options=options),
    )
    return table_feed(record, str(home / "state"), OPEN)


def rows_of(first: int, last: int) -> pa.Table:
    """Return rows whose ``a`` is ``first`` to ``last``, some in the NULL partition."""
    numbers = range(first, last)
    names = [None if a % 3 == 2 else f"p {a % 3}/ü" for a in numbers]
    return pa.table({"a": pa.array(numbers, pa.int64()), "p": pa.array(names, pa.string())})


def write(home: Path, first: int, last: int, **options: Any) -> DeltaTable:
    """Commit rows to the Delta table."""
    write_deltalake(str(home / "t"), rows_of(first, last), mode="append", **options)
    return DeltaTable(str(home / "t"))


def read(feed: TableFeed, start: Any, end: Any, parts: int = 3) -> list[tuple[Any, ...]]:
    """Return the rows between two offsets, for changes with their weight."""
    found = list[tuple[Any, ...]]()
    for piece in feed.pieces(start, end, parts):
        for rows, invalid in read_piece(pickle.loads(pickle.dumps(piece))):
            assert not invalid
            columns = rows.select(["a", "p"]).to_pydict()
            form = feed.record.changes
            weights = [1] * rows.num_rows if form is None else weights_of(rows, form)[0].to_pylist()
            found += zip(columns["a"], columns["p"], weights, strict=True)
    return found


def drain(feed: TableFeed, offset: Any, rows: int) -> tuple[Any, list[list[tuple[Any, ...]]]]:
    """Read at most ``rows`` per batch until nothing waits; return the rows of each batch."""
    batches = []
    while feed.waiting(offset).rows:
        end = feed.advance(offset, rows)
        assert end != offset
        batches.append(read(feed, offset, end))
        offset = end
    return offset, batches


def net(batches: list[list[tuple[Any, ...]]], changes: ChangeFormat | None) -> Counter[Any]:
    """Return the net rows of all batches."""
    total, keyed = Counter[Any](), dict[Any, Any]()
    for a, p, weight in (row for batch in batches for row in batch):
        if changes is not None and changes.key:
            keyed[a] = (a, p)
            if not weight:
                del keyed[a]
        else:
            total[a, p] += weight
            assert total[a, p] >= 0 or changes is not None
    assert all(count >= 0 for count in total.values())
    return Counter(keyed.values()) if keyed else +total


def present(home: Path, version: int | None = None) -> Counter[Any]:
    """Return the rows of the table, read by the deltalake library."""
    found = DeltaTable(str(home / "t"), version=version).to_pyarrow_table().to_pydict()
    return Counter(zip(found["a"], found["p"], strict=True))
