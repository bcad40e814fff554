"""A delivery to a sink outside: one query's results of one batch, as staged files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract import codec
from anabranch_contract.connectors.sinks import SinkSpec

#: Writes a delivery to its sink, idempotently as far as the sink can; raises where it can't.
Write = Callable[["Delivery"], None]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One query's results of one batch on their way to a sink.

    Attributes:
        files: staged Parquet files of one schema, in order of their tasks; never none.
    """

    query: str
    sink: SinkSpec
    batch: int
    files: tuple[Path, ...]

    def read(self) -> pa.Table:
        """All rows, in no order that a repeated batch would have again."""
        return pq.read_table([str(file) for file in self.files], use_threads=False)

    def schema(self) -> pa.Schema:
        """The columns."""
        return pq.read_schema(self.files[0])

    def describe(self) -> str:
        """The text that :meth:`from_text` needs beside the files."""
        return codec.dumps({"query": self.query, "batch": self.batch, "sink": self.sink})

    @staticmethod
    def from_text(text: str, files: tuple[Path, ...]) -> Delivery:
        """The delivery that :meth:`describe` described."""
        doc = json.loads(text)
        return Delivery(doc["query"], codec.from_json(doc["sink"], SinkSpec), doc["batch"], files)
