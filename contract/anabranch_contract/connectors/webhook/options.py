"""Options of webhooks: sinks whose results are posted to an address, in signed requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch_contract.connectors.kafka_sinks import KafkaPayload, KafkaSinkOptions
from anabranch_contract.connectors.sources import bad_option, choice

WEBHOOK = "webhook"
WEBHOOK_NAMES = ("url", "secret", "rows", "bytes", "timeout", "payload", "key")
#: Maximum value of each numeric option of a webhook.
_MOST = {"rows": 100_000, "bytes": 16 << 20, "timeout": 60}


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """Options of a ``webhook`` sink.

    Attributes:
        url: receives the requests. ``secret``: key that signs them; a reference until it is used.
        messages: key and payload of the results, as in a Kafka sink.
        rows: maximum number of rows of a request.
        size: maximum number of bytes of a request's rows; a single larger row has its own request.
        timeout: seconds for a request and its answer.
    """

    url: str
    secret: str
    messages: KafkaSinkOptions
    rows: int
    size: int
    timeout: int


def webhook_options(options: Mapping[str, str]) -> WebhookOptions:
    """Parse the options of a ``webhook`` sink. ``options`` must have ``url`` and ``secret``.

    Raises:
        StreamError: an option has an invalid value. Its field begins with ``source``, not ``sink``.

    >>> found = webhook_options({"url": "https://h/x", "secret": "${ANABRANCH_SINK_X}"})
    >>> found.rows, found.size, found.timeout
    (1000, 262144, 10)
    """
    options = {name.lower(): text for name, text in options.items()}
    if not options["secret"].strip():
        raise bad_option(
            "secret", "requests need a signature", "write ${ANABRANCH_SINK_<NAME>}, a whsec_ key"
        )
    payload = choice(KafkaPayload, options, "payload", KafkaPayload.JSON)
    if payload is KafkaPayload.UPSERT:
        raise bad_option(
            "payload", "requests have no keys, which upserts need", "give json or debezium"
        )
    key = tuple(part.strip() for part in options.get("key", "").split(",") if part.strip())
    if key and payload is KafkaPayload.JSON:
        raise bad_option(
            "key", "rows as JSON have no keys", "leave it out, or give payload debezium"
        )
    return WebhookOptions(
        options["url"],
        options["secret"],
        KafkaSinkOptions("", key, payload),
        _number(options, "rows", 1000),
        _number(options, "bytes", 256 << 10),
        _number(options, "timeout", 10),
    )


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text, most = options.get(name, str(default)), _MOST[name]
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:20]) <= most:
        raise bad_option(
            name, f"{text[:60]!r} is not a number from 1 to {most}", f"give at most {most}"
        )
    return int(text)
