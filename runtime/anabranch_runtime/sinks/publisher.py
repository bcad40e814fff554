"""Publication of results to the queries' sinks: of a batch before it commits, of a group of batches
after its last batch has committed. Results for webhooks and Kafka topics are sent during the next
batches; they stay in the outbox until then."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import structlog

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.sinks import SinkKind, SinkSpec
from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_contract.queries.runs import number_of, query_of
from anabranch_runtime.errors import SinkError, SinkPaused, SinkUnderway
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.sinks import redis_stream
from anabranch_runtime.sinks.delivery import Delivery, Write
from anabranch_runtime.sinks.gathered import Gathered, StagedRows, take_over
from anabranch_runtime.sinks.kafka.courier import Courier
from anabranch_runtime.sinks.kafka.writer import KafkaWriter
from anabranch_runtime.sinks.lake import delta, iceberg
from anabranch_runtime.sinks.merged import settle
from anabranch_runtime.sinks.outbox import Outbox
from anabranch_runtime.sinks.parquet import ParquetSink
from anabranch_runtime.sinks.webhook.writer import WebhookWriter
from anabranch_runtime.sources.permitted import masked, permitted_sink
from anabranch_runtime.storage.documents import sync_filesystem
from anabranch_runtime.storage.pipeline_lock import identity

_LOG = structlog.get_logger("anabranch.runtime")

#: Folders below the results directory; the names of queries do not begin with a dot.
OUTBOX, GATHERED = ".outbox", ".gathered"
#: Maximum number of deliveries parked for a failing sink, beyond which the pipeline stops.
MOST_WAITING = 1000
#: Seconds between attempts at a failing sink: the first pause, and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
#: Seconds between two checks of a delivery in progress; maximum seconds to wait for deliveries in
#: progress when the runtime stops.
LOOK, LEAVING = 0.005, 10.0
#: Kinds of sinks whose writers send deliveries in the background, while batches run.
BESIDE = (SinkKind.WEBHOOK, SinkKind.KAFKA)


@dataclass(frozen=True, slots=True)
class SinkFailure:
    """A sink that has failed ``times`` times in a row, and the time of the next attempt."""

    message: str
    times: int
    retry: float


@dataclass(slots=True)
class Publisher:
    """Delivers each query's results to its sink, and parks them in the outbox while the sink fails.

    Attributes:
        results: the results directory.
        writers: kind of external sink -> its writer; results for kinds without a writer are parked.
    """

    results: Path
    writers: dict[SinkKind, Write] = field(default_factory=dict)
    _files: ParquetSink = field(init=False)
    _outbox: Outbox = field(init=False)
    _gathered: Gathered = field(init=False)
    _failures: dict[str, SinkFailure] = field(init=False, default_factory=dict)
    #: Queries of the last call, and each one's sink by name.
    _queries: tuple[Sequence[QuerySpec], Mapping[str, SinkSpec]] = (), {}
    #: Queries with a delivery that their sink's writer has begun and not finished.
    _underway: set[str] = field(init=False, default_factory=set)

    def begin(self, next_batch: int, pipeline: str) -> None:
        """Continue to publish from ``next_batch`` on; ``pipeline``: id of the pipeline."""
        settle(self.results)
        logs = take_over(self.results / GATHERED)
        self._outbox = Outbox(self.results / OUTBOX, next_batch, pipeline)
        grouped = self._outbox.grouped
        self._files = ParquetSink(self.results, next_batch, grouped)
        self._gathered = Gathered(logs, next_batch, grouped)

    def publish(
        self,
        batch: int,
        queries: Sequence[QuerySpec],
        staged: Iterable[tuple[str, int, Path]],
        epoch: int | None = None,
    ) -> dict[str, tuple[Path | StagedRows, ...]]:
        """Make a batch's staged files, (query, task, file), available before the batch commits, or
        gather them for a group.

        It may be called again for the same batch with the same rows; an idempotent sink
        (``docs/sinks.md``) does not get the rows twice.

        Returns:
            Query -> files of its rows.

        Raises:
            SinkError: too many batches wait for a sink.
        """
        sinks = self._sinks(queries)
        own: list[tuple[str, int, Path]] = []
        outside: dict[str, list[Path]] = {}
        gathered: dict[str, list[tuple[int, Path]]] = {}
        for query, task, file in sorted(staged):
            if sinks[query].gathers:
                gathered.setdefault(query, []).append((task, file))
            elif sinks[query].kind is SinkKind.PARQUET:
                own.append((query, task, file))
            else:
                outside.setdefault(query, []).append(file)
        found: dict[str, tuple[Path | StagedRows, ...]] = {**self._files.publish(batch, own)}
        self._gathered.begin(batch)
        for query, parts in gathered.items():
            if batch <= self._outbox.grouped.get(query, -1):
                # After a rollback of the state: a group formed before it already has these rows.
                found[query] = tuple(StagedRows.of(file) for _, file in parts)
                continue
            if self._gathered.is_full(query):
                self._keep_up(query)
            self._check_room(query)
            found[query] = self._gathered.add(batch, query, sinks[query], parts)
        for query, files in outside.items():
            delivery = Delivery(query, sinks[query], batch, tuple(files), epoch=epoch)
            found[query] = self._deliver(delivery)
        return found

    def committed(self, next_batch: int, queries: Sequence[QuerySpec]) -> None:
        """Record that batches before ``next_batch`` are committed, and that ``queries`` run."""
        self._gathered.committed = next_batch
        self._gathered.running = self._sinks(queries).keys()

    def _sinks(self, queries: Sequence[QuerySpec]) -> Mapping[str, SinkSpec]:
        """Return query -> sink; the same object as in the last call for the same ``queries``."""
        if queries is not self._queries[0]:
            self._queries = queries, {str(query.id): query.sink for query in queries}
        return self._queries[1]

    def retry(self, *, now: bool = False, ahead: float = 0.0) -> None:
        """Deliver groups that are due within ``ahead`` seconds, and parked results of sinks whose
        pause is over. If ``now``, deliver all groups and parked results, for a limited time."""
        if now:
            self._failures = {q: replace(one, retry=0.0) for q, one in self._failures.items()}
        due = self._gathered.due(math.inf if now else time.monotonic() + ahead)
        self._group(query for query in due if now or not self._is_behind(query))
        for query in self._outbox.queries():
            self._drain(query)
        if now:
            self._await(time.monotonic() + LEAVING)

    def finish(self) -> None:
        """Deliver all results that wait for their sinks.

        Raises:
            SinkError: a sink still fails; its results stay parked.
        """
        self.retry(now=True)
        self._await(math.inf)
        for query, message in self.problems().items():
            raise SinkError(
                "sink-failed",
                message,
                field=f"queries.{query}.sink",
                remedy="correct the cause and start the pipeline again: nothing is lost",
            )

    def parked(self) -> dict[str, int]:
        """Return, by query, the number of batches that wait for its sink, without gathered batches.

        A delivery that is being sent to a Kafka topic does not count.
        """
        counts = {query: self._outbox.batches(query) for query in self._outbox.queries()}
        return {
            query: count
            for query, count in counts.items()
            if not (self._is_sending(query) and self._outbox.waiting(query) == 1)
        }

    def problems(self) -> dict[str, str]:
        """Return query -> error, for queries whose results can't be delivered. Deliveries before
        their first attempt (after a restart, say) have no error."""
        found = {}
        ungrouped = {q: len(self._gathered.parts(q)) for q in self._failures}
        for query, count in (ungrouped | self.parked()).items():
            reason = self._reason(query)
            if reason is not None:
                found[query] = f"{count} batch{'es wait' if count > 1 else ' waits'}: {reason}"
        return found

    def _reason(self, query: str) -> str | None:
        """Return why a query's deliveries wait: the error of its sink, or of an earlier run's."""
        if (failure := self._failures.get(query)) is not None:
            return failure.message
        earlier = [q for q in self._failures if query_of(q) == query_of(query)]
        first = min(earlier, key=number_of, default=query)
        if number_of(first) >= number_of(query):
            return None
        return f"results of {first} come first: {self._failures[first].message}"

    def undelivered(self, query: str) -> list[tuple[int, Path | StagedRows]]:
        """Return a query's results that its sink does not have yet, with their batches, in order;
        the newest of these batches may be uncommitted."""
        return [*self._outbox.files(query), *self._gathered.parts(query)]

    def _is_behind(self, query: str) -> bool:
        """Whether results are gathered because an earlier delivery of the query is not finished;
        the sink then gets the results of all batches since in one delivery."""
        return (
            self._outbox.waiting(query) > 0
            and self._gathered.sink(query).kind in BESIDE
            and not self._gathered.is_full(query)
        )

    def _await(self, until: float) -> None:
        """Wait until no delivery to a sink is in progress, at most until ``until`` (monotonic)."""
        while self._underway and time.monotonic() < until:
            time.sleep(LOOK)
            for query in list(self._underway):
                self._drain(query)

    def _keep_up(self, query: str) -> None:
        """Wait for a query's deliveries to Kafka, to stay at most one batch ahead of them."""
        while self._is_sending(query):
            time.sleep(LOOK)
            self._drain(query)

    def _is_sending(self, query: str) -> bool:
        """Whether a delivery to a Kafka topic is in progress that has not just failed."""
        return (
            query in self._underway
            and query not in self._failures
            and self._outbox.waiting(query) > 0
            and self._outbox.oldest(query).sink.kind is SinkKind.KAFKA
        )

    def _group(self, queries: Iterable[str]) -> None:
        """Form the next group of gathered results of each query, durably, in the outbox."""
        groups = [one for query in queries if (one := self._grouped(query)) is not None]
        if not groups:
            return
        for one in groups:
            self._outbox.draft(one)
        reach(Point.GROUPING)
        sync_filesystem(self.results)
        for one in groups:
            self._outbox.place(one)
        sync_filesystem(self.results)
        reach(Point.GROUPED)
        for one in groups:
            self._gathered.drop(one.query, one.batch)

    def _grouped(self, query: str) -> Delivery | None:
        """Write the next group of a query's results; None if there is none, or writing fails."""
        if not self._outbox.waiting(query) and self._is_pausing(query):
            return None
        try:
            return self._gathered.group(query)
        except (OSError, pa.ArrowException) as error:
            self._fail(query, error)
            return None

    def _is_pausing(self, query: str) -> bool:
        failure = self._failures.get(query)
        return failure is not None and time.monotonic() < failure.retry

    def _deliver(self, delivery: Delivery) -> tuple[Path, ...]:
        query, is_beside = delivery.query, delivery.sink.kind in BESIDE
        self._keep_up(query)
        # Delete results parked by an earlier attempt at this batch.
        self._outbox.remove(delivery)
        if not is_beside and (
            self._drain_earlier(query) and self._drain(query) and self._write(delivery)
        ):
            return delivery.files
        self._check_room(query)
        parked = self._outbox.park(delivery)
        if is_beside:
            self._drain(query)
        return parked

    def _check_room(self, query: str) -> None:
        if self._outbox.waiting(query) >= MOST_WAITING:
            raise SinkError(
                "sink-blocked",
                f"{MOST_WAITING} deliveries of results wait for the sink: "
                f"{self._reason(query) or 'it has not answered yet'}",
                field=f"queries.{query}.sink",
                remedy="make the sink available and start the pipeline again, or withdraw "
                "the query",
            )

    def _drain_earlier(self, query: str) -> bool:
        """Deliver parked results of a query's earlier runs to their sink; True if none are left."""
        runs = {*self._outbox.queries(), *self._gathered.queries()}
        for run in sorted(runs, key=number_of):
            if query_of(run) == query_of(query) and number_of(run) < number_of(query):
                self._group([run])
                if not self._drain(run) or self._gathered.parts(run):
                    return False
        return True

    def _drain(self, query: str) -> bool:
        """Deliver a query's parked results, oldest first; return True if none are left."""
        while self._outbox.waiting(query):
            if self._is_pausing(query):
                return False
            delivery = self._outbox.oldest(query)
            is_own = delivery.sink.kind is SinkKind.PARQUET
            if not (is_own or self._drain_earlier(query)) or not self._write(delivery):
                return False
            reach(Point.DELIVERED)
            self._outbox.remove(delivery)
        return True

    def _write(self, delivery: Delivery) -> bool:
        """Write a delivery to its sink; return whether the sink has accepted it."""
        sink = delivery.sink
        try:
            own = sink.kind is SinkKind.PARQUET
            writer = self._files.place if own else self.writers.get(sink.kind)
            if writer is None:
                raise SinkError("no-writer", f"no writer for sinks of format {sink.format}")
            self._underway.discard(delivery.query)
            writer(delivery)
        except SinkUnderway:
            self._underway.add(delivery.query)
            return False
        except Exception as error:  # noqa: BLE001 - whatever a connector raises, results wait
            self._fail(delivery.query, error)
            return False
        if self._failures.pop(delivery.query, None) is not None:
            _LOG.info("sink works again", query=delivery.query, batch=delivery.batch)
        return True

    def _fail(self, query: str, error: Exception) -> None:
        message, known = masked(first_line(error)), self._failures.get(query)
        times = 1 if known is None else 1 + known.times
        retry = time.monotonic() + pause_after(times, error)
        self._failures[query] = SinkFailure(message, times, retry)
        _LOG.warning("sink failed", query=query, error=message, times=times)


def local_writers(
    *, url: str, namespace: str, state: Path, access: AccessPolicy, role: str
) -> dict[SinkKind, Write]:
    """Return the writers of sinks that do not need Spark; ``role``: process of the pipeline."""
    topics = KafkaWriter(namespace, role)
    hooks = WebhookWriter(namespace, access)

    def permitted(delivery: Delivery) -> Delivery:
        return replace(delivery, sink=permitted_sink(delivery.sink, access, namespace))

    def append(delivery: Delivery) -> None:
        redis_stream.append(
            permitted(delivery), url=url, namespace=namespace, identity=identity(state)
        )

    def send(delivery: Delivery) -> None:
        topics.write(permitted(delivery), identity(state))

    def post(delivery: Delivery) -> None:
        hooks.write(permitted(delivery), identity(state))

    def commit(delivery: Delivery) -> None:
        write = delta.commit if delivery.sink.format == "delta" else iceberg.commit
        write(permitted(delivery), f"{namespace}/{delivery.query}/{identity(state)}")

    return {
        SinkKind.REDIS: append,
        SinkKind.KAFKA: send,
        SinkKind.WEBHOOK: post,
        SinkKind.LAKE: commit,
    }


def beside_batches(writers: dict[SinkKind, Write]) -> dict[SinkKind, Write]:
    """Return the writers of sinks; the Kafka writer sends in a separate thread."""
    return writers | {SinkKind.KAFKA: Courier(writers[SinkKind.KAFKA])}


def pause_after(times: int, error: Exception | None = None) -> float:
    """Return the seconds until the next attempt at a sink that has failed ``times`` times in a row;
    its last ``error`` may state them."""
    if isinstance(error, SinkPaused) and error.pause is not None:
        return error.pause
    return min(FIRST_PAUSE * 2.0 ** min(times - 1, 30), LONGEST_PAUSE)


def first_line(error: Exception) -> str:
    """Return the message of a sink's error without a stack trace."""
    lines = [line.strip(" :\t") for line in str(error).splitlines() if line.strip()]
    # An error from Spark's Java gateway has its message in the second line.
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        del lines[0]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:1000]
