"""Clients of Kafka brokers, shared within a process, and sources' errors for errors of clients."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from anabranch_contract.connectors.kafka_sources import KAFKA, client_settings
from anabranch_contract.connectors.secrets import resolved
from anabranch_runtime.errors import SourceError

#: Options of a source, in which secrets are references.
Options: TypeAlias = Mapping[str, str]

#: Seconds for which a client waits for the partitions of a topic that it does not know.
METADATA = 5.0
#: Seconds for which an error of a client's connections explains missing answers.
RECENT = 10.0
#: Settings of every client: it logs to standard error only in emergencies, and reconnects soon
#: after a broker's restart.
COMMON = {
    "client.id": "anabranch",
    "log_level": 0,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "socket.connection.setup.timeout.ms": 5000,
    "topic.metadata.refresh.interval.ms": 60_000,
}
#: Settings of the tasks' consumers. These read planned ranges, and messages fetched beyond a
#: range's end are fetched again later, so little is fetched ahead. A broker has to answer at once,
#: as the messages exist: if it waited for more, it would not answer for the next range.
_READING = {
    "group.id": "anabranch",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "check.crcs": True,
    "fetch.wait.max.ms": 1,
    "fetch.error.backoff.ms": 50,
    "queued.max.messages.kbytes": 16_384,
}
#: Codes of errors of a partition whose leader is being elected or changes, as in a new topic.
LEADERLESS = frozenset({
    KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
})  # fmt: skip
#: Codes of errors that pass once brokers can be reached, or have elected leaders.
AWAY = LEADERLESS | {
    KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT,
    KafkaError._RESOLVE, KafkaError._TIMED_OUT_QUEUE, KafkaError._WAIT_COORD,
    KafkaError.REQUEST_TIMED_OUT, KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
}  # fmt: skip


#: Maximum number of cached clients of a kind.
CLIENTS = 16


@dataclass(slots=True)
class Trouble:
    """The last error of a client's connections, such as a refused login. The client's calls do not
    raise it; they only fail for lack of an answer."""

    _text: str = ""
    _at: float = 0.0

    def __call__(self, error: KafkaError) -> None:
        """Record an error; a client calls this, as its ``error_cb``, while it is polled."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._text, self._at = error.str(), time.monotonic()

    def recent(self, otherwise: str) -> str:
        """Return the text of an error recorded a moment ago, or else ``otherwise``."""
        return self._text if self._text and time.monotonic() - self._at < RECENT else otherwise


#: Settings -> the process's client that looks at topics, and its last error.
_ADMINS: dict[tuple[tuple[str, Any], ...], tuple[AdminClient, Trouble]] = {}
#: Replaced clients, whose other requests may still be answered.
_RETIRED = deque[object](maxlen=4)


def admin(options: Options) -> AdminClient:
    """Return the process's client that looks at the topics of a source.

    Raises:
        AccessError: a variable of a secret is not set.
    """
    client, _ = _admin(_settings(options))
    # Polling reports errors that may have occurred meanwhile.
    client.poll(0)
    return client


def renew_admin(options: Options) -> None:
    """Replace the process's client that looks at the topics of a source.

    A client sends commits to a group's coordinator. If the coordinator was missing for a moment in
    the brokers' answers, all later commits of this client time out (librdkafka, issue 5511).
    """
    _RETIRED.append(_ADMINS.pop(_settings(options), None))


def consumer(options: Options, topics: Iterable[str]) -> Consumer:
    """Return the thread's client for reading messages of topics.

    Raises:
        AccessError: a variable of a secret is not set.
        KafkaException: no broker answers.
    """
    settings, thread = _settings(options), threading.get_ident()
    for topic in topics:
        _know(settings, thread, topic)
    return _consumer(settings, thread)


def timed_out(error: BaseException) -> bool:
    """Whether a request has failed because no answer came in time."""
    codes = (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError.REQUEST_TIMED_OUT)
    return isinstance(error, KafkaException) and error.args[0].code() in codes


def failure(cause: KafkaException | KafkaError, options: Options, field: str) -> SourceError:
    """Return the source's error for an error of the Kafka client."""
    error = cause.args[0] if isinstance(cause, KafkaException) else cause
    if error.code() in AWAY:
        return no_answer(options, field, error.str())
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return SourceError(
            "no-topic",
            "the topic does not exist",
            field=field,
            remedy="create the topic, or correct the option topics",
        )
    return SourceError(
        "bad-stream",
        f"Kafka at {options['brokers']}: {error.str()}",
        field=field,
        remedy="check the login, and that it may read the topic",
    )


def no_answer(options: Options, field: str, why: str) -> SourceError:
    """Return the error for Kafka brokers that don't answer; ``why``: reason if none is recorded."""
    client, trouble = _admin(_settings(options))
    client.poll(0)
    return SourceError(
        "no-server",
        f"Kafka at {options['brokers']}: {trouble.recent(why)}",
        field=field,
        remedy="check that the brokers run, and the options of their connection",
    )


def _settings(options: Options) -> tuple[tuple[str, Any], ...]:
    found = client_settings(resolved("source", KAFKA, options, os.environ))
    return tuple(sorted({**COMMON, **found}.items()))


def _admin(settings: tuple[tuple[str, Any], ...]) -> tuple[AdminClient, Trouble]:
    found = _ADMINS.get(settings)
    if found is None:
        trouble = Trouble()
        found = _ADMINS[settings] = AdminClient({**dict(settings), "error_cb": trouble}), trouble
        if len(_ADMINS) > CLIENTS:
            del _ADMINS[next(iter(_ADMINS))]
    return found


@lru_cache(maxsize=1024)
def _know(settings: tuple[tuple[str, Any], ...], thread: int, topic: str) -> None:
    """Make a client look up the brokers of a topic's partitions; by itself it would do so some
    tenths of a second after the partitions' first assignment."""
    _consumer(settings, thread).list_topics(topic, timeout=METADATA)


@lru_cache(maxsize=CLIENTS)
def _consumer(settings: tuple[tuple[str, Any], ...], thread: int) -> Consumer:
    return Consumer({**dict(settings), **_READING})


def peeking(options: Options) -> Consumer:
    """Return a new Kafka client that fetches as few messages as possible.

    Raises:
        AccessError: a variable of a secret is not set.
    """
    small = {
        "fetch.message.max.bytes": 1000,
        "queued.max.messages.kbytes": 1024,
        "fetch.wait.max.ms": 100,
    }
    return Consumer({**dict(_settings(options)), **_READING, **small})
