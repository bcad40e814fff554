"""Tests of runs of a query that is put, paused, resumed and deleted in any order.

Whatever the order, a run that has been overtaken is not pending once an epoch was planned, the
query's present run goes on, and a deleted query lets its streams go.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Progress
from tests.service.conftest import CHAIN, PAIR, STREAMS
from tests.support.scenarios.seeds import fewer_examples
from tests.support.worlds.records import remove
from tests.support.worlds.service import Service

LIVE = ("pending", "active", "paused", "expiring")
STATEMENTS = {"put": PAIR, "put large": f"{PAIR} WHERE o.total > 10", "put chain": CHAIN}
#: ``begin``: an epoch is planned and the runtime begins it. ``reject``: an epoch is planned while a
#: stream of the chain is deleted. ``put for a moment``: a run expires at once.
ACTIONS = [*STATEMENTS, "put for a moment", "pause", "resume", "delete", "begin", "begin", "reject"]
_NAMES = count()


class World:
    """A query, the requests about it, and the runtime that begins its epochs."""

    def __init__(self, shop: Service) -> None:
        self.shop, self.name = shop, f"q{next(_NAMES)}"
        self.epoch = int(shop.redis.get("epoch of the tests") or -1)

    def act(self, action: str) -> None:
        if action in ("begin", "reject"):
            self.begin(lost=action == "reject")
        elif action in STATEMENTS:
            self.request("PUT", "", {"sql": STATEMENTS[action]})
        elif action == "put for a moment":
            self.request("PUT", "", {"sql": f"{PAIR} WHERE o.total > 5", "ttl": "1 microsecond"})
        elif action == "delete":
            self.request("DELETE", "")
        else:
            self.request("POST", f":{action}")

    def request(self, method: str, verb: str, body: dict[str, Any] | None = None) -> None:
        answer = self.shop.http.request(method, f"/v1/queries/{self.name}{verb}", json=body)
        assert answer.status_code < 300 or answer.status_code in (404, 409), answer.text

    def begin(self, *, lost: bool = False) -> None:
        shop = self.shop
        if lost:
            remove(shop.redis, shop.keys, "streams", "items")
        before = self.runs()
        shop.plan(self.epoch, next_batch=self.epoch + 1)
        self.epoch += 1
        shop.redis.set("epoch of the tests", self.epoch)
        planned = shop.get(f"/v1/epochs/{self.epoch}")
        for run in planned["queries"]:
            shop.activate(run, Activation(self.epoch, {}))
        shop.progress(Progress("running", committed=self.epoch + 1, epoch=self.epoch))
        if lost:
            shop.post("/v1/streams", STREAMS[2])
        self.check(before, planned)

    def check(self, before: dict[str, str], planned: dict[str, Any]) -> None:
        now = self.runs()
        mine = [run for run in planned["queries"] if run in now]
        assert len(mine) <= 1
        if mine:
            # All others have ended, except a rejected later one.
            others = {run: status for run, status in now.items() if run != mine[0]}
            assert set(others.values()) <= {"expired", "rejected"}, (before, now, planned)
        else:
            assert set(now.values()) <= {"expired", "rejected", "paused"}, (before, now, planned)
        rejected = {run for run in now if run in planned["rejected"]}
        active = {run for run, status in before.items() if status == "active"}
        if rejected and active - rejected:
            # The present run continues if no later run can be planned.
            assert mine, (before, now, planned)

    def runs(self) -> dict[str, str]:
        answer = self.shop.http.get(f"/v1/queries/{self.name}/runs")
        items = answer.json()["items"] if answer.status_code == 200 else []
        return {run["run"]: run["status"] for run in items}


@settings(
    fewer_examples(10),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(actions=st.lists(st.sampled_from(ACTIONS), max_size=9), runtime=st.booleans())
@example(actions=["put", "put large", "begin"], runtime=True)
@example(actions=["put", "put large"], runtime=False)
@example(actions=["put", "put for a moment"], runtime=False)
@example(actions=["put", "begin", "put chain", "reject"], runtime=True)
@example(actions=["put", "begin", "put chain", "reject", "pause", "begin", "resume"], runtime=True)
@example(actions=["put", "begin", "put large", "put chain", "put chain", "reject"], runtime=True)
@example(actions=["put", "put large", "pause", "resume", "begin"], runtime=True)
def test_overtaken_runs_end_and_let_their_streams_go(
    shop: Service, actions: list[str], runtime: bool
) -> None:
    world = World(shop)
    for action in actions:
        world.act(action)
    world.act("delete")
    if runtime:
        world.begin()
        assert not set(world.runs().values()) & set(LIVE), world.runs()
    else:
        # A runtime that is not running reports no run as ended.
        shop.redis.delete(shop.keys.heartbeat)
    for stream in STREAMS:
        shop.call("DELETE", f"/v1/streams/{stream['name']}", 204)
    shop.beat()
    for stream in STREAMS:
        shop.post("/v1/streams", stream)


@pytest.mark.parametrize("chain", [1, 2, 3])
def test_rejected_runs_leave_their_place_to_the_one_that_goes_on(shop: Service, chain: int) -> None:
    world = World(shop)
    world.act("put")
    world.begin()
    for number in range(chain):
        world.request("PUT", "", {"sql": f"{CHAIN} WHERE o.total > {number}"})
    world.begin(lost=True)
    assert list(world.runs().values()) == ["active", *["rejected"] * chain]
    world.act("delete")
    world.begin()
    assert set(world.runs().values()) == {"expired", "rejected"}
