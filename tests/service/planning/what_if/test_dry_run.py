"""Tests of effects on existing queries that a dry run predicts under overload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from anabranch_contract.plans.rations import Overload
from anabranch_contract.protocol.progress import Mode, Progress, Rationing
from anabranch_service.planning.what_if.dry_run import budget_after
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import CHAIN, PAIR, STREAMS
from tests.support.worlds.service import Service, serving

PATH = "/v1/plans:dry-run"
#: Shares no step with the chain.
OTHER = "SELECT i.quantity, c.city FROM items i JOIN customers c ON i.part = c.customer_id"


@pytest.fixture
def live(settings: ServiceSettings) -> Iterator[Service]:
    """A live service whose runtime gives rationed probes half of the needed time."""
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.call("PUT", "/v1/settings", 200, {"overload": "ration", "revision_gain": None})
        given = {"id": "chain", "sql": CHAIN, "slo": {"completeness": 0.4}}
        service.post("/v1/queries", given)
        report(service, 0.5)
        yield service


def report(service: Service, budget: float, needed: float = 2.0) -> None:
    rationing = Rationing(Overload.RATION, budget, needed, overloaded=budget < 1)
    progress = Progress("running", committed=9, epoch=0, ruleset_epoch=0, rationing=rationing)
    service.redis.set(service.keys.runtime, progress.dumps())


def effects(service: Service, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    found = service.post(PATH, body, 200)["effects"]
    return found, {one["query"]: one for one in found["queries"]}


def test_a_new_query_takes_its_part_from_those_that_exist(live: Service) -> None:
    found, queries = effects(live, {"add": [{"id": "pair", "sql": OTHER}]})
    assert found["budget"] == 0.5
    assert found["budget_after"] < 0.5
    assert queries["pair"]["before"] is None
    # Half of the time keeps at least half of the results: the most productive steps have priority.
    assert 0.5 <= queries["chain"]["before"] < 1
    assert 0.4 - 1e-6 <= queries["chain"]["after"] < queries["chain"]["before"]
    assert (queries["chain"]["floor"], queries["chain"]["floor_broken"]) == (0.4, False)
    assert next(iter(queries)) == "chain"


def test_a_query_whose_steps_are_there_takes_nothing(live: Service) -> None:
    found, queries = effects(live, {"add": [{"id": "pair", "sql": PAIR}]})
    assert found["budget_after"] == pytest.approx(0.5)
    assert queries["chain"]["after"] == pytest.approx(queries["chain"]["before"])


def test_a_more_important_query_breaks_floors(live: Service) -> None:
    urgent = [
        {"id": f"urgent-{n}", "sql": OTHER + f" WHERE i.quantity > {n}", "priority": 9}
        for n in (1, 2)
    ]
    _, queries = effects(live, {"add": urgent})
    assert queries["chain"]["floor_broken"]
    assert queries["chain"]["after"] < queries["urgent-1"]["after"]


def test_without_a_query_the_others_get_more(live: Service) -> None:
    live.post("/v1/queries", {"id": "other", "sql": OTHER})
    found, queries = effects(live, {"drop": ["other"]})
    assert queries["other"]["after"] is None
    assert found["budget_after"] > found["budget"]
    assert queries["chain"]["after"] > queries["chain"]["before"]


def test_below_the_machine_s_capacity_nothing_is_lost(live: Service) -> None:
    report(live, 1.0, needed=0.01)
    found, queries = effects(live, {"add": [{"id": "pair", "sql": PAIR}]})
    assert (found["budget"], found["budget_after"]) == (1.0, 1.0)
    assert {one["after"] for one in queries.values()} == {1.0}


def test_there_are_none_where_nothing_is_rationed(live: Service) -> None:
    assert live.post(PATH, {}, 200)["effects"] is None
    live.call("PUT", "/v1/settings", 200, {"overload": "wait"})
    assert live.post(PATH, {"add": [{"sql": PAIR}]}, 200)["effects"] is None


def test_a_stated_capacity_is_kept() -> None:
    assert budget_after(Rationing(budget=0.6), 0.6, 1.0, 9.0) == 0.6


def test_an_unknown_load_leaves_everything() -> None:
    assert budget_after(Rationing(), None, 1.0, 9.0) == 1.0
