"""Tests of plans that wait for approval in a live pipeline: nothing changes before the decision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch_client.errors import ApiError
from anabranch_contract.rest.planning.epochs import HeldPlanOut
from tests.e2e.test_live import AB, ABC, BA, World
from tests.support.worlds.processes import kill, live_pipeline


def waiting(world: World, *names: str) -> HeldPlanOut:
    """Return the plan for which the queries wait, when it is held."""
    client = world.live.client

    def is_held() -> bool:
        try:
            return client.held_plan().waiting == sorted(names)
        except ApiError:
            return False

    world.live.wait(f"a plan with {names} to be held", is_held)
    return client.held_plan()


def decide(say: Callable[[str], object], world: World, *names: str) -> None:
    """Approve or refuse that plan, also if new statistics change it meanwhile."""
    while True:
        try:
            say(waiting(world, *names).version)
        except ApiError as refusal:
            if refusal.status != 412:
                raise
        else:
            return


@pytest.mark.spark
@pytest.mark.slow
def test_nothing_switches_before_it_is_approved(tmp_path: Path) -> None:
    with live_pipeline(tmp_path) as live:
        world = World(live, tmp_path)
        live.client.update_settings(approval="manual")
        for name in ("a", "b", "c"):
            world.stream(name)
        world.query("ab", AB)
        waiting(world, "ab")
        epoch = live.progress().epoch
        live.wait("another epoch", lambda: live.progress().epoch > epoch + 1)
        found = live.client.query("ab")
        assert (found.status, found.waits_because) == ("pending", "its plan waits for approval")

        # An approval takes effect although no rows arrive.
        decide(live.client.approve_plan, world, "ab")
        world.wait_for("ab", "active")
        world.drop("a", [(k, 10 + k, k) for k in range(6)])
        world.drop("b", [(k % 4, 20 + k, k) for k in range(8)])
        before = world.check("ab", AB)
        assert before > 0

        # The service is down and restarts while a plan waits; the running plan continues.
        world.query("abc", ABC)
        world.query("ba", BA)
        seen = waiting(world, "abc", "ba")
        kill(live.pipeline, "service")
        world.drop("b", [(1, 30, 9), (2, 31, 9)])
        live.client.close()
        live.client = live.pipeline.start_service()
        kept = live.client.held_plan()
        assert (kept.since, kept.waiting) == (seen.since, seen.waiting)
        assert world.check("ab", AB) > before

        # A deletion never waits for approval.
        live.client.delete_query("ab")
        ended = world.wait_for("ab", "expired")
        assert ended.expired_batch is not None
        results = world.check("ab", AB)
        world.drop("a", [(1, 40, 10)])
        assert world.check("ab", AB) == results

        decide(live.client.refuse_plan, world, "abc", "ba")
        assert live.client.query("abc").waits_because == "its plan was refused"
        live.client.delete_query("ba")
        decide(live.client.approve_plan, world, "abc")
        world.wait_for("abc", "active")
        world.drop("c", [(k, 50 + k, 11) for k in range(4)])
        world.drop("a", [(1, 60, 12), (2, 61, 12)])
        world.drop("b", [(1, 62, 12), (3, 63, 12)])
        assert world.check("abc", ABC) > 0
        live.pipeline.finish_runtime()
