"""Which measurements have moved."""

from __future__ import annotations

import pytest

from anabranch_contract.protocol.measurements import FrequentValues
from anabranch_contract.queries.joins import RelationId
from anabranch_planner.cost.exchange import ExchangeModel
from anabranch_planner.cost.statistics.statistics import (
    ForecastStatistics,
    NoStatistics,
    PeriodForecast,
    TableStatistics,
)
from anabranch_planner.cost.statistics.steady import Steady

R, S = RelationId("r"), RelationId("s")


def counted(
    count: float, ahead: PeriodForecast | None = None
) -> ForecastStatistics | TableStatistics:
    tables = TableStatistics({R: count, S: 1000.0})
    return tables if ahead is None else ForecastStatistics(tables, ahead)


def after(was: float, now: float) -> Steady:
    before = Steady(counted(was), None, 0.1)
    assert (before.cardinality(R), before.cardinality(S)) == (was, 1000.0)
    return Steady(counted(now), before, 0.1)


@pytest.mark.parametrize(
    ("was", "now"), [(0.0, 1.0), (1.0, 2.0), (100.0, 125.0), (1e6, 1.09e6), (4.0, 1.0)]
)
def test_within_the_error_of_a_count_nothing_has_moved(was: float, now: float) -> None:
    figures = after(was, now)
    assert figures.moved == frozenset()
    assert figures.cardinality(R) == was


@pytest.mark.parametrize(("was", "now"), [(0.0, 10.0), (100.0, 150.0), (1e6, 1.2e6), (40.0, 10.0)])
def test_what_is_beyond_it_has_moved(was: float, now: float) -> None:
    figures = after(was, now)
    assert figures.moved == frozenset({R})
    assert figures.cardinality(R) == now


def coming(length: float, arrivals: float, before: Steady | None) -> Steady:
    ahead = PeriodForecast(length, {R: arrivals, S: 1000.0 * length}, {}, 3, {R: 500.0})
    return Steady(counted(1000.0, ahead), before, 0.1)


@pytest.mark.parametrize("longer", [0.6, 1.0, 1.9])
def test_a_period_of_another_length_brings_as_much_in_proportion(longer: float) -> None:
    first = coming(0.5, 400.0, None)
    second = coming(0.5 * longer, 400.0 * longer, first)
    assert second.moved == frozenset()
    assert second.ahead() == first.ahead()
    third = coming(0.5 * longer, 800.0 * longer, first)
    assert third.moved == frozenset({R})
    ahead = third.ahead()
    assert ahead is not None
    assert (ahead.length, ahead.arrivals[S]) == (0.5, 500.0)
    assert ahead.arrivals[R] == pytest.approx(800.0)


@pytest.mark.parametrize("longer", [0.4, 2.1])
def test_a_much_longer_or_shorter_period_is_another(longer: float) -> None:
    second = coming(0.5 * longer, 400.0 * longer, coming(0.5, 400.0, None))
    assert second.moved is None
    ahead = second.ahead()
    assert ahead is not None
    assert ahead.length == 0.5 * longer


def on_hosts(hosts: int, width: float, before: Steady | None) -> Steady:
    exchange = ExchangeModel(hosts, {R: {"a": width, "b": 8.0}, S: {"a": 8.0}})
    known = ForecastStatistics(TableStatistics({R: 1000.0, S: 1000.0}), None, None, exchange)
    return Steady(known, before, 0.1)


def test_widths_hold_still_and_another_number_of_hosts_concerns_all() -> None:
    first = on_hosts(3, 20.0, None)
    near = on_hosts(3, 21.0, first)
    assert near.moved == frozenset()
    assert near.exchange() == first.exchange()
    wide = on_hosts(3, 30.0, first)
    assert wide.moved == frozenset({R})
    exchange = wide.exchange()
    assert exchange is not None
    assert exchange.widths == {R: {"a": 30.0, "b": 8.0}, S: {"a": 8.0}}
    assert on_hosts(4, 20.0, first).moved is None
    assert Steady(TableStatistics(), first, 0.1).moved is None


def test_frequent_values_are_those_of_now() -> None:
    was, now = (FrequentValues((9,), ("5",), (s,), (s,), 0.0) for s in (0.5, 0.51))
    first = Steady(TableStatistics(values={(R, "a"): was}), None, 0.1)
    second = Steady(ForecastStatistics(TableStatistics(values={(R, "a"): now}), None), first, 0.1)
    assert (first.frequent(R, "a"), second.frequent(R, "a")) == (was, now)
    assert second.frequent(R, "b") is None
    assert NoStatistics().frequent(R, "a") is None


def test_the_share_of_null_holds_still_as_those_of_values_do() -> None:
    def known(nulls: float, before: Steady | None) -> Steady:
        found = FrequentValues((9,), ("5",), (0.5,), (0.5,), 0.0, nulls, nulls)
        steady = Steady(TableStatistics({R: 100.0}, values={(R, "a"): found}), before, 0.1)
        steady.frequent(R, "a")
        return steady

    first = known(0.3, None)
    assert known(0.31, first).moved == frozenset()
    assert known(0.4, first).moved == frozenset({R})
