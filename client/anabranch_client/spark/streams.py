"""Spark's streaming DataFrames as streams for queries: rows are pushed over REST, each once."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, struct, to_json
from pyspark.sql.streaming.query import StreamingQuery

from anabranch_client.errors import ApiError, UsageError
from anabranch_client.rest.api import Client
from anabranch_client.rest.push import ROWS, json_row
from anabranch_client.spark.source import default_client
from anabranch_contract.rest.streams import StreamOut

#: Column by whose text rows of the same time are ordered: a repeated micro-batch has the same
#: portions.
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
    """Register a streaming DataFrame as the stream ``name``, unless it exists, and push its rows.

    Each row is in the stream once, even if Spark is killed and restarted with the checkpoint within
    a day: the portions of a micro-batch have names, which the service remembers for that time.

    Args:
        checkpoint: Spark's ``checkpointLocation``.
        client: client of the service; default: with the environment's address and token.
        trigger: arguments of ``DataStreamWriter.trigger``; default: as fast as possible.
        options: as for :meth:`Client.create_stream`: ``event_time``, ``lateness``, ``kind``, ...

    Raises:
        ApiError: the service refused the stream.
        UsageError: the DataFrame is no streaming one; or there is a stream of this name with other
            columns, or another source.
    """
    if not df.isStreaming:
        raise UsageError(
            "the DataFrame has no stream of rows",
            field="df",
            remedy="read it by spark.readStream, or save it and use 'anabranch stream push'",
        )
    own = client or default_client()
    columns = [(field.name, field.dataType.simpleString()) for field in df.schema]
    known = registered(own, name, columns, {"format": "redis-stream"}, options)
    pusher = _Pusher(own, name, checkpoint, known.event_time)
    writer = df.writeStream.option("checkpointLocation", checkpoint)
    writer = writer.queryName(f"anabranch {name}").foreachBatch(pusher.push)
    return (writer if trigger is None else writer.trigger(**trigger)).start()


def registered(
    client: Client,
    name: str,
    columns: Sequence[tuple[str, str]],
    source: dict[str, Any],
    options: Mapping[str, Any],
) -> StreamOut:
    """Register a stream unless it is registered already.

    Raises:
        ApiError: the service refused the stream.
        UsageError: there is a stream of this name with other columns, or another source.
    """
    known = next((one for one in client.streams() if one.name == name), None)
    if known is None:
        return client.create_stream(name, columns, source=source, **options)
    # A stream with changes need not declare its operation column.
    own = known.changes and known.changes.operation
    if [(c.name, c.type) for c in known.columns if c.name != own] != [
        column for column in columns if column[0] != own
    ]:
        raise UsageError(
            f"the stream {name!r} is there with other columns",
            field="name",
            remedy="choose another name for the stream, or select its columns from the DataFrame",
        )
    if {key: getattr(known.source, key) for key in source} != source:
        raise UsageError(
            f"the stream {name!r} is there with another source, of format {known.source.format}",
            field="name",
            remedy="take another name, or the source that it has",
        )
    return known


@dataclass(slots=True)
class _Pusher:
    client: Client
    name: str
    checkpoint: str
    event_time: str | None
    _ident: str = ""

    def push(self, rows: DataFrame, batch: int) -> None:
        """Push the rows of a micro-batch, by event time.

        In another order, rows of a micro-batch that spans more than the stream's lateness, as after
        an interruption, would be late beside later ones of the same micro-batch.
        """
        if not self._ident:
            metadata = rows.sparkSession.read.text(f"{self.checkpoint}/metadata").collect()
            self._ident = json.loads("".join(row.value for row in metadata))["id"]
        columns = {name: col(f"`{name.replace('`', '``')}`") for name in rows.columns}
        time_first = [] if self.event_time is None else [columns[self.event_time]]
        text = to_json(struct(*columns.values()))
        ordered = rows.withColumn(_ORDER, text).orderBy(*time_first, _ORDER)
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
                # A million rows wait to be read; the next ones wait in Spark's source.
                time.sleep(_PAUSE)
