"""What decides on revisions, by itself: effects that are measured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.protocol.interims import DriftedStep, Drifts, Interim, StepMeasures
from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_contract.queries.joins import Label, Stream, StreamName
from anabranch_contract.queries.mirs import sub_join
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql
from anabranch_service.planning.revisions import effect

if TYPE_CHECKING:
    from anabranch_contract.queries.mirs import MirId

INT = parse_type("int")
STREAMS = {n: Stream(StreamName(n), tuple((c, INT) for c in "ab")) for n in "RST"}
CHAIN = parse_sql("q", "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b", STREAMS)
R, S, T = Label("R"), Label("S"), Label("T")
RS, ST = (sub_join(CHAIN, frozenset(pair)).id for pair in ((R, S), (S, T)))
IDS = (RulesetId(1), RulesetId(1, 1))
RST: MirId = sub_join(CHAIN, frozenset({R, S, T})).id


def period(
    batch: int, *steps: StepMeasures, revision: int = 0, epoch: int = 1, arrived: int = 10
) -> Interim:
    return Interim(
        until=float(batch),
        seconds=1.0,
        epoch=epoch,
        ruleset_epoch=1,
        revision=revision,
        next_batch=batch,
        batches=1,
        arrivals={"R": arrived},
        steps=steps,
    )


def step(joined: MirId, head: tuple[Label, ...], target: Label, hits: int) -> StepMeasures:
    return StepMeasures(joined, head, (target,), EdgeStatistics(100, hits, 0.0, 1000, hits, 1))


def test_the_effect_is_work_per_arriving_tuple() -> None:
    """Also where twice as much arrives."""
    before = [period(n, step(RS, (R,), S, 300)) for n in (1, 2, 3)]
    after = [period(n, *[step(RS, (R,), S, 100)] * 2, revision=1, arrived=20) for n in (4, 5, 6)]

    found = effect([*before, *after], RulesetId(1), RulesetId(1, 1))

    assert found is not None
    # The first of each may have begun by other rules.
    assert (found.before, found.after, found.periods) == (40.0, 20.0, 2)
    assert found.gain == pytest.approx(0.5)


def test_periods_with_rations_measure_nothing() -> None:
    before = [period(n, step(RS, (R,), S, 300)) for n in (1, 2, 3)]
    after = [period(n, step(RS, (R,), S, 100), revision=1) for n in (4, 5, 6, 7)]
    rationed = [replace(one, rationed=True) for one in after]

    assert effect([*before, *rationed], RulesetId(1), RulesetId(1, 1)) is None
    found = effect([*before, *rationed[:2], *after[2:]], RulesetId(1), RulesetId(1, 1))
    assert found is not None
    assert found.periods == 2


def test_too_few_periods_measure_nothing() -> None:
    before = [period(n, step(RS, (R,), S, 300)) for n in (1, 2, 3)]
    after = [period(n, step(RS, (R,), S, 100), revision=1) for n in (4, 5)]

    assert effect([*before, *after], RulesetId(1), RulesetId(1, 1)) is None
    assert effect([], RulesetId(1), RulesetId(1, 1)) is None


def test_a_period_of_two_epochs_counts_for_neither() -> None:
    before = [period(n, step(RS, (R,), S, 300)) for n in (1, 2, 3)]
    after = [period(n, step(RS, (R,), S, 100), revision=1, epoch=n) for n in (4, 5, 6)]

    assert effect([*before, *after], RulesetId(1), RulesetId(1, 1)) is None


def drifted(interim: Interim) -> Interim:
    return replace(interim, drifted=Drifts(steps=(DriftedStep(RS, (R,), (S,), "matches", 1, 9),)))


def test_the_effect_is_measured_after_the_drift() -> None:
    """The data cost more than before, but less than by the rules of before."""
    calm = [period(n, step(RS, (R,), S, 10)) for n in (1, 2, 3)]
    change = drifted(period(4, step(RS, (R,), S, 900)))
    after = [period(n, step(RS, (R,), S, 300), revision=1) for n in (5, 6, 7)]

    found = effect([*calm, change, *after], RulesetId(1), RulesetId(1, 1))

    assert found is not None
    assert (found.before, found.after, found.periods) == (100.0, 40.0, 2)
    # A drift while the revision runs: nothing of before can be compared with what follows.
    assert effect([*calm, *after, drifted(period(8, revision=1))], *IDS) is None
