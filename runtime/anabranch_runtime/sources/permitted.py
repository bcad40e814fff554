"""Checks of registered sources and sinks against the access policy, repeated at every use.

The policy may be newer than a registration, and links may have appeared. So the service's check is
repeated whenever a source is opened, a file is found or a sink is written to. Secrets are read from
the environment only here, when they are used, and masked in every message.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from anabranch_contract.connectors.check import check_sink_access, check_source_access
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.reserved_keys import check_sink_key, check_source_keys
from anabranch_contract.connectors.secrets import resolved, without_secrets
from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.connectors.sources import QUERY, REDIS_STREAM, redis_stream_options
from anabranch_contract.protocol.registered import StreamRecord


def resolve(path: str) -> str:
    """Return the absolute path of a source's or sink's ``path``, links and ``..`` resolved."""
    return os.path.realpath(path)


def permitted_source(record: StreamRecord, policy: AccessPolicy, namespace: str) -> str | None:
    """Return the resolved path of a stream's source, or None if it has no path.

    Raises:
        AccessError: the source has a path or option that is not allowed.
    """
    source = record.source
    options = dict(source.options)
    if source.format == QUERY:
        return None
    if source.format == REDIS_STREAM:
        check_source_keys(redis_stream_options(options).keys, namespace)
    if source.then is not None:
        permitted_source(record.model_copy(update={"source": source.then}), policy, namespace)
    return check_source_access(source.format, source.path, options, policy, resolve)


def permitted_sink(
    sink: SinkSpec, policy: AccessPolicy, namespace: str, environ: Mapping[str, str] = os.environ
) -> SinkSpec:
    """Return the sink with its path resolved, and with secrets in place of references to variables.

    Raises:
        AccessError: the sink has a path or option that is not allowed, or a variable is not set.
    """
    options = dict(sink.options)
    path = check_sink_access(sink.format, sink.path, options, policy, resolve)
    stream = sink.option("stream")
    if sink.format == REDIS_STREAM and stream is not None:
        check_sink_key(stream, namespace)
    found = resolved("sink", sink.format, options, environ)
    return replace(sink, path=path, options=tuple(sorted(found.items())))


def source_options(record: StreamRecord) -> dict[str, str]:
    """Return the options with which a source is read, with secrets in place of references.

    Raises:
        AccessError: a variable is not set, or an option that takes no secret has a reference.
    """
    return resolved("source", record.source.format, record.source.options, os.environ)


def revealed(url: str) -> str:
    """Return the address of a Redis server with the secret in place of the reference to it.

    Raises:
        AccessError: the variable is not set.
    """
    return resolved("source", REDIS_STREAM, {"url": url}, os.environ)["url"]


def masked(message: str) -> str:
    """Return ``message`` with the values of secret variables masked."""
    return without_secrets(message, os.environ)
