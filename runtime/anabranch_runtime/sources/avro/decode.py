"""Decoder of Avro messages: plain ones, or with the id of their schema in a registry as prefix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial

import numpy as np

from anabranch_contract.connectors.schemas.avro import AvroSchema, record_schema, registered_schema
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.columns.arrays import Ints
from anabranch_runtime.sources.avro.columns import read_columns
from anabranch_runtime.sources.avro.program import program_of
from anabranch_runtime.sources.decode import Columns
from anabranch_runtime.sources.schemas.messages import (
    PREFIX,
    EncodedMessages,
    ReadColumns,
    from_schemas,
)
from anabranch_runtime.sources.schemas.registry import schemas_of

_schema = lru_cache(maxsize=64)(record_schema)


def _read(
    messages: EncodedMessages, columns: Columns, options: Mapping[str, str]
) -> Iterator[tuple[Ints, ReadColumns]]:
    """Yield, by schema, the numbers of its Avro messages, and their columns."""
    kinds = [(name, parse_type(kind)) for name, kind in columns]
    reader = _schema(options["schema"]) if "schema" in options and "registry" in options else None
    for writer, which, skipped in _schemas(messages, options):
        begins, ends = messages.begins[which] + skipped, messages.ends[which]
        program = program_of(writer, kinds, reader)
        yield which, read_columns(program, messages.data, begins, ends)


#: Decoder of Avro messages.
from_avro = partial(from_schemas, _read)


def _schemas(
    messages: EncodedMessages, options: Mapping[str, str]
) -> Iterator[tuple[AvroSchema, Ints, int]]:
    """Yield each schema, the numbers of its Avro messages, and the length of their prefix."""
    if "registry" not in options:
        yield _schema(options["schema"]), np.flatnonzero(messages.present), 0
        return
    named, ids = messages.identified()
    schemas = schemas_of(options, np.unique(ids).tolist(), registered_schema)
    for number, schema in schemas.items():
        if schema is not None:
            yield schema, named[ids == number], PREFIX
