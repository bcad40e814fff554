"""Tests of cost constants from measured periods, and of where plans show them."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from anabranch_contract.codec import dumps
from anabranch_contract.plans.plan import Objective
from anabranch_contract.protocol.interims import Interim, StepMeasures
from anabranch_contract.protocol.measurements import (
    EdgeStatistics,
    Snapshot,
    StoreStatistics,
    Writes,
)
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.protocol.reads import Reads
from anabranch_contract.queries.joins import Label
from anabranch_contract.queries.mirs import MirId
from anabranch_contract.rest.planning.settings import PlanningSettings
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.statistics import PeriodForecast, Statistics, measured
from anabranch_service.planning.costs import costs_record, newest, timed
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import PAIR, STREAMS
from tests.support.surroundings.policy import OPEN
from tests.support.worlds.service import serving

TRUE = CostConstants(
    call=2e-3, probe=4e-6, look=1e-6, match=3e-6, write=5e-3, row=6e-6, merge=4e-3, rewrite=2e-6
)
SECONDS = PlanningSettings(optimizer="clash", objective=Objective.SECONDS, parallelism=2)


def interim(batch: int, seed: int) -> str:
    """Return a period of two steps with times according to :data:`TRUE`."""
    rng = Random(seed)
    steps = []
    for head, target in (("orders", "customers"), ("customers", "orders")):
        probes, looked, matches = (int(10 ** rng.uniform(1, 4)) for _ in range(3))
        spent = 4 * TRUE.call + probes * TRUE.probe + looked * TRUE.look + matches * TRUE.match
        counts = EdgeStatistics(probes, matches, spent, calls=4, looked=looked)
        name = MirId("customers,orders")
        steps.append(StepMeasures(name, (Label(head),), (Label(target),), counts))
    rows = rng.randint(1, 10_000)
    inserts = Writes(4, rows, 4 * TRUE.write + rows * TRUE.row)
    anew = 6 * rng.randint(1, 10_000)
    merges = Writes(1, anew, TRUE.merge + anew * TRUE.rewrite)
    found = Interim(batch, 3.0, 0, 0, batch, 2, {"orders": 20}, tuple(steps), inserts=inserts)
    return dumps(replace(found, merges=merges))


def snapshot() -> Snapshot:
    return Snapshot(
        0, 6, 6,
        arrivals={"orders": 60, "customers": 600},
        stores={
            "orders[a]/2": StoreStatistics(
                60, 0, 3, reads={"a": Reads(probes=10, looked=15)}, mir="orders"
            ),
            "orders[b]/2": StoreStatistics(
                60, 0, 3, reads={"b": Reads(probes=30, looked=85)}, mir="orders"
            ),
        },
    )  # fmt: skip


def test_live_constants_are_fitted_to_the_newest_periods() -> None:
    old = dumps(Interim(1, 3.0, 0, 0, 1, 1, {}, inserts=Writes(1, 1, 1e6)))
    texts = [old, *(interim(number, number) for number in range(2, 7))]
    periods = newest(texts, SECONDS, Mode.LIVE)
    found = timed(measured(snapshot()), snapshot(), periods, SECONDS).constants
    assert found is not None
    assert found.measurements == 20  # two steps, inserts and merges of each of five periods
    assert found.error is not None
    assert found.error < 0.05
    for name in ("call", "probe", "match", "write", "row", "merge", "rewrite"):
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=0.25), name
    assert found.calls == 12.0  # six batches, two partitions
    assert found.batches == 6.0
    assert found.looks == {MirId("orders"): 2.5}


def test_a_replay_takes_constants_that_no_clock_decides() -> None:
    texts = [interim(number, number) for number in range(5)]
    assert newest(texts, SECONDS, Mode.STEP) == []
    found = timed(measured(snapshot()), snapshot(), [], SECONDS).constants
    assert found is not None
    assert (found.measurements, found.error) == (0, None)
    assert found.probe == CostConstants().probe
    assert found.calls == 12.0


def test_calls_are_of_the_time_that_plans_are_priced_over() -> None:
    known = replace(snapshot(), batches=2)
    history = timed(measured(known), known, [], SECONDS).constants
    ahead = replace(measured(known), ahead=PeriodForecast(1 / 3))
    epoch = timed(ahead, known, [], SECONDS).constants
    assert history is not None
    assert epoch is not None
    assert (history.calls, epoch.calls) == (12.0, 4.0)


@pytest.mark.parametrize("objective", [Objective.TUPLES, Objective.PAPER])
def test_other_objectives_read_nothing_unless_kinds_are_chosen(objective: Objective) -> None:
    known = snapshot()
    alike = SECONDS.model_copy(update={"objective": objective, "substreams": 1})
    assert newest(["{"], alike, Mode.LIVE) == []
    assert timed(measured(known), known, [], alike).constants == CostConstants(batches=6.0)
    assert timed(Statistics(), None, [], alike) == Statistics()
    apart = alike.model_copy(update={"substreams": 2})
    assert (
        timed(measured(known), known, [], apart).constants
        == timed(measured(known), known, [], SECONDS).constants
    )
    assert costs_record(timed(measured(known), known, [], apart), objective) is None


def test_a_service_prices_plans_in_seconds_from_its_first_epoch_on(redis: str) -> None:
    """With built-in constants, until something is measured."""
    settings = ServiceSettings(redis_url=redis, namespace="by default", mode=Mode.STEP, access=OPEN)
    with serving(settings) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.post("/v1/queries", {"id": "pair", "sql": PAIR})
        service.plan(-1)
        first: dict[str, Any] = service.get("/v1/epochs/0")
        assert (first["objective"], first["costs"]) == ("seconds", None)
        service.plan(0, next_batch=6, snapshot=snapshot())
        second: dict[str, Any] = service.get("/v1/epochs/1")
        assert (second["costs"]["measurements"], second["costs"]["batches"]) == (0, 6.0)
        assert second["costs"]["rewrite"] == CostConstants().rewrite
        assert 0 < second["cost"] < 1


def test_an_epoch_and_a_dry_run_show_the_constants(settings: ServiceSettings) -> None:
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.post("/v1/queries", {"id": "pair", "sql": PAIR})
        service.http.put("/v1/settings", json={"objective": "seconds"}).raise_for_status()
        service.plan(-1)
        for number in (1, 2, 3):
            service.redis.rpush(service.keys.interims, interim(2 * number, number))
        service.plan(0, next_batch=6, snapshot=snapshot())
        epoch: dict[str, Any] = service.get("/v1/epochs/2")
        assert (epoch["objective"], epoch["costs"]["measurements"]) == ("seconds", 12)
        assert 0 <= epoch["costs"]["error"] < 0.2
        assert epoch["cpu"] == {
            "plan": pytest.approx(epoch["cost"]),
            "individual": pytest.approx(epoch["individual_cost"]),
        }
        dry = service.post("/v1/plans:dry-run", {}, status=200)
        assert (dry["costs"], dry["cpu"]) == (epoch["costs"], epoch["cpu"])
        counted = service.post("/v1/plans:dry-run", {"objective": "tuples"}, status=200)
        assert counted["costs"] is None
        assert counted["cost"] > dry["cost"]  # tuples, not seconds
        # The objective does not change the unit.
        assert counted["cpu"]["plan"] >= dry["cpu"]["plan"] * (1 - 1e-9)
        assert counted["cpu"]["plan"] < 10 * dry["cpu"]["plan"]
        unknown = service.post("/v1/plans:dry-run", {"statistics": {"orders": 5}}, status=200)
        assert unknown["cpu"] is None
