"""Spark's streaming DataFrames as streams of queries: rows are pushed over REST, each once."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, struct, to_json
from pyspark.sql.streaming.query import StreamingQuery

from anabranch_client.errors import ApiError, UsageError
from anabranch_client.rest.api import DEFAULT_URL, Client
from anabranch_client.rest.push import ROWS, json_row

#: Column by whose text rows are ordered: portions of a repeated micro-batch must be the same.
_ORDER = "anabranch_order"
_TOO_MANY, _PAUSE = 429, 1.0


def stream(
    df: DataFrame,
    *,
    name: str,
    checkpoint: str,
    client: Client | None = None,
    trigger: dict[str, Any] | None = None,
    **options: Any,
) -> StreamingQuery:
    """Register a streaming DataFrame as the stream ``name``, unless it is there, and push its rows.

    Each row is in the stream once, also if Spark is killed and started again with the checkpoint
    within a day: portions of a micro-batch have names that the service remembers so long.

    Args:
        checkpoint: Spark's ``checkpointLocation``.
        client: of the service; default: the environment's address and token.
        trigger: arguments of ``DataStreamWriter.trigger``; default: as fast as possible.
        options: as for :meth:`Client.create_stream`: ``event_time``, ``lateness``, ``kind``, ...

    Raises:
        ApiError: the service refused the stream.
        UsageError: there is a stream of this name with other columns.
    """
    own = client or Client(os.environ.get("ANABRANCH_URL") or DEFAULT_URL)
    columns = [(field.name, field.dataType.simpleString()) for field in df.schema]
    known = next((one for one in own.streams() if one.name == name), None)
    if known is None:
        own.create_stream(name, columns, source={"format": "redis-stream"}, **options)
    elif [(c.name, c.type) for c in known.columns] != columns:
        raise UsageError(
            f"the stream {name!r} is there with other columns",
            field="name",
            remedy="take another name, or select its columns",
        )
    writer = df.writeStream.option("checkpointLocation", checkpoint)
    writer = writer.queryName(f"anabranch {name}").foreachBatch(_Pusher(own, name, checkpoint).push)
    return (writer if trigger is None else writer.trigger(**trigger)).start()


@dataclass(slots=True)
class _Pusher:
    client: Client
    name: str
    checkpoint: str
    _ident: str = ""

    def push(self, rows: DataFrame, batch: int) -> None:
        """Push the rows of a micro-batch."""
        if not self._ident:
            metadata = rows.sparkSession.read.text(f"{self.checkpoint}/metadata").collect()
            self._ident = json.loads("".join(row.value for row in metadata))["id"]
        columns = [col(f"`{name.replace('`', '``')}`") for name in rows.columns]
        ordered = rows.withColumn(_ORDER, to_json(struct(*columns))).orderBy(_ORDER)
        found = ordered.drop(_ORDER).toArrow().combine_chunks()
        for first in range(0, found.num_rows, ROWS):
            portion = found.slice(first, ROWS).to_pylist(maps_as_pydicts="strict")
            self._send([json_row(row) for row in portion], f"spark-{self._ident}-{batch}-{first}")

    def _send(self, portion: list[dict[str, Any]], key: str) -> None:
        while True:
            try:
                self.client.push(self.name, portion, idempotency_key=key)
                return
            except ApiError as refused:
                if refused.status != _TOO_MANY:
                    raise
                # A million rows wait to be read: so do the next ones, in Spark's source.
                time.sleep(_PAUSE)
