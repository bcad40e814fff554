"""Requests of a delivery to a webhook: bodies, and ids that identify their rows.

The division of a delivery into requests depends on its rows only, so every attempt, in any process,
makes the same requests. A group of batches is a file that never changes; its rows keep their order,
and each row group of the file is divided separately. The rows of a version of a view or an outer
join are sorted by their JSON text first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch_contract.connectors.kafka_sinks import KafkaPayload
from anabranch_contract.connectors.webhook.options import WebhookOptions
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.kafka.messages import messages_of
from anabranch_runtime.sinks.rows import json_table

#: Type of the event, as named in the bodies of requests.
TYPE = "anabranch.results"


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """A request of a delivery: ``part``: its number, from 0; ``ident``: its idempotency key."""

    part: int
    ident: str
    body: bytes


def requests_of(
    delivery: Delivery, options: WebhookOptions, pipeline: str, first: int = 0
) -> Iterator[WebhookRequest]:
    """Yield the requests of a delivery from part ``first`` on, in order.

    Args:
        pipeline: namespace and id of the pipeline.

    Raises:
        OSError, ArrowException: a file can't be read.
    """
    part = 0
    for texts in _texts(delivery, options):
        for start, end in _cuts(texts, options.rows, options.size):
            if part >= first:
                rows = texts.slice(start, end - start).cast(pa.large_binary()).to_pylist()
                head = {"type": TYPE, "query": delivery.query, "batch": delivery.batch}
                opened = json.dumps({**head, "part": part, "rows": []}).encode()[:-2]
                body = opened + b",".join(rows) + b"]}"
                yield WebhookRequest(part, _ident(delivery, pipeline, part), body)
            part += 1


def _ident(delivery: Delivery, pipeline: str, part: int) -> str:
    text = json.dumps([pipeline, delivery.query, delivery.batch, part])
    return f"msg_{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _texts(delivery: Delivery, options: WebhookOptions) -> Iterator[pa.Array]:
    """Yield rows or envelopes as JSON texts, in the same order in every attempt."""
    if delivery.first is None:
        table = delivery.read()
        tables = iter([table.take(pc.sort_indices(json_table(table)))])
    elif options.messages.payload is KafkaPayload.DEBEZIUM:
        # Inserts and deletes of equal rows in a delivery cancel each other out.
        tables = iter([delivery.read()])
    else:
        tables = _row_groups(delivery)
    for table in tables:
        for messages in messages_of(table, options.messages):
            yield messages.values


def _row_groups(delivery: Delivery) -> Iterator[pa.Table]:
    for path in delivery.files:
        with pq.ParquetFile(path) as file:
            for number in range(file.num_row_groups):
                yield file.read_row_group(number, use_threads=False)


def _cuts(texts: pa.Array, rows: int, size: int) -> Iterator[tuple[int, int]]:
    """Divide JSON texts into ranges of at most ``rows`` texts and ``size`` bytes with commas.

    >>> list(_cuts(pa.array(["aaa", "b", "c", "d"], pa.large_string()), 2, 4))
    [(0, 1), (1, 3), (3, 4)]
    """
    ends = np.cumsum(pc.binary_length(texts).to_numpy() + 1)
    start, done = 0, 0
    while start < len(texts):
        fitting = int(np.searchsorted(ends, done + size + 1, side="right"))
        end = max(min(fitting, start + rows), start + 1)
        yield start, end
        start, done = end, int(ends[end - 1])
