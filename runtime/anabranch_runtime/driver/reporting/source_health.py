"""Health of every stream's source, tested soon after the stream is registered.

Spark's own sources are tested by their ingest queries. Every other source is opened once when its
stream is first seen, even while a batch runs. Once batches read the source, its health is the
errors of these reads. Changes are reported to the control plane (``Keys.sources``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import redis
from redis.exceptions import RedisError

from anabranch_contract.connectors.addresses import parse_path
from anabranch_contract.connectors.file_sources import is_own, own_files
from anabranch_contract.connectors.kafka_sources import is_own_topic
from anabranch_contract.connectors.lake.options import LAKE
from anabranch_contract.connectors.sources import (
    QUERY,
    RECORDED,
    REDIS_STREAM,
    redis_stream_options,
)
from anabranch_contract.errors import StructuredError
from anabranch_contract.protocol.intake import SourceState, SourceStatus
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_runtime.control import Control
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.ingest.queries import Ingest
from anabranch_runtime.sources.lake.feed import lake_table
from anabranch_runtime.sources.planned import InputControl
from anabranch_runtime.sources.recordings.recording import check_recording

#: Timeout in seconds for a Redis server's answer to a test.
PATIENCE = 1.0


@dataclass(slots=True)
class SourceHealth:
    """Watches the sources of one pipeline.

    Attributes:
        input: progress of the sources that the runtime reads itself.
        left_out: stream -> error that makes batches leave the stream out.
        opened: registrations of the streams that batches read.
        held: stream -> reason why batches currently do not read it further.
    """

    control: Control
    ingest: Ingest
    input: InputControl
    left_out: Mapping[str, str] = field(default_factory=dict)
    opened: frozenset[str] = frozenset()
    held: Mapping[str, str] = field(default_factory=dict)
    _tried: dict[str, str | None] = field(default_factory=dict)
    _told: dict[str, SourceStatus] | None = None

    def look(self, records: Sequence[StreamRecord]) -> None:
        """Test the sources of ``records`` that are new, and report changes of sources' health."""
        self.ingest.keep(r for r in records if is_sparks(r))
        statuses, intake = self.ingest.statuses(), self.input.streams
        registered = {r.registration for r in records}
        self._tried = {key: e for key, e in self._tried.items() if key in registered}
        for record in records:
            name, key = record.name, record.registration
            if is_sparks(record):
                continue
            if name in self.left_out:
                error: str | None = self.left_out[name]
            elif key in self.opened and name in intake:
                error = intake[name].error or self.held.get(name)
            else:
                if key not in self._tried:
                    self._tried[key] = _tried(record, self.control.url)
                error = self._tried[key]
            state = SourceState.FAILED if error else SourceState.READING
            statuses[name] = SourceStatus(key, state, error, time.time())
        self._tell(statuses)

    def _tell(self, statuses: dict[str, SourceStatus]) -> None:
        known = self._told or {}
        for name, status in statuses.items():
            before = known.get(name)
            if before is not None and replace(status, since=before.since) == before:
                statuses[name] = before
        changed = {n: s for n, s in statuses.items() if known.get(n) != s}
        there = self.control.reported_sources() if self._told is None else known.keys()
        gone = there - statuses.keys()
        if changed or gone:
            self.control.report_sources(changed, gone)
        self._told = statuses

    def unread(self) -> dict[str, str]:
        """Stream -> error, of its source or ingest query, that prevents reading the stream."""
        failed = {
            name: status.error or ""
            for name, status in self.ingest.statuses().items()
            if status.state is SourceState.FAILED
        }
        return {**self.left_out, **failed}


def is_sparks(record: StreamRecord) -> bool:
    """Whether a stream's source is read by an ingest query of Spark."""
    source = record.source
    ours = source.format in (RECORDED, REDIS_STREAM, QUERY, *LAKE)
    ours = ours or is_own_topic(source.format, source.options)
    return not (ours or is_own(source.format, source.path, source.options))


def _tried(record: StreamRecord, url: str) -> str | None:
    """Test a source that the runtime reads itself: open it; return the error, or None."""
    where, source = f"streams.{record.name}.source", record.source
    try:
        if source.format == REDIS_STREAM:
            server = redis_stream_options(source.options).url or url
            limits = {"socket_connect_timeout": PATIENCE, "socket_timeout": PATIENCE}
            with redis.Redis.from_url(server, **limits) as connection:
                connection.ping()
        elif source.format == RECORDED:
            check_recording(record)
        elif is_own_topic(source.format, source.options):
            # Imported only here, since it imports Kafka's large client library.
            from anabranch_runtime.sources.kafka.feed import kafka_feed

            kafka_feed(record, "").look(None)
        elif source.format in LAKE:
            lake_table(record).look()
        elif source.format != QUERY:
            own_files(source.format, source.path, source.options)
            with os.scandir(parse_path(source.path or "", "source.path").path):
                pass
        if source.then is not None:
            return _tried(record.model_copy(update={"source": source.then}), url)
    except StructuredError as error:
        return str(error)
    except (OSError, RedisError) as cause:
        remedy = "see that it exists, answers, and may be read by the runtime"
        return str(SourceError("no-source", str(cause), field=where, remedy=remedy))
    return None
