"""Tests that the client uses the same Redis keys as service and runtime."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from anabranch_client.errors import ProcessError
from anabranch_client.processes.channel import Channel
from anabranch_contract.protocol.activations import Activation, Failure, Visibility
from anabranch_contract.protocol.intake import InputProgress
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Progress, Resources

KEYS = Keys("channel-test")


@pytest.fixture
def server(redis: str) -> Iterator[Redis]:
    with Redis.from_url(redis, decode_responses=True) as connection:
        yield connection


@pytest.fixture
def channel(redis: str) -> Iterator[Channel]:
    channel = Channel(redis, "channel-test")
    yield channel
    channel.forget()
    channel.close()


def test_progress_is_what_the_runtime_wrote(server: Redis, channel: Channel) -> None:
    assert channel.progress() is None
    written = Progress(
        state="running",
        committed=7,
        epoch=1,
        epoch_starts={"0": 0, "1": 4},
        streams={"a": {"input": 5, "late": 1, "invalid": 0}, "b": {"input": 2}},
        results={"q": 3},
        probes={"1": 12},
        resources=Resources(99),
        input=InputProgress(exhausted=True),
    )
    server.set(KEYS.runtime, written.dumps())
    read = channel.progress()
    assert read is not None
    assert (read.state, read.committed, read.input.exhausted) == ("running", 7, True)
    assert read.epoch_starts == {"0": 0, "1": 4}
    assert read.probes == {"1": 12}
    assert read.input_tuples == 7


def test_activations_are_what_the_runtime_wrote(server: Redis, channel: Channel) -> None:
    written = Activation(8, {"a": Visibility(0, 5), "b": Visibility(8, None)}, complete_from=17)
    server.hset(KEYS.activations, "q", written.dumps())
    read = channel.activations()["q"]
    assert (read.activated_batch, read.complete_from, read.expired_batch) == (8, 17, None)
    assert (read.visible_from["a"].batch, read.visible_from["a"].event_time) == (0, 5)
    assert read.visible_from["b"].event_time is None
    assert read.failure is None
    assert read.earlier == ()
    before = Activation(2, {"a": Visibility(0, 5)}, expired_batch=8, retention=((0,),))
    twice = Activation(8, {"a": Visibility(0, 6)}, retention=((0,),), earlier=(before,))
    assert Activation.loads(twice.dumps()) == twice
    server.hset(KEYS.activations, "q", twice.dumps())
    (ended,) = channel.activations()["q"].earlier
    assert (ended.activated_batch, ended.expired_batch) == (2, 8)
    failed = Activation(0, {}, expired_batch=3, failure=Failure("x", "y", "1 / a.v", 3))
    server.hset(KEYS.activations, "q", failed.dumps())
    assert Activation.loads(failed.dumps()) == failed
    told = channel.activations()["q"].failure
    assert told is not None
    assert (told.code, told.expression, told.batch) == ("x", "1 / a.v", 3)


def test_gate_and_stop_are_where_the_runtime_looks(server: Redis, channel: Channel) -> None:
    channel.open_gate(0)
    assert server.get(KEYS.gate) == "0"
    channel.open_gate(None)
    assert server.exists(KEYS.gate) == 0
    channel.stop()
    assert server.exists(KEYS.stop) == 1
    channel.clear_stop()
    assert server.exists(KEYS.stop) == 0


def test_a_published_epoch_is_seen(server: Redis, channel: Channel) -> None:
    assert not channel.published(0)
    server.zadd(KEYS.published, {"0": 0})
    assert channel.published(0)
    assert not channel.published(1)


def test_forgetting_leaves_other_pipelines_alone(server: Redis, channel: Channel) -> None:
    server.set("channel-other:runtime", "kept")
    server.set(KEYS.ruleset(0), "{}")
    channel.forget()
    assert server.keys("channel-test:*") == []
    assert server.getdel("channel-other:runtime") == "kept"


def test_a_server_that_is_gone_is_said_in_one_line() -> None:
    channel = Channel("redis://127.0.0.1:1/0", "x")
    assert not channel.ping()
    with pytest.raises(ProcessError, match="does not answer"):
        channel.progress()
    channel.close()
