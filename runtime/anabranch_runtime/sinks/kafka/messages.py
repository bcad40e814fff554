"""Messages of a delivery to a Kafka topic: keys and values, column by column.

``json``: a message per row, in no order. ``upsert`` and ``debezium``: since the rows of a delivery
have no order, inserts and deletes of equal rows first cancel each other out. Then ``upsert`` sends
the remaining row of a key, or no value if only a delete remains; ``debezium`` a key's remaining
deletes and then its inserts, or an update if there is one of each.

A key of one column is its text in ``json`` messages; all other keys are JSON objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.connectors.kafka_sinks import KafkaPayload, KafkaSinkOptions
from anabranch_contract.queries.views import CHANGE, VERSION
from anabranch_runtime.errors import SinkError
from anabranch_runtime.sinks.rows import ROWS, json_rows, json_table, json_values

#: Bytes of values that are handed to the client at once, during which Python runs no other thread.
BYTES = 1 << 20
_DELETE = "delete"
#: Type checks of columns that, as the only key column, are message keys without a JSON object.
_PLAIN = (
    *(pa.types.is_string, pa.types.is_large_string),
    *(pa.types.is_binary, pa.types.is_large_binary),
)


@dataclass(frozen=True, slots=True)
class Messages:
    """Some messages of a delivery to a Kafka topic.

    Attributes:
        keys: per message; None: no message has a key.
        values: per message; null if the message deletes the row of its key.
    """

    keys: pa.Array | None
    values: pa.Array

    def parts(self) -> Iterator[tuple[list[bytes | None] | None, list[bytes | None]]]:
        """Yield the messages' keys and values for the client, some :data:`BYTES` at a time."""
        count = len(self.values)
        step = max(count * BYTES // max(self.values.nbytes, BYTES), 1)
        for first in range(0, count, step):
            keys = None if self.keys is None else _bytes(self.keys.slice(first, step))
            yield keys, _bytes(self.values.slice(first, step))


def messages_of(table: pa.Table, options: KafkaSinkOptions) -> Iterator[Messages]:
    """Yield the messages of a delivery's rows.

    Raises:
        SinkError: several rows have one key (``upsert``).
    """
    columns = {name.lower(): name for name in table.column_names}
    key = [columns[name.lower()] for name in options.key]
    if options.payload is KafkaPayload.JSON:
        for rows in table.to_batches(max_chunksize=ROWS):
            yield Messages(_message_keys(rows, key), json_rows(rows))
        return
    changes = table.column(CHANGE) if CHANGE in columns else None
    rows = table.drop_columns([name for name in (CHANGE, VERSION) if name in columns])
    if options.payload is KafkaPayload.DEBEZIUM:
        # Without a key column, equal rows need the same partition, in order, so the row is the key.
        yield _envelopes(_net(rows, key or rows.column_names, changes))
    elif VERSION in columns:
        deleted = pc.equal(changes, _DELETE).combine_chunks()
        values = pc.if_else(deleted, pa.scalar(None, pa.large_string()), json_table(rows))
        yield Messages(_objects(rows, key), values)
    else:
        yield _upserts(_net(rows, key, changes), options.topic)


def _net(rows: pa.Table, key: Sequence[str], changes: pa.ChunkedArray | None) -> pa.Table:
    """Return a delivery's distinct rows: key, row (JSON), and count (inserts minus deletes)."""
    weights = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    if changes is not None:
        weights = pc.if_else(pc.equal(changes, _DELETE), -1, 1)
    texts = {"key": _objects(rows, key), "row": json_table(rows), "weight": weights}
    found = pa.table(texts).group_by(["key", "row"], use_threads=False)
    summed = found.aggregate([("weight", "sum")])
    return summed.rename_columns(["key", "row", "count"]).filter(pc.field("count") != 0)


def _upserts(net: pa.Table, topic: str) -> Messages:
    inserted, deleted = _split(net)
    for rows in (inserted, deleted):
        counts = rows.group_by("key", use_threads=False).aggregate([("count", "sum")])
        several = counts.filter(pc.field("count_sum") > 1)
        if several.num_rows:
            raise SinkError(
                "key-not-unique",
                f"several rows have the key {several['key'][0].as_py()[:200]}, but the topic"
                f" {topic!r} can hold one",
                field="sink.options.key",
                remedy="register the query again with a key that no two rows share, or with"
                " payload debezium",
            )
    gone = deleted.filter(pc.invert(pc.is_in(deleted["key"], inserted["key"])))
    nothing = pa.nulls(gone.num_rows, pa.large_string())
    return Messages(
        _joined(inserted["key"], gone["key"]), _joined(inserted["row"], pa.chunked_array([nothing]))
    )


def _envelopes(net: pa.Table) -> Messages:
    inserted, deleted = _split(net)
    inserted, deleted = _repeated(inserted), _repeated(deleted)
    pairs = _single(inserted).filter(pc.is_in(_single(inserted), _single(deleted)))
    after = _of_keys(inserted, pairs)
    before = _of_keys(deleted, pairs)
    # ``before`` and ``after`` have the same keys in the same order, each once.
    updates = _envelope("u", before["row"], after["row"])
    created, removed = (
        rows.filter(pc.invert(pc.is_in(rows["key"], pairs))) for rows in (inserted, deleted)
    )
    return Messages(
        _joined(after["key"], removed["key"], created["key"]),
        _joined(
            updates, _envelope("d", removed["row"], None), _envelope("c", None, created["row"])
        ),
    )


def _envelope(
    operation: str, before: pa.ChunkedArray | None, after: pa.ChunkedArray | None
) -> pa.ChunkedArray:
    parts = ['{"before":', before, ',"after":', after, f',"op":"{operation}"}}']
    columns = [
        pa.scalar("null" if part is None else part, pa.large_string())
        if part is None or isinstance(part, str)
        else part
        for part in parts
    ]
    return pc.binary_join_element_wise(*columns, pa.scalar("", pa.large_string()))


def _split(net: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the inserted and the deleted rows of a delivery, both with positive counts."""
    deleted = net.filter(pc.field("count") < 0)
    counts = pc.negate(deleted["count"])
    return net.filter(pc.field("count") > 0), deleted.set_column(2, "count", counts)


def _repeated(rows: pa.Table) -> pa.Table:
    """Return each row of a delivery as many times as its ``count``."""
    counts = rows["count"].to_numpy()
    if (counts == 1).all():
        return rows
    return rows.take(np.repeat(np.arange(len(counts)), counts))


def _single(rows: pa.Table) -> pa.ChunkedArray:
    """Return the keys of a delivery that occur in one row only."""
    counts = rows.group_by("key", use_threads=False).aggregate([("row", "count")])
    return counts.filter(pc.field("row_count") == 1)["key"]


def _of_keys(rows: pa.Table, keys: pa.ChunkedArray) -> pa.Table:
    return rows.filter(pc.is_in(rows["key"], keys)).sort_by("key")


def _joined(*columns: pa.ChunkedArray) -> pa.Array:
    chunks = [chunk for column in columns for chunk in column.chunks]
    return pa.concat_arrays([pa.array([], pa.large_string()), *chunks])


def _message_keys(rows: pa.RecordBatch, key: Sequence[str]) -> pa.Array | None:
    if not key:
        return None
    if len(key) > 1:
        return json_rows(rows.select(key))
    column = rows.column(key[0])
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if any(check(kind) for check in _PLAIN):
        return column
    # Of these types, only times, decimals and intervals are quoted, and contain no quotes.
    return pc.utf8_trim(json_values(column, rows.schema.field(key[0])), '"')


def _objects(rows: pa.Table, key: Sequence[str]) -> pa.Array:
    """Return the keys of Kafka messages as JSON objects."""
    if not key:
        return pa.repeat(pa.scalar("{}", pa.large_string()), rows.num_rows)
    return json_table(rows.select(key))


def _bytes(texts: pa.Array) -> list[bytes | None]:
    found: list[bytes | None] = texts.cast(pa.large_binary()).to_pylist()
    return found
