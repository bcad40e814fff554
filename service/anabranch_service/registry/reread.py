"""Check of a request to read the source of a table again."""

from __future__ import annotations

from anabranch_contract.connectors.file_sources import is_own
from anabranch_contract.connectors.kafka_sources import is_own_topic
from anabranch_contract.connectors.sources import REDIS_STREAM
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import StreamKind
from anabranch_service.errors import Conflict


def check_reread(record: StreamRecord, mode: Mode) -> None:
    """Check that the source of a table can be read from its beginning again.

    Raises:
        Conflict: ``no-table``: the stream is not a table; ``no-reread``: its source can't be read
            again.
    """
    if record.kind is not StreamKind.TABLE:
        raise Conflict(
            "no-table",
            f"stream {record.name!r} is not a table, and only tables can be read again",
            field="kind",
            remedy="delete it with its queries, and register it again",
        )
    source = record.source
    queue = source.format == REDIS_STREAM or is_own_topic(source.format, source.options)
    if mode is Mode.STEP:
        why, remedy = "a replay reads each source once", "start a pipeline: anabranch up"
    elif queue and source.options.get("start", "earliest") != "earliest":
        why = "its source does not begin with the first of its entries or messages"
        remedy = "register the table again with start earliest"
    elif queue or is_own(source.format, source.path, source.options):
        return
    else:
        why = f"Spark reads a source of format {source.format} only onwards from its last position"
        remedy = (
            "delete the table with its queries and register it again, or give its rows as files "
            "(format files, csv, json or parquet), as a redis-stream, or as Kafka topics by the "
            "option topics"
        )
    raise Conflict(
        "no-reread",
        f"table {record.name!r} can't be read again: {why}",
        field="source.format",
        remedy=remedy,
    )
