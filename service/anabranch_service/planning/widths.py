"""How wide tuples are taken to be: as stated, else by the types of their columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch_contract.queries.joins import JoinQuery, RelationId, Stream
from anabranch_contract.queries.types import DataType, TypeKind

#: Bytes assumed of a value whose type has no fixed size.
TEXT_WIDTH = 24.0

_WIDTHS = {
    TypeKind.TINYINT: 1.0,
    TypeKind.BOOLEAN: 1.0,
    TypeKind.SMALLINT: 2.0,
    TypeKind.INT: 4.0,
    TypeKind.FLOAT: 4.0,
    TypeKind.DATE: 4.0,
    TypeKind.BIGINT: 8.0,
    TypeKind.DOUBLE: 8.0,
    TypeKind.TIMESTAMP: 8.0,
    TypeKind.TIMESTAMP_NTZ: 8.0,
    TypeKind.DECIMAL: 16.0,
}


def relation_widths(
    queries: Iterable[JoinQuery], streams: Mapping[str, Stream], stated: Mapping[str, float]
) -> dict[RelationId, float]:
    """Bytes per tuple of each relation: as stated for it or its stream, else by column types."""
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
    """Bytes per tuple by the types of its columns; a text counts as :data:`TEXT_WIDTH`."""
    return sum(_width(kind) for _, kind in stream.columns)


def _width(kind: DataType) -> float:
    return _WIDTHS.get(kind.kind, TEXT_WIDTH)
