"""Records of earlier releases, brought up to what this one keeps."""

from __future__ import annotations

import asyncio

import structlog
from redis.exceptions import RedisError

from anabranch_contract.connectors.file_sources import is_own
from anabranch_contract.connectors.sources import RECORDED, REDIS_STREAM
from anabranch_contract.connectors.spark_source import refusal_to_json
from anabranch_contract.errors import PlannerError
from anabranch_service.registry.permitted import understood
from anabranch_service.registry.records import StreamRecord
from anabranch_service.registry.store import Store

_LOG = structlog.get_logger(__name__)
#: Seconds between two trials where Redis does not answer.
_PAUSE = 1.0


async def renew_streams(store: Store) -> None:
    """Add how Spark reads a source to the streams that lack it; waits for Redis."""
    while True:
        try:
            for name, record in (await store.streams()).items():
                source = record.source
                ours = source.format in (RECORDED, REDIS_STREAM)
                ours = ours or is_own(source.format, source.path, source.options)
                if record.reading is None and not ours:
                    await store.update_stream(name, renewed)
        except RedisError:
            await asyncio.sleep(_PAUSE)
        else:
            return


def renewed(record: StreamRecord) -> StreamRecord:
    """``record`` as this release keeps it; the runtime says so where its source means nothing."""
    if record.reading is not None:
        return record
    try:
        return understood(record, record.to_stream().columns)
    except PlannerError as cause:
        _LOG.error("stream not understood", stream=record.name, error=cause.message)
        return record.model_copy(update={"reading": refusal_to_json(cause)})
