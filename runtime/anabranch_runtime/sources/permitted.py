"""Permissions of registrations, checked again where they are about to be used.

Records may be older than the policy, and links may have appeared since: so the service's check is
repeated whenever a source is opened, a file is found and a sink is written to. Secrets are taken
from the environment here, at use only, and masked in every message.
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
from anabranch_contract.connectors.sources import REDIS_STREAM, redis_stream_options
from anabranch_contract.protocol.registered import StreamRecord


def resolve(path: str) -> str:
    """The path that ``path`` leads to: absolute, links and ``..`` followed."""
    return os.path.realpath(path)


def permitted_source(record: StreamRecord, policy: AccessPolicy, namespace: str) -> str | None:
    """The resolved path of a stream's source, if it has one and may be read.

    Raises:
        AccessError: it needs a path or option that is not allowed.
    """
    source = record.source
    options = dict(source.options)
    if source.format == REDIS_STREAM:
        check_source_keys(redis_stream_options(options).keys, namespace)
    return check_source_access(source.format, source.path, options, policy, resolve)


def permitted_sink(
    sink: SinkSpec,
    policy: AccessPolicy,
    namespace: str,
    environ: Mapping[str, str] = os.environ,
) -> SinkSpec:
    """The sink with its path resolved, and its references replaced by their values.

    Raises:
        AccessError: it needs a path or option that is not allowed, or a variable is not set.
    """
    options = dict(sink.options)
    path = check_sink_access(sink.format, sink.path, options, policy, resolve)
    stream = sink.option("stream")
    if sink.format == REDIS_STREAM and stream is not None:
        check_sink_key(stream, namespace)
    found = resolved("sink", sink.format, options, environ)
    return replace(sink, path=path, options=tuple(sorted(found.items())))


def source_options(record: StreamRecord, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The options of a source with its references replaced by their values.

    Raises:
        AccessError: a variable is not set, or a reference stands where no secret belongs.
    """
    return resolved("source", record.source.format, record.source.options, environ)


def revealed(url: str) -> str:
    """The address of a Redis server, with its reference replaced by its value.

    Raises:
        AccessError: the variable is not set.
    """
    return resolved("source", REDIS_STREAM, {"url": url}, os.environ)["url"]


def masked(message: str) -> str:
    """``message`` without the values of variables that hold secrets."""
    return without_secrets(message, os.environ)
