"""Sampling of Redis Streams: a few entries, and their total number."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from redis import Redis
from redis.exceptions import RedisError

from anabranch_contract.connectors.addresses import check_redis
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.secrets import resolved
from anabranch_contract.connectors.sources import (
    REDIS_STREAM,
    SourcePayload,
    StreamStart,
    redis_stream_options,
)
from anabranch_contract.protocol.registered import SourceRecord
from anabranch_service.streaming.samples.fit import Form
from anabranch_service.streaming.samples.sample import (
    BYTES,
    SECONDS,
    Sample,
    Unreadable,
    decoded,
    object_of,
    scalars,
)

#: URL of the pipeline's own Redis, and the default key of the stream in it.
Own = tuple[str, str]


def sample_entries(
    source: SourceRecord, columns: Sequence[str], most: int, policy: AccessPolicy, own: Own
) -> Sample:
    """Read at most ``most`` rows from the entries of Redis Streams; see :func:`take`."""
    options = redis_stream_options(source.options)
    url = own[0]
    if options.url is not None:
        url = resolved("source", REDIS_STREAM, {"url": options.url}, os.environ)["url"]
        check_redis(url, policy, os.path.realpath, "source.options.url")
    form = Form.TEXT if options.payload is SourcePayload.FIELDS else Form.JSON
    sample = Sample(
        Form.TYPED if options.payload is SourcePayload.ARROW else form, unit="entries", found=0
    )
    server = Redis.from_url(url, socket_timeout=SECONDS, socket_connect_timeout=SECONDS)
    with server:
        for key in options.keys or (own[1],):
            try:
                sample.found = (sample.found or 0) + int(server.xlen(key))
                newest = options.start is StreamStart.LATEST
                entries = _bounded(server, key, most - len(sample.rows), newest=newest)
            except RedisError as cause:
                raise _no_entries(key, url, cause) from cause
            for entry in entries:
                sample.rows += _rows_of_entry(entry, options.payload, options.field, columns)
            if entries:
                sample.places.append(key)
    if options.start is StreamStart.LATEST and sample.found:
        sample.limits.append("with start latest only later entries will be read, not these")
    sample.rows = sample.rows[:most]
    return sample


def _bounded(server: Redis, key: str, most: int, *, newest: bool) -> list[Mapping[bytes, bytes]]:
    """Read at most ``most`` entries, one at a time, since each may be as large as Redis allows."""
    found: list[Mapping[bytes, bytes]] = []
    size, at = 0, "+" if newest else "-"
    while len(found) < most and size < BYTES:
        page: Any = server.xrevrange(key, at, "-", 1) if newest else server.xrange(key, at, "+", 1)
        if not page:
            break
        ident, values = page[0]
        at = f"({ident.decode()}"
        found.append(values)
        size += sum(len(name) + len(value) for name, value in values.items())
    return found


def _no_entries(key: str, url: str, cause: RedisError) -> Unreadable:
    server = url.rpartition("@")[2].removeprefix("redis://")
    if "WRONGTYPE" in str(cause):
        return Unreadable(
            "bad-stream",
            f"key {key!r} of Redis at {server} holds no Redis Stream",
            field="source.options.keys",
            remedy="name a key that holds a stream, or none that exists",
        )
    return Unreadable(
        "no-server",
        f"Redis at {server} does not answer: {cause}",
        field="source.options.url",
        remedy="check the address, its password, and that the server runs",
    )


def _rows_of_entry(
    entry: Mapping[bytes, bytes], payload: SourcePayload, name: str, columns: Sequence[str]
) -> list[Mapping[str, Any] | str]:
    if payload is SourcePayload.FIELDS:
        return [{c: decoded(entry[c.encode()]) for c in columns if c.encode() in entry}]
    content = entry.get(name.encode())
    if content is None:
        names = ", ".join(decoded(n) for n in entry)
        return [f"an entry without the field {name!r}; it has {names}"]
    if payload is SourcePayload.ARROW:
        try:
            with pa.ipc.open_stream(content) as reader:
                batches = list(reader)
            for batch in batches:
                # Without validation, reading values at damaged offsets would crash the process.
                batch.validate(full=True)
        except (pa.ArrowException, OSError) as cause:
            return [f"no Arrow stream: {cause}"]
        return [row for batch in batches for row in scalars(batch, columns)]
    return [object_of(line) for line in content.split(b"\n") if line.strip()]
