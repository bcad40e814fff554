"""Sink that appends results to a Redis Stream, each exactly once.

Entry ids are ``<batch + 1>-<number within the batch>``. A batch's rows are sorted by their JSON
text, so their order is the same in every attempt, and an entry id always means the same row. If an
earlier attempt has written part of a batch, the next attempt continues after it: entries that a
reader has seen stay, and none is duplicated.

The hash ``{<stream>}:anabranch`` (``owner``, ``batch``, ``next``) has the position in the stream;
the script that appends entries advances it in the same step. The owner is one query of one
pipeline, in any of its runs; writes of any other are refused.

An entry has one field, ``data``: a row as a JSON object, or an Arrow IPC stream of up to ``rows``
rows, by the option ``payload``. Another pipeline can read the Redis Stream as a source.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import redis
from redis.exceptions import ResponseError

from anabranch_contract.connectors.sinks import ARROW_ROWS, SinkPayload
from anabranch_contract.queries.runs import query_of
from anabranch_runtime.errors import SinkError
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.rows import ROWS, json_table

#: Name of an entry's field, which is also the default of Redis Streams sources.
FIELD = "data"
#: Entries per call of the script: few enough not to block the server for long.
ENTRIES = 500
#: Maximum bytes of entries per call; a single larger entry has a call of its own.
BYTES = 1 << 20
#: Seconds to wait for the server, for a connection and for an answer.
PATIENCE = 10.0

#: Beginnings of errors of the server: others have added later entries; the key is no stream.
_FOREIGN = ("ID specified in XADD", "WRONGTYPE")
#: Script. KEYS: stream, position. ARGV: owner, batch, number of the first entry, maxlen (0: none),
#: field, entries... Returns the number of the next entry, or the stream's other owner.
_APPEND = """
local known = redis.call('HMGET', KEYS[2], 'owner', 'batch', 'next')
if known[1] and known[1] ~= ARGV[1] then return {'owner', known[1]} end
local batch, first = tonumber(ARGV[2]), tonumber(ARGV[3])
local last, upcoming = tonumber(known[2] or -1), tonumber(known[3] or 0)
local total = first + #ARGV - 5
if batch < last then return {'done', tostring(total)} end
if batch > last then upcoming = 0 end
if upcoming < first then return {'gap', tostring(upcoming)} end
for number = upcoming, total - 1 do
  local id = string.format('%d-%d', batch + 1, number)
  local entry = ARGV[6 + number - first]
  if ARGV[4] == '0' then
    redis.call('XADD', KEYS[1], id, ARGV[5], entry)
  else
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[4], id, ARGV[5], entry)
  end
end
if total > upcoming then upcoming = total end
redis.call('HSET', KEYS[2], 'owner', ARGV[1], 'batch', ARGV[2], 'next', tostring(upcoming))
return {'done', tostring(upcoming)}
"""


def default_stream(namespace: str, query: str) -> str:
    """Return the default key of a query's results, if its sink names no stream."""
    return f"{namespace}:results:{query}"


def position_key(stream: str) -> str:
    """Return the key of the hash with the position in ``stream``, on the same node of a cluster."""
    return f"{stream}:anabranch" if "{" in stream else f"{{{stream}}}:anabranch"


def append(delivery: Delivery, *, url: str, namespace: str, identity: str) -> None:
    """Append a batch's results to a Redis Stream, unless the stream has them already.

    Args:
        delivery: one query's results of one batch.
        url: the pipeline's own Redis, used if the sink names no server.
        namespace: the pipeline's namespace.
        identity: id of the pipeline's state.

    Raises:
        SinkError: the stream belongs to another query or pipeline, or has entries of others.
        redis.RedisError: the server does not answer.
    """
    sink = delivery.sink
    stream = sink.option("stream") or default_stream(namespace, delivery.query)
    payload = SinkPayload(sink.option("payload") or SinkPayload.JSON)
    connection = redis.Redis.from_url(
        sink.option("url") or url, socket_timeout=PATIENCE, socket_connect_timeout=PATIENCE
    )
    try:
        script = connection.register_script(_APPEND)
        number = 0
        for chunk in _chunks(_entries(delivery, payload)):
            head = (
                f"{namespace}/{query_of(delivery.query)}/{identity}",
                delivery.batch,
                number,
                sink.option("maxlen") or 0,
                FIELD,
            )
            try:
                found = script(keys=[stream, position_key(stream)], args=[*head, *chunk])
            except ResponseError as cause:
                if not any(sign in str(cause) for sign in _FOREIGN):
                    raise
                raise SinkError(
                    "foreign-stream",
                    f"the Redis Stream {stream!r} rejects entries of batch {delivery.batch}: "
                    f"{cause}",
                    field="sink.options.stream",
                    remedy="another program writes to it; name another stream",
                ) from cause
            _check_append(stream, [bytes(part).decode() for part in found])
            number += len(chunk)
    finally:
        connection.close()


def _check_append(stream: str, answer: list[str]) -> None:
    outcome, detail = answer
    if outcome == "owner":
        raise SinkError(
            "foreign-stream",
            f"the Redis Stream {stream!r} belongs to {detail}",
            field="sink.options.stream",
            remedy=f"name another stream; if the owner has ended, delete {position_key(stream)!r}",
        )
    if outcome == "gap":
        raise SinkError(
            "foreign-stream",
            f"the Redis Stream {stream!r} went back to entry {detail} of this batch",
            field="sink.options.stream",
            remedy="end the other process that writes as this pipeline",
        )


def _entries(delivery: Delivery, payload: SinkPayload) -> Iterator[bytes]:
    """Yield the entries of a delivery to a Redis Stream, in the same order in every attempt."""
    table = delivery.read()
    text = json_table(table)
    order = pc.sort_indices(text)
    if payload is SinkPayload.JSON:
        for first in range(0, len(order), ROWS):
            yield from text.take(order.slice(first, ROWS)).cast(pa.large_binary()).to_pylist()
        return
    size = int(delivery.sink.option("rows") or ARROW_ROWS)
    for first in range(0, len(order), size):
        rows = table.take(order.slice(first, size)).combine_chunks()
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, rows.schema) as writer:
            writer.write_table(rows)
        yield out.getvalue().to_pybytes()


def _chunks(entries: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Group a Redis Stream's entries into calls of the script that appends them."""
    chunk: list[bytes] = []
    size = 0
    for entry in entries:
        if chunk and (len(chunk) == ENTRIES or size + len(entry) > BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(entry)
        size += len(entry)
    if chunk:
        yield chunk
