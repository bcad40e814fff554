"""Tests of the network costs of steps and inserts on several hosts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from anabranch_contract.errors import StatisticsError
from anabranch_contract.plans.plan import Objective
from anabranch_contract.queries.joins import Label, RelationId
from anabranch_contract.queries.mirs import base_mir, sub_join
from anabranch_planner.cost.exchange import ARRIVAL, ExchangeModel
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from tests.support.cases.queries import chain, given_statistics
from tests.support.cases.small_problems import any_query
from tests.support.cases.what_if import small_statistics

R, S, T, U = (Label(x) for x in "RSTU")
#: R and S have one key, S and T another, T and U the one of S and T again.
QUERY = chain("R.a=S.a", "S.b=T.b", "T.b=U.b")
HOSTS, PARTITIONS, RATE = 4, 8, 100.0
WIDTHS = {RelationId(x): {"a": 8.0, "b": 20.0} for x in "RSTU"}
#: Cost of a byte in tuples.
BYTE = CostConstants().tuples_per_byte


def model(
    objective: Objective = Objective.TUPLES,
    parallelism: int = PARTITIONS,
    exchange: ExchangeModel | None = None,
) -> CostModel:
    hosts = ExchangeModel(HOSTS, WIDTHS) if exchange is None else exchange
    statistics = given_statistics(default=RATE, selectivity_default=0.02, exchange=hosts)
    bounds = LoosestBounds([QUERY])
    return CostModel(statistics, objective=objective, parallelism=parallelism, bounds=bounds)


def hop(before: str, after: str, *, broadcast: bool, parallelism: int = PARTITIONS) -> float:
    """Return the bytes that a tuple sends between two steps."""
    start = Label(before[0])
    over, joined = (sub_join(QUERY, frozenset(map(Label, some))) for some in (before, after))
    found = model(parallelism=parallelism).hop(1.0, over, joined, start, broadcast=broadcast)
    return found / BYTE


def test_a_tuple_takes_the_columns_that_later_steps_ask_for() -> None:
    # R has only key a, S both. The query outputs the first key of each.
    elsewhere = (HOSTS - 1) / HOSTS
    assert hop("R", "RS", broadcast=False) == pytest.approx(elsewhere * (ARRIVAL + 8))
    assert hop("RS", "RST", broadcast=False) == pytest.approx(elsewhere * (ARRIVAL + 8 + 8 + 20))
    assert hop("S", "RS", broadcast=False) == pytest.approx(elsewhere * (ARRIVAL + 28))


def test_a_broadcast_sends_a_copy_to_every_other_host() -> None:
    assert hop("R", "RS", broadcast=True) == pytest.approx((HOSTS - 1) * (ARRIVAL + 8))


def test_a_tuple_that_came_by_the_key_stays() -> None:
    assert hop("TU", "STU", broadcast=False) == 0.0
    assert hop("ST", "STU", broadcast=False) == 0.0
    # The tuple was routed by either of two keys.
    assert hop("RST", "RSTU", broadcast=False) > 0.0


def test_stores_of_one_partition_are_on_one_host() -> None:
    elsewhere = (HOSTS - 1) / HOSTS
    first = hop("R", "RS", broadcast=False, parallelism=1)
    assert first == pytest.approx(elsewhere * (ARRIVAL + 8))
    assert hop("RS", "RST", broadcast=False, parallelism=1) == 0.0


def test_rows_are_sent_to_their_owners() -> None:
    alone = CostModel(given_statistics(default=RATE, selectivity_default=0.02))
    sent = (HOSTS - 1) / HOSTS * RATE
    base = base_mir(RelationId("S"))
    more = model().insert(base) - alone.insert(base)
    assert more == pytest.approx(sent * (ARRIVAL + 28) * BYTE)
    kept = sub_join(QUERY, frozenset((S, T)))
    rows = alone.added(kept) * (HOSTS - 1) / HOSTS
    # An arrival at each member, and the keys that join it with others: a of S, b of either.
    assert model().insert(kept) - alone.insert(kept) == pytest.approx(
        rows * (2 * ARRIVAL + 8 + 20 + 20) * BYTE
    )


def test_where_most_of_what_arrives_is_local_less_is_sent() -> None:
    near = model(exchange=ExchangeModel(HOSTS, WIDTHS, locality=0.9))
    over, joined = (sub_join(QUERY, frozenset(map(Label, some))) for some in ("R", "RS"))
    assert near.hop(1.0, over, joined, R, broadcast=False) / BYTE == pytest.approx(
        0.1 * (ARRIVAL + 8)
    )
    # A copy to every other host, and a partial result that may be anywhere, cost as much as before.
    assert near.hop(1.0, over, joined, R, broadcast=True) == model().hop(
        1.0, over, joined, R, broadcast=True
    )
    over, joined = (sub_join(QUERY, frozenset(map(Label, some))) for some in ("RS", "RST"))
    assert near.hop(1.0, over, joined, R, broadcast=False) == model().hop(
        1.0, over, joined, R, broadcast=False
    )
    base = base_mir(RelationId("S"))
    alone = CostModel(given_statistics(default=RATE, selectivity_default=0.02)).insert(base)
    assert near.insert(base) - alone == pytest.approx(RATE * 0.1 * (ARRIVAL + 28) * BYTE)


@pytest.mark.parametrize("locality", [-0.1, 1.1, float("nan")])
def test_a_locality_that_is_no_share_is_refused(locality: float) -> None:
    with pytest.raises(StatisticsError) as refused:
        ExchangeModel(2, {}, locality)
    assert refused.value.field == "locality"


def test_bytes_are_seconds_or_tuples_or_nothing() -> None:
    before, after = (sub_join(QUERY, frozenset(map(Label, some))) for some in ("R", "RS"))
    found = {
        objective: model(objective).hop(1.0, before, after, R, broadcast=True)
        for objective in Objective
    }
    crossing = (HOSTS - 1) * (ARRIVAL + 8)
    assert found == {
        Objective.TUPLES: pytest.approx(crossing * BYTE),
        Objective.SECONDS: pytest.approx(crossing * CostConstants().byte),
        Objective.PAPER: 0.0,
    }


@pytest.mark.parametrize("seed", range(6))
def test_on_one_host_nothing_changes(seed: int) -> None:
    rng = Random(seed)
    queries = [any_query(rng, f"q{i}", 3) for i in range(3)]
    plain = small_statistics(rng)
    hosted = [
        optimise(queries, known, Options(parallelism=4))
        for known in (plain, _on(plain, ExchangeModel(1, WIDTHS)))
    ]
    assert hosted[0] == hosted[1]


@pytest.mark.parametrize("seed", range(6))
def test_more_hosts_never_cost_less(seed: int) -> None:
    rng = Random(f"hosts {seed}")
    queries = [any_query(rng, f"q{i}", rng.choice((3, 4))) for i in range(2)]
    plain = small_statistics(rng)
    costs = [
        optimise(queries, _on(plain, ExchangeModel(hosts, WIDTHS)), Options(parallelism=4)).cost
        for hosts in (1, 2, 3, 8)
    ]
    assert costs == sorted(costs)


def _on(statistics: Statistics, exchange: ExchangeModel) -> Statistics:
    return replace(statistics, exchange=exchange)


def test_bad_figures_are_named() -> None:
    with pytest.raises(StatisticsError, match="there are 0 hosts"):
        ExchangeModel(0)
    with pytest.raises(StatisticsError, match=r"values of R\.a have -1"):
        ExchangeModel(2, {RelationId("R"): {"a": -1.0}})
