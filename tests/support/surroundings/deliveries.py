"""Staged results of a batch, as input of sinks in tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.parquet import ResultWriter

if TYPE_CHECKING:
    from redis import Redis


def sink(name: str, path: str | None = None, **options: str) -> SinkSpec:
    """Return a sink; double underscores in names of options stand for dots."""
    given = {key.replace("__", "."): value for key, value in options.items()}
    return SinkSpec(name, tuple(sorted(given.items())), path)


def staged(folder: Path, query: str, to: SinkSpec, batch: int, *parts: pa.RecordBatch) -> Delivery:
    """Stage the results of one batch, with the rows of each task in a separate file."""
    files = []
    for task, rows in enumerate(parts):
        path = folder / f"{query}-{batch}" / f"{task}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = ResultWriter(path, rows.schema, page=1 << 20)
        writer.add(rows)
        writer.close()
        files.append(path)
    return Delivery(query, to, batch, tuple(files))


def entries(connection: Redis, stream: str) -> list[tuple[str, dict[bytes, bytes]]]:
    """Return the entries of a Redis Stream, oldest first."""
    found = cast("list[tuple[bytes, dict[bytes, bytes]]]", connection.xrange(stream))
    return [(ident.decode(), fields) for ident, fields in found]
