"""Reader of planned offsets of a Kafka partition: committed messages, decoded in columns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import (
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec
from numpy.typing import NDArray

from anabranch_contract.queries.types import DataType, TypeKind, parse_type
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import EntriesLost, SourceError
from anabranch_runtime.sources.decode import from_messages, from_text, schema_of, with_columns
from anabranch_runtime.sources.feed import Piece
from anabranch_runtime.sources.invalid import (
    ARRIVED,
    Decoded,
    convert_values,
    invalid_rows,
    raw_text,
    unreadable,
)
from anabranch_runtime.sources.kafka.client import admin, consumer, failure, no_answer

#: Number of messages and bytes that are decoded at once, and of messages while their size is
#: unknown.
MESSAGES, BYTES, FIRST = 20_000, 1 << 24, 256
#: Seconds of a call that waits for messages, and without any message after which reading fails.
POLL, PATIENCE = 0.05, 5.0
#: Name of the column of offsets beside a stream's, which has no such name.
_OFFSET = "#offset"


def read_offsets(piece: Piece) -> Iterator[Decoded]:
    """Yield the rows of a range of offsets.

    Raises:
        EntriesLost: the first messages of the range were deleted; all others have been yielded.
        SourceError: no broker answers, or another topic has the name.
    """
    where = piece.where
    lost = 0
    for messages in _messages(piece):
        if isinstance(messages, int):
            lost += messages
        else:
            yield from _rows(messages, piece)
    _check_topic(_describe(where), piece)
    if lost:
        raise messages_lost(piece.source, lost)


def messages_lost(place: str, count: int) -> EntriesLost:
    """Return the error of ``count`` offsets of a partition that no longer exist."""
    return EntriesLost(
        "messages-lost",
        f"{count} offsets were deleted from the partition before they were read",
        field=place,
        remedy="let the topic keep more (retention.ms, retention.bytes); to go on without them, set"
        " the source's option on_loss to skip",
        count=count,
    )


def topic_replaced(place: str) -> SourceError:
    """Return the error of a topic that was deleted and created again."""
    return SourceError(
        "topic-replaced",
        "the topic was deleted and created again",
        field=place,
        remedy="set the source's option on_loss to skip to read the new one from its beginning",
    )


def _messages(piece: Piece) -> Iterator[list[Message] | int]:
    """Yield the committed messages of a range in parts, and the number of its deleted offsets."""
    where = piece.where
    at, last, options = where["first"], where["last"], where["options"]
    most = FIRST
    try:
        reader = consumer(options, where["topic"])
    except KafkaException as cause:
        raise failure(cause, options, piece.source) from cause
    deadline = time.monotonic() + PATIENCE
    try:
        reader.assign([TopicPartition(where["topic"], where["partition"], at)])
        while at < last:
            given = reader.consume(min(most, last - at), POLL)
            found = [message for message in given if message.error() is None]
            if len(found) < len(given):
                notes = [message for message in given if message.error() is not None]
                reached, error = _judged(notes)
                if reached >= last:
                    at = last
                if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                    lowest = min(_lowest(piece), last)
                    if lowest <= at:
                        raise SourceError(
                            "messages-lost",
                            f"the partition ends before offset {at}",
                            field=piece.source,
                            remedy="restore it, or register the stream again",
                        )
                    yield lowest - at
                    at = lowest
                    reader.assign([TopicPartition(where["topic"], where["partition"], at)])
                elif error is not None:
                    raise failure(error, options, piece.source)
            if found and found[-1].offset() >= last:
                found = [message for message in found if message.offset() < last]
                at = last
            if found:
                at = max(at, found[-1].offset() + 1)
                size = sum([len(message) for message in found]) / len(found)
                most = int(min(max(BYTES / max(size, 1.0), 1), MESSAGES))
                yield found
            if given:
                deadline = time.monotonic() + PATIENCE
            elif time.monotonic() > deadline:
                raise no_answer(options, piece.source, f"no message for {PATIENCE:.0f} s")
    except KafkaException as cause:
        raise failure(cause, options, piece.source) from cause
    finally:
        reader.unassign()


def _judged(notes: Sequence[Message]) -> tuple[int, KafkaError | None]:
    """Return the end of the partition, if noted, else -1; and an error, if noted."""
    reached, error = -1, None
    for note in notes:
        problem = note.error()
        if problem.code() == KafkaError._PARTITION_EOF:
            reached = max(reached, note.offset())
        elif not problem.retriable() or problem.code() == KafkaError._AUTO_OFFSET_RESET:
            error = problem
    return reached, error


def _lowest(piece: Piece) -> int:
    """Return the first offset of a piece's partition that still exists."""
    where = piece.where
    partition = TopicPartition(where["topic"], where["partition"])
    found = admin(where["options"]).list_offsets(
        {partition: OffsetSpec.earliest()}, request_timeout=PATIENCE
    )
    return int(found[partition].result().offset)


def _describe(where: Mapping[str, Any]) -> Future[Any]:
    names = TopicCollection([where["topic"]])
    found: dict[str, Future[Any]] = admin(where["options"]).describe_topics(
        names, request_timeout=PATIENCE
    )
    return found[where["topic"]]


def _check_topic(description: Future[Any], piece: Piece) -> None:
    """Check, after its messages have been read, that they are from the planned topic: ids of topics
    never return.
    """
    try:
        found = str(description.result().topic_id)
    except KafkaException as cause:
        raise failure(cause, piece.where["options"], piece.source) from cause
    if found != piece.where["id"]:
        raise topic_replaced(piece.source)


def _rows(messages: list[Message], piece: Piece) -> Iterator[Decoded]:
    """Yield the rows of messages, with parts of messages in their columns."""
    where = piece.where
    values = [message.value() for message in messages]
    beside, bad = _beside(messages, piece)
    if None in values:
        null = np.fromiter([value is None for value in values], np.bool_, len(values))
        if where["tombstones"] == "delete":
            values = [b"{}" if value is None else value for value in values]
        elif where["tombstones"] == "ignore":
            values = [value for value in values if value is not None]
            beside, bad = beside.filter(pa.array(~null)), bad[~null]
        else:
            bad = bad | null
    columns = [(name, kind) for name, kind in piece.columns if name not in where["parts"]]
    if bad.any():
        gone = pa.array([values[i] for i in np.flatnonzero(bad)], pa.binary())
        nothing = unreadable(schema_of(columns), gone)
        yield _arranged(with_columns(nothing, beside.filter(pa.array(bad))), piece)
        values = [values[i] for i in np.flatnonzero(~bad)]
        beside = beside.filter(pa.array(~bad))
    if values:
        for decoded in from_messages(values, columns, beside, envelope=where["envelope"]):
            yield _arranged(decoded, piece)


def _beside(messages: Sequence[Message], piece: Piece) -> tuple[pa.RecordBatch, NDArray[np.bool_]]:
    """Return the wanted parts of messages as columns, and which messages have a key that does not
    fit.
    """
    kinds = {name: parse_type(kind) for name, kind in piece.columns}
    found = {_OFFSET: pa.array([message.offset() for message in messages], pa.int64())}
    bad = np.zeros(len(messages), np.bool_)
    for name, part in piece.where["parts"].items():
        kind = kinds[name]
        if part == "key":
            keys = pa.array([message.key() for message in messages], pa.binary())
            if kind.kind is not TypeKind.BINARY:
                keys, wrong = convert_values(keys, arrow_type(kind), _key(kind))
                bad = bad if wrong is None else wrong
            found[name] = keys
        elif part == "offset":
            found[name] = found[_OFFSET]
        elif part == "timestamp":
            times = [message.timestamp()[1] for message in messages]
            known = pa.array(times, pa.timestamp("ms", tz="UTC"))
            found[name] = known.cast(arrow_type(kind))
        elif part == "headers":
            found[name] = _headers(messages, kind)
        else:
            one = pa.scalar(piece.where[part], arrow_type(kind))
            found[name] = pa.repeat(one, len(messages))
    return pa.RecordBatch.from_pydict(found), bad


def _key(kind: DataType) -> Callable[[pa.Array], pa.Array]:
    """Return the function that converts keys, as text, to values of ``kind``."""
    convert = from_text(kind)
    return lambda column: convert(column.cast(pa.string()))


def _headers(messages: Sequence[Message], kind: DataType) -> pa.Array:
    text = kind.element.fields[1][1].kind is TypeKind.STRING
    rows = [
        [
            {"key": name, "value": value.decode(errors="replace") if text and value else value}
            for name, value in message.headers() or ()
        ]
        for message in messages
    ]
    return pa.array(rows, arrow_type(kind))


def _arranged(decoded: Decoded, piece: Piece) -> Decoded:
    """Return decoded rows with the declared columns in order, and the places of invalid rows."""
    rows, invalid = decoded
    names = [name for name, _ in piece.columns]
    if invalid is None:
        return rows.select(names), None
    count, where = invalid.num_rows, piece.where
    place = pa.StructArray.from_arrays(
        [
            pa.repeat(where["topic"], count),
            pa.repeat(where["partition"], count),
            invalid.column(_OFFSET),
            raw_text(invalid.column(ARRIVED)),
        ],
        ["topic", "partition", "offset", "value"],
    )
    return rows.select(names), invalid_rows(invalid.select(names), place)
