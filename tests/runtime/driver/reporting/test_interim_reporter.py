"""Tests of a driver's interim reports, one per period, as read from Redis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
import redis as redis_client

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.plans.steps import CountedStep, SubJoinStep
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.keys import INTERIMS_KEPT
from anabranch_contract.protocol.measurements import EdgeStatistics, Writes
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import Label
from anabranch_contract.queries.mirs import MirId
from anabranch_runtime.__main__ import main
from anabranch_runtime.control import Control, fetch_ruleset
from anabranch_runtime.driver.attempts import Job
from anabranch_runtime.driver.reporting import reporting
from anabranch_runtime.driver.reporting.interim_reporter import InterimReporter, Written
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.measure.join_samples import Steps
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.state.manifest import State
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task
from tests.support.cases.states import ST, measuring
from tests.support.worlds.driven import KEYS, driver, job, publish


def reported(url: str) -> list[Interim]:
    texts = redis_client.Redis.from_url(url).lrange(KEYS.interims, 0, -1)
    return [Interim.loads(text) for text in texts]


def test_every_period_and_what_a_step_did_in_it(url: str, tmp_path: Path) -> None:
    """Batch ``b`` has one tuple of each stream: R's finds ``b`` of S, S's finds ``b + 1`` of R."""
    for epoch in range(3):
        publish(url, epoch)
    one = driver(url, tmp_path, every=2, interim_seconds=0.0)
    for batch in range(5):
        one.run(job(batch))

    found = reported(url)
    assert [p.next_batch for p in found] == [1, 2, 3, 4, 5]
    assert [p.epoch for p in found] == [0, 0, 1, 1, 2]
    assert [p.arrivals for p in found] == [{"R": 1, "S": 1}] * 5
    for batch, period in enumerate(found):
        counts = {step.head: step.counts for step in period.steps}
        assert {head: (c.probes, c.found, c.matches) for head, c in counts.items()} == {
            ("R",): (1, min(batch, 1), batch),
            ("S",): (1, 1, batch + 1),
        }
        assert {store: size.rows for store, size in period.stores.items()} == {
            "R/1": batch + 1, "S/1": batch + 1,
        }  # fmt: skip
        assert 0 < period.seconds < 60
        assert all(step.counts.calls == 1 for step in period.steps)
        # Each tuple probes the segments of all batches so far, including its own.
        assert {c.looked for c in counts.values()} == {batch + 1}
        assert (period.inserts.writes, period.inserts.rows) == (2, 2)
        assert period.inserts.seconds > 0


def test_a_period_lasts_as_long_as_it_is_set_to(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    publish(url, 1, {"p": ST})
    one = driver(url, tmp_path, every=2, interim_seconds=3600.0)
    for batch in range(4):
        one.run(job(batch))
    assert reported(url) == []


def test_a_driver_that_starts_begins_a_period_and_keeps_what_is_there(
    url: str, tmp_path: Path
) -> None:
    publish(url, 0)
    for batch in range(2):
        driver(url, tmp_path, every=5, interim_seconds=0.0).run(job(batch))
    assert [(p.next_batch, p.batches) for p in reported(url)] == [(1, 1), (2, 1)]
    assert [sum(s.counts.probes for s in p.steps) for p in reported(url)] == [2, 2]


def test_the_newest_are_kept(url: str) -> None:
    control = Control(url, "test")
    for number in range(INTERIMS_KEPT + 3):
        control.report_interim(Interim(float(number), 3.0, 0, 0, number, 1))
    assert [p.next_batch for p in reported(url)] == list(range(3, INTERIMS_KEPT + 3))


@pytest.mark.parametrize("given", ["0", "nan", "-3", "3601", "soon", "inf"])
def test_a_length_out_of_range_is_refused_by_name(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--redis-url", "redis://x", "--state", str(tmp_path), "--results", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        main([*options, f"--interim-seconds={given}"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "--interim-seconds" in told
    assert "from 0.1 to 3600" in told


class Told:
    """Collects reports; replaces the control plane and the names of steps."""

    def __init__(self) -> None:
        self.interims: list[Interim] = []

    def report_interim(self, *interims: Interim) -> None:
        self.interims.extend(interims)

    def of(self, _: Ruleset) -> Mapping[str, CountedStep]:
        return {"a": CountedStep(SubJoinStep(MirId("R,S"), (Label("R"),), (Label("S"),)))}


class Followed:
    """A reporter whose periods end by drifts only, and its states."""

    def __init__(self, early: float | None) -> None:
        self.told, self.state = Told(), State(epoch=0)
        self.reporter = InterimReporter(
            cast("Control", self.told), self.state, cast("Steps", self.told), math.inf, early
        )

    def batches(self, number: int, matches: int = 100, of_r: int = 100) -> None:
        for _ in range(number):
            edge = self.state.measured.edges.get("a", EdgeStatistics())
            arrived = self.state.measured.arrivals
            self.state = measuring(
                replace(self.state, next_batch=self.state.next_batch + 1),
                edges={"a": edge + EdgeStatistics(100, matches, 0.1, 900, matches, 50)},
                arrivals={"R": arrived.get("R", 0) + of_r, "S": arrived.get("S", 0) + 100},
            )
            self.reporter.wrote(
                [
                    Written(Writes(1, 60, 0.0)),
                    Written(Writes(1, of_r + 40, 0.0), Writes(1, 7)),
                    Written(merges=Writes(1, 600, 0.5)),
                ]
            )
            self.reporter.committed(self.state, cast("Ruleset", None))


def spans(told: Told) -> list[tuple[int, int, bool]]:
    return [(i.next_batch, i.batches, bool(i.drifted)) for i in told.interims]


def test_a_drift_ends_the_period_where_it_began() -> None:
    """One period ends before the change, and a second one begins with it."""
    one = Followed(early=0.0)
    one.batches(30)
    assert one.told.interims == []
    one.batches(2, matches=2000)

    assert spans(one.told) == [(30, 30, False), (32, 2, True)]
    old, new = one.told.interims
    assert [old.steps[0].counts.matches, new.steps[0].counts.matches] == [3000, 4000]
    assert [old.inserts, new.inserts] == [Writes(60, 6000, 0.0), Writes(4, 400, 0.0)]
    assert [old.merges, new.merges] == [Writes(30, 18_000, 15.0), Writes(2, 1200, 1.0)]
    assert (old.until <= new.until, new.seconds >= 0) == (True, True)
    (drifted,) = new.drifted.steps
    assert (drifted.joined, drifted.figure) == ("R,S", "matches")
    assert (drifted.before, drifted.after) == pytest.approx((1, 20), rel=0.01)
    assert Interim.loads(new.dumps()) == new
    one.batches(30, matches=2000)
    assert len(one.told.interims) == 2

    one.batches(2, matches=2000, of_r=1000)
    assert spans(one.told)[2:] == [(62, 30, False), (64, 2, True)]
    assert {rate.relation for rate in one.told.interims[-1].drifted.rates} == {"R", "S"}


def test_early_periods_are_not_below_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier drift is reported after ``early`` seconds."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    one = Followed(early=1.0)
    one.batches(30)
    one.batches(5, matches=2000)
    assert one.told.interims == []
    clock[0] = 1.0
    one.batches(1, matches=2000)
    assert spans(one.told) == [(30, 30, False), (36, 6, True)]


def test_a_clock_that_is_set_back_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Followed(early=0.0)
    one.batches(30)
    monkeypatch.setattr("time.time", lambda: 5.0)
    one.batches(2, matches=2000)
    assert spans(one.told) == [(30, 30, False), (32, 2, True)]
    assert one.told.interims[-1].until == 5.0
    assert one.told.interims[-1].seconds >= 0


def test_a_replay_reports_a_drift_when_it_is_asked_to() -> None:
    """Counted in batches, independently of clocks."""
    one = Followed(early=math.inf)
    one.batches(30)
    assert not one.reporter.drifted
    one.batches(2, matches=2000)
    assert one.reporter.drifted
    assert one.told.interims == []
    one.reporter.require(one.state)
    assert spans(one.told) == [(30, 30, False), (32, 2, True)]
    assert [i.asks for i in one.told.interims] == [False, True]
    assert not one.reporter.drifted
    one.reporter.require(one.state)
    assert len(one.told.interims) == 2


def test_without_revisions_a_replay_takes_no_notice_of_drifts() -> None:
    one = Followed(early=None)
    one.batches(30)
    one.batches(5, matches=2000)
    assert not one.reporter.drifted
    assert one.told.interims == []


def uneven(batch: int, of_r: int) -> Job:
    """Return a batch with so many tuples of R, and 100 of S; none of them join."""

    def run(context: BatchContext) -> list[TaskReport]:
        def block(stream: str, count: int, key: int) -> Block:
            columns = {"a": pa.array([key] * count, pa.int64())}
            if stream == "S":
                columns["b"] = pa.array([batch] * count, pa.int64())
            columns["ts"] = pa.array([batch] * count, pa.timestamp("us", tz="UTC"))
            return Block(stream, pa.record_batch(columns))

        known = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
        blocks = [block("R", of_r, 0), block("S", 100, 1)]
        return [run_task(context, known, blocks, task=0, tasks=1, exchange=lambda m: [m])]

    return run


def test_a_live_driver_reports_a_rate_that_drifts_at_once(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "EARLY", 0.0)
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=1000, seconds=3600.0, interim_seconds=3600.0)
    for batch in range(15):
        one.run(uneven(batch, 100))
    assert reported(url) == []
    for batch in range(15, 18):
        one.run(uneven(batch, 1000))

    old, new = reported(url)
    assert (old.next_batch, old.drifted.rates) == (15, ())
    assert (new.next_batch, new.batches, new.arrivals) == (17, 2, {"R": 2000, "S": 200})
    factors = {rate.relation: rate.factor for rate in new.drifted.rates}
    assert factors["R"] > 2 > 0.5 > factors["S"]
