"""Formats and options of sources, checked; in full for sources that the runtime reads itself.

The service rejects with these functions every source that the runtime could not read; the runtime
parses with them. Pure: nothing is opened here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from anabranch_contract.errors import StreamError

_Choice = TypeVar("_Choice", bound=StrEnum)

#: Entries of Redis Streams.
REDIS_STREAM = "redis-stream"
#: Files of a directory, each read once, in the order in which they are found.
FILES = "files"
#: One Parquet file, replayed a fixed number of rows at a time.
RECORDED = "recorded"
#: Formats of Spark's that read files and have to be given their columns.
SPARK_FILES = ("parquet", "json", "csv", "orc", "xml", "avro")


class SourcePayload(StrEnum):
    """The content of an entry of a Redis Stream.

    ``FIELDS``: a field per column, as text. ``JSON``: in one field a JSON object, or several, one
    per line. ``ARROW``: in one field an Arrow IPC stream.
    """

    FIELDS = "fields"
    JSON = "json"
    ARROW = "arrow"


class StreamStart(StrEnum):
    """First data of a stream without a position: existing data, or new data only."""

    EARLIEST = "earliest"
    LATEST = "latest"


class OnLoss(StrEnum):
    """The policy for input that can't be read any more (entries that were removed, a bad file): the
    stream stops before it, or goes on after it and the input is recorded as unread.
    """

    STOP = "stop"
    SKIP = "skip"


class FileType(StrEnum):
    """The format of the files of a directory; ``JSON``: one object per line."""

    PARQUET = "parquet"
    ARROW = "arrow"
    JSON = "json"
    CSV = "csv"


class OnChangedFile(StrEnum):
    """The policy for a file that changes after it was read, or whose name is used again: the change
    is recorded, the file is read as a new one, or the stream stops.
    """

    WARN = "warn"
    READ = "read"
    STOP = "stop"


class FileOrder(StrEnum):
    """The order in which files that are found together are read: by time of modification and name,
    or by name alone.
    """

    MODIFIED = "modified"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class RedisStreamOptions:
    """Which Redis Streams a stream is read from, and how.

    Attributes:
        url: of the server; None: the pipeline's own.
        keys: the Redis Streams; empty: one, named for the stream (``Keys.stream``).
        payload: what an entry holds. ``field``: where (unused with ``FIELDS``).
        start: where reading begins. ``on_loss``: what to do about entries removed unread.
    """

    url: str | None = None
    keys: tuple[str, ...] = ()
    payload: SourcePayload = SourcePayload.JSON
    field: str = "data"
    start: StreamStart = StreamStart.EARLIEST
    on_loss: OnLoss = OnLoss.STOP


def redis_stream_options(options: Mapping[str, str]) -> RedisStreamOptions:
    """The options of a ``redis-stream`` source.

    Raises:
        StreamError: an option that isn't known or has no such value.

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
    """The value of an option that has some few.

    Raises:
        StreamError: ``bad-option``.
    """
    text = options.get(name, default.value)
    try:
        return kind(text)
    except ValueError:
        choices = ", ".join(kind)
        raise bad_option(name, f"{text!r} is no valid value", f"give one of {choices}") from None


def bad_option(option: str, message: str, remedy: str) -> StreamError:
    """Return the error that an option of a source is refused with."""
    return StreamError("bad-option", message, field=f"source.options.{option}", remedy=remedy)
