"""Tests of measured gains of changed probe orders, from periods written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.protocol.interims import (
    DriftedStep,
    Drifts,
    Interim,
    StepMeasures,
    StoreSize,
)
from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_contract.queries.joins import Label, Stream, StreamName
from anabranch_contract.queries.mirs import MirId, sub_join
from anabranch_contract.queries.types import parse_type
from anabranch_contract.rest.planning.revisions import RevisionReason
from anabranch_planner.passes import parse_sql
from anabranch_service.planning.replanning.gains import NOISE, OrderChange, Orders, newest_change
from anabranch_service.registry.records import KeptRevision

INT = parse_type("int")
STREAMS = {n: Stream(StreamName(n), tuple((c, INT) for c in "ab")) for n in "RST"}
CHAIN = parse_sql("q", "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b", STREAMS)
R, S, T = Label("R"), Label("S"), Label("T")
RS, ST = (sub_join(CHAIN, frozenset(pair)).id for pair in ((R, S), (S, T)))
#: Epoch 1 begins with probe orders that its revision changes; epochs 2 and 3 keep the new ones.
OLD, NEW = (Orders(name, frozenset({"q"}), 3) for name in ("old", "new"))
ORDERS = {
    RulesetId(1): OLD,
    RulesetId(1, 1): NEW,
    RulesetId(1, 2): Orders("trial", frozenset({"q"}), 3),
    RulesetId(2, 1): NEW,
    RulesetId(3): NEW,
    RulesetId(3, 1): OLD,
}
RST: MirId = sub_join(CHAIN, frozenset({R, S, T})).id


def period(
    batch: int, *steps: StepMeasures, by: Sequence[tuple[int, int]] = ((1, 0),), arrived: int = 10
) -> Interim:
    return Interim(
        until=float(batch),
        seconds=1.0,
        epoch=by[-1][0],
        ruleset_epoch=by[-1][0],
        revision=by[-1][1],
        rulesets=tuple(RulesetId(*name) for name in by),
        next_batch=batch,
        batches=1,
        arrivals={"R": arrived},
        steps=steps,
    )


def step(joined: MirId, head: tuple[Label, ...], target: Label, hits: int) -> StepMeasures:
    return StepMeasures(joined, head, (target,), EdgeStatistics(100, hits, 0.0, 1000, hits, 1))


def measured(*periods: Interim) -> OrderChange:
    found = newest_change(periods, ORDERS)
    assert found is not None
    return found


def test_the_effect_is_work_per_arriving_tuple() -> None:
    """Also if twice as many tuples arrive."""
    before = [period(n, step(RS, (R,), S, 300)) for n in (1, 2)]
    after = [period(n, *[step(RS, (R,), S, 100)] * 2, by=((1, 1),), arrived=20) for n in (3, 4)]

    found = measured(*before, *after)

    assert (found.before, found.after) == ((1, 0), (1, 1))
    assert (found.gain.before, found.gain.after, found.gain.periods) == (40.0, 20.0, 2)
    assert found.gain.gain == pytest.approx(0.5)
    assert not found.gain.lost


def test_epochs_with_equal_orders_are_one() -> None:
    """With default settings hardly any period is within one epoch."""
    before = [period(n, step(RS, (R,), S, 300)) for n in (1, 2)]
    mixed = period(3, step(RS, (R,), S, 900), by=((1, 0), (1, 1)))
    across = period(4, step(RS, (R,), S, 100), by=((1, 1), (2, 1)))
    later = period(5, step(RS, (R,), S, 100), by=((2, 1), (3, 0)))

    found = measured(*before, mixed, across, later)

    assert (found.before, found.after) == ((1, 0), (1, 1))
    assert (found.gain.before, found.gain.after) == (40.0, 20.0)


def test_the_change_before_the_newest_is_none_of_it() -> None:
    first = [period(n, step(RS, (R,), S, 900)) for n in (1, 2)]
    then = [period(n, step(RS, (R,), S, 100), by=((1, 1),)) for n in (3, 4)]
    last = [period(n, step(RS, (R,), S, 300), by=((3, 1),)) for n in (5, 6)]

    found = measured(*first, *then, *last)

    assert (found.before, found.after) == ((1, 1), (3, 1))
    assert (found.gain.before, found.gain.after) == (20.0, 40.0)
    assert found.gain.lost


def test_orders_that_were_soon_replaced_are_passed_over() -> None:
    first = [period(n, step(RS, (R,), S, 300)) for n in (1, 2)]
    trial = period(3, step(RS, (R,), S, 9000), by=((1, 2),))
    last = [period(n, step(RS, (R,), S, 100), by=((1, 1),)) for n in (4, 5)]

    found = measured(*first, trial, *last)

    assert (found.before, found.after) == ((1, 0), (1, 1))
    assert (found.gain.before, found.gain.after) == (40.0, 20.0)
    again = measured(*first, *last, trial, *last)
    assert (again.after, again.gain.periods) == ((1, 1), 4)


def test_periods_with_rations_measure_nothing() -> None:
    before = [period(n, step(RS, (R,), S, 300)) for n in (1, 2)]
    after = [period(n, step(RS, (R,), S, 100), by=((1, 1),)) for n in (4, 5, 6, 7)]
    rationed = [replace(one, rationed=True) for one in after]

    assert newest_change([*before, *rationed], ORDERS) is None
    assert measured(*before, *rationed[:2], *after[2:]).gain.periods == 2


def test_too_few_periods_and_unknown_orders_measure_nothing() -> None:
    before = [period(n, step(RS, (R,), S, 300)) for n in (1, 2)]
    after = [period(n, step(RS, (R,), S, 100), by=((1, 1),)) for n in (4, 5)]

    assert newest_change([*before, *after[:1]], ORDERS) is None
    assert newest_change([*before[1:], *after], ORDERS) is None
    assert newest_change([*before, *after], {}) is None
    assert newest_change([], ORDERS) is None
    others = ORDERS | {RulesetId(1): OLD._replace(queries=frozenset({"q", "p"}))}
    assert newest_change([*before, *after], others) is None


def drifted(interim: Interim) -> Interim:
    return replace(interim, drifted=Drifts(steps=(DriftedStep(RS, (R,), (S,), "matches", 1, 9),)))


def test_the_effect_is_measured_after_the_drift() -> None:
    """The new data cost more than the old ones, but less than with the old orders."""
    calm = [period(n, step(RS, (R,), S, 10)) for n in (1, 2, 3)]
    change = drifted(period(4, step(RS, (R,), S, 900)))
    after = [period(n, step(RS, (R,), S, 300), by=((1, 1),)) for n in (5, 6)]

    found = measured(*calm, change, *after)

    assert (found.gain.before, found.gain.after, found.gain.periods) == (100.0, 40.0, 2)
    # A drift while the new orders run: no comparison with periods before it.
    assert newest_change([*calm, *after, drifted(period(8, by=((1, 1),)))], ORDERS) is None


@pytest.mark.parametrize("grown", [0.0, 0.1, 0.5])
def test_what_stores_have_grown_by_is_no_fault_of_the_orders(grown: float) -> None:
    """A row that joins three relations may find (1 + grown) squared times as many matches."""
    stores = [{"R/1": StoreSize(1000)}, {"R/1": StoreSize(round(1000 * (1 + grown)))}]
    before = [replace(period(n, step(RS, (R,), S, 9900)), stores=stores[0]) for n in (1, 2)]
    allowed = 10_000 * (1 + NOISE) * (1 + grown) ** 2
    for matches, worse in ((0.99 * allowed, False), (1.01 * allowed, True)):
        after = [
            replace(period(n, step(RS, (R,), S, round(matches)), by=((1, 1),)), stores=stores[1])
            for n in (3, 4)
        ]
        found = measured(*before, *after)
        assert found.gain.grown == pytest.approx(grown)
        assert found.gain.lost == worse


def revision(
    epoch: int, number: int, replaced: str, orders: str, predicted: float = 0.5, baseline: str = "1"
) -> KeptRevision:
    return KeptRevision(
        epoch=epoch,
        revision=number,
        revises=0,
        published_at="2026-09-21T14:13:20Z",
        reason=RevisionReason.CHEAPER,
        next_batch=1,
        cost=1.0,
        running_cost=2.0,
        predicted=predicted,
        baseline=baseline,
        orders=orders,
        replaced=replaced,
    )


def test_a_gain_is_of_the_revision_that_led_from_the_old_to_the_new_orders() -> None:
    """Also if a later epoch's rules were the first with a period of their own."""
    before = [period(n, step(RS, (R,), S, 300)) for n in (1, 2)]
    mixed = period(3, step(RS, (R,), S, 100), by=((1, 0), (1, 1), (2, 1)))
    after = [period(n, step(RS, (R,), S, 100), by=((2, 1),)) for n in (4, 5)]
    change = measured(*before, mixed, *after)
    assert (change.after, change.old, change.new) == ((2, 1), "old", "new")
    made = revision(1, 1, "old", "new", 0.4, "0.7")
    carried = revision(2, 1, "new", "new", 0.0, "1.1")
    ran = {RulesetId(1), RulesetId(1, 1), RulesetId(2, 1)}

    gain, found = change.explained([made, carried], ran)

    assert found == made.model_copy(update={"measured": gain})
    # Rules of epoch 0 had the same orders, and the prediction is compared with them.
    assert (gain.baseline, gain.gain) == ("0.7", 0.5)
    assert gain.predicted == pytest.approx(0.4)
    assert change.explained([found, carried], ran) == (gain, None)
    # Rules without a batch, and rules of later batches, made no change.
    gain, found = change.explained([made, carried], ran - {RulesetId(1, 1)})
    assert (gain.baseline, gain.predicted) == ("1", None)
    assert found == carried.model_copy(update={"measured": gain})
    later = revision(3, 1, "old", "new")
    assert change.explained([later], {*ran, RulesetId(3, 1)}) == (change.gain, None)


def test_a_gain_over_older_orders_has_the_predictions_of_all_revisions_since() -> None:
    """Orders that ran for one period only are skipped, and their predicted savings count."""
    first = [period(n, step(RS, (R,), S, 300)) for n in (1, 2)]
    trial = period(3, step(RS, (R,), S, 9000), by=((1, 2),))
    last = [period(n, step(RS, (R,), S, 100), by=((2, 1),)) for n in (4, 5)]
    change = measured(*first, trial, *last)
    once = revision(1, 2, "old", "trial", 0.2, "1")
    twice = revision(2, 1, "trial", "new", 0.5, "1.2")
    ran = {RulesetId(1), RulesetId(1, 2), RulesetId(2, 1)}

    gain, found = change.explained([once, twice], ran)

    assert gain.baseline == "1"
    assert gain.predicted == pytest.approx(1 - 0.8 * 0.5)
    assert found == twice.model_copy(update={"measured": gain})
    # An epoch's plan led to the first of them, without a prediction.
    gain, found = change.explained([twice], ran)
    assert (gain.baseline, gain.predicted) == ("1", None)
    assert found == twice.model_copy(update={"measured": gain})
