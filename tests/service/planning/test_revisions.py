"""What decides on revisions, by itself: samples that fade, effects that are measured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.protocol.interims import DriftedStep, Drifts, Interim, StepMeasures
from anabranch_contract.protocol.measurements import EdgeStatistics, JoinSample, Snapshot
from anabranch_contract.queries.joins import Label, Stream, StreamName
from anabranch_contract.queries.mirs import sub_join
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql
from anabranch_service.planning.revisions import FADE, effect, recent

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


def test_older_periods_count_for_less() -> None:
    interims = [period(1, step(RS, (R,), S, 400)), period(2, step(RS, (R,), S, 10))]

    found = recent(Snapshot(0, 1, 1), interims, [CHAIN])

    (sample,) = found.steps
    assert (sample.joined, sample.head, sample.target) == (RS, (R,), (S,))
    counted = (sample.probes, sample.pairs, sample.hits)
    assert counted == pytest.approx((100 + FADE * 100, 1000 + FADE * 1000, 10 + FADE * 400))


def test_what_was_not_measured_lately_is_as_the_epoch_had_it() -> None:
    old = (
        JoinSample(RS, (R,), (S,), 900.0, 9000.0, 9000.0),
        JoinSample(ST, (S,), (T,), 900.0, 9000.0, 5.0),
    )

    found = recent(Snapshot(0, 1, 1, steps=old), [period(1, step(RS, (R,), S, 10))], [CHAIN])

    assert found.steps == (JoinSample(RS, (R,), (S,), 100.0, 1000.0, 10.0), old[1])


def test_a_step_that_no_rule_runs_follows_from_a_larger_one() -> None:
    """Fresh figures of the larger step replace old ones of the smaller."""
    old = (JoinSample(ST, (S,), (T,), 900.0, 9000.0, 9000.0),)
    interims = [period(1, step(RS, (R,), S, 500), step(RST, (R, S), T, 2))]

    found = recent(Snapshot(0, 1, 1, steps=old), interims, [CHAIN])

    assert JoinSample(ST, (S,), (T,), 100.0, 1000.0, 2.0) in found.steps
    assert old[0] not in found.steps


def test_a_few_probes_change_nothing() -> None:
    old = (JoinSample(RS, (R,), (S,), 900.0, 9000.0, 9000.0),)
    few = StepMeasures(RS, (R,), (S,), EdgeStatistics(3, 0, 0.0, 30, 0, 0))

    assert recent(Snapshot(0, 1, 1, steps=old), [period(1, few)], [CHAIN]).steps == old


def test_the_effect_is_work_per_arriving_tuple() -> None:
    """Also where twice as much arrives."""
    before = [period(n, step(RS, (R,), S, 300)) for n in (1, 2, 3)]
    after = [period(n, *[step(RS, (R,), S, 100)] * 2, revision=1, arrived=20) for n in (4, 5, 6)]

    found = effect([*before, *after], RulesetId(1), RulesetId(1, 1))

    assert found is not None
    # The first of each may have begun by other rules.
    assert (found.before, found.after, found.periods) == (40.0, 20.0, 2)
    assert found.gain == pytest.approx(0.5)


def test_too_few_periods_measure_nothing() -> None:
    before = [period(n, step(RS, (R,), S, 300)) for n in (1, 2, 3)]
    after = [period(n, step(RS, (R,), S, 100), revision=1) for n in (4, 5)]

    assert effect([*before, *after], RulesetId(1), RulesetId(1, 1)) is None
    assert effect([], RulesetId(1), RulesetId(1, 1)) is None


def test_a_period_of_two_epochs_counts_for_neither() -> None:
    before = [period(n, step(RS, (R,), S, 300)) for n in (1, 2, 3)]
    after = [period(n, step(RS, (R,), S, 100), revision=1, epoch=n) for n in (4, 5, 6)]

    assert effect([*before, *after], RulesetId(1), RulesetId(1, 1)) is None


def test_a_period_counts_by_its_length_and_not_by_its_number() -> None:
    """Many short periods make what went before them no older than one long period does."""
    long, at = 30, 30
    interims = [replace(period(at, step(RS, (R,), S, 400)), batches=long)]
    for length in (30, 30, 15, 15):
        at += length
        interims.append(replace(period(at), batches=length))

    (sample,) = recent(Snapshot(0, 1, 1), interims, [CHAIN]).steps

    assert sample.probes == pytest.approx(100 * FADE ** (90 / 30))


def drifted(interim: Interim) -> Interim:
    return replace(interim, drifted=Drifts(steps=(DriftedStep(RS, (R,), (S,), "matches", 1, 9),)))


def test_what_was_measured_before_a_drift_counts_little() -> None:
    before = [period(n, step(RS, (R,), S, 400)) for n in range(1, 20)]
    after = drifted(period(20, step(RS, (R,), S, 10)))

    (sample,) = recent(Snapshot(0, 1, 1), [*before, after], [CHAIN]).steps
    (mixed,) = recent(Snapshot(0, 1, 1), [*before, replace(after, drifted=Drifts())], [CHAIN]).steps

    assert sample.hits / sample.pairs == pytest.approx(0.01, rel=2)
    assert mixed.hits / mixed.pairs > 0.2


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
