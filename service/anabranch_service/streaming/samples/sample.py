"""The result of a source test, and its limits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from anabranch_contract.errors import StructuredError
from anabranch_contract.queries.types import DataType
from anabranch_service.streaming.samples.arrow_types import column_type
from anabranch_service.streaming.samples.fit import Form

#: Maximum number of bytes read from one text file, and in total from entries of a Redis Stream.
BYTES = 1 << 20
#: Time limit in seconds for one answer of a source's server.
SECONDS = 2.0

#: Values by column, or the text of a malformed row.
Row: TypeAlias = Mapping[str, Any] | str
#: Names of the wanted columns; None: all columns that a source has.
Wanted: TypeAlias = Sequence[str] | None
#: Columns of one file or message schema of a source, with their types. None: the type must be
#: inferred or, if values are typed, no column can hold them.
Declared: TypeAlias = Mapping[str, DataType | None]


class Unreadable(StructuredError):
    """A source that can't be read; names the field of the registration and a remedy."""


@dataclass(slots=True)
class Sample:
    """Rows read by a source test.

    Attributes:
        rows: values by column, or the text of a malformed row. ``origins``: the place of each row.
        found: number of files, entries or messages; None: unknown. ``unit``: which of them.
        limits: notes on parts that were not read.
        looked_at: whether the service can read rows of this source at all.
        options: options of the source that were missing and are detected.
        declared: columns of each file or schema that names its columns. ``beside``: columns for
            other parts of messages.
        notes: findings that a person should know before registration.
    """

    form: Form = Form.TYPED
    rows: list[Row] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    unit: str | None = None
    found: int | None = None
    places: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    looked_at: bool = True
    options: dict[str, str] = field(default_factory=dict)
    declared: list[Declared] = field(default_factory=list)
    beside: dict[str, DataType] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, rows: Iterable[Row], most: int, place: str, *, numbered: bool = True) -> None:
        """Add rows until there are ``most``; ``numbered``: count them from 1 within ``place``."""
        for number, row in enumerate(rows, 1):
            if len(self.rows) >= most:
                break
            self.rows.append(row)
            self.origins.append(f"{place}, row {number}" if numbered else place)


def decoded(value: bytes) -> str:
    """Decode a sample's bytes as UTF-8; invalid bytes are replaced."""
    return value.decode(errors="replace")


def object_of(line: bytes) -> Row:
    """Return the JSON object in a line, or the line's text if it is no JSON object."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return decoded(line)
    return found if isinstance(found, dict) else decoded(line)


def declared_by(schema: pa.Schema) -> Declared:
    """Return the columns and types of an Arrow schema; type None: no stream can hold them."""
    return {f.name: column_type(f.type) for f in schema}


def scalars(batch: pa.RecordBatch, columns: Wanted) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of an Arrow batch by column, with values as Arrow scalars; None for NULL."""
    names = batch.schema.names
    there = names if columns is None else [c for c in columns if c in names]
    # A column whose name occurs twice is ambiguous, and left out.
    there = [c for c in there if names.count(c) == 1]
    arrays = [batch.column(c) for c in there]
    for row in range(batch.num_rows):
        values = ((c, array[row]) for c, array in zip(there, arrays, strict=True))
        yield {c: value if value.is_valid else None for c, value in values}


def arrow_rows(content: bytes, columns: Wanted) -> tuple[list[Row], Declared | None]:
    """Return the rows of an Arrow IPC stream and its columns, or its one malformed row."""
    try:
        with pa.ipc.open_stream(content) as reader:
            batches, schema = list(reader), reader.schema
        for batch in batches:
            # Without validation, reading values at damaged offsets would crash the process.
            batch.validate(full=True)
    except (pa.ArrowException, OSError) as cause:
        return [f"no Arrow stream: {cause}"], None
    return [row for batch in batches for row in scalars(batch, columns)], declared_by(schema)
