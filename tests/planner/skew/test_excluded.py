"""Compare excluded values with all sets of values, and with plans that keep all or nothing."""

from __future__ import annotations

from itertools import chain as flat
from itertools import combinations, pairwise
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_contract.plans.plan import Objective
from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.protocol.measurements import FrequentValues
from anabranch_contract.queries.joins import AttrRef, Label, RelationId
from anabranch_contract.queries.mirs import Mir, sub_join
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.cost.values import joined_columns
from anabranch_planner.passes import optimise
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_planner.skew import excluded as aside
from anabranch_planner.skew.excluded import set_aside
from anabranch_planner.skew.start_orders import StartOrders, Starts
from tests.planner.cost.test_values import with_nulls
from tests.planner.skew.test_substreams import STAR, moved, skewed
from tests.support.cases.queries import chain

Hashes = NDArray[np.uint64]
Costs = NDArray[np.float64]

R, S, T = map(Label, "RST")
LINE = chain("R.a=S.a", "S.a=T.a")
FREE = CostConstants(calls=0.0)


def model_of(statistics: Statistics, *queries: object) -> CostModel:
    bounds = LoosestBounds(queries or (LINE,))  # type: ignore[arg-type]
    return CostModel(statistics, objective=Objective.SECONDS, bounds=bounds)


def full_inside(rare: float = 0.0, *, calls: float = 0.0, size: float = 1e4) -> Statistics:
    """Return statistics: value 1 is frequent in S and T and (nearly) missing in R, which has 50
    times the rows.
    """

    def known(share: float) -> FrequentValues:
        return FrequentValues((1,), ("one",), (share,), (share,), 0.0)

    names = [RelationId(n) for n in "RST"]
    return Statistics(
        dict(zip(names, (50 * size, size, size), strict=True)),
        every_distinct=dict.fromkeys(names, size),
        values={(n, "a"): known(rare if n == "R" else 0.1) for n in names},
        constants=CostConstants(calls=calls),
    )


@pytest.mark.parametrize("seed", range(30))
def test_the_least_cost_of_each_value_is_that_of_some_order(seed: int) -> None:
    model = model_of(skewed(Random(seed), costs=FREE), STAR)
    hashes = np.arange(1, 7, dtype=np.uint64)
    for start in "RSTU":
        goal = StartOrders(STAR, AttrRef(Label(start), "a"), hashes, model)
        others = frozenset(map(Label, "RSTU")) - {start}
        for inside in [None, *map(frozenset, combinations(sorted(others), 2))]:
            through = None if inside is None else sub_join(STAR, inside)
            costs = np.array([order_cost(model, start, o, hashes) for o in orders(others, inside)])
            found = goal.plain if through is None else goal.least(through)
            assert found == pytest.approx(costs.min(axis=0))


def orders(
    left: frozenset[Label], inside: frozenset[Label] | None
) -> list[tuple[frozenset[Label], ...]]:
    """Return all probe orders of ``left``; the labels of ``inside`` may be probed as one store."""
    if not left:
        return [()]
    targets = [frozenset({label}) for label in left]
    targets += [inside] if inside is not None and inside <= left else []
    return [(one, *rest) for one in targets for rest in orders(left - one, inside)]


def order_cost(
    model: CostModel, start: str, order: tuple[frozenset[Label], ...], hashes: Hashes
) -> list[float]:
    """Return an order's cost value by value, by a model in which each value has a substream."""
    alone = Substreams(Label(start), "a", "bigint", tuple((h,) for h in hashes.tolist()))
    divided = model.divided((alone,))
    heads = [frozenset({Label(start)}).union(*order[:at]) for at in range(len(order) + 1)]
    steps = [
        (sub_join(STAR, a), sub_join(STAR, b), sub_join(STAR, probed).id)
        for (a, b), probed in zip(pairwise(heads), order, strict=True)
    ]
    numbers = [*range(1, alone.count), 0]
    return [
        sum(divided.step(a, b, store, Label(start), n, broadcast=False) for a, b, store in steps)
        for n in numbers
    ]


@pytest.mark.parametrize("seed", range(60))
def test_no_other_values_save_more(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "WORTH", 0.0)
    model = model_of(skewed(Random(seed), costs=FREE))
    functions = [one for one in set_aside(Starts([LINE], model), (), 4) if one.aside]
    hashes = np.arange(1, 7, dtype=np.uint64)
    saved = {}
    for inside in combinations((R, S, T), 2):
        mir = sub_join(LINE, frozenset(inside))
        (start,) = {R, S, T} - set(inside)
        gains = gain(model, mir, start, hashes)
        nothing = max(float(gains.sum()), 0.0)
        for left in subsets(range(6)):
            kept = sum(g for at, g in enumerate(gains) if at not in left)
            saved[start, tuple(at + 1 for at in left)] = kept - nothing
    best = max(saved, key=lambda key: saved[key])
    if functions:
        assert [one.start for one in functions] == [R, S, T]
        ((left,),) = {one.groups for one in functions}
        assert max(saved[start, left] for start in (R, S, T)) == pytest.approx(saved[best])
        assert saved[best] > 0
    else:
        assert not best[1] or saved[best] <= 1e-12


def subsets(items: range) -> list[tuple[int, ...]]:
    return list(flat.from_iterable(combinations(items, n) for n in range(len(items) + 1)))


def gain(model: CostModel, mir: Mir, start: Label, hashes: Hashes) -> Costs:
    goal = StartOrders(LINE, AttrRef(start, "a"), hashes, model)
    columns = joined_columns(mir, AttrRef(mir.members[0], "a"))
    weights = model.values.weights(columns, hashes)
    rows = model.added(mir) * weights / weights.sum()
    gained = goal.plain - goal.least(mir) - FREE.row * rows
    for member in mir.members:
        gained -= upkeep(model, mir, member, start, hashes)
    return np.asarray(gained, np.float64)


def upkeep(model: CostModel, mir: Mir, member: Label, start: Label, hashes: Hashes) -> Costs:
    """Return the cost per value of a member's probe of the other, for the store alone or on the way
    to a result, whichever adds less.
    """
    goal = StartOrders(LINE, AttrRef(member, "a"), hashes, model)
    alone = Substreams(member, "a", "bigint", tuple((h,) for h in hashes.tolist()))
    divided = model.divided((alone,))
    (other,) = set(mir.members) - {member}
    own, second, last = (sub_join(LINE, frozenset({x})) for x in (member, other, start))
    whole, found = sub_join(LINE, frozenset({R, S, T})), []
    for at, number in enumerate([*range(1, alone.count), 0]):
        first = divided.step(own, mir, second.id, member, number, broadcast=False)
        then = divided.step(mir, whole, last.id, member, number, broadcast=False)
        found.append(min(first, first + then - goal.plain[at]))
    return np.array(found)


@pytest.mark.parametrize("objective", list(Objective))
def test_a_plan_keeps_all_but_what_is_set_aside(objective: Objective) -> None:
    statistics = full_inside()
    alike, apart = (
        optimise([LINE], statistics, Options(objective=objective, substreams=most))
        for most in (1, 4)
    )
    validate_plan(apart, [LINE])
    assert cost_of(apart, [LINE], statistics) == pytest.approx(apart.cost)
    assert apart.cost < 0.9 * alike.cost
    function = next(one for one in apart.substreams if one.start == R)
    assert (function.groups, function.aside) == (((1,),), (1,))
    rules = compile_ruleset(apart, [LINE], (), epoch=0, parallelism=1, sinks={})
    (store,) = (s for s in rules.stores if len(s.members) > 1)
    assert store.kept is not None
    assert (store.members, store.kept.hashes, store.kept.listed) == ((S, T), (1,), False)


@pytest.mark.parametrize("relations", ["R", "S", "RST"])
def test_nulls_change_nothing_about_what_is_set_aside(relations: str) -> None:
    statistics = full_inside()
    plain = set_aside(Starts([LINE], model_of(statistics)), (), 4)
    found = set_aside(Starts([LINE], model_of(with_nulls(statistics, relations))), (), 4)
    assert plain
    assert [(one.groups, one.aside) for one in found] == [(o.groups, o.aside) for o in plain]


def test_nothing_is_set_aside_where_all_is_worth_keeping_or_nothing() -> None:
    often = full_inside(rare=0.1)
    assert set_aside(Starts([LINE], model_of(often)), (), 4) == ()
    few = full_inside(size=10.0)
    dear = model_of(full_inside(calls=1e6))
    assert set_aside(Starts([LINE], model_of(few)), (), 4) == ()
    assert set_aside(Starts([LINE], dear), (), 4) == ()
    assert set_aside(Starts([LINE], model_of(full_inside())), (), 1) == ()


def test_a_result_that_is_probed_by_other_keys_is_left_whole() -> None:
    other = chain("S.a=T.a", "T.b=V.b", id="other")
    model = model_of(full_inside(), LINE, other)
    assert set_aside(Starts([LINE, other], model), (), 4) == ()
    same = chain("R.a=S.a", "S.a=T.a", id="same")
    assert set_aside(Starts([LINE, same], model_of(full_inside(), LINE, same)), (), 4)


def test_what_is_told_apart_already_is_told_apart_further() -> None:
    model = model_of(full_inside())
    there = Substreams(R, "a", "bigint", ((1, 2), (5,)), shares=(0.5, 0.3, 0.2))
    found, *others = set_aside(Starts([LINE], model), (there,), 4)
    assert found.groups == ((1,), (2,), (5,))
    assert found.aside == (1,)
    assert [(one.groups, one.aside) for one in others] == [(((1,),), (1,))] * 2
    # Existing substreams have another use and are not given up for excluded values.
    assert set_aside(Starts([LINE], model), (there,), 3) == (there,)
    elsewhere = Substreams(R, "b", "bigint", ((1, 2), (5,)))
    assert set_aside(Starts([LINE], model), (elsewhere,), 4) == (elsewhere,)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_set_aside_stays_until_much_is_saved(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(seed)
    statistics = skewed(rng, costs=FREE)
    monkeypatch.setattr(aside, "WORTH", 0.001)
    before = set_aside(Starts([LINE], model_of(statistics)), (), 4)
    if before:
        near = model_of(moved(statistics, rng, 0.001))
        assert [f.groups for f in set_aside(Starts([LINE], near), (), 4, before)] == [
            f.groups for f in before
        ]
