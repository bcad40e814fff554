"""Decoder of Protobuf messages: plain ones, or with the id of their schema in a registry first.
After the id come the indexes of the message's type: how many, then each index, zigzag-encoded; the
number 0 alone stands for the first type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial

import numpy as np

from anabranch_contract.connectors.schemas.declared import ProtoMessage, ProtoSchema
from anabranch_contract.connectors.schemas.protobuf import (
    indexes_of,
    message_of,
    parse_schema,
    registered_schema,
)
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.columns.arrays import Ints
from anabranch_runtime.sources.decode import Columns
from anabranch_runtime.sources.protobuf import kernel
from anabranch_runtime.sources.protobuf.columns import read_columns
from anabranch_runtime.sources.protobuf.merging import merged
from anabranch_runtime.sources.protobuf.program import program_of
from anabranch_runtime.sources.schemas.messages import (
    PREFIX,
    EncodedMessages,
    ReadColumns,
    from_schemas,
)
from anabranch_runtime.sources.schemas.registry import schemas_of

_schema = lru_cache(maxsize=64)(parse_schema)


def _read(
    messages: EncodedMessages, columns: Columns, options: Mapping[str, str]
) -> Iterator[tuple[Ints, ReadColumns]]:
    """Yield, by message type, the numbers of its messages, and their columns."""
    kinds = [(name, parse_type(kind)) for name, kind in columns]
    for schema, message, which, begins in _types(messages, options):
        program = program_of(schema, message, kinds)
        found, known, unfit = read_columns(program, messages.data, begins, messages.ends[which])
        yield which, (found, known != kernel.GOOD, unfit)
        again = np.flatnonzero(known == kernel.MERGED)
        if len(again):
            ends = messages.ends[which]
            rewritten = EncodedMessages.of(
                [merged(program, messages.data[begins[i] : ends[i]].tobytes()) for i in again]
            )
            found, known, unfit = read_columns(
                program, rewritten.data, rewritten.begins, rewritten.ends
            )
            yield which[again], (found, known != kernel.GOOD, unfit)


#: Decoder of Protobuf messages.
from_protobuf = partial(from_schemas, _read)


def _types(
    messages: EncodedMessages, options: Mapping[str, str]
) -> Iterator[tuple[ProtoSchema, ProtoMessage, Ints, Ints]]:
    """Yield each message type, with its messages' numbers and the positions where they begin."""
    if "registry" not in options:
        schema = _schema(options["schema"])
        which = np.flatnonzero(messages.present)
        yield schema, message_of(schema, options.get("message")), which, messages.begins[which]
        return
    named, ids = messages.identified()
    begins = messages.begins[named] + PREFIX
    sizes = np.empty(len(named), np.int64)
    kernel.index_sizes(messages.data, begins, messages.ends[named], sizes)
    good = sizes > 0
    schemas = schemas_of(options, np.unique(ids[good]).tolist(), registered_schema)
    for size in np.unique(sizes[good]).tolist():
        some = np.flatnonzero(sizes == size)
        heads = messages.data[begins[some][:, None] + np.arange(1 - PREFIX, size)]
        kinds, turn = np.unique(heads, axis=0, return_inverse=True)
        for number, head in enumerate(kinds):
            known = schemas[int.from_bytes(head[:4].tobytes())]
            found = None if known is None else known.at(indexes_of(head[4:].tobytes()))
            if known is None or found is None:
                continue
            if "message" in options and found is not known.named(options["message"]):
                continue
            which = some[turn.reshape(-1) == number]
            yield known, found, named[which], begins[which] + size
