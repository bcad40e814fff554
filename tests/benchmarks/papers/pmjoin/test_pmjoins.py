"""Tests of plans with PMJoins: costs against tracing each tuple, selections against all others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest

from benchmarks.papers.pmjoin.keyed_rates import KeyedRates
from benchmarks.papers.pmjoin.operators import Operator, cost
from benchmarks.papers.pmjoin.partitioners import Group, Partitioner, grouped
from benchmarks.papers.pmjoin.pmjoins import (
    MakeGroups,
    PartitionedPlan,
    PMJoin,
    Selection,
    input_labels,
    label,
    pmjoins,
    selected,
    with_joins,
)
from benchmarks.papers.pmjoin.rates import RatesByValue
from benchmarks.papers.pmjoin.stream_join_opt import stream_join_opt

VALUES = 6


def by(partitioner: Partitioner, count: int) -> MakeGroups:
    def groups(rates: RatesByValue, sites: Sequence[int]) -> list[Group]:
        return grouped(rates, sites, partitioner, count, stream_join_opt)

    return groups


def drawn(seed: int) -> tuple[KeyedRates, list[int]]:
    """Random streams on a few hosts, along a random tree whose edges have one of a few keys."""
    rng = np.random.default_rng(seed)
    count, keys = int(rng.integers(3, 9)), int(rng.integers(2, 5))
    having: list[set[int]] = [set() for _ in range(keys)]
    for one in range(1, count):
        having[int(rng.integers(keys))] |= {one, int(rng.integers(one))}
    shares = [
        {stream: rng.dirichlet(np.full(VALUES, 0.3)) for stream in sorted(some)} for some in having
    ]
    rates = 10 ** rng.uniform(0, 2, count)
    windows = rates * 10 ** rng.uniform(-2.5, 0.5, count)
    sites = [int(host) for host in rng.integers(int(rng.integers(2, count + 1)), size=count)]
    return KeyedRates(list(rates), list(windows), shares), sites


def followed(found: PartitionedPlan, rates: KeyedRates) -> float:
    """Return tuples per second between hosts, summed over the values of each PMJoin's key; this
    must be ``cost``.
    """
    joins = {one.candidate.streams: one for one in found.joins}

    def sent(operator: Operator, to: int | None) -> float:
        join = joins.get(operator.streams)
        if join is None:
            away = to is not None and to != operator.host
            total = rates.rate(operator.streams) if away else 0.0
            return total + sum(sent(one, operator.host) for one in operator.inputs)
        total = sum(sent(one, None) for one in join.candidate.inputs)
        for group in join.groups:
            for value in group.values:
                total += travelled(group.plan, join, int(value), to)
        return total

    def travelled(plan: Operator, join: PMJoin, value: int, to: int | None) -> float:
        total = sum(travelled(one, join, value, plan.host) for one in plan.inputs)
        if to is not None and to != plan.host:
            inside = [
                one
                for number, one in enumerate(join.candidate.inputs)
                if plan.streams >> number & 1
            ]
            union = sum(one.streams for one in inside)
            shares = rates.shares[join.candidate.key]
            products = np.prod([s for n, s in shares.items() if union >> n & 1], axis=0)
            total += rates.rate(union) * products[value] / products.sum()
        return float(total)

    return sent(found.plan, None)


@pytest.mark.parametrize("chunk", range(10))
def test_a_thousand_plans_cost_what_their_tuples_travel(chunk: int) -> None:
    several = 0
    for seed in range(100 * chunk, 100 * chunk + 100):
        rates, sites = drawn(seed)
        plan = stream_join_opt(rates, sites)
        partitioner = (Partitioner.HASH, Partitioner.RANGE, Partitioner.RATE)[seed % 3]
        possible = pmjoins(plan, rates, rates.shares, by(partitioner, 1 + seed % 4))
        whole = cost(plan, rates)
        assert with_joins(plan, rates, ()).cost == pytest.approx(whole)
        best = selected(plan, rates, possible, Selection.SAVING)
        papers = selected(plan, rates, possible, Selection.INPUT_RATE)
        for found in (best, papers):
            assert found.cost == pytest.approx(followed(found, rates)), seed
            saved = sum(one.saved for one in found.joins)
            assert found.cost == pytest.approx(whole - saved, abs=1e-9 * whole), seed
        assert best.cost <= papers.cost * (1 + 1e-9)
        assert best.cost <= whole * (1 + 1e-9)
        assert bool(papers.joins) == bool(possible)
        several += len(possible) > 1
        cheapest = min(
            with_joins(plan, rates, some).cost
            for size in range(len(possible) + 1)
            for some in combinations(possible, size)
            if not {one.candidate.above for one in some} & {one.candidate.streams for one in some}
        )
        assert best.cost == pytest.approx(cheapest), seed
    assert several > 10


def test_groups_chosen_by_plan_are_at_least_as_good_as_any_others() -> None:
    for seed in range(40):
        rates, sites = drawn(seed)
        plan = stream_join_opt(rates, sites)
        sums = {
            partitioner: [
                sum(group.cost for group in one.groups)
                for one in pmjoins(plan, rates, rates.shares, by(partitioner, 3))
            ]
            for partitioner in Partitioner
        }
        for others in sums.values():
            assert all(
                one <= other * (1 + 1e-9)
                for one, other in zip(sums[Partitioner.PLAN], others, strict=True)
            )


def test_one_group_is_one_plan_of_streamjoinopt_for_all_values() -> None:
    rates, sites = drawn(1)
    plan = stream_join_opt(rates, sites)
    for one in pmjoins(plan, rates, rates.shares, by(Partitioner.HASH, 1)):
        (group,) = one.groups
        assert group.values.tolist() == list(range(VALUES))
        union = rates.rate(one.candidate.streams)
        assert one.brings == pytest.approx([union])


def test_a_pmjoin_is_shown_without_a_host() -> None:
    spread = np.array([0.9, 0.1])
    shares = [{0: spread, 1: spread[::-1]}, {1: np.array([0.5, 0.5]), 2: np.array([0.5, 0.5])}]
    rates = KeyedRates([10.0, 10.0, 1000.0], [0.1, 0.1, 9.0], shares)
    plan = stream_join_opt(rates, [0, 1, 2])
    # T joins by another key; R and S are its child.
    _, join = pmjoins(plan, rates, shares, by(Partitioner.RANGE, 2))
    found = with_joins(plan, rates, [join])
    names, hosts = ["R", "S", "T"], ["r", "s", "t"]
    assert plan.label(names, hosts) == "((R ⋈ S)@s ⋈ T)@t"
    assert label(found, names, hosts) == "((R ⋈ S)@* ⋈ T)@t"
    inputs = input_labels(found, join, names, hosts)
    assert [group.plan.label(inputs, hosts) for group in join.groups] == ["(S ⋈ R)@r", "(R ⋈ S)@s"]
    # A tenth of each stream is sent, instead of one whole stream.
    assert join.saved == pytest.approx(10 - 2)
