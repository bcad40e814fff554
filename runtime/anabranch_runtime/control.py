"""The runtime's client of the Redis through which service and runtime exchange rulesets, settings
and reports; keys and documents are defined in ``anabranch_contract.protocol``."""

from __future__ import annotations

import json
import os
import time
import uuid
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import redis
import redis.exceptions
import structlog
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from anabranch_contract import codec
from anabranch_contract.codec import Malformed
from anabranch_contract.connectors.addresses import masked
from anabranch_contract.errors import RulesetError
from anabranch_contract.packed import pack, unpack
from anabranch_contract.plans import patches
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.patches import Patch
from anabranch_contract.plans.rations import RationSchedule
from anabranch_contract.plans.rows import read_ruleset, renumbered
from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_contract.protocol.activations import Activation, ViewRows
from anabranch_contract.protocol.batches import BATCHES_KEPT, BatchReport
from anabranch_contract.protocol.intake import SourceStatus
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.keys import (
    CHANGES_KEPT,
    HEARTBEAT_MILLISECONDS,
    INTERIMS_KEPT,
    Keys,
)
from anabranch_contract.protocol.profile import CpuReport
from anabranch_contract.protocol.progress import Boundary, Heartbeat, Progress
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.protocol.revisions import RevisionAnswer
from anabranch_runtime.decoding import patched
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.traced import changes

if TYPE_CHECKING:
    from redis.typing import EncodableT, FieldT

_LOG = structlog.get_logger("anabranch.runtime")

#: Seconds between polls of a key; also the first pause before a retry.
POLL = 0.01
#: Retries of a command while Redis is unreachable, and longest pause (s): four seconds in all.
RETRIES, RETRY_CAP = 14, 0.5


@dataclass(frozen=True, slots=True)
class _Expiry:
    """Expiry time of a registered query; the runtime reads no other field of the record."""

    expires_at: datetime | None = None


class Control:
    """Reads rulesets and settings that the service has published, and writes the runtime's reports.

    ``run`` is the id of this run of the runtime; if it is None, a random id is chosen.
    """

    def __init__(self, url: str, namespace: str, run: str | None = None) -> None:
        self.url = url
        self.run = run or uuid.uuid4().hex
        self.keys = Keys(namespace)
        self._redis = connection(url)
        #: Last reported activations (start and counters of each query), and id of that Redis entry.
        self._reported: dict[str, Activation] = {}
        self._noted = b""
        #: Id of the last change of the registry (streams, queries, settings) that has been read; id
        #: of the last change that requires a plan; expiry time per query.
        self._upto, self._changed, self._ends = b"", b"", dict[bytes, datetime | None]()

    @property
    def where(self) -> str:
        """Redis and namespace of this pipeline, as the beginning of an error message."""
        return f"Redis at {masked(self.url)}, namespace {self.keys.namespace!r},"

    def pipeline(self) -> str | None:
        """Id of the pipeline to which the Redis namespace belongs; None if it belongs to none."""
        found = cast("bytes | None", self._redis.get(self.keys.pipeline))
        return None if found is None else found.decode()

    def claim(self, pipeline: str) -> None:
        """Give the Redis namespace to the pipeline with id ``pipeline`` if it belongs to none."""
        self._redis.set(self.keys.pipeline, pipeline, nx=True)

    def streams(self) -> list[StreamRecord]:
        """Return every stream registered in Redis, by name."""
        documents = self._redis.hgetall(self.keys.streams).values()
        records = [StreamRecord.model_validate_json(d) for d in documents]
        return sorted(records, key=lambda r: r.name)

    def newest_epoch(self, epoch: int) -> int | None:
        """Return the newest epoch with a published ruleset, up to ``epoch``; None if none has."""
        return next(iter(self.newest_epochs(epoch, 1)), None)

    def newest_epochs(self, epoch: int, most: int) -> list[int]:
        """Return the ``most`` newest epochs, up to ``epoch``, with published rulesets."""
        found = self._redis.zrevrangebyscore(self.keys.published, epoch, 0, start=0, num=most)
        return [int(name) for name in cast("list[bytes]", found)]

    def wait_for_epoch(self, epoch: int, seconds: float, look: Callable[[], None]) -> int:
        """Wait until a ruleset for ``epoch`` is in Redis; ``look`` is called at every poll.

        Raises:
            PipelineError: ``no-ruleset`` after ``seconds``, ``stopped`` if a stop is requested.
        """
        deadline = time.monotonic() + seconds
        while self.newest_epoch(epoch) != epoch:
            if self.stop_requested():
                raise PipelineError("stopped", "asked to stop while waiting for a ruleset")
            if time.monotonic() > deadline:
                raise PipelineError(
                    "no-ruleset",
                    f"the ruleset of epoch {epoch} was not published within {seconds:.0f} s",
                    remedy="check that the service runs, in the same namespace and mode",
                )
            reach(Point.WAITING)
            look()
            time.sleep(POLL)
        return epoch

    def ruleset(self, name: RulesetId) -> Ruleset:
        """Return the ruleset that the service has published under this id."""
        return fetch_ruleset(self.url, self.keys.namespace, name)

    def ruleset_text(self, name: RulesetId) -> str:
        """Return the JSON text of the ruleset published under this id.

        Raises:
            PipelineError: ``no-ruleset``: none is published.
        """
        return _ruleset_text(self.url, self.keys.namespace, name)

    def publish(self, name: RulesetId, text: str) -> str:
        """Publish the ruleset ``text`` as ``name``, unless a readable ruleset is published there
        already; returns the published one."""
        key = self.keys.ruleset(name)
        self._redis.set(key, pack(text), nx=True)
        if not name.revision:
            self._redis.zadd(self.keys.published, {str(name.epoch): name.epoch})
        try:
            return self.ruleset_text(name)
        except PipelineError:
            self._redis.set(key, pack(text))
            return text

    def ration_schedule(self) -> RationSchedule | None:
        """The newest schedule: best rations per CPU budget; None if missing or unreadable."""
        text = cast("bytes | None", self._redis.get(self.keys.rations))
        return None if text is None else _schedule(text)

    def revision(self) -> RevisionAnswer | None:
        """The service's newest answer to interim measurements; None if missing or unreadable."""
        text = cast("bytes | None", self._redis.get(self.keys.revision))
        try:
            return None if text is None else RevisionAnswer.loads(text)
        except Malformed:
            return None

    def wait_for_answer(self, batch: int, seconds: float) -> RevisionAnswer:
        """Wait for the service's answer to interim measurements of the batches before ``batch``.

        Raises:
            PipelineError: ``no-revision`` after ``seconds``, ``stopped`` if a stop is requested.
        """
        deadline = time.monotonic() + seconds
        while True:
            found = self.revision()
            if found is not None and found.answered >= batch:
                return found
            if self.stop_requested():
                raise PipelineError("stopped", "asked to stop while waiting for a revision")
            if time.monotonic() > deadline:
                raise PipelineError(
                    "no-revision",
                    f"the measurements before batch {batch} were not answered in {seconds:.0f} s",
                    remedy="check that the service runs, in the same namespace, and that revisions "
                    "are on",
                )
            reach(Point.WAITING)
            time.sleep(POLL)

    def last_boundary(self) -> Boundary | None:
        """The last reported end of an epoch; None before the first report."""
        text = self._redis.lindex(self.keys.boundaries, -1)
        return Boundary.loads(text) if text is not None else None

    def report_boundary(self, boundary: Boundary) -> None:
        """Report to the service that an epoch has ended (or that the runtime has started)."""
        with self._redis.pipeline() as pipe:
            if boundary.snapshot is not None:
                pipe.set(self.keys.statistics(boundary.epoch), pack(boundary.snapshot))
            pipe.rpush(self.keys.boundaries, boundary.dumps())
            pipe.xadd(self.keys.reports, {"of": "boundary"}, maxlen=1, approximate=False)
            pipe.execute()

    def report_samples(self, samples: dict[str, str]) -> None:
        """Publish samples of rows: stream -> text (``protocol.measurements.StreamSample``)."""
        if samples:
            documents: dict[EncodableT, EncodableT] = dict(samples.items())
            self._redis.hset(self.keys.samples, mapping=documents)

    def report_latest(self, latest: Mapping[str, str], gone: Collection[str]) -> None:
        """Publish latest rows: stream -> text (``protocol.measurements.LatestRows``); remove the
        rows of streams that are ``gone``."""
        if latest:
            documents: dict[EncodableT, EncodableT] = dict(latest.items())
            self._redis.hset(self.keys.latest, mapping=documents)
        if gone:
            self._redis.hdel(self.keys.latest, *gone)

    def report_interim(self, *interims: Interim) -> None:
        """Append interim measurements of the epoch to their list in Redis; remove the oldest."""
        with self._redis.pipeline() as pipe:
            pipe.rpush(self.keys.interims, *(pack(interim.dumps()) for interim in interims))
            pipe.ltrim(self.keys.interims, -INTERIMS_KEPT, -1)
            pipe.xadd(self.keys.reports, {"of": "interim"}, maxlen=1, approximate=False)
            pipe.execute()

    def report_profile(self, report: CpuReport) -> None:
        """Report to the service the CPU time of this run, by use (group and name)."""
        self._redis.set(self.keys.profile, report.dumps())

    def report(
        self,
        progress: Progress,
        activations: dict[str, Activation],
        batches: Collection[BatchReport] = (),
    ) -> None:
        """In one transaction, write the progress and the changed activations (records of queries)
        to Redis, and append the reports of ``batches`` to their list. If Redis has other
        activations than this process reported last, all are written."""
        journal = self.keys.activation_changes
        newest = cast("Any", self._redis.xrevrange(journal, count=1))
        known = self._reported if newest and newest[0][0] == self._noted else {}
        names = changes(known, activations)
        changed = {
            q: activations[q]
            for q in (activations if names is None else names)
            if (last := known.get(q)) is not activations[q] and last != activations[q]
        }
        with self._redis.pipeline() as pipe:
            pipe.set(self.keys.runtime, progress.dumps())
            if batches:
                pipe.rpush(self.keys.batches, *(batch.dumps() for batch in batches))
                pipe.ltrim(self.keys.batches, -BATCHES_KEPT, -1)
            if changed:
                documents: dict[EncodableT, EncodableT] = {q: a.dumps() for q, a in changed.items()}
                pipe.hset(self.keys.activations, mapping=documents)
                entry: dict[FieldT, EncodableT] = {"activations": json.dumps(list(changed))}
                pipe.xadd(journal, entry, maxlen=CHANGES_KEPT)
            answers = pipe.execute()
        self._reported = activations
        if changed:
            self._noted = answers[-1]

    def included(self) -> dict[str, int]:
        """Return view -> number of batches included in its rows, as last reported to Redis; empty
        if there is no report, or only one of an earlier release without this number."""
        text = cast("bytes | None", self._redis.get(self.keys.runtime))
        try:
            last = None if text is None else Progress.loads(text)
        except Malformed:
            last = None
        lags = {} if last is None else last.telemetry.view_lag
        return {name: last.committed - lag for name, lag in lags.items() if last is not None}

    def beat(self, state: str, *, standby: bool = False) -> None:
        """Write the heartbeat to Redis, where it lasts :data:`HEARTBEAT_MILLISECONDS`."""
        heartbeat = Heartbeat(self.run, os.getpid(), os.uname().nodename, state)
        key = self.keys.standby if standby else self.keys.heartbeat
        self._redis.set(key, heartbeat.dumps(), px=HEARTBEAT_MILLISECONDS)

    def stop_beating(self, *, standby: bool = False) -> None:
        """Remove the heartbeat from Redis, unless another run has written it."""
        key = self.keys.standby if standby else self.keys.heartbeat
        text = cast("bytes | None", self._redis.get(key))
        if text is not None and Heartbeat.loads(text).run == self.run:
            self._redis.delete(key)

    def report_views(self, views: Mapping[str, ViewRows]) -> None:
        """Report the present result rows of queries with aggregation, ORDER BY or LIMIT (views)."""
        texts: dict[EncodableT, EncodableT] = {name: rows.dumps() for name, rows in views.items()}
        self._redis.hset(self.keys.views, mapping=texts)

    def report_state(self, report: str, parts: Mapping[str, str], gone: Collection[str]) -> None:
        """Write reports of stores' contents: texts of ``StateReport`` and, by store, ``StoreParts``
        (:mod:`anabranch_contract.protocol.state_report`); delete reports of stores ``gone``."""
        with self._redis.pipeline() as pipe:
            pipe.set(self.keys.state, report)
            if parts:
                documents: dict[EncodableT, EncodableT] = dict(parts.items())
                pipe.hset(self.keys.state_parts, mapping=documents)
            if gone:
                pipe.hdel(self.keys.state_parts, *gone)
            pipe.execute()

    def reported_parts(self) -> set[str]:
        """Names of the stores with reported contents in Redis, from this or an earlier driver."""
        return {
            name.decode() for name in cast("list[bytes]", self._redis.hkeys(self.keys.state_parts))
        }

    def limit(self) -> int | None:
        """Greatest rows per batch that :meth:`set_limit` last recorded in Redis; None: no limit."""
        value = self._redis.get(self.keys.limit)
        return None if value is None else int(value)

    def set_limit(self, rows: int | None) -> None:
        """Record in Redis the maximum rows per batch for the next start (None: no limit)."""
        if rows is None:
            self._redis.delete(self.keys.limit)
        else:
            self._redis.set(self.keys.limit, rows)

    def report_sources(self, changed: Mapping[str, SourceStatus], gone: Collection[str]) -> None:
        """Write the status of sources to Redis, by stream; delete it for the streams ``gone``."""
        with self._redis.pipeline() as pipe:
            if changed:
                documents: dict[EncodableT, EncodableT] = {
                    name: status.dumps() for name, status in changed.items()
                }
                pipe.hset(self.keys.sources, mapping=documents)
            if gone:
                pipe.hdel(self.keys.sources, *gone)
            pipe.execute()

    def reported_sources(self) -> set[str]:
        """Names of the streams whose source status Redis has, from this or an earlier driver."""
        return {name.decode() for name in cast("list[bytes]", self._redis.hkeys(self.keys.sources))}

    def registry_digest(self) -> int:
        """Return a checksum that changes when a client changes a stream, query or setting, a query
        expires, or a plan is approved, but not when planning itself changes these."""
        self._follow_registry()
        now = datetime.now(UTC)
        over = sorted(q for q, end in self._ends.items() if end is not None and end <= now)
        approved = self._redis.hget(self.keys.approval, "approved")
        return zlib.crc32(repr((self._changed, over, approved)).encode())

    def _follow_registry(self) -> None:
        """Read expiry times of queries changed since the last call; at first, of all queries."""
        changes, queries = self.keys.changes, self.keys.queries
        page = cast("Any", self._redis.xrange(changes, min=self._upto)) if self._upto else []
        if page and page[0][0] == self._upto:
            names = {
                name.encode()
                for _, entry in page[1:]
                for name in json.loads(entry.get(b"queries", b"[]"))
            }
            found = cast("Any", self._redis.hmget(queries, list(names))) if names else []
            texts = dict(zip(names, found, strict=True))
            for place, entry in page[1:]:
                self._changed = self._changed if b"planned" in entry else place
        else:
            page = cast("Any", self._redis.xrevrange(changes, count=1))
            texts = self._redis.hgetall(queries)
            self._changed, self._ends = page[-1][0] if page else b"", {}
        self._ends |= {
            name: codec.loads(text, _Expiry).expires_at
            for name, text in texts.items()
            if text is not None
        }
        self._upto = page[-1][0] if page else b""

    def stop_requested(self) -> bool:
        """Whether the service has requested the runtime to stop, by a key in Redis."""
        return bool(self._redis.exists(self.keys.stop))


def gate(url: str, namespace: str) -> int | None:
    """Return the number of batches that a stepping client lets start; None if unlimited."""
    value = connection(url).get(Keys(namespace).gate)
    return None if value is None else int(value)


@lru_cache(maxsize=2)
def _schedule(text: bytes) -> RationSchedule | None:
    """Parse a schedule of rations (cached); None if it is malformed."""
    try:
        return RationSchedule.loads(text)
    except Malformed:
        return None


@lru_cache(maxsize=8)
def fetch_ruleset(url: str, namespace: str, name: RulesetId) -> Ruleset:
    """Fetch the published ruleset ``name``; cached, as rulesets are immutable.

    Raises:
        PipelineError: ``no-ruleset``: none is published.
    """
    return read_ruleset(_ruleset_text(url, namespace, name), name)


def _ruleset_text(url: str, namespace: str, name: RulesetId) -> str:
    """Return the JSON text of the ruleset ``name``, published whole or as a patch of another one.

    Raises:
        PipelineError: ``no-ruleset``: none is published, or a patch that can't be applied without
            the whole ruleset.
        RulesetError: the patch has a format version that this release can't read.
    """
    keys = Keys(namespace)
    text = _text(url, keys.ruleset(name))
    if text is not None and patches.is_patch(text):
        text = _patched(url, keys, name, patches.loads(text))
    if text is None:
        raise PipelineError(
            "no-ruleset",
            f"no ruleset {name} is published",
            remedy="check that Redis has kept its data and that the service runs",
        )
    # An epoch with an unchanged plan has a copy of its predecessor's text, with the old number.
    return renumbered(text, name.epoch)


def _patched(url: str, keys: Keys, name: RulesetId, patch: Patch) -> str | None:
    """Apply ``patch`` to its base, or else fetch the whole ruleset; None if Redis lacks it."""

    def base() -> str | None:
        text = _text(url, keys.ruleset(patch.base))
        return None if text is None else renumbered(text, patch.base.epoch)

    try:
        return patched(patch, base)
    except RulesetError as error:
        _LOG.warning(
            "a ruleset's patch can't be applied, the whole ruleset is fetched",
            ruleset=str(name),
            base=str(patch.base),
            code=error.code,
            error=error.message,
        )
    text = _text(url, keys.newest_ruleset)
    return text if text is not None and rulesets.digest(text) == patch.digest else None


def _text(url: str, key: str) -> str | None:
    """Return the decompressed text under a key of Redis; None if it is missing or damaged."""
    kept = cast("bytes | None", connection(url).get(key))
    try:
        return None if kept is None else unpack(kept.decode())
    except ValueError as error:
        _LOG.error("ignoring a damaged document in Redis", key=key, error=str(error))
        return None


@lru_cache(maxsize=4)
def connection(url: str) -> redis.Redis:
    """Return this process's connection to the Redis at ``url``.

    A command is retried for about four seconds while the server is unreachable.
    """
    waits = ExponentialBackoff(cap=RETRY_CAP, base=POLL)
    failures = [redis.exceptions.ConnectionError, redis.exceptions.TimeoutError]
    return redis.Redis.from_url(url, retry=Retry(waits, RETRIES), retry_on_error=failures)
