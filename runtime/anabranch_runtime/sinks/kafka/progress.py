"""The progress topic of a Kafka sink: for each query, the last delivery that its topic has. It is a
compacted topic with one partition. A transaction that sends a delivery's messages also sends a
record to it, so both are committed or neither. Its key is ``<namespace>/<pipeline>/<role>/<run>``
(``role``: of the process), its value the :class:`DeliveryRecord` as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from anabranch_runtime.errors import SinkError
from anabranch_runtime.sources.kafka.client import LEADERLESS

#: Settings of the topic. Small segments are compacted soon, so a start has little to read.
_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
_READING = {
    "group.id": "anabranch",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 10,
}
#: Error codes of a topic that is new or changes its leader; a later request may succeed.
_LEADERLESS = LEADERLESS | {
    *(KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)
}
#: Seconds to wait for brokers' answers, and between two checks for the end of a transaction.
PATIENCE, _LOOK = 5.0, 0.05
#: Codes of errors of users who may not create a topic, or read its settings.
_FORBIDDEN = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.POLICY_VIOLATION,
)


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """The last delivered batch of a query's run, and the id of the process that delivered it."""

    batch: int
    life: str

    def to_json(self) -> str:
        """Return the record as the value of a message in the progress topic."""
        return json.dumps({"batch": self.batch, "life": self.life})


def read_progress(
    settings: Mapping[str, Any], topic: str, prefix: str
) -> dict[str, DeliveryRecord]:
    """Return the record of each query's run in the progress topic, which is created if missing.

    The caller may have no unfinished transaction. Open transactions of others may hide later
    records, so their end is awaited.

    Args:
        settings: settings of the client's connection.
        topic: name of the progress topic.
        prefix: beginning of the records' keys, before the name of the run.

    Raises:
        SinkError: the topic deletes records, or another process's transaction has not ended.
        KafkaException: no broker answers, or it refuses.
    """
    admin = AdminClient(dict(settings))
    _ensure(admin, topic)
    partition = TopicPartition(topic, 0, 0)
    end = _end(admin, partition, IsolationLevel.READ_UNCOMMITTED)
    deadline = time.monotonic() + PATIENCE
    while _end(admin, partition, IsolationLevel.READ_COMMITTED) < end:
        if time.monotonic() > deadline:
            raise SinkError(
                "progress-undecided",
                f"the progress topic {topic!r} has an open transaction",
                field="sink.options.progress_topic",
                remedy="wait: another process's ends within a minute; one that stays was left by a "
                "broker that crashed while ending it: see kafka-transactions.sh find-hanging",
            )
        time.sleep(_LOOK)
    return _records(settings, partition, end, prefix)


def _ensure(admin: AdminClient, topic: str) -> None:
    """Create the progress topic, or check that it keeps the last record of each key."""
    made = admin.create_topics([NewTopic(topic, 1, config=_CONFIG)], request_timeout=PATIENCE)
    try:
        made[topic].result()
        return
    except KafkaException as cause:
        code = cause.args[0].code()
        if code != KafkaError.TOPIC_ALREADY_EXISTS and code not in _FORBIDDEN:
            raise
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        found = admin.describe_configs([resource], request_timeout=PATIENCE)[resource].result()
    except KafkaException as cause:
        if cause.args[0].code() in _FORBIDDEN:
            return
        if cause.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        raise SinkError(
            "no-topic",
            f"the progress topic {topic!r} does not exist, and can't be created",
            field="sink.options.progress_topic",
            remedy="create the topic with one partition and cleanup.policy=compact, or let the user"
            " create it",
        ) from cause
    if found["cleanup.policy"].value != "compact":
        raise SinkError(
            "progress-deleted",
            f"the progress topic {topic!r} deletes records: results could come twice",
            field="sink.options.progress_topic",
            remedy="set its cleanup.policy to compact, or name another topic",
        )


def _end(admin: AdminClient, partition: TopicPartition, level: IsolationLevel) -> int:
    """Return the partition's end offset, once a broker leads it: a new topic has none at first."""
    deadline = time.monotonic() + PATIENCE
    while True:
        asked = admin.list_offsets(
            {partition: OffsetSpec.latest()}, isolation_level=level, request_timeout=PATIENCE
        )
        try:
            return int(asked[partition].result().offset)
        except KafkaException as cause:
            leaderless = cause.args[0].code() in _LEADERLESS
            if not leaderless or time.monotonic() > deadline:
                raise
        time.sleep(_LOOK)


def _records(
    settings: Mapping[str, Any], partition: TopicPartition, end: int, prefix: str
) -> dict[str, DeliveryRecord]:
    found: dict[str, DeliveryRecord] = {}
    reader = Consumer({**settings, **_READING})
    try:
        reader.assign([partition])
        at, deadline = 0, time.monotonic() + PATIENCE
        while at < end:
            messages = reader.consume(10_000, _LOOK)
            for message in messages:
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                at = int(message.offset()) + (error is None)
                key = (message.key() or b"").decode()
                if error is None and key.startswith(prefix):
                    found[key.removeprefix(prefix)] = DeliveryRecord(**json.loads(message.value()))
            if messages:
                deadline = time.monotonic() + PATIENCE
            elif time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
    finally:
        reader.close()
    return found
