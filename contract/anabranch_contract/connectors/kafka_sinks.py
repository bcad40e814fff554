"""Options of Kafka topics that the runtime writes itself, exactly once: sinks of format ``kafka``.
Sinks whose options begin with ``kafka.`` are written by Spark's connector."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from anabranch_contract.connectors.kafka_sources import CONNECTION, KAFKA, TOPIC, check_connection
from anabranch_contract.connectors.sources import bad_option, choice
from anabranch_contract.queries.views import CHANGE, VERSION

SINK_NAMES = (*CONNECTION, "topic", "key", "payload", "headers", "progress_topic")


class KafkaPayload(StrEnum):
    """Content of messages to a topic: results as JSON; the current row of each key (a message
    without a value deletes it); or changes as Debezium's envelopes."""

    JSON = "json"
    UPSERT = "upsert"
    DEBEZIUM = "debezium"


class MessageHeaders(StrEnum):
    """Headers of messages to a topic: the query, batch and epoch of a result, or none."""

    ORIGIN = "origin"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class KafkaSinkOptions:
    """Options of a ``kafka`` sink that the runtime writes itself.

    Attributes:
        topic: topic to which results are sent.
        key: columns that make up a message's key; empty: the option was not given.
        payload: the content of messages.
        headers: headers of messages.
        progress_topic: compacted topic that records each query's last delivery; None: one for the
            whole pipeline.
    """

    topic: str
    key: tuple[str, ...] = ()
    payload: KafkaPayload = KafkaPayload.JSON
    headers: MessageHeaders = MessageHeaders.ORIGIN
    progress_topic: str | None = None


def is_own_sink(format: str, options: Collection[str]) -> bool:
    """Whether the runtime, not Spark, writes a sink whose options have these names.

    >>> is_own_sink("kafka", ["brokers"]), is_own_sink("kafka", ["kafka.bootstrap.servers"])
    (True, False)
    """
    return format == KAFKA and not any(name.lower().startswith("kafka.") for name in options)


def kafka_sink_options(options: Mapping[str, str]) -> KafkaSinkOptions:
    """Parse the options of a ``kafka`` sink that the runtime writes itself. ``options`` must have
    brokers and topic.

    Raises:
        StreamError: an option has an invalid value. Its field begins with ``source``, not ``sink``.

    >>> kafka_sink_options({"brokers": "b:9092", "topic": "t", "key": "a, b"}).key
    ('a', 'b')
    """
    options = {name.lower(): text for name, text in options.items()}
    if not options["brokers"].strip():
        raise bad_option("brokers", "the brokers are missing", "name them: host:9092")
    for name in ("topic", "progress_topic"):
        if name in options and TOPIC.fullmatch(options[name]) is None:
            raise bad_option(name, f"{options[name][:60]!r} is not a topic's name", "name a topic")
    if options["topic"] == options.get("progress_topic"):
        raise bad_option("progress_topic", "it is also the topic of results", "name another")
    check_connection(options)
    key = tuple(part.strip() for part in options.get("key", "").split(",") if part.strip())
    payload = choice(KafkaPayload, options, "payload", KafkaPayload.JSON)
    headers = choice(MessageHeaders, options, "headers", MessageHeaders.ORIGIN)
    return KafkaSinkOptions(options["topic"], key, payload, headers, options.get("progress_topic"))


def check_messages(
    options: KafkaSinkOptions, columns: Sequence[tuple[str, str]], identity: Sequence[str] | None
) -> None:
    """Check that a query's results can be written to a topic with the sink's key and payload.

    Args:
        options: options of the sink.
        columns: (name, type) of the results' columns.
        identity: columns that identify a row of a view; None: the query has no view.

    Raises:
        StreamError: the error names the option; its field begins with ``source``, not ``sink``.
    """
    names = [name for name, _ in columns]
    lower = {name.lower() for name in names}
    for name in options.key:
        if name.lower() not in lower:
            raise bad_option(
                "key",
                f"the query's results have no column {name!r}",
                f"they have {', '.join(names)}",
            )
        if name.lower() in (CHANGE, VERSION):
            raise bad_option("key", f"{name!r} belongs to a change, not to its row", "name others")
    if options.payload is KafkaPayload.UPSERT:
        _check_upserts(options, lower, identity)
    elif options.payload is KafkaPayload.DEBEZIUM and identity is not None:
        raise bad_option(
            "payload", "changes of a view have no old rows, which envelopes need", "give upsert"
        )


def _check_upserts(
    options: KafkaSinkOptions, columns: Collection[str], identity: Sequence[str] | None
) -> None:
    if identity is not None:
        if {name.lower() for name in options.key} != {name.lower() for name in identity}:
            shown = ",".join(identity)
            raise bad_option(
                "key",
                "a row of this view is identified by other columns",
                f"give {shown}" if identity else "leave it out: the view has one row",
            )
    elif CHANGE not in columns:
        raise bad_option(
            "payload",
            "the query's results never change, so no row replaces another",
            "give json, with a key if messages need one",
        )
    elif not options.key:
        raise bad_option("key", "upserts need a key", "name columns that are unique together")
