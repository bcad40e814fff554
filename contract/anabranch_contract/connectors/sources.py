"""Formats and options of sources, with parsers for all sources that the runtime reads itself.

The service checks registrations by the same functions with which the runtime parses options, so it
rejects every source that the runtime could not read. Nothing is opened here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from anabranch_contract.errors import StreamError

_Choice = TypeVar("_Choice", bound=StrEnum)

#: Format: entries of Redis Streams.
REDIS_STREAM = "redis-stream"
#: Format: files of a directory, each read once, in the order in which they are found.
FILES = "files"
#: Format: the versions of a registered query that another query reads. Options are :data:`RUN` and,
#: for a view, :data:`KEY`: the names of its identity columns as a JSON list.
QUERY = "query"
#: Key of a version file's metadata: number of rows of all versions up to this one.
TOTAL = b"anabranch_rows"
#: Key of a merged result file's metadata: batches and their numbers of rows, in the order of the
#: rows, as a JSON list of pairs.
BATCHES = b"anabranch_batches"
RUN, KEY = "run", "identity"
#: Format: one Parquet file, replayed with a fixed number of rows per batch.
RECORDED = "recorded"
#: Spark's file formats, which need the columns declared.
SPARK_FILES = ("parquet", "json", "csv", "orc", "xml", "avro")


class SourcePayload(StrEnum):
    """The content of an entry of a Redis Stream.

    ``FIELDS``: one field per column, as text. ``JSON``: one field with JSON objects, one per line.
    ``ARROW``: one field with an Arrow IPC stream.
    """

    FIELDS = "fields"
    JSON = "json"
    ARROW = "arrow"


class StreamStart(StrEnum):
    """The first data that a stream reads: the earliest data, or those after the latest."""

    EARLIEST = "earliest"
    LATEST = "latest"


class OnLoss(StrEnum):
    """The policy for lost input (removed entries, a bad file): the stream stops before the lost
    input, or skips it and records it as unread."""

    STOP = "stop"
    SKIP = "skip"


class FileType(StrEnum):
    """The format of the files of a directory; ``JSON``: one JSON object per line."""

    PARQUET = "parquet"
    ARROW = "arrow"
    JSON = "json"
    CSV = "csv"


class OnChangedFile(StrEnum):
    """The policy for a file that changes, or whose name is reused, after it was read: record the
    change, read the file as a new one, or stop the stream."""

    WARN = "warn"
    READ = "read"
    STOP = "stop"


class FileOrder(StrEnum):
    """The reading order of new files of one listing: by modification time and name, or by name."""

    MODIFIED = "modified"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class RedisStreamOptions:
    """Options of a ``redis-stream`` source.

    Attributes:
        url: URL of the server; None: the pipeline's own server.
        keys: keys of the Redis Streams; empty: only the stream's default key (``Keys.stream``).
        payload: format of an entry. ``field``: the field with the payload (unused with ``FIELDS``).
        start: where reading begins. ``on_loss``: policy for entries removed before they were read.
    """

    url: str | None = None
    keys: tuple[str, ...] = ()
    payload: SourcePayload = SourcePayload.JSON
    field: str = "data"
    start: StreamStart = StreamStart.EARLIEST
    on_loss: OnLoss = OnLoss.STOP


def redis_stream_options(options: Mapping[str, str]) -> RedisStreamOptions:
    """Parse the options of a ``redis-stream`` source.

    Raises:
        StreamError: an option or its value is unknown.

    >>> redis_stream_options({"keys": "a, b", "payload": "fields"}).keys
    ('a', 'b')
    """
    check_known(options, ("url", "keys", "payload", "field", "start", "on_loss"), REDIS_STREAM)
    url = options.get("url")
    keys = tuple(k.strip() for k in options.get("keys", "").split(",") if k.strip())
    if "keys" in options and not keys:
        raise bad_option("keys", "no key is given", "name the Redis Streams, separated by commas")
    if len(set(keys)) < len(keys):
        raise bad_option("keys", "a key is given twice", "name each Redis Stream once")
    payload = choice(SourcePayload, options, "payload", SourcePayload.JSON)
    default = "arrow" if payload is SourcePayload.ARROW else "data"
    field = options.get("field", default)
    if not field or (payload is SourcePayload.FIELDS and "field" in options):
        raise bad_option("field", "payload fields has no single field", "leave field out")
    start = choice(StreamStart, options, "start", StreamStart.EARLIEST)
    on_loss = choice(OnLoss, options, "on_loss", OnLoss.STOP)
    return RedisStreamOptions(url, keys, payload, field, start, on_loss)


def check_known(options: Mapping[str, str], names: Collection[str], format: str) -> None:
    """Refuse options that a source of ``format`` does not have.

    Raises:
        StreamError: ``bad-option``.
    """
    for name in options:
        if name not in names:
            raise bad_option(
                name,
                f"a {format} source has no option {name!r}",
                "its options are " + ", ".join(names),
            )


def choice(kind: type[_Choice], options: Mapping[str, str], name: str, default: _Choice) -> _Choice:
    """Return the value of a source's option that has a fixed set of values.

    Raises:
        StreamError: ``bad-option``.
    """
    text = options.get(name, default.value)
    try:
        return kind(text)
    except ValueError:
        choices = ", ".join(kind)
        raise bad_option(name, f"{text!r} is not a valid value", f"give one of {choices}") from None


def bad_option(option: str, message: str, remedy: str) -> StreamError:
    """Return the error for a refused option of a source."""
    return StreamError("bad-option", message, field=f"source.options.{option}", remedy=remedy)
