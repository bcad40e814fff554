"""Tests of the choice of hot key values, with loads computed by hand, and of values that are never
hot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest

from anabranch_contract.plans.ruleset import HotValue, LatestRule, Ruleset, StoreId
from anabranch_contract.protocol.measurements import FrequentValues
from anabranch_contract.queries.joins import JoinQuery, RelationId, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.exchange import ExchangeModel
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import EpochRequest, make_rules, optimise
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.hot_keys import (
    MOST,
    HotKeys,
    deal_hot,
    hot_document,
    hot_keys,
)
from anabranch_planner.plans.optimise import Options
from anabranch_planner.plans.traffic import traffic
from tests.support.cases.queries import chain
from tests.support.cases.random_plans import random_plan
from tests.support.cases.random_problems import random_queries

PAIR = chain("R.a=S.a", id="pair")
STREAMS = [
    Stream(StreamName(name), (("a", parse_type("bigint")), ("b", parse_type("bigint"))))
    for name in "RST"
]
#: Cost constants by which only matches cost anything.
MATCHES = CostConstants(call=0.0, probe=0.0, look=0.0, match=1.0, row=0.0, byte=0.0)


def values(*shares: float) -> FrequentValues:
    """Return values with hashes 1, 2, ... and these shares."""
    hashes = tuple(range(1, len(shares) + 1))
    return FrequentValues(hashes, tuple(f"v{h}" for h in hashes), shares, shares, 0.0)


def skewed(*shares: float, hosts: int = 3, distinct: float = 1000.0) -> Statistics:
    """Return statistics with 1000 tuples per stream and unit of time, and frequent values with
    these ``shares``.
    """
    rows = {RelationId(name): 1000.0 for name in "RST"}
    return Statistics(
        rows,
        every_distinct=dict.fromkeys(rows, distinct),
        exchange=ExchangeModel(hosts),
        values={(r, "a"): values(*shares) for r in rows},
    )


def compiled(query: JoinQuery, statistics: Statistics, parallelism: int = 16) -> Ruleset:
    plan = optimise([query], statistics, Options(parallelism=parallelism, mir=False))
    return compile_ruleset(plan, [query], STREAMS, epoch=0, parallelism=parallelism, sinks={})


def chosen(
    statistics: Statistics,
    constants: CostConstants | None = None,
    earlier: Mapping[str, Sequence[HotValue]] | None = None,
    query: JoinQuery = PAIR,
) -> HotKeys:
    rules = compiled(query, statistics)
    model = CostModel(statistics, parallelism=16)
    return hot_keys(rules, [query], model, statistics.exchange, constants, earlier)


def test_one_value_keeps_one_host_busy() -> None:
    """Half of the matches have one value, all others are even: its host has 1/2 + 1/6 of all."""
    rest = 0.1**2 / (1 - 0.1) ** 2 * 1000
    statistics = skewed(0.1, distinct=1 + 1 / rest * 1000)
    found = chosen(statistics, MATCHES)
    share = found.values[0].load * 2
    assert found.before == pytest.approx(1 + 2 * share, rel=1e-6)
    assert found.after == pytest.approx(1.0)
    assert [(one.store, one.value.hosts, one.text) for one in found.values] == [
        ("R[a:bigint]/16", 3, "v1"),
        ("S[a:bigint]/16", 3, "v1"),
    ]


def test_even_values_are_left_at_home() -> None:
    assert chosen(skewed(*(0.001,) * 20)).values == ()


def test_nothing_is_dealt_where_probes_cost_more() -> None:
    """Each value has few matches per probe, and a hot value's probes would be sent to all hosts."""
    dear = CostConstants(call=0.0, probe=1.0, look=0.0, match=1e-6, row=1e-6, byte=0.0)
    assert chosen(skewed(0.3, 0.1), dear).values == ()
    heavy = CostConstants(call=0.0, probe=1e-6, look=0.0, match=1e-6, row=1e-6, byte=1.0)
    assert chosen(skewed(0.3, 0.1), heavy).values == ()


def test_what_is_hot_stays_until_it_spares_much_less() -> None:
    rules = compiled(PAIR, skewed(0.1))
    now = {str(s.id): (HotValue(1, 3),) for s in rules.stores}
    shares = [0.05 / 1.1**n for n in range(60)]
    new = [bool(chosen(skewed(share)).values) for share in shares]
    kept = [bool(chosen(skewed(share), earlier=now).values) for share in shares]
    assert new[0]
    assert not kept[-1]
    assert new == sorted(new, reverse=True)
    assert kept == sorted(kept, reverse=True)
    # A value stays hot until its share falls by a quarter.
    assert sum(kept) >= sum(new) + 3


def test_of_many_hosts_some_do() -> None:
    found = chosen(skewed(0.03, hosts=32))
    assert found.values
    assert all(2 <= one.value.hosts < 32 for one in found.values)
    assert found.after < found.before


def test_there_is_a_partition_for_each_host() -> None:
    statistics = skewed(0.3, hosts=16)
    for partitions, most in ((4, 4), (5, 4), (16, 16), (64, 16)):
        rules = compiled(PAIR, statistics, partitions)
        model = CostModel(statistics, parallelism=partitions)
        found = hot_keys(rules, [PAIR], model, statistics.exchange)
        assert found.values
        assert max(one.value.hosts for one in found.values) <= most


def test_no_more_than_so_many() -> None:
    found = chosen(skewed(*(0.9 / 200,) * 200, distinct=201), MATCHES)
    assert len(found.values) <= MOST


def test_only_hosts_that_know_of_values_deal() -> None:
    statistics = skewed(0.3)
    rules, model = compiled(PAIR, statistics), CostModel(statistics, parallelism=16)
    assert hot_keys(rules, [PAIR], model, None) == HotKeys(1)
    assert hot_keys(rules, [PAIR], model, ExchangeModel(1)) == HotKeys(1)
    blind = CostModel(replace(statistics, values={}), parallelism=16)
    assert hot_keys(rules, [PAIR], blind, ExchangeModel(3)).values == ()


def test_what_keeps_the_latest_is_not_dealt() -> None:
    statistics = skewed(0.3)
    rules, model = compiled(PAIR, statistics), CostModel(statistics, parallelism=16)
    latest = LatestRule(StreamName("R"), RelationId("R"), StoreId("R[a:bigint]/16"), ())
    found = hot_keys(replace(rules, latest_rules=(latest,)), [PAIR], model, ExchangeModel(3))
    assert {one.store for one in found.values} == {"S[a:bigint]/16"}


def test_documents_say_what_is_hot() -> None:
    found = chosen(skewed(0.3, 0.1))
    document = hot_document(found)
    loads = [one["load"] for one in document["values"]]
    assert loads == sorted(loads, reverse=True)


def test_what_hot_values_send_is_predicted() -> None:
    star, hot = chain("R.a=S.a", "S.a=T.a", id="star"), HotValue(1, 3)
    statistics = skewed(0.3)
    model, exchange = CostModel(statistics, parallelism=16), ExchangeModel(3)
    rules = compiled(star, statistics)
    (first,) = (r for r in rules.probe_rules if r.edge == "in:R")
    (second,) = (r for r in rules.probe_rules if r.edge == first.out)
    for some, copies in (
        # From any host to one of three or, for a hot value, to all of them.
        ({first.store}, 2 / 3 + 0.3 * 4 / 3),
        ({second.store}, 2 / 3),
        ({first.store, second.store}, 2 / 3 + 0.3 * 4 / 3),
    ):
        stores = tuple(replace(s, hot=(hot,) if s.id in some else ()) for s in rules.stores)
        found = traffic(replace(rules, stores=stores), [star], model, exchange)
        one = found[first.out]
        assert one.tuples / one.probes == pytest.approx(copies)
        # Results of the first probe are at their home partition, or on the hosts of the hot value's
        # rows.
        share = 0.3 * 0.3 / (0.3 * 0.3 + 0.7 * 0.7 / 999)
        away = {False: 0.0, True: 2 / 3}[first.store in some]
        more = 2.0 if second.store in some else away
        two = found[second.out]
        assert two.tuples / two.probes == pytest.approx(share * more)


@pytest.mark.parametrize("wanted", [False, True])
def test_rules_deal_where_it_is_wanted(wanted: bool) -> None:
    statistics = skewed(0.3)
    plan = optimise([PAIR], statistics, Options(parallelism=16, mir=False))
    request = EpochRequest(
        queries=[PAIR],
        streams=STREAMS,
        statistics=statistics,
        epoch=0,
        parallelism=16,
        sinks={},
        hot_keys=wanted,
    )
    rules = make_rules(plan, request)
    assert any(store.hot for store in rules.ruleset.stores) is wanted
    assert (rules.hot is not None) is wanted


@pytest.mark.parametrize("seed", [*range(30), 159, 720])
def test_any_rules_have_hot_values_that_make_sense(seed: int) -> None:
    """Each reported gain is positive, and no partition without a frequent value has one."""
    rng = Random(seed)
    queries = random_queries(seed, count=4, size=4, relations=6)
    relations = sorted({r.id for q in queries for r in q.relations})
    members = [m for q in queries for c in q.classes for m in c.members]
    # Sorted, since the order of a set of texts varies between processes.
    columns = sorted({(str(m.label), m.attribute) for m in members})
    statistics = Statistics(
        {r: rng.uniform(10, 10_000) for r in relations},
        every_distinct={r: rng.uniform(20, 10_000) for r in relations},
        exchange=ExchangeModel(rng.choice((2, 3, 5, 16))),
        values={
            (RelationId(label), attribute): values(
                *(rng.random() ** 3 / 6 for _ in range(rng.randint(0, 6)))
            )
            for label, attribute in columns
        },
    )
    streams = [
        Stream(StreamName(r), (("x", parse_type("bigint")),))
        for r in sorted({r.stream for q in queries for r in q.relations})
    ]
    rules = compile_ruleset(
        random_plan(queries, rng), queries, streams, epoch=0, parallelism=8, sinks={}
    )
    model = CostModel(statistics, parallelism=8)
    found = hot_keys(rules, queries, model, statistics.exchange)
    assert 1.0 <= found.before <= found.hosts
    assert 1.0 <= found.after <= found.hosts
    for one in found.values:
        assert one.spared > one.price >= 0
        assert 0 < one.load <= 1
        assert 2 <= one.value.hosts <= found.hosts
    made = deal_hot(rules, found)
    made.validate()
    assert hot_keys(rules, queries, model, statistics.exchange) == found
    again = {str(s.id): s.hot for s in made.stores}
    kept = hot_keys(rules, queries, model, statistics.exchange, earlier=again)
    assert set(found.values) <= set(kept.values)
