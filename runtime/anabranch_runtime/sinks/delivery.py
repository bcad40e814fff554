"""Deliveries to external sinks: one query's results of one batch, as staged files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract import codec
from anabranch_contract.connectors.sinks import SinkSpec

#: Writes a delivery to its sink, idempotently if the sink supports that; raises if it fails.
Write = Callable[["Delivery"], None]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One query's results of one batch on their way to a sink.

    Attributes:
        files: staged Parquet files of one schema, in order of their tasks; never empty.
    """

    query: str
    sink: SinkSpec
    batch: int
    files: tuple[Path, ...]

    def read(self) -> pa.Table:
        """Return all rows, in an order that may differ when the batch is repeated."""
        return pq.read_table([str(file) for file in self.files], use_threads=False)

    def schema(self) -> pa.Schema:
        """Return the schema of the rows."""
        return pq.read_schema(self.files[0])

    def describe(self) -> str:
        """Return a text from which, with the files, :meth:`from_text` restores the delivery."""
        return codec.dumps({"query": self.query, "batch": self.batch, "sink": self.sink})

    @staticmethod
    def from_text(text: str, files: tuple[Path, ...]) -> Delivery:
        """Restore the delivery from the text of :meth:`describe` and its files."""
        doc = json.loads(text)
        return Delivery(doc["query"], codec.from_json(doc["sink"], SinkSpec), doc["batch"], files)
