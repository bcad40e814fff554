"""Tests of rations in the driver: taken before a batch, recorded, repeated, withdrawn."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import redis as redis_client

from anabranch_contract.plans.rations import (
    Overload,
    Ranking,
    Ration,
    RationedBatches,
    RationedGoal,
    RationSchedule,
    SchedulePoint,
)
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.intake import StreamIntake
from anabranch_contract.protocol.progress import Mode, Progress
from anabranch_contract.queries.joins import Label, QueryId
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.rations import overload
from anabranch_runtime.rations.limits import KEPT, count_withheld
from anabranch_runtime.rations.rationer import SAMPLE
from anabranch_runtime.recovery.journal import KnownLoad
from anabranch_runtime.sinks.ledger import publish_rations
from anabranch_runtime.state.debt import RationReport
from tests.support.oracles.ledger import read_rations
from tests.support.worlds.driven import KEYS, Killed, die, driver, expected, job, publish, results

RANKING = Ranking((("a", "bigint"),), by_batch=True)
#: R's tuples get the first half of the budget, S's tuples the rest.
GOALS = tuple(RationedGoal(QueryId("q"), Label(name), RANKING) for name in ("R", "S"))
POINTS = (
    SchedulePoint(0.0, (0.0, 0.0)),
    SchedulePoint(0.5, (1.0, 0.0)),
    SchedulePoint(1.0, (1.0, 1.0)),
)
NOTHING_OF_S = (Ration(QueryId("q"), Label("S"), SAMPLE, RANKING),)


def offer(url: str, budget: float | None, *, latency: float = 2.0) -> None:
    """Publish a schedule of rations, as the service does."""
    schedule = RationSchedule(0, 0, GOALS, POINTS, budget=budget, latency=latency)
    redis_client.Redis.from_url(url).set(KEYS.rations, schedule.dumps())


def withdraw(url: str) -> None:
    redis_client.Redis.from_url(url).delete(KEYS.rations)


def progress(url: str) -> Progress:
    text = redis_client.Redis.from_url(url).get(KEYS.runtime)
    assert text is not None
    return Progress.loads(text)


def test_a_batch_withholds_what_its_rations_say(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, every=10)
    one.run(job(0))
    offer(url, 0.5)
    one.run(job(1))
    # R's new tuple has joined the S before; S's new tuple, which counts as the later, nothing.
    assert results(tmp_path) == [0, 0]
    assert one.state.rationed == (RationedBatches(1, 1, NOTHING_OF_S),)
    assert one.state.queries["q"].blind == 0
    shown = progress(url).rationing
    assert (shown.policy, shown.budget, shown.overloaded) == (Overload.RATION, 0.5, True)
    assert shown.rations == NOTHING_OF_S
    withdraw(url)
    one.run(job(2))
    # All withheld tuples are stored, and later tuples join with them.
    assert results(tmp_path) == sorted([0, 0, *[0, 1], *[2, 2, 2]])
    assert progress(url).rationing.policy is Overload.WAIT
    assert driver(url, tmp_path).state == one.state


def test_a_repeated_batch_goes_by_its_journal(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, every=10)
    one.run(job(0))
    offer(url, 0.5)
    with pytest.raises(Killed):
        one.run(die(job(1)))
    withdraw(url)
    again = driver(url, tmp_path, every=10)
    again.run(job(1))
    assert results(tmp_path) == [0, 0]
    again.run(job(2))
    assert again.state.rationed == (RationedBatches(1, 1, NOTHING_OF_S),)
    marks = {"R": 0, "S": 0}
    noted = RationedBatches(1, 1, NOTHING_OF_S, marks, now=0)
    assert read_rations(tmp_path / "results") == (noted,)


def test_the_ledger_has_every_rationed_batch(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, every=100)
    offer(url, 0.5)
    for batch in range(2 * KEPT):
        withdraw(url) if batch % 2 else offer(url, 0.5)
        one.run(job(batch))
    found = read_rations(tmp_path / "results")
    assert [(one.first, one.rations) for one in found] == [
        (batch, NOTHING_OF_S) for batch in range(0, 2 * KEPT, 2)
    ]
    # The manifest has the newest rations; the interim measurements say that there were some.
    assert len(one.state.rationed) == KEPT
    again = driver(url, tmp_path, every=100)
    offer(url, 0.5)
    for batch in range(2 * KEPT, 2 * KEPT + 3):
        again.run(job(batch))
    assert again.state.rationed[-1] == RationedBatches(16, 18, NOTHING_OF_S)
    assert len(again.state.rationed) == KEPT


def test_what_an_attempt_has_written_is_removed(tmp_path: Path) -> None:
    publish_rations(tmp_path, 3, NOTHING_OF_S, {}, None)
    publish_rations(tmp_path, 4, NOTHING_OF_S, {}, None)
    publish_rations(tmp_path, 3, (), {}, None)
    assert [one.first for one in read_rations(tmp_path)] == [4]


def test_without_rations_nothing_changes(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, every=10)
    offer(url, 1.0)
    for batch in range(3):
        one.run(job(batch))
    assert results(tmp_path) == expected(3)
    assert one.state.rationed == ()


@pytest.mark.parametrize("mode", [Mode.STEP, Mode.LIVE])
def test_not_a_byte_of_the_results_changes_unless_something_is_withheld(
    mode: Mode, url: str, tmp_path: Path
) -> None:
    """With the policy to wait there is no schedule; with a schedule, and enough budget, results are
    the same.
    """
    found: list[dict[str, bytes]] = []
    for variant, budget in (("wait", None), ("room", 1.0), ("no load", None)):
        redis_client.Redis.from_url(url).flushall()
        fetch_ruleset.cache_clear()
        publish(url, 0)
        if variant != "wait":
            offer(url, budget)
        home = tmp_path / variant
        one = driver(url, home, mode, every=10)
        for batch in range(4):
            one.run(job(batch, copies=3))
        assert one.state.rationed == ()
        choices = [one.durability.choices.get(batch) for batch in range(4)]
        assert [(c.rations, c.owed) for c in choices if c is not None] == [((), False)] * 4
        files = sorted(p for p in (home / "results").rglob("*") if p.is_file())
        found.append({str(p.relative_to(home)): p.read_bytes() for p in files})
    assert len(found[0]) == 4
    assert found[0] == found[1] == found[2]


def test_a_schedule_that_cannot_be_read_is_none(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, every=10)
    redis_client.Redis.from_url(url).set(KEYS.rations, "{")
    one.run(job(0))
    one.run(job(1))
    assert results(tmp_path) == expected(2)


def test_goals_of_other_queries_are_passed_over(url: str, tmp_path: Path) -> None:
    publish(url, 0, {"other": "SELECT R.a, S.b FROM R JOIN S ON R.a = S.a"})
    one = driver(url, tmp_path, every=10)
    offer(url, 0.0)
    one.run(job(0))
    assert one.state.rationed == ()
    assert results(tmp_path, "other") == expected(1)


def test_in_step_mode_only_a_stated_budget_rations(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, Mode.STEP, every=10)
    offer(url, None)
    one.run(job(0))
    late = StreamIntake(waiting=10**6, seconds=60.0)
    one.rationer.done(1000, 9.0, 8.0, [late])
    one.run(job(1))
    assert results(tmp_path) == expected(2)


def test_live_the_load_decides(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=10)
    offer(url, None)
    one.run(job(0))
    assert not one.state.rationed
    assert one.rationer.length == 1.0
    late = StreamIntake(waiting=10**6, seconds=60.0)
    for _ in range(overload.MEMORY):
        one.rationer.done(1000, 9.0, 8.0, [late])
    one.run(job(1))
    assert one.state.rationed == (
        RationedBatches(1, 1, tuple(Ration(QueryId("q"), g.start, SAMPLE, RANKING) for g in GOALS)),
    )
    assert results(tmp_path) == [0]
    shown = progress(url).rationing
    assert shown.overloaded
    assert shown.latency == 2.0


def test_a_driver_that_starts_anew_goes_on_with_the_last_budget(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("anabranch_runtime.rations.rationer.time", clock)
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=10)
    offer(url, None)
    one.run(job(0))
    assert one.durability.choices.load == KnownLoad(1.0, 0.0, overloaded=False)
    late = StreamIntake(waiting=2000, seconds=60.0)
    for _ in range(overload.MEMORY):
        # A batch takes one second; rations can save half of it.
        now += 1.0
        one.rationer.done(1000, 1.0, 0.5, [late])
    load = one.rationer.known
    assert load is not None
    assert load.overloaded
    assert load.savable == pytest.approx(0.0005)
    assert 0 < load.budget < 1
    now += 1.0
    one.run(job(1))
    withheld = one.state.rationed[-1].rations

    again = driver(url, tmp_path, Mode.LIVE, every=10)
    assert again.durability.choices.load == load
    again.run(job(2))
    assert again.state.rationed == (RationedBatches(1, 2, withheld),)
    # It ends as without rations: no rows wait any more.
    for _ in range(20):
        now += 1.0
        again.rationer.done(10, 0.01, 0.005, [])
    known = again.rationer.known
    assert known is not None
    assert (known.budget, known.overloaded) == (1.0, False)


def test_a_batch_that_is_repeated_does_not_lose_the_budget(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=10)
    offer(url, None)
    one.run(job(0))
    for _ in range(overload.MEMORY):
        one.rationer.done(1000, 9.0, 8.0, [StreamIntake(waiting=10**6, seconds=60.0)])
    with pytest.raises(Killed):
        one.run(die(job(1)))
    again = driver(url, tmp_path, Mode.LIVE, every=10)
    again.run(job(1))
    again.run(job(2))
    assert [(r.first, r.last) for r in again.state.rationed] == [(1, 2)]


def test_only_a_budget_that_the_load_has_chosen_is_recorded(url: str, tmp_path: Path) -> None:
    for name, mode, budget in (("stated", Mode.LIVE, 0.5), ("replay", Mode.STEP, None)):
        redis_client.Redis.from_url(url).flushall()
        publish(url, 0)
        offer(url, budget)
        one = driver(url, tmp_path / name, mode, every=10)
        one.run(job(0))
        assert one.durability.choices.load is None
    redis_client.Redis.from_url(url).flushall()
    publish(url, 0)
    waits = driver(url, tmp_path / "waits", Mode.LIVE, every=10)
    waits.run(job(0))
    assert waits.durability.choices.load is None


def test_time_without_a_schedule_is_no_time_without_arrivals(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that is switched on after hours counts arrivals from then on."""
    now = 1000.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("anabranch_runtime.rations.rationer.time", clock)
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=10)
    now += 7200
    one.run(job(0))
    offer(url, None)
    assert not one.rationer.rations(one.durability.rulesets.get(one.state.ruleset))
    now += 9.0
    one.rationer.done(1000, 9.0, 8.0, [])
    assert one.rationer.rations(one.durability.rulesets.get(one.state.ruleset))


def test_what_is_withheld_is_estimated_from_what_is_kept() -> None:
    queries = {"q": Activation(0, {}, results=12, withheld=1.0), "other": Activation(0, {})}
    rations = (
        Ration(QueryId("q"), Label("R"), 0.25, RANKING),
        Ration(QueryId("q"), Label("S"), 0.0, RANKING),
        Ration(QueryId("gone"), Label("R"), 0.5, RANKING),
    )
    reports = [
        TaskReport(rations=RationReport(k)) for k in ({"q": {"R": 2, "S": 0}}, {"q": {"R": 1}})
    ]
    found = count_withheld(queries, rations, reports)
    # Three results were kept of about twelve.
    assert (found["q"].withheld, found["q"].blind) == (10.0, 1)
    assert found["other"] == queries["other"]
