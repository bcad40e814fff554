"""The result of a source test, and its limits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from anabranch_contract.errors import StructuredError
from anabranch_service.streaming.samples.fit import Form

#: Most bytes read from one text file, and from all entries of a Redis Stream together.
BYTES = 1 << 20
#: Time limit in seconds for one answer of a source's server.
SECONDS = 2.0


class Unreadable(StructuredError):
    """A source that can't be read; names the field of the registration and a remedy."""


@dataclass(slots=True)
class Sample:
    """Rows read by a source test.

    Attributes:
        rows: values by column, or the text of a malformed row.
        found: number of files or entries; None: unknown. ``unit``: ``files`` or ``entries``.
        limits: notes on parts that were not read.
        looked_at: whether the service can read rows of this source at all.
    """

    form: Form = Form.TYPED
    rows: list[Mapping[str, Any] | str] = field(default_factory=list)
    unit: str | None = None
    found: int | None = None
    places: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    looked_at: bool = True


def decoded(value: bytes) -> str:
    """Decode UTF-8; invalid bytes are replaced."""
    return value.decode(errors="replace")


def object_of(line: bytes) -> Mapping[str, Any] | str:
    """The JSON object in a line, or the line's text if it is no JSON object."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return decoded(line)
    return found if isinstance(found, dict) else decoded(line)


def scalars(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """The rows of an Arrow batch by column, with values as Arrow scalars; None for NULL."""
    there = [c for c in columns if c in batch.schema.names]
    arrays = [batch.column(c) for c in there]
    for row in range(batch.num_rows):
        values = ((c, array[row]) for c, array in zip(there, arrays, strict=True))
        yield {c: value if value.is_valid else None for c, value in values}
