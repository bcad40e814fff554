"""Decoder of Avro messages: plain, or with the id of their schema in a registry.

The first bytes of a message with an id are 0 and the id, four bytes, highest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_contract.connectors.avro_schema import AvroSchema, record_schema
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.sources.avro.columns import read_columns
from anabranch_runtime.sources.avro.program import program_of
from anabranch_runtime.sources.avro.registry import schemas_of
from anabranch_runtime.sources.decode import Columns, schema_of, with_columns
from anabranch_runtime.sources.invalid import Decoded, split, unreadable

#: Number of bytes in front of a message that name its schema.
_PREFIX = 5
_schema = lru_cache(maxsize=64)(record_schema)


def from_avro(
    values: Sequence[bytes | None],
    columns: Columns,
    beside: pa.RecordBatch,
    options: Mapping[str, str],
) -> Iterator[Decoded]:
    """Decode messages to rows with the columns ``columns`` and, from ``beside``, further ones with
    a row per message; the order of valid rows is that of the messages.

    Args:
        values: None: a row whose columns are NULL.
        options: of the source: ``schema``, ``registry``.

    Raises:
        SourceError: the registry does not answer.
    """
    schema = schema_of(columns)
    kinds = [(name, parse_type(kind)) for name, kind in columns]
    given = pa.array(values, pa.binary())
    limits = np.frombuffer(given.buffers()[1], np.int32)[: len(given) + 1].astype(np.int64)
    data = np.frombuffer(given.buffers()[2] or b"", np.uint8)
    begins, ends = limits[:-1], limits[1:]
    absent = given.is_null().to_numpy(zero_copy_only=False)
    bad = ~absent
    numbers, parts, unfit = list[NDArray[np.int64]](), list[pa.RecordBatch](), []
    if absent.any():
        numbers.append(np.flatnonzero(absent))
        unfit.append(np.zeros(len(numbers[0]), np.bool_))
        nothing = [pa.nulls(len(numbers[0]), field.type) for field in schema]
        parts.append(pa.RecordBatch.from_arrays(nothing, schema=schema))
    reader = _schema(options["schema"]) if "schema" in options and "registry" in options else None
    for writer, which, skipped in _schemas(data, begins, ends, ~absent, options):
        program = program_of(writer, kinds, reader)
        found, wrong, other = read_columns(program, data, begins[which] + skipped, ends[which])
        numbers.append(which[~wrong])
        bad[numbers[-1]] = False
        unfit.append(other)
        parts.append(pa.RecordBatch.from_arrays(found, schema=schema))
    if bad.any():
        which = pa.array(np.flatnonzero(bad))
        yield with_columns(unreadable(schema, given.take(which)), beside.take(which))
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
        rows, np.concatenate(unfit)[order], lambda some: given.take(pa.array(places).take(some))
    )


def _schemas(
    data: NDArray[np.uint8],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    present: NDArray[np.bool_],
    options: Mapping[str, str],
) -> Iterator[tuple[AvroSchema, NDArray[np.int64], int]]:
    """Yield each schema, the numbers of its messages, and the number of bytes in front of them."""
    if "registry" not in options:
        yield _schema(options["schema"]), np.flatnonzero(present), 0
        return
    named = np.flatnonzero(present & (ends - begins >= _PREFIX))
    named = named[data[begins[named]] == 0]
    digits = data[begins[named][:, None] + np.arange(1, _PREFIX)].astype(np.int64)
    ids = digits @ (np.int64(1) << np.array([24, 16, 8, 0]))
    for number, schema in schemas_of(options, np.unique(ids).tolist()).items():
        if schema is not None:
            yield schema, named[ids == number], _PREFIX
