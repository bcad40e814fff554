"""Tests of a plan's saving: over which epochs, its mean and its range."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.plans.plan import Objective, Optimizer
from anabranch_contract.rest.documents import iso_time
from anabranch_contract.rest.planning.epochs import EpochSummary
from anabranch_contract.rest.planning.plans import CpuRecord
from anabranch_service.presenters.saving import SECONDS, saving_out

NOW = datetime(2026, 11, 26, 14, 0, tzinfo=UTC)


def epoch(
    number: int,
    age: float,
    cpu: tuple[float, float] | None,
    plan: str | None = "p",
    first_batch: int | None = 0,
) -> EpochSummary:
    """Return an epoch that was published ``age`` seconds ago."""
    moment = NOW - timedelta(seconds=age)
    return EpochSummary(
        optimizer=Optimizer.CLASH,
        objective=Objective.TUPLES,
        parallelism=1,
        queries=["q"],
        cost=1.0,
        bound=None,
        gap=None,
        individual_cost=2.0,
        shared_cost=None,
        solve_ms=0.0,
        method="x",
        cpu=None if cpu is None else CpuRecord(plan=cpu[0], individual=cpu[1]),
        epoch=number,
        published_at=iso_time(round(moment.timestamp() * 1e6)),
        fallback="",
        switching_cost=0.0,
        plan=plan,
        first_batch=first_batch,
    )


def test_epochs_of_the_running_plan_are_added_up() -> None:
    found = saving_out(
        [
            epoch(9, 1, (1, 1), first_batch=None),  # has not begun
            epoch(8, 5, (3.0, 6.0)),
            epoch(7, 9, None),  # nothing was measured
            epoch(6, 20, (1.0, 4.0)),
            epoch(5, 30, (9.0, 10.0), plan="another"),
            epoch(4, 40, (1.0, 100.0)),
        ],
        NOW,
    )
    assert found is not None
    assert (found.epochs, found.seconds) == (2, 20.0)
    assert (found.cpu_seconds, found.individual_cpu_seconds) == (4.0, 10.0)
    assert (found.share, found.lowest, found.highest) == pytest.approx((0.6, 0.5, 0.75))


def test_what_is_older_than_the_stated_time_is_left_out() -> None:
    epochs = [epoch(2, SECONDS, (1.0, 2.0)), epoch(1, SECONDS + 1, (1.0, 100.0))]
    found = saving_out(epochs, NOW)
    assert found is not None
    assert (found.epochs, found.share) == (1, 0.5)


@pytest.mark.parametrize(
    "epochs",
    [
        [],
        [epoch(1, 5, (1.0, 2.0), first_batch=None)],
        [epoch(1, 5, (1.0, 2.0), plan=None)],
        [epoch(1, 5, None)],
        [epoch(1, 5, (0.0, 0.0))],
        [epoch(1, SECONDS + 1, (1.0, 2.0))],
    ],
)
def test_without_estimates_nothing_is_known(epochs: list[EpochSummary]) -> None:
    assert saving_out(epochs, NOW) is None


costs = st.floats(1e-3, 1e3)


@given(st.lists(st.tuples(costs, costs), min_size=1, max_size=20))
def test_the_mean_lies_in_its_range(pairs: list[tuple[float, float]]) -> None:
    epochs = [epoch(99 - n, n + 1, pair) for n, pair in enumerate(pairs)]
    found = saving_out(epochs, NOW)
    assert found is not None
    assert found.lowest - 1e-9 <= found.share <= found.highest + 1e-9
    least, most = (f(1 - a / b for a, b in pairs) for f in (min, max))
    assert (found.lowest, found.highest) == (least, most)
    assert found.individual_cpu_seconds == pytest.approx(sum(b for _, b in pairs))
