"""Tests of two services whose leader is lost: one sequence of epochs, and no acknowledged change is
lost.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from anabranch_contract.plans import ruleset as wire
from tests.support.worlds.processes import wait_until
from tests.support.worlds.replicas import PATIENCE, Replica, Replicas, two_services

#: Seconds of the leader's lease; short, so that tests are fast.
LEASE = 0.3


def test_the_leader_is_lost_three_times(redis: str, tmp_path: Path) -> None:
    lose_leaders(redis, "three", tmp_path, 3)


@pytest.mark.slow
def test_the_leader_is_lost_fifty_times(redis: str, tmp_path: Path) -> None:
    lose_leaders(redis, "fifty", tmp_path, 50, seed=1)


def lose_leaders(redis: str, namespace: str, home: Path, times: int, seed: int = 0) -> None:
    chance = random.Random(seed)
    with two_services(redis, namespace, home, LEASE) as world:
        stopped = 0
        with world.playing():
            grow(world)
            for _ in range(times):
                leader = world.leader()
                # At a random moment of a turn, which takes some hundredths of a second.
                time.sleep(chance.uniform(0.0, 0.2))
                token = world.token()
                if chance.random() < 0.5:
                    leader.send(signal.SIGKILL)
                    if chance.random() < 0.5:
                        world.wait_for_term(token + 1)
                    leader.start()
                    world.wait_for_term(token + 1)
                else:
                    leader.send(signal.SIGSTOP)
                    world.wait_for_term(token + 1)
                    if chance.random() < 0.5:
                        grow(world)
                    leader.send(signal.SIGCONT)
                    stopped += 1
                grow(world)
                wait_until("both are up", lambda: all(r.is_up() for r in world.replicas), PATIENCE)
        world.check()
        wait_until("all is answered", lambda: answered(world), PATIENCE)
        is_one_sequence(world)
        nothing_is_lost(world)
        says_so_once(world, stopped)


def grow(world: Replicas) -> None:
    """Wait until more epochs are published."""
    wanted = len(world.seen) + 3

    def grown() -> bool:
        world.check()
        return len(world.seen) >= wanted

    wait_until("epochs are published", grown, PATIENCE)


def answered(world: Replicas) -> bool:
    cursor = int(str(world.redis.get(world.keys.cursor) or 0))
    return cursor == int(str(world.redis.llen(world.keys.boundaries)))


def is_one_sequence(world: Replicas) -> None:
    """Check that no epoch is missing, was published twice, or has changed."""
    published = [int(str(n)) for n in world.redis.zrange(world.keys.published, 0, -1)]
    assert published == list(range(len(published)))
    for epoch, text in world.seen.items():
        assert world.redis.get(world.keys.ruleset(epoch)) == text
        assert wire.loads(text).epoch == epoch
        record = json.loads(str(world.redis.get(world.keys.epoch(epoch))))
        assert record["ruleset_digest"] == wire.digest(text)
        assert set(record["queries"]) == {q.id for q in wire.loads(text).queries}
    said = Counter(
        line["epoch"]
        for replica in world.replicas
        for line in replica.lines()
        if line["event"] == "epoch published"
    )
    assert set(said.values()) == {1}, said


def nothing_is_lost(world: Replicas) -> None:
    """Check that both services know all acknowledged changes, and since when each query runs."""
    rulesets = {e: {str(q.id) for q in wire.loads(t).queries} for e, t in world.seen.items()}
    for replica in world.replicas:
        with httpx.Client(base_url=replica.url, timeout=30) as http:
            streams = {s["name"] for s in http.get("/v1/streams").json()["items"]}
            queries = {q["id"]: q for q in http.get("/v1/queries").json()["items"]}
        assert set(world.streams) <= streams
        assert set(world.queries) <= set(queries)
        for name, query in queries.items():
            first = min((e for e, names in rulesets.items() if name in names), default=None)
            if first is not None:
                assert query["first_epoch"] == first


def says_so_once(world: Replicas, stopped: int) -> None:
    lost = [
        lines(replica, "leadership lost, nothing more is published") for replica in world.replicas
    ]
    # On a busy machine a lease sometimes expires by itself.
    assert sum(map(len, lost)) >= stopped
    tokens = [token for found in lost for token in found]
    assert len(set(tokens)) == len(tokens)
    leads = [token for replica in world.replicas for token in lines(replica, "leads")]
    assert len(set(leads)) == len(leads)


def lines(replica: Replica, event: str) -> list[int]:
    return [line["token"] for line in replica.lines() if line["event"] == event]
