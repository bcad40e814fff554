"""Tests of processes killed with SIGKILL during a replay and restarted: results are exact
nevertheless.

The scenario is played as ``anabranch replay`` does it; what strikes is hooked into its watcher.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from anabranch_client.processes.pipeline import Pipeline, running
from anabranch_client.replay.player import ScenarioObserver
from anabranch_client.replay.replay import run_to_report
from anabranch_client.replay.scenario import load_scenario
from anabranch_contract.protocol.progress import Progress
from anabranch_runtime.sinks.parquet import STAGING
from tests.support.scenarios.draw import generate
from tests.support.surroundings.disks import small_disk
from tests.support.surroundings.redis import StoppableRedis
from tests.support.worlds.processes import kill, spec_of, wait_until
from tests.support.worlds.replay_check import Verdict, check

Strike = Callable[[Pipeline], None]


#: With this seed queries share intermediate results that are added and removed under several
#: optimisers.
SEED = 18


@dataclass
class Striking(ScenarioObserver):
    """A watcher that runs each strike once, after the given number of committed batches."""

    pipeline: Pipeline
    strikes: dict[int, Strike]
    struck: list[int] = field(default_factory=list)

    def progressed(self, progress: Progress) -> None:
        for batch in sorted(self.strikes):
            if progress.committed >= batch:
                self.struck.append(progress.committed)
                self.strikes.pop(batch)(self.pipeline)
                return


def kill_runtime(after: float) -> Strike:
    """Return a strike that kills the runtime with all its processes after ``after`` seconds, and
    restarts it.
    """

    def strike(pipeline: Pipeline) -> None:
        time.sleep(after)
        kill(pipeline, "runtime")
        pipeline.start_runtime()

    return strike


def kill_runtime_within_a_batch(pipeline: Pipeline) -> None:
    """Kill the runtime while the tasks of a batch write results, and restart it."""
    staging = pipeline.spec.results / STAGING
    deadline = time.monotonic() + 10
    while not any(staging.glob("*/*")) and time.monotonic() < deadline:
        time.sleep(0.002)
    kill(pipeline, "runtime")
    pipeline.start_runtime()


def kill_service(pipeline: Pipeline) -> None:
    """Kill the service, and restart it after a second without a planner."""
    kill(pipeline, "service")
    time.sleep(1.0)
    pipeline.start_service().close()


def fill_the_disk(pipeline: Pipeline) -> None:
    """Fill the state's disk until the runtime gives up; then free space and restart it."""
    filler = pipeline.spec.state / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))

    def gave_up() -> bool:
        progress = pipeline.channel.progress()
        return progress is not None and progress.state == "failed"

    wait_until("the runtime's end", gave_up)
    progress = pipeline.channel.progress()
    assert progress is not None
    assert "there is no space left for" in (progress.error or "")
    assert "make room" in (progress.error or "")
    runtime = next(c for c in pipeline.children if c.name == "runtime")
    assert runtime.process.wait(60) == 1
    pipeline.children.remove(runtime)
    filler.unlink()
    pipeline.start_runtime()
    wait_until("the runtime's start", lambda: not gave_up())


def play_with(
    strikes: Mapping[int, Strike], folder: Path, seed: int, redis_url: str | None = None
) -> Verdict:
    """Replay the scenario of ``seed`` with ``strikes``, which must all occur."""
    generated = generate(seed, folder / "scenario")
    scenario = load_scenario(generated.path)
    out = folder / "out"
    spec = spec_of(
        out,
        optimizer=scenario.optimizer[0],
        parallelism=scenario.parallelism,
        epoch_batches=scenario.every,
        redis_url=redis_url,
    )
    with running(spec) as pipeline:
        watcher = Striking(pipeline, dict(strikes))
        run_to_report(scenario, pipeline, watcher)
    assert len(watcher.struck) == len(strikes), watcher.struck
    assert watcher.struck[0] < scenario.batches - 1, "nothing was left to do after the strike"
    return check(generated.path, out, generated.queries)


@pytest.mark.spark
@pytest.mark.slow
def test_the_disk_is_full_for_a_while(tmp_path: Path) -> None:
    with small_disk(tmp_path / "out" / "state", "256m"):
        verdict = play_with({3: fill_the_disk}, tmp_path, SEED)

    assert not verdict.problems, str(verdict)
    assert verdict.results > 0


@pytest.mark.spark
@pytest.mark.slow
def test_service_and_runtime_killed(tmp_path: Path) -> None:
    strikes = {2: kill_service, 4: kill_runtime_within_a_batch}

    verdict = play_with(strikes, tmp_path, SEED)

    assert not verdict.problems, str(verdict)
    assert verdict.results > 0


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(("seed", "after"), [(0, 0.1), (30, 0.2), (37, 0.6), (SEED, 0.5)])
def test_runtime_killed_again_and_again(seed: int, after: float, tmp_path: Path) -> None:
    strikes = {1: kill_runtime(0.0), 3: kill_runtime_within_a_batch, 6: kill_runtime(after)}

    verdict = play_with(strikes, tmp_path, seed)

    assert not verdict.problems, str(verdict)


@pytest.fixture
def stoppable() -> Iterator[StoppableRedis]:
    server = StoppableRedis()
    yield server
    server.close()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("after", [0.0, 0.3])
def test_redis_killed_and_started_again(
    after: float, stoppable: StoppableRedis, tmp_path: Path
) -> None:
    def strike(pipeline: Pipeline) -> None:
        time.sleep(after)
        stoppable.kill()
        # The service waits for Redis; the runtime may end with its exit code for a lost Redis.
        runtime = next(c for c in pipeline.children if c.name == "runtime")
        code = runtime.wait(60)
        stoppable.start()
        wait_until("Redis to come back", pipeline.channel.ping)
        assert code != 0
        kill(pipeline, "runtime") if code is None else pipeline.children.remove(runtime)
        pipeline.start_runtime()

    verdict = play_with({2: strike, 5: strike}, tmp_path, SEED, stoppable.url)

    assert not verdict.problems, str(verdict)
