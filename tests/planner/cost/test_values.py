"""Compare cost figures by value of a key with sums over all values."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.protocol.measurements import FrequentValues
from anabranch_contract.queries.joins import AttrRef, Label, RelationId
from anabranch_contract.queries.mirs import Mir, sub_join
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics
from tests.support.cases.queries import chain

STAR = chain("R.a=S.a", "S.a=T.a", "T.a=U.a")


def frequent(shares: np.typing.NDArray[np.float64], listed: int) -> FrequentValues:
    """Return the ``listed`` most frequent values, whose hashes are 1, 2, ..."""
    order = np.argsort(-shares, kind="stable")[:listed]
    found = tuple(shares[order].tolist())
    return FrequentValues(tuple((order + 1).tolist()), ("",) * listed, found, found, 0.0)


def zipf(count: int, theta: float, rng: Random) -> np.typing.NDArray[np.float64]:
    """Return Zipf shares of ``count`` values in random order."""
    shares = 1 / np.arange(1, count + 1) ** theta
    order = list(range(count))
    rng.shuffle(order)
    dealt: np.typing.NDArray[np.float64] = (shares / shares.sum())[order]
    return dealt


def world(
    seed: int, listed: int, count: int = 40
) -> tuple[dict[str, np.typing.NDArray[np.float64]], Statistics]:
    rng = Random(seed)
    shares = {name: zipf(count, rng.uniform(0.0, 1.5), rng) for name in "RSTU"}
    sizes = {RelationId(name): float(rng.randint(100, 2000)) for name in "RSTU"}
    statistics = Statistics(
        sizes,
        every_distinct=dict.fromkeys(sizes, float(count)),
        values={(RelationId(n), "a"): frequent(s, listed) for n, s in shares.items()},
    )
    return shares, statistics


def over(names: str) -> Mir:
    return sub_join(STAR, frozenset(map(Label, names)))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("names", ["RS", "RST", "RSTU", "TU"])
def test_cardinalities_are_sums_over_values(seed: int, names: str) -> None:
    shares, statistics = world(seed, listed=40)
    sizes = np.prod([statistics.cardinalities[RelationId(n)] for n in names])
    expected = sizes * np.prod([shares[n] for n in names], axis=0).sum()
    assert CostModel(statistics).cardinality(over(names)) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(10))
def test_values_that_are_not_listed_are_alike(seed: int) -> None:
    """With half of the values listed, a sum is more accurate than by distinct counts."""
    shares, statistics = world(seed, listed=20)
    bare = Statistics(statistics.cardinalities, every_distinct=statistics.every_distinct)
    expected = np.prod([shares[n] for n in "RST"], axis=0).sum()
    sizes = np.prod([statistics.cardinalities[RelationId(n)] for n in "RST"])
    found, uniform = (CostModel(s).cardinality(over("RST")) / sizes for s in (statistics, bare))
    assert abs(found - expected) <= abs(uniform - expected) + 1e-12


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("others", [1, 3])
def test_substreams_send_what_their_values_do(seed: int, others: int) -> None:
    shares, statistics = world(seed, listed=40)
    groups = ((1, 2, 3), (7, 20))
    function = Substreams(Label("R"), "a", "bigint", groups, others)
    whole, divided = CostModel(statistics), CostModel(statistics, substreams=(function,))
    assert divided.substreams_of(Label("R")) == others + 2
    assert divided.substreams_of(Label("S")) == 1
    for names in ("R", "RS", "RTU", "RSTU"):
        mir = over(names)
        sent = [divided.probe(mir, Label("R"), n) for n in range(others + 2)]
        assert sum(sent) == pytest.approx(whole.probe(mir, Label("R")))
        by_value = np.prod([shares[n] for n in names], axis=0)
        for number, group in enumerate(groups, others):
            part = by_value[np.array(group) - 1].sum() / by_value.sum()
            assert sent[number] == pytest.approx(part * sum(sent))
        assert sent[:others] == pytest.approx([sent[0]] * others)
        # Other starting streams have no substreams.
        if "S" in names:
            assert divided.probe(mir, Label("S")) == whole.probe(mir, Label("S"))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("names", ["R", "RS", "RSTU"])
def test_each_value_is_in_its_own_substream(seed: int, names: str) -> None:
    shares, statistics = world(seed, listed=40)
    function = Substreams(Label("R"), "a", "bigint", ((1, 2), (3,)))
    whole, model = CostModel(statistics), CostModel(statistics, substreams=(function,))
    mir, key, start = over(names), AttrRef(Label("R"), "a"), Label("R")
    hashes = np.arange(1, 41, dtype=np.uint64)
    every = whole.probe_with(mir, start, (), key, hashes)
    expected = np.prod([shares[n] for n in names], axis=0)
    assert every == pytest.approx(whole.probe(mir, start) * expected / expected.sum())
    assert model.probe_with(mir, start, (), key, hashes) == pytest.approx(every)
    parts = [model.probe_with(mir, start, (number,), key, hashes) for number in range(3)]
    assert sum(parts) == pytest.approx(every)
    assert np.flatnonzero(parts[1]).tolist() == [0, 1]
    assert np.flatnonzero(parts[2]).tolist() == [2]
    for number, part in enumerate(parts):
        assert part.sum() == pytest.approx(model.probe(mir, start, number))


def test_what_is_not_joined_by_the_key_divides_as_arrivals_do() -> None:
    query = chain("R.a=S.a", "R.b=T.b")
    shares = np.array([0.5, 0.3, 0.2])
    statistics = Statistics(
        {RelationId(n): 100.0 for n in "RST"},
        every_distinct={RelationId(n): 3.0 for n in "RST"},
        values={(RelationId("R"), "a"): frequent(shares, 3)},
    )
    model = CostModel(
        statistics, substreams=(Substreams(Label("R"), "a", "bigint", groups=((1,),)),)
    )
    both = sub_join(query, frozenset(map(Label, "RT")))
    assert model.probe(both, Label("R"), 1) == pytest.approx(model.probe(both, Label("R"), 0))


def with_nulls(statistics: Statistics, relations: str) -> Statistics:
    """Return the statistics with as many additional tuples whose key is NULL in some relations."""
    values, sizes = dict(statistics.values), dict(statistics.cardinalities)
    for relation in map(RelationId, relations):
        known = values[relation, "a"]
        arriving, stored = (
            tuple(share / 2 for share in one) for one in (known.arriving, known.stored)
        )
        values[relation, "a"] = replace(
            known, arriving=arriving, stored=stored, null_arriving=0.5, null_stored=0.5
        )
        sizes[relation] *= 2
    return replace(statistics, values=values, cardinalities=sizes)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("relations", ["R", "ST", "RSTU"])
@pytest.mark.parametrize("listed", [5, 40])
def test_nulls_are_no_values(seed: int, relations: str, listed: int) -> None:
    _, statistics = world(seed, listed)
    function = Substreams(Label("R"), "a", "bigint", ((1, 2), (7,)), others=2)
    plain = CostModel(statistics, substreams=(function,))
    found = CostModel(with_nulls(statistics, relations), substreams=(function,))
    start, key, hashes = Label("R"), AttrRef(Label("R"), "a"), np.arange(1, 41, dtype=np.uint64)
    for names in ("RS", "RTU", "RSTU"):
        mir = over(names)
        assert found.cardinality(mir) == pytest.approx(plain.cardinality(mir))
        for number in range(4):
            expected = plain.probe(mir, start, number)
            assert found.probe(mir, start, number) == pytest.approx(expected)
        expected_values = plain.probe_with(mir, start, (), key, hashes)
        assert found.probe_with(mir, start, (), key, hashes) == pytest.approx(expected_values)
    # They arrive, in their substream, and have none of the values.
    arriving = over("R")
    nulls = plain.probe_of(arriving, start, ()) if "R" in relations else 0.0
    for number in range(4):
        expected = plain.probe(arriving, start, number) + (0.0 if number else nulls)
        assert found.probe(arriving, start, number) == pytest.approx(expected)
    expected_values = plain.probe_with(arriving, start, (), key, hashes)
    assert found.probe_with(arriving, start, (), key, hashes) == pytest.approx(expected_values)


@pytest.mark.parametrize("known", [None, FrequentValues()])
def test_nothing_known_of_values_is_as_by_distinct_counts(known: FrequentValues | None) -> None:
    sizes = {RelationId(n): 100.0 for n in "RSTU"}
    values = {} if known is None else {(RelationId(n), "a"): known for n in "RSTU"}
    bare = CostModel(Statistics(sizes, every_distinct=dict.fromkeys(sizes, 25.0)))
    found = CostModel(Statistics(sizes, every_distinct=dict.fromkeys(sizes, 25.0), values=values))
    assert found.cardinality(over("RSTU")) == pytest.approx(bare.cardinality(over("RSTU")))
