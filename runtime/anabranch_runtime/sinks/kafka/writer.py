"""Writer of Kafka topics: readers of committed messages get each result exactly once.

A delivery is sent in one transaction: its messages, and a record of its batch in the progress topic
(``progress``). A batch with a record is not sent again. A process has one producer per connection,
for all queries. Its transactional id is the same after a restart. So the new process, before it
reads the records, ends an unfinished transaction of the former process and fences that process off.

After an error the producer is dropped: only a new one, with the records read again, knows whether
the transaction was committed. If another process has added records, that process runs the pipeline
now, and this one sends nothing any more.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import uuid
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from traceback import clear_frames
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer

from anabranch_contract.connectors.kafka_sinks import (
    KafkaSinkOptions,
    MessageHeaders,
    kafka_sink_options,
)
from anabranch_contract.connectors.kafka_sources import client_settings
from anabranch_runtime.errors import SinkError
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.kafka.messages import messages_of
from anabranch_runtime.sinks.kafka.progress import PATIENCE, DeliveryRecord, read_progress
from anabranch_runtime.sources.kafka.client import AWAY, COMMON, Trouble

#: Maximum seconds for the delivery of a message, for a commit, and for aborting a transaction.
DELIVERY, COMMIT, ABORT = 10.0, 20.0, 3.0
#: Seconds after which brokers end a transaction whose producer has vanished.
ABANDONED = 60.0
#: Seconds without attempts after brokers have not answered; otherwise a batch with many queries
#: would wait for an answer for each query.
PAUSE = 5.0
#: Bytes of messages after which the writer waits for their acknowledgements.
UNSENT = 1 << 26
#: Maximum number of producers; each has its own threads.
MOST = 8

_PRODUCING = {
    "compression.type": "lz4",
    # Messages wait for full requests; a commit sends them without this delay.
    "linger.ms": 100,
    # Java clients' partitioner, so that equal keys of other programs are in the same partition.
    "partitioner": "murmur2_random",
    "message.timeout.ms": int(DELIVERY * 1000),
    "transaction.timeout.ms": int(ABANDONED * 1000),
    "queue.buffering.max.messages": 0,
    "queue.buffering.max.kbytes": 2_097_151,
    "message.max.bytes": 1_000_000_000,
    "topic.metadata.propagation.max.ms": 5000,
}
_SECRET = ("sasl.password", "ssl.key.pem", "ssl.key.password")
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
#: ``_INCONSISTENT``: some messages had no answer in time when the commit began.
_UNANSWERED = AWAY | {
    *(KafkaError._MSG_TIMED_OUT, KafkaError._INCONSISTENT),
    *(KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT),
}
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)

#: Settings of a connection, the progress topic, and the id of the pipeline.
_Target: TypeAlias = tuple[tuple[tuple[str, Any], ...], str, str]


def default_progress(namespace: str) -> str:
    """Return the name of the progress topic, if a sink names none."""
    return f"{re.sub(r'[^A-Za-z0-9._-]', '_', namespace)[:200]}.anabranch-progress"


@dataclass(slots=True)
class _Connected:
    """A producer, with the last delivered batch of each query's run, and known topics."""

    producer: Producer
    batches: dict[str, int]
    topics: set[str] = field(default_factory=set)


@dataclass(slots=True)
class KafkaWriter:
    """Writes deliveries to Kafka topics.

    Attributes:
        namespace: namespace of the pipeline.
        role: name of this process among the pipeline's processes that write at the same time.
    """

    namespace: str
    role: str
    _links: dict[_Target, _Connected] = field(default_factory=dict)
    #: Id of this process in its records; a record with another id is another process's.
    _life: str = field(default_factory=lambda: uuid.uuid4().hex)
    _found: dict[str, DeliveryRecord] = field(default_factory=dict)
    _opened: set[_Target] = field(default_factory=set)
    #: Errors that the newest producer has reported.
    _trouble: Trouble = field(default_factory=Trouble)
    #: Connection -> its last error, and the (monotonic) time until which deliveries fail with it.
    _failed: dict[_Target, tuple[SinkError, float]] = field(default_factory=dict)

    def write(self, delivery: Delivery, identity: str) -> None:
        """Send a delivery to its Kafka topic, unless the topic has it.

        Args:
            delivery: the delivery, with secrets in place of references to them.
            identity: id of the pipeline's state.

        Raises:
            SinkError: brokers don't answer or refuse, or another process runs the pipeline.
        """
        given = {name.lower(): text for name, text in delivery.sink.options}
        options = kafka_sink_options(given)
        progress = options.progress_topic or default_progress(self.namespace)
        settings = {**COMMON, **client_settings(given)}
        target = tuple(sorted(settings.items())), progress, identity
        known = self._failed.get(target)
        if known is not None and time.monotonic() < known[1]:
            raise known[0].with_traceback(None)
        try:
            link = self._links.get(target) or self._open(target)
            if delivery.batch > link.batches.get(delivery.query, -1):
                self._send(link, delivery, options, target)
                link.batches[delivery.query] = delivery.batch
        except BaseException as cause:
            link = None
            self._drop(target, cause)
            # The error's frames would keep the old producer alive beside the new one.
            clear_frames(cause.__traceback__)
            if not isinstance(cause, (KafkaException, BufferError)):
                raise
            raise self._noted(target, cause, given["brokers"], options) from cause
        self._failed.pop(target, None)

    def _open(self, target: _Target) -> _Connected:
        """Make a producer, which ends a former one's transaction; read the progress records."""
        settings, progress, identity = dict(target[0]), *target[1:]
        while len(self._links) >= MOST:
            del self._links[next(iter(self._links))]
        name = self._transactional(target)
        self._trouble = Trouble()
        producer = Producer({
            **settings, **_PRODUCING, "transactional.id": name, "error_cb": self._trouble,
        })  # fmt: skip
        try:
            producer.init_transactions(PATIENCE)
        finally:
            producer.poll(0)
        records = read_progress(settings, progress, self._prefix(identity))
        for run, record in records.items():
            if target not in self._opened:
                self._found.setdefault(run, record)
            if record.life != self._life and record != self._found.get(run):
                found = _fenced(f"batch {record.batch} of {run!r} is another one's")
                self._failed[target] = found, float("inf")
                raise found
        self._opened.add(target)
        self._links[target] = link = _Connected(
            producer, {run: record.batch for run, record in records.items()}
        )
        return link

    def _prefix(self, identity: str) -> str:
        return f"{self.namespace}/{identity}/{self.role}/"

    def _transactional(self, target: _Target) -> str:
        """Return the producer's transactional id: per connection, and the same after a restart.

        Runs of a query with different connections send different messages. Deliveries that a former
        run has begun are repeated through its connection, before the deliveries of later runs.
        """
        settings, progress, identity = target
        shown = [pair for pair in settings if pair[0] not in (*COMMON, *_SECRET)]
        text = json.dumps([progress, shown])
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return f"anabranch/{self.namespace}/{identity}/{self.role}/{digest}"

    def _send(
        self, link: _Connected, delivery: Delivery, options: KafkaSinkOptions, target: _Target
    ) -> None:
        producer, topic = link.producer, options.topic
        if topic not in link.topics:
            found = producer.list_topics(topic, timeout=PATIENCE).topics[topic]
            if found.error is not None:
                raise KafkaException(found.error)
            link.topics.add(topic)
        producer.begin_transaction()
        send = partial(producer.produce, topic)
        if options.headers is MessageHeaders.ORIGIN:
            send = partial(send, headers=_headers(delivery))
        unsent = 0
        for messages in messages_of(delivery.read(), options):
            for keys, values in messages.parts():
                # ``deque`` exhausts the map without Python code per message.
                deque(map(send, values, repeat(None) if keys is None else keys), maxlen=0)
            unsent += messages.values.nbytes
            if unsent > UNSENT:
                producer.flush(DELIVERY)
                unsent = 0
        _, progress, identity = target
        key = self._prefix(identity) + delivery.query
        producer.produce(
            progress, DeliveryRecord(delivery.batch, self._life).to_json(), key, partition=0
        )
        reach(Point.SENT)
        producer.commit_transaction(COMMIT)

    def _drop(self, target: _Target, cause: BaseException) -> None:
        """Drop the producer; end its transaction if brokers answer, since it blocks readers."""
        link = self._links.pop(target, None)
        if link is None or (isinstance(cause, KafkaException) and _code(cause) in _UNANSWERED):
            return
        link.producer.purge()
        with suppress(KafkaException):
            link.producer.abort_transaction(ABORT)

    def _noted(
        self, target: _Target, cause: KafkaException | BufferError, brokers: str,
        options: KafkaSinkOptions,
    ) -> SinkError:  # fmt: skip
        """Return the sink's error for a client's; keep it if it applies to all deliveries."""
        if isinstance(cause, BufferError):
            return SinkError(
                "sink-refused",
                "the messages of one delivery take more than 2 GiB",
                field="sink",
                remedy="let batches or commit intervals be smaller",
            )
        code, text = _code(cause), cause.args[0].str()
        if code in _FENCED:
            return _fenced(text)
        if code in _UNANSWERED:
            found = SinkError(
                "no-server",
                f"Kafka at {brokers}: {self._trouble.recent(text)}",
                field="sink.options.brokers",
                remedy="check that the brokers run, and the options of their connection",
            )
            self._failed[target] = found, time.monotonic() + PAUSE
            return found
        if code in _UNKNOWN:
            return SinkError(
                "no-topic",
                f"the topic {options.topic!r} does not exist",
                field="sink.options.topic",
                remedy="create it",
            )
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            return SinkError(
                "sink-refused",
                f"the topic {options.topic!r} refuses a message for its size",
                field="sink.options.topic",
                remedy="raise its max.message.bytes",
            )
        return SinkError(
            "sink-refused",
            f"Kafka at {brokers}: {text}",
            field="sink",
            remedy="check the login, and that it may write to both topics and use the transactional"
            f" id anabranch/{self.namespace}/…",
        )


def _code(cause: KafkaException) -> int:
    return int(cause.args[0].code())


def _fenced(why: str) -> SinkError:
    return SinkError(
        "fenced-off",
        f"another process writes as this pipeline: {why}",
        field="sink",
        remedy="end the other process; start the runtime again, nothing is lost",
    )


def _headers(delivery: Delivery) -> Sequence[tuple[str, bytes]]:
    texts = {
        "anabranch-query": delivery.query,
        "anabranch-batch": str(delivery.batch),
        "anabranch-epoch": None if delivery.epoch is None else str(delivery.epoch),
    }
    return [(name, text.encode()) for name, text in texts.items() if text is not None]
