"""Tests of Page-Hinkley's drift test on artificial series: no false alarms, changes found within
three batches.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from anabranch_contract.plans.steps import CountedStep, SubJoinStep
from anabranch_contract.protocol.interims import Drifts
from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_contract.queries.joins import Label
from anabranch_contract.queries.mirs import MirId
from anabranch_runtime.measure.drift import (
    LEARNED,
    THRESHOLD,
    Edges,
    Sums,
    Watch,
    begun_anew,
    drifts,
    observe,
    watch,
)

R, S, T = Label("R"), Label("S"), Label("T")
RS = CountedStep(SubJoinStep(MirId("R,S"), (R,), (S,)))
RT = CountedStep(SubJoinStep(MirId("R,T"), (R,), (T,)))
EDGES = Edges.of({"a": RS, "b": RT, "c": RT})


class Feed:
    """Batches one after another, with counters added up as in a state."""

    def __init__(self) -> None:
        self.edges: dict[str, EdgeStatistics] = {}
        self.watch = Watch()

    def batch(
        self,
        matches: dict[str, int] | None = None,
        arrived: dict[str, int] | None = None,
        probes: int = 100,
    ) -> Drifts:
        """Observe a batch with ``matches`` by edge; at most half of the probes find a partner."""
        before = dict(self.edges)
        for edge, count in (matches or {}).items():
            fresh = EdgeStatistics(probes, count, 0.1, 0, 0, min(count, probes // 2))
            self.edges[edge] = self.edges.get(edge, EdgeStatistics()) + fresh
        self.watch = watch(self.watch, EDGES, self.edges, before, arrived or {})
        return drifts(self.watch)[0]


def batches_until_found(feed: Feed, batches: Iterable[dict[str, dict[str, int]]]) -> int | None:
    for number, one in enumerate(batches, 1):
        if feed.batch(**one):  # type: ignore[arg-type]
            return number
    return None


@pytest.mark.parametrize("mean", [0.1, 1.0, 10.0, 1000.0])
def test_steady_poisson_batches_raise_no_alarm(mean: float) -> None:
    """2,000 batches of 100 series; each batch has 100 probes."""
    counts = np.random.default_rng(7).poisson(mean, (2000, 100)) + 0.5
    sums, highest = Sums.zero(100), 0.0
    for row in counts:
        sums = observe(sums, np.log(row / 100.5), row)
        highest = max(highest, float(sums.height.max()))
    assert highest <= THRESHOLD
    assert sums.seen.tolist() == [2000.0] * 100


@pytest.mark.parametrize("seed", range(20))
def test_a_swap_of_two_steps_is_found_within_three_batches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    feed = Feed()
    for _ in range(60):
        assert not feed.batch({"a": rng.poisson(1000), "b": rng.poisson(50), "c": rng.poisson(50)})
    after = (
        {"matches": {"a": rng.poisson(100), "b": rng.poisson(500), "c": rng.poisson(500)}}
        for _ in range(3)
    )
    assert batches_until_found(feed, after) is not None
    found, lasted = drifts(feed.watch)
    assert 1 <= lasted <= 3
    named = {(str(s.joined), s.figure): s for s in found.steps}
    fewer, more = named["R,S", "matches"], named["R,T", "matches"]
    assert fewer.before == pytest.approx(10, rel=0.1)
    assert fewer.after == pytest.approx(1, rel=0.5)
    assert more.after > 5 * more.before
    assert not found.rates


@pytest.mark.parametrize("factor", [10.0, 0.1])
@pytest.mark.parametrize("seed", range(10))
def test_a_tenfold_rate_is_found_within_three_batches(seed: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    feed = Feed()

    def arrivals(of_r: float) -> dict[str, int]:
        means = {"R": of_r, "S": 200.0, "T": 200.0}
        return {name: int(rng.poisson(mean)) for name, mean in means.items()}

    for _ in range(40):
        assert not feed.batch(arrived=arrivals(200.0))
    number = batches_until_found(feed, ({"arrived": arrivals(200.0 * factor)} for _ in range(3)))
    assert number is not None
    (rate,) = drifts(feed.watch)[0].rates
    assert rate.relation == "R"
    # Estimated from the last batch alone, of 20 or 2,000 tuples.
    assert rate.factor == pytest.approx(factor, rel=0.8)


def test_a_batch_that_took_longer_is_no_drift() -> None:
    """All relations have more tuples, steps more probes, and nothing else has changed."""
    feed = Feed()
    rng = np.random.default_rng(3)
    for number in range(200):
        size = 100 if number < 100 or number % 3 else 2000
        found = feed.batch(
            {"a": rng.poisson(5 * size)},
            {"R": rng.poisson(size), "S": rng.poisson(2 * size)},
            probes=size,
        )
        assert not found


def test_one_wild_batch_is_no_drift_and_two_are() -> None:
    feed = Feed()
    for _ in range(30):
        feed.batch({"a": 1000})
    assert not feed.batch({"a": 10**9})
    for _ in range(30):
        assert not feed.batch({"a": 1000})
    assert not feed.batch({"a": 10**9})
    assert feed.batch({"a": 10**9})


def test_what_was_reported_makes_its_level_anew() -> None:
    feed = Feed()
    for _ in range(30):
        feed.batch({"a": 1000})
    assert batches_until_found(feed, [{"matches": {"a": 20_000}}] * 3) == 2
    feed.watch = begun_anew(feed.watch)
    for _ in range(30):
        assert not feed.batch({"a": 20_000})
    assert batches_until_found(feed, [{"matches": {"a": 1000}}] * 3) == 2


def test_slow_growth_is_left_to_forecasts() -> None:
    feed = Feed()
    for number in range(1, 400):
        assert not feed.batch({"a": 100 * number})


def test_files_that_come_now_and_then_do_not_drift() -> None:
    feed = Feed()
    rng = np.random.default_rng(5)
    for _ in range(500):
        come = 5000 if rng.random() < 0.3 else 0
        assert not feed.batch(arrived={"R": come, "S": rng.poisson(100), "T": rng.poisson(100)})


def test_without_probes_nothing_is_observed() -> None:
    feed = Feed()
    for _ in range(30):
        feed.batch({"a": 1000}, {"R": 0, "S": 0})
    seen = feed.watch.sums.seen.tolist()
    for _ in range(30):
        assert not feed.batch()
        assert not feed.batch({"a": 0}, {"R": 0, "S": 0}, probes=0)
    assert feed.watch.sums.seen.tolist() == seen == [30, 0, 30, 0, 0, 0]
    assert np.isfinite(feed.watch.sums.level).all()


def test_few_probes_are_put_together() -> None:
    feed = Feed()
    for _ in range(9):
        feed.batch({"a": 10}, {"R": 1, "S": 4}, probes=10)
    # Three groups of ten make a value of the step, six groups of five a value of rates.
    assert feed.watch.sums.seen.tolist() == [3, 0, 3, 0, 1, 1]
    assert feed.watch.values[0] == pytest.approx(0.0)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_no_finite_number_is_left_out(odd: float) -> None:
    sums = Sums.zero(2)
    for _ in range(LEARNED + 5):
        sums = observe(sums, np.array([odd, 1.0]), np.full(2, 100.0))
    assert sums.seen.tolist() == [0, LEARNED + 5]
    assert sums.level.tolist() == [0.0, 1.0]
    assert sums.height.tolist() == [0.0, 0.0]


def test_counters_that_were_set_back_are_no_measurement() -> None:
    feed = Feed()
    for _ in range(30):
        feed.batch({"a": 1000}, {"R": 100, "S": 100})
    seen = feed.watch.sums.seen[0]
    lower = {"a": EdgeStatistics(5, 5)}
    feed.watch = watch(feed.watch, EDGES, lower, feed.edges, {"R": -50, "S": 100})
    assert feed.watch.sums.seen[0] == seen
    assert not feed.watch.alarmed


def test_steps_keep_their_sums_under_other_rules() -> None:
    """New steps start, and steps that no rule has any more are forgotten."""
    feed = Feed()
    for _ in range(30):
        feed.batch({"a": 1000, "b": 50}, {"R": 100, "S": 100})
    level = feed.watch.sums.level[0]
    rules = Edges.of({"x": RS, "y": CountedStep(SubJoinStep(MirId("S,T"), (S,), (T,)))})
    now = watch(feed.watch, rules, {}, {}, {"R": 100, "S": 100, "T": 100})
    assert now.steps == rules.steps
    assert now.sums.seen.tolist() == [30, 0, 30, 0, 31, 31, 1]
    assert now.sums.level[0] == level
    assert not now.alarmed
