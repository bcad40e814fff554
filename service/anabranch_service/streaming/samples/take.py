"""Sampling of any source by the service before the stream is registered.

Rows, bytes, counted files and the time of every call to a server are limited. Nothing is written to
or consumed from the source. The caller has checked that the operator permits the source; links and
resolved secrets are checked again on use, as in the runtime.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.secrets import resolved
from anabranch_contract.connectors.sources import FILES, RECORDED, REDIS_STREAM
from anabranch_contract.protocol.registered import SourceRecord
from anabranch_service.streaming.samples.entries import Own, sample_entries
from anabranch_service.streaming.samples.files import SPARK_FILES, sample_files
from anabranch_service.streaming.samples.sample import SECONDS, Sample, Unreadable


def take(
    source: SourceRecord, columns: Sequence[str], most: int, policy: AccessPolicy, own: Own
) -> Sample:
    """Read at most ``most`` sample rows of a source.

    Args:
        columns: names of the stream's columns.
        own: URL of the pipeline's own Redis, and the default key of the stream in it.

    Raises:
        Unreadable, AccessError: the source can't be read, or an environment variable is not set.
    """
    if source.format == REDIS_STREAM:
        return sample_entries(source, columns, most, policy, own)
    if source.format == "kafka":
        return _brokers(source)
    if source.format in (FILES, RECORDED, *SPARK_FILES):
        return sample_files(source, columns, most, policy)
    why = f"the service reads no sources of format {source.format!r} (source.format)"
    if source.format.startswith("rate"):
        why = f"source.format {source.format!r} generates its rows: there is nothing to read"
    return Sample(looked_at=False, limits=[f"{why}; register the stream and see source_status"])


def _brokers(source: SourceRecord) -> Sample:
    name = "brokers" if "brokers" in source.options else "kafka.bootstrap.servers"
    text = resolved("source", "kafka", source.options, os.environ)[name]
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
        return Sample(looked_at=False, limits=[f"{note}: the service has no Kafka client"])
    raise Unreadable(
        "no-broker",
        f"no broker accepts a connection: {why}",
        field=field,
        remedy="check the addresses, and that the brokers run",
    )
