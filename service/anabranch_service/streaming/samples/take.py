"""Sampling of any source by the service before the stream is registered.

Rows, bytes, counted files and the time of every call to a server are limited. Nothing is written to
or consumed from the source. The caller has checked that the operator permits the source; links and
resolved secrets are checked again on use, as in the runtime.
"""

from __future__ import annotations

import os
import socket

from anabranch_contract.connectors.kafka_sources import KAFKA, is_own_topic
from anabranch_contract.connectors.lake.options import DELTA, ICEBERG
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.secrets import resolved
from anabranch_contract.connectors.sources import FILES, RECORDED, REDIS_STREAM
from anabranch_contract.protocol.registered import SourceRecord
from anabranch_service.streaming.samples.entries import Own, sample_entries
from anabranch_service.streaming.samples.files import SPARK_FILES, sample_files
from anabranch_service.streaming.samples.lake import sample_delta, sample_iceberg
from anabranch_service.streaming.samples.messages import sample_topics
from anabranch_service.streaming.samples.sample import SECONDS, Sample, Unreadable, Wanted


def take(
    source: SourceRecord, columns: Wanted, most: int, policy: AccessPolicy, own: Own
) -> Sample:
    """Read at most ``most`` sample rows of a source.

    Args:
        columns: names of the stream's columns; None: all that the source has.
        own: URL of the pipeline's own Redis, and the default key of the stream in it.

    Raises:
        Unreadable, AccessError: the source can't be read, or an environment variable is not set.
    """
    if source.format == REDIS_STREAM:
        return sample_entries(source, columns, most, policy, own)
    if source.format == DELTA:
        return sample_delta(source, columns, most, policy)
    if source.format == ICEBERG:
        return sample_iceberg(source, columns, most)
    if is_own_topic(source.format, source.options):
        return sample_topics(source, columns, most)
    if source.format == KAFKA:
        return _brokers(source)
    if source.format in (FILES, RECORDED, *SPARK_FILES):
        return sample_files(source, columns, most, policy)
    why = f"the service reads no sources of format {source.format!r} (source.format)"
    if source.format.startswith("rate"):
        why = f"source.format {source.format!r} generates its rows: there is nothing to read"
    return Sample(looked_at=False, limits=[f"{why}; register the stream and see source_status"])


def _brokers(source: SourceRecord) -> Sample:
    name = "kafka.bootstrap.servers"
    text = resolved("source", KAFKA, source.options, os.environ)[name]
    field = f"source.options.{name}"
    why = ""
    for broker in text.split(","):
        host, _, port = broker.strip().rpartition("://")[2].rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), SECONDS).close()
        except OSError as cause:
            why = f"{why}; {broker.strip()}: {cause}" if why else f"{broker.strip()}: {cause}"
            continue
        note = f"{broker.strip()} accepts connections; messages were not read"
        why = "only Spark reads sources with its options; name brokers and topics instead"
        return Sample(looked_at=False, limits=[f"{note}: {why}"])
    raise Unreadable(
        "no-broker",
        f"no broker accepts a connection: {why}",
        field=field,
        remedy="check the addresses, and that the brokers run",
    )
