"""The planned source of all feeds: Redis Streams, Kafka topics, directories of files, and landed
batches of the ingest queries of Spark's own sources.

Its offset maps the id of each feed to the feed's own offset. A removed feed keeps its entry. A feed
has a new id, and starts from its beginning, when its stream is redefined or registered again, and
for a new version of a table.

Planning fills a batch with as many rows as the driver allows (``InputControl.limit``; see
``back_pressure``); feeds share these in proportion to their waiting rows. While there are live
streams, the rows of snapshots have a limit of their own (``InputControl.pace``; see
``snapshot_pace``). Planning also reports the progress of the feeds (``InputControl.streams``). An
unreadable feed stays at its offset and is reported; the other feeds advance.

The driver holds a feed (``InputControl.held``) when a planned piece of it could not be read: then
nothing of the feed is planned, except attempts to read it from time to time (trials). The offset
counts trials. So a trial starts a batch even if nothing has arrived, and a repeated batch repeats
its trials. A batch is also planned, without new rows, if withheld results are to be computed
(``InputControl.owed``).

Until the first load of one version of a table has been read, batches have rows of tables only.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from anabranch_contract.connectors.file_sources import is_own
from anabranch_contract.connectors.kafka_sources import is_own_topic
from anabranch_contract.connectors.lake.options import LAKE
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.sources import QUERY, REDIS_STREAM
from anabranch_contract.protocol.intake import StreamIntake
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import StreamKind
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.awaited import awaited, awaited_marks
from anabranch_runtime.sources.feed import Feed, Piece, Waiting, version_of
from anabranch_runtime.sources.files.feed import file_feed
from anabranch_runtime.sources.files.versions import version_feed
from anabranch_runtime.sources.ingest.feed import LANDED, landed_feed
from anabranch_runtime.sources.lake.feed import table_feed
from anabranch_runtime.sources.loads import Load, loads_of, with_loads
from anabranch_runtime.sources.pacing.back_pressure import shares
from anabranch_runtime.sources.permitted import masked
from anabranch_runtime.sources.planned import TRIALS, InputControl
from anabranch_runtime.sources.redis_stream import RedisFeed, redis_feed
from anabranch_runtime.state.offsets import OWED

#: Pause before an unreadable feed is checked again: the greater of some seconds and a multiple of
#: the check's duration (since a check delays the planning of all other feeds).
REST, REST_FACTOR = 1.0, 10.0
#: Seconds without rows after which a stream is no longer live.
LIVE = 60.0
#: Seconds between two trials to read a held feed: at first, and at most.
TRIAL_REST, LONGEST_TRIAL_REST = 2.0, 30.0


class Feeds:
    """Plans the batches of a set of feeds (``planned.PlannedSource``).

    Args:
        records: the feeds' streams. ``tasks``: number of tasks that read them.
        state: the state directory.
        control: values exchanged with the driver.
        live: whether retained streams wait for their epoch (``awaited``).
        results: the results directory, with the versions of queries that other queries read.

    Raises:
        StreamError: an option of a stream's source is unknown.
    """

    def __init__(
        self,
        records: Sequence[StreamRecord],
        tasks: int,
        redis_url: str,
        namespace: str,
        state: str,
        access: AccessPolicy,
        control: InputControl | None = None,
        *,
        live: bool = True,
        results: str = "",
    ) -> None:
        self._tasks, self._redis_url, self._keys = tasks, redis_url, Keys(namespace)
        self._state, self._access, self._results = state, access, results
        self._input = control or InputControl()
        self._feeds = {feed.id: feed for feed in map(self._feed, records)}
        #: Id of a feed's first version -> registration of the stream with its present version.
        self._versions = {version_of(i)[0]: feed.record for i, feed in self._feeds.items()}
        self._awaited = awaited_marks(records) if live else {}
        #: Monotonic time at which rows were last waiting in a stream that reads no snapshot.
        self._lived = float("-inf")
        self._errors: dict[str, tuple[float, str]] = {}
        #: Held feed -> number of its trials, and time of the next trial; None before :meth:`plan`.
        self._due: dict[str, tuple[int, float]] | None = None

    @property
    def feeds(self) -> Mapping[str, Feed]:
        """The present feeds, by id."""
        return self._feeds

    @property
    def waking(self) -> frozenset[str]:
        """The Redis Streams of the pipeline's own server."""
        own = (f for f in self._feeds.values() if isinstance(f, RedisFeed))
        return frozenset(key for f in own if f.url == self._redis_url for key in f.keys)

    @property
    def _held(self) -> dict[str, tuple[int, Any]]:
        return {i: held for i, held in self._input.held.items() if i in self._feeds}

    def shares(self, start: dict[str, Any], end: dict[str, Any]) -> list[list[Piece]]:
        """Return no input: all input belongs to feeds."""
        return [[] for _ in range(self._tasks)]

    def feeds_of(self, offset: dict[str, Any]) -> Mapping[str, Feed]:
        """Return the present feeds, and feeds of earlier versions of tables in ``offset``: a batch
        that was planned before a table was re-read is repeated with the earlier version's rows."""
        earlier = [self._earlier(k) for k in offset if self._is_earlier(k)]
        return {**self._feeds, **{feed.id: feed for feed in earlier}}

    def _feed(self, record: StreamRecord) -> Feed:
        return make_feed(
            record, self._redis_url, self._keys, self._state, self._access, self._results
        )

    def _is_earlier(self, feed_id: str) -> bool:
        first, version = version_of(feed_id)
        return first in self._versions and version < self._versions[first].version

    def _earlier(self, feed_id: str) -> Feed:
        first, version = version_of(feed_id)
        return self._feed(self._versions[first].model_copy(update={"version": version}))

    def plan(self, start: dict[str, Any]) -> dict[str, Any]:
        """Return the end offset of the next batch: every readable feed advances by its share."""
        # Offsets of removed ingest queries and of earlier table versions are dropped, since their
        # ids never occur again.
        end = {
            k: v
            for k, v in start.items()
            if k in self._feeds or not (k.startswith(LANDED) or self._is_earlier(k))
        }
        waiting = self._waiting(end)
        loads = {
            k: v for k, v in loads_of(start).items() if k in self._feeds or self._is_earlier(k)
        }
        loading = self._loading(loads, waiting)
        snapshots = {k for k, w in waiting.items() if w.snapshot is not None}
        live = self._lives(waiting, snapshots)
        allowed = shares(
            self._input.limit,
            {k: w.rows for k, w in waiting.items() if not loading or self._is_table(k)},
            snapshots,
            self._input.pace if live and not loading else None,
        )
        self._input.paced = sum(allowed.get(k, 0) for k in snapshots)
        for feed_id in waiting:
            feed, rows = self._feeds[feed_id], allowed.get(feed_id, 0)
            record, at = feed.record, end.get(feed_id)
            rows = min(rows, record.source.rows_per_batch or rows)
            load = loads.get(feed_id, Load(record.name, version=record.version))
            with self._noted(feed_id):
                if record.event_time is not None or (load.is_first and self._is_table(feed_id)):
                    empty = self._is_table(feed_id) and not waiting[feed_id].rows
                    at, load = plan_feed(feed, at, rows, load, time.time(), empty=empty)
                    if load.began:
                        loads[feed_id] = load
                elif rows:
                    at = feed.advance(at, rows)
                if at is not None:
                    end[feed_id] = at
        whole = {version_of(k)[0] for k, v in loads.items() if k in self._feeds and not v.is_first}
        end = with_loads(
            end,
            {k: v for k, v in loads.items() if k in self._feeds or version_of(k)[0] not in whole},
        )
        due = self._trials()
        if due:
            tried = end.get(TRIALS, {})
            end[TRIALS] = {**tried, **{name: tried.get(name, 0) + 1 for name in due}}
        if end == start and self._input.owed is not None:
            end[OWED] = self._input.owed
        self._report(waiting, advanced=end != start)
        return end

    def _lives(self, waiting: Mapping[str, Waiting], snapshots: Collection[str]) -> bool:
        """Whether any stream that is not in ``snapshots`` has had rows lately."""
        now = time.monotonic()
        if any(found.rows for feed, found in waiting.items() if feed not in snapshots):
            self._lived = now
        return now - self._lived <= LIVE

    def _loading(self, loads: Mapping[str, Load], waiting: Mapping[str, Waiting]) -> bool:
        """Whether streams must wait, because the first load of a table is being read, or will be
        read once an epoch has the table. An unreadable table delays no stream."""
        unplanned = awaited(self._awaited, self._input.definitions)
        whole = {version_of(k)[0] for k, load in loads.items() if not load.is_first}
        return any(
            self._is_table(k)
            and version_of(k)[0] not in whole
            and (waiting[k].rows > 0 if k in waiting else feed.record.name in unplanned)
            for k, feed in self._feeds.items()
        )

    def _is_table(self, feed_id: str) -> bool:
        return self._feeds[feed_id].record.kind is StreamKind.TABLE

    def _waiting(self, offset: dict[str, Any]) -> dict[str, Waiting]:
        """Return feed -> its waiting input, if readable; add new feeds' offsets to ``offset``."""
        found, unplanned = {}, awaited(self._awaited, self._input.definitions)
        for feed_id, feed in self._feeds.items():
            if feed_id in self._input.held or self._rests(feed_id) or feed.record.name in unplanned:
                continue
            with self._noted(feed_id):
                if feed_id not in offset:
                    begin = feed.begin()
                    if begin is not None:
                        offset[feed_id] = begin
                found[feed_id] = feed.waiting(offset.get(feed_id))
                self._errors.pop(feed_id, None)
        return found

    def _trials(self) -> list[str]:
        """Return the held feeds that this batch tries to read again.

        Feeds that were held before this process began are tried at once, as their input may have
        been repaired. A feed is not tried if its source can't even be checked (``Feed.look``).
        """
        now, first = time.monotonic(), self._due is None
        known, due = self._due or {}, {}
        found = []
        for feed_id, (trials, start) in self._held.items():
            count, moment = known.get(feed_id, (-1, now))
            if count != trials:
                rest = min(TRIAL_REST * 2.0 ** (trials - 1), LONGEST_TRIAL_REST)
                moment = now if first else now + rest
            if moment <= now and not self._rests(feed_id):
                with self._noted(feed_id):
                    self._feeds[feed_id].look(start)
                    self._errors.pop(feed_id, None)
                    found.append(feed_id)
                    moment = now + LONGEST_TRIAL_REST
            due[feed_id] = (trials, moment)
        self._due = due
        return found

    def _rests(self, feed_id: str) -> bool:
        return self._errors.get(feed_id, (0.0, ""))[0] > time.monotonic()

    @contextmanager
    def _noted(self, feed_id: str) -> Iterator[None]:
        """Catch a feed's error in the ``with`` block, and pause the checks of that feed."""
        began = time.monotonic()
        try:
            yield
        except SourceError as error:
            now = time.monotonic()
            rest = max(REST, REST_FACTOR * (now - began))
            self._errors[feed_id] = (now + rest, masked(str(error)))

    def _report(self, waiting: dict[str, Waiting], *, advanced: bool) -> None:
        """Report the progress of all feeds; ``advanced``: whether a batch was planned."""
        streams = {
            self._feeds[k].record.name: StreamIntake(w.rows, w.seconds, snapshot=w.snapshot)
            for k, w in waiting.items()
        }
        for feed_id, (_, text) in self._errors.items():
            streams[self._feeds[feed_id].record.name] = StreamIntake(error=text)
        self._input.streams = streams
        if advanced:
            self._input.planned = time.time()


def plan_feed(
    feed: Feed, offset: Any, rows: int, load: Load, now: float, *, empty: bool = False
) -> tuple[Any, Load]:
    """Plan a batch's input from a feed that has been read up to ``offset``, within ``load``.

    Args:
        feed: a readable feed.
        rows: maximum number of the feed's rows in the batch; 0: no rows wait.
        load: the feed's newest load.
        now: seconds since 1970.
        empty: whether to begin a load although no rows wait, e.g. for an empty table.

    Returns:
        The feed's offset and load after the batch.

    Raises:
        SourceError: the feed can't be read for now.
    """
    if load.is_open and load.end is None:
        if rows and feed.is_apart(offset, load):
            load = load.ended()
        else:
            load = replace(load, end=feed.load_end(offset, load))
    if load.is_open and load.end is not None and feed.has_reached(offset, load.end):
        load = load.ended()
    if not rows and not (empty and load.began == 0.0):
        return offset, load
    if not load.is_open:
        load = load.opened(now)
        load = replace(load, end=feed.load_end(offset, load))
    if rows:
        offset = feed.advance(offset, rows, load.end)
    elif load.end is not None:
        return load.end, load.ended()
    done = load.end is not None and feed.has_reached(offset, load.end)
    return offset, load.ended() if done else load


def make_feed(
    record: StreamRecord,
    redis_url: str,
    keys: Keys,
    state: str,
    access: AccessPolicy,
    results: str = "",
) -> Feed:
    """Create the feed of a stream, by its kind of source.

    Raises:
        StreamError: an option of the stream's source is unknown.
    """
    if record.source.format == REDIS_STREAM:
        return redis_feed(record, redis_url, keys.stream(record.name))
    source = record.source
    if source.then is not None:
        from anabranch_runtime.sources.kafka.continuation import continued_feed

        plain = record.model_copy(update={"source": source.model_copy(update={"then": None})})
        own = table_feed if source.format in LAKE else file_feed
        return continued_feed(record, own(plain, state, access), state, keys.namespace)
    if is_own_topic(source.format, source.options):
        # Imported when needed: its client is a large library.
        from anabranch_runtime.sources.kafka.feed import kafka_feed

        return kafka_feed(record, keys.namespace)
    if source.format in LAKE:
        return table_feed(record, state, access)
    if source.format == QUERY:
        return version_feed(record, results)
    if is_own(source.format, source.path, source.options):
        return file_feed(record, state, access)
    return landed_feed(record, state)
