"""Tests of samples of probe steps from the newest periods."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from anabranch_contract.plans.steps import StepPart, SubJoinStep
from anabranch_contract.protocol.interims import DriftedStep, Drifts, Interim, StepMeasures
from anabranch_contract.protocol.measurements import (
    EdgeStatistics,
    FrequentValues,
    JoinSample,
    Snapshot,
)
from anabranch_contract.queries.joins import Label, Stream, StreamName
from anabranch_contract.queries.mirs import MirId, sub_join
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.inferred import Inference
from anabranch_planner.cost.selectivity import PART_WEIGHT
from anabranch_planner.passes import parse_sql
from anabranch_service.planning.replanning.periods import DRIFTED, FADE, Periods, measured, recent

INT = parse_type("int")
STREAMS = {n: Stream(StreamName(n), tuple((c, INT) for c in "ab")) for n in "RST"}
CHAIN = parse_sql("q", "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b", STREAMS)
R, S, T = Label("R"), Label("S"), Label("T")
RS, ST = (sub_join(CHAIN, frozenset(pair)).id for pair in ((R, S), (S, T)))
RST: MirId = sub_join(CHAIN, frozenset({R, S, T})).id


def period(batch: int, *steps: StepMeasures) -> Interim:
    return Interim(float(batch), 1.0, 1, 1, batch, 1, {"R": 10}, steps)


def step(joined: MirId, head: tuple[Label, ...], target: Label, hits: int) -> StepMeasures:
    return StepMeasures(joined, head, (target,), EdgeStatistics(100, hits, 0.0, 1000, hits, 1))


def faded(snapshot: Snapshot, interims: list[Interim]) -> Snapshot:
    inference = Inference([CHAIN])
    return recent(snapshot, [measured(one, inference) for one in interims])


def test_older_periods_count_for_less() -> None:
    interims = [period(1, step(RS, (R,), S, 400)), period(2, step(RS, (R,), S, 10))]

    found = faded(Snapshot(0, 1, 1), interims)

    (sample,) = found.steps
    assert (sample.joined, sample.head, sample.target) == (RS, (R,), (S,))
    counted = (sample.probes, sample.pairs, sample.hits)
    assert counted == pytest.approx((100 + FADE * 100, 1000 + FADE * 1000, 10 + FADE * 400))


def test_what_was_not_measured_lately_is_as_the_epoch_had_it() -> None:
    old = (
        JoinSample(RS, (R,), (S,), 900.0, 9000.0, 9000.0),
        JoinSample(ST, (S,), (T,), 900.0, 9000.0, 5.0),
    )

    found = faded(Snapshot(0, 1, 1, steps=old), [period(1, step(RS, (R,), S, 10))])

    assert found.steps == (JoinSample(RS, (R,), (S,), 100.0, 1000.0, 10.0), old[1])


def test_a_step_that_no_rule_runs_follows_from_a_larger_one() -> None:
    """New figures of the larger step replace old ones of the smaller."""
    old = (JoinSample(ST, (S,), (T,), 900.0, 9000.0, 9000.0),)
    interims = [period(1, step(RS, (R,), S, 500), step(RST, (R, S), T, 2))]

    found = faded(Snapshot(0, 1, 1, steps=old), interims)

    assert JoinSample(ST, (S,), (T,), 100.0, 1000.0, 2.0) in found.steps
    assert old[0] not in found.steps


def test_a_few_probes_change_nothing() -> None:
    old = (JoinSample(RS, (R,), (S,), 900.0, 9000.0, 9000.0),)
    few = StepMeasures(RS, (R,), (S,), EdgeStatistics(3, 0, 0.0, 30, 0, 0))

    assert faded(Snapshot(0, 1, 1, steps=old), [period(1, few)]).steps == old


def test_a_period_counts_by_its_length_and_not_by_its_number() -> None:
    """Many short periods make earlier ones no older than one long period does."""
    long, at = 30, 30
    interims = [replace(period(at, step(RS, (R,), S, 400)), batches=long)]
    for length in (30, 30, 15, 15):
        at += length
        interims.append(replace(period(at), batches=length))

    (sample,) = faded(Snapshot(0, 1, 1), interims).steps

    assert sample.probes == pytest.approx(100 * FADE ** (90 / 30))


def drifted(interim: Interim) -> Interim:
    return replace(interim, drifted=Drifts(steps=(DriftedStep(RS, (R,), (S,), "matches", 1, 9),)))


def test_what_was_measured_before_a_drift_counts_little() -> None:
    before = [period(n, step(RS, (R,), S, 400)) for n in range(1, 20)]
    after = drifted(period(20, step(RS, (R,), S, 10)))

    (sample,) = faded(Snapshot(0, 1, 1), [*before, after]).steps
    (mixed,) = faded(Snapshot(0, 1, 1), [*before, replace(after, drifted=Drifts())]).steps

    assert sample.hits / sample.pairs == pytest.approx(0.01, rel=2)
    assert mixed.hits / mixed.pairs > 0.2


def test_a_long_period_before_a_drift_weighs_no_more_than_a_short_one() -> None:
    """New measurements of a sub-join, even in substreams, reduce its old counts, and no others."""
    part = StepPart(R, "f", (0,))
    counts = EdgeStatistics(1_000_000, 400_000, 0.0, 10_000_000, 400_000, 1)
    long = [StepMeasures(RS, (R,), (S,), counts), StepMeasures(ST, (S,), (T,), counts)]
    later = StepMeasures(RS, (R,), (S,), EdgeStatistics(5000, 50, 0.0, 50_000, 50, 1), part=part)
    before, after = replace(period(40, *long), batches=40), drifted(period(41, later))

    found = {s.step: s for s in faded(Snapshot(0, 1, 1), [before, after]).steps}

    fresh = found[SubJoinStep(RS, (R,), (S,), part)]
    whole, other = (
        found[SubJoinStep(name, *sides)] for name, sides in ((RS, ((R,), (S,))), (ST, ((S,), (T,))))
    )
    assert fresh.probes == 5000
    assert whole.probes == pytest.approx(DRIFTED * PART_WEIGHT * fresh.probes)
    assert whole.hits / whole.pairs == pytest.approx(0.04)
    assert other.probes == pytest.approx(DRIFTED * FADE ** (1 / 20.5) * 1_000_000)


def test_frequent_values_are_those_of_the_newest_snapshot() -> None:
    star = parse_sql("q", "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON R.a = T.a", STREAMS)
    (rs, whole) = (sub_join(star, frozenset(some)).id for some in ((R, S), (R, S, T)))
    text = period(1, step(whole, (R, T), S, 100)).dumps()
    listed = FrequentValues((1,), ("1",), (0.5,), (0.5,), 0.001)
    skewed = Snapshot(1, 1, 1, values={name: {"a": listed} for name in "RST"})
    periods = Periods(Inference([star]))

    def inferred(snapshot: Snapshot) -> bool:
        (one,) = periods.read([text], snapshot)
        return rs in {step.joined for step in one.steps}

    assert inferred(Snapshot(0, 1, 1))
    assert not inferred(skewed)
    assert inferred(Snapshot(2, 1, 1))


@pytest.mark.parametrize("seed", range(20))
def test_periods_of_other_steps_add_up_one_by_one(seed: int) -> None:
    """Compared with a sum over steps; some periods have the same steps, others do not."""
    rng = Random(seed)
    interims = []
    for number in range(1, 12):
        steps = [
            step(name, head, target, rng.randrange(1000))
            for name, head, target in ((RS, (R,), S), (RST, (R, S), T), (RST, (S, T), R))
            if rng.random() < 0.7
        ]
        interims.append(period(number, *steps))
    inference, sums = Inference([CHAIN]), dict[tuple[object, ...], list[float]]()
    for age, interim in enumerate(reversed(interims)):
        samples = [
            JoinSample(s.joined, s.head, s.target, s.counts.probes, s.counts.pairs, s.counts.hits)
            for s in interim.steps
        ]
        for sample in inference.extend(samples):
            so_far = sums.setdefault((sample.joined, sample.head, sample.target), [0.0, 0.0, 0.0])
            for at, count in enumerate((sample.probes, sample.pairs, sample.hits)):
                so_far[at] += FADE**age * count

    found = faded(Snapshot(0, 1, 1), interims).steps

    assert [(s.joined, s.head, s.target) for s in found] == sorted(sums)
    for sample in found:
        expected = sums[sample.joined, sample.head, sample.target]
        assert [sample.probes, sample.pairs, sample.hits] == pytest.approx(expected)


def test_periods_are_parsed_once_and_forgotten_when_they_are_old() -> None:
    texts = [period(n, step(RS, (R,), S, n)).dumps() for n in range(1, 5)]
    periods = Periods(Inference([CHAIN]))
    first = periods.read([*texts[:3], "{"])
    assert [one.interim.next_batch for one in first] == [1, 2, 3]
    second = periods.read(["{", *texts[1:]])
    assert [one.interim.next_batch for one in second] == [2, 3, 4]
    assert second[:2] == first[1:]
    assert all(one is other for one, other in zip(second[:2], first[1:], strict=True))
    assert periods.read(texts[:1])[0] is not first[0]
