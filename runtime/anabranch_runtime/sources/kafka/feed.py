"""Kafka topics as a feed: the partitions of one or more topics form one stream.

The offset has, per ``topic/partition``: the next offset to read, the *base* (the first offset that
was read), and the topic's id. Ranges of offsets end at the last stable offset, before which every
transaction is decided, so the committed messages of a range never change. Markers and messages of
aborted transactions have offsets, too: a range has at most as many rows as offsets.

A topic that is deleted and created again has another id. If an offset is below the partition's
first or beyond its last one, messages were lost.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from anabranch_contract.connectors.kafka_sources import (
    KAFKA,
    KafkaOptions,
    MessagePayload,
    kafka_options,
)
from anabranch_contract.connectors.sources import OnLoss, StreamStart
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.decode import stream_rows
from anabranch_runtime.sources.feed import EntryFeed, Piece, PieceError, Waiting, feed_id
from anabranch_runtime.sources.kafka.ages import Ages
from anabranch_runtime.sources.kafka.client import (
    admin,
    failure,
    no_answer,
    renew_admin,
    timed_out,
)
from anabranch_runtime.sources.kafka.reading import messages_lost, topic_replaced
from anabranch_runtime.sources.loads import Load

#: Seconds for which planning waits for brokers' answers; later ones serve the next look.
LOOKING = 1.0
#: Seconds after which a request without an answer has failed.
REQUEST = 5.0
#: Seconds between two looks at topics (ids, partitions, first offsets), and between two commits to
#: the consumer group. Last offsets are requested for every batch.
TOPICS_EVERY, COMMIT_EVERY = 1.0, 1.0
#: Maximum number of a partition's offsets that form one piece, since dividing so few costs more
#: than it gains.
WHOLE = 1 << 12


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """Read position in one partition of a Kafka topic (fields: see the module docstring)."""

    next: int
    base: int
    id: str

    def to_json(self) -> list[Any]:
        """Return the position as JSON: a list of the constructor's arguments."""
        return [self.next, self.base, self.id]


@dataclass(frozen=True, slots=True)
class PartitionLook:
    """State of a partition of the topic ``id``: its offsets are from ``low`` to below ``high``."""

    low: int
    high: int
    id: str


def settle(
    place: str, look: PartitionLook, position: PartitionPosition | None, on_loss: OnLoss
) -> PartitionPosition:
    """Return the position in a Kafka partition from which reading continues.

    If ``position`` is None, the partition was added after reading had begun. It is read from offset
    0 (as if its topic were created again), so messages deleted before the first look are lost.

    Raises:
        SourceError: messages were lost unread (unless ``on_loss`` is to skip them), or the topic
            was replaced, or its end is before the position.
    """
    if position is None or (position.id != look.id and on_loss is OnLoss.SKIP):
        position = PartitionPosition(0, 0, look.id)
    if position.id != look.id:
        raise topic_replaced(place)
    if look.high < position.next:
        raise SourceError(
            "partition-truncated",
            f"the partition ends at offset {look.high}, before the read offset {position.next}: its"
            " brokers lost messages",
            field=place,
            remedy="wait until the partition is longer again, or register the stream again",
        )
    if position.next < look.low and on_loss is OnLoss.STOP:
        raise messages_lost(place, look.low - position.next)
    return position


@dataclass(slots=True)
class KafkaFeed(EntryFeed):
    """A stream that is read from Kafka topics."""

    NUMBER = 0
    record: StreamRecord
    options: KafkaOptions
    group: str
    id: str
    _looks: dict[str, PartitionLook] = field(default_factory=dict)
    _ids: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    _low: dict[str, int] = field(default_factory=dict)
    #: Requests to brokers in progress, and the monotonic time of the last answer about topics.
    _asked: dict[str, dict[Any, Future[Any]]] = field(default_factory=dict)
    _described: float = float("-inf")
    #: Offset of the newest commit to the consumer group, its monotonic time, and its answers.
    _committed: tuple[Any, float, Collection[Future[Any]]] = (None, float("-inf"), ())
    _ages: Ages = field(default_factory=Ages)

    def begin(self) -> Any:
        """Return the first offset of each partition, by the option ``start``."""
        looks = self._look()
        start, chosen = self.options.start, self.options.offsets
        latest = start is StreamStart.LATEST
        first = {place: look.high if latest else look.low for place, look in looks.items()}
        if isinstance(start, int):
            moment = OffsetSpec.for_timestamp(start)
            found = self._answers("start", {_partition(place): moment for place in looks})
            # -1: no message is so late, so the partition is read from its end.
            first = {p: o if o >= 0 else looks[p].high for p, o in found.items()}
        for (topic, number), at in chosen.items():
            place = f"{topic}/{number}"
            if place not in looks:
                raise SourceError(
                    "no-partition",
                    "the option start names a partition that does not exist",
                    field=place,
                    remedy="correct the option start",
                )
            first[place] = at
        return {p: PartitionPosition(at, at, looks[p].id).to_json() for p, at in first.items()}

    def waiting(self, offset: Any) -> Waiting:
        """Return the number of unread offsets of the partitions, and for how long they wait."""
        settled = self._settled(offset, self._look())
        self._commit(offset)
        unread = {p: (at.next, look.high) for p, (look, at) in settled.items()}
        rows = sum(max(high - max(at, settled[p][0].low), 0) for p, (at, high) in unread.items())
        lost = any(at.next < look.low for look, at in settled.values())
        seconds = self._ages.oldest(self.record.source.options, unread)
        return Waiting(max(round(rows * self._ages.rows), int(lost)), seconds)

    def load_end(self, offset: Any, load: Load) -> Any:
        """Return the offset after the last message of each partition, as of the last look."""
        settled = self._settled(offset, self._looks or self._look())
        return {p: replace(at, next=look.high).to_json() for p, (look, at) in settled.items()}

    def has_reached(self, offset: Any, end: Any) -> bool:
        """Whether each partition has been read up to ``end``, or its topic was replaced since."""
        pairs = ((PartitionPosition(*offset[p]), PartitionPosition(*at)) for p, at in end.items())
        return all(a.id != b.id or a.next >= b.next for a, b in pairs)

    def advance(self, offset: Any, rows: int, end: Any = None) -> Any:
        """Move the offset on by ``rows`` rows, divided among partitions in proportion to unread
        rows. Partitions that are not in ``end`` belong to the next load."""
        settled = self._settled(offset, self._looks or self._look())
        upto = {p: look.high for p, (look, _) in settled.items()}
        if end is not None:
            ends = {p: PartitionPosition(*at) for p, at in end.items()}
            settled = {p: s for p, s in settled.items() if p in ends and ends[p].id == s[1].id}
            upto = {p: ends[p].next for p in settled}
        begin = {p: min(max(at.next, look.low), upto[p]) for p, (look, at) in settled.items()}
        total = sum(upto[p] - first for p, first in begin.items())
        messages = rows / self._ages.rows
        after = dict(offset or {})
        for place, (_, at) in settled.items():
            first, unread = begin[place], upto[place] - begin[place]
            most = max(int(messages * unread / total), 1) if unread > 0 else 0
            after[place] = replace(at, next=max(first + min(most, unread), at.next)).to_json()
        return after

    def pieces(self, start: Any, end: Any, parts: int) -> list[Piece]:
        """Return pieces: ranges of partitions' offsets, of similar size."""
        found, ranges = list[Piece](), list[tuple[str, PartitionPosition, int]]()
        for place, document in end.items():
            upto = PartitionPosition(*document)
            before = PartitionPosition(*start[place]) if start and place in start else None
            if before is not None and before.id != upto.id:
                gone = PieceError("topic-replaced", topic_replaced(place).message)
                found.append(replace(self._piece(place, before, before.next), gone=gone, last=None))
                before = None
            if before is None:
                # A partition that had not been read before begins at its base.
                before = replace(upto, next=upto.base)
            if before.next < upto.next:
                ranges.append((place, before, upto.next))
        total = sum(last - before.next for _, before, last in ranges)
        size = max(-(-total // parts), WHOLE)
        for place, before, last in ranges:
            count = last - before.next
            cuts = max(round(count / size), 1)
            for i in range(cuts):
                first = replace(before, next=before.next + count * i // cuts)
                end_of_cut = before.next + count * (i + 1) // cuts
                found.append(self._piece(place, first, end_of_cut, alone=cuts == 1))
        return found

    def _piece(
        self, place: str, before: PartitionPosition, last: int, *, alone: bool = True
    ) -> Piece:
        record, partition = self.record, _partition(place)
        where = {
            "options": dict(record.source.options),
            "topic": partition.topic,
            "partition": partition.partition,
            "first": before.next,
            "last": last,
            "id": before.id,
            "alone": alone,
            "payload": str(self.options.payload),
            "parts": dict(self.options.parts),
            "envelope": record.envelope,
            "tombstones": self._tombstones,
        }
        columns = tuple((c.name, c.type) for c in record.columns)
        return Piece(
            KAFKA,
            record.name,
            columns,
            round((last - before.next) * self._ages.rows),
            where,
            feed=self.id,
            source=place,
            unit="offsets",
            first=before.next,
            last=last,
            before=before.to_json(),
        )

    @property
    def _tombstones(self) -> str:
        """Meaning of messages without a value: they ``delete`` the row of their key, or only follow
        a deletion (``ignore``), or are ``invalid``."""
        changes = self.record.changes
        if changes is None:
            return "invalid"
        if changes.envelope is not None:
            return "ignore"
        keyed = changes.key and all(self.options.parts.get(c) == "key" for c in changes.key)
        return "delete" if changes.null_deletes and keyed else "invalid"

    # --- looking at topics ------------------------------------------------------------------

    def _settled(
        self, offset: Any, looks: dict[str, PartitionLook]
    ) -> dict[str, tuple[PartitionLook, PartitionPosition]]:
        found = {}
        for place, look in looks.items():
            known = PartitionPosition(*offset[place]) if offset and place in offset else None
            if offset is None:
                known = PartitionPosition(look.low, look.low, look.id)
            found[place] = look, settle(place, look, known, self.options.on_loss)
        return found

    def _look(self) -> dict[str, PartitionLook]:
        """Look at all partitions of the topics.

        Raises:
            SourceError: the brokers don't answer, or a topic does not exist.
        """
        now = time.monotonic()
        if now - self._described > TOPICS_EVERY:
            self._ids = self._topics()
        partitions = [TopicPartition(t, p) for t, (_, found) in self._ids.items() for p in found]
        if now - self._described > TOPICS_EVERY:
            self._low = self._answers("first", dict.fromkeys(partitions, OffsetSpec.earliest()))
            self._described = now
        high = self._answers("last", dict.fromkeys(partitions, OffsetSpec.latest()))
        self._looks = {
            place: PartitionLook(
                min(self._low.get(place, 0), at), at, self._ids[_partition(place).topic][0]
            )
            for place, at in high.items()
        }
        return self._looks

    def _topics(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return topic -> its id and the numbers of its partitions."""
        options = self.record.source.options
        if "topics" not in self._asked:
            names = TopicCollection(list(self.options.topics))
            self._asked["topics"] = admin(options).describe_topics(names, request_timeout=REQUEST)
        found = {}
        for topic, description in self._awaited("topics").items():
            numbers = sorted(p.id for p in description.partitions)
            found[topic] = str(description.topic_id), tuple(numbers)
        return found

    def _answers(self, what: str, specs: dict[TopicPartition, OffsetSpec]) -> dict[str, int]:
        """Return an offset of each partition; messages of undecided transactions are left out."""
        if what not in self._asked:
            self._asked[what] = admin(self.record.source.options).list_offsets(
                specs, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=REQUEST
            )
        return {f"{p.topic}/{p.partition}": at.offset for p, at in self._awaited(what).items()}

    def _awaited(self, what: str) -> dict[Any, Any]:
        """Return the results of requests to brokers; late results are returned by the next call."""
        asked, options = self._asked[what], self.record.source.options
        _, late = wait(asked.values(), LOOKING)
        if late:
            raise no_answer(options, self.record.name, f"no answer within {LOOKING:.0f} s")
        del self._asked[what]
        found = {}
        for key, future in asked.items():
            try:
                found[key] = future.result()
            except KafkaException as cause:
                raise failure(cause, options, getattr(key, "topic", key)) from cause
        return found

    def _commit(self, offset: Any) -> None:
        """Commit the read offsets to the consumer group, for monitoring; a failed commit is made
        again."""
        known, when, answers = self._committed
        now = time.monotonic()
        if not self.group or not offset or now - when < COMMIT_EVERY:
            return
        if not all(answer.done() for answer in answers):
            return
        errors = [error for answer in answers if (error := answer.exception()) is not None]
        if offset == known and not errors:
            return
        if any(timed_out(error) for error in errors):
            renew_admin(self.record.source.options)
        at = [TopicPartition(*_named(p), PartitionPosition(*o).next) for p, o in offset.items()]
        made = admin(self.record.source.options).alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self.group, at)], request_timeout=REQUEST
        )
        self._committed = offset, now, made.values()


def _named(place: str) -> tuple[str, int]:
    topic, _, partition = place.rpartition("/")
    return topic, int(partition)


def _partition(place: str) -> TopicPartition:
    return TopicPartition(*_named(place))


def kafka_feed(record: StreamRecord, namespace: str) -> KafkaFeed:
    """Make the feed of a ``kafka`` source that the runtime reads itself.

    Raises:
        StreamError: bad options.
    """
    options = kafka_options(record.source.options)
    group = options.group if options.group is not None else f"{namespace}.{record.name}"
    # The feed's id does not depend on the brokers, which may move, since topics have ids.
    count = stream_rows if options.payload is MessagePayload.ARROW else None
    id = feed_id(record, (KAFKA, options.topics))
    return KafkaFeed(record, options, group, id, _ages=Ages(count=count))
