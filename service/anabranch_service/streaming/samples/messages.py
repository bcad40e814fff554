"""Sampling of Kafka topics: a few committed messages, and the number of offsets.

The client joins no consumer group and commits nothing, so other consumers are not affected.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as BrokerError

from anabranch_contract.connectors.csv_text import QUOTED, CsvDialect
from anabranch_contract.connectors.kafka_sources import (
    KAFKA,
    PARTS,
    KafkaOptions,
    MessagePayload,
    client_settings,
    kafka_options,
)
from anabranch_contract.connectors.secrets import resolved, without_secrets
from anabranch_contract.connectors.sources import StreamStart
from anabranch_contract.protocol.registered import SourceRecord
from anabranch_contract.queries.types import parse_type
from anabranch_service.streaming.samples.avro import AvroMessages
from anabranch_service.streaming.samples.fit import Field, Form
from anabranch_service.streaming.samples.protobuf import ProtobufMessages
from anabranch_service.streaming.samples.registry import ask_registry, id_of
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

#: Seconds for reading messages, once the partitions are known.
_READING = 3.0
_FORMS = {
    MessagePayload.JSON: Form.JSON,
    MessagePayload.ARROW: Form.TYPED,
    MessagePayload.AVRO: Form.TYPED,
    MessagePayload.PROTOBUF: Form.TYPED,
}
_DECODERS: Mapping[MessagePayload, type[AvroMessages] | type[ProtobufMessages]] = {
    MessagePayload.AVRO: AvroMessages,
    MessagePayload.PROTOBUF: ProtobufMessages,
}
#: First bytes of an Arrow IPC stream.
_ARROW = b"\xff\xff\xff\xff"
_SETTINGS = {
    "client.id": "anabranch",
    "group.id": "anabranch",
    "log_level": 0,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
    "queued.max.messages.kbytes": 1024,
    "socket.connection.setup.timeout.ms": int(SECONDS * 1000),
}


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """A message of a topic: its value, and its other parts by their names in :data:`PARTS`."""

    value: bytes | None
    parts: Mapping[str, Any]

    @property
    def place(self) -> str:
        """Topic, partition and offset as text."""
        topic, partition, offset = (self.parts[part] for part in ("topic", "partition", "offset"))
        return f"{topic}, partition {partition}, offset {offset}"


def sample_topics(source: SourceRecord, columns: Wanted, most: int) -> Sample:
    """Read at most ``most`` rows from the messages of Kafka topics.

    Raises:
        Unreadable, AccessError: no broker answers, there is no such topic, or a registry does not
            answer, or an environment variable is not set.
    """
    options = kafka_options(_assumed(source.options))
    given = resolved("source", KAFKA, source.options, os.environ)
    sample = Sample(_FORMS[options.payload], unit="messages", found=0)
    with _consumer(given) as consumer:
        begins = _begins(consumer, options, most, sample)
        messages = sorted(_read(consumer, begins, most), key=_arrival)
    if columns is None and "payload" not in source.options:
        payload = _payload(messages, given)
        sample.options, sample.form = {"payload": payload.value}, _FORMS[payload]
    else:
        payload = options.payload
    decoder = _DECODERS[payload](given) if payload in _DECODERS else None
    for message in messages:
        rows = _rows(message, payload, columns, sample, decoder)
        sample.add((_with_parts(row, message, options.parts) for row in rows),
                   most, message.place, numbered=False)  # fmt: skip
    if columns is None:
        sample.beside = {c: parse_type(_TYPES[part]) for c, part in options.parts.items()}
        if decoder is not None and decoder.declared:
            # Columns of all schemas are declared, with the types of the newest one; a record that
            # lacks a field has NULL in its column.
            sample.declared.append({n: k for one in decoder.declared for n, k in one.items()})
    if options.start is not StreamStart.EARLIEST and sample.found:
        sample.limits.append("by the option start, other messages may be read than these")
    return sample


def _assumed(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return options with the payload that they imply, as schemas are refused without a payload."""
    if "payload" in options or not {"schema", "registry"} & options.keys():
        return options
    return {**options, "payload": _implied(options).value}


def _implied(options: Mapping[str, str]) -> MessagePayload:
    """Detect the payload of messages with schemas: Avro if the schema is JSON, else Protobuf."""
    text = options.get("schema", "")
    given = "message" in options or (text and not text.lstrip().startswith(("{", "[", '"')))
    return MessagePayload.PROTOBUF if given else MessagePayload.AVRO


@contextmanager
def _consumer(options: Mapping[str, str]) -> Iterator[Consumer]:
    consumer = Consumer({**_SETTINGS, **client_settings(options)})
    try:
        yield consumer
    except KafkaException as cause:
        error = cause.args[0]
        absent = error.code() in (BrokerError.UNKNOWN_TOPIC_OR_PART, BrokerError._UNKNOWN_TOPIC)
        raise Unreadable(
            "no-topic" if absent else "no-broker",
            without_secrets(f"Kafka at {options['brokers']}: {error.str()}", os.environ),
            field=f"source.options.{'topics' if absent else 'brokers'}",
            remedy="create the topic, or correct the option topics"
            if absent
            else "check the addresses and the login, and that the brokers run",
        ) from None
    finally:
        consumer.close()


def _begins(
    consumer: Consumer, options: KafkaOptions, most: int, sample: Sample
) -> list[TopicPartition]:
    """Return the partitions that have messages, each with the first offset to read.

    Raises:
        KafkaException: no broker answers, or there is no such topic.
    """
    found = list[TopicPartition]()
    for topic in options.topics:
        known = consumer.list_topics(topic, timeout=SECONDS).topics[topic]
        if known.error is not None:
            raise KafkaException(known.error)
        for number in known.partitions:
            partition = TopicPartition(topic, number)
            low, high = consumer.get_watermark_offsets(partition, timeout=SECONDS)
            sample.found = (sample.found or 0) + high - low
            begin = options.offsets.get((topic, number), low)
            if options.start is StreamStart.LATEST:
                begin = max(low, high - most)
            elif isinstance(options.start, int):
                partition.offset = options.start
                begin = consumer.offsets_for_times([partition], timeout=SECONDS)[0].offset
            if low < high and 0 <= begin < high:
                found.append(TopicPartition(topic, number, max(low, begin)))
                sample.places.append(f"{topic}, partition {number}")
    return found


def _read(
    consumer: Consumer, begins: Sequence[TopicPartition], most: int
) -> Iterator[TopicMessage]:
    """Yield at most ``most`` messages, of the partitions in the order of their arrival."""
    consumer.assign(list(begins))
    ends, count, size = len(begins), 0, 0
    deadline = time.monotonic() + _READING
    while ends and count < most and size < BYTES and time.monotonic() < deadline:
        for found in consumer.consume(most - count, timeout=0.1):
            error = found.error()
            if error is not None:
                if error.code() != BrokerError._PARTITION_EOF:
                    raise KafkaException(error)
                ends -= 1
                continue
            value, key = found.value(), found.key()
            size += len(value or b"")
            count += 1
            yield TopicMessage(value, {
                "key": key, "topic": found.topic(), "partition": found.partition(),
                "offset": found.offset(), "headers": found.headers() or [],
                "timestamp": _moment(*found.timestamp()),
            })  # fmt: skip


def _arrival(message: TopicMessage) -> tuple[datetime, str, int, int]:
    """Return a sort key by time, since the order in which partitions are read is arbitrary."""
    at = message.parts["timestamp"] or datetime(1970, 1, 1, tzinfo=UTC)
    return at, message.parts["topic"], message.parts["partition"], message.parts["offset"]


def _moment(kind: int, millis: int) -> datetime | None:
    if kind == TIMESTAMP_NOT_AVAILABLE:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)


def _payload(messages: Sequence[TopicMessage], options: Mapping[str, str]) -> MessagePayload:
    """Detect the payload of messages from the first one that has a value.

    Raises:
        Unreadable: the payload is of no known form.
    """
    value = next((m.value for m in messages if m.value is not None), b"{}")
    number = id_of(value)
    if "registry" in options and "schema" not in options and number is not None:
        answer = ask_registry(options, f"schemas/ids/{number}")
        if answer is not None and answer.get("schemaType") == "PROTOBUF":
            return MessagePayload.PROTOBUF
    if {"schema", "registry"} & options.keys():
        return _implied(options)
    if value.startswith(_ARROW):
        return MessagePayload.ARROW
    if isinstance(object_of(value), dict):
        return MessagePayload.JSON
    raise Unreadable(
        "unknown-payload",
        f"messages are neither JSON objects nor Arrow: the first is {decoded(value[:60])!r}",
        field="source.options.payload",
        remedy=f"give the option registry, if they are of schema {number} in a registry"
        if number is not None
        else "give payload avro or protobuf with the option schema, or have JSON objects written",
    )


def _rows(
    message: TopicMessage,
    payload: MessagePayload,
    columns: Wanted,
    sample: Sample,
    decoder: AvroMessages | ProtobufMessages | None,
) -> list[Row]:
    value = message.value
    if value is None:
        return ["a message without a value"]
    if decoder is not None:
        return [decoder.row(value)]
    if payload is MessagePayload.ARROW:
        rows, declared = arrow_rows(value, columns)
        sample.declared += [declared] if columns is None and declared is not None else []
        return rows
    return [object_of(value)]


def _with_parts(row: Row, message: TopicMessage, parts: Mapping[str, str]) -> Row:
    """Return a row with the columns for other parts of its message."""
    if isinstance(row, str) or not parts:
        return row
    return {**row, **{column: _part(message.parts[part], part) for column, part in parts.items()}}


def _part(value: Any, part: str) -> Any:
    if value is None:
        return None
    if part == "key":
        with suppress(UnicodeDecodeError):
            return Field(value.decode(), QUOTED, CsvDialect())
    if part == "headers":
        return pa.scalar([{"key": name, "value": content} for name, content in value])
    return pa.scalar(value)


#: Part of a message -> type of its proposed column.
_TYPES = {
    **dict.fromkeys(PARTS, "string"),
    "headers": "array<struct<key:string,value:binary>>",
    "timestamp": "timestamp",
    "partition": "int",
    "offset": "bigint",
}
