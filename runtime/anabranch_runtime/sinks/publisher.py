"""The step of the batch protocol that makes a batch's results available, sink by sink."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_contract.queries.outer_joins import part_number
from anabranch_contract.queries.runs import number_of, query_of
from anabranch_runtime.errors import SinkError
from anabranch_runtime.sinks import redis_stream
from anabranch_runtime.sinks import view_inputs as inputs
from anabranch_runtime.sinks.delivery import Delivery, Write
from anabranch_runtime.sinks.merged import settle
from anabranch_runtime.sinks.outbox import Outbox
from anabranch_runtime.sinks.parquet import ParquetSink
from anabranch_runtime.sources.permitted import masked, permitted_sink
from anabranch_runtime.storage.pipeline_lock import identity

_LOG = structlog.get_logger("anabranch.runtime")

OUTBOX = ".outbox"
#: Batches that may wait for one sink before the pipeline stops and its input waits.
MOST_WAITING = 1000
#: Seconds between two attempts at a sink that fails: at first, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0


@dataclass(frozen=True, slots=True)
class SinkFailure:
    """A sink that has failed ``times`` in a row and is not tried before ``retry``."""

    message: str
    times: int
    retry: float


@dataclass(slots=True)
class Publisher:
    """Hands every query's results to its sink.

    Attributes:
        results: the results directory.
        writers: writers of outside sinks; results without a writer here are parked.
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
        sampled: Collection[str] = (),
    ) -> dict[str, tuple[Path, ...]]:
        """Make a batch's staged files, (query, task, file), available before the batch commits.

        May be called again for the same batch, with the same rows: nothing comes twice, as far
        as the sinks allow (``docs/sinks.md``).

        Args:
            sampled: queries whose rows carry their inclusion probabilities.

        Returns:
            Query -> present files of its rows; none, if a view is to read them.

        Raises:
            SinkError: too much waits for a sink.
        """
        known = {str(query.id): query for query in queries}
        sinks = {name: query.sink for name, query in known.items()}
        joined: dict[str, dict[int, list[Path]]] = {}
        own: list[tuple[str, int, Path]] = []
        outside: dict[str, list[Path]] = {}
        for query, task, file in sorted(staged):
            spec = known[query]
            if spec.has_post_join:
                parts = joined.setdefault(str(spec.left_of or query), {})
                parts.setdefault(part_number(query), []).append(file)
            elif sinks[query].kind is SinkKind.PARQUET:
                own.append((query, task, file))
            else:
                outside.setdefault(query, []).append(file)
        found = self._files.publish(batch, own)
        for query, parts in joined.items():
            home = inputs.home_of(self.results, query)
            inputs.stage(home, batch, parts, sampled=query in sampled)
            found[query] = ()
        for query, files in outside.items():
            delivery = Delivery(query, sinks[query], batch, tuple(files))
            found[query] = self._deliver(delivery)
        return found

    def retry(self, *, now: bool = False) -> None:
        """Deliver results that wait for sinks whose pause is over, or for all of them."""
        waiting = self._outbox.queries()
        for query in waiting:
            if now and query in self._failures:
                self._failures[query] = replace(self._failures[query], retry=0.0)
        for query in waiting:
            self._drain(query)

    def finish(self) -> None:
        """Deliver everything that waits.

        Raises:
            SinkError: a sink still fails. What waits for it is kept.
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
        """Query -> how many batches wait for its sink."""
        return {query: len(self._outbox.waiting(query)) for query in self._outbox.queries()}

    def problems(self) -> dict[str, str]:
        """Query -> why its sink does not take its results."""
        found = {}
        for query in self._outbox.queries():
            count = len(self._outbox.waiting(query))
            failure = self._failures.get(query)
            reason = failure.message if failure is not None else "not tried yet"
            found[query] = f"{count} batch{'es wait' if count > 1 else ' waits'}: {reason}"
        return found

    def _deliver(self, delivery: Delivery) -> tuple[Path, ...]:
        # Of an earlier attempt at this batch by this process.
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
        """Deliver a query's waiting results, oldest first; True if none wait any more.

        Runs of a query may share a sink, so results of an earlier run come before.
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
        """Write to the sink; whether it took it."""
        sink = delivery.sink
        try:
            writer = self.writers.get(sink.kind)
            if writer is None:
                raise SinkError("no-writer", f"nothing here writes {sink.format}")
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
    """The writers that need no Spark."""

    def append(delivery: Delivery) -> None:
        delivery = replace(delivery, sink=permitted_sink(delivery.sink, access, namespace))
        redis_stream.append(delivery, url=url, namespace=namespace, identity=identity(state))

    return {SinkKind.REDIS: append}


def pause_after(times: int) -> float:
    """Seconds until a sink that has failed ``times`` in a row is tried again."""
    return min(FIRST_PAUSE * 2.0 ** (times - 1), LONGEST_PAUSE)


def first_line(error: Exception) -> str:
    """The message of an error, without traces."""
    lines = [line.strip(" :\t") for line in str(error).splitlines() if line.strip()]
    # An error of Spark's that has come through its gateway says on the second line what it is.
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        del lines[0]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:1000]
