"""Reader of planned offsets of Kafka partitions: committed messages, decoded in columns."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec
from numpy.typing import NDArray

from anabranch_contract.connectors.kafka_sources import CONNECTION, MessagePayload
from anabranch_contract.queries.types import DataType, TypeKind, parse_type
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import EntriesLost, SourceError
from anabranch_runtime.sources.avro.decode import from_avro
from anabranch_runtime.sources.decode import (
    from_messages,
    from_streams,
    from_utf8,
    schema_of,
    with_columns,
)
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
from anabranch_runtime.sources.protobuf.decode import from_protobuf

#: Number of messages and of bytes that are decoded together, and number of messages while their
#: size is unknown.
MESSAGES, BYTES, FIRST = 20_000, 1 << 24, 256
#: Number of messages that one call takes while their partition is not known.
FEW = 64
#: Seconds for which a call waits for messages; seconds without messages after which it fails.
POLL, PATIENCE = 0.005, 5.0
#: Payload whose messages have schemas -> its decoder.
_DECODERS = {MessagePayload.AVRO: from_avro, MessagePayload.PROTOBUF: from_protobuf}
_NOTHING = f"no message for {PATIENCE:.0f} s"
#: Names of added columns with offsets and pieces; no column of a stream has such a name.
_OFFSET, _PIECE = "#offset", "#piece"


@dataclass(slots=True)
class _Range:
    """A planned range of a partition's offsets: piece, next offset, number of deleted offsets."""

    piece: Piece
    at: int
    lost: int = 0

    @property
    def left(self) -> int:
        """Number of the range's offsets that are still to be read."""
        return int(self.piece.where["last"]) - self.at

    @property
    def partition(self) -> TopicPartition:
        """The range's partition, positioned at the next offset."""
        return TopicPartition(self.piece.where["topic"], self.piece.where["partition"], self.at)


@dataclass(slots=True)
class _Group:
    """Pieces that are decoded together: their messages, each one's piece, and the size in bytes."""

    pieces: list[Piece] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    size: int = 0

    def taken(self, errors: dict[int, SourceError]) -> Iterator[tuple[Piece, Decoded]]:
        """Decode the collected messages, and drop them; yield their rows, with the first piece. If
        they can't be decoded for now, all pieces get an error in ``errors``."""
        messages, numbers = self.messages, self.numbers
        self.messages, self.numbers, self.size = [], [], 0
        try:
            if messages:
                for decoded in _rows(messages, np.array(numbers), self.pieces):
                    yield self.pieces[0], decoded
        except SourceError as cause:
            errors.update((piece.number, cause) for piece in self.pieces)


def read_topics(
    pieces: Iterable[Piece], failed: Callable[[Piece, SourceError], None]
) -> Iterator[tuple[Piece, Decoded]]:
    """Yield the rows of ranges of offsets. All ranges are assigned to the client at once.

    Pieces of one stream are decoded together, unless a partition has several pieces in the batch;
    their rows are yielded with the first of these pieces.

    Args:
        pieces: pieces of any streams.
        failed: called with a piece, and its error, after all of its rows that could be read:
            ``EntriesLost`` if its first messages were deleted.
    """
    clients: dict[str, list[Piece]] = defaultdict(list)
    for piece in pieces:
        options = piece.where["options"]
        clients[repr([options.get(name) for name in CONNECTION])].append(piece)
    for some in clients.values():
        yield from _read(some, failed)


def read_offsets(piece: Piece) -> Iterator[Decoded]:
    """Yield the rows of a range of a Kafka partition's offsets.

    Raises:
        EntriesLost: the first messages of the range were deleted; all others have been yielded.
        SourceError: no broker answers, or another topic has the name.
    """
    errors = list[SourceError]()
    for _, decoded in read_topics([piece], lambda _, error: errors.append(error)):
        yield decoded
    for error in errors:
        raise error


def _read(
    pieces: Sequence[Piece], failed: Callable[[Piece, SourceError], None]
) -> Iterator[tuple[Piece, Decoded]]:
    """Yield the rows of pieces, in rounds with at most one range of each partition."""
    groups: dict[object, _Group] = defaultdict(_Group)
    place = dict[int, tuple[_Group, int]]()
    rounds = list[list[_Range]]()
    turn: dict[str, int] = defaultdict(int)
    for piece in pieces:
        group = groups[piece.feed if piece.where["alone"] else piece.number]
        place[piece.number] = group, len(group.pieces)
        group.pieces.append(piece)
        # A client can read a partition only from one position at a time.
        if turn[piece.source] == len(rounds):
            rounds.append([])
        rounds[turn[piece.source]].append(_Range(piece, piece.where["first"]))
        turn[piece.source] += 1
    errors = dict[int, SourceError]()
    for ranges in rounds:
        for one, messages in _messages(ranges, errors):
            group, index = place[one.piece.number]
            group.messages += messages
            group.numbers += [index] * len(messages)
            group.size += sum([len(message) for message in messages])
            if len(group.messages) >= MESSAGES or group.size >= BYTES:
                yield from group.taken(errors)
        errors |= {
            one.piece.number: messages_lost(one.piece.source, one.lost)
            for one in ranges
            if one.lost and one.piece.number not in errors
        }
    described = _describe(pieces)
    for group in groups.values():
        yield from group.taken(errors)
    for piece in pieces:
        error = _replaced(described[piece.where["topic"]], piece) or errors.get(piece.number)
        if error is not None:
            failed(piece, error)


def messages_lost(place: str, count: int) -> EntriesLost:
    """Return the error for ``count`` offsets of a partition that no longer exist."""
    return EntriesLost(
        "messages-lost",
        f"{count} offsets were deleted from the partition before they were read",
        field=place,
        remedy="let the topic keep more (retention.ms, retention.bytes); to go on without "
        "the messages, set"
        " the source's option on_loss to skip",
        count=count,
    )


def topic_replaced(place: str) -> SourceError:
    """Return the error for a Kafka topic that was deleted and created again."""
    return SourceError(
        "topic-replaced",
        "the topic was deleted and created again",
        field=place,
        remedy="set the source's option on_loss to skip to read the new one from its beginning",
    )


def _messages(
    ranges: Sequence[_Range], errors: dict[int, SourceError]
) -> Iterator[tuple[_Range, list[Message]]]:
    """Yield committed messages of ranges, in parts; a failed piece gets an error in ``errors``."""
    options = ranges[0].piece.where["options"]
    waiting = {(r.piece.where["topic"], r.piece.where["partition"]): r for r in ranges}

    def fail(error: Callable[[str], SourceError]) -> None:
        errors.update((one.piece.number, error(one.piece.source)) for one in waiting.values())

    reader = None
    try:
        reader = consumer(options, {topic for topic, _ in waiting})
        reader.assign([one.partition for one in ranges])
        most, now, deadline = FIRST, ranges[0], time.monotonic() + PATIENCE
        while waiting:
            lefts = [one.left for one in waiting.values()]
            # At most the rest of the range is taken, as messages arrive partition by partition.
            wanted = now.left if now.left > 0 else max(min(lefts), FEW)
            given = reader.consume(min(wanted, sum(lefts), most), POLL)
            if given:
                deadline = time.monotonic() + PATIENCE
                size = sum([len(message) for message in given]) / len(given)
                most = int(min(max(BYTES / max(size, 1.0), 1), MESSAGES))
            elif time.monotonic() > deadline:
                fail(lambda place: no_answer(options, place, _NOTHING))
                return
            places = [(message.topic(), message.partition()) for message in given]
            ended = list[_Range]()
            begin = 0
            for place, run in groupby(places):
                part = given[begin : begin + len(list(run))]
                begin += len(part)
                if place not in waiting:
                    continue
                now = waiting[place]
                found = _within(now, part, reader, errors)
                if found:
                    yield now, found
                if now.left <= 0 or now.piece.number in errors:
                    ended.append(waiting.pop(place))
            if ended and waiting:
                reader.incremental_unassign([one.partition for one in ended])
    except KafkaException as cause:
        problem = cause
        fail(lambda place: failure(problem, options, place))
    finally:
        if reader is not None:
            reader.unassign()


def _within(
    one: _Range, given: list[Message], reader: Consumer, errors: dict[int, SourceError]
) -> list[Message]:
    """Return the messages in ``given`` that are in a partition's range; advance the range."""
    last = one.piece.where["last"]
    found = [message for message in given if message.error() is None]
    if len(found) < len(given):
        reached, error = _judged([message for message in given if message.error() is not None])
        if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
            lowest = min(_lowest(one.piece), last)
            if lowest <= one.at:
                errors[one.piece.number] = SourceError(
                    "messages-lost",
                    f"the partition ends before offset {one.at}",
                    field=one.piece.source,
                    remedy="restore the partition, or register the stream again",
                )
                return []
            one.lost += lowest - one.at
            one.at = lowest
            if one.left > 0:
                reader.incremental_unassign([one.partition])
                reader.incremental_assign([one.partition])
            return []
        if error is not None:
            options = one.piece.where["options"]
            errors[one.piece.number] = failure(error, options, one.piece.source)
        if reached >= last:
            one.at = last
    if found and found[-1].offset() >= last:
        found = [message for message in found if message.offset() < last]
        one.at = last
    elif found:
        one.at = max(one.at, found[-1].offset() + 1)
    return found


def _judged(notes: Sequence[Message]) -> tuple[int, KafkaError | None]:
    """Return the end offset in the client's ``notes`` (-1: none), and the last fatal error."""
    reached, error = -1, None
    for note in notes:
        problem = note.error()
        if problem.code() == KafkaError._PARTITION_EOF:
            reached = max(reached, note.offset())
        elif not problem.retriable() or problem.code() == KafkaError._AUTO_OFFSET_RESET:
            error = problem
    return reached, error


def _lowest(piece: Piece) -> int:
    """Return the first existing offset of a piece's partition."""
    where = piece.where
    partition = TopicPartition(where["topic"], where["partition"])
    found = admin(where["options"]).list_offsets(
        {partition: OffsetSpec.earliest()}, request_timeout=PATIENCE
    )
    return int(found[partition].result().offset)


def _describe(pieces: Sequence[Piece]) -> dict[str, Future[Any]]:
    """Request from the brokers descriptions of the pieces' topics."""
    names = TopicCollection(sorted({piece.where["topic"] for piece in pieces}))
    found: dict[str, Future[Any]] = admin(pieces[0].where["options"]).describe_topics(
        names, request_timeout=PATIENCE
    )
    return found


def _replaced(description: Future[Any], piece: Piece) -> SourceError | None:
    """Return an error if ``description``, which was requested after a piece's messages had been
    read, lacks the id of the planned topic; ids of topics are never used again."""
    try:
        found = str(description.result().topic_id)
    except KafkaException as cause:
        return failure(cause, piece.where["options"], piece.source)
    return topic_replaced(piece.source) if found != piece.where["id"] else None


def _rows(
    messages: list[Message], numbers: NDArray[np.int64], pieces: Sequence[Piece]
) -> Iterator[Decoded]:
    """Decode Kafka messages to rows; some columns have parts of the message, such as its key.
    ``numbers``: the index of each message's piece."""
    piece = pieces[0]
    where = piece.where
    payload = MessagePayload(where["payload"])
    values = [message.value() for message in messages]
    beside, bad = _beside(messages, numbers, pieces)
    deletes = where["tombstones"] == "delete" and payload is not MessagePayload.ARROW
    if None in values and not (deletes and payload in _DECODERS):
        null = np.fromiter([value is None for value in values], np.bool_, len(values))
        if deletes:
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
        yield _arranged(with_columns(nothing, beside.filter(pa.array(bad))), pieces)
        values = [values[i] for i in np.flatnonzero(~bad)]
        beside = beside.filter(pa.array(~bad))
    if not values:
        return
    if payload in _DECODERS:
        rows = _DECODERS[payload](values, columns, beside, where["options"])
    elif payload is MessagePayload.ARROW:
        rows = from_streams(values, columns, beside, piece.optional)
    else:
        rows = from_messages(values, columns, beside, envelope=where["envelope"])
    for decoded in rows:
        yield _arranged(decoded, pieces)


def _beside(
    messages: Sequence[Message], numbers: NDArray[np.int64], pieces: Sequence[Piece]
) -> tuple[pa.RecordBatch, NDArray[np.bool_]]:
    """Return the needed parts of messages as columns, and the mask of messages with unfit keys."""
    piece = pieces[0]
    kinds = {name: parse_type(kind) for name, kind in piece.columns}
    found = {
        _OFFSET: pa.array([message.offset() for message in messages], pa.int64()),
        _PIECE: pa.array(numbers),
    }
    bad = np.zeros(len(messages), np.bool_)
    for name, part in piece.where["parts"].items():
        kind = kinds[name]
        if part == "key":
            keys = pa.array([message.key() for message in messages], pa.binary())
            if kind.kind is not TypeKind.BINARY:
                keys, wrong = convert_values(keys, arrow_type(kind), from_utf8(kind))
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
            found[name] = _of_pieces(pieces, part, arrow_type(kind)).take(found[_PIECE])
    return pa.RecordBatch.from_pydict(found), bad


def _of_pieces(pieces: Sequence[Piece], part: str, kind: pa.DataType) -> pa.Array:
    """Return the topic or the partition of each piece as a column."""
    return pa.array([piece.where[part] for piece in pieces], kind)


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


def _arranged(decoded: Decoded, pieces: Sequence[Piece]) -> Decoded:
    """Return decoded rows with the declared columns in order; with offsets for invalid rows."""
    rows, invalid = decoded
    names = [name for name, _ in pieces[0].columns]
    if invalid is None:
        return rows.select(names), None
    number = invalid.column(_PIECE)
    place = pa.StructArray.from_arrays(
        [
            _of_pieces(pieces, "topic", pa.string()).take(number),
            _of_pieces(pieces, "partition", pa.int64()).take(number),
            invalid.column(_OFFSET),
            raw_text(invalid.column(ARRIVED)),
        ],
        ["topic", "partition", "offset", "value"],
    )
    return rows.select(names), invalid_rows(invalid.select(names), place)
