"""One Spark source for all feeds: Redis Streams, directories of files, and landed batches of the
ingest queries of Spark's own sources.

Each further source of a Spark query costs every batch some time, so streams that the runtime reads
itself share one. The offset maps the id of each feed to its own offset; a feed that is removed
keeps its entry; a redefined feed, or one of a stream that is registered again, has another id and
starts from its beginning. So does a new version of a table.

Planning happens in one Python process of Spark's beside the driver. It fills a batch with the rows
that the driver allows (``Keys.limit``; see ``back_pressure``), shared among feeds in proportion to
their waiting rows. It also reports the progress of the feeds (``Keys.intake``). A feed that can't
be read stays at its offset, and is reported; the others go on. Tasks read their pieces themselves
(``planned``).

A feed that the driver holds (``Keys.held``: a planned piece of it could not be read) is not planned
further. Now and then a trial to read it is planned, which the offset counts: so there is a batch
for it though nothing else has arrived, and a repeated batch tries the same. There is also a batch
where withheld results are owed (``Keys.owed``) and nothing arrives.

Until the first load of some version of a table has been read, batches bring rows of tables only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadMaxRows
from redis.exceptions import RedisError

from anabranch_contract.connectors.file_sources import is_own
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.sources import REDIS_STREAM
from anabranch_contract.protocol.intake import Intake, StreamIntake
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import StreamKind
from anabranch_runtime.control import connection
from anabranch_runtime.errors import SourceError
from anabranch_runtime.recovery.checkpoint import LANDED, OWED
from anabranch_runtime.sources.awaited import awaited, awaited_marks
from anabranch_runtime.sources.back_pressure import MOST_ROWS, shares
from anabranch_runtime.sources.blocks import SCHEMA
from anabranch_runtime.sources.feed import Feed, Waiting, version_of
from anabranch_runtime.sources.files.feed import file_feed
from anabranch_runtime.sources.ingest.feed import landed_feed
from anabranch_runtime.sources.loads import Load, loads_of, with_loads
from anabranch_runtime.sources.permitted import masked
from anabranch_runtime.sources.planned import TRIALS, PlannedReader
from anabranch_runtime.sources.redis_stream import redis_feed

FORMAT = "anabranch-feeds"
#: Seconds between two reports of how feeds stand while nothing is read.
REPORT = 0.5
#: Seconds for which an unreadable feed is left alone, also as a factor of the time that its check
#: has taken: during a check nothing is planned for the others.
REST, REST_FACTOR = 1.0, 10.0
#: Seconds between two trials of a feed that is held: at first, and at most.
TRIAL_REST, LONGEST_TRIAL_REST = 2.0, 30.0


class FeedsReader(PlannedReader):
    """Plans the batches of a set of feeds."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(int(options["tasks"]))
        self._redis_url, self._keys = options["redis"], Keys(options["namespace"])
        records = [StreamRecord.model_validate(r) for r in json.loads(options["streams"])]
        self._state, self._access = options["state"], AccessPolicy.loads(options["access"])
        self._feeds = {feed.id: feed for feed in map(self._feed, records)}
        #: First version of a feed -> the record of its present version.
        self._versions = {version_of(i)[0]: feed.record for i, feed in self._feeds.items()}
        self._awaited = awaited_marks(records) if options["live"] else {}
        self._retained: dict[str, str] = {}
        self._errors: dict[str, tuple[float, str]] = {}
        self._held: dict[str, tuple[int, Any]] = {}
        self._owed: int | None = None
        #: Feed that is held -> after how many trials, and when the next is due; None: not known.
        self._due: dict[str, tuple[int, float]] | None = None
        self._intake = Intake()
        self._reported = 0.0

    def getDefaultReadLimit(self) -> ReadMaxRows:
        """A formality: the limit that counts is the driver's, which changes."""
        return ReadMaxRows(MOST_ROWS)

    @property
    def feeds(self) -> Mapping[str, Feed]:
        """All of them."""
        return self._feeds

    def feeds_of(self, offset: dict[str, Any]) -> Mapping[str, Feed]:
        """All of them, and feeds of earlier versions in ``offset``: a batch that was planned before
        a table is read again is repeated with their rows.
        """
        earlier = [self._earlier(k) for k in offset if self._is_earlier(k)]
        return {**self._feeds, **{feed.id: feed for feed in earlier}}

    def _feed(self, record: StreamRecord) -> Feed:
        return make_feed(record, self._redis_url, self._keys, self._state, self._access)

    def _is_earlier(self, feed_id: str) -> bool:
        first, version = version_of(feed_id)
        return first in self._versions and version < self._versions[first].version

    def _earlier(self, feed_id: str) -> Feed:
        first, version = version_of(feed_id)
        return self._feed(self._versions[first].model_copy(update={"version": version}))

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """As far on as the driver allows, in every feed that can be read."""
        # Landed batches of a removed stream are deleted; its id never comes again, and neither does
        # an earlier version.
        end = {
            k: v
            for k, v in start.items()
            if k in self._feeds or not (k.startswith(LANDED) or self._is_earlier(k))
        }
        limited = self._allowed_rows()
        waiting = self._waiting(end)
        loads = {
            k: v for k, v in loads_of(start).items() if k in self._feeds or self._is_earlier(k)
        }
        loading = self._loading(loads, waiting)
        allowed = shares(
            limited,
            {k: w.rows for k, w in waiting.items() if not loading or self._is_table(k)},
        )
        for feed_id in waiting:
            feed, rows = self._feeds[feed_id], allowed.get(feed_id, 0)
            record, at = feed.record, end.get(feed_id)
            rows = min(rows, record.source.rows_per_batch or rows)
            load = loads.get(feed_id, Load(record.name, version=record.version))
            with self._noted(feed_id):
                if record.event_time is not None or (load.is_first and self._is_table(feed_id)):
                    empty = self._is_table(feed_id) and not waiting[feed_id].rows
                    at, load = plan(feed, at, rows, load, time.time(), empty=empty)
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
        if end == start and self._owed is not None:
            end[OWED] = self._owed
        self._report(waiting, advanced=end != start)
        return end

    def _loading(self, loads: Mapping[str, Load], waiting: Mapping[str, Waiting]) -> bool:
        """Whether a table is read for the first time, or will be as soon as an epoch has it: until
        that is over, streams wait. An unreadable table delays no stream.
        """
        unplanned = awaited(self._awaited, self._retained)
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
        """Rows that wait in feeds that can be read; notes in ``offset`` where new ones begin."""
        found, unplanned = {}, awaited(self._awaited, self._retained)
        for feed_id, feed in self._feeds.items():
            if feed_id in self._held or self._rests(feed_id) or feed.record.name in unplanned:
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
        """The held feeds to be tried with this batch.

        Feeds held since before this process began are tried at once: their streams may have
        changed. A feed whose source can't even be looked at is not tried.
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
        """Let a feed that can't be read rest."""
        began = time.monotonic()
        try:
            yield
        except SourceError as error:
            now = time.monotonic()
            rest = max(REST, REST_FACTOR * (now - began))
            self._errors[feed_id] = (now + rest, masked(str(error)))

    def _allowed_rows(self) -> int | None:
        """Rows that the driver allows, None: any number; notes the held feeds, the retained streams
        of the epoch, and the debt.

        Without a server there is no limit, and the last known values hold.
        """
        try:
            keys = (self._keys.limit, self._keys.held, self._keys.owed, self._keys.retained)
            found = cast("list[bytes | None]", connection(self._redis_url).mget(keys))
        except RedisError:
            return None
        limit, held, owed, retained = found
        self._retained = json.loads(retained or b"{}")
        known = json.loads(held or b"{}")
        self._held = {i: (trials, at) for i, (trials, at) in known.items() if i in self._feeds}
        self._owed = None if owed is None else int(owed)
        return None if limit is None else int(limit)

    def _report(self, waiting: dict[str, Waiting], *, advanced: bool) -> None:
        """Report the progress of the feeds, where a batch was planned or a report is due."""
        now = time.monotonic()
        errors = {self._feeds[k].record.name: text for k, (_, text) in self._errors.items()}
        known = {name: s.error for name, s in self._intake.streams.items() if s.error}
        if not advanced and errors == known and now - self._reported < REPORT:
            return
        streams = {
            self._feeds[k].record.name: StreamIntake(w.rows, w.seconds) for k, w in waiting.items()
        }
        for name, text in errors.items():
            streams[name] = StreamIntake(error=text)
        planned = time.time() if advanced else self._intake.planned
        self._intake, self._reported = Intake(streams, planned), now
        try:
            connection(self._redis_url).set(self._keys.intake, self._intake.dumps())
        except RedisError:
            # Only a report; the next one makes up for it.
            return


def plan(
    feed: Feed, offset: Any, rows: int, load: Load, now: float, *, empty: bool = False
) -> tuple[Any, Load]:
    """Plan a batch's part of a feed that stands at ``offset`` in ``load``.

    Args:
        feed: one that can be read.
        rows: number of its rows that the batch may bring; 0: nothing waits.
        load: the feed's newest.
        now: seconds since 1970.
        empty: whether a load is to begin though nothing waits, as that of an empty table.

    Returns:
        The offset after the batch, and the feed's load then.

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


class FeedsSource(DataSource):
    """The data source's registration with Spark."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """The schema of blocks."""
        return SCHEMA

    def streamReader(self, schema: Any) -> FeedsReader:
        """A reader of the feeds in the options."""
        return FeedsReader(dict(self.options))


def make_feed(
    record: StreamRecord, redis_url: str, keys: Keys, state: str, access: AccessPolicy
) -> Feed:
    """The feed of one stream.

    Raises:
        StreamError: its source has options that mean nothing.
    """
    if record.source.format == REDIS_STREAM:
        return redis_feed(record, redis_url, keys.stream(record.name))
    source = record.source
    if is_own(source.format, source.path, source.options):
        return file_feed(record, state, access)
    return landed_feed(record, state)


def source_options(
    records: Sequence[StreamRecord],
    tasks: int,
    redis_url: str,
    namespace: str,
    state: str,
    access: AccessPolicy,
    *,
    live: bool = True,
) -> dict[str, str]:
    """The options under which :class:`FeedsSource` reads ``records``; ``live``: streams that are
    retained wait for their epoch (``awaited``).
    """
    return {
        "streams": json.dumps([r.model_dump() for r in records]),
        "tasks": str(tasks),
        "redis": redis_url,
        "namespace": namespace,
        "state": state,
        "access": access.dumps(),
        "live": "yes" if live else "",
    }
