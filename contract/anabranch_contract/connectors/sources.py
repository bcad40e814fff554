"""Sources: their formats and options, checked; those that the runtime reads itself in full.

The service refuses by these functions what the runtime could not read; the runtime reads by them.
Pure: nothing is opened here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from anabranch_contract.errors import StreamError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_Choice = TypeVar("_Choice", bound=StrEnum)

#: Entries of Redis Streams.
REDIS_STREAM = "redis-stream"
#: Files of a directory, each read once, in the order in which they are found.
FILES = "files"
#: One Parquet file, replayed a fixed number of rows at a time.
RECORDED = "recorded"
#: Formats of Spark's that read files and have to be given their columns.
SPARK_FILES = ("parquet", "json", "csv", "orc", "xml", "avro")
#: Formats that share one source of the runtime.
FEEDS = (REDIS_STREAM, FILES)


class Payload(StrEnum):
    """The content of an entry of a Redis Stream.

    ``FIELDS``: a field per column, as text. ``JSON``: in one field a JSON object, or several, one
    per line. ``ARROW``: in one field an Arrow IPC stream.
    """

    FIELDS = "fields"
    JSON = "json"
    ARROW = "arrow"


class Start(StrEnum):
    """Where a stream that has never been read begins: with what is there, or with what comes."""

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
    payload: Payload = Payload.JSON
    field: str = "data"
    start: Start = Start.EARLIEST
    on_loss: OnLoss = OnLoss.STOP


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Which files of a directory are read: those that ``pattern`` (a shell's) fits.

    ``order`` is that of files that are found together; ``on_bad_file`` says what to do about one
    that can't be read.
    """

    type: FileType = FileType.PARQUET
    pattern: str = "*"
    on_bad_file: OnLoss = OnLoss.STOP
    order: FileOrder = FileOrder.MODIFIED


def redis_stream_options(options: Mapping[str, str]) -> RedisStreamOptions:
    """The options of a ``redis-stream`` source.

    Raises:
        StreamError: an option that isn't known or has no such value.

    >>> redis_stream_options({"keys": "a, b", "payload": "fields"}).keys
    ('a', 'b')
    """
    _known(options, ("url", "keys", "payload", "field", "start", "on_loss"), REDIS_STREAM)
    url = options.get("url")
    keys = tuple(k.strip() for k in options.get("keys", "").split(",") if k.strip())
    if "keys" in options and not keys:
        raise bad_option("keys", "no key is given", "name the Redis Streams, separated by commas")
    if len(set(keys)) < len(keys):
        raise bad_option("keys", "a key is given twice", "name each Redis Stream once")
    payload = _choice(Payload, options, "payload", Payload.JSON)
    default = "arrow" if payload is Payload.ARROW else "data"
    field = options.get("field", default)
    if not field or (payload is Payload.FIELDS and "field" in options):
        raise bad_option("field", "payload fields has no single field", "leave field out")
    start = _choice(Start, options, "start", Start.EARLIEST)
    on_loss = _choice(OnLoss, options, "on_loss", OnLoss.STOP)
    return RedisStreamOptions(url, keys, payload, field, start, on_loss)


def file_options(path: str | None, options: Mapping[str, str]) -> FileOptions:
    """The options of a ``files`` source that reads the directory ``path``.

    Raises:
        StreamError: no path, or an option that isn't known or has no such value.

    >>> file_options("/data/orders", {"type": "json", "order": "name"}).order
    <FileOrder.NAME: 'name'>
    """
    if not path:
        raise StreamError(
            "incomplete-source",
            "a files source needs the path of a directory",
            field="source.path",
            remedy="give it, as the runtime sees it",
        )
    _known(options, ("type", "pattern", "on_bad_file", "order"), FILES)
    return FileOptions(
        _choice(FileType, options, "type", FileType.PARQUET),
        options.get("pattern", "*") or "*",
        _choice(OnLoss, options, "on_bad_file", OnLoss.STOP),
        _choice(FileOrder, options, "order", FileOrder.MODIFIED),
    )


def _known(options: Mapping[str, str], names: Collection[str], format: str) -> None:
    for name in options:
        if name not in names:
            raise bad_option(
                name,
                f"a {format} source has no option {name!r}",
                "its options are " + ", ".join(names),
            )


def _choice(
    kind: type[_Choice], options: Mapping[str, str], name: str, default: _Choice
) -> _Choice:
    text = options.get(name, default.value)
    try:
        return kind(text)
    except ValueError:
        choices = ", ".join(kind)
        raise bad_option(name, f"{text!r} is no valid value", f"give one of {choices}") from None


def bad_option(option: str, message: str, remedy: str) -> StreamError:
    """Return the error that an option of a source is refused with."""
    return StreamError("bad-option", message, field=f"source.options.{option}", remedy=remedy)
