"""Compare forecast costs of the next period with today's shares, PMJoin's model, and counting."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from anabranch_contract.errors import StatisticsError
from anabranch_contract.plans.plan import Objective, Optimizer
from anabranch_contract.queries.joins import JoinQuery, Label, RelationId
from anabranch_contract.queries.mirs import Mir, sub_join
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.forecast import Supply, met
from anabranch_planner.cost.statistics.statistics import PeriodForecast, Statistics
from anabranch_planner.cost.timing import LoosestBounds, shares
from anabranch_planner.cost.uncertainty import cost_range
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.normal.time_bounds import close, from_windows
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from tests.support.cases.queries import chain, given_statistics, join_query
from tests.support.cases.random_problems import random_queries
from tests.support.oracles.rate_model import counted

NAMES = tuple(Label(x) for x in "RSTUV")
SPAN = 1_000_000
QUERY = chain("R.a=S.a", "S.b=T.b", "T.c=U.c")

Pairs = dict[tuple[Label, Label], int]


def random_bounds(rng: random.Random, size: int, *, gaps: bool) -> Pairs:
    """Random time bounds between some pairs; with ``gaps`` some require that a partner is older."""
    found: Pairs = {}
    for i in NAMES[:size]:
        for j in NAMES[:size]:
            if i < j and rng.random() < 0.7:
                least = rng.randrange(SPAN // 4) if gaps and rng.random() < 0.5 else None
                found[i, j] = rng.randrange(SPAN // 3, 2 * SPAN)
                found[j, i] = rng.randrange(2 * SPAN) if least is None else -least
    return found


def within(mir_labels: str, query: JoinQuery = QUERY) -> Mir:
    return sub_join(query, frozenset(Label(x) for x in mir_labels))


def windowed(widths: Mapping[str, int | None]) -> JoinQuery:
    names = [str(label) for label in QUERY.labels]
    return replace(QUERY, bounds=close(from_windows(names, widths), names))


def model(
    query: JoinQuery,
    sizes: Mapping[str, float],
    coming: PeriodForecast | None,
    **known: float | None,
) -> CostModel:
    statistics = given_statistics(
        cardinalities=sizes, selectivity_default=0.01, ahead=coming, history=known.get("span")
    )
    return CostModel(statistics, bounds=LoosestBounds([query]))


def test_rows_that_were_never_stored_are_not_met() -> None:
    """Of 10,000 tuples of S only the last 100 are stored: a tuple of R finds these and new ones."""
    query = join_query(["R.a=S.a"])
    sizes = {"R": 10_000.0, "S": 10_000.0}
    arriving = {RelationId("R"): 50.0, RelationId("S"): 50.0}
    both = sub_join(query, frozenset(query.labels))
    plain = model(query, sizes, PeriodForecast(0.005, arriving))
    young = model(query, sizes, PeriodForecast(0.005, arriving, held={RelationId("S"): 100.0}))
    more = model(query, sizes, PeriodForecast(0.005, arriving, held={RelationId("S"): 1e9}))
    ratio = young.probe(both, Label("R")) / plain.probe(both, Label("R"))
    assert ratio == pytest.approx((100 + 25) / (10_000 + 25))
    assert young.probe(both, Label("S")) == plain.probe(both, Label("S"))
    assert more.probe(both, Label("R")) == plain.probe(both, Label("R"))


@pytest.mark.parametrize("seed", range(60))
def test_without_held_rows_it_is_todays_shares(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.randint(2, 5)
    members, bounds = NAMES[:size], random_bounds(rng, size, gaps=True)
    supplies = {m: Supply(0.0, rng.uniform(1, 1e6), float(SPAN)) for m in members}
    expected = shares(members, bounds, dict.fromkeys(members, float(SPAN)))
    found = met(members, bounds, supplies, float(SPAN))
    for one, partners, share in zip(members, found, expected, strict=True):
        others = math.prod(supplies[m].arriving for m in members if m != one)
        assert partners == pytest.approx(others * share, rel=1e-10)


@pytest.mark.parametrize("seed", range(60))
def test_steady_windows_are_pmjoins_rates_times_windows(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.randint(2, 5)
    members = NAMES[:size]
    widths = {m: rng.randrange(1, SPAN) for m in members}
    rates = {m: rng.uniform(1e-3, 10) for m in members}
    bounds = {(i, j): widths[i] for i in members for j in members if i != j}
    extent = SPAN * 10 ** rng.uniform(-4, 2)
    supplies = {m: Supply(rates[m] * SPAN, rates[m] * extent, float(SPAN)) for m in members}
    found = met(members, bounds, supplies, extent)
    for one, partners in zip(members, found, strict=True):
        others = [m for m in members if m != one]
        assert partners == pytest.approx(math.prod(rates[m] * widths[m] for m in others))


@pytest.mark.parametrize("seed", range(30))
def test_it_is_what_is_counted(seed: int) -> None:
    rng = random.Random(seed)
    size, bounds = rng.randint(2, 3), {}
    members = NAMES[:size]
    extent = SPAN * rng.uniform(0.1, 2)
    supplies, times, before = {}, [], []
    for m in members:
        held, coming, span = rng.randint(0, 40), rng.randint(1, 40), SPAN * rng.uniform(0.2, 1)
        supplies[m] = Supply(held, coming, span)
        before.append([-span * (k + 0.5) / held for k in range(held)])
        times.append([*before[-1], *(extent * (k + 0.5) / coming for k in range(coming))])
    if rng.random() < 0.8:  # windows, or: each stream's partners are older by half of a window
        width, half = rng.randrange(SPAN // 2, SPAN), rng.randrange(SPAN // 4)
        bounds = {(i, j): width for i in members for j in members if i != j}
        if size == 2 and rng.random() < 0.5:
            bounds = {(members[0], members[1]): width, (members[1], members[0]): -half}
    places = {(members.index(i), members.index(j)): float(d) for (i, j), d in bounds.items()}
    whole, old = counted(times, places), counted(before, places)
    found = met(members, bounds, supplies, extent)
    rows = {m: s.held + s.arriving for m, s in supplies.items()}
    for place, (one, partners) in enumerate(zip(members, found, strict=True)):
        rest = math.prod(rows[m] for m in members if m != one)
        expected = supplies[one].arriving * partners
        # Rows are at the middles of their intervals, so counts differ by about a row per stream.
        slack = supplies[one].arriving * rest * sum(1 / rows[m] for m in members)
        assert abs(whole[place] - old[place] - expected) <= slack + 1


@pytest.mark.parametrize("seed", range(40))
def test_constant_rates_cost_one_to_k_times_todays_price_per_unit(seed: int) -> None:
    """Check the claim of docs/cost-model.md, with and without windows."""
    rng = random.Random(seed)
    sizes = {x: rng.uniform(10, 1000) for x in "RSTU"}
    length = 10 ** rng.uniform(-3, 1)
    widths = {x: rng.choice([None, rng.randrange(1, 2 * SPAN)]) for x in "RSTU"}
    query = windowed(widths)
    today = model(query, sizes, None, span=float(SPAN))
    ahead = model(query, sizes, PeriodForecast(length), span=float(SPAN))
    for labels in ("R", "RS", "ST", "RST", "STU", "RSTU"):
        mir = within(labels, query)
        most = ((1 + length) ** len(labels) - 1) / length
        for label in labels:
            old = length * today.probe(mir, Label(label))
            new = ahead.probe(mir, Label(label))
            assert old * (1 - 1e-9) <= new <= old * most * (1 + 1e-9)


@pytest.mark.parametrize("length", [0.001, 0.1, 1.0, 5.0])
def test_over_full_history_a_step_costs_by_its_relations(length: float) -> None:
    sizes = {"R": 100.0, "S": 200.0, "T": 300.0, "U": 400.0}
    today, ahead = model(QUERY, sizes, None), model(QUERY, sizes, PeriodForecast(length))
    for labels in ("R", "S", "RS", "ST", "TU", "RST", "STU", "RSTU"):
        factor = (1 + length) ** len(labels) - 1
        mir, one = within(labels), Label(labels[0])
        assert ahead.probe(mir, one) == pytest.approx(factor * today.probe(mir, one))
        assert ahead.probe(mir) == pytest.approx(factor * today.probe(mir))
        assert ahead.insert(mir) == pytest.approx(factor * today.insert(mir))
        assert ahead.cardinality(mir) == today.cardinality(mir)  # stocks are what history brought


def test_short_windows_rank_as_today() -> None:
    query = windowed(dict.fromkeys("RSTU", 20))
    sizes = {"R": 1e4, "S": 2e4, "T": 3e4, "U": 4e4}
    today = model(query, sizes, None, span=float(SPAN))
    ahead = model(query, sizes, PeriodForecast(0.05), span=float(SPAN))
    for labels in ("R", "RS", "TU", "RST", "STU", "RSTU"):
        mir = within(labels, query)
        for label in labels:
            price = today.probe(mir, Label(label))
            assert ahead.probe(mir, Label(label)) == pytest.approx(0.05 * price, rel=1e-3)


def test_a_step_costs_what_forecast_arrivals_meet() -> None:
    """100 rows of S are stored, 10 arrive; the period's R tuples find 105 of them on average."""
    coming = PeriodForecast(0.1, {RelationId("R"): 50.0, RelationId("S"): 10.0})
    known = model(QUERY, {"R": 1000.0, "S": 100.0, "T": 1.0, "U": 1.0}, coming)
    pair = within("RS")
    assert known.probe(within("R"), Label("R")) == 50
    assert known.probe(pair, Label("R")) == pytest.approx(0.01 * 50 * 105)
    assert known.probe(pair, Label("S")) == pytest.approx(0.01 * 10 * 1025)
    assert known.insert(pair) == pytest.approx(0.01 * (50 * 105 + 10 * 1025))
    assert known.probe(within("T"), Label("T")) == pytest.approx(0.1)  # as in the history
    free = CostModel(
        given_statistics(default=1.0, ahead=coming), objective=Objective.PAPER, parallelism=2
    )
    assert free.insert(pair) == 0


def test_held_rows_leave_the_reach_of_windows() -> None:
    """The window is half of the period: rows stored at its start leave it in the first half."""
    query = windowed({"R": SPAN // 2, "S": SPAN // 2, "T": None, "U": None})
    arriving = {RelationId("R"): 10.0, RelationId("S"): 0.0}
    known = model(
        query, dict.fromkeys("RSTU", 100.0), PeriodForecast(1.0, arriving), span=float(SPAN)
    )
    # 50 rows are within the window at first and none from the middle on: 12.5 on average.
    assert known.probe(within("RS", query), Label("R")) == pytest.approx(0.01 * 10 * 12.5)
    assert known.probe(within("RS", query), Label("S")) == 0


def test_rows_within_a_window_are_those_of_the_last_periods() -> None:
    """10 rows of R arrived in nine tenths of the history and 90 in the last one."""
    query = windowed({"R": SPAN // 10, "S": SPAN // 20, "T": None, "U": None})
    arriving, history = {RelationId("S"): 1.0, RelationId("R"): 90.0}, dict.fromkeys("RSTU", 100.0)
    burst = {RelationId("R"): ((0.1, 90.0),)}
    even = model(query, history, PeriodForecast(0.1, arriving), span=float(SPAN))
    known = model(query, history, PeriodForecast(0.1, arriving, burst), span=float(SPAN))
    # On average over the period, R's window has half of the 10 earlier rows, by the history's mean,
    # and half of the 90 arriving rows.
    pair, one = within("RS", query), Label("S")
    assert even.probe(pair, one) == pytest.approx(0.01 * (10 / 2 + 90 / 2))
    assert known.probe(pair, one) == pytest.approx(0.01 * 90)
    ages = Supply(100.0, 0.0, 1000.0, ((10.0, 40.0), (50.0, 60.0)))
    assert [ages.younger(x) for x in (0, 5, 10, 30, 50, 525, 1000, 2000)] == pytest.approx(
        [0, 20, 40, 50, 60, 80, 100, 100]
    )


def test_distinct_counts_are_those_of_held_and_arriving_tuples() -> None:
    distincts = {("R", "a"): 90.0, ("S", "a"): 150.0}
    sizes = {"R": 100.0, "S": 100.0}
    arriving = {RelationId("R"): 10.0, RelationId("S"): 100.0}
    without = CostModel(given_statistics(cardinalities=sizes, distincts=distincts, default=1.0))
    coming = PeriodForecast(0.1, arriving)
    known = CostModel(
        given_statistics(cardinalities=sizes, distincts=distincts, default=1.0, ahead=coming)
    )
    assert without.probe(within("RS"), Label("R")) == pytest.approx(100 * 100 / 2 / 100)
    assert without.contradictions
    assert known.probe(within("RS"), Label("R")) == pytest.approx(10 * 150 / 150)
    assert not known.contradictions


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_senseless_forecasts_are_refused(value: float) -> None:
    coming = PeriodForecast(1.0, {RelationId("R"): value})
    known = CostModel(Statistics(ahead=coming))
    with pytest.raises(StatisticsError, match="arrivals of R"):
        known.probe(within("R"), Label("R"))
    with pytest.raises(StatisticsError, match="next period"):
        PeriodForecast(value)


@pytest.mark.parametrize("seed", range(12))
def test_plans_are_priced_alike_wherever_they_are_priced(seed: int) -> None:
    rng = random.Random(seed)
    queries = [
        replace(q, bounds=close(from_windows(list(q.labels), widths), list(q.labels)))
        for q in random_queries(seed, count=4, size=rng.choice([3, 4]), relations=6)
        for widths in [{str(x): rng.choice([None, rng.randrange(1, SPAN)]) for x in q.labels}]
    ]
    relations = sorted({r.id for q in queries for r in q.relations})
    coming = PeriodForecast(
        rng.uniform(0.01, 2),
        {r: rng.uniform(0, 1000) for r in relations if rng.random() < 0.8},
        {r: ((0.1, rng.uniform(0, 50)), (0.2, rng.uniform(50, 100))) for r in relations},
    )
    statistics = given_statistics(
        {r: rng.uniform(10, 1000) for r in relations},
        selectivity_default=0.01,
        history=float(SPAN),
        ahead=coming,
    )
    plans = [
        optimise(queries, statistics, Options(optimizer=one, parallelism=3))
        for one in (Optimizer.CLASH, Optimizer.SHARED, Optimizer.INDIVIDUAL)
    ]
    for plan in plans:
        validate_plan(plan, queries)
        assert cost_of(plan, queries, statistics, parallelism=3) == pytest.approx(plan.cost)
    assert plans[0].cost <= plans[1].cost * (1 + 1e-9)
    assert plans[1].cost <= plans[2].cost * (1 + 1e-9)
    spread = cost_range(plans[0], queries, statistics, parallelism=3)
    assert spread.low == pytest.approx(spread.high)
