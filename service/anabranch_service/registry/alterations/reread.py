"""Checks that a table can be read again, and that no query follows its rows.

A query follows a table if its rows complete results (``semantics.md``, "Tables beside changes").
Another version would replace the rows without deleting the results, so a table is either read again
or followed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch_contract.connectors.file_sources import is_own
from anabranch_contract.connectors.kafka_sources import is_own_topic
from anabranch_contract.connectors.lake.options import LAKE
from anabranch_contract.connectors.sources import REDIS_STREAM
from anabranch_contract.protocol.progress import Mode, Progress
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import JoinQuery, StreamKind
from anabranch_service.errors import Conflict
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.statements import NormalForms, usable_streams


def followed(query: JoinQuery) -> frozenset[str]:
    """Return the streams that ``query`` follows: their arriving tuples complete its results."""
    return frozenset(
        str(one.relation_of(member.label).stream)
        for one in query.planned
        for member in one.members
        if member.label not in one.looked_up
    )


def check_followers(
    table: str,
    queries: Sequence[QueryRecord],
    records: Mapping[str, StreamRecord],
    forms: NormalForms,
) -> None:
    """Check that no query follows a table that is to be read again.

    Raises:
        Conflict: ``table-followed``.
    """
    streams = usable_streams(records.values())
    found = [query.id for query in queries if table in followed(forms.of(query, streams))]
    if found:
        raise Conflict(
            "table-followed",
            f"table {table!r} can't be read again: the results of {', '.join(found[:3])}"
            f"{', ...' if len(found) > 3 else ''} change with its rows",
            field="name",
            remedy="remove these queries, read the table again, and register them again; or give "
            "changed rows to its source: each replaces the row of its key",
        )


def check_whole(
    query: JoinQuery, records: Mapping[str, StreamRecord], progress: Progress | None
) -> None:
    """Check that ``query`` follows no table that is being read again.

    Raises:
        Conflict: ``table-read-again``.
    """
    for name in sorted(followed(query)):
        record = records.get(name)
        if record is None or record.kind is not StreamKind.TABLE or record.version == 1:
            continue
        known = None if progress is None else progress.input.tables.get(name)
        if known is None or known.version < record.version:
            raise Conflict(
                "table-read-again",
                f"table {name!r}, with whose rows the results change, is being read again",
                field="sql",
                remedy=f"wait until its version {record.version} is complete (anabranch stream "
                f"show {name}), and register the query then",
            )


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
    if source.then is not None and source.then.options.get("start") == "latest":
        source = source.then
    queue = source.format in (REDIS_STREAM, *LAKE) or is_own_topic(source.format, source.options)
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
