"""Deliveries to sinks: one query's results of one batch, or of a group of batches, as files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract import codec
from anabranch_contract.connectors.sinks import SinkSpec

#: Function that writes a delivery to its sink, idempotently if possible; raises if it fails.
Write = Callable[["Delivery"], None]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One query's results of one batch, or of a group of batches, on their way to a sink.

    Attributes:
        batch: the batch, or the last batch of a group, by which sinks distinguish deliveries.
        files: Parquet files of one schema, in order of their tasks; empty only if the sink is the
            results directory and the files are there already.
        first: first batch of a group; None for the results of one batch.
        epoch: epoch of the batch; None for groups, versions, and results left undelivered by
            earlier releases.
    """

    query: str
    sink: SinkSpec
    batch: int
    files: tuple[Path, ...]
    first: int | None = None
    epoch: int | None = None

    def read(self) -> pa.Table:
        """Return all rows of the delivery, in an order that may change if the batch is repeated."""
        return pq.read_table([str(file) for file in self.files], use_threads=False)

    @property
    def mark(self) -> str:
        """The value of a sink's batch column: unique per query and batch, in order of batches."""
        return f"{self.query}/{self.batch:010d}"

    def schema(self) -> pa.Schema:
        """Return the schema of the delivery's rows."""
        return pq.read_schema(self.files[0])

    def describe(self, pipeline: str) -> str:
        """Return a text from which :meth:`from_text` restores the delivery, given its files;
        ``pipeline``: id of the pipeline, which the text mentions for readers."""
        fields = {"query": self.query, "batch": self.batch, "sink": self.sink, "first": self.first}
        return codec.dumps({**fields, "epoch": self.epoch, "pipeline": pipeline})

    @staticmethod
    def from_text(text: str, files: tuple[Path, ...]) -> Delivery:
        """Restore a delivery from its text, made by :meth:`describe`, and its files."""
        doc = json.loads(text)
        sink = codec.from_json(doc["sink"], SinkSpec)
        return Delivery(doc["query"], sink, doc["batch"], files, doc["first"], doc.get("epoch"))


@dataclass(frozen=True, slots=True)
class WrittenVersion:
    """Rows that a version of a view or outer join has written.

    Attributes:
        total: number of the query's rows so far, including these.
    """

    query: str
    version: int
    rows: pa.Table
    total: int
