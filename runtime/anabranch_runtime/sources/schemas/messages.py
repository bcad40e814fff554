"""Decoding of messages with several schemas, schema by schema, into rows in the messages' order. A
message with the id of its schema in a registry begins with a 0 byte and the id (big-endian)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_runtime.columns.arrays import Bools, Ints
from anabranch_runtime.sources.decode import Columns, schema_of, with_columns
from anabranch_runtime.sources.invalid import Decoded, split, unreadable

#: Number of bytes before a message that identify its schema.
PREFIX = 5
#: Columns of readable messages; mask of messages that can't be read; mask of readable messages with
#: a value that does not fit its column, where it is NULL.
ReadColumns = tuple[list[pa.Array], Bools, Bools]


@dataclass(frozen=True, slots=True)
class EncodedMessages:
    """Messages as bytes: ``data``, with the begin and end of each; NULLs are not ``present``."""

    given: pa.Array
    data: NDArray[np.uint8]
    begins: Ints
    ends: Ints
    present: Bools

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> EncodedMessages:
        """Concatenate messages to one array of bytes."""
        given = pa.array(values, pa.binary())
        limits = np.frombuffer(given.buffers()[1], np.int32)[: len(given) + 1].astype(np.int64)
        data = np.frombuffer(given.buffers()[2] or b"", np.uint8)
        present = given.is_valid().to_numpy(zero_copy_only=False)
        return cls(given, data, limits[:-1], limits[1:], present)

    def identified(self) -> tuple[Ints, Ints]:
        """Return the numbers of the messages that begin with a schema's id, and these ids."""
        named = np.flatnonzero(self.present & (self.ends - self.begins >= PREFIX))
        named = named[self.data[self.begins[named]] == 0]
        digits = self.data[self.begins[named][:, None] + np.arange(1, PREFIX)].astype(np.int64)
        return named, digits @ (np.int64(1) << np.array([24, 16, 8, 0]))

    def rows(
        self, columns: Columns, beside: pa.RecordBatch, read: Iterable[tuple[Ints, ReadColumns]]
    ) -> Iterator[Decoded]:
        """Yield rows in the order of their messages, with the columns ``columns`` and the columns
        of ``beside``, which has a row per message.

        Args:
            read: numbers of messages, and their columns; other messages are invalid, and NULL
                messages are rows whose columns are NULL.
        """
        schema = schema_of(columns)
        bad = self.present.copy()
        numbers, parts, unfit = list[Ints](), list[pa.RecordBatch](), list[Bools]()
        if not self.present.all():
            numbers.append(np.flatnonzero(~self.present))
            unfit.append(np.zeros(len(numbers[0]), np.bool_))
            nothing = [pa.nulls(len(numbers[0]), field.type) for field in schema]
            parts.append(pa.RecordBatch.from_arrays(nothing, schema=schema))
        for which, (found, wrong, other) in read:
            numbers.append(which[~wrong])
            bad[numbers[-1]] = False
            unfit.append(other)
            parts.append(pa.RecordBatch.from_arrays(found, schema=schema))
        if bad.any():
            gone = pa.array(np.flatnonzero(bad))
            yield with_columns(unreadable(schema, self.given.take(gone)), beside.take(gone))
        if not parts:
            return
        places = np.concatenate(numbers)
        order = np.argsort(places)
        rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts).take(pa.array(order))
        places = places[order]
        more = beside.take(pa.array(places))
        rows = pa.RecordBatch.from_arrays(
            [*rows.columns, *more.columns], names=[*schema.names, *more.schema.names]
        )
        yield split(
            rows,
            np.concatenate(unfit)[order],
            lambda some: self.given.take(pa.array(places).take(some)),
        )


def from_schemas(
    read: Callable[
        [EncodedMessages, Columns, Mapping[str, str]], Iterator[tuple[Ints, ReadColumns]]
    ],
    values: Sequence[bytes | None],
    columns: Columns,
    beside: pa.RecordBatch,
    options: Mapping[str, str],
) -> Iterator[Decoded]:
    """Decode messages to rows with the columns ``columns`` and the columns of ``beside``, which has
    a row per message; valid rows are in the order of the messages.

    Args:
        read: yields, by schema, the numbers of its messages, and their columns.
        values: messages; None: a row whose columns are NULL.
        options: options of the source, such as ``schema`` and ``registry``.

    Raises:
        SourceError: the registry does not answer.
    """
    messages = EncodedMessages.of(values)
    yield from messages.rows(columns, beside, read(messages, columns, options))
