"""Widths of tuples in bytes: as stated in a dry run, else from the types of their columns.

Traffic between hosts is counted in bytes of Arrow's format. Lengths of strings come from samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from anabranch_contract.protocol.measurements import StreamSample
from anabranch_contract.queries.joins import JoinQuery, RelationId, Stream
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_planner.cost.exchange import ExchangeModel
from anabranch_planner.cost.statistics.statistics import Statistics

#: Bytes of a string's offset in Arrow's format.
OFFSET = 4.0
#: Assumed bytes of a value whose type has no fixed size.
TEXT_WIDTH = 24.0

_WIDTHS = {
    TypeKind.TINYINT: 1.0,
    TypeKind.BOOLEAN: 1.0,
    TypeKind.SMALLINT: 2.0,
    TypeKind.INT: 4.0,
    TypeKind.FLOAT: 4.0,
    TypeKind.DATE: 4.0,
    TypeKind.MONTHS: 4.0,
    TypeKind.INTERVAL: 8.0,
    TypeKind.BIGINT: 8.0,
    TypeKind.DOUBLE: 8.0,
    TypeKind.TIMESTAMP: 8.0,
    TypeKind.TIMESTAMP_NTZ: 8.0,
    TypeKind.DECIMAL: 16.0,
}


def relation_widths(
    queries: Iterable[JoinQuery], streams: Mapping[str, Stream], stated: Mapping[str, float]
) -> dict[RelationId, float]:
    """Return relation -> bytes per tuple: ``stated`` for it or its stream, else by column types."""
    found: dict[RelationId, float] = {}
    for query in queries:
        for relation in query.relations:
            given = stated.get(relation.id, stated.get(relation.stream))
            stream = streams.get(relation.stream)
            if given is not None:
                found[relation.id] = given
            elif stream is not None:
                found[relation.id] = stream_width(stream)
    return found


def stream_width(stream: Stream) -> float:
    """Return bytes per tuple by column types; strings and binaries count :data:`TEXT_WIDTH`."""
    return sum(_width(kind) for _, kind in stream.stored_columns)


def with_exchange(
    statistics: Statistics,
    hosts: int,
    queries: Iterable[JoinQuery],
    streams: Mapping[str, Stream],
    samples: Mapping[str, StreamSample],
    locality: float | None = None,
) -> Statistics:
    """Return ``statistics``, with a cost model of network traffic if there are several hosts.

    Args:
        locality: share of tuples that arrive on the host of their partition; None: unknown.
        samples: stream -> its newest sample, for the lengths of strings.
    """
    if hosts < 2:
        return statistics
    of_stream = {name: column_widths(stream, samples.get(name)) for name, stream in streams.items()}
    widths = {
        relation.id: of_stream[relation.stream]
        for query in queries
        for relation in query.relations
        if relation.stream in of_stream
    }
    return replace(statistics, exchange=ExchangeModel(hosts, widths, locality))


def column_widths(stream: Stream, sample: StreamSample | None) -> dict[str, float]:
    """Return column -> bytes per value in Arrow's format; string lengths are the sample's."""
    found = {}
    for name, kind in stream.stored_columns:
        width = _width(kind)
        if kind.kind not in _WIDTHS and sample is not None and name in sample.columns:
            values = [v for v in sample.values(name) if isinstance(v, str)]
            texts = sum(len(v.encode()) for v in values) / max(len(sample.columns[name][1]), 1)
            width = OFFSET + texts
        found[name] = width
    return found


def _width(kind: DataType) -> float:
    return _WIDTHS.get(kind.kind, TEXT_WIDTH)
