"""Playing a scenario on the real service and the real runtime, call by call and batch by batch.

A fixed order of events makes replays deterministic. The REST calls before batch ``k`` are made when
three conditions hold: the gate keeps the runtime from starting ``k``, all earlier batches are
committed, and the ruleset of the epoch of ``k`` is published (and so final). So the planner first
sees a call before a batch of epoch ``e`` when it plans ``e + 1``, for which the runtime waits: the
call takes effect at the start of ``e + 1``. Calls before batch 0 are made before the runtime
starts, so the plan of epoch 0 includes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from anabranch_client.errors import ApiError, ProcessError
from anabranch_client.processes.meter import ProcessMeter
from anabranch_client.processes.pipeline import Pipeline
from anabranch_client.replay.scenario import RecordedStream, RetentionEntry, Scenario, ScenarioQuery
from anabranch_client.rest.api import Client
from anabranch_contract.plans.plan import Optimizer
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.rest.planning.epochs import EpochOut
from anabranch_contract.rest.planning.revisions import RevisionRecord
from anabranch_contract.rest.queries import QueryOut
from anabranch_contract.rest.streams import StreamOut

#: Seconds of a batch after which the runtime counts as hanging.
STALL_SECONDS = 900.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class ScenarioCalls:
    """The REST calls before one batch. ``retention``: pairs of a stream and its new retention;
    ``register``, ``expire``: queries to register and to delete."""

    optimizer: Optimizer | None = None
    retention: tuple[tuple[str, RetentionEntry], ...] = ()
    register: tuple[ScenarioQuery, ...] = ()
    expire: tuple[ScenarioQuery, ...] = ()


def schedule(scenario: Scenario) -> dict[int, ScenarioCalls]:
    """Batch -> the REST calls to make before it, by ascending batch; always has an entry for 0.

    The optimiser of batch 0 needs no call: the service is started with it.
    """
    batches = {0} | set(scenario.optimizer)
    batches |= {batch for s in scenario.streams for batch in s.retention}
    batches |= {q.register_at for q in scenario.queries}
    batches |= {q.expire_at for q in scenario.queries if q.expire_at is not None}
    return {
        batch: ScenarioCalls(
            optimizer=scenario.optimizer.get(batch) if batch else None,
            # The first retention is set by the registration, later ones by PATCH calls.
            retention=tuple(
                (s.name, s.retention[batch])
                for s in scenario.streams
                if batch and batch in s.retention
            ),
            register=tuple(q for q in scenario.queries if q.register_at == batch),
            expire=tuple(q for q in scenario.queries if q.expire_at == batch),
        )
        for batch in sorted(batches)
    }


class ScenarioObserver:
    """Callbacks during a replay; by default they do nothing."""

    def started(self, url: str) -> None:
        """The service listens at ``url``; the runtime is about to start."""

    def called(self, batch: int, what: str) -> None:
        """A REST call has been made before ``batch``."""

    def progressed(self, progress: Progress) -> None:
        """The runtime has sent a heartbeat."""


@dataclass(slots=True)
class Played:
    """The outcome of a scenario.

    Attributes:
        registered: query -> the service's answer to its registration.
        refused: query -> problem-details document of its refusal.
        seconds: time from opening the gate for the first batch to the last commit, including waits
            for the planner at epoch boundaries and for REST calls.
        cpu_seconds: CPU seconds of Redis, service and runtime with all their descendants, over the
            same time.
    """

    registered: dict[str, QueryOut] = field(default_factory=dict)
    refused: dict[str, dict[str, object]] = field(default_factory=dict)
    progress: Progress = field(default_factory=lambda: Progress(state="starting"))
    activations: dict[str, Activation] = field(default_factory=dict)
    epochs: list[EpochOut] = field(default_factory=list)
    revisions: list[RevisionRecord] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0


def play(scenario: Scenario, pipeline: Pipeline, observer: ScenarioObserver) -> Played:
    """Play ``scenario`` to its end; service and runtime are still running, idle, on return.

    Raises:
        ProcessError: a process died, failed, or made no progress.
        ApiError: the service refused something other than a query.
    """
    played = Played()
    plan = schedule(scenario)
    with pipeline.start_service() as client:
        if scenario.revision_gain is not None:
            client.update_settings(revision_gain=scenario.revision_gain)
        if scenario.intermediate_results is not None:
            client.update_settings(intermediate_results=scenario.intermediate_results)
        if scenario.objective is not None:
            client.update_settings(objective=scenario.objective)
        observer.started(pipeline.url)
        for stream in scenario.streams:
            register_stream(stream, client)
        _make_calls(0, plan.pop(0), client, played, observer)
        pipeline.channel.open_gate(0)
        pipeline.start_runtime()
        pipeline.wait_for_runtime()
        follower = _Follower(pipeline, observer.progressed)
        with _measured(pipeline, played) as reached_end:
            for batch in [b for b in plan if b < scenario.batches]:
                pipeline.channel.open_gate(batch)
                follower.wait(_ready_for(batch, scenario.every, pipeline))
                _make_calls(batch, plan.pop(batch), client, played, observer)
            pipeline.channel.open_gate(None)
            follower.wait(lambda p: p.committed >= scenario.batches)
            reached_end()
        follower.wait(lambda p: p.input.exhausted)
        for batch, calls in plan.items():
            _make_calls(batch, calls, client, played, observer)
        _collect(client, pipeline, played)
    return played


def _ready_for(batch: int, every: int, pipeline: Pipeline) -> Callable[[Progress], bool]:
    def ready(progress: Progress) -> bool:
        return progress.committed >= batch and pipeline.channel.published(batch // every)

    return ready


@dataclass(slots=True)
class _Follower:
    """Waits for the runtime's progress; fails if it makes none for :data:`STALL_SECONDS`."""

    pipeline: Pipeline
    see: Callable[[Progress], None]
    last: Progress | None = None

    def wait(self, done: Callable[[Progress], bool]) -> None:
        moved = time.monotonic()
        while True:
            self.pipeline.check()
            progress = self.pipeline.progress()
            if progress is not None and progress != self.last:
                self.last, moved = progress, time.monotonic()
                self.see(progress)
            if progress is not None and done(progress):
                return
            if time.monotonic() - moved > STALL_SECONDS:
                raise ProcessError(
                    f"no progress for {STALL_SECONDS:.0f} s after batch "
                    f"{progress.committed if progress else 0}",
                    remedy=f"see the logs in {self.pipeline.spec.logs}",
                )
            time.sleep(_POLL_SECONDS)


@contextmanager
def _measured(pipeline: Pipeline, played: Played) -> Iterator[Callable[[], None]]:
    """Context that measures time, CPU and memory until the yielded function is called."""
    meter = ProcessMeter(pipeline.pids)
    meter.start()
    began = time.monotonic()

    def reached_end() -> None:
        played.seconds = time.monotonic() - began
        meter.stop()
        played.cpu_seconds = meter.cpu_seconds
        played.peak_rss_bytes = meter.peak_rss_bytes

    try:
        yield reached_end
    finally:
        meter.stop()


def register_stream(stream: RecordedStream, client: Client) -> StreamOut:
    """Register a stream with its first retention."""
    first = stream.retention.get(0)
    return client.create_stream(
        stream.name,
        stream.columns,
        ttl=first.ttl if first is not None else None,
        latest=first.latest if first is not None else None,
        source={
            "format": "recorded",
            "path": str(stream.path),
            "rows_per_batch": stream.rows_per_batch,
        },
        **stream.options,
    )


def _make_calls(
    batch: int, calls: ScenarioCalls, client: Client, played: Played, observer: ScenarioObserver
) -> None:
    if calls.optimizer is not None:
        client.update_settings(optimizer=calls.optimizer)
        observer.called(batch, f"optimizer {calls.optimizer}")
    for stream, said in calls.retention:
        client.update_stream(stream, retention={"ttl": said.ttl, "latest": said.latest or None})
        latest = f", latest of each {', '.join(said.latest)}" if said.latest else ""
        observer.called(batch, f"{stream} ttl {said.ttl or 'none'}{latest}")
    for query in calls.register:
        try:
            played.registered[query.name] = client.create_query(
                query.sql, name=query.name, window=query.window, past=query.past
            )
        except ApiError as refusal:
            if not 400 <= refusal.status < 500:
                raise
            played.refused[query.name] = refusal.problem
            observer.called(batch, f"{query.name} refused")
        else:
            observer.called(batch, f"{query.name} registered")
    for query in calls.expire:
        if query.name in played.registered:
            client.delete_query(query.name)
            observer.called(batch, f"{query.name} deleted")


def _collect(client: Client, pipeline: Pipeline, played: Played) -> None:
    """Collect the report's data from the service and the runtime, while they are running."""
    progress = pipeline.progress()
    if progress is not None:
        played.progress = progress
    played.activations = pipeline.channel.activations()
    epochs = sorted(map(int, played.progress.epoch_starts))
    played.epochs = [client.epoch(number) for number in epochs]
    if pipeline.spec.revise_batches:
        played.revisions = [r for number in epochs for r in client.revisions(number).items]
    for name in played.registered:
        info = client.query(name)
        played.registered[name] = info
        if info.status == "rejected":
            problem = info.problem
            played.refused[name] = {
                "type": f"urn:anabranch:problem:{problem.code if problem else 'rejected'}",
                "title": "The query could not be planned",
                "status": 422,
                **({} if problem is None else {
                    "detail": problem.message,
                    "code": problem.code,
                    "remedy": problem.remedy,
                    "errors": [{"field": problem.field, "message": problem.message}],
                }),
            }  # fmt: skip
