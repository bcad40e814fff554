"""Publication of a batch's results to the queries' sinks, before the batch commits."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_contract.queries.runs import number_of, query_of
from anabranch_runtime.errors import SinkError
from anabranch_runtime.sinks import redis_stream
from anabranch_runtime.sinks.delivery import Delivery, Write
from anabranch_runtime.sinks.merged import settle
from anabranch_runtime.sinks.outbox import Outbox
from anabranch_runtime.sinks.parquet import ParquetSink
from anabranch_runtime.sources.permitted import masked, permitted_sink
from anabranch_runtime.storage.pipeline_lock import identity

_LOG = structlog.get_logger("anabranch.runtime")

OUTBOX = ".outbox"
#: Maximum number of parked batches per failing sink; beyond it the pipeline stops.
MOST_WAITING = 1000
#: Seconds between two attempts to write to a failing sink: at first, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0


@dataclass(frozen=True, slots=True)
class SinkFailure:
    """A sink that has failed ``times`` times in a row, and the time of the next attempt."""

    message: str
    times: int
    retry: float


@dataclass(slots=True)
class Publisher:
    """Delivers every query's results to its sink, and parks them in the outbox while it fails.

    Attributes:
        results: the results directory.
        writers: kind of external sink -> its writer; results for other kinds are parked.
    """

    results: Path
    next_batch: int
    writers: dict[SinkKind, Write] = field(default_factory=dict)
    _files: ParquetSink = field(init=False)
    _outbox: Outbox = field(init=False)
    _failures: dict[str, SinkFailure] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        settle(self.results)
        self._files = ParquetSink(self.results, self.next_batch)
        self._outbox = Outbox(self.results / OUTBOX, self.next_batch)

    def publish(
        self,
        batch: int,
        queries: Iterable[QuerySpec],
        staged: Iterable[tuple[str, int, Path]],
    ) -> dict[str, tuple[Path, ...]]:
        """Make a batch's staged files, (query, task, file), available before the batch commits.

        May be called again for the same batch with the same rows: they are not duplicated, if the
        sink is idempotent (``docs/sinks.md``).

        Returns:
            Query -> files with its rows.

        Raises:
            SinkError: too many batches wait for a sink.
        """
        sinks = {str(query.id): query.sink for query in queries}
        own: list[tuple[str, int, Path]] = []
        outside: dict[str, list[Path]] = {}
        for query, task, file in sorted(staged):
            if sinks[query].kind is SinkKind.PARQUET:
                own.append((query, task, file))
            else:
                outside.setdefault(query, []).append(file)
        found = self._files.publish(batch, own)
        for query, files in outside.items():
            delivery = Delivery(query, sinks[query], batch, tuple(files))
            found[query] = self._deliver(delivery)
        return found

    def retry(self, *, now: bool = False) -> None:
        """Deliver parked results to sinks whose pause is over; with ``now`` to all sinks."""
        waiting = self._outbox.queries()
        for query in waiting:
            if now and query in self._failures:
                self._failures[query] = replace(self._failures[query], retry=0.0)
        for query in waiting:
            self._drain(query)

    def finish(self) -> None:
        """Deliver all parked results.

        Raises:
            SinkError: a sink still fails; its results stay parked.
        """
        self.retry(now=True)
        for query, message in self.problems().items():
            raise SinkError(
                "sink-failed",
                message,
                field=f"queries.{query}.sink",
                remedy="correct it and start the pipeline again: nothing is lost",
            )

    def parked(self) -> dict[str, int]:
        """Return the number of batches that wait for each query's sink."""
        return {query: len(self._outbox.waiting(query)) for query in self._outbox.queries()}

    def problems(self) -> dict[str, str]:
        """Return the error of each query's failing sink."""
        found = {}
        for query in self._outbox.queries():
            count = len(self._outbox.waiting(query))
            failure = self._failures.get(query)
            reason = failure.message if failure is not None else "not tried yet"
            found[query] = f"{count} batch{'es wait' if count > 1 else ' waits'}: {reason}"
        return found

    def _deliver(self, delivery: Delivery) -> tuple[Path, ...]:
        # Delete results parked by an earlier attempt at this batch.
        self._outbox.remove(delivery)
        if self._drain(delivery.query) and self._write(delivery):
            return delivery.files
        if len(self._outbox.waiting(delivery.query)) >= MOST_WAITING:
            raise SinkError(
                "sink-blocked",
                f"{MOST_WAITING} batches of results wait for the sink: "
                f"{self.problems()[delivery.query]}",
                field=f"queries.{delivery.query}.sink",
                remedy="make it available and start the pipeline again, or withdraw the query",
            )
        return self._outbox.park(delivery)

    def _drain(self, query: str) -> bool:
        """Deliver a query's parked results, oldest first; True if none are left.

        Runs of a query may share a sink, so results of earlier runs are delivered first.
        """
        earlier = [
            run
            for run in self._outbox.queries()
            if query_of(run) == query_of(query) and number_of(run) < number_of(query)
        ]
        if not all(self._drain(run) for run in sorted(earlier, key=number_of)):
            return False
        while self._outbox.waiting(query):
            failure = self._failures.get(query)
            if failure is not None and time.monotonic() < failure.retry:
                return False
            delivery = self._outbox.oldest(query)
            if not self._write(delivery):
                return False
            self._outbox.remove(delivery)
        return True

    def _write(self, delivery: Delivery) -> bool:
        """Write a delivery to its sink; returns whether the sink accepted it."""
        sink = delivery.sink
        try:
            writer = self.writers.get(sink.kind)
            if writer is None:
                raise SinkError("no-writer", f"no writer for sinks of format {sink.format}")
            writer(delivery)
        except Exception as error:  # noqa: BLE001 - whatever a connector raises, results wait
            message = masked(first_line(error))
            times = 1 + (self._failures[delivery.query].times if self._known(delivery) else 0)
            retry = time.monotonic() + pause_after(times)
            self._failures[delivery.query] = SinkFailure(message, times, retry)
            _LOG.warning(
                "sink failed",
                query=delivery.query,
                batch=delivery.batch,
                error=message,
                times=times,
            )
            return False
        if self._failures.pop(delivery.query, None) is not None:
            _LOG.info("sink works again", query=delivery.query, batch=delivery.batch)
        return True

    def _known(self, delivery: Delivery) -> bool:
        return delivery.query in self._failures


def local_writers(
    *, url: str, namespace: str, state: Path, access: AccessPolicy
) -> dict[SinkKind, Write]:
    """Return the writers that do not need Spark."""

    def append(delivery: Delivery) -> None:
        delivery = replace(delivery, sink=permitted_sink(delivery.sink, access, namespace))
        redis_stream.append(delivery, url=url, namespace=namespace, identity=identity(state))

    return {SinkKind.REDIS: append}


def pause_after(times: int) -> float:
    """Return the seconds until a sink that has failed ``times`` times in a row is tried again."""
    return min(FIRST_PAUSE * 2.0 ** (times - 1), LONGEST_PAUSE)


def first_line(error: Exception) -> str:
    """Return the message of an error without stack traces."""
    lines = [line.strip(" :\t") for line in str(error).splitlines() if line.strip()]
    # In an error passed on by Spark's Java gateway, the second line has the message.
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        del lines[0]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:1000]
