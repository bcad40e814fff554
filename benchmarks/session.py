"""A running system under measurement: Redis, service and runtime as processes, as users run them.

The runtime's own log has the counts and times of every batch; the gate limits the batches that may
start. A benchmark registers its streams and queries before the runtime starts, or while it runs.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from anabranch_client.processes.allowed import Permissions
from anabranch_client.processes.pipeline import Pipeline, PipelineSpec, running
from anabranch_client.replay.oracle import Active, Comparison, compare, oracle_sql, recorded_tables
from anabranch_client.replay.scenario import RecordedStream
from anabranch_client.replay.tpch import DemoQuery
from anabranch_client.rest.api import Client
from anabranch_contract.protocol.progress import Progress

#: Phases of a task; a batch has the phases of its slowest task.
TASK_PHASES = ("read", "store", "wait", "probe", "write")

#: Time limit in seconds, which only a hanging run reaches.
PATIENCE = 1800.0
#: Seconds between two polls of the progress; polls take CPU time from the measured system.
_POLLING = 0.05


class WrongResultError(Exception):
    """The results of the system differ from the oracle's, so there are no figures to report."""


@dataclass(frozen=True, slots=True)
class BatchLog:
    """The runtime's log entry of one batch; times in seconds, ``committed_at`` since the Unix
    epoch, ``ruleset`` the id of its published rules (an epoch, or ``7.2``).
    """

    batch: int
    epoch: int
    tuples: int
    results: int
    committed_at: float
    enter: float
    job: float
    commit: float
    tasks: dict[str, float]
    ruleset: str = ""

    @property
    def seconds(self) -> float:
        """Seconds from the batch's beginning in the driver to its commit."""
        return self.enter + self.job + self.commit


def read_log(path: Path) -> list[BatchLog]:
    """Return the committed batches in the runtime's log ``path``, in order."""
    found = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if not text.startswith("{"):
            continue
        try:
            entry = json.loads(text)
        except ValueError:  # a line that is just being written
            continue
        if entry.get("event") == "batch committed":
            found.append(
                BatchLog(
                    batch=entry["batch"],
                    epoch=entry["epoch"],
                    tuples=entry["tuples"],
                    results=entry["results"],
                    committed_at=datetime.fromisoformat(entry["timestamp"]).timestamp(),
                    enter=entry["enter_ms"] / 1e3,
                    job=entry["job_ms"] / 1e3,
                    commit=entry["commit_ms"] / 1e3,
                    tasks={name: ms / 1e3 for name, ms in entry["task_ms"].items()},
                    ruleset=entry.get("ruleset", ""),
                )
            )
    return found


@dataclass(slots=True)
class Session:
    """A running system with streams and queries; its runtime may still have to be started
    (:meth:`start`).

    Attributes:
        counted: names of the queries whose results are only counted.
    """

    pipeline: Pipeline
    client: Client
    streams: tuple[RecordedStream, ...]
    counted: frozenset[str] = frozenset()

    def start(self) -> None:
        """Start the runtime with the gate closed, and wait until it is ready."""
        self.gate(0)
        self.pipeline.start_runtime()
        self.wait(lambda p: p.state in ("running", "idle"))

    def gate(self, batches: int | None) -> None:
        """Let the pipeline's first ``batches`` batches start; None: all."""
        self.pipeline.channel.open_gate(batches)

    def register(self, queries: Sequence[DemoQuery]) -> None:
        """Register queries under their names."""
        for query in queries:
            sink = "count" if query.name in self.counted else None
            self.client.create_query(query.sql, name=query.name, sink=sink)

    def wait(self, done: Callable[[Progress], bool]) -> Progress:
        """Wait until ``done`` is true for the progress in the runtime's heartbeat.

        Raises:
            TimeoutError: it is not true within :data:`PATIENCE` seconds.
            ClientError: a process ended.
        """
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self.pipeline.check()
            progress = self.pipeline.channel.progress()
            if progress is not None and done(progress):
                return progress
            time.sleep(_POLLING)
        raise TimeoutError(f"the run has not got there after {PATIENCE:.0f} s")

    def wait_for_batches(self, batches: int) -> Progress:
        """Wait until ``batches`` batches have been committed."""
        return self.wait(lambda p: p.committed >= batches)

    def log(self) -> list[BatchLog]:
        """Return the batches committed so far."""
        return read_log(self.pipeline.spec.logs / "runtime.log")

    def roots(self) -> dict[str, int]:
        """Return name -> process id of all processes that the pipeline has started."""
        return {child.name: child.pid for child in self.pipeline.children}

    def check(
        self, runs: Sequence[tuple[DemoQuery, Active]], reported: Mapping[str, int]
    ) -> dict[str, Comparison]:
        """Compare the result files row by row with the oracle, and the reported counts with the
        files. Of queries whose results are only counted, compare the counts.

        Args:
            reported: query -> number of its results as the runtime reports it.

        Raises:
            WrongResultError: they differ.
        """
        written = [(q, active) for q, active in runs if q.name not in self.counted]
        found = compare(self.streams, written, self.pipeline.spec.results)
        for name, one in found.items():
            if not one.match:
                raise WrongResultError(
                    f"{name}: {one.missing} of {one.expected} rows missing, {one.surplus} too many"
                )
            if reported.get(name, 0) != one.results:
                raise WrongResultError(
                    f"{name}: {reported.get(name)} rows reported, {one.results} written"
                )
        for query, active in runs:
            if query.name in self.counted:
                rows, count = self._expected(query, active), reported.get(query.name, 0)
                if rows != count:
                    raise WrongResultError(f"{query.name}: {count} rows counted, {rows} expected")
                found[query.name] = Comparison(count, rows, 0, 0)
        return found

    def _expected(self, query: DemoQuery, active: Active) -> int:
        """Return the number of results of a query that was active in the batches ``active``."""
        with recorded_tables(self.streams) as connection:
            return len(connection.sql(oracle_sql(query, active)))

    def check_guests(self, guests: Sequence[DemoQuery]) -> None:
        """Check the results of queries that were registered or ended during the run, by the batches
        in which they were active.

        Raises:
            WrongResultError: the results differ from the oracle's.
        """
        found = self.pipeline.channel.activations()
        active = [
            (
                guest,
                Active(
                    one.activated_batch,
                    one.expired_batch,
                    {alias: seen.batch for alias, seen in one.visible_from.items()},
                ),
            )
            for guest in guests
            if (one := found.get(guest.name)) is not None and one.results
        ]
        # Progress has no counts of queries that ended some time ago, so counts come from the
        # activations.
        self.check(active, {guest.name: found[guest.name].results for guest, _ in active})

    def _without_results(self, query: DemoQuery) -> None:
        """Write an empty file for a query without results, which has none in live mode."""
        folder = self.pipeline.spec.results / query.name
        if folder.exists() and any(folder.glob("*.parquet")):
            return
        folder.mkdir(parents=True, exist_ok=True)
        with recorded_tables(self.streams) as connection:
            nothing = connection.sql(f"SELECT * FROM ({query.sql}) LIMIT 0")
            nothing.write_parquet(str(folder / "none.parquet"))

    def finish(self, queries: Sequence[DemoQuery]) -> tuple[Progress, dict[str, Comparison]]:
        """Wait for the end of the input, end the runtime, and check ``queries``,
        active throughout.
        """
        progress = self.wait(lambda p: p.input.exhausted)
        self.pipeline.finish_runtime()
        for query in queries:
            if query.name not in self.counted:
                self._without_results(query)
        always = Active(activated=0, expired=None, visible_from={})
        return progress, self.check([(query, always) for query in queries], progress.results)


@contextmanager
def session(
    home: Path,
    streams: Sequence[RecordedStream],
    queries: Sequence[DemoQuery],
    *,
    master: str,
    mode: str = "live",
    optimizer: str = "clash",
    parallelism: int = 2,
    epoch_batches: int = 4,
    counted: Iterable[str] = (),
    sources: Mapping[str, dict[str, Any]] | None = None,
) -> Iterator[Session]:
    """Context with a system below the folder ``home``, with registered streams and queries; its
    runtime is not started yet. All processes are ended on exit. ``counted``: queries whose results
    are only counted. ``sources``: stream -> another source with the rows of its file.
    """
    spec = PipelineSpec(
        home=home,
        results=home / "results",
        mode=mode,
        namespace=f"bench-{uuid.uuid4().hex[:12]}",
        optimizer=optimizer,
        parallelism=parallelism,
        epoch_batches=epoch_batches,
        master=master,
        access=Permissions(tuple(Path(stream.path).resolve() for stream in streams)),
    )
    spec.results.mkdir(parents=True)
    with running(spec) as pipeline, pipeline.start_service() as client:
        for stream in streams:
            client.create_stream(
                stream.name,
                stream.columns,
                source=(sources or {}).get(stream.name)
                or {
                    "format": "recorded",
                    "path": str(stream.path),
                    "rows_per_batch": stream.rows_per_batch,
                },
                **stream.options,
            )
        found = Session(pipeline, client, tuple(streams), frozenset(counted))
        found.register(queries)
        yield found
