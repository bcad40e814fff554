"""Tests of a pipeline's processes: which runtime's progress counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from anabranch_client.errors import ProcessError
from anabranch_client.processes.channel import Channel
from anabranch_client.processes.pipeline import Pipeline
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Progress
from tests.support.worlds.processes import spec_of

KEYS = Keys("pipeline-test")


@pytest.fixture
def pipeline(redis: str, tmp_path: Path) -> Iterator[Pipeline]:
    channel = Channel(redis, "pipeline-test")
    yield Pipeline(spec_of(tmp_path), channel, redis, run="this")
    channel.forget()
    channel.close()


def test_the_failure_of_an_earlier_run_is_not_this_ones(redis: str, pipeline: Pipeline) -> None:
    with Redis.from_url(redis) as server:
        server.set(
            KEYS.runtime, Progress("failed", run="earlier", error="the disk is full").dumps()
        )
        pipeline.check()
        assert pipeline.progress() is None
        server.set(KEYS.runtime, Progress("failed", run="this", error="the disk is full").dumps())
        with pytest.raises(ProcessError, match="the runtime failed: the disk is full"):
            pipeline.check()


def test_a_progress_of_the_release_before_is_nobodys(redis: str, pipeline: Pipeline) -> None:
    with Redis.from_url(redis) as server:
        server.set(KEYS.runtime, '{"state": "failed", "error": "what was"}')
        pipeline.check()
