"""Sampling of Redis Streams: a few entries, and their total number."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from anabranch_contract.connectors.addresses import check_redis
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.secrets import resolved
from anabranch_contract.connectors.sources import (
    REDIS_STREAM,
    RedisStreamOptions,
    SourcePayload,
    StreamStart,
    redis_stream_options,
)
from anabranch_contract.protocol.registered import SourceRecord
from anabranch_service.streaming.samples.fit import Form
from anabranch_service.streaming.samples.sample import (
    BYTES,
    SECONDS,
    Row,
    Sample,
    Unreadable,
    Wanted,
    arrow_rows,
    decoded,
    object_of,
)

_FORMS = {
    SourcePayload.FIELDS: Form.TEXT,
    SourcePayload.JSON: Form.JSON,
    SourcePayload.ARROW: Form.TYPED,
}
#: URL of the pipeline's own Redis, and the default key of the stream in it.
Own = tuple[str, str]


def sample_entries(
    source: SourceRecord, columns: Wanted, most: int, policy: AccessPolicy, own: Own
) -> Sample:
    """Read at most ``most`` rows from the entries of Redis Streams; see :func:`take`."""
    options = redis_stream_options(source.options)
    url = own[0]
    if options.url is not None:
        url = resolved("source", REDIS_STREAM, {"url": options.url}, os.environ)["url"]
        check_redis(url, policy, os.path.realpath, "source.options.url")
    sample = Sample(_FORMS[options.payload], unit="entries", found=0)
    unknown = columns is None and "payload" not in source.options
    server = Redis.from_url(url, socket_timeout=SECONDS, socket_connect_timeout=SECONDS)
    with server:
        for key in options.keys or (own[1],):
            try:
                sample.found = (sample.found or 0) + int(server.xlen(key))
                newest = options.start is StreamStart.LATEST
                entries = _bounded(server, key, most - len(sample.rows), newest=newest)
            except RedisError as cause:
                raise _no_entries(key, url, cause) from cause
            if entries and unknown:
                unknown, payload = False, _payload(entries[0][1], options.field)
                sample.options, sample.form = {"payload": payload.value}, _FORMS[payload]
                options = redis_stream_options({**source.options, **sample.options})
            for ident, entry in entries:
                rows = _rows_of_entry(entry, options, columns, sample)
                sample.add(rows, most, f"{key}, entry {ident}", numbered=False)
            if entries:
                sample.places.append(key)
    if options.start is StreamStart.LATEST and sample.found:
        sample.limits.append("with start latest only later entries will be read, not these")
    return sample


def _payload(entry: Mapping[bytes, bytes], name: str) -> SourcePayload:
    """Detect the payload format of a stream from one of its entries."""
    if b"arrow" in entry:
        return SourcePayload.ARROW
    is_json = entry.get(name.encode(), b"").lstrip().startswith(b"{")
    return SourcePayload.JSON if is_json else SourcePayload.FIELDS


def _bounded(
    server: Redis, key: str, most: int, *, newest: bool
) -> list[tuple[str, Mapping[bytes, bytes]]]:
    """Read at most ``most`` entries, one at a time, since each may be as large as Redis allows."""
    found: list[tuple[str, Mapping[bytes, bytes]]] = []
    size, at = 0, "+" if newest else "-"
    while len(found) < most and size < BYTES:
        page: Any = server.xrevrange(key, at, "-", 1) if newest else server.xrange(key, at, "+", 1)
        if not page:
            break
        ident, values = page[0]
        at = f"({ident.decode()}"
        found.append((ident.decode(), values))
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
    entry: Mapping[bytes, bytes], options: RedisStreamOptions, columns: Wanted, sample: Sample
) -> list[Row]:
    if options.payload is SourcePayload.FIELDS:
        if columns is None:
            return [{decoded(name): decoded(value) for name, value in entry.items()}]
        return [{c: decoded(entry[c.encode()]) for c in columns if c.encode() in entry}]
    content = entry.get(options.field.encode())
    if content is None:
        names = ", ".join(decoded(n) for n in entry)
        return [f"an entry without the field {options.field!r}; it has {names}"]
    if options.payload is SourcePayload.ARROW:
        rows, declared = arrow_rows(content, columns)
        sample.declared += [declared] if columns is None and declared is not None else []
        return rows
    return [object_of(line) for line in content.split(b"\n") if line.strip()]
