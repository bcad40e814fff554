"""Tests that the planner's process makes the same plans as the service, and that its failures are
harmless.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psutil
import pytest
from redis.asyncio import Redis as AsyncRedis

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import digest
from anabranch_contract.protocol.progress import Mode
from anabranch_service.planning import loop
from anabranch_service.planning.epoch import LATER
from anabranch_service.planning.loop import EpochLoop
from anabranch_service.planning.process import process as planner_process
from anabranch_service.planning.process.pace import Pace
from anabranch_service.planning.process.process import NICE, PlannerProcess
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import CHAIN, PAIR, STREAMS
from tests.support.surroundings.kin import kin
from tests.support.worlds.service import Service, eventually, serving


def children(nice: int = 0) -> list[psutil.Process]:
    """Return child processes that plan (niceness 0) or that explain (:data:`NICE`)."""
    return kin(lambda words: words[-2:] == [planner_process.WORKER, str(nice)])


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch, shop: Service) -> Iterator[Service]:
    """A service that makes all plans in another process."""
    monkeypatch.setattr(loop, "APART", 1)
    yield shop
    assert len(children()) <= 1


@pytest.fixture
def live(settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service in live mode with a query, which makes all plans in another process."""
    monkeypatch.setattr(loop, "APART", 1)
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.post("/v1/queries", {"id": "pair", "sql": PAIR})
        yield service


def explained(service: Service, epoch: int) -> dict[str, Any]:
    """Return the record of an epoch, after it has been explained."""
    eventually(lambda: service.get(f"/v1/epochs/{epoch}")["explained"], "its explanation")
    record: dict[str, Any] = service.get(f"/v1/epochs/{epoch}")
    return record


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in record.items() if k not in ("solve_ms", "published_at", "epoch")}


def test_the_epochs_are_the_same(shop: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        sql = (PAIR, CHAIN)[number % 2] + f" WHERE o.order_id > {number}"
        shop.post("/v1/queries", {"id": f"q{number}", "sql": sql})
    shop.plan(-1)
    shop.plan(0)
    assert children() == []
    monkeypatch.setattr(loop, "APART", 1)
    shop.plan(1)
    assert len(children()) == 1
    here, there = shop.get("/v1/epochs/1"), explained(shop, 2)
    assert there["individual_cost"]
    assert there["shares"]["queries"]
    assert there["diff"]
    assert without_times(there) | {"diff": None, "ruleset_digest": ""} == without_times(here) | {
        "diff": None,
        "ruleset_digest": "",
    }
    rules = [shop.get(f"/v1/epochs/{epoch}/ruleset") for epoch in (1, 2)]
    assert [r.pop("epoch") for r in rules] == [1, 2]
    assert rules[0] == rules[1]


def test_a_process_that_is_killed_costs_one_epoch(apart: Service) -> None:
    apart.post("/v1/queries", {"id": "pair", "sql": PAIR})
    apart.plan(-1)
    explained(apart, 0)  # which asks the process, too
    (child,) = children()
    child.kill()
    apart.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    apart.plan(0)
    record = apart.get("/v1/epochs/1")
    assert record["queries"] == ["pair"]
    assert "its process died" in record["fallback"]
    assert apart.get("/v1/queries/chain")["status"] == "pending"
    apart.plan(1)
    assert apart.get("/v1/epochs/2")["queries"] == ["pair", "chain"]
    (another,) = children()
    assert another.pid != child.pid


def test_a_process_is_sent_a_query_once(apart: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    ask = planner_process._ask

    def noted(child: subprocess.Popen[bytes], asked: planner_process.Asked) -> Any:
        if isinstance(asked, planner_process.TimedTask):
            sent.append((asked.order, [q.id for q in asked.task.queries]))
        return ask(child, asked)

    monkeypatch.setattr(planner_process, "_ask", noted)
    apart.post("/v1/queries", {"id": "pair", "sql": PAIR})
    apart.plan(-1)
    apart.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    apart.plan(0)
    apart.plan(1)
    apart.call("DELETE", "/v1/queries/pair", 202)
    apart.plan(2)
    for child in children():
        child.kill()
    apart.plan(3)
    apart.plan(4)
    assert apart.get("/v1/epochs/5")["queries"] == ["chain"]
    both = ("pair", "chain")
    wanted = [(("pair",), ["pair"]), (both, ["chain"]), (both, []), (("chain",), [])]
    # The next process gets everything, and asks for the running plan.
    assert sent == [*wanted, (("chain",), []), (("chain",), ["chain"]), (("chain",), [])]


def test_an_epoch_is_published_before_it_is_explained(apart: Service) -> None:
    apart.post("/v1/queries", {"id": "pair", "sql": PAIR})
    apart.plan(-1)
    first = explained(apart, 0)
    assert first["diff_reason"] == "no epoch has been published yet"
    (explainer,) = children(NICE)
    explainer.suspend()
    try:
        apart.post("/v1/queries", {"id": "chain", "sql": CHAIN})
        apart.plan(0)
        record = apart.get("/v1/epochs/1")
        assert record["queries"] == ["pair", "chain"]
        assert record["explain"]["queries"]
        assert (record["explained"], record["individual_cost"], record["diff"]) == (
            False,
            None,
            None,
        )
        assert record["diff_reason"] == LATER
    finally:
        explainer.resume()
    assert explained(apart, 1)["diff"]["totals"]["added"]["count"] > 0
    (line,) = apart.get("/v1/epochs?limit=1")["items"]
    assert line["changes"]["steps_added"] > 0
    assert line["individual_cost"] > 0


def test_an_explanation_that_fails_says_so(apart: Service) -> None:
    apart.post("/v1/queries", {"id": "pair", "sql": PAIR})
    apart.plan(-1)
    explained(apart, 0)
    (explainer,) = children(NICE)
    explainer.kill()
    apart.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    apart.plan(0)
    assert "its process died" in explained(apart, 1)["diff_reason"]
    apart.post("/v1/queries", {"id": "later", "sql": CHAIN})
    apart.plan(1)
    assert explained(apart, 2)["diff_reason"] == ""


def test_live_the_newest_plan_is_explained_once_plans_rest(
    live: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CALM", 0.0)
    live.plan(-1)
    explained(live, 0)
    monkeypatch.setattr(loop, "CALM", 1e6)
    monkeypatch.setattr(loop, "WAITING", 1e6)
    live.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    live.plan(0)
    live.plan(1)
    assert [live.get(f"/v1/epochs/{n}")["explained"] for n in (2, 3)] == [False, False]
    assert live.get("/v1/epochs/3")["same_as"] == 2


def test_live_an_explanation_waits_for_its_share_of_a_cpu(
    live: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CALM", 0.0)
    live.plan(-1)
    explained(live, 0)
    due = time.monotonic() + 2.0
    monkeypatch.setattr(Pace, "due", due)
    live.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    live.plan(0)
    explained(live, 2)
    assert time.monotonic() >= due


def test_live_a_plan_is_explained_though_later_epochs_repeat_it(
    live: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The differences of a plan are kept, and a plan that was replaced meanwhile is skipped."""
    calm = threading.Event()

    async def waiting(_: EpochLoop) -> None:
        while not calm.is_set():
            await asyncio.sleep(0.01)

    monkeypatch.setattr(EpochLoop, "_calm", waiting)
    live.plan(-1)
    live.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    live.plan(0)
    live.plan(1)
    assert live.get("/v1/epochs/3")["same_as"] == 2
    calm.set()
    assert explained(live, 2)["diff"]["totals"]["added"]["count"] > 0
    assert explained(live, 3)["diff_reason"] == "nothing has changed since epoch 2"
    # Another plan had been published before this one was explained.
    assert not live.get("/v1/epochs/0")["explained"]


def test_a_running_explanation_ends_before_the_service_does(
    settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A remaining task could open a connection after connections have been closed."""
    begun, ends = threading.Event(), list[str]()

    async def explained_forever(self: EpochLoop, record: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("explanation")

    async def closed(self: AsyncRedis, *arguments: Any, **options: Any) -> None:
        ends.append("connections")
        await aclose(self, *arguments, **options)

    aclose = AsyncRedis.aclose
    monkeypatch.setattr(loop, "APART", 1)
    monkeypatch.setattr(EpochLoop, "_explained", explained_forever)
    monkeypatch.setattr(AsyncRedis, "aclose", closed)
    with serving(settings) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.post("/v1/queries", {"id": "pair", "sql": PAIR})
        service.plan(-1)
        assert begun.wait(120)
    assert ends.count("explanation") == 1
    assert ends.index("explanation") < ends.index("connections")


def test_an_epoch_for_which_nothing_has_changed_is_a_copy(apart: Service) -> None:
    apart.post("/v1/queries", {"id": "pair", "sql": PAIR})
    for boundary in range(-1, 4):
        apart.plan(boundary)
    first, last = explained(apart, 0), explained(apart, 4)
    assert [apart.get(f"/v1/epochs/{n}")["same_as"] for n in range(5)] == [None, 0, 1, 2, 3]
    assert (last["method"], last["diff"]) == ("as before", None)
    assert last["diff_reason"] == "nothing has changed since epoch 3"
    for name in ("queries", "cost", "gap", "explain", "individual_cost", "shares", "reasons"):
        assert last[name] == first[name], name
    rules = [apart.get(f"/v1/epochs/{n}/ruleset") for n in (0, 4)]
    assert [r.pop("epoch") for r in rules] == [0, 4]
    assert rules[0] == rules[1]
    text = apart.http.get("/v1/epochs/4/ruleset").text
    assert digest(text) == last["ruleset_digest"]
    assert rulesets.loads(text).epoch == 4
    lines = apart.get("/v1/epochs")["items"]
    assert len({line["plan"] for line in lines}) == 1
    assert {line["changes"] and line["changes"]["steps_added"] for line in lines[:4]} == {0}
    # A change leads to a new plan, which is charged for switching.
    apart.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    apart.plan(4)
    record = explained(apart, 5)
    assert (record["same_as"], record["queries"]) == (None, ["pair", "chain"])
    assert record["diff"]["epoch"] == 4
    assert record["switching_cost"] > 0


@pytest.mark.parametrize(
    "change",
    [
        lambda shop: shop.call("PATCH", "/v1/settings", 200, {"parallelism": 3}),
        lambda shop: shop.call(
            "PATCH", "/v1/queries/pair", 200, {"slo": {"freshness": {"o": "1 hour"}}}
        ),
        lambda shop: shop.call("DELETE", "/v1/queries/chain", 202),
        lambda shop: shop.post(
            "/v1/streams", {"name": "more", "columns": [{"name": "a", "type": "int"}]}
        ),
    ],
    ids=["setting", "freshness", "deletion", "stream"],
)
def test_whatever_changes_is_a_plan_of_its_own(
    apart: Service, change: Callable[[Service], object]
) -> None:
    apart.post("/v1/queries", {"id": "pair", "sql": PAIR})
    apart.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    apart.plan(-1)
    apart.plan(0)
    assert apart.get("/v1/epochs/1")["same_as"] == 0
    change(apart)
    apart.plan(1)
    assert apart.get("/v1/epochs/2")["same_as"] is None
    apart.plan(2)
    assert apart.get("/v1/epochs/3")["same_as"] == 2


def test_where_redis_has_lost_what_goes_on_the_next_epoch_is_planned_anew(apart: Service) -> None:
    apart.post("/v1/queries", {"id": "pair", "sql": PAIR})
    apart.plan(-1)
    apart.plan(0)
    apart.redis.delete(apart.keys.ruleset(1))
    apart.plan(1)
    record = apart.get("/v1/epochs/2")
    assert (record["same_as"], record["queries"]) == (None, ["pair"])
    assert apart.get("/v1/epochs/2/ruleset")["queries"][0]["id"] == "pair"


def test_another_service_goes_on_from_what_this_one_has_published(apart: Service) -> None:
    apart.post("/v1/queries", {"id": "pair", "sql": PAIR})
    apart.plan(-1)
    explained(apart, 0)  # else its explanation may meet the dead process, not the next epoch
    (child,) = children()
    child.kill()
    # The next process asks for the running plan: an equal plan is not charged for switching.
    apart.plan(0)
    apart.plan(1)
    record = apart.get("/v1/epochs/2")
    assert (record["fallback"], record["switching_cost"], record["same_as"]) == ("", 0.0, None)
    apart.plan(2)
    assert apart.get("/v1/epochs/3")["same_as"] == 2


def test_what_can_not_be_planned_is_rejected_as_ever(apart: Service) -> None:
    apart.post("/v1/queries", {"id": "pair", "sql": PAIR})
    apart.plan(-1)
    apart.call("PATCH", "/v1/settings", 200, {"memory": 1})
    apart.plan(0)
    assert "without the memory budget" in apart.get("/v1/epochs/1")["fallback"]


def test_a_plan_that_takes_too_long_is_given_up() -> None:
    process = PlannerProcess(0.3)
    try:
        with pytest.raises(PlannerError, match=r"more than 0\.3 s"):
            process.explain(b"no plan")
        assert children() == []
    finally:
        process.close()


def test_an_error_of_the_process_is_raised_here() -> None:
    process = PlannerProcess(60)
    try:
        for _ in range(2):
            with pytest.raises(pickle.UnpicklingError):
                process.explain(b"no plan")
        assert len(children()) == 1
    finally:
        process.close()
    assert children() == []


def test_it_ends_with_the_service_however_that_ends() -> None:
    """Its input ends when the service is killed."""
    code = (
        "import time; from anabranch_service.planning.process.process import PlannerProcess\n"
        "p = PlannerProcess(60)\n"
        "p.hand_over(0)\n"
        "print(p._child.pid, flush=True); time.sleep(60)"
    )
    service = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert service.stdout is not None
    started, number = service.stdout.readline(), service.stdout.readline()
    assert "planner process started" in started
    child = psutil.Process(int(number))
    os.kill(service.pid, signal.SIGKILL)
    service.communicate()
    eventually(lambda: not child.is_running() or child.status() == "zombie", "its end")


def test_requests_are_answered_while_it_plans(apart: Service) -> None:
    apart.post("/v1/queries", {"id": "pair", "sql": PAIR})
    apart.plan(-1)
    (child,) = children()
    child.suspend()
    planned = threading.Thread(target=lambda: apart.plan(0))
    planned.start()
    try:
        began = time.monotonic()
        assert apart.get("/v1/queries/pair")["status"] == "pending"
        assert time.monotonic() - began < 60
    finally:
        child.resume()
        planned.join()
    assert apart.get("/v1/epochs/1")["queries"] == ["pair"]
