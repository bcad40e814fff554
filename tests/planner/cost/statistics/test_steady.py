"""Tests of changes of measurements: whether they are large enough for a new plan."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.protocol.measurements import FrequentValues
from anabranch_contract.queries.joins import (
    JoinQuery,
    Label,
    QueryId,
    QueryMember,
    Relation,
    RelationId,
    StreamName,
)
from anabranch_planner.cost.exchange import ExchangeModel
from anabranch_planner.cost.statistics.statistics import PeriodForecast, Statistics
from anabranch_planner.cost.statistics.steady import Settled, settle

R, S = RelationId("r"), RelationId("s")


def counted(count: float, ahead: PeriodForecast | None = None) -> Statistics:
    return Statistics({R: count, S: 1000.0}, ahead=ahead)


def after(was: float, now: float) -> Settled:
    before = settle(counted(was), None, 0.1)
    assert before == Settled(counted(was))
    return settle(counted(now), before.statistics, 0.1)


def settled(newest: Statistics, before: Settled | None) -> Settled:
    return settle(newest, None if before is None else before.statistics, 0.1)


@pytest.mark.parametrize(
    ("was", "now"), [(0.0, 1.0), (1.0, 2.0), (100.0, 125.0), (1e6, 1.09e6), (4.0, 1.0)]
)
def test_within_the_error_of_a_count_nothing_has_moved(was: float, now: float) -> None:
    figures = after(was, now)
    assert figures.moved == frozenset()
    assert figures.statistics.cardinality(R) == was


@pytest.mark.parametrize(("was", "now"), [(0.0, 10.0), (100.0, 150.0), (1e6, 1.2e6), (40.0, 10.0)])
def test_what_is_beyond_it_has_moved(was: float, now: float) -> None:
    figures = after(was, now)
    assert figures.moved == frozenset({R})
    assert figures.statistics.cardinality(R) == now


def coming(length: float, arrivals: float, before: Settled | None) -> Settled:
    ahead = PeriodForecast(length, {R: arrivals, S: 1000.0 * length}, {}, 3, {R: 500.0})
    return settled(counted(1000.0, ahead), before)


@pytest.mark.parametrize("longer", [0.6, 1.0, 1.9])
def test_a_period_of_another_length_brings_as_much_in_proportion(longer: float) -> None:
    first = coming(0.5, 400.0, None)
    second = coming(0.5 * longer, 400.0 * longer, first)
    assert second.moved == frozenset()
    assert second.statistics.ahead == first.statistics.ahead
    third = coming(0.5 * longer, 800.0 * longer, first)
    assert third.moved == frozenset({R})
    ahead = third.statistics.ahead
    assert ahead is not None
    assert (ahead.length, ahead.arrivals[S]) == (0.5, 500.0)
    assert ahead.arrivals[R] == pytest.approx(800.0)


@pytest.mark.parametrize("longer", [0.4, 2.1])
def test_a_much_longer_or_shorter_period_is_another(longer: float) -> None:
    second = coming(0.5 * longer, 400.0 * longer, coming(0.5, 400.0, None))
    assert second.moved is None
    ahead = second.statistics.ahead
    assert ahead is not None
    assert ahead.length == 0.5 * longer


def on_hosts(hosts: int, width: float, before: Settled | None) -> Settled:
    exchange = ExchangeModel(hosts, {R: {"a": width, "b": 8.0}, S: {"a": 8.0}})
    return settled(Statistics({R: 1000.0, S: 1000.0}, exchange=exchange), before)


def test_widths_hold_still_and_another_number_of_hosts_concerns_all() -> None:
    first = on_hosts(3, 20.0, None)
    near = on_hosts(3, 21.0, first)
    assert near.moved == frozenset()
    assert near.statistics.exchange == first.statistics.exchange
    wide = on_hosts(3, 30.0, first)
    assert wide.moved == frozenset({R})
    exchange = wide.statistics.exchange
    assert exchange is not None
    assert exchange.widths == {R: {"a": 30.0, "b": 8.0}, S: {"a": 8.0}}
    assert on_hosts(4, 20.0, first).moved is None
    assert settled(Statistics(), first).moved is None


def test_frequent_values_hold_still() -> None:
    was, now = (FrequentValues((9,), ("5",), (s,), (s,), 0.0) for s in (0.5, 0.51))
    first = settle(Statistics(values={(R, "a"): was}), None, 0.1)
    second = settled(Statistics(values={(R, "a"): now, (R, "b"): now}), first)
    assert second.statistics.values == {(R, "a"): was, (R, "b"): now}
    assert second.moved == frozenset({R})


def test_the_share_of_null_holds_still_as_those_of_values_do() -> None:
    def known(nulls: float, before: Settled | None) -> Settled:
        found = FrequentValues((9,), ("5",), (0.5,), (0.5,), 0.0, nulls, nulls)
        return settled(Statistics({R: 100.0}, values={(R, "a"): found}), before)

    first = known(0.3, None)
    assert known(0.31, first).moved == frozenset()
    assert known(0.4, first).moved == frozenset({R})


def test_a_span_concerns_the_filtered_relations_of_its_stream() -> None:
    plain, other = (
        JoinQuery(
            id=QueryId(stream),
            members=(QueryMember("x", Label(name), RelationId(name)),),
            relations=(Relation(RelationId(name), StreamName(stream)),),
            predicates=(),
            classes=(),
            bounds=((0,),),
            residuals=(),
            projection=(),
        )
        for stream, name in (("r", "r[0badcafe]"), ("s", "s"))
    )
    first = settle(Statistics(spans={"r": 1e6, "s": 1e6}), None, 0.1)
    assert not settled(Statistics(spans={"r": 1.05e6, "s": 1e6}), first).concerns(plain)
    longer = settled(Statistics(spans={"r": 2e6, "s": 1e6}), first)
    assert longer.concerns(plain)
    assert not longer.concerns(other)
    assert longer.statistics.span(RelationId("r[0badcafe]")) == 2e6
    changed = settled(Statistics(history=5.0), settle(Statistics(), None, 0.1))
    assert changed.concerns(other)


@given(st.data())
def test_no_figure_is_further_from_its_measurement_than_the_tolerance(data: st.DataObject) -> None:
    """This holds after any number of plans; a query is affected if one of its figures differs."""
    figures = st.dictionaries(
        st.sampled_from([R, S]), st.floats(0, 1e6), min_size=data.draw(st.integers(0, 2))
    )
    held: Settled | None = None
    for _ in range(4):
        newest = Statistics(
            data.draw(figures),
            distincts={(r, "a"): count for r, count in data.draw(figures).items()},
            every_distinct=data.draw(figures),
            spans={str(r): span for r, span in data.draw(figures).items()},
        )
        before, held = held, settled(newest, held)
        assert (held.before is None) == (before is None)
        for name in ("cardinalities", "distincts", "every_distinct", "spans"):
            fresh, kept = getattr(newest, name), getattr(held.statistics, name)
            assert fresh.keys() == kept.keys()
            for key, value in kept.items():
                error = 0.0 if name == "spans" else 2 * max(value, fresh[key]) ** 0.5
                assert abs(fresh[key] - value) <= 0.1 * value + error + 1e-6
            if before is not None:
                was = getattr(before.statistics, name)
                assert held.moved is not None
                differ = {k for k in was.keys() | kept.keys() if was.get(k) != kept.get(k)}
                assert {k if isinstance(k, str) else k[0] for k in differ} <= held.moved
