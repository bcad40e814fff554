"""Compare the choice of substreams with all orders and all selections of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain as flat
from itertools import combinations, pairwise, permutations
from random import Random

import numpy as np
import pytest

from anabranch_contract.plans.plan import Objective
from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.protocol.measurements import FrequentValues
from anabranch_contract.queries.joins import JoinQuery, Label, RelationId
from anabranch_contract.queries.mirs import sub_join
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.statistics.steady import Settled
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan.session import Session
from anabranch_planner.skew.start_orders import Starts
from anabranch_planner.skew.substreams import WORTH, choose, selected
from tests.planner.cost.test_values import with_nulls
from tests.support.cases.queries import chain

STAR = chain("R.a=S.a", "S.a=T.a", "T.a=U.a")


def skewed(rng: Random, values: int = 6, costs: CostConstants | None = None) -> Statistics:
    """Return a star over one key whose relations have different frequent values."""
    known = {}
    for name in "RSTU":
        weights = np.array([rng.random() ** 6 for _ in range(values)])
        shares = 0.9 * weights / weights.sum()
        order = np.argsort(-shares)
        stated = tuple(shares[order].tolist())
        hashes = tuple((order + 1).tolist())
        known[RelationId(name), "a"] = FrequentValues(hashes, ("",) * values, stated, stated, 0.0)
    names = [RelationId(n) for n in "RSTU"]
    return Statistics(
        {n: rng.uniform(100, 10_000) for n in names},
        every_distinct=dict.fromkeys(names, 200.0),
        values=known,
        constants=costs,
    )


def starts(statistics: Statistics, *queries: JoinQuery) -> Starts:
    return Starts(queries or (STAR,), CostModel(statistics))


@pytest.mark.parametrize("chunk", range(10))
def test_a_thousand_selections_are_the_best(chunk: int) -> None:
    for seed in range(100 * chunk, 100 * chunk + 100):
        rng = np.random.default_rng(seed)
        prices = rng.random((rng.integers(1, 7), rng.integers(1, 9))) ** 3
        calls, most = float(rng.random() * 0.3), int(rng.integers(1, 5))
        rows, total = selected(prices, calls, most)
        best = min(
            prices[list(some)].min(axis=0).sum() + calls * (len(some) - 1)
            for some in flat.from_iterable(
                combinations(range(len(prices)), count) for count in range(1, most + 1)
            )
        )
        assert total == pytest.approx(best)
        assert len(rows) <= most
        found = prices[list(rows)].min(axis=0).sum() + calls * (len(rows) - 1)
        assert found == pytest.approx(total)


@pytest.mark.parametrize("seed", range(30))
def test_with_room_every_value_has_its_cheapest_order(seed: int) -> None:
    for choice in choose(starts(skewed(Random(seed))), 16):
        start = choice.function.start
        others = [label for label in "RSTU" if label != start]
        hashes = range(1, 7)
        # One substream per value: the cost of each order for it.
        alone = Substreams(start, "a", "bigint", tuple((h,) for h in hashes))
        divided = CostModel(skewed(Random(seed)), substreams=(alone,))
        costs = np.array(
            [
                [
                    sum(
                        divided.probe(sub_join(STAR, frozenset({start, *order[:at]})), start, n)
                        for at in range(len(order))
                    )
                    for n in range(7)
                ]
                for order in permutations(map(Label, others))
            ]
        )
        assert choice.before == pytest.approx(costs.sum(axis=1).min(), rel=1e-6)
        assert choice.after == pytest.approx(costs.min(axis=0).sum(), rel=1e-6)
        assert choice.after < choice.before


@pytest.mark.parametrize("seed", range(10))
def test_fewer_substreams_never_save_more(seed: int) -> None:
    known = starts(skewed(Random(seed)))
    saved = [sum(c.before - c.after for c in choose(known, most)) for most in (1, 2, 3, 4)]
    assert saved == sorted(saved)
    assert saved[0] == 0
    assert all(c.function.count <= 2 for c in choose(known, 2))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("relations", ["R", "ST", "RSTU"])
def test_nulls_change_no_kinds(seed: int, relations: str) -> None:
    statistics = skewed(Random(seed))
    plain = choose(starts(statistics), 4)
    found = choose(starts(with_nulls(statistics, relations)), 4)
    assert [c.function.groups for c in found] == [c.function.groups for c in plain]
    for one, other in zip(found, plain, strict=True):
        assert (one.before, one.after) == pytest.approx((other.before, other.after))
        # NULLs count among the unlisted values; a listed value's share is of all arrivals.
        part = 0.5 if one.function.start in relations else 1.0
        shares = [part * share for share in other.function.shares[1:]]
        assert one.function.shares[1:] == pytest.approx(shares, abs=1e-6)
        assert sum(one.function.shares) == pytest.approx(1, abs=1e-5)


def test_calls_that_cost_more_than_they_save_leave_tuples_alike() -> None:
    dear = CostConstants(call=10.0, calls=1e6)
    model = CostModel(skewed(Random(3), costs=dear), objective=Objective.SECONDS)
    assert choose(Starts([STAR], model), 4) == ()


def test_equal_distributions_are_not_told_apart() -> None:
    known = skewed(Random(3)).values[RelationId("R"), "a"]
    names = [RelationId(n) for n in "RSTU"]
    statistics = Statistics(
        dict(zip(names, (100.0, 1000.0, 3000.0, 9000.0), strict=True)),
        every_distinct=dict.fromkeys(names, 200.0),
        values={(n, "a"): known for n in names},
    )
    assert choose(starts(statistics), 4) == ()


def test_without_frequent_values_nothing_is_told_apart() -> None:
    assert choose(starts(Statistics()), 4) == ()
    assert choose(starts(skewed(Random(1)), chain("R.a=S.a")), 4) == ()


def moved(statistics: Statistics, rng: Random, by: float) -> Statistics:
    """Return the statistics with shares that are wrong by up to ``by`` (relative)."""
    values = {}
    for column, known in statistics.values.items():
        shares = [s * (1 + by * rng.uniform(-1, 1)) for s in known.arriving]
        order = sorted(range(len(shares)), key=lambda at: -shares[at])
        stated = tuple(shares[at] for at in order)
        hashes = tuple(known.hashes[at] for at in order)
        values[column] = FrequentValues(hashes, known.texts, stated, stated, known.error)
    return replace(statistics, values=values)


@pytest.mark.parametrize("seed", range(30))
def test_values_stay_until_much_is_saved(seed: int) -> None:
    rng = Random(seed)
    statistics = skewed(rng)
    before = choose(starts(statistics), 3)
    earlier = [choice.function for choice in before]
    again = choose(starts(statistics), 3, earlier)
    assert [choice.function for choice in again] == earlier
    assert [c.after for c in again] == pytest.approx([c.after for c in before])
    for by in (0.01, 0.9):
        known = starts(moved(statistics, rng, by))
        anew = {c.function.start: c for c in choose(known, 3)}
        for choice in choose(known, 3, earlier):
            best = anew.get(choice.function.start)
            if choice.function in earlier:
                assert choice.after < choice.before
                assert best is None or choice.after <= best.after + WORTH * choice.before + 1e-9
            else:
                assert choice == best
    # A function with more substreams than now allowed is not kept.
    fewer = choose(starts(statistics), 2, earlier)
    assert all(c.function.count <= 2 for c in fewer)


def test_many_queries_are_not_told_apart_without_bounds() -> None:
    names = [f"S{number}" for number in range(30)]
    known = skewed(Random(3)).values
    template = [known[RelationId(n), "a"] for n in "RSTU"]
    statistics = Statistics(
        {RelationId(n): 100.0 * (1 + at) for at, n in enumerate(names)},
        every_distinct={RelationId(n): 200.0 for n in names},
        values={(RelationId(n), "a"): template[at % 4] for at, n in enumerate(names)},
    )
    rng = Random(5)
    queries = []
    for number in range(80):
        some = rng.sample(names, 4)
        pairs = pairwise(some)
        queries.append(chain(*(f"{a}.a={b}.a" for a, b in pairs), id=f"q{number}"))
    chosen = choose(starts(statistics, *queries), 4)
    using = {c.function.start: sum(c.function.start in q.labels for q in queries) for c in chosen}
    more = sum((c.function.count - 1) * using[c.function.start] for c in chosen)
    assert chosen
    assert more <= 80 * 4 // 2


def test_a_new_plan_keeps_kinds_until_much_is_saved() -> None:
    """Whether this session has made the last plan, or another service."""
    stayed = 0
    for seed in range(12):
        rng = Random(seed)
        known = skewed(rng)
        later = moved(known, rng, 0.5)
        options = Options(substreams=3, mir=False)
        session = Session()
        before = session.plan([STAR], Settled(known), options).substreams
        anew = Session().plan([STAR], Settled(later), options).substreams
        after = session.plan([STAR], Settled(later), options).substreams
        read = replace(options, told_apart=before)
        assert Session().plan([STAR], Settled(later), read).substreams == after
        assert optimise([STAR], later, read).substreams == after
        stayed += after == before != anew
    assert stayed > 2
