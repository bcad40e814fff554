"""Ages of unread messages: for how long the first message that was not read has waited.

While a stream keeps up, this is the time since its messages were first seen here. Of messages that
were there before, after a start, it is the time since their timestamps: the first of each partition
is fetched for it, without waiting for it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, TopicPartition

from anabranch_runtime.sources.kafka.client import Options, peeking

#: Seconds between two fetches of first messages, and after which a fetch is given up.
PEEK_EVERY, PEEK_FOR = 5.0, 4.0


@dataclass(slots=True)
class Ages:
    """Times at which the unread messages of a stream arrived, as far as known."""

    #: Place -> (end of the partition, Unix time at which it was first seen), oldest first.
    _seen: dict[str, deque[tuple[int, float]]] = field(default_factory=dict)
    #: Place -> end of the partition at the first look.
    _earlier: dict[str, int] = field(default_factory=dict)
    _client: Consumer | None = None
    _wanted: set[str] = field(default_factory=set)
    _began: float = float("-inf")

    def oldest(self, options: Options, unread: Mapping[str, tuple[int, int]]) -> float:
        """Return the seconds for which the oldest unread message has waited; 0: none waits.

        Args:
            options: of the source.
            unread: place -> next offset to read, and the partition's end.
        """
        now = time.time()
        for place, (at, end) in unread.items():
            marks = self._seen.setdefault(place, deque())
            self._earlier.setdefault(place, end)
            if not marks or marks[-1][0] < end:
                marks.append((end, now))
            while len(marks) > 1 and marks[0][0] <= at:
                marks.popleft()
        self._peek(options, {p: at for p, (at, _) in unread.items() if at < self._earlier[p]})
        times = [self._seen[p][0][1] for p, (at, end) in unread.items() if at < end]
        return max(now - min(times, default=now), 0.0)

    def _peek(self, options: Options, first: Mapping[str, int]) -> None:
        """Fetch the timestamps of the messages at offsets ``first``, over several calls."""
        now = time.monotonic()
        if self._client is None:
            if not first or now - self._began < PEEK_EVERY:
                return
            self._client, self._wanted, self._began = peeking(options), set(first), now
            named = ((p.rpartition("/"), at) for p, at in first.items())
            self._client.assign([TopicPartition(t, int(n), at) for (t, _, n), at in named])
        try:
            for message in self._client.consume(len(self._wanted), 0):
                place = f"{message.topic()}/{message.partition()}"
                if message.error() is None and place in self._wanted:
                    self._wanted.discard(place)
                    end, seen = self._seen[place][0]
                    kind, milliseconds = message.timestamp()
                    self._seen[place][0] = end, milliseconds / 1e3 if kind else seen
        except KafkaException:
            self._wanted.clear()
        if not self._wanted or now - self._began > PEEK_FOR:
            self._client.close()
            self._client = None
