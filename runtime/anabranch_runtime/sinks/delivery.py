"""What a sink outside is given: one query's results of one batch, as staged files."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from anabranch_planner.sinks import REFERENCE, SinkSpec
from anabranch_runtime.errors import SinkError

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pyarrow as pa

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
        """What :meth:`from_text` needs beside the files."""
        return json.dumps({"query": self.query, "batch": self.batch, "sink": self.sink.to_json()})

    @staticmethod
    def from_text(text: str, files: tuple[Path, ...]) -> Delivery:
        """The delivery that :meth:`describe` described."""
        doc = json.loads(text)
        return Delivery(doc["query"], SinkSpec.from_json(doc["sink"]), doc["batch"], files)


def with_secrets(sink: SinkSpec, environ: Mapping[str, str] = os.environ) -> SinkSpec:
    """The sink with every ``${ANABRANCH_SINK_...}`` replaced by that variable's value.

    Raises:
        SinkError: a variable is not set.
    """

    def value(match: re.Match[str]) -> str:
        found = environ.get(match[1])
        if found is None:
            raise SinkError(
                "no-secret",
                f"the variable {match[1]} is not set",
                field=match[1],
                remedy="set it in the runtime's environment",
            )
        return found

    options = tuple((name, REFERENCE.sub(value, text)) for name, text in sink.options)
    return replace(sink, options=options)


def without_secrets(message: str, sink: SinkSpec, environ: Mapping[str, str] = os.environ) -> str:
    """``message`` with the values of the variables that ``sink`` names masked."""
    for _, text in sink.options:
        for name in REFERENCE.findall(text):
            if environ.get(name):
                message = message.replace(environ[name], "***")
    return message
