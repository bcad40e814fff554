"""Options of Kafka topics that the runtime reads itself: sources of format ``kafka`` with the
option ``brokers`` or ``topics``. Other ``kafka`` sources are read by Spark's connector."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from anabranch_contract.connectors.schemas.avro import record_schema
from anabranch_contract.connectors.schemas.protobuf import message_of, parse_schema
from anabranch_contract.connectors.sources import (
    OnLoss,
    StreamStart,
    bad_option,
    check_known,
    choice,
)
from anabranch_contract.errors import StreamError
from anabranch_contract.queries.types import NESTED, DataType, parse_type

KAFKA = "kafka"
#: Part of a message other than its value -> the option that names the column for it.
PARTS = {
    "key": "key_column",
    "headers": "headers_column",
    "timestamp": "timestamp_column",
    "topic": "topic_column",
    "partition": "partition_column",
    "offset": "offset_column",
}
#: Options of the connection to brokers; :func:`client_settings` translates them.
CONNECTION = (
    *("brokers", "security", "mechanism", "user", "password", "ca_file", "certificate_file"),
    *("private_key", "private_key_password"),
)
_SCHEMAS = ("schema", "message", "registry", "registry_user", "registry_password")
NAMES = (
    *(*CONNECTION, "topics", "payload", *_SCHEMAS, "start", "on_loss", "group"),
    *PARTS.values(),
)
#: Part of a message -> allowed types of its column, and their names in errors. A key may have any
#: type that is not nested.
_TYPES = {
    "headers": ("array<struct<key:string,value:binary>>", "array<struct<key:string,value:string>>"),
    "timestamp": ("timestamp",),
    "topic": ("string",),
    "partition": ("int", "bigint"),
    "offset": ("bigint",),
}
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Security(StrEnum):
    """The protocol of connections to brokers."""

    PLAINTEXT = "plaintext"
    SSL = "ssl"
    SASL_PLAINTEXT = "sasl_plaintext"
    SASL_SSL = "sasl_ssl"


class Mechanism(StrEnum):
    """The SASL mechanism of a login by user and password."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


class MessagePayload(StrEnum):
    """The content of a Kafka message's value.

    ``JSON``: one object. ``ARROW``: an Arrow IPC stream of any number of rows. ``AVRO``: one
    record, encoded by the schema in the options, or preceded by the id of its schema in a registry.
    ``PROTOBUF``: one message, with its schema as for ``AVRO``.
    """

    JSON = "json"
    ARROW = "arrow"
    AVRO = "avro"
    PROTOBUF = "protobuf"

    @property
    def schema_name(self) -> str | None:
        """Name of the schema language; None if payloads of this format have no schema."""
        return {"avro": "Avro", "protobuf": "Protobuf"}.get(self)


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Options of a ``kafka`` source that the runtime reads itself.

    Attributes:
        topics: names of the topics; their partitions form the stream.
        payload: format of message values.
        start: where reading begins: at the earliest or latest message, or (a number) with the first
            messages from this time on, in milliseconds since 1970.
        offsets: (topic, partition) -> first offset to read; other partitions begin at ``start``.
        on_loss: policy for messages that were deleted before they were read.
        group: consumer group for which read offsets are committed, to be seen by other tools; None:
            a group of the stream's own; empty: offsets are not committed.
        parts: column -> part of the message (:data:`PARTS`) that the column contains.
    """

    topics: tuple[str, ...]
    payload: MessagePayload = MessagePayload.JSON
    start: StreamStart | int = StreamStart.EARLIEST
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    on_loss: OnLoss = OnLoss.STOP
    group: str | None = None
    parts: Mapping[str, str] = field(default_factory=dict)


def is_own_topic(format: str, options: Mapping[str, str]) -> bool:
    """Whether the runtime, not Spark, reads a source of Kafka topics.

    >>> is_own_topic("kafka", {"brokers": "b:9092"}), is_own_topic("kafka", {"subscribe": "t"})
    (True, False)
    """
    return format == KAFKA and ("brokers" in options or "topics" in options)


def kafka_options(options: Mapping[str, str]) -> KafkaOptions:
    """Parse the options of a ``kafka`` source that the runtime reads itself.

    Raises:
        StreamError: an option is missing or unknown, or has an invalid value.

    >>> found = kafka_options({"brokers": "b:9092", "topics": "a, b", "key_column": "id"})
    >>> found.topics, found.parts
    (('a', 'b'), {'id': 'key'})
    """
    check_known(options, NAMES, KAFKA)
    if not options.get("brokers", "").strip():
        raise bad_option("brokers", "a kafka source needs its brokers", "name them: host:9092")
    topics = tuple(t.strip() for t in options.get("topics", "").split(",") if t.strip())
    if not topics:
        raise bad_option("topics", "a kafka source needs its topics", "name them")
    if len(set(topics)) < len(topics):
        raise bad_option("topics", "a topic is given twice", "name each topic once")
    for topic in topics:
        if TOPIC.fullmatch(topic) is None:
            raise bad_option("topics", f"{topic[:60]!r} is not a topic's name", "name topics")
    payload = choice(MessagePayload, options, "payload", MessagePayload.JSON)
    _check_schemas(options, payload)
    check_connection(options)
    start, offsets = _start(options.get("start", StreamStart.EARLIEST), topics)
    parts: dict[str, str] = {}
    for part, option in PARTS.items():
        column = options.get(option)
        if column is not None and column in parts:
            raise bad_option(option, f"column {column!r} already holds the {parts[column]}", "give"
                             " each its own column")  # fmt: skip
        if column is not None:
            parts[column] = part
    on_loss = choice(OnLoss, options, "on_loss", OnLoss.STOP)
    group = options.get("group")
    return KafkaOptions(topics, payload, start, offsets, on_loss, group, parts)


def check_parts(options: KafkaOptions, columns: Sequence[tuple[str, DataType]]) -> None:
    """Check that the columns for parts of Kafka messages exist and have fitting types.

    Raises:
        StreamError: naming the option or the column.
    """
    kinds = dict(columns)
    for column, part in options.parts.items():
        if column not in kinds:
            raise bad_option(
                PARTS[part], f"the stream has no column {column!r}", "declare it, or name another"
            )
        kind, fitting = kinds[column], _TYPES.get(part, ())
        if kind.kind in NESTED if part == "key" else kind not in map(parse_type, fitting):
            raise StreamError(
                "unsupported-type",
                f"column {column!r} of type {kind} can't hold the {part} of messages",
                field=f"columns.{column}",
                remedy=f"declare it as {' or '.join(fitting) or 'string'}",
            )


def client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a connection to Kafka, by their names in ``librdkafka``.

    Args:
        options: options of the source or sink, with secrets in place of references to them.

    >>> client_settings({"brokers": "b:9092", "topics": "t"})
    {'bootstrap.servers': 'b:9092', 'security.protocol': 'plaintext'}
    """
    given = {
        "bootstrap.servers": options["brokers"],
        "security.protocol": options.get("security", Security.PLAINTEXT),
        "sasl.mechanism": options.get("mechanism"),
        "sasl.username": options.get("user"),
        "sasl.password": options.get("password"),
        "ssl.ca.location": options.get("ca_file"),
        "ssl.certificate.location": options.get("certificate_file"),
        "ssl.key.pem": options.get("private_key"),
        "ssl.key.password": options.get("private_key_password"),
    }
    return {name: str(text) for name, text in given.items() if text is not None}


def _check_schemas(options: Mapping[str, str], payload: MessagePayload) -> None:
    for name in _SCHEMAS:
        if name in options and payload.schema_name is None:
            remedy = "set payload avro or protobuf"
            raise bad_option(name, f"payload {payload} has no schemas", remedy)
    if payload.schema_name is None:
        return
    if payload is MessagePayload.AVRO and "message" in options:
        raise bad_option("message", "Avro schemas have one record", "set payload protobuf")
    if payload is MessagePayload.PROTOBUF and "registry" in options and "schema" in options:
        remedy = "give schema, or registry"
        raise bad_option("schema", "messages name their schemas in the registry", remedy)
    if "schema" in options:
        if payload is MessagePayload.AVRO:
            record_schema(options["schema"])
        else:
            message_of(parse_schema(options["schema"]), options.get("message"))
    elif "registry" not in options:
        why = f"{payload.schema_name} messages need their schema"
        raise bad_option("schema", why, "give schema, or registry")
    if ("registry_user" in options) != ("registry_password" in options):
        raise bad_option("registry_user", "a user and a password go together", "give both")
    if "registry_user" in options and "registry" not in options:
        raise bad_option("registry", "a login needs its registry", "give its address")


def check_connection(options: Mapping[str, str]) -> None:
    """Check that the options of a connection to Kafka brokers do not contradict each other.

    Raises:
        StreamError: naming the option.
    """
    security = choice(Security, options, "security", Security.PLAINTEXT)
    login, encrypted = security.startswith("sasl"), security.endswith("ssl")
    choice(Mechanism, options, "mechanism", Mechanism.PLAIN)
    for name in ("mechanism", "user", "password"):
        if login and name not in options:
            raise bad_option(name, f"security {security} needs it", f"give {name}")
        if not login and name in options:
            raise bad_option(name, f"security {security} has no login", "set security sasl_ssl")
    for name in ("ca_file", "certificate_file", "private_key", "private_key_password"):
        if not encrypted and name in options:
            raise bad_option(name, f"security {security} is not encrypted", "set security ssl")
    if ("certificate_file" in options) != ("private_key" in options):
        raise bad_option(
            "certificate_file", "a certificate and its private key go together", "give both"
        )


def _start(
    text: str, topics: Sequence[str]
) -> tuple[StreamStart | int, dict[tuple[str, int], int]]:
    """Parse the Kafka option ``start``: earliest or latest, a time, or offsets as JSON."""
    if text in tuple(StreamStart):
        return StreamStart(text), {}
    remedy = (
        'give earliest, latest, a time such as 2026-01-31T08:00:00Z, or offsets: {"TOPIC": {"0":'
        " 17}}"
    )
    if text.lstrip().startswith("{"):
        try:
            given = json.loads(text)
            found = {(t, int(p)): at for t, each in given.items() for p, at in each.items()}
        except (ValueError, AttributeError):
            raise bad_option("start", "these are not offsets", remedy) from None
        for (topic, partition), at in found.items():
            if topic not in topics:
                raise bad_option("start", f"{topic!r} is not one of the topics", remedy)
            if type(at) is not int or at < 0 or partition < 0:
                raise bad_option("start", f"{at!r} is not an offset", remedy)
        return StreamStart.EARLIEST, found
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise bad_option("start", f"{text[:60]!r} is not a start", remedy) from None
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(zoned.timestamp() * 1000), {}
