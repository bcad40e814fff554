"""One Spark source for all feeds: Redis Streams, directories of files, and what the ingest queries
of Spark's own sources have landed, as many as there are.

Each further source of a Spark query costs every batch some time, so streams that the runtime reads
itself share one. The offset maps the id of each feed to its own offset; a feed that is removed
keeps its entry and goes on from there if it is ever added again, a feed that is defined otherwise
has another id and begins anew.

Planning happens in one Python process of Spark's beside the driver. It decides what a batch brings:
as many rows as the driver allows (``Keys.limit``; see ``pressure``), shared out by what waits. It
also says how the feeds stand (``Keys.intake``). A feed that can't be read is left where it is, and
reported; the others go on. Tasks read their pieces themselves (``planned``).
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadMaxRows
from redis.exceptions import RedisError

from anabranch_planner.exchange import Intake, Keys, StreamIntake
from anabranch_planner.feeds import FILES, REDIS_STREAM
from anabranch_runtime.control import StreamRecord, connection
from anabranch_runtime.errors import SourceError
from anabranch_runtime.ingest.feed import landed_feed
from anabranch_runtime.sources.blocks import SCHEMA
from anabranch_runtime.sources.files import file_feed
from anabranch_runtime.sources.planned import PlannedReader
from anabranch_runtime.sources.pressure import MOST_ROWS, shares
from anabranch_runtime.sources.redis_stream import redis_feed
from anabranch_runtime.state.checkpoint import LANDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch_runtime.sources.feed import Feed, Piece, Waiting

FORMAT = "anabranch-feeds"
#: Seconds between two reports of how feeds stand while nothing is read.
REPORT = 0.5
#: Seconds for which a feed that can't be read is left alone.
REST = 1.0


class FeedsReader(PlannedReader):
    """Plans the batches of a set of feeds."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(int(options["tasks"]))
        self._redis_url, self._keys = options["redis"], Keys(options["namespace"])
        records = [StreamRecord.model_validate(r) for r in json.loads(options["streams"])]
        self._feeds = {
            feed.id: feed
            for feed in (
                make_feed(r, self._redis_url, self._keys, options["state"]) for r in records
            )
        }
        self._errors: dict[str, tuple[float, str]] = {}
        self._intake = Intake()
        self._reported = 0.0

    def getDefaultReadLimit(self) -> ReadMaxRows:
        """A formality: the limit that counts is the driver's, which changes."""
        return ReadMaxRows(MOST_ROWS)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """As far on as the driver allows, in every feed that can be read."""
        # What was landed of a stream that is no more is deleted; its id never comes again.
        end = {k: v for k, v in start.items() if k in self._feeds or not k.startswith(LANDED)}
        waiting = self._waiting(end)
        allowed = shares(self._limit(), {k: w.rows for k, w in waiting.items()})
        for feed_id, rows in allowed.items():
            feed = self._feeds[feed_id]
            most = feed.record.source.rows_per_batch
            try:
                end[feed_id] = feed.advance(end.get(feed_id), min(rows, most or rows))
            except SourceError as error:
                self._failed(feed_id, error)
        self._report(waiting, advanced=end != start)
        return end

    def _waiting(self, offset: dict[str, Any]) -> dict[str, Waiting]:
        """What waits in the feeds that can be read; notes in ``offset`` where new ones begin."""
        found = {}
        for feed_id, feed in self._feeds.items():
            if self._errors.get(feed_id, (0.0, ""))[0] > time.monotonic():
                continue
            try:
                if feed_id not in offset:
                    begin = feed.begin()
                    if begin is not None:
                        offset[feed_id] = begin
                found[feed_id] = feed.waiting(offset.get(feed_id))
                self._errors.pop(feed_id, None)
            except SourceError as error:
                self._failed(feed_id, error)
        return found

    def _failed(self, feed_id: str, error: SourceError) -> None:
        self._errors[feed_id] = (time.monotonic() + REST, str(error))

    def _limit(self) -> int | None:
        """Rows that the driver allows; without its word (or a server to ask), no limit."""
        try:
            value = connection(self._redis_url).get(self._keys.limit)
        except RedisError:
            return None
        return None if value is None else int(value)

    def _report(self, waiting: dict[str, Waiting], *, advanced: bool) -> None:
        """Say how the feeds stand, where a batch was planned or it is time to."""
        now = time.monotonic()
        errors = {self._feeds[k].record.name: text for k, (_, text) in self._errors.items()}
        known = {name: s.error for name, s in self._intake.streams.items() if s.error}
        if not advanced and errors == known and now - self._reported < REPORT:
            return
        streams = {
            self._feeds[k].record.name: StreamIntake(w.rows, w.seconds, self._feeds[k].lost)
            for k, w in waiting.items()
        }
        for name, text in errors.items():
            streams[name] = StreamIntake(error=text)
        planned = time.time() if advanced else self._intake.planned
        self._intake, self._reported = Intake(streams, planned), now
        try:
            connection(self._redis_url).set(self._keys.intake, self._intake.dumps())
        except RedisError:
            # A report; the next one will tell.
            return

    def shares(self, start: dict[str, Any], end: dict[str, Any]) -> list[list[Piece]]:
        """The batch's pieces, the largest first, each to the task that has least."""
        pieces = []
        for feed_id, upto in end.items():
            after = start.get(feed_id)
            if after == upto:
                continue
            feed = self._feeds.get(feed_id)
            if feed is not None:
                pieces += feed.pieces(after, upto, self._tasks)
        loads = [(0, number) for number in range(self._tasks)]
        found: list[list[Piece]] = [[] for _ in loads]
        for piece in sorted(pieces, key=lambda p: p.rows, reverse=True):
            load, number = min(loads)
            loads[number] = (load + piece.rows, number)
            found[number].append(piece)
        return found


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


def make_feed(record: StreamRecord, redis_url: str, keys: Keys, state: str) -> Feed:
    """The feed of one stream.

    Raises:
        StreamError: its source has options that mean nothing.
    """
    if record.source.format == REDIS_STREAM:
        return redis_feed(record, redis_url, keys.stream(record.name))
    if record.source.format == FILES:
        return file_feed(record, state)
    return landed_feed(record, state)


def source_options(
    records: Sequence[StreamRecord], tasks: int, redis_url: str, namespace: str, state: str
) -> dict[str, str]:
    """The options under which :class:`FeedsSource` reads ``records``."""
    return {
        "streams": json.dumps([r.model_dump() for r in records]),
        "tasks": str(tasks),
        "redis": redis_url,
        "namespace": namespace,
        "state": state,
    }
