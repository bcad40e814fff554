"""Checks of sources, sinks and Redis keys in requests against the operator's access policy."""

from __future__ import annotations

import os

from anabranch_contract.codec import to_json
from anabranch_contract.connectors.check import check_sink_access, check_source_access
from anabranch_contract.connectors.file_sources import check_nested, is_own
from anabranch_contract.connectors.kafka_sources import is_own_topic
from anabranch_contract.connectors.lake.continued import (
    check_continuation,
    check_continued,
    within_then,
)
from anabranch_contract.connectors.lake.options import LAKE, check_table_changes, table_options
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.postgres.options import POSTGRES, check_changes
from anabranch_contract.connectors.reserved_keys import (
    check_push_key,
    check_sink_key,
    check_source_keys,
)
from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.connectors.sources import FILES, REDIS_STREAM, redis_stream_options
from anabranch_contract.protocol.registered import SourceRecord, StreamRecord
from anabranch_contract.queries.types import parse_type
from anabranch_planner.sources.check_source import check_source
from anabranch_planner.sources.spark_source import Columns
from anabranch_service.errors import InvalidInput
from anabranch_service.settings import ServiceSettings


def policy_of(settings: ServiceSettings) -> AccessPolicy:
    """Return the operator's access policy, with the address of the pipeline's own Redis."""
    return settings.access.with_server(settings.redis_url)


def check_stream(record: StreamRecord, settings: ServiceSettings) -> StreamRecord:
    """Refuse a stream whose columns contradict each other, whose source does not fit them, or whose
    source the access policy forbids.

    Returns:
        The record, with instructions for Spark to read the source.

    Raises:
        PlannerError: naming the field and the remedy.
    """
    record.to_stream()
    columns = tuple((c.name, parse_type(c.type)) for c in record.columns)
    check_place(record.source, settings)
    return understood(record, columns)


def check_place(source: SourceRecord, settings: ServiceSettings) -> None:
    """Refuse a source that the access policy forbids, or a Redis key of the pipeline itself.

    Raises:
        PlannerError: naming the field and the remedy.
    """
    policy, resolve = policy_of(settings), os.path.realpath
    check_source_access(source.format, source.path, source.options, policy, resolve)
    if source.format == REDIS_STREAM:
        check_source_keys(redis_stream_options(source.options).keys, settings.namespace)
    if source.then is not None:
        with within_then():
            check_place(source.then, settings)


def understood(record: StreamRecord, columns: Columns) -> StreamRecord:
    """Add instructions for Spark to read the source (expressions over its columns) to ``record``.

    Raises:
        PlannerError: the source can't be converted to ``columns``.
    """
    source = record.source
    if source.format == POSTGRES:
        check_changes(record.changes)
    elif source.format in LAKE:
        options = table_options(source.format, source.path, source.options)
        check_table_changes(record.changes, options)
    if source.then is not None:
        then = source.then
        check_continued(source.format, source.path, source.options)
        check_continuation(then.format, then.options, more=then.then is not None)
        with within_then():
            check_source(then.format, then.path, then.options, columns)
            check_nested(record.tuple_columns, then.format, then.path, then.options)
    found = check_source(source.format, source.path, source.options, columns)
    return record.model_copy(update={"reading": None if found is None else to_json(found)})


def check_push(key: str, settings: ServiceSettings) -> None:
    """Refuse to append rows to a Redis key of the pipeline itself.

    Raises:
        AccessError: ``reserved-key``.
    """
    check_push_key(key, settings.namespace)


def check_sink_request(sink: SinkSpec, settings: ServiceSettings) -> None:
    """Refuse a sink that the policy forbids.

    Raises:
        AccessError: naming the field and the remedy.
    """
    options = dict(sink.options)
    check_sink_access(sink.format, sink.path, options, policy_of(settings), os.path.realpath)
    stream = sink.option("stream")
    if sink.format == REDIS_STREAM and stream is not None:
        check_sink_key(stream, settings.namespace)


def check_policy(record: StreamRecord, option: str) -> None:
    """Refuse a change of an ``option`` that sources of this format do not have."""
    source = record.source
    format = REDIS_STREAM if option == "on_loss" else FILES
    queue = source.format in (POSTGRES, *LAKE) or is_own_topic(source.format, source.options)
    own = is_own(source.format, source.path, source.options) if format == FILES else queue
    if source.format != format and not own:
        raise InvalidInput(
            "no-such-policy",
            f"stream {record.name!r} has no {format} source",
            field=option,
            remedy=f"only a {format} source has {option}; leave it out",
        )
