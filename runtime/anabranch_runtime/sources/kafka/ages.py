"""Ages of unread messages of Kafka topics: for how long the first unread message has waited; and,
if messages may have several rows, how many. While a stream keeps up, the age is the time since its
messages were first seen here. For messages that are older than this process, it is the time since
their timestamps, for which the first message of each partition is fetched in the background. The
rows of these first messages are counted, too."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, TopicPartition

from anabranch_runtime.sources.kafka.client import Options, peeking

#: Seconds between two fetches of first messages, and seconds after which a fetch is abandoned.
PEEK_EVERY, PEEK_FOR = 5.0, 4.0
#: Assumed rows per message until they are counted, and seconds after which they are recounted.
ASSUMED, COUNT_EVERY = 1000.0, 60.0


@dataclass(slots=True)
class Ages:
    """Times at which the unread Kafka messages of a stream arrived, where they are known."""

    #: Partition -> pairs of an end, and the Unix time at which it was first seen; oldest first.
    _seen: dict[str, deque[tuple[int, float]]] = field(default_factory=dict)
    #: Partition -> its end when it was first looked at.
    _earlier: dict[str, int] = field(default_factory=dict)
    #: Function that counts the rows of a message; None: each message is one row.
    count: Callable[[bytes], int] | None = None
    _density: float = ASSUMED
    _counts: list[int] = field(default_factory=list)
    _counted: float = float("-inf")
    _client: Consumer | None = None
    #: Partitions whose first message is to be fetched; partitions whose timestamps count.
    _wanted: set[str] = field(default_factory=set)
    _timed: set[str] = field(default_factory=set)
    _began: float = float("-inf")

    @property
    def rows(self) -> float:
        """Mean number of rows of a Kafka message."""
        return 1.0 if self.count is None else self._density

    def oldest(self, options: Options, unread: Mapping[str, tuple[int, int]]) -> float:
        """Return the seconds for which the oldest unread message has waited; 0: no message waits.

        Args:
            options: options of the source.
            unread: partition -> next offset to read, and the partition's end.
        """
        now = time.time()
        for place, (at, end) in unread.items():
            marks = self._seen.setdefault(place, deque())
            self._earlier.setdefault(place, end)
            if not marks or marks[-1][0] < end:
                marks.append((end, now))
            while len(marks) > 1 and marks[0][0] <= at:
                marks.popleft()
        timed = {p for p, (at, _) in unread.items() if at < self._earlier[p]}
        counts = self.count is not None and time.monotonic() - self._counted > COUNT_EVERY
        counted = {p for p, (at, end) in unread.items() if at < end} if counts else set()
        self._peek(options, {p: unread[p][0] for p in timed | counted}, timed)
        times = [self._seen[p][0][1] for p, (at, end) in unread.items() if at < end]
        return max(now - min(times, default=now), 0.0)

    def _peek(self, options: Options, first: Mapping[str, int], timed: set[str]) -> None:
        """Fetch messages at offsets ``first``, over several calls; ``timed``: their times count."""
        now = time.monotonic()
        if self._client is None:
            if not first or now - self._began < PEEK_EVERY:
                return
            self._client, self._wanted, self._began = peeking(options), set(first), now
            self._timed, self._counts = timed, []
            named = ((p.rpartition("/"), at) for p, at in first.items())
            self._client.assign([TopicPartition(t, int(n), at) for (t, _, n), at in named])
        try:
            for message in self._client.consume(len(self._wanted), 0):
                place = f"{message.topic()}/{message.partition()}"
                if message.error() is None and place in self._wanted:
                    self._wanted.discard(place)
                    if self.count is not None and message.value() is not None:
                        self._counts.append(self.count(message.value()))
                    if place not in self._timed:
                        continue
                    end, seen = self._seen[place][0]
                    kind, milliseconds = message.timestamp()
                    self._seen[place][0] = end, milliseconds / 1e3 if kind else seen
        except KafkaException:
            self._wanted.clear()
        if not self._wanted or now - self._began > PEEK_FOR:
            self._client.close()
            self._client = None
            if self._counts:
                self._density = max(sum(self._counts) / len(self._counts), 1.0)
                self._counted = now
