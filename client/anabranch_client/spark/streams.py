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
from pyspark.sql.types import VariantType

from anabranch_client.errors import ApiError, UsageError
from anabranch_client.rest.api import Client
from anabranch_client.rest.push import ROWS, json_row
from anabranch_client.spark.patience import patiently
from anabranch_client.spark.sent_types import check_sent, sent_column
from anabranch_client.spark.source import default_client
from anabranch_contract.durations import format_duration, parse_duration
from anabranch_contract.errors import QueryError
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
        UsageError: the DataFrame is no streaming one, or a column of it can't be pushed; or there
            is a stream of this name with other columns, another source, or other event times.
    """
    if not df.isStreaming:
        raise UsageError(
            "the DataFrame has no stream of rows",
            field="df",
            remedy="read it by spark.readStream, or save it and use 'anabranch stream push'",
        )
    for field in df.schema:
        check_sent(field.name, field.dataType)
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
        UsageError: there is a stream of this name with other columns, another source, or another
            event time, lateness, kind or key than ``options`` have.
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
    for option, (have, want) in _fixed_options(known, options).items():
        if have != want:
            raise UsageError(
                f"the stream {name!r} is there with {option} {have!r}, not {want!r}",
                field=option,
                remedy="give what it has, choose another name, or delete the stream and register "
                "it again",
            )
    return known


def _fixed_options(
    known: StreamOut, options: Mapping[str, Any]
) -> dict[str, tuple[object, object]]:
    """Given options that a registered stream keeps for ever: its value of each, and the given one.

    Others, as its retention, can be changed by an operator while programs that register the stream
    run, so they may differ.
    """
    found: dict[str, tuple[object, object]] = {
        option: (getattr(known, option), options[option])
        for option in ("event_time", "kind")
        if options.get(option) is not None
    }
    if options.get("key"):
        found["key"] = (known.key, list(options["key"]))
    if options.get("lateness") is not None:
        found["lateness"] = (known.lateness, _canonical(str(options["lateness"])))
    return found


def _canonical(duration: str) -> str:
    """A duration as the service writes it; text that is none as it is.

    >>> _canonical("60 min")
    '1 hour'
    """
    try:
        return format_duration(parse_duration(duration))
    except QueryError:
        return duration


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
        sent = [sent_column(columns[f.name], f.dataType).alias(f.name) for f in rows.schema]
        found = ordered.select(*sent).toArrow().combine_chunks()
        variants = [f.name for f in rows.schema if isinstance(f.dataType, VariantType)]
        for first in range(0, found.num_rows, ROWS):
            portion = found.slice(first, ROWS).to_pylist(maps_as_pydicts="strict")
            for row in portion if variants else ():
                row.update({v: json.loads(row[v]) for v in variants if row[v] is not None})
            self._send([json_row(row) for row in portion], f"spark-{self._ident}-{batch}-{first}")

    def _send(self, portion: list[dict[str, Any]], key: str) -> None:
        while True:
            try:
                # A portion of the same name is taken once, so it may be sent again.
                patiently(lambda: self.client.push(self.name, portion, idempotency_key=key))
                return
            except ApiError as refused:
                if refused.status != _TOO_MANY:
                    raise
                # A million rows wait to be read; the next ones wait in Spark's source.
                time.sleep(_PAUSE)
